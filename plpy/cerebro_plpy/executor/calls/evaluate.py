"""madlib_evaluate: measure a trained model on a packed table, by a run without visits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cerebro_plpy.commands import StartingWeights
from cerebro_plpy.database import Database
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.executor.calls import evaluate_groups
from cerebro_plpy.executor.running import output
from cerebro_plpy.executor.running import run as runner
from cerebro_plpy.executor.starting import cutting
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.logical.metrics import deciding
from cerebro_plpy.logical.options import parse_engine_options
from cerebro_plpy.predicting import belonging, group_holders
from cerebro_plpy.predicting.group_holders import GroupsHolder
from cerebro_plpy.predicting.holders import RegisteredVersion, TrainedModel
from cerebro_plpy.predicting.trained import find_model
from cerebro_plpy.store.models import functions as registry
from cerebro_plpy.store.models import models
from cerebro_plpy.store.names import check_writable, target_table
from cerebro_plpy.store.packed.groups import Groups
from cerebro_plpy.store.runs import results
from cerebro_plpy.topology.choose import choose


@dataclass(frozen=True)
class EvaluateCall:
    """The arguments of madlib_keras_evaluate, unchecked."""

    model_table: str | None
    test_table: str | None
    output_table: str | None
    use_gpus: bool | None
    mst_key: int | None
    options: str | None


@dataclass(frozen=True)
class Evaluation:
    """A run that only evaluates: its request, its weights, and the first columns of each output row."""

    request: requests.Request
    start: runner.Start
    columns: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)


def evaluate(db: Database, call: EvaluateCall) -> None:
    """Write a model's loss and metrics on a packed table to an output table.

    Models of groups are each measured on the rows of their own group.
    """
    check_writable(db, "the table of what is measured")
    found = group_holders.find_groups(db, call.model_table, call.mst_key)
    asked = _of_one(db, call) if found is None else _of_groups(db, call, found)
    request = asked.request
    target = target_table(db, call.output_table)
    topology = choose(db, request.tables)
    first = {config.key: config for config in request.configs}
    described = runner.check(db, topology, replace(request, configs=list(first.values())))
    request = cutting.with_stored(request, described, request.configs)

    def write(outcome: runner.Outcome) -> None:
        for ended in outcome.ended.values():
            if ended.reason is not None:
                raise CerebroError(f"the model cannot be evaluated: {ended.reason}")
        results.create_evaluation(db, target, request.groups.types if request.groups else {})
        results.add_rows(
            db,
            target.quoted,
            [{**asked.columns.get(c.mst_key, {}), **_row(c, outcome)} for c in request.configs],
        )

    new = runner.NewRun(kind=runner.EVALUATION, request=request, described=described, start=asked.start)
    runner.perform(db, topology, new, write)


def _row(config: requests.Chosen, outcome: runner.Outcome) -> dict[str, Any]:
    values = {row.metric: row.value for row in outcome.metrics_of(config.mst_key)}
    metric = deciding(list(values))
    kinds = output.history(config, outcome, None)
    return {
        "loss": values["loss"],
        "metric": values[metric] if metric not in (None, "loss") else None,
        "metrics_type": kinds["metrics_type"],
        "loss_type": kinds["loss_type"],
    }


def _of_one(db: Database, call: EvaluateCall) -> Evaluation:
    model = find_model(db, call.model_table, call.mst_key)
    registry.begin(db, model.run_id)
    source = requests.data(db, call.test_table, "test table")
    belonging.check(db, model.holder, source.summary, source.table.quoted)
    request = _request(db, call, source, [model], requests.choose([model.selected]))
    return Evaluation(request, _start(db, model))


def _of_groups(db: Database, call: EvaluateCall, found: GroupsHolder) -> Evaluation:
    source = requests.data(db, call.test_table, "test table")
    belonging.check(db, found.holder, source.summary, source.table.quoted)
    answering = evaluate_groups.find_models(db, found, source)
    registry.begin(db, answering.models[0].run_id)
    configs = [one.config for one in answering.by_config.values()]
    request = _request(db, call, source, answering.models, configs, answering.groups)
    start = runner.Start(of_groups=list(answering.weights(db, found)))
    return Evaluation(request, start, {key: one.columns for key, one in answering.by_config.items()})


def _request(
    db: Database,
    call: EvaluateCall,
    source: requests.Data,
    trained: Sequence[TrainedModel],
    configs: Sequence[requests.Chosen],
    groups: Groups | None = None,
) -> requests.Request:
    given = parse_engine_options(call.options)
    usual = trained[0].backend
    engines = requests.engines(db, given, bool(call.use_gpus), source.summary.segments, usual)
    nets = {model.selected.model_id: model.stored.model_arch for model in trained}
    return requests.Request(
        source=source,
        validation=None,
        arch_table=trained[0].holder.weights_table(db),
        architectures=[models.Architecture(model_id, net, True) for model_id, net in nets.items()],
        configs=configs,
        epochs=0,
        metrics_frequency=0,
        seed=0,
        engines=engines,
        name=None,
        description=None,
        groups=groups,
    )


def _start(db: Database, model: TrainedModel) -> runner.Start:
    key = model.selected.mst_key
    if model.stored.has_weights:
        version = model.holder.found if isinstance(model.holder, RegisteredVersion) else None
        column = None if model.mst_key is None else "mst_key"
        weights = StartingWeights(
            model_id=model.selected.model_id,
            mst_key=key,
            table=model.holder.weights_table(db).quoted,
            key_column=column,
            key=model.mst_key,
            version_id=version.version_id if version is not None else None,
        )
        return runner.Start([weights])
    states = runner.kept_states(db, model.run_id)
    if key not in states:
        raise CerebroError(
            f"{model.holder.name} has no weights for this model, and the state of its run is gone",
            sqlstate=WRONG_STATE,
        )
    return runner.Start(warm={key: states[key]})
