"""madlib_evaluate: a run without visits, on a trained model and a packed table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cerebro_plpy.commands import StartingWeights
from cerebro_plpy.database import Database
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.executor import output
from cerebro_plpy.executor import request as requests
from cerebro_plpy.executor import run as runner
from cerebro_plpy.logical.metrics import deciding
from cerebro_plpy.logical.options import parse_engine_options
from cerebro_plpy.predicting.trained import TrainedModel, find_model
from cerebro_plpy.store import functions as registry
from cerebro_plpy.store import models, results
from cerebro_plpy.store.names import target_table
from cerebro_plpy.topology.choose import choose


@dataclass(frozen=True)
class EvaluateCall:
    """The arguments of madlib_keras_evaluate, as they come."""

    model_table: str | None
    test_table: str | None
    output_table: str | None
    use_gpus: bool | None
    mst_key: int | None
    options: str | None


def evaluate(db: Database, call: EvaluateCall) -> None:
    """Measure a model's loss and metrics on the rows of a packed table."""
    requests.check_writable(db)
    model = find_model(db, call.model_table, call.mst_key)
    registry.begin(db, model.run_id)
    target = target_table(db, call.output_table)
    request = _request(db, call, model)
    topology = choose(db, request.tables)
    described = runner.check(db, topology, request)

    def write(outcome: runner.Outcome) -> None:
        for ended in outcome.ended.values():
            if ended.reason is not None:
                raise CerebroError(f"the model cannot be evaluated: {ended.reason}")
        results.create_evaluation(db, target)
        results.add_row(db, target.quoted, _row(request, outcome))

    new = runner.NewRun(kind=runner.EVALUATION, request=request, described=described, start=_start(db, model))
    runner.perform(db, topology, new, write)


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


def _request(db: Database, call: EvaluateCall, model: TrainedModel) -> requests.Request:
    given = parse_engine_options(call.options)
    source = requests.data(db, call.test_table, "test table")
    engines = requests.engines(db, given, bool(call.use_gpus), source.summary.segments, model.backend)
    architecture = models.Architecture(model.selected.model_id, model.stored.model_arch, True)
    return requests.Request(
        source=source,
        validation=None,
        arch_table=model.table,
        architectures=[architecture],
        configs=requests.choose([model.selected]),
        epochs=0,
        metrics_frequency=0,
        seed=0,
        engines=engines,
        name=None,
        description=None,
    )


def _start(db: Database, model: TrainedModel) -> runner.Start:
    key = model.selected.mst_key
    if model.stored.has_weights:
        column = None if model.mst_key is None else "mst_key"
        weights = StartingWeights(
            model_id=model.selected.model_id,
            mst_key=key,
            table=model.table.quoted,
            key_column=column,
            key=model.mst_key,
        )
        return runner.Start([weights])
    states = runner.kept_states(db, model.run_id)
    if key not in states:
        raise CerebroError(
            f"{model.table.quoted} has no weights for this model, and the state of its run is gone",
            sqlstate=WRONG_STATE,
        )
    return runner.Start(warm={key: states[key]})
