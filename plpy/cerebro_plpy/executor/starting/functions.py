"""Register, grant and unregister functions, and check the registered functions of a resumed run."""

from __future__ import annotations

import functools
import keyword
import re
from collections.abc import Mapping
from typing import Any

from cerebro_plpy.commands import CheckFunctions
from cerebro_plpy.database import Database, Row, as_owner
from cerebro_plpy.errors import (
    DUPLICATE_OBJECT,
    NULL_NOT_ALLOWED,
    UNDEFINED_OBJECT,
    WRONG_OBJECT,
    WRONG_STATE,
    CerebroError,
)
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.logical.metrics import better
from cerebro_plpy.logical.options import FitOptions
from cerebro_plpy.madlib import registered
from cerebro_plpy.madlib.literal import shorten
from cerebro_plpy.madlib.registered import LOSS, METRIC
from cerebro_plpy.store import session
from cerebro_plpy.store.models import functions
from cerebro_plpy.store.names import check_writable
from cerebro_plpy.topology.choose import choose

MOST_CHARACTERS = 1_000_000
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")


def go_on(db: Database, run_id: int) -> None:
    """Let a resumed run use the registered functions that its configs name.

    Raise an error if a function has been unregistered since, or if the run's owner may no longer use it.
    """
    functions.begin(db, run_id)
    known = {function.digest: function for function in registered.known()}
    used = functions.of_run(db, run_id)
    for row in used:
        function = known.get(row["digest"])
        if function is None:
            raise CerebroError(
                f"run {run_id} uses the registered function {row['name']}, which has been unregistered since",
                hint="If a superuser registers the same source again, the run can continue.",
                sqlstate=WRONG_STATE,
            )
        if not function.usable:
            raise registered.denied(function.name)


def used(described: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the digests of all registered functions in the nets that an engine has described."""
    return sorted({digest for facts in described.values() for digest in facts["functions"]})


def register(
    db: Database,
    name: str | None,
    source: str | None,
    kind: str | None,
    description: str | None,
    higher_is_better: bool | None,
) -> int:
    """Store Python source as a new version of a registered function, and return the number of the version.

    If the newest version is the same function, return its number instead.
    """
    functions.check_superuser(db, "register functions")
    check_writable(db, "a change of registered functions")
    if name is None or source is None or kind is None:
        raise CerebroError("name, source and kind cannot be NULL", sqlstate=NULL_NOT_ALLOWED)
    check_name(name)
    if kind not in registered.KINDS:
        raise CerebroError(
            f"kind is {shorten(kind, 60)}", detail=f"It is one of {', '.join(registered.KINDS)}."
        )
    if len(source) > MOST_CHARACTERS:
        raise CerebroError(f"the source is longer than {MOST_CHARACTERS} characters")
    row = {
        "name": name,
        "kind": kind,
        "digest": registered.digest(name, kind, higher_is_better, source),
        "source": source,
        "higher_is_better": higher_is_better,
    }
    _try(db, row)
    role = session.current_user(db)
    return _add(db, role, row, description)


def register_either(db: Database, name: str, source: str, description: str | None) -> None:
    """Register a function as a loss; if it is not a loss, register it as a metric.

    Any function of two arrays may be either. As a metric it is better when it is higher if its name says so,
    like that of an accuracy.
    """
    rises = better(name) == "max"
    known = functools.partial(register, db, name=name, source=source, description=description)
    try:
        known(kind=LOSS, higher_is_better=True if rises else None)
    except CerebroError as error:
        if error.sqlstate != WRONG_OBJECT:
            raise
        known(kind=METRIC, higher_is_better=None)


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise CerebroError(
            f"{shorten(name, 80)!r} cannot be the name of a function",
            detail="It must be a Python identifier: a letter, then at most 62 letters, digits and _.",
        )


def _try(db: Database, row: Mapping[str, Any]) -> None:
    """Have an engine execute the source in `row` once, in a session as for training; raise its error."""
    engines = requests.engines(db, FitOptions(), False, session.usual_segments(db))
    topology = choose(db, [])
    topology.open([engines.start(engines.backend, False)], 1)
    topology.ask(engines.backend, CheckFunctions(functions=[row]))


@as_owner
def _add(db: Database, role: str, row: Mapping[str, Any], description: str | None) -> int:
    last = functions.newest(db, row["name"])
    if last is not None and last["registered"]:
        if last["kind"] != row["kind"]:
            raise CerebroError(
                f"{row['name']} is registered as a {last['kind']}",
                hint="Unregister it first, or take another name.",
                sqlstate=DUPLICATE_OBJECT,
            )
        if last["digest"] == row["digest"] and description in (None, last["description"]):
            return last["version"]
        description = last["description"] if description is None else description
    version = 1 if last is None else last["version"] + 1
    functions.add(db, role, **row, version=version, description=description)
    return version


def unregister(db: Database, name: str | None) -> None:
    """Unregister all versions of a function. Runs that have begun still use it."""
    functions.check_superuser(db, "unregister functions")
    check_writable(db, "a change of registered functions")
    last = _last(db, name)
    functions.add(
        db,
        session.current_user(db),
        name=name,
        version=last["version"] + 1,
        kind=last["kind"],
        digest=None,
        source=None,
    )
    functions.revoke(db, str(name))


def grant(db: Database, name: str | None, role: str | None) -> None:
    """Let a role use a registered function; the role "public" means every role."""
    _change_grant(db, name, role, give=True)


def revoke(db: Database, name: str | None, role: str | None) -> None:
    _change_grant(db, name, role, give=False)


def _change_grant(db: Database, name: str | None, role: str | None, *, give: bool) -> None:
    functions.check_superuser(db, "grant functions" if give else "revoke functions")
    check_writable(db, "a change of registered functions")
    if role is None:
        raise CerebroError("role is NULL", sqlstate=NULL_NOT_ALLOWED)
    _last(db, name)
    oid = functions.find_role(db, role)
    if oid is None:
        raise CerebroError(f'role "{role}" does not exist', sqlstate=UNDEFINED_OBJECT)
    if give:
        functions.grant(db, str(name), oid, session.current_user(db))
    elif not functions.revoke(db, str(name), oid):
        db.notice(f'role "{role}" had not been granted {name}')


def _last(db: Database, name: str | None) -> Row:
    if name is None:
        raise CerebroError("name is NULL", sqlstate=NULL_NOT_ALLOWED)
    last = functions.newest(db, name)
    if last is None or not last["registered"]:
        raise CerebroError(f"there is no registered function {shorten(name, 80)}", sqlstate=UNDEFINED_OBJECT)
    return last
