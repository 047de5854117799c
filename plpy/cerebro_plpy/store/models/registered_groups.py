"""SQL on versions of registered models that hold a model for each group: their descriptions and their
weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.store.models import model_versions
from cerebro_plpy.store.models.group_models import ALL_ROWS, GroupModels
from cerebro_plpy.store.names import Table, quote
from cerebro_plpy.store.packed.groups import FALLBACK, KEY_TEXT
from cerebro_plpy.store.user_code import FIRST_OF_USERS

# The key of the models of groups in a version's description (`about`).
GROUPS = "groups"


@dataclass(frozen=True)
class GroupColumn:
    """The type of a column that makes groups, in two forms: as users see it, and in full, which is valid in
    any search_path."""

    shown: str
    in_full: str


@dataclass(frozen=True)
class ConfigOfGroups:
    """A config whose models answer for some of the groups."""

    model_id: int
    model_arch: str
    compile_params: str
    fit_params: str
    backend: str | None


@dataclass(frozen=True)
class ModelOfGroup:
    """The model of a group: the group's key, the config, the size of its weights, and its measurements."""

    key: str
    mst_key: int
    size: int
    metrics: Mapping[str, Any]


@dataclass(frozen=True)
class RegisteredGroups:
    """The models of groups that a version of a registered model holds; their weights are stored one after the
    other."""

    columns: Mapping[str, GroupColumn]
    configs: Mapping[int, ConfigOfGroups]
    models: Sequence[ModelOfGroup]

    def as_json(self) -> Mapping[str, Any]:
        """Return the JSON document from which `read` makes an equal object."""
        return {
            "columns": {name: asdict(one) for name, one in self.columns.items()},
            "configs": {str(key): asdict(one) for key, one in self.configs.items()},
            "models": [asdict(one) for one in self.models],
        }

    def choose(self, name: str) -> GroupModels:
        """Return the queries that say which config answers for each group of this version."""
        names = ", ".join(f"r.{quote(column)}" for column in self.columns)
        typed = ", ".join(f"{quote(column)} {one.in_full}" for column, one in self.columns.items())
        held = (
            f"pg_catalog.json_to_recordset($1::pg_catalog.json) AS r ({typed},"
            f" {FALLBACK} pg_catalog.bool, mst_key pg_catalog.int4, {KEY_TEXT} pg_catalog.text)"
        )
        return GroupModels(
            name,
            {column: one.shown for column, one in self.columns.items()},
            f"SELECT {names}, r.{FALLBACK}, r.mst_key, r.{KEY_TEXT} FROM {held}",
            f"SELECT {names} FROM {held} WHERE NOT r.{FALLBACK}",
            held="[" + ", ".join(map(_row, self.models)) + "]",
        )

    def describe(self, one: ModelOfGroup) -> dict[str, Any]:
        """Return a group's columns with their types and values, its config, and the metrics of its model."""
        return {
            "group_by": {name: column.shown for name, column in self.columns.items()},
            # None for the model of all rows. Numbers with a fraction are text, so that none is rounded.
            "group": None if one.key == ALL_ROWS else json.loads(one.key, parse_float=str),
            "mst_key": one.mst_key,
            "metrics": one.metrics,
        }

    def split(self, weights: bytes) -> Iterator[tuple[str, int, bytes]]:
        """Yield the key, the config and the weights of each group's model, cut from the weights of the
        version."""
        first = 0
        for one in self.models:
            yield one.key, one.mst_key, weights[first : first + one.size]
            first += one.size


def _row(one: ModelOfGroup) -> str:
    """Return a JSON object of a group's key and the config that answers for it; the key's values are copied
    as text, so that no number is rounded."""
    is_all = one.key == ALL_ROWS
    also = json.dumps({FALLBACK: is_all, "mst_key": one.mst_key, KEY_TEXT: one.key})
    return also if is_all else f"{one.key.rstrip()[:-1]}, {also[1:]}"


def read(about: Mapping[str, Any]) -> RegisteredGroups | None:
    """Return the models of groups in a version's description; None if the version holds a single model."""
    found = about.get(GROUPS)
    if found is None:
        return None
    return RegisteredGroups(
        {name: GroupColumn(**one) for name, one in found["columns"].items()},
        {int(key): ConfigOfGroups(**one) for key, one in found["configs"].items()},
        [ModelOfGroup(**one) for one in found["models"]],
    )


def weights_by_key(db: Database, version_id: int) -> dict[str, bytes]:
    """Return the weights of a version's models by the groups' keys. No rights are checked: the calling
    function must have found that the user may read the version."""
    held = read(json.loads(model_versions.read(db, version_id).about))
    parts = () if held is None else held.split(model_versions.weights(db, version_id))
    return {key: data for key, _, data in parts}


def types_of_users(db: Database, table: Table, columns: Sequence[str]) -> list[str]:
    """Return the given columns of a table whose types are not built into the server."""
    rows = db.query(
        "SELECT a.attname::text AS name FROM pg_attribute AS a WHERE a.attrelid = $1::oid"
        f" AND a.attname = ANY ($2) AND a.atttypid >= {FIRST_OF_USERS} ORDER BY a.attnum",
        ["oid", "text[]"],
        [table.oid, list(columns)],
    )
    return [row["name"] for row in rows]
