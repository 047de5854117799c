"""options => {"background": true}: carry out a run in the server after its caller's session has ended."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from cerebro_plpy.commands import Drive
from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.executor.running import run as runner
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.store import interrupts, session
from cerebro_plpy.store.names import built_in_types, is_temporary
from cerebro_plpy.store.runs import decisions
from cerebro_plpy.topology import Topology
from cerebro_plpy.topology.local import LocalTopology, check_room
from cerebro_plpy.topology.loopback import leave_running


def begin(db: Database, topology: Topology, new: runner.NewRun) -> None:
    """Store a new run, and have a background session carry it out."""
    if not isinstance(topology, LocalTopology):
        raise CerebroError(
            "this run cannot go on in the background: no other session sees its tables, or none may log in",
            hint="The NOTICE before this error says why.",
            sqlstate=NOT_SUPPORTED,
        )
    made = [new.model_table, *([new.request.selection_table] if new.kind == runner.AUTOML else [])]
    if any(is_temporary(name or "") for name in made):
        raise CerebroError(
            "a run in the background cannot leave temporary tables: another session makes them",
            sqlstate=NOT_SUPPORTED,
        )
    # At least three sessions: the driving session, the control session and one that trains.
    check_room(session.room(db, session.current_user(db)), 3)
    run_id = runner.write_down(db, topology, new)
    leave_running(
        session.target(db),
        Drive(run_id=run_id, role=session.current_user(db)),
        interrupts.look_seconds(db),
        lambda: decisions.status(db, run_id) != "interrupted",
        partial(interrupts.tick, db),
    )
    db.notice(f"run {run_id} goes on in the background: cerebro.wait({run_id}) waits for it")


def with_built_in_types(db: Database, request: requests.Request) -> requests.Request:
    """Return the request with class and group columns as text where their types are not built in.

    A type that a user has made, such as a domain with a check, may run the user's code. This must not happen
    while the background session writes the result tables, since that session has a superuser's rights.
    """
    summary, groups = request.source.summary, request.groups
    of_groups = groups.types if groups else {}
    known = built_in_types(db, [*summary.class_value_types.values(), *map(_array, of_groups.values())])
    types = {name: kind if kind in known else "text[]" for name, kind in summary.class_value_types.items()}
    of_groups = {name: kind if _array(kind) in known else "text" for name, kind in of_groups.items()}
    return replace(
        request,
        source=replace(request.source, summary=replace(summary, class_value_types=types)),
        groups=groups and replace(groups, types=of_groups),
    )


def _array(type_: str) -> str:
    return f"{type_}[]"
