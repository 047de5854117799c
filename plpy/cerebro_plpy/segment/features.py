"""Features: the outputs of a net's trunk for a partition's rows, computed once and kept with the rows.

The trunk is the layers of a net whose outputs no training changes; the head is the rest. The run's limits say
where each net is cut (`planner/cuts.py`). In each pass, the rows that do not fill a batch are computed again,
as one batch, because the last bits of a row's output may depend on the size of its batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cerebro_plpy import memory
from cerebro_plpy.engine.backends.interfaces import Tick
from cerebro_plpy.engine.models import cut as cuts
from cerebro_plpy.engine.models.data import Block, ClassWeights, Dataset, Target
from cerebro_plpy.engine.models.together import TogetherPass, TrunkWithValues
from cerebro_plpy.engine.state import State
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.madlib.params import CompileParams
from cerebro_plpy.segment import rows
from cerebro_plpy.store.runs import runs

if TYPE_CHECKING:
    from cerebro_plpy.segment.visits import Task

# How many models of several trunks are kept; and on how many rows each is compared with its trunks alone.
MOST_TOGETHER, TRIED_ROWS = 8, 512
# The most trunks in one model.
MOST_JOINED = 16


class Ordered(Protocol):
    """Rows that a net trains on: `shuffled` and `in_order` yield them as blocks."""

    def shuffled(self, seed: int, epoch: int, number: int) -> Iterator[Block]: ...

    def in_order(self, epoch: int = 1) -> Iterator[Block]: ...


class Trainer(Protocol):
    """An object that trains and evaluates whole states: a net, or a net that is cut into trunk and head."""

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
    """Some rows of a partition, as the outputs of a trunk, which were computed in batches of `batch_size`."""

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


@dataclass(frozen=True)
class OtherTrunk:
    """The trunk of another net of the run, and a digest of its layers and weights."""

    part: TrunkWithValues
    digest: str


@dataclass(frozen=True)
class Needs:
    """The net and batch size of a config (`mark`), and those of the run's other configs that need features.

    The latter are the keys of `others`. Each has a function that returns the other net's trunk if it can be
    computed together with the config's own trunk, or else None.
    """

    mark: rows.Mark
    others: Mapping[rows.Mark, Callable[[], OtherTrunk | None]]


def drop_unneeded(needs: Needs) -> None:
    """Drop, from all partitions, the features that no net in `needs` uses."""
    needed = {needs.mark, *needs.others}
    for partition in memory.get_instance(rows.Partitions).values():
        for key in [key for key, kept in partition.features.items() if kept.marks.isdisjoint(needed)]:
            del partition.features[key]


def may_share(work: Task, other: Task) -> bool:
    """Return whether the trunks of two configs may have layers in common, which are then computed once.

    Two equal layer names are enough to say so; a single one may be the name of an input layer.
    """
    cuts_of = runs.limits(work.run).get("cuts") or {}
    names = [cuts_of.get(str(one.config.model_id), [{"names": ()}])[0]["names"] for one in (work, other)]
    return len(set(names[0]).intersection(names[1])) > 1


def other_trunk(work: Task, state: State) -> OtherTrunk | None:
    """Return the trunk of a config with another net, to be computed together with the current config's trunk.

    Return None if the net has no trunk that stays frozen. `state` is the config's first state.
    """
    candidates = (runs.limits(work.run).get("cuts") or {}).get(str(work.config.model_id), ())
    if work.fit.thawed() or not candidates:
        return None
    cut = cuts.find_cut(work.model, work.compile, candidates[0]["names"])
    if cut is None or not cut.fits:
        return None
    part = TrunkWithValues(cut.trunk, cut.trunk.of_state(state))
    return OtherTrunk(part, cut.trunk.digest_of(state))


def trainer(
    work: Task, state: State, own: rows.PartitionRows, tick: Tick, needs: Needs | None = None
) -> tuple[Trainer, Ordered]:
    """Return an object that trains a state on some rows, and the rows in the form that it takes.

    The object is the net's head, and the rows are outputs of its trunk, if the run's limits name a cut, the
    rows fill a batch, and in a trial the cut net gives the bits of the whole net. For a table of features,
    the object is the head, and the rows are those of the table. Otherwise the object is the whole net.
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
            wanted = needs or Needs((work.config.model_id, size), {})
            found = _features(cut.trunk, state, partition, wanted, budget=budget, tick=tick)
            return cut, FeatureRows(cut.trunk, cut.trunk.of_state(state), found, own, size)
    return work.model, own


def _cut_of_stored(work: Task, state: State, table: str, stored: Mapping[str, Any]) -> cuts.Cut:
    cut = cuts.find_cut(work.model, work.compile, stored["layers"])
    if cut is None or not cut.fits or cut.trunk.digest_of(state) != stored["digest"]:
        raise other_weights(table, stored["layer"])
    return cut


