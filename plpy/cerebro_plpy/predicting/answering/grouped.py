"""Predicts with models of groups: the model of a row's group answers for the row."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.engine.checks.architecture import Shape
from cerebro_plpy.engine.models.inference import Inference, inference
from cerebro_plpy.engine.plain.forward import plain_net
from cerebro_plpy.engine.plain.layers import NotHere
from cerebro_plpy.errors import UNDEFINED_COLUMN, WRONG_STATE, CerebroError
from cerebro_plpy.features.rows import exact
from cerebro_plpy.predicting import models
from cerebro_plpy.predicting.answering.net import AnsweringNet
from cerebro_plpy.predicting.group_holders import GroupsHolder
from cerebro_plpy.predicting.models import Model
from cerebro_plpy.predicting.outputs import Output
from cerebro_plpy.store import session
from cerebro_plpy.store.models.group_models import ALL_ROWS, GroupModels
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed import packed
from cerebro_plpy.threads import Threads

# The most rows whose groups are kept once they have been looked up.
_KEPT_ROWS = 10_000
# The number of rows that are answered at a time.
BATCH = 4096
NetOfGroup = Callable[[list[np.ndarray]], Sequence[np.ndarray]]


def check_columns(found: GroupModels, known: Mapping[str, packed.SourceColumn], table: Table) -> None:
    """Raise an error if the table lacks a column that says which group a row belongs to."""
    for name in found.types:
        if name not in known:
            raise CerebroError(
                f'{table.quoted} has no column "{name}", which says what group a row is of',
                detail=f"The groups of {found.name} are those of {', '.join(found.types)}.",
                sqlstate=UNDEFINED_COLUMN,
            )


def normal_key(key: str) -> str:
    """Return the key of a group, given as JSON, in the form in which keys are compared."""
    return key if key == ALL_ROWS else normal(exact(key))


def normal(key: Mapping[str, Any]) -> str:
    """Return the key of a group as JSON in which all values are texts.

    A number thus gives the same key as a text column that holds this number.
    """
    return json.dumps(
        {
            name: value if value is None or isinstance(value, str) else json.dumps(value)
            for name, value in key.items()
        }
    )


class GroupKeys:
    """Finds, for the key of a row, the key of the group that has a model for the row."""

    def __init__(self, db: Database, found: GroupModels, keys: Container[str]) -> None:
        self._db, self._found, self._keys = db, found, keys
        # The key of the group for values that are written differently from it; None if no group has them.
        self._looked_up: dict[str, str | None] = {}

    def find(self, given: str) -> str:
        """Return the key of the group to which a row with the key `given` belongs, or ALL_ROWS.

        It is ALL_ROWS if no group that has a model has this key.

        Two keys that are written differently may be equal, such as 1.0 and 1.00. The server compares such
        keys.
        """
        if given in self._keys:
            return given
        if given not in self._looked_up:
            if len(self._looked_up) >= _KEPT_ROWS:
                self._looked_up.clear()
            with session.own_names(self._db):
                key = self._found.group_of(self._db, json.loads(given))
            self._looked_up[given] = None if key is None else normal_key(key)
        return self._looked_up[given] or ALL_ROWS


@dataclass(frozen=True)
class NetOfConfig:
    """The net of a config, which can load the weights of any of the config's groups."""

    db: Database
    model: Model
    shapes: tuple[tuple[int, ...], ...]
    # How results are read, if configs have different outputs.
    outputs: Sequence[Output] = ()

    def answer(self, weights: bytes, rows: int, tick: Callable[[], None]) -> NetOfGroup:
        """Return the net with these weights. Its results are those of `share_outputs`."""
        net = self._find_net(weights, rows, tick)
        if not self.outputs:
            return net
        return lambda inputs: [
            output.read(result) for output, result in zip(self.outputs, net(inputs), strict=True)
        ]

    def _find_net(self, weights: bytes, rows: int, tick: Callable[[], None]) -> NetOfGroup:
        plain = plain_net(self.model.model_arch, weights, self.shapes)

        def by_engine(inputs: list[np.ndarray]) -> Sequence[np.ndarray]:
            loaded, batch_rows = self._forward.load(weights), min(rows, self._forward.rows)
            return self._forward.predict_many(loaded, inputs, batch_rows, Threads(1, tick))

        if plain is None or not plain.is_light:
            return by_engine

        def by_numpy(inputs: list[np.ndarray]) -> Sequence[np.ndarray]:
            try:
                return plain(inputs)
            except NotHere:
                return by_engine(inputs)

        return by_numpy

    @cached_property
    def _forward(self) -> Inference:
        """The compiled net. Its registered functions are looked up once for all groups."""
        with session.own_names(self.db):
            return inference(models.describe_by_engine(self.db, self.model, self.shapes))


def share_outputs(
    each: Mapping[int, Sequence[Output]],
) -> tuple[Sequence[Output], Mapping[int, Sequence[Output]]]:
    """Return the outputs of the nets of all configs, and how to read the results of each config's nets.

    `each` has the outputs of each config. Where they differ, one config may answer with logits and another
    with a probability, so the results of all are read as probabilities. Else the second value is empty.
    """
    first = next(iter(each.values()))
    if all(outputs == first for outputs in each.values()):
        return first, {}
    return [output.as_read for output in first], each


