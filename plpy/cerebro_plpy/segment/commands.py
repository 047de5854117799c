"""What can be asked of a segment session or of the control session: one command, one transaction."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cerebro_plpy.database import Database
from cerebro_plpy.planner import gpus
from cerebro_plpy.store import (
    decisions,
    drivers,
    measurements,
    results,
    runs,
    session,
    state_rows,
)
from cerebro_plpy.store.writing import Writing, write

if TYPE_CHECKING:
    from cerebro_plpy.segment.supply import Supply

CommandRequest = Mapping[str, Any]
Command = Callable[[Database, CommandRequest], Mapping[str, Any]]
Work = Callable[["Supply", CommandRequest], Mapping[str, Any]]
# What a command writes comes as it has to be written, and its answer at the end.
Writes = Generator[Sequence[Writing], None, Mapping[str, Any]]


def run(db: Database, name: str, request: CommandRequest) -> Mapping[str, Any]:
    """Carry out a command by its name, with the engine that it names."""
    if name in _COMMANDS:
        return _COMMANDS[name](db, request)
    return db.server.carry_out(name, with_own_gpu(request))


def with_own_gpu(request: CommandRequest) -> CommandRequest:
    """Of the GPUs that a run's segments have been given, leave that of the segment which this is for."""
    engine = request.get("engine")
    if engine is None or isinstance(engine["use_gpus"], bool):
        return request
    shares = engine["use_gpus"]
    own = gpus.GpuShare(*shares[request.get("segment", 0) % len(shares)])
    # On Greenplum what is about no run yet, as the start of the engine, must go to a host that has the GPU.
    place = {} if "run_id" in request else {"segment": own.content}
    return {**request, **place, "engine": {**engine, "use_gpus": True, "gpu": own.told()}}


def work(
    supply: Supply, name: str, request: CommandRequest, tell: Callable[[str], None]
) -> Mapping[str, Any]:
    """Do something where the rows are, with the engine that the command names."""
    if name not in _WITHOUT_ENGINE:
        start_engine(request["engine"], tell if name == "start" else None)
    return _WORK[name](supply, request)


def start_engine(wanted: CommandRequest, tell: Callable[[str], None] | None) -> None:
    from cerebro_plpy.engine import runtime

    threads = runtime.threads_of(wanted["backend"])
    if tell is not None and threads not in (None, wanted["threads"]):
        # Only the caller's own session can be in this case: it has made predictions, say, before.
        tell(
            f"this session's engine goes on with {threads} threads, not {wanted['threads']}:"
            " the last bits of the result may differ"
        )
    gpu = runtime.Gpu(**wanted["gpu"]) if wanted.get("gpu") else None
    runtime.start(wanted["backend"], threads or wanted["threads"], wanted["use_gpus"], gpu)


def _start(supply: Supply, request: CommandRequest) -> Mapping[str, Any]:
    """The engine is up before any command is carried out."""
    return {}


def _check(supply: Supply, request: CommandRequest) -> Mapping[str, Any]:
    from cerebro_plpy.segment import checks

    return checks.check(request)


def _check_model(supply: Supply, request: CommandRequest) -> Mapping[str, Any]:
    from cerebro_plpy.segment import checks

    return checks.check_model(request)


def _check_function(supply: Supply, request: CommandRequest) -> Mapping[str, Any]:
    from cerebro_plpy.segment import checks

    return checks.check_functions(request)


def _visit(supply: Supply, request: CommandRequest) -> Mapping[str, Any]:
    from cerebro_plpy.segment import visits

    return visits.visit(supply, request["run_id"], request["mst_key"], request["epoch"], request["stop"])


def _evaluate(supply: Supply, request: CommandRequest) -> Mapping[str, Any]:
    from cerebro_plpy.segment import evaluations

    return evaluations.evaluate(
        supply, request["run_id"], request["mst_key"], request["epoch"], request["segment"]
    )


def _merge(supply: Supply, request: CommandRequest) -> Mapping[str, Any]:
    from cerebro_plpy.segment import evaluations

    return evaluations.merge(supply, request["run_id"], request["mst_key"], request["epoch"])


def _give_back(supply: Supply, request: CommandRequest) -> Mapping[str, Any]:
    """Let go of a run's rows, and of what memory was free before; compiled models stay for the next."""
    from cerebro_plpy.segment import rows

    rows.let_go()
    # Another C library than glibc has no such call.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return {}


def _written(steps: Callable[[Database, CommandRequest], Writes]) -> Command:
    """A command whose writing is done by statements of Python's."""

    def carry_out(db: Database, request: CommandRequest) -> Mapping[str, Any]:
        work, reply = steps(db, request), None
        try:
            while True:
                writings = work.send(reply)
                write(db, writings)
        except StopIteration as end:
            return end.value

    return carry_out


def create_run(db: Database, request: CommandRequest) -> Writes:
    """Write the run down and copy the weights that it starts from, read with the caller's rights.

    Whoever is to drive it stands behind it from then on.
    """
    run_row = runs.RunRow(**request["run"])
    # If it is there, the session that wrote it down was lost before it could say so.
    if runs.last_event(db, run_row.run_id) is None:
        yield from _write_down(db, run_row, request)
    if "driver" in request:
        # Last, since code of the caller's may have been under way until here.
        yield drivers.hold_new(db, run_row.run_id, _behind(request))
    return {}


