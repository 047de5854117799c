"""madlib_fit_multiple_model: from the call's arguments to the result tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DUPLICATE_TABLE, UNDEFINED_TABLE, CerebroError
from cerebro_plpy.executor import background, output, replay
from cerebro_plpy.executor import request as requests
from cerebro_plpy.executor import run as runner
from cerebro_plpy.logical.options import FitOptions, parse_fit_options
from cerebro_plpy.store import functions as registry
from cerebro_plpy.store import measurements, models, results, runs, session
from cerebro_plpy.store.names import (
    Table,
    TargetTable,
    parse_table,
    quote,
    resolve_table,
    target,
    target_table,
)
from cerebro_plpy.topology.choose import choose
from cerebro_plpy.topology.inline import RunCommand

SUFFIXES = ("_info", "_summary")


@dataclass(frozen=True)
class FitCall:
    """The arguments of madlib_keras_fit_multiple_model, as they come."""

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
    search_path: str


def fit_multiple(db: Database, call: FitCall, run_inline: RunCommand) -> None:
    """Train every config of a model selection table."""
    requests.check_writable(db)
    given = parse_fit_options(call.options)
    before = earlier_run(db, call.model_output_table, call.search_path, SUFFIXES) if call.warm_start else None
    registry.begin(db, before or given.replay)
    request = _request(db, call, given)
    requests.tell_what_is_left_out(db, [c.fit_params for c in request.configs])
    order = replay.order(db, request)
    name, path = call.model_output_table, call.search_path
    earlier = earlier_tables(db, name, path, SUFFIXES) if call.warm_start else None
    tables = targets(db, name, path, SUFFIXES, earlier)
    topology = choose(db, session.current_user(db), request.tables, run_inline)
    described = runner.check(db, topology, request, sessions=1 if given.background else None)
    start = runner.Start(arch_weights(request))
    if earlier is not None:
        start = _warm_start(db, request, earlier, start)
    if given.background:
        background.begin(
            db,
            topology=topology,
            request=request,
            described=described,
            start=start,
            kind=runner.MANY,
            model_table=tables[0].quoted,
        )
        return
    if earlier is None:
        create_tables(db, tables, request)

    def write(outcome: runner.Outcome) -> None:
        write_tables(db, request, tables, earlier is not None, outcome)

    runner.perform(
        db,
        topology=topology,
        request=request,
        described=described,
        start=start,
        write=write,
        kind=runner.MANY,
        model_table=tables[0].quoted,
        order=order,
    )


def create_tables(db: Database, tables: Sequence[TargetTable], request: requests.Request) -> None:
    output.create(db, output.Targets(*tables), request.source.summary)


def write_tables(
    db: Database,
    request: requests.Request,
    tables: Sequence[TargetTable],
    replace: bool,
    outcome: runner.Outcome,
) -> None:
    """Fill the three tables; those of an earlier run are replaced."""
    named = output.Targets(*tables)
    if replace:
        results.drop(db, [table.quoted for table in tables])
        create_tables(db, tables, request)
    sizes = output.write_models(db, named, request, outcome)
    output.write_info(db, named, request, outcome, sizes)
    _write_summary(db, named, request, outcome)


def _request(db: Database, call: FitCall, given: FitOptions) -> requests.Request:
    epochs, frequency = requests.budget(call.num_iterations, call.metrics_compute_frequency, given)
    path = call.search_path
    source, validation = requests.training_and_validation(db, call.source_table, call.validation_table, path)
    selection = requests.selected(db, call.model_selection_table, path)
    arch_table, configs = selection.arch_table, selection.configs
    architectures = models.architectures(db, arch_table, sorted({c.model_id for c in configs}))
    engines = requests.engines(db, given, bool(call.use_gpus), source.summary.segments)
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
        name=call.name,
        description=call.description,
        selection_table=selection.table.quoted,
        warm_start=bool(call.warm_start),
        search=requests.early_stopping(given, configs, epochs, frequency),
        limits=given.limits,
        object_table=selection.object_table,
        spelled=requests.spelled(
            call.model_output_table,
            source_table=call.source_table,
            validation_table=call.validation_table,
            model_arch_table=selection.arch_spelled,
            model_selection_table=call.model_selection_table,
        ),
    )


def arch_weights(request: requests.Request) -> list[Mapping[str, Any]]:
    """Architectures that were stored with weights start from those (transfer learning)."""
    return [
        runner.weights_of(request.arch_table.quoted, "model_id", a.model_id, a.model_id, runs.EVERY_CONFIG)
        for a in request.architectures
        if a.has_weights
    ]


def earlier_tables(db: Database, name: str | None, search_path: str, suffixes: Sequence[str]) -> list[Table]:
    """The tables of the run that a warm start goes on from."""
    schema, table = parse_table(name, "model output table")
    found = []
    for suffix in ("", *suffixes):
        full = quote(table + suffix) if schema is None else quote(schema, table + suffix)
        try:
            found.append(resolve_table(db, full, search_path, "model output table"))
        except CerebroError as error:
            raise CerebroError(
                error.message,
                hint="A warm start goes on from the tables of an earlier run: keep all of them, or set"
                " warm_start to FALSE.",
                sqlstate=UNDEFINED_TABLE,
            ) from None
    requests.owned(db, found)
    return found


def earlier_run(db: Database, name: str | None, search_path: str, suffixes: Sequence[str]) -> int | None:
    """The run that a warm start goes on from, in whose versions it names registered functions."""
    try:
        return results.summary_row(db, earlier_tables(db, name, search_path, suffixes)[-1].quoted).get(
            "run_id"
        )
    except CerebroError:
        # What is wrong is said where the tables are needed.
        return None


def targets(
    db: Database,
    name: str | None,
    search_path: str,
    suffixes: Sequence[str],
    earlier: Sequence[Table] | None,
    run_id: int | None = None,
) -> list[TargetTable]:
    """The tables to be made: new ones, or those of the earlier run again; by no other run than this one."""
    if earlier is not None:
        tables = [TargetTable(t.schema, t.name, t.quoted) for t in earlier]
    else:
        model = target_table(db, name, search_path, "model output table", suffixes)
        tables = [model, *(target(db, model.schema, model.name + suffix) for suffix in suffixes)]
    other = db.as_owner(lambda: runs.making(db, tables[0].quoted, run_id))
    if other is not None:
        raise CerebroError(
            f"run {other} is going to leave its models in {tables[0].quoted}",
            hint=f"Give another name, or wait for it: SELECT cerebro.wait({other}).",
            sqlstate=DUPLICATE_TABLE,
        )
    return tables


def _warm_start(
    db: Database, request: requests.Request, earlier: Sequence[Table], cold: runner.Start
) -> runner.Start:
    """Configs that the earlier run trained go on from their states, or from their weights if the states
    are gone; the others start as they would without."""
    model, info, summary = earlier
    trained = results.trained_models(db, info.quoted)
    known = [c for c in request.configs if trained.get(c.mst_key) == c.model_id]
    states = runner.kept_states(db, results.summary_row(db, summary.quoted).get("run_id"))
    warm = {c.mst_key: states[c.mst_key] for c in known if c.mst_key in states}
    kept = {row["mst_key"] for row in results.keys_with_weights(db, model.quoted)}
    weights = [
        runner.weights_of(model.quoted, "mst_key", c.mst_key, c.model_id, c.mst_key)
        for c in known
        if c.mst_key not in states and c.mst_key in kept
    ]
    if weights:
        db.notice(
            f"{len(weights)} of {len(request.configs)} configs go on from their weights alone: the states of"
            " the earlier run, with the optimizers' variables, are gone"
        )
    return runner.Start([*cold.weights, *weights], warm)


def _names(request: requests.Request, tables: Mapping[str, TargetTable]) -> dict[str, str | None]:
    """The tables of a run by the summary's columns."""
    validation, selection = request.validation, request.selection_table
    return {
        "source_table": request.source.table.quoted,
        "validation_table": validation.table.quoted if validation else None,
        "model_arch_table": request.arch_table.quoted,
        **({} if selection is None else {"model_selection_table": selection}),
        **{column: table.quoted for column, table in tables.items()},
    }