class Answers:
    """The nets of all groups. Each net is made when the first row of its group needs it."""

    def __init__(self, db: Database, found: GroupsHolder) -> None:
        self._db = db
        self._weights = weights(db, found)
        self.models = models_of(db, found, {key for key, _ in self._weights.values()})
        # The shapes of the inputs, which architectures may leave open.
        self.shapes: tuple[tuple[int, ...], ...] = ()
        # The shapes that the nets take for a row, once outputs are settled.
        self.inputs: Sequence[Shape] = ()
        self._made: dict[str, NetOfGroup] = {}
        self._outputs: Mapping[int, Sequence[Output]] = {}
        self._configs: dict[int, NetOfConfig] = {}
        # The keys of groups that have a model, by the form in which keys are compared.
        self._own = {} if found.models.held is None else {normal_key(key): key for key in self._weights}
        self._keys = GroupKeys(db, found.models, self._own) if self._own else None

    @property
    def any_model(self) -> Model:
        """The model of any one of the groups. The models of all groups have the same inputs."""
        return next(iter(self.models.values()))

    def settle_outputs(self, shapes: Sequence[Sequence[int]]) -> Sequence[Output]:
        """Return the outputs that `answer_rows` gives for inputs of these shapes."""
        self.shapes = tuple(tuple(shape) for shape in shapes)
        nets = {key: AnsweringNet(self._db, model, shapes) for key, model in self.models.items()}
        self.inputs = next(iter(nets.values())).described.inputs
        return self.share({key: model.outputs(nets[key].described) for key, model in self.models.items()})

    def share(self, each: Mapping[int, Sequence[Output]]) -> Sequence[Output]:
        """Return the outputs that `answer_rows` gives, if the configs have the outputs `each`."""
        shared, self._outputs = share_outputs(each)
        return shared

    @property
    def weights(self) -> Mapping[str, bytes]:
        """The weights of each group's model, by the key of the group.

        The model of all rows has the key ALL_ROWS.
        """
        return {key: data for key, (_, data) in self._weights.items()}

    def find_own(self, given: str | None) -> str | None:
        """Return the key in `weights` of the group of a row with the key `given`.

        Return None if the row has no key or its group has no model.
        """
        if not given:
            return None
        if self._keys is None:
            return given if given in self._weights else None
        return self._own.get(self._keys.find(normal_key(given))) or None

    def has_model(self, given: str | None) -> bool:
        """Return whether a model answers for a row with this key.

        It is the model of the row's group, or else the model of all rows.
        """
        return ALL_ROWS in self._weights or self.find_own(given) is not None

    def answer_rows(
        self, inputs: Sequence[np.ndarray], given: Sequence[str | None], width: int, tick: Callable[[], None]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the output for each row, and whether the row has an answer.

        The model of a row's group answers, or else the model of all rows. A row without either has no answer.
        `given` has the key of each row's group, and `width` is the number of outputs for a row.
        """
        results = np.zeros((len(given), width), np.float32)
        answered = np.zeros(len(given), bool)
        known = [self.find_own(key) or ALL_ROWS for key in given]
        order = np.argsort(np.array(known, object), kind="stable")
        for key, place in stretches([known[number] for number in order]):
            net = self._find_net(key or ALL_ROWS, tick)
            if net is not None:
                own = order[place]
                results[own] = net([array[own] for array in inputs])[0].reshape(len(own), -1)
                answered[own] = True
            tick()
        return results, answered

    def _find_net(self, key: str, tick: Callable[[], None]) -> NetOfGroup | None:
        """Return the net of a group, or else the net of all rows; None if there is neither."""
        if key not in self._weights:
            key = ALL_ROWS
        if key not in self._weights:
            return None
        if key not in self._made:
            mst_key, data = self._weights[key]
            self._made[key] = self._find_config(mst_key).answer(data, BATCH, tick)
        return self._made[key]

    def _find_config(self, mst_key: int) -> NetOfConfig:
        if mst_key not in self._configs:
            outputs = self._outputs.get(mst_key, ())
            self._configs[mst_key] = NetOfConfig(self._db, self.models[mst_key], self.shapes, outputs)
        return self._configs[mst_key]


def models_of(db: Database, found: GroupsHolder, keys: Collection[int]) -> dict[int, Model]:
    """Return a model for each config with one of these `keys` (`mst_key`), by key.

    It has the weights of any one of the config's groups. For a row, those of the row's group are loaded.
    """
    return {key: models.trained(db, found.any_group(db, key)) for key in sorted(keys)}


def weights(db: Database, found: GroupsHolder) -> dict[str, tuple[int, bytes]]:
    """Return the config (`mst_key`) and the weights of each group's model, by the key of the group."""
    kept: dict[str, tuple[int, bytes]] = {}
    for key, mst_key, data in found.weights(db):
        if data is None:
            raise CerebroError(f"{found.models.name} has no weights for group {key}", sqlstate=WRONG_STATE)
        kept[key] = mst_key, data
    if not kept:
        key = found.models.mst_key
        which = "no group" if key is None else f"no group of config {key}"
        raise CerebroError(f"{found.models.name} has a model for {which}", sqlstate=WRONG_STATE)
    return kept


def stretches(keys: Sequence[str | None]) -> Iterator[tuple[str | None, slice]]:
    """Yield the key of each group in a batch, and the slice of the group's rows.

    The batch must hold the rows of each group one after the other.
    """
    first = 0
    for key, rows in groupby(keys):
        last = first + sum(1 for _ in rows)
        yield key, slice(first, last)
        first = last