def _write_down(
    db: Database, run_row: runs.RunRow, request: CommandRequest
) -> Generator[Sequence[Writing], None, None]:
    from cerebro_plpy.segment import rows

    run_row = replace(run_row, versions=rows.versions(db, run_row))
    architectures = [runs.ArchitectureRow(**a) for a in request["architectures"]]
    configs = [runs.ConfigRow(**c) for c in request["configs"]]

    yield runs.creation(db, run_row, architectures, configs)
    yield runs.inserts(
        "cerebro._run_function",
        run_row.run_id,
        [{"digest": digest} for digest in sorted(request["functions"])],
    )
    retention = session.setting(db, "retention_days")
    if retention is not None:
        runs.delete_older(db, int(retention))
    for source in request["weights"]:
        _copy_weights(db, run_row, source)


def _copy_weights(db: Database, run: runs.RunRow, source: CommandRequest) -> None:
    place = source["table"], source["column"], source["key_column"], source["key"]
    found = db.as_caller(run.owner, results.weights_from, db, *place)
    model_id, mst_key = source["model_id"], source["mst_key"]
    runs.add_weights(db, run.run_id, model_id, mst_key, found)


def _next_run_id(db: Database, request: CommandRequest) -> Mapping[str, Any]:
    return {"run_id": runs.next_run_id(db)}


def resume_run(db: Database, request: CommandRequest) -> Writes:
    from cerebro_plpy.segment import mending

    run_id = request["run_id"]
    measurements.drop_partial_evaluations(db, run_id)
    yield runs.event_of(run_id, "running")
    return {"damaged": mending.mend(db, run_id, request["evaluation_epochs"])}


def hold_run(db: Database, request: CommandRequest) -> Writes:
    yield drivers.hold(db, request["run_id"], _behind(request))
    return {}


def _behind(request: CommandRequest) -> drivers.Behind:
    return drivers.Behind(request["driver"], list(request["sessions"]))


def _let_go(db: Database, request: CommandRequest) -> Mapping[str, Any]:
    drivers.let_go(db, request["run_id"])
    return {}


def end_run(db: Database, request: CommandRequest) -> Writes:
    run_id = request["run_id"]

    # Else it is another session's run by now, or was never begun: not ours to judge.
    if drivers.holds(db, run_id) and runs.last_event(db, run_id) == "running":
        if "keep" in request:
            state_rows.keep_only(db, run_id, request["keep"])
        yield runs.event_of(run_id, request["event"], request.get("detail"))
    return {}


def fail_config(db: Database, request: CommandRequest) -> Writes:
    yield measurements.failure_of(**request)
    return {}


def decide(db: Database, request: CommandRequest) -> Writes:
    entries = [decisions.Entry(**e) for e in request["entries"]]
    configs = [runs.ConfigRow(**c) for c in request["configs"]]
    yield decisions.writings(request["run_id"], entries, configs)
    return {}


def _tell_epochs(db: Database, request: CommandRequest) -> Mapping[str, Any]:
    runs.notify(db, request["run_id"], "epoch", ended_epochs(request))
    return {}


def ended_epochs(request: CommandRequest) -> list[Mapping[str, int]]:
    """What listeners hear of each."""
    return [{"epoch": epoch, "config": mst_key} for mst_key, epoch in request["ended"]]


def _drop_states(db: Database, request: CommandRequest) -> Mapping[str, Any]:
    write(db, [(state_rows.DROP_STATES, stale_states(request))])
    return {}


def stale_states(request: CommandRequest) -> Mapping[str, Any]:
    """What the statement that removes states is given: for each config, what is to be kept."""
    keep = dict(request["keep"])
    return {
        "run_id": request["run_id"],
        "keep": keep,
        "newest": {mst_key: max(steps) for mst_key, steps in keep.items()},
    }


def _delete_run(db: Database, request: CommandRequest) -> Mapping[str, Any]:
    runs.delete(db, request["run_id"])
    return {}


# Rows are given back by a process, too, that was stopped before its engine was there.
_WITHOUT_ENGINE = {"give_back"}
# What needs an engine, or rows, is done where the rows are; all else where the tables are.
_WORK: dict[str, Work] = {
    "start": _start,
    "check": _check,
    "check_model": _check_model,
    "check_function": _check_function,
    "visit": _visit,
    "evaluate": _evaluate,
    "merge": _merge,
    "give_back": _give_back,
}
# What writes rows of runs. On Greenplum statements of Python's do not (cluster/coordinator.py says why).
WRITING: dict[str, Callable[[Database, CommandRequest], Writes]] = {
    "hold_run": hold_run,
    "create_run": create_run,
    "resume_run": resume_run,
    "end_run": end_run,
    "fail_config": fail_config,
    "decide": decide,
}
_COMMANDS: dict[str, Command] = {
    **{name: _written(steps) for name, steps in WRITING.items()},
    "next_run_id": _next_run_id,
    "let_go": _let_go,
    "tell_epochs": _tell_epochs,
    "drop_states": _drop_states,
    "delete_run": _delete_run,
}
