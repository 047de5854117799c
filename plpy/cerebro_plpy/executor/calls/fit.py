"""madlib_fit_multiple_model: train every config of a model selection table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cerebro_plpy.commands import StartingWeights
from cerebro_plpy.database import Database
from cerebro_plpy.executor.running import averaging, output, replay
from cerebro_plpy.executor.running import run as runner
from cerebro_plpy.executor.starting import cross_validation, groups, warm_groups
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.logical.options import AUTO, FitOptions, parse_fit_options
from cerebro_plpy.store.models import models
from cerebro_plpy.store.names import Table, TargetTable
from cerebro_plpy.store.runs import results


class ManyTables:
    """The result tables of a run of many configs: the models, an info row for each config, and a summary."""

    suffixes = ("_info", "_summary")
    several = True

    def columns(self, request: requests.Request) -> list[results.ResultColumns]:
        return results.columns_of_many(
            request.source.summary.class_value_types,
            folds=_fold_columns(request),
            groups=request.groups.types if request.groups else {},
        )

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
        targets = output.Targets(*tables)
        sizes = output.write_models(db, targets, request, outcome)
        output.write_info(db, targets, request, outcome, sizes)
        made = {"model": targets.model, "model_info": targets.info}
        row = {**output.summary_row(db, request, outcome, made), "warm_start": request.warm_start}
        if request.groups is not None:
            row[results.GROUP_BY[0]] = list(request.groups.types)
        output.write_summary(db, targets.summary, request, row)


def _fold_columns(request: requests.Request) -> Sequence[str]:
    """Return the columns that cross-validation adds to the info table: the fold that a model leaves out and,
    if the models of the folds are kept, the key of the config."""
    if not request.cross_validates:
        return ()
    return (results.FOLD, results.CONFIG_KEY) if request.limits.fold_models else (results.FOLD,)


@dataclass(frozen=True)
class FitCall:
    """The arguments of madlib_keras_fit_multiple_model, unchecked."""

    source_table: str | None
    model_output_table: str | None
    model_selection_table: str | None
    num_iterations: int | None
    use_gpus: bool | None
    validation_table: str | None
    metrics_compute_frequency: int | None
    warm_start: bool | None
    name: str | None
    description: str | None
    use_caching: bool | None
    options: str | None

    kind = runner.MANY
    result_tables = ManyTables()

    def read_options(self) -> FitOptions:
        return parse_fit_options(self.options)

    def selection(self, db: Database) -> requests.Selection:
        return requests.selected(db, self.model_selection_table)

    def resolve(self, db: Database, given: FitOptions) -> requests.Request:
        epochs, frequency = requests.budget(self.num_iterations, self.metrics_compute_frequency, given)
        source, validation = requests.training_and_validation(db, self.source_table, self.validation_table)
        selection = self.selection(db)
        cross_validation.check(given, validation=validation, warm_start=bool(self.warm_start))
        arch_table = selection.arch_table
        groups.check(given, source)
        found = groups.read_groups(db, source)
        configs = groups.expanded(cross_validation.expanded(given, selection.configs, source), found, given)
        if found is not None:
            groups.check_of_run(db, found, given, validation)
        architectures = models.architectures(db, arch_table, sorted({c.model_id for c in selection.configs}))
        few = len(configs) if found is None and given.threads == AUTO else None
        engines = requests.engines(db, given, bool(self.use_gpus), source.summary.segments, at_a_time=few)
        averaging.check(given, len(configs), source.summary.segments, epochs)
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
            selection_table=selection.table and selection.table.quoted,
            warm_start=bool(self.warm_start),
            search=requests.early_stopping(given, configs, epochs, frequency),
            limits=given.limits,
            choosable=requests.choosable(
                db, given, source.summary.segments, len(configs), self.metrics_compute_frequency
            ),
            object_table=selection.object_table,
            groups=found,
            spelled=requests.spelled(
                self.model_output_table,
                source_table=self.source_table,
                validation_table=self.validation_table,
                model_arch_table=selection.arch_spelled,
                model_selection_table=self.model_selection_table,
            ),
        )

    def examples(self, request: requests.Request) -> Sequence[requests.Chosen]:
        """Return each config once, even if the request repeats it for several folds or groups."""
        return list({config.key: config for config in reversed(request.configs)}.values())[::-1]

    def go_on_from(
        self, db: Database, request: requests.Request, earlier: Sequence[Table], cold: runner.Start
    ) -> runner.Start:
        """Return a run's start in which configs continue from their states in an earlier run.

        `earlier` are the result tables of that run. If a config's state is gone, it continues from its
        earlier weights alone. Configs that the earlier run did not train begin as in `cold`, the start
        without that run.
        """
        warm_groups.check(db, request.groups, earlier)
        if request.groups is not None:
            return warm_groups.start(db, request, request.groups, earlier, cold)
        model, info, summary = earlier
        trained = results.trained_models(db, info.quoted)
        known = [c for c in request.configs if trained.get(c.mst_key) == c.model_id]
        for config in request.configs:
            requests.tell_of_another_model(db, config, trained.get(config.mst_key))
        states = runner.kept_states(db, results.summary_row(db, summary.quoted).get("run_id"))
        warm = {c.mst_key: states[c.mst_key] for c in known if c.mst_key in states}
        kept = {row["mst_key"] for row in results.keys_with_weights(db, model.quoted)}
        weights = [
            StartingWeights(
                model_id=c.model_id,
                mst_key=c.mst_key,
                table=model.quoted,
                key_column="mst_key",
                key=c.mst_key,
            )
            for c in known
            if c.mst_key not in states and c.mst_key in kept
        ]
        if weights:
            db.notice(
                f"{len(weights)} of {len(request.configs)} configs go on from their weights alone: the states"
                " of the earlier run, with the optimizers' variables, are gone"
            )
        return runner.Start([*cold.weights, *weights], warm)
