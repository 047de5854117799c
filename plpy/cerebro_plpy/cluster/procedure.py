"""Turns a command into the statements that the procedure `cerebro._command` runs one by one.

This takes less time than if Python ran them. A statement that Python runs is a subtransaction, of which each
process of the session learns, and then takes part in the commit. A statement of the procedure itself is sent
to one segment only.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from cerebro_plpy import memory
from cerebro_plpy.cluster import coordinator
from cerebro_plpy.cluster.protocol import What
from cerebro_plpy.commands import Sent
from cerebro_plpy.database import Database
from cerebro_plpy.store import guards, session
from cerebro_plpy.store.cluster import statements

# A task for the procedure: its kind, the value that its statements are given, and the statements.
ProcedureTask = Sequence[str | None]
Tasks = Generator[ProcedureTask, str | None, Mapping[str, Any]]


class _UnderWay:
    """A holder of the tasks that remain of the command under way in this session."""

    tasks: Tasks


def begin(db: Database, sent: Sent, lacking: What | None) -> ProcedureTask:
    """Return the first task of a command; drop tasks that an earlier command has left undone.

    If the segment's process got the command before but lacked something for it, `lacking` says what.
    """
    session.show(sent.shown())
    memory.get_instance(_UnderWay).tasks = _tasks(db, sent, lacking)
    return go_on(None)


def go_on(found: str | None) -> ProcedureTask:
    """Return the next task of the command; `found` is the result of its last task."""
    try:
        return memory.get_instance(_UnderWay).tasks.send(found)
    except StopIteration as end:
        session.show(session.IDLE)
        return _task("answer", end.value)
    except BaseException:
        session.show(session.IDLE)
        raise


def _tasks(db: Database, sent: Sent, lacking: What | None) -> Tasks:
    steps = coordinator.steps_of(db, sent, lacking)
    reply: Any = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as end:
            return end.value
        if isinstance(step, coordinator.Look):
            reply = yield from _look(db, step, sent.look_seconds)
        else:
            kind = "find" if isinstance(step, coordinator.Find) else "write"
            reply = yield _task(kind, step.given, step.statement)


def _look(
    db: Database, look: coordinator.Look, seconds: int
) -> Generator[ProcedureTask, str | None, list[Any]]:
    guard = yield from _guard(db, look.role)
    become = guards.become(look.role)
    yield _task("find", {"bound": seconds}, statements.work(look.key))
    # The session that passes this task on enforces the time limit.
    found = yield _task("look", seconds, become, guard, *look.statements)
    return json.loads(found or "[]")


def _guard(db: Database, role: str) -> Generator[ProcedureTask, str | None, str]:
    oid = yield _task("find", guards.look_guard(role), guards.FIND_LOOK_GUARD)
    if oid is None:
        oid = guards.make_look_guard(db, role)
        yield _task("commit")
    return guards.look_through(oid)


def _task(kind: str, given: Any = None, *texts: str) -> ProcedureTask:
    return [kind, json.dumps(given), *texts]
