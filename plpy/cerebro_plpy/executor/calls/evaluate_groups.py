"""madlib_evaluate for models of groups: measure each model on the rows of its own group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from cerebro_plpy.commands import WeightsOfGroups
from cerebro_plpy.database import Database
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.executor.starting import groups
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.predicting.group_holders import GroupsHolder
from cerebro_plpy.predicting.holders import RegisteredVersion, TrainedModel
from cerebro_plpy.store.models import group_models
from cerebro_plpy.store.models.group_models import ALL_ROWS, GroupModels
from cerebro_plpy.store.packed.groups import FALLBACK, KEY_TEXT, UNIT, GroupRow, Groups


@dataclass(frozen=True)
class Answering:
    """A group of rows, the model that answers for this group, and the config that the run evaluates."""

    group: GroupRow
    model: TrainedModel
    config: requests.Chosen
    # Whether the model of all rows answers, since the group has no model.
    is_fallback: bool
    # The group's key as the models have it.
    key: str

    @property
    def columns(self) -> Mapping[str, Any]:
        """The first columns of the group's output row: group columns, fallback flag, and config key."""
        return {**self.group.values, FALLBACK: self.is_fallback, "mst_key": self.config.key}


@dataclass(frozen=True)
class AnsweringModels:
    """The groups of a packed table that have a model, with these models."""

    groups: Groups
    by_config: Mapping[int, Answering]
    models: Sequence[TrainedModel]

    def weights(self, db: Database, found: GroupsHolder) -> Iterator[WeightsOfGroups]:
        """Yield for each model where its weights are, and the configs that are evaluated with them."""
        held = found.holder
        version_id = held.found.version_id if isinstance(held, RegisteredVersion) else None
        for model in self.models:
            yield WeightsOfGroups(
                model_id=model.selected.model_id,
                table=held.weights_table(db).quoted,
                types=found.models.types,
                rows=[
                    group_models.row_of(
                        found.models.types, number, one.config.key, None if one.is_fallback else one.group
                    )
                    if version_id is None
                    else {UNIT: number, KEY_TEXT: one.key}
                    for number, one in self.by_config.items()
                    if one.model is model
                ],
                version_id=version_id,
            )


def find_models(db: Database, found: GroupsHolder, source: requests.Data) -> AnsweringModels:
    """Return the model that answers for each group of the packed rows.

    Groups without a model are left out. Raise an error if the rows are packed in other groups than the
    models, or if no group has a model.
    """
    known = found.models
    rows = read_groups(db, known, source)
    configs_of = known.configs(db)
    here = group_models.keys_here(db, rows, configs_of)
    keys = {here.get(key, key): config for key, config in configs_of.items()}
    theirs = {here.get(key, key): key for key in configs_of}
    models = {key: found.any_group(db, key) for key in sorted({*keys.values()})}
    configs = requests.choose([model.selected for model in models.values()])
    chosen = dict(zip(models, configs, strict=True))
    numbers = count(max(models, default=0) + 1)
    answering: dict[int, Answering] = {}
    for group in rows.rows.values():
        key = keys.get(group.key, keys.get(ALL_ROWS))
        if key is not None:
            number = next(numbers)
            config = requests.of_group(chosen[key], number, group.number)
            own = theirs.get(group.key, ALL_ROWS)
            answering[number] = Answering(group, models[key], config, group.key not in keys, own)
    _tell(db, known, len(rows.rows), len(answering))
    return AnsweringModels(rows, answering, list(models.values()))


def read_groups(db: Database, known: GroupModels, source: requests.Data) -> Groups:
    """Return the groups of packed rows; raise an error unless the group columns are those of the models."""
    rows = groups.read_groups(db, source)
    if rows is None or rows.types.keys() != known.types.keys():
        raise CerebroError(
            f"{source.table.quoted} was not packed in the groups of {known.name}, those of"
            f" {', '.join(known.types)}",
            hint="Pack it with cerebro.validation_preprocessor_dl and the table of the training rows.",
        )
    return rows


def _tell(db: Database, found: GroupModels, groups: int, answered: int) -> None:
    if not answered:
        raise CerebroError(
            f"{found.name} has no model for any of the {groups} groups of the rows",
            sqlstate=WRONG_STATE,
        )
    if answered < groups:
        db.notice(f"{groups - answered} of {groups} groups have no model and are left out")
