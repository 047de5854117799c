"""Changes of registered models: pointing aliases at versions, rolling back, and dropping versions."""

from __future__ import annotations

from cerebro_plpy.database import Database
from cerebro_plpy.errors import (
    DEPENDENT_OBJECTS,
    INSUFFICIENT_PRIVILEGE,
    NULL_NOT_ALLOWED,
    UNDEFINED_OBJECT,
    WRONG_STATE,
    CerebroError,
)
from cerebro_plpy.registry import history, references
from cerebro_plpy.store import session
from cerebro_plpy.store.models import model_versions
from cerebro_plpy.store.models.model_versions import MANAGE
from cerebro_plpy.store.names import check_writable


def begin_change(db: Database, name: str | None) -> str:
    """Return the name of a model after checking that the caller may change it, and lock the model."""
    known = check_change(db, name)
    if not model_versions.lock(db, known):
        raise model_versions.not_registered(known)
    return known


def check_change(db: Database, name: str | None) -> str:
    """Return the name of a model; raise an error if it does not exist or the caller may not change it."""
    known = references.check_name(name, "the name of a model")
    check_writable(db, f"a change of {known}")
    privilege = model_versions.privilege(db, known)
    if privilege is None:
        raise model_versions.not_registered(known)
    if privilege != MANAGE:
        raise CerebroError(
            f"permission denied to change the registered model {known}",
            hint=f"Its owner may grant that: SELECT cerebro.grant_model('{known}', 'role', 'manage').",
            sqlstate=INSUFFICIENT_PRIVILEGE,
        )
    return known


def check_version(db: Database, name: str, version: int | None) -> int:
    """Return the number of a version; raise an error if it is NULL or the model has no such version."""
    if version is None:
        raise CerebroError("version is NULL", sqlstate=NULL_NOT_ALLOWED)
    if model_versions.find(db, name, None, version) is None:
        raise model_versions.no_such_version(name, version)
    return version


def set_alias(db: Database, name: str | None, alias: str | None, version: int | None) -> None:
    """Let an alias point at a version, for all statements that begin after the change is committed."""
    known = begin_change(db, name)
    point(db, known, references.check_name(alias, "an alias"), check_version(db, known, version))


def point(db: Database, name: str, alias: str, version: int, event: str = history.SET) -> None:
    """Let an alias point at a version, and record the change, unless the alias already points there.

    `event` is the kind of change in the record.
    """
    if model_versions.aliases(db, name).get(alias) == version:
        return
    model_versions.point(db, name, alias, version)
    model_versions.note(db, name, event, session.current_user(db), alias=alias, version=version)


def drop_alias(db: Database, name: str | None, alias: str | None) -> None:
    """Drop an alias of a model; the default alias, which a name without @ means, cannot be dropped."""
    known = begin_change(db, name)
    gone = _existing(db, known, alias)
    if gone == references.DEFAULT:
        raise CerebroError(
            f"alias {gone} of {known} cannot be dropped: it is what the name alone means",
            hint="cerebro.set_alias moves it, cerebro.unregister removes the model.",
            sqlstate=DEPENDENT_OBJECTS,
        )
    model_versions.drop_alias(db, known, gone)
    model_versions.note(db, known, history.ALIAS_DROPPED, session.current_user(db), alias=gone)


def _existing(db: Database, name: str, alias: str | None) -> str:
    known, there = references.check_name(alias, "an alias"), model_versions.aliases(db, name)
    if known not in there:
        raise CerebroError(
            f"{name} has no alias {known}",
            detail=f"It has {', '.join(sorted(there))}.",
            sqlstate=UNDEFINED_OBJECT,
        )
    return known


def version_of(db: Database, name: str, alias: str | None) -> int:
    """Return the version at which an alias points."""
    return model_versions.aliases(db, name)[_existing(db, name, alias)]


def rollback(db: Database, name: str | None, alias: str | None) -> int:
    """Let an alias point at the version at which it pointed before; return this version."""
    known = begin_change(db, name)
    moved = _existing(db, known, alias)
    path = history.walk(model_versions.events(db, known, moved))
    if len(path) < 2:
        raise CerebroError(
            f"the alias {moved} of {known} has nowhere to go back to",
            detail=f"It points at version {path[-1]}. Before that it pointed at none that is still there.",
            hint="To have it point at another version, call cerebro.set_alias.",
            sqlstate=WRONG_STATE,
        )
    point(db, known, moved, path[-2], history.ROLLED_BACK)
    return path[-2]


def drop_version(db: Database, name: str | None, version: int | None) -> None:
    """Drop a version of a model; raise an error if an alias points at it."""
    known = begin_change(db, name)
    gone = check_version(db, known, version)
    pointing = sorted(alias for alias, own in model_versions.aliases(db, known).items() if own == gone)
    if pointing:
        raise CerebroError(
            f"{known}@{gone} cannot be dropped: it has the alias {', '.join(pointing)}",
            hint="cerebro.set_alias moves an alias, cerebro.unregister removes the model.",
            sqlstate=DEPENDENT_OBJECTS,
        )
    model_versions.drop(db, known, gone)
    model_versions.note(db, known, history.VERSION_DROPPED, session.current_user(db), version=gone)
