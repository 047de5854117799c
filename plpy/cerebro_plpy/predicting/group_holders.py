"""Holders of models of groups: result tables of runs, and versions of registered models.

Code that predicts need not know which of the two it uses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from cerebro_plpy.database import Database
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.logical.metrics import direction
from cerebro_plpy.madlib.params import reparse_compile
from cerebro_plpy.predicting import trained
from cerebro_plpy.predicting.holders import (
    ModelHolder,
    ModelMark,
    RegisteredVersion,
    ResultTable,
    TrainedModel,
    VersionMark,
)
from cerebro_plpy.store.models import group_models, model_versions, models, registered_groups
from cerebro_plpy.store.models.group_models import GroupModels, GroupTables, WeightsOfGroup
from cerebro_plpy.store.models.registered_groups import RegisteredGroups
from cerebro_plpy.store.names import quote, resolve_table
from cerebro_plpy.store.packed import groups
from cerebro_plpy.store.runs import results


class GroupsHolder(Protocol):
    """A result table or a registered version that holds models of groups, and facts on the training rows."""

    @property
    def models(self) -> GroupModels: ...

    @property
    def holder(self) -> ModelHolder: ...

    def weights(self, db: Database) -> Iterator[WeightsOfGroup]:
        """Yield the weights of each group's model."""
        ...

    def any_group(self, db: Database, mst_key: int) -> TrainedModel:
        """Return the model of a config, with the weights of one of its groups."""
        ...

    def mark(self, db: Database) -> ModelMark:
        """Return a mark by which a later call sees whether the models have changed."""
        ...


@dataclass(frozen=True)
class GroupsMark:
    """A mark of tables with models of groups.

    It shows whether the tables have changed since they were read.
    """

    tables: GroupTables
    version: str

    def is_unchanged(self, db: Database) -> bool:
        return group_models.version(db, self.tables) == self.version


@dataclass(frozen=True)
class TableOfGroups:
    """A table of models of groups with its summary, read with the caller's rights."""

    tables: GroupTables
    models: GroupModels

    @property
    def holder(self) -> ResultTable:
        return ResultTable(self.tables.model)

    def weights(self, db: Database) -> Iterator[WeightsOfGroup]:
        return self.tables.weights(db, self.models)

    def any_group(self, db: Database, mst_key: int) -> TrainedModel:
        table, info = self.tables.model, self.tables.info
        summary = resolve_table(db, quote(table.schema, table.name + "_summary"))
        return trained.one_of_many(db, table, info, results.summary_row(db, summary.quoted), mst_key)

    def mark(self, db: Database) -> ModelMark:
        return GroupsMark(self.tables, group_models.version(db, self.tables))


@dataclass(frozen=True)
class VersionOfGroups:
    """A version of a registered model that holds models of groups."""

    holder: RegisteredVersion
    groups: RegisteredGroups
    models: GroupModels

    def weights(self, db: Database) -> Iterator[WeightsOfGroup]:
        return self.groups.split(model_versions.weights(db, self.holder.found.version_id))

    def any_group(self, db: Database, mst_key: int) -> TrainedModel:
        config = self.groups.configs[mst_key]
        return TrainedModel(
            holder=self.holder,
            mst_key=mst_key,
            selected=models.Selected(mst_key, config.model_id, config.compile_params, config.fit_params),
            stored=results.Stored(config.model_arch, has_weights=True),
            run_id=None,
            backend=config.backend,
        )

    def mark(self, db: Database) -> ModelMark:
        return VersionMark()


def find_groups(
    db: Database, name: str | None, mst_key: int | None
) -> TableOfGroups | VersionOfGroups | None:
    """Return the holder of the models of groups that a reference means.

    Return None if the reference means a model of another kind.
    """
    holder = trained.resolve(db, name)
    if isinstance(holder, RegisteredVersion):
        return _of_version(db, holder, mst_key)
    found = trained.group_tables(db, holder.table)
    if found is None:
        return None
    table, info, columns = found
    types = groups.types_of(db, table.quoted)
    higher = [
        quoted
        for text, quoted in group_models.compiled(db, info)
        if direction(reparse_compile(text)) == "max"
    ]
    tables = GroupTables(table, info, {column: types[column] for column in columns})
    return TableOfGroups(tables, tables.choose(mst_key, higher))


def _of_version(db: Database, holder: RegisteredVersion, mst_key: int | None) -> VersionOfGroups | None:
    held = registered_groups.read(json.loads(holder.read(db).about))
    if held is None:
        return None
    if mst_key is not None:
        raise CerebroError(
            f"mst_key {mst_key} was given, but {holder.name} has one model for each group",
            hint="Leave mst_key out. cerebro.register takes it, to keep one config for all groups.",
        )
    return VersionOfGroups(holder, held, held.choose(holder.name))
