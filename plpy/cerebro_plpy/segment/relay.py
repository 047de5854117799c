"""Greenplum: an errand statement by statement, as the procedure `cerebro._errand` carries it out.

A statement that Python runs is a subtransaction, of which each process of the session has to be told, and all
of them then take part in the commit. The procedure's own go to one segment.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.segment import courier
from cerebro_plpy.store import errands, session

# What kind of thing to do, what it is given, and the statements.
Order = Sequence[str | None]
Orders = Generator[Order, str | None, Mapping[str, Any]]

_under_way: list[Orders] = []


def begin(db: Database, name: str, request: Mapping[str, Any], look_seconds: int) -> Order:
    """The first thing to do for a command; what an earlier one left undone is forgotten."""
    session.show(session.shown(name, request))
    _under_way[:] = [_orders(db, name, request, look_seconds)]
    return go_on(None)


def go_on(found: str | None) -> Order:
    """The next thing to do, in the light of what the last one has found."""
    try:
        return _under_way[0].send(found)
    except StopIteration as end:
        session.show(session.IDLE)
        return _order("answer", end.value)
    except BaseException:
        session.show(session.IDLE)
        raise


def _orders(db: Database, name: str, request: Mapping[str, Any], look_seconds: int) -> Orders:
    steps = courier.steps_of(db, name, request)
    reply: Any = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as end:
            return end.value
        if isinstance(step, courier.Look):
            reply = yield from _look(db, step, look_seconds)
        else:
            kind = "find" if isinstance(step, courier.Work) else "write"
            reply = yield _order(kind, step.given, step.statement)


def _look(db: Database, look: courier.Look, seconds: int) -> Generator[Order, str | None, list[str | None]]:
    guard = yield from _guard(db, look.role)
    become = session.become(look.role)
    yield _order("find", {"bound": seconds}, errands.work(look.key))
    # Whoever passes this on sees to it that it takes no longer.
    found = yield _order("look", seconds, become, guard, *look.statements)
    return json.loads(found or "[]")


def _guard(db: Database, role: str) -> Generator[Order, str | None, str]:
    oid = yield _order("find", session.look_guard(role), session.FIND_LOOK_GUARD)
    if oid is None:
        oid = session.make_look_guard(db, role)
        yield _order("commit")
    return session.look_through(oid)


def _order(kind: str, given: Any = None, *statements: str) -> Order:
    return [kind, json.dumps(given), *statements]
