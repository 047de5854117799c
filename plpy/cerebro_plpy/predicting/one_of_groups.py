"""Models of groups made ready to answer for one row at a time: each by the model of its group."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, UNDEFINED_COLUMN, CerebroError
from cerebro_plpy.predicting import grouped, models
from cerebro_plpy.predicting import ready as readiness
from cerebro_plpy.predicting.ready import Kept
from cerebro_plpy.store import group_models
from cerebro_plpy.store.group_models import ALL_ROWS, GroupModels

_FRACTIONS = ("numeric", "real", "double precision")


@dataclass
class KeptGroups:
    """The models of all groups; each is made ready when the first row of its group comes."""

    db: Database
    found: GroupModels
    version: str
    # By the group's key: the config and the weights.
    weights: Mapping[str, tuple[int, bytes]]
    nets: Mapping[int, models.Model]
    by_engine: bool
    parse: Callable[[str], Any]
    made: dict[str, Kept] = field(default_factory=dict)
    # Digests of the registered layers that the nets consist of.
    functions: tuple[str, ...] = ()
    looked: tuple[int, int, int] | None = None

    @classmethod
    def read(cls, db: Database, found: GroupModels, *, by_engine: bool) -> KeptGroups:
        version = group_models.version(db, found)
        # Numbers in keys are compared as they are written.
        exact = any(kind.startswith(_FRACTIONS) for kind in found.types.values())
        parse = json.JSONDecoder(parse_float=str).decode if exact else json.loads
        weights = {
            key if key == ALL_ROWS else _normal(parse(key)): kept
            for key, kept in grouped.weights(db, found).items()
        }
        nets = grouped.models_of(db, found, {key for key, _ in weights.values()})
        kept = cls(db, found, version, weights, nets, by_engine=by_engine, parse=parse)
        # What is wrong with the nets is said for any row.
        first = {mst_key: key for key, (mst_key, _) in weights.items()}
        kept.functions = tuple(name for key in first.values() for name in kept._of(key).functions)
        return kept

    @property
    def nbytes(self) -> int:
        return sum(len(data) for _, data in self.weights.values())

    def is_unchanged(self, db: Database) -> bool:
        return group_models.version(db, self.found) == self.version

    def of_row(self, row: Mapping[str, Any]) -> Kept | None:
        """The model of a row's group; where the group has none that of all rows, if there is one."""
        try:
            key = _normal({name: row[name] for name in self.found.types})
        except KeyError as missing:
            raise CerebroError(
                f"the row has no column {json.dumps(missing.args[0])}, which says what group it is of",
                detail=f"The groups of {self.found.model.quoted} are those of {', '.join(self.found.types)}.",
                sqlstate=UNDEFINED_COLUMN,
            ) from None
        if key not in self.weights:
            key = ALL_ROWS
        return self._of(key) if key in self.weights else None

    def _of(self, key: str) -> Kept:
        if key not in self.made:
            mst_key, data = self.weights[key]
            model = replace(self.nets[mst_key], weights=lambda: data)
            name = self.found.model.quoted
            self.made[key] = readiness.make(self.db, name, model, None, by_engine=self.by_engine)
        return self.made[key]

    def needs_rows(self) -> CerebroError:
        return CerebroError(
            f"{self.found.model.quoted} holds models of groups, and an array says no group",
            hint="Give it the row: FROM sales s, cerebro.predict('models', s).",
            sqlstate=NOT_SUPPORTED,
        )


def _normal(key: Mapping[str, Any]) -> str:
    """A number in a column of text is the same group, as in a table that is predicted."""
    return json.dumps(
        {
            name: value if value is None or isinstance(value, str) else json.dumps(value)
            for name, value in key.items()
        }
    )
