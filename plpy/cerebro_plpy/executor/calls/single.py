"""madlib_fit: train one config, and write the two tables that MADlib has for a single model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

from cerebro_plpy.commands import StartingWeights
from cerebro_plpy.database import Database
from cerebro_plpy.errors import NULL_NOT_ALLOWED, CerebroError
from cerebro_plpy.executor.calls.fit import FitCall
from cerebro_plpy.executor.running import averaging, output, replay
from cerebro_plpy.executor.running import run as runner
from cerebro_plpy.executor.starting import begin, groups
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.logical.options import FitOptions, parse_fit_options
from cerebro_plpy.predicting.trained import ONLY
from cerebro_plpy.store.models import models
from cerebro_plpy.store.names import Table, TargetTable, resolve_table
from cerebro_plpy.store.runs import results


class SingleTables:
    """The result tables of a single model: the model, and a summary that includes its metrics."""

    suffixes = ("_summary",)
    several = False

    def columns(self, request: requests.Request) -> list[results.ResultColumns]:
        return results.columns_of_one(request.source.summary.class_value_types)

    def create(self, db: Database, tables: Sequence[TargetTable], request: requests.Request) -> None:
        for table, columns in zip(tables, self.columns(request), strict=True):
            results.create(db, table, columns)

    def fill(
        self,
        db: Database,
        tables: Sequence[TargetTable],
        request: requests.Request,
        outcome: runner.Outcome,
    ) -> None:
        model, summary = tables
        config = request.configs[0]
        step = _last_step(outcome)
        weights = output.some_weights(db, outcome.run_id, {ONLY: step})[ONLY]
        results.add_single_model(
            db, model.quoted, output.field(db, ONLY, weights), outcome.model_arch[config.model_id]
        )
        row: dict[str, Any] = {
            **output.summary_row(db, request, outcome, {"model": model}),
            "model_id": config.model_id,
            "compile_params": config.compile_params,
            "fit_params": config.fit_params,
            "model_type": "madlib_keras",
            "backend": request.engines.find_engine(config.model_id),
            **output.history(config, outcome, len(weights), step // request.segments),
        }
        output.write_summary(db, summary, request, row)


def fit(db: Database, *arguments: Any) -> None:
    """Train one config; on a table packed in groups, train it once for each group.

    `arguments` are the fields of `SingleCall`.
    """
    begin.begin(db, _read_call(db, arguments))


def _read_call(db: Database, arguments: Sequence[Any]) -> SingleCall | OneOfGroups:
    single = SingleCall(*arguments)
    # Errors about the table are raised where the call is read.
    with suppress(CerebroError):
        if requests.data(db, single.source_table, "source table").summary.group_by is not None:
            return OneOfGroups.from_single(single)
    return single


@dataclass(frozen=True)
class SingleCall:
    """The arguments of madlib_fit, unchecked."""

    source_table: str | None
    model_output_table: str | None
    model_arch_table: str | None
    model_id: int | None
    compile_params: str | None
    fit_params: str | None
    num_iterations: int | None
    use_gpus: bool | None
    validation_table: str | None
    metrics_compute_frequency: int | None
    warm_start: bool | None
    name: str | None
    description: str | None
    object_table: str | None
    options: str | None

    kind = runner.SINGLE
    result_tables = SingleTables()

    def read_options(self) -> FitOptions:
        given = parse_fit_options(self.options)
        if given.cross_validate is not None:
            raise CerebroError(
                "option cross_validate is for runs of several models",
                hint="Call cerebro.madlib_fit_multiple_model with a table of this one config.",
            )
        return given

    def configs(self) -> list[requests.Chosen]:
        """Return the call's only config, in a list."""
        if self.model_id is None or self.compile_params is None:
            raise CerebroError("model_id and compile_params cannot be NULL", sqlstate=NULL_NOT_ALLOWED)
        only = models.Selected(ONLY, self.model_id, self.compile_params, self.fit_params or "")
        return requests.choose([only])

    def resolve(self, db: Database, given: FitOptions) -> requests.Request:
        epochs, frequency = requests.budget(self.num_iterations, self.metrics_compute_frequency, given)
        source, validation = requests.training_and_validation(db, self.source_table, self.validation_table)
        groups.refuse_options(given)
        arch_table = resolve_table(db, self.model_arch_table, "model architecture table")
        configs = self.configs()
        architectures = models.architectures(db, arch_table, [configs[0].model_id])
        segments = source.summary.segments
        engines = requests.engines(db, given, bool(self.use_gpus), segments, at_a_time=1)
        averaging.check(given, 1, segments, epochs)
        return requests.Request(
            source=source,
            validation=validation,
            arch_table=arch_table,
            architectures=architectures,
            configs=configs,
            epochs=epochs,
            metrics_frequency=frequency,
            seed=replay.seed(db, given),
            engines=engines,
            name=self.name,
            description=self.description,
            selection_table=None,
            warm_start=bool(self.warm_start),
            search=requests.early_stopping(given, configs, epochs, frequency),
            limits=given.limits,
            choosable=requests.choosable(db, given, segments, 1, self.metrics_compute_frequency),
            object_table=requests.object_table(db, self.object_table),
            spelled=requests.spelled(
                self.model_output_table,
                source_table=self.source_table,
                validation_table=self.validation_table,
                model_arch_table=self.model_arch_table,
            ),
        )

    def examples(self, request: requests.Request) -> Sequence[requests.Chosen]:
        return request.configs

    def go_on_from(
        self, db: Database, request: requests.Request, earlier: Sequence[Table], cold: runner.Start
    ) -> runner.Start:
        model, summary = earlier
        row = results.summary_row(db, summary.quoted)
        config, before = request.configs[0], row.get("model_id")
        if before != config.model_id:
            requests.tell_of_another_model(db, config, before)
            return cold
        states = runner.kept_states(db, row.get("run_id"))
        if ONLY in states:
            return runner.Start(cold.weights, {ONLY: states[ONLY]})
        db.notice("the model goes on from its weights alone: the state of the earlier run is gone")
        own = StartingWeights(
            model_id=config.model_id, mst_key=ONLY, table=model.quoted, key_column=None, key=None
        )
        return runner.Start([*cold.weights, own])


@dataclass(frozen=True)
class OneOfGroups(FitCall):
    """A call of madlib_fit on a table packed in groups: it trains one config on each group.

    It writes the result tables of a run of many configs.
    """

    single: SingleCall

    @classmethod
    def from_single(cls, single: SingleCall) -> OneOfGroups:
        own = {field.name: getattr(single, field.name, None) for field in fields(FitCall)}
        return cls(**own, single=single)

    def read_options(self) -> FitOptions:
        return self.single.read_options()

    def selection(self, db: Database) -> requests.Selection:
        single = self.single
        arch_table = resolve_table(db, single.model_arch_table, "model architecture table")
        objects = requests.object_table(db, single.object_table)
        return requests.Selection(None, arch_table, str(single.model_arch_table), objects, single.configs())


def _last_step(outcome: runner.Outcome) -> int:
    """Return the step of the model's last state; raise an error if the model has none."""
    ended = outcome.ended.get(ONLY)
    if ended is None or ended.step is None:
        reason = ended.reason if ended is not None and ended.reason else "it has finished no epoch"
        raise CerebroError(f"the model could not be trained: {reason}", detail=f"It is run {outcome.run_id}.")
    return ended.step
