"""Commands about runs: list, watch, report, export, stop, resume and forget them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cerebro_db.cli.connection import connected, open_database, without_password
from cerebro_db.cli.exits import NOT_FINISHED, Refused
from cerebro_db.cli.output import formatted, say, show

if TYPE_CHECKING:
    from cerebro_db.database import Database
    from cerebro_db.run import Config, Run

C = TypeVar("C", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)

RUN_COLUMNS = (
    "run_id", "status", "name", "configs", "failed_configs", "epochs", "visits_done", "visits_total",
    "seconds", "started_at", "model_table",
)  # fmt: skip
BOARD_COLUMNS = ("rank", "mst_key", "metric", "value", "loss", "epoch", "compile_params", "fit_params")
GROUP_COLUMNS = (
    "group_key", "rows", "status", "mst_key", "metric", "value", "loss", "epoch", "reason",
)  # fmt: skip
# The number of groups shown without --limit.
FIRST = 50
METRIC_COLUMNS = ("mst_key", "epoch", "dataset", "metric", "value")


def of_run(command: C) -> C:
    return click.argument("run", metavar="[RUN]", type=int, required=False)(command)


def of_named_run(command: C) -> C:
    """Add the argument RUN, without a default, to a command that must not act on the wrong run."""
    return click.argument("run", metavar="RUN", type=int)(command)


def of_config(text: str) -> Callable[[C], C]:
    return click.option("--config", "-c", type=int, metavar="KEY", help=text)


def chosen(db: Database, run: int | None) -> Run:
    """Return the run with this number, by default the caller's newest; raise Refused if there is none."""
    found = db.look(
        "SELECT max(run_id) AS run_id FROM cerebro.runs WHERE run_id = %s OR (%s AND owner = current_user)",
        run, run is None,
    )[0]["run_id"]  # fmt: skip
    if found is None and run is None:
        raise Refused("you have no run yet", hint="cerebro fit --spec run.toml begins one.")
    if found is None:
        raise Refused(f"you have no run {run}", hint="cerebro runs lists those that you have.")
    return db.run(found)


def finished(run: Run) -> Run:
    """Return the run if it is over, so that its tables exist; otherwise raise Refused."""
    # The client is imported where it is needed, so that --help is quick.
    from cerebro_db.run import GOING

    status = run.status
    if status in GOING:
        hint = (
            f"cerebro watch {run.run_id} waits for it, cerebro stop {run.run_id} ends it with what there is."
        )
        raise Refused(f"run {run.run_id} is {status}, and its models come with its end", hint=hint)
    return run


def chosen_config(run: Run, key: int | None, group: str | None = None) -> Config:
    which = None if group is None else _group(group)
    return finished(run).best(which) if key is None else finished(run).config(key, which)


