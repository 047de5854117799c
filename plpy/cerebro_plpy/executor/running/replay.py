"""options => {"replay": run}: repeat the order in which an earlier run's procedure got its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cerebro_plpy.database import Database
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.executor.starting.request import Request
from cerebro_plpy.logical.options import FitOptions
from cerebro_plpy.store import session
from cerebro_plpy.store.runs import decisions, runs

# In the description of a search: its random state was drawn, not given. The configs are the same either way.
DRAWN: Final = "drawn"
# There too, for searches that come after it: the facts of its packed table, and the names of its nets.
TABLE, NETS = "table", "nets"
_NOT_COMPARED: Final = (DRAWN, TABLE, NETS)


def seed(db: Database, given: FitOptions) -> int:
    """Return the seed of the call, or else that of the run to replay, or a drawn one."""
    if given.replay is None or given.seed is not None:
        return requests.seed(given)
    role, run_id = session.current_user(db), given.replay
    return runs.own_run(db, run_id, role).seed


def order(db: Database, request: Request) -> list[tuple[int, int]]:
    """Return the order of results that a run must keep; empty if it repeats no other."""
    run_id = request.limits.replay
    return [] if run_id is None else order_of(db, run_id, request)


def order_of(db: Database, run_id: int, request: Request) -> list[tuple[int, int]]:
    """Return the results of a run in their order; refuse if a run with this request cannot repeat it."""
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
    """Return what a search says of its configs and decisions."""
    if described is None:
        return None
    return {key: value for key, value in described.items() if key not in _NOT_COMPARED}
