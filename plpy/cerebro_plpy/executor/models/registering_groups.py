"""cerebro.register on models of groups: one version holds the models of all groups."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.executor.models import lineage
from cerebro_plpy.predicting.answering import grouped
from cerebro_plpy.predicting.examining import profiles
from cerebro_plpy.predicting.group_holders import TableOfGroups, VersionOfGroups
from cerebro_plpy.store.models import group_models, model_versions, predictions, registered_groups
from cerebro_plpy.store.models.model_versions import PREDICT
from cerebro_plpy.store.models.registered_groups import (
    GROUPS,
    ConfigOfGroups,
    GroupColumn,
    ModelOfGroup,
    RegisteredGroups,
)


def describe_version(db: Database, found: TableOfGroups | VersionOfGroups) -> tuple[dict[str, Any], bytes]:
    """Return the row that stores a version with models of groups, and separately all their weights."""
    if isinstance(found, VersionOfGroups):
        return _copy(db, found)
    _check_types(db, found)
    weights = grouped.weights(db, found)
    held = _describe(db, found, weights)
    summary = found.holder.summary(db)
    measured = [one.metrics for one in held.models]
    origin = {
        "metrics": {what: _mean(what, measured) for what in lineage.TABLES if _select_tables(what, measured)},
        "lineage": lineage.describe_origin(db, found.holder.name, summary, found.models.mst_key),
    }
    known = profiles.find_profile(db, found)
    about = {
        **lineage.describe_rows(db, found.holder, summary),
        GROUPS: held.as_json(),
        "profile": None if known is None else known.as_json(),
    }
    data = b"".join(weights[one.key][1] for one in held.models)
    return {**_parameters(held), "about": json.dumps(about), **origin}, data


def _copy(db: Database, found: VersionOfGroups) -> tuple[dict[str, Any], bytes]:
    if found.holder.found.privilege == PREDICT:
        raise model_versions.may_only_predict(found.holder.name)
    about, origin = found.holder.read(db).about, lineage.describe_copy(db, found.holder)
    weights = model_versions.weights(db, found.holder.found.version_id)
    return {**_parameters(found.groups), "about": about, **origin}, weights


def _check_types(db: Database, found: TableOfGroups) -> None:
    """Raise an error if group columns have types that users have made.

    A version outlives its tables, and such types can be changed or dropped.
    """
    table = found.tables.model
    strange = registered_groups.types_of_users(db, table, list(found.models.types))
    if strange:
        raise CerebroError(
            f"{table.quoted} cannot be registered: the type of {', '.join(strange)} is not the server's own",
            detail="A version outlives its tables, and a type that users made can be changed or dropped.",
            hint="Cast the column to text in a view, and pack that.",
            sqlstate=NOT_SUPPORTED,
        )


def _describe(
    db: Database, found: TableOfGroups, weights: Mapping[str, tuple[int, bytes]]
) -> RegisteredGroups:
    in_full = predictions.types_in_full(db, found.tables.model)
    summary, rows = found.holder.summary(db), group_models.measured(db, found.tables, found.models)
    nets = {key: found.any_group(db, key) for key in sorted({key for key, _ in weights.values()})}
    return RegisteredGroups(
        {name: GroupColumn(kind, in_full[name]) for name, kind in found.models.types.items()},
        {
            key: ConfigOfGroups(
                one.selected.model_id,
                one.stored.model_arch,
                one.selected.compile_params,
                one.selected.fit_params,
                one.backend,
            )
            for key, one in nets.items()
        },
        [
            ModelOfGroup(key, mst_key, len(data), lineage.describe_measured(rows[key], summary))
            for key, (mst_key, data) in sorted(weights.items(), key=lambda one: _order(one[0]))
        ],
    )


def _order(key: str) -> str:
    """Return a group's key in one spelling, by which groups are sorted.

    So versions with equal models have equal digests, however their tables order and spell the groups.
    """
    return (
        key if key == group_models.ALL_ROWS else json.dumps(json.loads(key, parse_float=str), sort_keys=True)
    )


def _parameters(held: RegisteredGroups) -> dict[str, Any]:
    """Return the parameters of the config that most groups use; views show them for the whole version."""
    ((most, _),) = Counter(one.mst_key for one in held.models).most_common(1)
    return {key: value for key, value in asdict(held.configs[most]).items() if key != "model_id"}


def _select_tables(what: str, measured: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [one[what] for one in measured if what in one]


def _mean(what: str, measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean of the groups' metrics on one kind of rows: "training" or "validation"."""
    own = _select_tables(what, measured)
    values = [one["value"] for one in own if one["value"] is not None]
    return {
        "rows": own[0]["rows"],
        "loss": math.fsum(one["loss"] for one in own) / len(own),
        "metric": own[0]["metric"],
        "value": math.fsum(values) / len(values) if values else None,
        "groups": len(own),
    }
