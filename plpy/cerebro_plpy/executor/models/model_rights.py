"""Rights on registered models, and reading all that a version holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import INSUFFICIENT_PRIVILEGE, NULL_NOT_ALLOWED, UNDEFINED_OBJECT, CerebroError
from cerebro_plpy.executor.models.aliases import begin_change
from cerebro_plpy.madlib.literal import shorten
from cerebro_plpy.madlib.nearest import unknown
from cerebro_plpy.predicting.holders import RegisteredVersion
from cerebro_plpy.predicting.models import features_of
from cerebro_plpy.predicting.trained import find_registered
from cerebro_plpy.store import session
from cerebro_plpy.store.models import functions, model_versions, registered_groups
from cerebro_plpy.store.models.model_versions import MANAGE, PREDICT, READ
from cerebro_plpy.store.packed.packed import FEATURES

_PRIVILEGES = (PREDICT, READ, MANAGE)


def grant(db: Database, name: str | None, role: str | None, privilege: str | None) -> None:
    """Grant a role a privilege on a model: predict, read or manage; it replaces an earlier privilege."""
    known = begin_change(db, name)
    if privilege is None:
        raise CerebroError("privilege is NULL", sqlstate=NULL_NOT_ALLOWED)
    if privilege not in _PRIVILEGES:
        raise unknown(f"there is no privilege {shorten(privilege, 60)!r} on models", privilege, _PRIVILEGES)
    oid = _find_role(db, role)
    if oid and not model_versions.may_use_cerebro(db, oid):
        _let_in(db, str(role))
    model_versions.grant(db, known, oid, privilege, session.current_user(db))


def _let_in(db: Database, role: str) -> None:
    if not model_versions.may_grant_usage(db):
        raise CerebroError(
            f'role "{role}" may not use cerebro yet',
            hint=f"A superuser can allow it: SELECT cerebro.grant_usage('{role}').",
            sqlstate=INSUFFICIENT_PRIVILEGE,
        )
    model_versions.grant_usage(db, role)


def set_owner(db: Database, name: str | None, role: str | None) -> None:
    """Make another role the owner of a model, under the same rules as for the owner of a table."""
    known, own = begin_change(db, name), session.current_user(db)
    if not model_versions.belongs_to(db, known, own):
        raise CerebroError(
            f"must be owner of the registered model {known}",
            hint="cerebro.models shows who owns it.",
            sqlstate=INSUFFICIENT_PRIVILEGE,
        )
    oid = _find_role(db, role)
    if not oid:
        raise CerebroError("public cannot own a model", hint="Name a role.")
    if not model_versions.may_become(db, oid):
        raise CerebroError(
            f'must be a member of role "{role}"',
            hint="Have a superuser give it, or be made a member of the role first.",
            sqlstate=INSUFFICIENT_PRIVILEGE,
        )
    if not model_versions.may_use_cerebro(db, oid):
        _let_in(db, str(role))
    model_versions.set_owner(db, known, oid)


def revoke(db: Database, name: str | None, role: str | None) -> None:
    """Revoke the privilege that a role has on a model."""
    known = begin_change(db, name)
    if not model_versions.revoke(db, known, _find_role(db, role)):
        db.notice(f'role "{role}" had not been granted {known}')


def _find_role(db: Database, role: str | None) -> int:
    if role is None:
        raise CerebroError("role is NULL", sqlstate=NULL_NOT_ALLOWED)
    oid = functions.find_role(db, role)
    if oid is None:
        raise CerebroError(f'role "{role}" does not exist', sqlstate=UNDEFINED_OBJECT)
    return oid


def find_readable(db: Database, model: str | None) -> RegisteredVersion:
    """Return the version that a reference means; raise an error if the caller may not read it."""
    if model is None:
        raise CerebroError("model is NULL", sqlstate=NULL_NOT_ALLOWED)
    holder = find_registered(db, model)
    if holder.found.privilege == PREDICT:
        raise model_versions.may_only_predict(holder.name)
    return holder


def read(db: Database, model: str | None) -> list[tuple[Any, ...]]:
    """Return a row with all that predicting needs: net, weights, parameters, features and classes.

    For models of groups, return such a row for each group.
    """
    holder = find_readable(db, model)
    held = holder.read(db)
    known = json.loads(held.about)
    about, features = _about(known), features_of(known["summary"])
    specification = None if features is None else json.dumps(known["summary"][FEATURES[0]])
    weights = model_versions.weights(db, holder.found.version_id)
    groups = registered_groups.read(known)
    if groups is None:
        net = held.model_arch, weights, held.compile_params, held.fit_params
        return [(holder.name, *net, json.dumps(about), specification)]
    own = {one.key: {**about, **groups.describe(one)} for one in groups.models}
    return [
        (
            holder.name,
            groups.configs[mst_key].model_arch,
            data,
            groups.configs[mst_key].compile_params,
            groups.configs[mst_key].fit_params,
            json.dumps(own[key]),
            specification,
        )
        for key, mst_key, data in groups.split(weights)
    ]


def _about(known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names of a version's inputs and labels, the labels' classes, and a normalizing constant."""
    summary, values = known["summary"], known["class_values"]
    return {
        "dependent_varname": summary["dependent_varname"],
        "independent_varname": summary.get("independent_varname"),
        "num_classes": summary.get("num_classes"),
        "normalizing_const": summary.get("normalizing_const"),
        "class_values": dict(zip(summary["dependent_varname"], values, strict=True)),
    }
