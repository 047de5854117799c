"""Commands about rows and configs: train, pack, fit and predict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cerebro_db.cli.connection import connected, open_database
from cerebro_db.cli.exits import Refused
from cerebro_db.cli.output import formatted, say, show
from cerebro_db.cli.runs import chosen, chosen_config, finished, follow, of_config
from cerebro_db.terminal import harmless

if TYPE_CHECKING:
    from cerebro_db.database import Database
    from cerebro_db.protocols import Server
    from cerebro_db.run import Run

PACKED_COLUMNS = ("table", "total_rows", "segments", "buffer_size", "normalizing_const")
TRAINED_COLUMNS = ("mst_key", "net", "parameters", "metric", "value", "loss", "best")
BEGUN_COLUMNS = ("run_id", "status", "configs", "epochs", "segments", "visits_total", "model_table")


def _columns(_context: click.Context, _option: click.Parameter, text: str | None) -> Any:
    """Parse an option of column names: in `a,b` two columns make one vector, `pixels;a,b` has two inputs.

    A vector is a list, and several inputs are a tuple of names and lists.
    """
    if text is None:
        return None
    inputs = [[name.strip() for name in part.split(",") if name.strip()] for part in text.split(";")]
    if not all(inputs):
        raise click.BadParameter("a name is missing")
    if len(inputs) == 1:
        return inputs[0][0] if len(inputs[0]) == 1 else inputs[0]
    return tuple(names[0] if len(names) == 1 else names for names in inputs)


# The types whose columns the server joins into one vector, unless each is a vector of its own.
_NUMBERS = ("bool", "int2", "int4", "int8", "float4", "float8", "numeric")


def _find_inputs(db: Server, table: str, x: Any) -> Any:
    """Return the columns of `_columns` as the client takes them, by their types in the table."""
    if not isinstance(x, tuple):
        return x
    rows = db.rows(
        "SELECT a.attname::text AS name, t.typname::text AS type FROM pg_catalog.pg_attribute AS a"
        " JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid WHERE a.attrelid = pg_catalog.to_regclass(%s)",
        table,
    )
    numbers = {row["name"] for row in rows if row["type"] in _NUMBERS}
    return [[one] if isinstance(one, str) and one in numbers else one for one in x]


def _shape(_context: click.Context, _option: click.Parameter, text: str | None) -> list[int] | None:
    try:
        return None if text is None else [int(size) for size in text.split(",")]
    except ValueError:
        raise click.BadParameter("it is numbers with commas, such as 32,32,3") from None


@click.command(
    short_help="Pack the rows of a table for training.",
    epilog="Names are columns as they are in the table; what must be computed is computed in a view.",
)
@click.argument("table")
@click.option(
    "--x", metavar="COLUMNS", callback=_columns, help="Features; a,b is one vector, a;b two inputs."
)
@click.option("--y", metavar="COLUMNS", callback=_columns, help="What is to be predicted.")
@click.option("--into", metavar="NAME", help="The packed table; by default TABLE_packed.")
@click.option("--like", metavar="PACKED", help="For validation: pack the rows as this table was packed.")
@click.option("--normalize", type=float, help="Divide the features by this.")
@click.option("--shape", metavar="SIZES", callback=_shape, help="Shape of each row, such as 32,32,3.")
@click.option("--task", type=click.Choice(["classification", "regression"]), help="By default from the type.")
@click.option("--segments", type=click.IntRange(1), help="Partitions; by default as the server is set.")
@click.option("--seed", type=int, help="Seed of the shuffle.")
@formatted
@connected
def pack(table: str, form: str, dsn: str, **given: Any) -> None:
    """Pack the rows of TABLE for training.

    \b
    Examples:
      cerebro pack cars --x weight,power --y price
      cerebro pack photos --x image --y kind --shape 32,32,3 --normalize 255
      cerebro pack photos_test --x image --y kind --like photos_packed
    """
    with open_database(dsn) as db:
        given["x"] = _find_inputs(db, table, given["x"])
        packed = db.pack(table, **{name: value for name, value in given.items() if value is not None})
        summary = {"table": packed.table, **packed.summary()}
    show([summary], form, PACKED_COLUMNS)


@click.command(
    short_help="Train nets on a table as it is.",
    epilog="The statements that do the same by hand are shown as they are carried out.",
)
@click.argument("table")
@click.argument("target")
@click.option("--name", help="The table of trained nets; by default TABLE_model.")
@click.option("--budget", default="1 minute", show_default=True, help="How long it may take.")
@click.option("--exclude", metavar="COLUMNS", help="Columns to leave out, with commas.")
@click.option("--configs", type=click.IntRange(1), help="How many configs to try.")
@click.option("--epochs", type=click.IntRange(1), help="The most epochs of one config.")
@click.option("--metric", metavar="NAME", help="The metric that decides, such as auc, f1, logloss or rmse.")
@click.option("--seed", type=click.IntRange(0), help="Seed of rows, weights and search.")
@formatted
@connected
def train(table: str, target: str, exclude: str | None, form: str, dsn: str, **given: Any) -> None:
    """Train nets on the rows of TABLE to predict its column TARGET.

    \b
    Examples:
      cerebro train customers churned --budget '2 minutes'
      cerebro train customers churned --exclude id,name --name churn
      cerebro train customers churned --metric auc
    """
    options = {key: value for key, value in given.items() if value is not None}
    if exclude is not None:
        options["exclude"] = [column.strip() for column in exclude.split(",")]
    from cerebro_db.training import finish

    with open_database(dsn) as db:
        say(f"packing {table} and making nets", err=True)
        run = db.train(table, target, wait=False, **options)
        follow(run)
        found = finish(run)
    show(found, form, TRAINED_COLUMNS)


@click.command(short_help="Begin the run that a spec file describes.")
@click.option(
    "--spec", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True,
    help="What to train, as TOML.",
)  # fmt: skip
@click.option("--check", is_flag=True, help="Only look whether the file is right; ask no server.")
@click.option("--explain", is_flag=True, help="Only show what it would cost; --format json for programs.")
@click.option("--watch", is_flag=True, help="Follow the run until it is over.")
@formatted
@connected
def fit(spec: Path, check: bool, explain: bool, watch: bool, form: str, dsn: str) -> None:
    """Begin the run that a spec file describes.

    It goes on in the background of the server; --watch, or cerebro watch later, follows it.

    \b
    A spec file:
      table = "cars_packed"
      epochs = 9
    \b
      [search]
      method = "asha"
      configs = 20
    \b
      [grid]
      loss = "mse"
      optimizer = ["Adam", "SGD"]
      learning_rate = {float = [1e-4, 1e-1], log = true}
      batch_size = [16, 64]
    \b
    Examples:
      cerebro fit --spec run.toml --explain
      cerebro fit --spec run.toml --watch
      run=$(cerebro fit --spec run.toml --format json | jq '.[0].run_id')
    """
    from cerebro_db.cli.spec import read_spec

    found = read_spec(spec)
    if check:
        click.echo(f"{spec} is right")
        return
    with open_database(dsn, found.architectures) as db:
        if explain:
            plan = found.explain(db)
            click.echo(json.dumps([plan.tree]) if form == "json" else harmless(str(plan)))
            return
        run = found.begin(db)
        show([run.info()], form, BEGUN_COLUMNS)
        if watch:
            follow(run)


@click.command(short_help="Predict the rows of a table with a model of a run.")
@click.argument("table")
@click.option(
    "--x",
    metavar="COLUMNS",
    callback=_columns,
    help="Features, as they were packed; by default the columns that a model of columns as they are names.",
)
@click.option("--id", "id_column", metavar="COLUMN", required=True, help="What tells the rows apart.")
@click.option("--run", type=int, metavar="RUN", help="Models of this run; by default of the newest.")
@of_config("The config whose model it is; by default the best.")
@click.option("--into", metavar="NAME", help="A table to write to; by default the predictions are printed.")
@click.option("--top", type=click.IntRange(1), help="So many classes of each row; by default the likeliest.")
@formatted
@connected
def predict(
    table: str, x: Any, id_column: str, run: int | None, config: int | None, into: str | None,
    top: int | None, form: str, dsn: str,
) -> None:  # fmt: skip
    """Predict the rows of TABLE with a model of a run.

    \b
    Examples:
      cerebro predict new_customers --id id --format csv
      cerebro predict new_cars --x weight,power --id id
      cerebro predict photos --x image --id id --run 7 --config 3 --into photos_kinds
    """
    with open_database(dsn) as db:
        found = chosen(db, run)
        if found.info()["groups"]:
            raise _many_models(finished(found), table, id_column, x)
        key = chosen_config(found, config).mst_key
        model = found.models()
        from cerebro_db import stored
        from cerebro_db.errors import CerebroError
        from cerebro_db.statements import identifier

        if x is None and stored.specification(db, model) is None:
            raise CerebroError(
                f"run {found.run_id} has no models of columns as they are",
                hint="Name the features as they were packed: --x COLUMNS.",
            )
        arguments = (model, table, identifier(id_column), _written(db, table, x))
        named = stored.key_in(db, model, key)
        if into is not None:
            rows = _predict_into(db, arguments, into, top, named)
            say(f"{into}: {rows} rows, by config {key} of run {found.run_id}")
            return
        rows = _predict_here(db, arguments, top, named)
        show(rows, form, tuple(rows[0]) if rows else (id_column,))


def _written(db: Server, table: str, x: Any) -> str:
    """Return the columns of `_columns` as the functions that predict take them; None means all of them."""
    from cerebro_db.statements import names

    found = "*" if x is None else _find_inputs(db, table, x)
    return names([found] if isinstance(x, list) else found)


def _many_models(run: Run, table: str, id_column: str, x: Any) -> Refused:
    """Return the error that refuses a run of groups; its hint is the SQL that predicts such rows."""
    from cerebro_db.statements import call, identifier, table_name

    prepared = run.specification() is not None
    columns = "COLUMNS" if x is None else _written(run.db, table, x)
    out = run.db.free_name(table_name(table, "_predictions"))
    arguments = (run.models(), table, identifier(id_column), "*" if prepared else columns, out, "response")
    return Refused(
        f"run {run.run_id} has a model for each group, and cerebro predict takes one for all rows",
        hint=f"In SQL, each row finds the model of its group: {call('madlib_predict', *arguments)}",
    )


PREDICT = "SELECT cerebro.madlib_keras_predict(%s, %s, %s, %s, %s, %s, FALSE, %s)"


def _predict_into(
    db: Database, arguments: tuple[str, ...], into: str, top: int | None, key: int | None
) -> int:
    from cerebro_db.statements import table_name

    db.rows(PREDICT, *arguments, into, top or "response", key)
    return db.rows(f"SELECT pg_catalog.count(*) AS rows FROM {table_name(into)}")[0]["rows"]


def _predict_here(
    db: Database, arguments: tuple[str, ...], top: int | None, key: int | None
) -> list[dict[str, Any]]:
    """Predict the rows of a table into a table, drop it, and return its rows."""
    into = db.free_name("cerebro_predictions")
    db.rows(PREDICT, *arguments, into, top or "response", key)
    try:
        return db.rows(f"SELECT * FROM {into} ORDER BY 1")
    finally:
        db.rows(f"DROP TABLE {into}")