def _group(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise click.UsageError("--group is written as JSON, as cerebro groups lists them")
    return found


@click.command(short_help="List runs, the newest first.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
@formatted
@connected
def runs(limit: int, form: str, dsn: str) -> None:
    """List runs, the newest first.

    \b
    Examples:
      cerebro runs
      cerebro runs --format json | jq '.[0].status'
    """
    with open_database(dsn) as db:
        found = db.look("SELECT * FROM cerebro.runs ORDER BY run_id DESC LIMIT %s", limit)
    show(found, form, RUN_COLUMNS)


@click.command(short_help="Rank the configs of a run.")
@of_run
@click.option("--limit", type=click.IntRange(1), help="At most so many.")
@formatted
@connected
def leaderboard(run: int | None, limit: int | None, form: str, dsn: str) -> None:
    """Rank the configs of a run.

    \b
    Examples:
      cerebro leaderboard
      cerebro leaderboard 7 --limit 5 --format csv
    """
    query = "SELECT * FROM cerebro.leaderboard WHERE run_id = %s ORDER BY group_key, rank, mst_key LIMIT %s"
    with open_database(dsn) as db:
        info = chosen(db, run).info()
        cut = FIRST if info["groups"] and limit is None and form == "table" else limit
        found = db.look(query, info["run_id"], cut)
    failed = any(row["failure"] for row in found)
    columns = ("group_key", *BOARD_COLUMNS) if info["groups"] else BOARD_COLUMNS
    show(found, form, (*columns, "failure") if failed else columns)
    if cut != limit and len(found) == cut:
        say(f"the first {cut}: --limit shows more, cerebro groups the best of each group", err=True)


@click.command(short_help="List the groups of a run, each with its best config.")
@of_run
@click.option("--worst", is_flag=True, help="Those that have reached least first; else by the group.")
@click.option("--limit", type=click.IntRange(1), default=FIRST, show_default=True, help="At most so many.")
@formatted
@connected
def groups(run: int | None, worst: bool, limit: int, form: str, dsn: str) -> None:
    """List the groups of a run, each with its best config, or why it has no model.

    \b
    Examples:
      cerebro groups
      cerebro groups 7 --worst --limit 10
    """
    # Whether a higher value is better is in the rows of cerebro.metrics.
    query = (
        "SELECT g.* FROM cerebro.groups AS g WHERE g.run_id = %s ORDER BY"
        " CASE WHEN %s THEN CASE WHEN (SELECT bool_or(m.higher_is_better) FROM cerebro.metrics AS m"
        " WHERE m.run_id = g.run_id AND m.mst_key = g.unit_key AND m.metric = g.metric) THEN g.value"
        " ELSE -g.value END END NULLS LAST, g.is_fallback DESC, g.group_key::jsonb LIMIT %s"
    )
    with open_database(dsn) as db:
        found = db.look(query, chosen(db, run).run_id, worst, limit)
    show(found, form, GROUP_COLUMNS)


@click.command(short_help="Show what configs reached, epoch by epoch.")
@of_run
@of_config("Of this config alone.")
@formatted
@connected
def metrics(run: int | None, config: int | None, form: str, dsn: str) -> None:
    """Show what configs reached after the epochs that were measured.

    \b
    Examples:
      cerebro metrics 7 --config 3
      cerebro metrics --format csv > metrics.csv
    """
    query = (
        "SELECT * FROM cerebro.metrics WHERE run_id = %s AND mst_key = coalesce(%s, mst_key)"
        " ORDER BY mst_key, epoch, dataset, metric"
    )
    with open_database(dsn) as db:
        found = db.look(query, chosen(db, run).run_id, config)
    show(found, form, METRIC_COLUMNS)


@click.command(short_help="Say what the losses of a run tell.")
@of_run
@formatted
@connected
def advise(run: int | None, form: str, dsn: str) -> None:
    """Say what the losses of a run tell, and what to try next. Nothing is shown where all is well.

    \b
    Example:
      cerebro advise 7
    """
    from cerebro_db import judged

    with open_database(dsn) as db:
        found = judged.advise(db, chosen(db, run).run_id)
    show(found, form, judged.ADVICE)


@click.command(short_help="Follow a run until it is over.")
@of_run
@connected
def watch(run: int | None, dsn: str) -> None:
    """Follow a run until it is over; Ctrl-C asks it to stop.

    Ends with code 4 if it failed or was interrupted.

    \b
    Examples:
      cerebro watch
      cerebro watch 7 && cerebro report 7
    """
    with open_database(dsn) as db:
        follow(chosen(db, run))


def follow(run: Run) -> None:
    """Watch a run until it is over; exit with code 4 unless the run has finished."""
    from cerebro_db.errors import CerebroError

    run.watch()
    try:
        run.check_finished()
    except CerebroError as error:
        say(error.message, err=True)
        raise click.exceptions.Exit(NOT_FINISHED) from None


@click.command(short_help="Write a report of a run: one HTML file.")
@of_run
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file; by default run-RUN.html.",
)
@click.option("--rows", metavar="TABLE", help="Rows with their label, to say what columns are worth.")
@connected
def report(run: int | None, output: Path | None, rows: str | None, dsn: str) -> None:
    """Write a report of a run: one HTML file that needs no network.

    \b
    Examples:
      cerebro report 7 -o iris.html
      cerebro report 7 --rows flowers
    """
    with open_database(dsn) as db:
        found = chosen(db, run)
        output = output or Path(f"run-{found.run_id}.html")
        found.report(str(output), rows)
    click.echo(output)


@click.command(short_help="Take a model or the metrics of a run elsewhere.")
@click.argument("source", metavar="[RUN|MODEL]", required=False)
@click.argument("path", metavar="[FOLDER]", type=PATH, required=False)
@of_config("The config whose model it is; by default the best.")
@click.option("--group", metavar="JSON", help="Of a run of groups, the group whose model it is.")
@click.option("--model", type=PATH, metavar="FILE", help="The model, as .keras or .onnx.")
@click.option("--groups", "folder", type=PATH, metavar="FOLDER", help="The best model of each, as .keras.")
@click.option("--tensorboard", type=PATH, metavar="FOLDER", help="The metrics, as TensorBoard's event files.")
@click.option(
    "--mlflow", metavar="URI", callback=without_password,
    help="The configs with their metrics, or the versions of MODEL, to a store of MLflow's.",
)  # fmt: skip
@connected
def export(source: str | None, path: Path | None, dsn: str, **given: Any) -> None:
    """Take a model or the metrics of a run elsewhere.

    MODEL is a registered model, as name, name@alias or name@version. FOLDER then gets all that predicting
    takes: cerebro_db.load_model reads it where no server is, and cerebro import registers it elsewhere.
    It may be a .keras or .onnx file as well. With --mlflow and a name alone, MLflow's registry gets all
    versions of the model that it lacks, and the aliases.

    \b
    Examples:
      cerebro export churn@champion churn
      cerebro export churn --mlflow sqlite:///mlflow.db
      cerebro export --model best.keras
      cerebro export 7 --config 3 --model net.onnx
      cerebro export 7 --group '{"shop": 3}' --model shop-3.keras
      cerebro export 7 --tensorboard logs --mlflow sqlite:///mlflow.db
    """
    named = [name for name, value in given.items() if value is not None]
    if source is not None and not source.isdecimal():
        if path is None and named == ["mlflow"] and "@" not in source:
            _export_versions(source, given["mlflow"], dsn)
            return
        if path is None or named:
            raise click.UsageError(
                f"a registered model takes a folder, or --mlflow, alone: cerebro export {source} FOLDER"
            )
        _export_version(source, path, dsn)
        return
    if path is not None or not set(named) - {"config", "group"}:
        raise click.UsageError("say where to: --model, --groups, --tensorboard or --mlflow")
    with open_database(dsn) as db:
        found = chosen(db, None if source is None else int(source))
        _load_quietly()
        _export_run(found, **given)


def _export_version(reference: str, path: Path, dsn: str) -> None:
    from cerebro_db.models import features_file

    with open_database(dsn) as db:
        _load_quietly()
        saved = db.models.save(reference, path)
    click.echo(saved)
    if saved.is_file() and features_file(saved).exists():
        click.echo(features_file(saved))


def _export_versions(name: str, store: str, dsn: str) -> None:
    with open_database(dsn) as db:
        _load_quietly()
        found = db.models.to_mlflow(name, store)
    for version, there in found.items():
        click.echo(f"{name.lower()}@{version} is version {there} in {store}")


def _export_run(
    found: Run, config: int | None, group: str | None, model: Path | None, folder: Path | None,
    tensorboard: Path | None, mlflow: str | None,
) -> None:  # fmt: skip
    from cerebro_db.models import features_file

    if model is not None:
        click.echo(chosen_config(found, config, group).save(model))
        if found.specification() is not None:
            click.echo(features_file(model))
    if folder is not None:
        click.echo(finished(found).save_groups(folder))
    if tensorboard is not None:
        click.echo(found.to_tensorboard(tensorboard))
    if mlflow is not None:
        click.echo(f"{len(found.to_mlflow(mlflow))} runs in {mlflow}")


def _load_quietly() -> None:
    """Import TensorFlow with stderr closed, since no setting stops the messages that it prints there."""
    import os
    from contextlib import suppress
    from importlib import import_module

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        with suppress(ImportError):
            import_module("tensorflow")
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


@click.command(short_help="End a run well, or stop one config.")
@of_named_run
@of_config("Stop this config alone.")
@click.option("--force", is_flag=True, help="End the run's sessions at once; it can be resumed.")
@connected
def stop(run: int, config: int | None, force: bool, dsn: str) -> None:
    """End a run well, with tables of what there is; or stop one config.

    \b
    Examples:
      cerebro stop 7
      cerebro stop 7 --config 3
      cerebro stop 7 --force
    """
    if force and config is not None:
        raise click.UsageError("--force ends a whole run: leave out --config")
    with open_database(dsn) as db:
        chosen(db, run).stop(config, force=force)
    click.echo(f"asked: stop run {run}" if config is None else f"asked: stop config {config} of run {run}")


@click.command(short_help="Go on with a run, or with one config.")
@of_named_run
@of_config("Let this stopped config go on.")
@connected
def resume(run: int, config: int | None, dsn: str) -> None:
    """Go on with a run that is paused or was interrupted, or with one config.

    An interrupted run goes on in this command's session, which lasts until it is over; Ctrl-C interrupts it
    again, and loses nothing. Ends with code 4 if it fails.

    \b
    Example:
      cerebro resume 7
    """
    with open_database(dsn) as db:
        found = chosen(db, run)
        found.resume(config)
        status = found.status
    click.echo(f"run {run} is {status}" if config is None else f"asked: resume config {config} of run {run}")
    if config is None and status in ("failed", "interrupted"):
        raise click.exceptions.Exit(NOT_FINISHED)


@click.command(short_help="Remove what a run keeps besides its tables.")
@of_named_run
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@connected
def forget(run: int, yes: bool, dsn: str) -> None:
    """Remove what a run keeps besides its tables: states and log rows.

    \b
    Example:
      cerebro forget 7 --yes
    """
    with open_database(dsn) as db:
        found = chosen(db, run)
        size = db.look(
            "SELECT states, pg_size_pretty(state_bytes) AS size FROM cerebro.sizes WHERE run_id = %s", run
        )[0]
        if not yes:
            click.confirm(
                f"Run {run} has {size['states']} states ({size['size']}). Nothing can go on from them"
                " afterwards, and the views show the run no more; its tables stay. Forget it?",
                abort=True,
            )
        found.forget()
    click.echo(f"run {run} is forgotten")
