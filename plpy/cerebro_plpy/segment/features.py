"""Features: what the trunk of a net makes of a partition's rows, computed once and kept beside them.

The run says where nets are cut (`planner/cuts.py`). The rows that fill no batch are computed anew in each
pass, as many as the whole net would see at once: the last bits of a row's output may depend on that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cerebro_plpy import memory
from cerebro_plpy.engine.backends.interfaces import Tick
from cerebro_plpy.engine.models import cut as cuts
from cerebro_plpy.engine.models.data import Block, ClassWeights, Dataset, Target
from cerebro_plpy.engine.state import State
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.madlib.params import CompileParams
from cerebro_plpy.segment import rows
from cerebro_plpy.store.runs import runs

if TYPE_CHECKING:
    from cerebro_plpy.segment.visits import Task


class Ordered(Protocol):
    """Rows that can be given in the order of a pass."""

    def shuffled(self, seed: int, epoch: int, number: int) -> Iterator[Block]: ...

    def in_order(self, epoch: int = 1) -> Iterator[Block]: ...


class Trainer(Protocol):
    """A net, or the head of one, which trains whole states."""

    def train(
        self,
        state: State,
        passes: Iterable[Iterable[Block]],
        batch_size: int,
        class_weight: ClassWeights,
        tick: Tick,
        rows: int | None = None,
        params: CompileParams | None = None,
    ) -> tuple[State, dict[str, float]]: ...

    def evaluate(
        self, state: State, blocks: Iterable[Block], batch_size: int, tick: Tick
    ) -> list[np.ndarray]: ...


@dataclass(frozen=True)
class FeatureRows:
    """Some rows of a partition in the form of a trunk's outputs, in batches of one size."""

    trunk: cuts.Trunk
    values: Sequence[np.ndarray]
    features: Dataset
    own: rows.PartitionRows
    batch_size: int

    def shuffled(self, seed: int, epoch: int, number: int) -> Iterator[Block]:
        return self._blocks(self.own.shuffled_places(seed, epoch, number))

    def in_order(self, epoch: int = 1) -> Iterator[Block]:
        return self._blocks(self.own.places_in_order(epoch))

    def _blocks(self, order: np.ndarray) -> Iterator[Block]:
        full = len(order) - len(order) % self.batch_size
        yield Block(self.features, order[:full])
        if full < len(order):
            rest = self.own.partition.take(order[full:])
            outputs = next(self.trunk.outputs(self.values, [rest.inputs]))
            yield Block(Dataset(outputs, rest.targets), np.arange(rest.rows))


def trainer(work: Task, state: State, own: rows.PartitionRows, tick: Tick) -> tuple[Trainer, Ordered]:
    """Return what trains a state on some rows, and the rows in the form that it takes.

    It is the net itself where the run says so, where there are too few rows for a batch, or where a head
    would have other bits; else a cut and the outputs of its trunk.
    """
    limits = runs.limits(work.run)
    stored = (limits.get("stored") or {}).get(own.partition.table)
    if stored is not None:
        return _cut_of_stored(work, state, own.partition.table, stored), own
    candidates = () if work.thawed else (limits.get("cuts") or {}).get(str(work.config.model_id), ())
    size, partition = work.fit.batch_size, own.partition
    if not candidates or own.rows < size:
        return work.model, own

    def few(most: int) -> Dataset:
        return partition.take(np.arange(min(most, partition.rows // size * size)))

    for candidate in candidates:
        cut = cuts.find_cut(work.model, work.compile, candidate["names"])
        if cut is not None and cut.gives_the_same(state, work.compile, size, few, tick):
            # The budget is for all segments; this session has a share for each segment whose rows it keeps.
            here = len({place[2] for place in memory.get_instance(rows.Partitions)})
            budget = limits["budget_mb"] * 2**20 * here // work.run.segments
            found = _features(cut.trunk, state, partition, batch_size=size, budget=budget, tick=tick)
            return cut, FeatureRows(cut.trunk, cut.trunk.of_state(state), found, own, size)
    return work.model, own


def _cut_of_stored(work: Task, state: State, table: str, stored: Mapping[str, Any]) -> cuts.Cut:
    cut = cuts.find_cut(work.model, work.compile, stored["layers"])
    if cut is None or not cut.fits or cut.trunk.digest_of(state) != stored["digest"]:
        raise other_weights(table, stored["layer"])
    return cut


def other_weights(table: str, layer: str) -> CerebroError:
    """Return the error for features made with a net whose frozen layers have changed since."""
    return CerebroError(
        f'the features in {table} are not those of this net: its layers up to "{layer}" have other weights or'
        " another form than those that made them",
        hint="Make the table of features again with cerebro.materialize_features.",
        sqlstate=WRONG_STATE,
    )


def _features(
    trunk: cuts.Trunk, state: State, partition: rows.Partition, batch_size: int, budget: int, tick: Tick
) -> Dataset:
    key = (trunk.digest_of(state), batch_size)
    if key not in partition.features:
        numbers = sum(math.prod(d or 1 for d in shape) for shape in trunk.shapes)
        _make_room(4 * numbers * partition.rows, budget)
        targets: list[list[Target]] = []
        blocks = _noting(partition.choose_rows(rows.Subset()).in_order(), targets)
        found = trunk.features(trunk.of_state(state), blocks, partition.rows, batch_size, tick)
        partition.features[key] = Dataset(found, _joined(targets))
    return partition.features[key]


def _noting(blocks: Iterable[Block], targets: list[list[Target]]) -> Iterator[Block]:
    for block in blocks:
        targets.append(block.dataset.targets)
        yield block


def _joined(parts: list[list[Target]]) -> list[Target]:
    if len(parts) == 1:
        return parts[0]
    return [
        Target(np.concatenate([one.values for one in same]), same[0].kind)
        for same in zip(*parts, strict=True)
    ]


def _make_room(more: int, budget: int) -> None:
    """Drop the oldest features, of any partition, until there is room: they can be made again."""
    partitions = list(memory.get_instance(rows.Partitions).values())
    kept = [(one, key) for one in partitions for key in one.features]
    total = sum(_nbytes(one.features[key]) for one, key in kept)
    for one, key in kept:
        if total + more <= budget:
            return
        total -= _nbytes(one.features.pop(key))


def _nbytes(features: Dataset) -> int:
    return sum(array.nbytes for array in features.inputs)
