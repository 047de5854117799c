"""madlib_keras_automl: search for the best config, from the arguments of the call to the result tables."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NULL_NOT_ALLOWED, CerebroError
from cerebro_plpy.executor.calls import experience
from cerebro_plpy.executor.calls.fit import ManyTables
from cerebro_plpy.executor.plans.calibrating import segment_rows
from cerebro_plpy.executor.running import output, replay
from cerebro_plpy.executor.running import run as runner
from cerebro_plpy.executor.starting import groups
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.logical.budget import count_most_measured
from cerebro_plpy.logical.metrics import standing
from cerebro_plpy.logical.options import (
    EPOCHS,
    FIT_OPTIONS,
    METRIC,
    ROWS,
    FitOptions,
    boolean,
    one_of,
    parse_options,
)
from cerebro_plpy.logical.search.automl import SearchCall, read_first
from cerebro_plpy.logical.search.method import WHO, SearchMethod
from cerebro_plpy.logical.search.methods import read_method
from cerebro_plpy.logical.search.procedures.groups import SCOPES
from cerebro_plpy.madlib.params import reparse_compile
from cerebro_plpy.store import session
from cerebro_plpy.store.models import models
from cerebro_plpy.store.names import Table, TargetTable, resolve_table, target_table
from cerebro_plpy.store.packed import partitions
from cerebro_plpy.store.runs import results, runs

# A search decides by itself which configs are to be stopped, and which train side by side.
_FOR_FITS = ("patience", "min_delta", "target", "order", "hybrid", "cross_validate", "groups")
OPTIONS = {
    **{key: check for key, check in FIT_OPTIONS.items() if key not in _FOR_FITS},
    "search": one_of(*SCOPES),
    "rung_by": one_of(ROWS, EPOCHS),
    "try_first": read_first,
    experience.OPTION: boolean(),
}
# The usual number of parts of a pass over the rows, where configs are compared on parts of the rows.
PARTS = 16


class SearchTables(ManyTables):
    """The result tables of a search: the tables of a run of many configs, and a model selection table with
    the winning config."""

    def columns(self, request: requests.Request) -> list[results.ResultColumns]:
        return results.columns_of_search(
            request.source.summary.class_value_types,
            brackets=search_of(request).method.has_brackets,
            groups=request.groups.types if request.groups else {},
        )

    def create(self, db: Database, tables: Sequence[TargetTable], request: requests.Request) -> None:
        """Create the three model tables, and the model selection table with its summary."""
        super().create(db, tables, request)
        selection = target_table(db, request.selection_table, "model selection table", ("_summary",))
        models.create_selection(db, selection)
        spelled = request.spelled.get("model_arch_table", request.arch_table.quoted)
        models.create_selection_summary(db, selection, request.arch_table, spelled, request.object_table)

    def fill(
        self,
        db: Database,
        tables: Sequence[TargetTable],
        request: requests.Request,
        outcome: runner.Outcome,
    ) -> None:
        targets = output.Targets(*tables)
        sizes = output.write_models(db, targets, request, outcome)
        search = search_of(request)
        rows = [
            _info_row(request, search, outcome, ended, sizes.get(key)) for key, ended in outcome.ended.items()
        ]
        results.add_rows(db, targets.info.quoted, [*rows, *output.groups_left_out(request, outcome)])
        _write_summary(db, targets, request, search, outcome)
        best = _best(rows, request)
        if not best:
            db.warning(f"no config has a loss: {request.selection_table} is empty")
        for row in best:
            chosen = (row[key] for key in ("mst_key", "model_id", "compile_params", "fit_params"))
            models.add_selected(db, request.selection_table or "", models.Selected(*chosen))


@dataclass(frozen=True)
class AutomlCall:
    """The arguments of madlib_keras_automl, unchecked."""

    source_table: str | None
    model_output_table: str | None
    model_arch_table: str | None
    model_selection_table: str | None
    model_id_list: Sequence[int | None] | None
    compile_params_grid: str | None
    fit_params_grid: str | None
    automl_method: str | None
    automl_params: str | None
    random_state: int | None
    object_table: str | None
    use_gpus: bool | None
    validation_table: str | None
    metrics_compute_frequency: int | None
    name: str | None
    description: str | None
    use_caching: bool | None
    options: str | None

    kind = runner.AUTOML
    result_tables = SearchTables()
    # A search never continues from an earlier one.
    warm_start = False

    def read_options(self) -> FitOptions:
        given = FitOptions(**parse_options(self.options, OPTIONS))
        if given.plan is not None and given.plan.within is not None:
            raise CerebroError(
                "option plan.within is for fits: how much a search trains depends on its results",
                hint="Give max_seconds to limit the time of the search.",
            )
        return given

    def resolve(self, db: Database, given: FitOptions) -> requests.Request:
        selection = target_table(db, self.model_selection_table, "model selection table", ("_summary",))
        return replace(self.described(db, given), selection_table=selection.quoted)

    def described(self, db: Database, given: FitOptions) -> requests.Request:
        """Return the request of the search, without the selection table that is to get the winning config.

        The request is enough to explain the plan, even for a caller who could not create that table.
        """
        source, validation = requests.training_and_validation(db, self.source_table, self.validation_table)
        given = _with_parts(db, given, source, validation)
        parts = given.epochs_per_pass if given.rung_by == ROWS else None
        method = read_method(self.automl_method, self.automl_params, parts)
        arch_table = resolve_table(db, self.model_arch_table, "model architecture table")
        random_state, drawn = _random_state(db, self, given)
        seed = random_state if given.seed is None and given.replay is None else replay.seed(db, given)
        search = self._describe_search(given, method, random_state, source.summary.segments)
        architectures = models.architectures(db, arch_table, search.model_ids)
        facts = experience.SearchFacts.describe(source.summary, architectures)
        found = groups.to_search(db, source, given)
        if found is None:
            search = experience.begin_with_best(db, given, search, facts)
        groups.check(given, source)
        if found is not None:
            groups.refuse_balanced(search.fit_grid)
            groups.check_of_run(db, found, given, validation)
        engines = requests.engines(db, given, bool(self.use_gpus), source.summary.segments)
        described = {
            "method": method.name,
            "arguments": search.arguments,
            "by_loss": given.compare_by != METRIC,
            **({replay.DRAWN: True} if drawn else {}),
            **(facts.as_json if found is None else {}),
            "backend": engines.backend,
            **({} if found is None else {"scope": groups.scope(method, given)}),
        }
        if self.random_state is None and given.replay is None:
            db.notice(f"the configs are drawn with random_state {random_state}")
        return requests.Request(
            source=source,
            validation=validation,
            arch_table=arch_table,
            architectures=architectures,
            configs=[],
            epochs=search.method.epochs,
            metrics_frequency=_frequency(self, given, search),
            seed=seed,
            engines=engines,
            name=self.name,
            description=self.description,
            search=described,
            # In a search on groups, max_configs counts for each group by itself.
            limits=given.limits if found is None else replace(given.limits, max_configs=None),
            groups=found,
            choosable=requests.choosable(db, given, source.summary.segments, configs=0, frequency=0),
            object_table=requests.object_table(db, self.object_table),
            spelled=requests.spelled(
                self.model_output_table,
                source_table=self.source_table,
                validation_table=self.validation_table,
                model_arch_table=self.model_arch_table,
                model_selection_table=self.model_selection_table,
            ),
        ).on(engines)

    def _describe_search(
        self, given: FitOptions, method: SearchMethod, random_state: int, segments: int
    ) -> SearchCall:
        """Return the search that the call asks for; raise an error if its procedure cannot be made."""
        search = SearchCall(
            method=method,
            model_ids=_model_ids(self.model_id_list),
            compile_grid=_grid(self.compile_params_grid, "compile_params_grid"),
            fit_grid=_grid(self.fit_params_grid, "fit_params_grid"),
            random_state=random_state,
            segments=segments,
            first=given.try_first,
        )
        search.check_first()
        search = search.limited(given.max_configs)
        search.procedure()
        return search

    def examples(self, request: requests.Request) -> Sequence[requests.Chosen]:
        rows = search_of(request).examples()
        return requests.choose([models.Selected(n, *vars(row).values()) for n, row in enumerate(rows, 1)])

    def go_on_from(
        self, db: Database, request: requests.Request, earlier: Sequence[Table], cold: runner.Start
    ) -> runner.Start:
        return cold


def search_of(request: requests.Request) -> SearchCall:
    """Return the search of a run, rebuilt from the description that is stored with the run."""
    described = request.search or {}
    return SearchCall.from_arguments(described["method"], **described["arguments"])


def _random_state(db: Database, call: AutomlCall, given: FitOptions) -> tuple[int, bool]:
    """Return the random state of the search, and whether it was drawn at random.

    The call's argument has priority. Without it, a replay uses the random state of the run that it replays.
    """
    if call.random_state is not None:
        return call.random_state, False
    role, run_id = session.current_user(db), given.replay
    if run_id is None:
        return secrets.randbits(31), True
    searched = runs.searched(runs.own_run(db, run_id, role)) or {}
    return searched.get("arguments", {}).get("random_state", 0), bool(searched.get(replay.DRAWN))


def _with_parts(
    db: Database, given: FitOptions, source: requests.Data, validation: requests.Data | None
) -> FitOptions:
    """Return the options with the number of parts of a pass, if configs are compared on parts of the rows.

    No part is smaller than a buffer, which is read as a whole. Notices say what follows for training and
    evaluation.
    """
    if given.rung_by == ROWS and given.epochs_per_pass is None:
        count, table = partitions.count_fewest_buffers, source.table.quoted
        fewest = db.as_caller(session.current_user(db), count, db, table, source.summary.below)
        if fewest < PARTS:
            db.notice(f"a pass has {fewest} parts, not {PARTS}: that is how many buffers a segment has")
        given = replace(given, epochs_per_pass=min(PARTS, fewest))
    _tell_sample(db, given, segment_rows(validation, source.summary.segments))
    return given


def _tell_sample(db: Database, given: FitOptions, rows: Sequence[int]) -> None:
    """Say on how many validation rows configs are compared, and how far chance moves a share of these.

    `rows` has the number of each segment.
    """
    measured = sum(count_most_measured(one, given.epochs_per_pass) for one in rows)
    if measured < sum(rows):
        # Two standard deviations of the share that varies most, one half, in a sample without replacement.
        margin = math.sqrt((1 - measured / sum(rows)) / measured)
        db.notice(
            f"configs are compared on {measured} of {sum(rows)} validation rows, the same for all: an"
            f" accuracy on these is within {margin:.4f} of that on all rows in 19 of 20 cases"
        )


def _model_ids(given: Sequence[int | None] | None) -> list[int]:
    found = [model_id for model_id in given or [] if model_id is not None]
    if not found or len(found) < len(given or []):
        raise CerebroError(
            f"{WHO}: model_id_list is NULL or empty, or an element of it is NULL", sqlstate=NULL_NOT_ALLOWED
        )
    return sorted(set(found))


def _grid(given: str | None, what: str) -> str:
    if given is None:
        raise CerebroError(f"{WHO}: {what} is NULL", sqlstate=NULL_NOT_ALLOWED)
    return given


def _frequency(call: AutomlCall, given: FitOptions, search: SearchCall) -> int:
    """Return the number of epochs after which a config is evaluated again.

    By default, a config is evaluated only after its last epoch, or after every epoch if an option needs that.
    In a Hyperband search, a number above the largest number of epochs is lowered to that.
    """
    frequency = call.metrics_compute_frequency
    if frequency is None and given.measures_each_epoch:
        return 1
    if frequency is None or (search.method.has_brackets and frequency > search.method.epochs):
        return search.method.epochs
    if not 1 <= frequency <= search.method.epochs:
        raise CerebroError(
            f"{WHO}: 'metrics_compute_frequency' out of iteration range",
            detail=f"It is {frequency}, and a config is trained for at most {search.method.epochs} epochs.",
        )
    return frequency


def _info_row(
    request: requests.Request,
    search: SearchCall,
    outcome: runner.Outcome,
    ended: runner.Ended,
    size: int | None,
) -> dict[str, Any]:
    epochs = output.metrics_iters(outcome, ended.config.mst_key)
    rung = search.method.rung_of(ended.config.key, max(epochs, default=0))
    places = {} if rung is None else {"s": rung.s, "i": rung.i}
    return {**output.info_row(request, outcome, ended, size), "metrics_iters": epochs, **places}


# The columns that make a config.
_CONFIG = ("model_id", "compile_params", "fit_params")


def _best(rows: Sequence[dict[str, Any]], request: requests.Request) -> list[dict[str, Any]]:
    """Return the row of the config that ranks first, from the `rows` of the info table.

    For models of groups, return the row of each config that ranks first in some group.
    """
    groups_of = () if request.groups is None else tuple(request.groups.types)
    best: dict[tuple[Any, ...], tuple[tuple[float, float], int, dict[str, Any]]] = {}
    usual = request.deciding_rows
    measured = {
        tuple(row[name] for name in groups_of) for row in rows if row[f"{usual}_loss_final"] is not None
    }
    for row in rows:
        group = tuple(row[name] for name in groups_of)
        # A group without validation rows is compared on its training rows.
        dataset = usual if group in measured or not groups_of else "training"
        loss, metric = row[f"{dataset}_loss_final"], row[f"{dataset}_metrics_final"]
        if loss is None or not math.isfinite(loss):
            continue
        found = (standing(reparse_compile(row["compile_params"]), metric, loss), row["mst_key"], row)
        if group not in best or found[:2] < best[group][:2]:
            best[group] = found
    chosen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for _, _, row in sorted(best.values(), key=lambda found: found[1]):
        # A method may train equal configs, and groups may choose several of them.
        chosen.setdefault(tuple(row[name] for name in _CONFIG), row)
    return list(chosen.values())


def _write_summary(
    db: Database,
    targets: output.Targets,
    request: requests.Request,
    search: SearchCall,
    outcome: runner.Outcome,
) -> None:
    row = {
        **output.summary_row(db, request, outcome, {"model": targets.model, "model_info": targets.info}),
        "automl_method": search.method.name,
        "automl_params": search.method.text(),
        # As in MADlib, NULL if the call gave none. The run stores the drawn one.
        "random_state": None if (request.search or {}).get(replay.DRAWN) else str(search.random_state),
        "use_gpus": request.engines.use_gpus,
    }
    columns = results.automl_columns()
    if request.groups is not None:
        row[results.GROUP_BY[0]] = list(request.groups.types)
        columns = [*columns, results.GROUP_BY[0]]
    row = {key: row[key] for key in row if key in columns}
    output.write_summary(db, targets.summary, request, row)
