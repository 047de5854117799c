"""madlib_evaluate: a run without visits, on a trained model and a packed table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import UNDEFINED_COLUMN, UNDEFINED_TABLE, WRONG_STATE, CerebroError
from cerebro_plpy.executor import output
from cerebro_plpy.executor import request as requests
from cerebro_plpy.executor import run as runner
from cerebro_plpy.executor.single import ONLY
from cerebro_plpy.logical.metrics import deciding
from cerebro_plpy.logical.options import parse_engine_options
from cerebro_plpy.store import functions as registry
from cerebro_plpy.store import models, results, session
from cerebro_plpy.store.names import Table, has_columns, quote, resolve_table, target_table
from cerebro_plpy.topology.choose import choose
from cerebro_plpy.topology.inline import Run


@dataclass(frozen=True)
class Model:
    """One trained model of a model table."""

    table: Table
    mst_key: int | None
    selected: models.Selected
    stored: results.Stored
    run_id: int | None
    backend: str | None


@dataclass(frozen=True)
class EvaluateCall:
    """The arguments of madlib_keras_evaluate, as they come."""

    model_table: str | None
    test_table: str | None
    output_table: str | None
    use_gpus: bool | None
    mst_key: int | None
    options: str | None
    search_path: str


def evaluate(db: Database, call: EvaluateCall, run_inline: Run) -> None:
    """Measure a model's loss and metrics on the rows of a packed table."""
    requests.check_writable(db)
    model = trained_model(db, call.model_table, call.mst_key, call.search_path)
    registry.begin(db, model.run_id)
    target = target_table(db, call.output_table, call.search_path)
    request = _request(db, call, model)
    topology = choose(db, session.current_user(db), request.tables, run_inline)
    described = runner.check(db, topology, request)

    def write(outcome: runner.Outcome) -> None:
        for ended in outcome.ended.values():
            if ended.reason is not None:
                raise CerebroError(f"the model cannot be evaluated: {ended.reason}")
        results.create_evaluation(db, target)
        results.add_row(db, target.quoted, _row(request, outcome))

    runner.perform(db, topology, request, described, _start(db, model), write, runner.EVALUATION)


def _row(request: requests.Request, outcome: runner.Outcome) -> dict[str, Any]:
    values = {row.metric: row.value for row in outcome.metrics}
    metric = deciding(list(values))
    kinds = output.history(request.configs[0], outcome, None)
    return {
        "loss": values["loss"],
        "metric": values[metric] if metric not in (None, "loss") else None,
        "metrics_type": kinds["metrics_type"],
        "loss_type": kinds["loss_type"],
    }


def trained_model(db: Database, name: str | None, mst_key: int | None, search_path: str) -> Model:
    """Find a model: by its key among many, or the only one of its table."""
    table = resolve_table(db, name, search_path, "model table")
    summary = _beside(db, table, "_summary", search_path)
    if summary is None:
        raise CerebroError(
            f"table {quote(table.schema, table.name + '_summary')} does not exist",
            detail=f"{table.quoted} is no model table without it.",
            sqlstate=UNDEFINED_TABLE,
        )
    row = results.summary_row(db, summary.quoted)
    info = _beside(db, table, "_info", search_path)
    if info is None:
        _check_single(db, table)
        return _single(db, table, row, mst_key)
    return _one_of_many(db, table, info, row, mst_key)


def _beside(db: Database, table: Table, suffix: str, search_path: str) -> Table | None:
    try:
        return resolve_table(db, quote(table.schema, table.name + suffix), search_path)
    except CerebroError as error:
        if error.sqlstate == UNDEFINED_TABLE:
            return None
        raise


def _check_single(db: Database, table: Table) -> None:
    """A table of many models whose _info is gone must not be taken for one that holds a single model."""
    missing = has_columns(db, table, ["model_weights", "model_arch", "mst_key"])
    if missing and missing != ["mst_key"]:
        raise CerebroError(
            f"table {table.quoted} is not a model table: it has no column {missing[0]}",
            sqlstate=UNDEFINED_COLUMN,
        )
    if not missing:
        raise CerebroError(
            f"table {quote(table.schema, table.name + '_info')} does not exist",
            detail=f"{table.quoted} holds models of madlib_fit_multiple_model, which are described there.",
            sqlstate=UNDEFINED_TABLE,
        )


def _single(db: Database, table: Table, row: Any, mst_key: int | None) -> Model:
    if mst_key is not None:
        raise CerebroError(
            f"mst_key {mst_key} was given, but {table.quoted} holds a single model",
            hint="Leave mst_key out, or name a table of madlib_fit_multiple_model.",
        )
    stored = results.stored_model(db, table.quoted, None)
    if stored is None:
        raise CerebroError(f"model table {table.quoted} is empty", sqlstate=WRONG_STATE)
    selected = models.Selected(ONLY, row["model_id"], row["compile_params"], row["fit_params"])
    return Model(table, None, selected, stored, row.get("run_id"), row.get("backend"))


def _one_of_many(db: Database, table: Table, info: Table, row: Any, mst_key: int | None) -> Model:
    if mst_key is None:
        raise CerebroError(
            f"mst_key is missing: {table.quoted} holds several models",
            hint=f"Give one of {', '.join(map(str, results.trained_models(db, info.quoted)))}.",
        )
    config = results.trained_config(db, info.quoted, mst_key)
    if config is None:
        raise CerebroError(
            f"mst_key {mst_key} is not in {info.quoted}",
            hint=f"Give one of {', '.join(map(str, results.trained_models(db, info.quoted)))}.",
        )
    stored = results.stored_model(db, table.quoted, mst_key)
    if stored is None:
        raise CerebroError(
            f"config {mst_key} of {table.quoted} has no model: it {config['status']}", sqlstate=WRONG_STATE
        )
    selected = models.Selected(mst_key, config["model_id"], config["compile_params"], config["fit_params"])
    return Model(table, mst_key, selected, stored, row.get("run_id"), config["backend"])


def _request(db: Database, call: EvaluateCall, model: Model) -> requests.Request:
    given = parse_engine_options(call.options)
    source = requests.data(db, call.test_table, call.search_path, "test table")
    engines = requests.engines(db, given, bool(call.use_gpus), source.summary.segments, model.backend)
    architecture = models.Architecture(model.selected.model_id, model.stored.model_arch, True)
    return requests.Request(
        source, None, model.table, [architecture], requests.choose([model.selected]), 0, 0, 0, engines,
        None, None,
    )  # fmt: skip


def _start(db: Database, model: Model) -> runner.Start:
    key = model.selected.mst_key
    if model.stored.has_weights:
        column = None if model.mst_key is None else "mst_key"
        place = runner.weights_of(model.table.quoted, column, model.mst_key, model.selected.model_id, key)
        return runner.Start([place])
    states = runner.kept_states(db, model.run_id)
    if key not in states:
        raise CerebroError(
            f"{model.table.quoted} has no weights for this model, and the state of its run is gone",
            sqlstate=WRONG_STATE,
        )
    return runner.Start(warm={key: states[key]})
