"""Makes models of groups ready to answer for one row at a time."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, UNDEFINED_COLUMN, CerebroError
from cerebro_plpy.features.rows import RowEncoder, exact, parse
from cerebro_plpy.predicting import models
from cerebro_plpy.predicting.answering import grouped
from cerebro_plpy.predicting.answering import ready as readiness
from cerebro_plpy.predicting.answering.ready import Kept
from cerebro_plpy.predicting.group_holders import GroupsHolder
from cerebro_plpy.predicting.holders import ModelMark
from cerebro_plpy.store import session
from cerebro_plpy.store.models.group_models import GroupModels


@dataclass
class KeptGroups:
    """The models of all groups. Each model is made ready when the first row of its group comes."""

    db: Database
    found: GroupModels
    version: ModelMark
    # The config and the weights of each group, by its key.
    weights: Mapping[str, tuple[int, bytes]]
    nets: Mapping[int, models.Model]
    by_engine: bool
    made: dict[str, Kept] = field(default_factory=dict)
    text: str = ""
    # Digests of the registered layers that the nets consist of.
    functions: tuple[str, ...] = ()
    looked: session.Moment | None = None

    @functools.cached_property
    def keys(self) -> grouped.GroupKeys:
        return grouped.GroupKeys(self.db, self.found, self.weights)

    @functools.cached_property
    def encoder(self) -> RowEncoder | None:
        """The encoder of rows for the models of all groups, which have one feature specification, or none."""
        known = next(iter(self.nets.values())).features
        return None if known is None else RowEncoder(known)

    @classmethod
    def read(cls, db: Database, found: GroupsHolder, *, by_engine: bool) -> KeptGroups:
        version = found.mark(db)
        weights = {grouped.normal_key(key): kept for key, kept in grouped.weights(db, found).items()}
        nets = grouped.models_of(db, found, {key for key, _ in weights.values()})
        kept = cls(db, found.models, version, weights, nets, by_engine=by_engine)
        # One net of each config is made ready now, so that an error in it is raised for any row.
        first = {mst_key: key for key, (mst_key, _) in weights.items()}
        kept.functions = tuple(name for key in first.values() for name in kept._keep(key).functions)
        return kept

    @property
    def nbytes(self) -> int:
        return sum(len(data) for _, data in self.weights.values())

    def is_unchanged(self, db: Database) -> bool:
        return self.version.is_unchanged(db)

    def parse(self, row: str) -> Any:
        """Return the value of a row given as JSON; keep the text, from which `of_row` reads exact numbers."""
        self.text = row
        rows = next(iter(self.made.values())).rows
        return parse(row) if rows is None else rows.parse(row)

    def of_row(self, row: Mapping[str, Any]) -> Kept | None:
        """Return the model of a row's group, or else the model of all rows; None if there is neither."""
        try:
            values = {name: row[name] for name in self.found.types}
        except KeyError as missing:
            raise CerebroError(
                f"the row has no column {json.dumps(missing.args[0])}, which says what group it is of",
                detail=f"The groups of {self.found.name} are those of {', '.join(self.found.types)}.",
                sqlstate=UNDEFINED_COLUMN,
            ) from None
        if any(type(value) is float for value in values.values()):
            # Numbers in keys are compared as they are written.
            given = parse(self.text, exact)
            values = {name: given[name] for name in values}
        key = self.keys.find(grouped.normal(values))
        return self._keep(key) if key in self.weights else None

    def _keep(self, key: str) -> Kept:
        if key not in self.made:
            mst_key, data = self.weights[key]
            model = replace(self.nets[mst_key], weights=lambda: data)
            self.made[key] = readiness.make(
                self.db, self.found.name, model, None, by_engine=self.by_engine, encoder=self.encoder
            )
        return self.made[key]

    def needs_rows(self) -> CerebroError:
        return CerebroError(
            f"{self.found.name} holds models of groups, and an array says no group",
            hint="Give it the row: FROM sales s, cerebro.predict('models', s).",
            sqlstate=NOT_SUPPORTED,
        )