def other_weights(table: str, layer: str) -> CerebroError:
    """Return the error for a table of features that was made by other layers or weights than the net has."""
    return CerebroError(
        f'the features in {table} are not those of this net: its layers up to "{layer}" have other weights or'
        " another form than those that made them",
        hint="Make the table of features again with cerebro.materialize_features.",
        sqlstate=WRONG_STATE,
    )


class _Together(dict[tuple[str, ...], TogetherPass | None]):
    """Models that compute several trunks in one pass, by the digests of the trunks.

    It has None for trunks that must be computed apart: one pass would save nothing or change bits.
    """


def _features(
    trunk: cuts.Trunk, state: State, partition: rows.Partition, needs: Needs, budget: int, tick: Tick
) -> Dataset:
    size = needs.mark[1]
    key = (trunk.digest_of(state), size)
    if key not in partition.features:
        first = TrunkWithValues(trunk, trunk.of_state(state))
        made = compute_together(first, key, partition, needs=needs, budget=budget, tick=tick)
        partition.features |= made or {key: _compute(first, partition, size=size, budget=budget, tick=tick)}
    kept = partition.features[key]
    kept.marks.add(needs.mark)
    return kept.rows


def _compute(
    own: TrunkWithValues, partition: rows.Partition, size: int, budget: int, tick: Tick
) -> rows.KeptFeatures:
    _make_room(own.trunk, partition, budget)
    targets: list[list[Target]] = []
    blocks = _noting(partition.choose_rows(rows.Subset()).in_order(), targets)
    found = own.trunk.features(own.values, blocks, partition.rows, size, tick)
    return rows.KeptFeatures(Dataset(found, _joined(targets)), set())


def compute_together(
    first: TrunkWithValues,
    key: tuple[str, int],
    partition: rows.Partition,
    needs: Needs,
    budget: int,
    tick: Tick,
) -> dict[tuple[str, int], rows.KeptFeatures]:
    """Return the features of a first trunk and of trunks that share layers with it, computed in one pass.

    Return an empty mapping if no trunk in `needs` shares layers, or if computing them together changes bits.
    `key` is the digest of the first trunk and the batch size; the result has such a key for each trunk.
    """
    parts, marks = {key: first}, {key: needs.mark}
    for mark, make in needs.others.items():
        # The weights of all trunks are in memory at the same time.
        if len(parts) == MOST_JOINED:
            break
        other = make() if mark[1] == key[1] else None
        if other is not None and (own := (other.digest, key[1])) not in partition.features:
            parts.setdefault(own, other.part)
            marks.setdefault(own, mark)
    if len(parts) < 2:
        return {}
    digests, known = tuple(digest for digest, _ in parts), memory.get_instance(_Together)
    together = memory.kept(known, digests, MOST_TOGETHER, partial(_join, list(parts.values())))
    if together is None:
        return {}
    if not _gives_the_same(together, list(parts.values()), partition, key[1]):
        known[digests] = None
        return {}
    _make_room(together, partition, budget)
    targets: list[list[Target]] = []
    blocks = _noting(partition.choose_rows(rows.Subset()).in_order(), targets)
    found = together.features(together.values, blocks, partition.rows, batch_size=key[1], tick=tick)
    labels = _joined(targets)
    return {
        own: rows.KeptFeatures(Dataset([found[place] for place in places], labels), {marks[own]})
        for own, places in zip(parts, together.places, strict=True)
    }


def _join(parts: Sequence[TrunkWithValues]) -> TogetherPass | None:
    try:
        together = TogetherPass(parts)
    except (TypeError, ValueError, KeyError, AttributeError):
        # It would only have been faster.
        return None
    return together if together.shared else None


def _gives_the_same(
    together: TogetherPass, parts: Sequence[TrunkWithValues], partition: rows.Partition, size: int
) -> bool:
    """Return whether each trunk gives the same bits alone as in the model of all, on some rows.

    They may differ, because an engine may compile layers in another way if another output is needed.
    """
    for first in range(0, min(max(cuts.TRIED * size, TRIED_ROWS), partition.rows - size + 1), size):
        batch = [partition.take(np.arange(first, first + size)).inputs]
        found = next(together.outputs(together.values, batch))
        for own, places in zip(parts, together.places, strict=True):
            alone = next(own.trunk.outputs(own.values, batch))
            if any(a.tobytes() != found[p].tobytes() for a, p in zip(alone, places, strict=True)):
                return False
    return True


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


def _make_room(passing: cuts.Pass, partition: rows.Partition, budget: int) -> None:
    """Drop the oldest features of any partition until the new outputs fit into `budget` bytes."""
    more = 4 * partition.rows * sum(math.prod(d or 1 for d in shape) for shape in passing.shapes)
    partitions = list(memory.get_instance(rows.Partitions).values())
    kept = [(one, key) for one in partitions for key in one.features]
    total = sum(_nbytes(one.features[key].rows) for one, key in kept)
    for one, key in kept:
        if total + more <= budget:
            return
        total -= _nbytes(one.features.pop(key).rows)


def _nbytes(features: Dataset) -> int:
    return sum(array.nbytes for array in features.inputs)
