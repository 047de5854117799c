"""Begin a run, after the whole call is checked and before anything is written.

Each kind of call has a file of its own. Its `RunCall` reads the arguments; its `ResultTables` creates and
fills the result tables of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from cerebro_plpy.commands import StartingWeights
from cerebro_plpy.database import Database
from cerebro_plpy.errors import DUPLICATE_TABLE, UNDEFINED_TABLE, WRONG_OBJECT, CerebroError
from cerebro_plpy.executor.running import averaging, background, replay
from cerebro_plpy.executor.running import run as runner
from cerebro_plpy.executor.starting import choosing, cutting, fusing, groups, warm_groups
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.logical.options import FitOptions
from cerebro_plpy.store import session
from cerebro_plpy.store.models import functions as registry
from cerebro_plpy.store.names import (
    Table,
    TargetTable,
    check_writable,
    parse_table,
    quote,
    resolve_table,
    target,
    target_table,
)
from cerebro_plpy.store.runs import drivers, replacing, results, starting_weights
from cerebro_plpy.topology.choose import choose


class ResultTables(Protocol):
    """The result tables of one kind of run. In all methods, the first of `tables` is the table of models."""

    @property
    def suffixes(self) -> Sequence[str]: ...

    @property
    def several(self) -> bool:
        """Whether the table of models holds several models, each with an `mst_key`."""
        ...

    def columns(self, request: requests.Request) -> list[results.ResultColumns]:
        """Return the columns of each result table."""
        ...

    def create(self, db: Database, tables: Sequence[TargetTable], request: requests.Request) -> None: ...

    def fill(
        self,
        db: Database,
        tables: Sequence[TargetTable],
        request: requests.Request,
        outcome: runner.Outcome,
    ) -> None: ...


class RunCall(Protocol):
    """The unchecked arguments of a call that begins a run, and the methods that read them."""

    @property
    def kind(self) -> str: ...

    @property
    def result_tables(self) -> ResultTables: ...

    @property
    def model_output_table(self) -> str | None: ...

    @property
    def warm_start(self) -> bool | None: ...

    @property
    def name(self) -> str | None: ...

    @property
    def description(self) -> str | None: ...

    def read_options(self) -> FitOptions: ...

    def resolve(self, db: Database, given: FitOptions) -> requests.Request:
        """Return the request of the call; raise an error if its tables and options cannot be trained."""
        ...

    def examples(self, request: requests.Request) -> Sequence[requests.Chosen]:
        """Return the configs that the engine checks before the run begins."""
        ...

    def go_on_from(
        self, db: Database, request: requests.Request, earlier: Sequence[Table], cold: runner.Start
    ) -> runner.Start:
        """Return the start of a run whose configs continue from the result tables of an earlier run.

        `cold` is the start that the run would have without a warm start.
        """
        ...


def begin(db: Database, call: RunCall, *, started: int = 0, ends_at: float | None = None) -> None:
    """Check a call and begin its run; wait for its end unless the call says to run in the background.

    `started` is the number of sessions that an earlier run has started. `ends_at` is the time on the
    monotonic clock at which the budget ends, if it began before the run and the call waits for it.
    """
    check_writable(db, "the result tables")
    requests.check_about(call.name, call.description)
    given = call.read_options()
    name, made = call.model_output_table, call.result_tables
    earlier = earlier_tables(db, name, made) if call.warm_start else None
    # The run whose versions of registered functions the call uses.
    before = None if earlier is None else results.summary_row(db, earlier[-1].quoted).get("run_id")
    registry.begin(db, before or given.replay)
    request = call.resolve(db, given)
    if request.limits.changed_groups:
        request = warm_groups.only_changed(db, request, earlier)
        if not request.configs:
            db.notice("no group has changed: nothing is trained")
            return
    examples = call.examples(request)
    _check_configs(db, request, examples)
    tables = targets(db, name, made.suffixes, earlier, selection=request.selection_table)
    if earlier is not None:
        written = background.with_built_in_types(db, request) if given.background else request
        replacing.check(db, tables, made.columns(written), keeps=request.limits.changed_groups)
        replacing.tell_readers(db, tables[0])
    handed = None if given.background or earlier else request.handed_rows
    topology = choose(db, request.tables, handed and replace(handed, started=started))
    # If this session trains by itself, it can run only one engine.
    if topology.name != "inline":
        request = choosing.with_usual_engine(db, request, examples, earlier)
    order = replay.order(db, request)
    request = fusing.replayed(db, runner.settle(db, topology, request, examples))
    fusing.check(request)
    cutting.check_device(request)
    checked, sessions = replace(request, configs=examples), 1 if given.background else None
    described = runner.check(db, topology, checked, sessions=sessions)
    cutting.check_recomputed(request, described)
    cutting.check_memory(request, examples, described)
    request = fusing.settled(cutting.settled(request, examples, described))
    fusing.tell(db, request, examples, described)
    start = runner.Start(_arch_weights(request))
    if earlier is not None:
        start = call.go_on_from(db, request, earlier, start)
    request = groups.with_class_counts(db, request)
    new = runner.NewRun(
        kind=call.kind,
        request=request,
        described=described,
        start=start,
        model_table=tables[0].quoted,
        order=order,
        ends_at=ends_at,
    )
    if given.background:
        background.begin(db, topology, new)
        return
    write = writer(db, call.result_tables, tables, request, replaces=earlier is not None)
    runner.perform(db, topology, new, write)


def _check_configs(db: Database, request: requests.Request, examples: Sequence[requests.Chosen]) -> None:
    """Check the configs as far as no engine is needed; send notices of what is special about them."""
    requests.check_class_weights(request, examples)
    _check_measured(request)
    groups.check_epochs(request, examples)
    requests.tell_what_is_left_out(db, [config.fit_params for config in examples])
    averaging.tell(db, request)


def _check_measured(request: requests.Request) -> None:
    """Raise an error if the training rows are not to be measured, and there are no validation rows."""
    if not request.limits.training_metrics and request.deciding_rows == "training":
        raise CerebroError(
            "option training_metrics is false, and there are no validation rows to measure",
            hint="Name a validation table, or leave the option out.",
        )


def _check_apart(tables: Sequence[TargetTable], selection: str | None) -> None:
    """Raise an error if a model selection table, or its summary, is one of the tables."""
    if selection is None:
        return
    schema, name = parse_table(selection, "model selection table")
    for made in tables:
        if made.schema == schema and made.name in (name, f"{name}_summary"):
            raise CerebroError(
                f"model selection table {selection} and the model table would both make {made.quoted}",
                hint="Give one of them another name.",
                sqlstate=DUPLICATE_TABLE,
            )


def writer(
    db: Database,
    result_tables: ResultTables,
    tables: Sequence[TargetTable],
    request: requests.Request,
    *,
    replaces: bool,
) -> Callable[[runner.Outcome], None]:
    """Return the function that writes the outcome of a run to its result tables.

    New tables are created immediately if the server allows that, else when the run ends. If the run
    `replaces` an earlier one (a warm start), the rows of the earlier run are deleted first.
    """
    made = not replaces and db.server.makes_tables_first
    if made:
        result_tables.create(db, tables, request)

    def write(outcome: runner.Outcome) -> None:
        if replaces and request.limits.changed_groups:
            warm_groups.make_room(db, tables, request, outcome)
        elif replaces:
            replacing.clear(db, tables, result_tables.columns(request))
        elif not made:
            result_tables.create(db, tables, request)
        result_tables.fill(db, tables, request, outcome)

    return write


def targets(
    db: Database,
    name: str | None,
    suffixes: Sequence[str],
    earlier: Sequence[Table] | None,
    run_id: int | None = None,
    selection: str | None = None,
) -> list[TargetTable]:
    """Return the result tables to write: the earlier run's, or else new ones named after `name`.

    Raise an error if another run is going to write them, or if the search would make its model selection
    table `selection`, or the summary of it, twice.
    """
    if earlier is not None:
        tables = [TargetTable(t.schema, t.name, t.quoted) for t in earlier]
    else:
        model = target_table(db, name, "model output table", suffixes)
        tables = [model, *(target(db, model.schema, model.name + suffix) for suffix in suffixes)]
    _check_apart(tables, selection)
    other = drivers.find_maker(db, tables[0].quoted, run_id, session.current_user(db))
    if other is not None:
        who, hint = "another run", "Give another name."
        if other["owned"]:
            who = f"run {other['run_id']}"
            hint = f"Give another name, or wait for it: SELECT cerebro.wait({other['run_id']})."
        raise CerebroError(
            f"{who} will write its models to {tables[0].quoted}", hint=hint, sqlstate=DUPLICATE_TABLE
        )
    return tables


def earlier_tables(db: Database, name: str | None, made: ResultTables) -> list[Table]:
    """Return the result tables of the run that a warm start continues.

    Raise an error if one of them is missing, belongs to another role, or is not from the same kind of call.
    """
    schema, table = parse_table(name, "model output table")
    found: list[Table] = []
    for suffix in ("", *made.suffixes):
        full = quote(table + suffix) if schema is None else quote(schema, table + suffix)
        try:
            found.append(resolve_table(db, full, "model output table"))
        except CerebroError as error:
            raise CerebroError(
                error.message,
                hint="A warm start continues from the tables of an earlier run: keep all of them, or set"
                " warm_start to FALSE.",
                sqlstate=UNDEFINED_TABLE,
            ) from None
        if not suffix:
            _check_kind(db, found[0], made.several)
    results.check_summary(db, found[0], found[-1])
    requests.owned(db, found)
    return found


def _check_kind(db: Database, model: Table, several: bool) -> None:
    """Raise an error if a call for several models would continue from one model, or the reverse."""
    if results.holds_several(db, model) == several:
        return
    one, many = "madlib_fit", "madlib_fit_multiple_model"
    call, maker = (many, one) if several else (one, many)
    raise CerebroError(
        f"{call} cannot go on from {model.quoted}: it holds {'one model' if several else 'several models'}",
        detail=f"It is a table of {maker}.",
        hint=f"Go on with {maker}, or set warm_start to FALSE and give another name.",
        sqlstate=WRONG_OBJECT,
    )


def _arch_weights(request: requests.Request) -> list[StartingWeights]:
    """Return the starting weights of architectures that were stored with weights (transfer learning)."""
    return [
        StartingWeights(
            model_id=a.model_id,
            mst_key=starting_weights.EVERY_CONFIG,
            table=request.arch_table.quoted,
            key_column="model_id",
            key=a.model_id,
        )
        for a in request.architectures
        if a.has_weights
    ]
