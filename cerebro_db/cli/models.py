"""Commands about registered models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from cerebro_db.cli.connection import connected, open_database, without_password
from cerebro_db.cli.exits import Refused
from cerebro_db.cli.output import formatted, show
from cerebro_db.cli.values import read_object

MODEL_COLUMNS = ("name", "owner", "default_version", "versions", "newest_version", "aliases", "privilege")
VERSION_COLUMNS = ("version", "aliases", "metrics", "comment", "registered_by", "at")


@click.command(short_help="List registered models, or the versions of one.")
@click.argument("name", required=False)
@formatted
@connected
def models(name: str | None, form: str, dsn: str) -> None:
    """List the registered models that you may use, or the versions of the one that is named.

    \b
    Examples:
      cerebro models
      cerebro models churn --format json | jq '.[0].metrics'
    """
    from cerebro_db import registry

    with open_database(dsn) as db:
        if name is None:
            show(registry.list_models(db), form, MODEL_COLUMNS, registry.MODELS)
            return
        found = registry.list_versions(db, name.lower())
    if not found:
        raise Refused(
            f"there is no registered model {name} that you may use", hint="cerebro models lists them."
        )
    if form == "table":
        found = [{**row, "metrics": _tell_measured(row["metrics"])} for row in found]
    show(found, form, VERSION_COLUMNS)


def _tell_measured(metrics: Mapping[str, Any]) -> str:
    """Return a version's metric as text: that of the validation rows, if any, else of the training rows."""
    what = "validation" if "validation" in metrics else "training"
    own = metrics.get(what, {})
    named = {own["metric"]: own["value"]} if own.get("metric") else {"loss": own.get("loss")}
    return "".join(f"{what} {name} {float(value):.4g}" for name, value in named.items() if value is not None)


@click.command("import", short_help="Register a model of a folder or of MLflow's.")
@click.argument("source")
@click.argument("name", required=False)
@click.option(
    "--mlflow", metavar="URI", callback=without_password, help="The store of MLflow's whose model SOURCE is."
)
@connected
def bring(source: str, name: str | None, mlflow: str | None, dsn: str) -> None:
    """Register a model that cerebro export has written, as NAME.

    SOURCE is a folder, whose model becomes the next version of NAME. With --mlflow it is a model in MLflow's
    registry: its versions that this database lacks are registered, and its aliases are set. NAME is then its
    own if none is given.

    \b
    Examples:
      cerebro import churn-folder churn
      cerebro import churn --mlflow sqlite:///mlflow.db
    """
    if mlflow is None and name is None:
        raise click.UsageError(f"say as what: cerebro import {source} NAME")
    known = (name or source).lower()
    with open_database(dsn) as db:
        if mlflow is None:
            click.echo(f"{known}@{db.models.load(Path(source), known)}")
            return
        found = db.models.from_mlflow(source, mlflow, known)
    for there, version in found.items():
        click.echo(f"{known}@{version} is version {there} in {mlflow}")


@click.command(short_help="Compare rows with those that a model was trained on.")
@click.argument("model")
@click.argument("table")
@click.option("--thresholds", metavar="JSON", callback=read_object, help="Where an alarm begins, by measure.")
@formatted
@connected
def check(model: str, table: str, thresholds: dict[str, Any] | None, form: str, dsn: str) -> None:
    """Compare the rows of TABLE with those that MODEL was trained on, one finding a line.

    MODEL is a registered model, as name, name@alias or name@version, or a table of models.

    \b
    Examples:
      cerebro check churn@champion customers
      cerebro check churn customers --thresholds '{"stability": 0.2}' --format json
    """
    from cerebro_db import judged

    with open_database(dsn) as db:
        found = judged.check(db, model, table, thresholds)
    show(found, form, judged.CHECKED)


@click.command("worst-rows", short_help="Show the rows that a model answers worst.")
@click.argument("model")
@click.argument("table")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
@formatted
@connected
def worst_rows(model: str, table: str, limit: int, form: str, dsn: str) -> None:
    """Show the rows of TABLE that MODEL answers worst, with their label and the prediction.

    \b
    Example:
      cerebro worst-rows churn@champion customers --limit 5
    """
    from cerebro_db import judged

    with open_database(dsn) as db:
        found = judged.worst_rows(db, model, table, limit)
    show(found, form, ("loss", "truth", "prediction", "probability", "row"), judged.WORST)


@click.command(short_help="Say which columns made a model answer so.")
@click.argument("model")
@click.argument("table")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--id", "id_column", metavar="COLUMN", required=True, help="What tells the rows apart.")
@click.option("--top", type=click.IntRange(1), default=5, show_default=True, help="So many columns a row.")
@formatted
@connected
def explain(
    model: str, table: str, ids: tuple[str, ...], id_column: str, top: int, form: str, dsn: str
) -> None:
    """Predict the rows of TABLE with these IDs by MODEL, and show the columns that add most to each answer.

    \b
    Example:
      cerebro explain churn@champion customers 7 12 --id id
    """
    from cerebro_db import judged

    with open_database(dsn) as db:
        found = judged.explain(db, model, table, id_column, ids, top=top)
    if not found:
        raise Refused(f"{table} has no row whose {id_column} is {' or '.join(ids)}")
    answer = "prediction" if found[0]["class"] is None else "class"
    columns = ("id", answer, "score", "baseline", "column_name", "value", "contribution")
    show(found, form, columns, judged.EXPLAINED)
