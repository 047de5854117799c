"""Trains the members of a bundle as one program.

In the exact form, each member gets the bits that it would get alone. The batched form has bits of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cerebro_plpy import seeding
from cerebro_plpy.commands import VisitBundle
from cerebro_plpy.engine.backends import stacks
from cerebro_plpy.engine.backends.stacks import Orders
from cerebro_plpy.engine.models.data import Block, ClassWeights, Dataset
from cerebro_plpy.engine.models.model import StackedModel, began_with_full_batches, has_fixed_batches
from cerebro_plpy.engine.state import State
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.logical import class_weights
from cerebro_plpy.logical.options import EXACT, FAST, OFF
from cerebro_plpy.planner.estimating.work import EVALUATION_BATCH
from cerebro_plpy.segment import rows, visits
from cerebro_plpy.segment.bundled.members import Member
from cerebro_plpy.segment.supply import Supply
from cerebro_plpy.store.runs import runs

# A bundle with fewer members would save nothing.
LEAST_MEMBERS = 2
# How many full mini-batches a trial trains on to compare bits.
TRIED = 2
# How members train whose trial found other bits, by form, and why.
DECLINED = {
    EXACT: "one after the other: as one program, two mini-batches came to other bits than alone",
    FAST: f"one after the other: with fuse {FAST}, bits would depend on which others train beside them",
}
# A longer pass gains little, and a cancel would have to wait until the program ends.
MOST_BATCHES = 1000


def fused(
    work: visits.Task, form: str, datasets: Mapping[str, Dataset], members: Sequence[Member]
) -> list[Member]:
    """Return the members that can train as one program in this form, or no members if too few can.

    A member can if its rows are in memory and its state and rows are not too large.
    """
    if form == OFF or work.model.stack is None:
        return []
    found = [member for member in members if _may_fuse(member, datasets, form)]
    # The batched form has bits of its own, which a single member must get as well.
    return found if len(found) >= (1 if form == FAST else LEAST_MEMBERS) else []


def _may_fuse(member: Member, datasets: Mapping[str, Dataset], form: str) -> bool:
    if form == EXACT and member.rows.rows > MOST_BATCHES * member.work.fit.batch_size:
        return False
    in_memory = datasets.keys() >= {"training", *member.measured_on}
    together = len(member.rows.chosen) == 1 if _is_group(member) else member.rows.rows > 0
    return in_memory and together and member.state.nbytes <= stacks.LARGEST_STATE


def _is_group(member: Member) -> bool:
    return member.rows.segment == rows.ALONE


def whole_epoch(member: Member, epoch: int) -> int:
    """Return an epoch of this run as a count that includes the epochs before a warm start.

    The order of rows is derived from it.
    """
    return member.work.config.epochs_before + epoch


def train(
    supply: Supply,
    work: visits.Task,
    asked: VisitBundle,
    datasets: Mapping[str, Dataset],
    members: Sequence[Member],
) -> Sequence[Member]:
    """Train and measure, as one program, the members that pass a trial (`_FormTrials`), and return them."""
    stack, fit, tick, dataset = work.model.stack, work.fit, supply.ticker(), datasets["training"]
    if stack is None:
        return []
    weights = class_weights.settle(fit, runs.class_counts(work.run))
    with visits.own_faults("trained"):
        first = _cut(members, _orders(members, asked.epoch, 0))
        members = _FormTrials(stack, members, dataset, first, weights, tick).holding(asked.form)
        if not members:
            return []
        batched = asked.form == FAST
        # Configs that hop are here for one epoch; those of groups do not anneal.
        shares = [m.work.fit.share_of_rate(whole_epoch(m, asked.epoch)) for m in members]
        began = zip(members, shares, strict=True)
        states = [m.state if share == 1 else m.state.with_rate(m.state.rate * share) for m, share in began]
        params = [m.work.compile for m in members]
        with stack.loaded(states, params, batched=batched):
            for epoch in range(asked.epoch, asked.until + 1):
                for number in range(fit.epochs):
                    orders = _cut(members, _orders(members, epoch, number))
                    stack.train(dataset, orders, weights, tick, batched=batched)
                _take_logs(members, stack.results(len(members)), asked.segment, epoch)
                if epoch in asked.measured:
                    _measure_on(datasets, stack, members=members, epoch=epoch, tick=tick)
            for member, share, state in zip(members, shares, stack.states(len(members)), strict=True):
                if share != 1:
                    state = state.with_rate(member.state.rate)
                state.fixed_batch = began_with_full_batches(member.state, member.rows.rows, fit.batch_size)
                member.state = state
    return members


def measure(
    supply: Supply,
    work: visits.Task,
    asked: VisitBundle,
    datasets: Mapping[str, Dataset],
    members: Sequence[Member],
) -> None:
    """Measure the members' states without training; the metrics are left in each member's `measured`."""
    stack = work.model.stack
    if stack is None:
        return
    states, params = [member.state for member in members], [work.compile] * len(members)
    with visits.own_faults("was evaluated"), stack.loaded(states, params, batched=False):
        _measure_on(datasets, stack, members=members, epoch=asked.until, tick=supply.ticker())


def _measure_on(
    datasets: Mapping[str, Dataset],
    stack: StackedModel,
    *,
    members: Sequence[Member],
    epoch: int,
    tick: Callable[[], None],
) -> None:
    for what, dataset in datasets.items():
        _measure(stack, what, dataset, members=members, epoch=epoch, tick=tick)


def _measure(
    stack: StackedModel,
    what: str,
    dataset: Dataset,
    members: Sequence[Member],
    epoch: int,
    tick: Callable[[], None],
) -> None:
    orders = [
        np.concatenate([_places(own, one, np.arange(one.rows)) for one in own.chosen])
        if (own := member.measured_on.get(what))
        else np.zeros(0, np.int64)
        for member in members
    ]
    if not any(map(len, orders)):
        return
    stack.test(dataset, orders, EVALUATION_BATCH, tick)
    for member, values in zip(members, stack.results(len(members)), strict=True):
        if what in member.measured_on:
            member.measured[epoch, what] = values


def _places(own: rows.PartitionRows, one: rows.Stretch, within: np.ndarray) -> np.ndarray:
    """Return places in the partition, given places `within` a stretch of rows (`one`)."""
    return own.partition.starts[one.buffer] + one.first + within


def _orders(members: Sequence[Member], epoch: int, number: int) -> list[np.ndarray]:
    """Return, for each member, the places of its rows in the dataset, in the order of one pass.

    Groups of the same size share an order, and so do configs that train on the same rows.
    """
    known: dict[Any, np.ndarray] = {}
    found = []
    for member in members:
        own, whole = member.rows, whole_epoch(member, epoch)
        if _is_group(member):
            (one,) = own.chosen
            if (one.rows, whole) not in known:
                known[one.rows, whole] = _pass(member.work, whole, number, one.rows)
            found.append(_places(own, one, known[one.rows, whole]))
            continue
        if (id(own), whole) not in known:
            shuffles = member.work.fit.shuffle
            run = member.work.run
            (block,) = own.shuffled(run.seed, whole, number) if shuffles else own.in_order(whole)
            known[id(own), whole] = block.order
        found.append(known[id(own), whole])
    return found


def _pass(work: visits.Task, epoch: int, number: int, count: int) -> np.ndarray:
    """Return the order of the `count` rows of a group in pass `number` of an epoch.

    It is the order of `PartitionRows.shuffled`, or the packed order if the config does not shuffle.
    """
    if not work.fit.shuffle:
        return np.arange(count)
    return seeding.permutation(count, work.run.seed, "rows", epoch, rows.ALONE, number, 0)


def _take_logs(members: Sequence[Member], logs: Sequence[dict[str, float]], segment: int, epoch: int) -> None:
    for member, own in zip(members, logs, strict=True):
        member.logs = own
        if member.failure is None and not math.isfinite(own.get("loss", math.nan)):
            try:
                visits.check_finite(own, segment, epoch)
            except CerebroError as error:
                member.failure = error.message


def _cut(members: Sequence[Member], rows: Sequence[np.ndarray]) -> Orders:
    size = members[0].work.fit.batch_size
    fixed = [has_fixed_batches(member.state, member.rows.rows, size) for member in members]
    return Orders(rows, size, max(map(len, rows)), fixed)


@dataclass(frozen=True)
class _Trial:
    """The facts on which a trial's result depends (`_FormTrials`); members with equal facts share a trial.

    `rest` is the number of rows in the last, smaller batch; in the exact form only 0 or 1, for none or some.
    `fixed` says whether the program is compiled for batches of exactly this size.
    """

    form: str
    batch_size: int
    weighted: bool
    rest: int
    fixed: bool


@dataclass(frozen=True)
class _FormTrials:
    """Trials of a stack, the program that trains several states, on the first rows of its members.

    They find the members that get the right bits: in the exact form, the bits of training alone; in the
    batched form, bits that do not depend on the other members.
    """

    stack: StackedModel
    members: Sequence[Member]
    dataset: Dataset
    orders: Orders
    weights: ClassWeights
    tick: Callable[[], None]

    def holding(self, form: str) -> list[Member]:
        cases = zip(self.members, self.orders.rows, self.orders.fixed, strict=True)
        size, tried = self.orders.batch_size, self.stack.tried
        found = []
        for place, (member, own, fixed) in enumerate(cases):
            rest = len(own) % size if form == FAST else int(len(own) % size > 0)
            trial = _Trial(form, size, self.weights is not None, rest, fixed and form != FAST)
            if trial not in tried:
                tried[trial] = self._is_one(place) if form == FAST else self._is_as_alone(place)
            if tried[trial]:
                found.append(member)
        return found

    def _few(self, place: int) -> np.ndarray:
        """Return a member's rows for a trial: two full mini-batches, and its last, smaller batch."""
        own, size = self.orders.rows[place], self.orders.batch_size
        full = len(own) // size * size
        return np.concatenate([own[: min(full, TRIED * size)], own[full:]])

    def _is_one(self, place: int) -> bool:
        """Return whether training gives a member's state the same bits at each place of the batched form."""
        places, few, member = stacks.BATCHED_PLACES, self._few(place), self.members[place]
        alike = replace(self.orders, rows=[few] * places, longest=len(few), fixed=[False] * places)
        with self.stack.loaded([member.state] * places, [member.work.compile] * places, batched=True):
            self.stack.train(self.dataset, alike, self.weights, self.tick, batched=True)
            first, *others = self.stack.states(places)
        return all(_same(first, other) for other in others)

    def _is_as_alone(self, place: int) -> bool:
        """Return whether training gives a member's state the same bits in the stack as alone."""
        few, member = self._few(place), self.members[place]
        alone, _ = member.work.model.train(
            member.state,
            [[Block(self.dataset, few)]],
            self.orders.batch_size,
            self.weights,
            self.tick,
            rows=member.rows.rows,
            params=member.work.compile,
        )
        states, params = [m.state for m in self.members], [m.work.compile for m in self.members]
        rows = [few if other == place else few[:0] for other in range(len(self.members))]
        one = replace(self.orders, rows=rows)
        with self.stack.loaded(states, params, batched=False):
            self.stack.train(self.dataset, one, self.weights, self.tick, batched=False)
            return _same(alone, self.stack.states(place + 1)[place])


def _same(one: State, other: State) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(one.arrays, other.arrays, strict=True))
