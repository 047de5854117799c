"""options => {"replay": run}: pass results to a search procedure in the order of an earlier run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATA_CORRUPTED, WRONG_STATE, CerebroError
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.executor.starting.request import Request
from cerebro_plpy.logical.options import FitOptions
from cerebro_plpy.logical.search.template import Result
from cerebro_plpy.store import session
from cerebro_plpy.store.runs import decisions, runs
from cerebro_plpy.store.runs.decisions import Entry

# A key in the description of a search: whether its random state was drawn. It does not change the configs.
DRAWN: Final = "drawn"
# Keys there for later searches: the facts of its packed table, and the names of its nets.
TABLE, NETS = "table", "nets"
_NOT_COMPARED: Final = (DRAWN, TABLE, NETS)


def seed(db: Database, given: FitOptions) -> int:
    """Return the seed of the call, else the seed of the run that it replays, else a drawn one."""
    if given.replay is None or given.seed is not None:
        return requests.seed(given)
    role, run_id = session.current_user(db), given.replay
    return runs.own_run(db, run_id, role).seed


def order(db: Database, request: Request) -> list[tuple[int, int]]:
    """Return the order in which the search must get its results; an empty list if no run is replayed."""
    run_id = request.limits.replay
    return [] if run_id is None else order_of(db, run_id, request)


def order_of(db: Database, run_id: int, request: Request) -> list[tuple[int, int]]:
    """Return a run's results, as pairs of `mst_key` and epoch, in the order in which its search got them.

    Raise an error if a run with this request cannot replay the run `run_id`.
    """
    role = session.current_user(db)
    run, log = runs.own_run(db, run_id, role), decisions.entries(db, run_id)
    theirs = _search(runs.searched(run)), run.seed, run.segments, run.epochs
    ours = _search(request.search), request.seed, request.segments, request.epochs
    for what, old, new in zip(("search", "seed", "segments", "epochs"), theirs, ours, strict=True):
        if old != new:
            raise CerebroError(
                f"run {run_id} cannot be replayed by this call: its {what} is {old}, not {new}",
                hint="Make the call that began it, with its seed.",
            )
    if any(entry.role is not None for entry in log):
        raise CerebroError(
            f"run {run_id} cannot be replayed: people made decisions in it as well",
            hint="The view cerebro.decisions shows what they did.",
            sqlstate=WRONG_STATE,
        )
    return [
        (entry.mst_key, (entry.step or 0) // run.segments)
        for entry in log
        if entry.decision == decisions.MEASURED and entry.mst_key is not None
    ]


def _search(described: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the description of a search, without the keys that may differ between a run and its replay."""
    if described is None:
        return None
    kept = {key: value for key, value in described.items() if key not in _NOT_COMPARED}
    # Engines of single architectures count if they differ from the engine of the search.
    engines = {**(kept.pop("backends", None) or {})}
    others = {model_id: name for model_id, name in engines.items() if name != kept.get("backend")}
    return {**kept, "backends": others}


def are_same(expected: Entry, found: Entry) -> bool:
    """Return whether two log entries agree in decision, config, epochs and reason."""
    named = [(e.decision, e.mst_key, e.epochs, e.reason) for e in (expected, found)]
    return named[0] == named[1]


def refuse_decision(expected: Entry | None, found: Entry | None) -> CerebroError:
    return CerebroError(
        "the search procedure decides differently from the run's log",
        detail=f"It decides {_words(expected)}, and the log has {_words(found)}.",
        hint="Was the run begun by another version of cerebro?",
        sqlstate=DATA_CORRUPTED,
    )


def _words(entry: Entry | None) -> str:
    return "nothing more" if entry is None else f"{entry.decision} for config {entry.mst_key}"


def refuse_result(result: Result) -> CerebroError:
    """Return the error for a result that the replayed run did not have."""
    return CerebroError(
        f"this run cannot repeat the other: config {result.mst_key} was measured after epoch {result.epoch},"
        " but not in the other run, or not at this point",
        sqlstate=DATA_CORRUPTED,
    )