def summary_row(
    db: Database, request: requests.Request, outcome: runner.Outcome, tables: Mapping[str, TargetTable]
) -> dict[str, Any]:
    """What the summaries of many models and of one have in common; `tables` are those that were made."""
    packed = request.source.summary
    times = db.as_owner(lambda: measurements.times(db, outcome.run_id))
    names = _names(request, tables)
    return {
        **{column: name and request.spelled.get(column, name) for column, name in names.items()},
        "qualified_names": {column: name for column, name in names.items() if name is not None},
        "dependent_varname": list(packed.dependent_varname),
        "independent_varname": list(packed.independent_varname),
        "object_table": request.object_table,
        "num_iterations": request.epochs,
        "metrics_compute_frequency": request.metrics_frequency,
        "name": request.name,
        "description": request.description,
        "start_training_time": times["started"],
        "end_training_time": times["ended"],
        "madlib_version": f"cerebro {session.version(db)}",
        "num_classes": packed.num_classes,
        "dependent_vartype": list(packed.dependent_vartype),
        "normalizing_const": packed.normalizing_const,
        "metrics_iters": output.metrics_iters(outcome),
        "run_id": outcome.run_id,
        "seed": request.seed,
        "segments": request.segments,
    }


def _write_summary(
    db: Database, tables: output.Targets, request: requests.Request, outcome: runner.Outcome
) -> None:
    row = {
        **summary_row(db, request, outcome, {"model": tables.model, "model_info": tables.info}),
        "warm_start": request.warm_start,
    }
    packed = request.source.summary
    results.add_summary(db, tables.summary.quoted, row, packed.class_value_types, packed.class_values)
