"""Trains a bundle as one program: with the bits of one after the other, or in the batched form."""

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

# With fewer there is nothing to be saved.
LEAST_MEMBERS = 2
# How many mini-batches tell whether a stack gives the bits that it has to.
TRIED = 2
# How those train for which a form does not give the bits that it has to, and why.
DECLINED = {
    EXACT: "one after the other: as one program, two mini-batches came to other bits than alone",
    FAST: f"one after the other: with fuse {FAST}, bits would depend on which others train beside them",
}
# A pass of more is long enough by itself, and within a program it could not be broken off soon.
MOST_BATCHES = 1000


def fused(
    work: visits.Task, form: str, datasets: Mapping[str, Dataset], members: Sequence[Member]
) -> list[Member]:
    """Return the members that are to train as one program, if all of their rows are in memory."""
    if form == OFF or work.model.stack is None:
        return []
    found = [member for member in members if _may_fuse(member, datasets, form)]
    # The batched form has bits of its own: one that is left alone has them too.
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
    """Return the epoch that the order of rows follows from: those before a warm start count."""
    return member.work.config.epochs_before + epoch


def train(
    supply: Supply,
    work: visits.Task,
    asked: VisitBundle,
    datasets: Mapping[str, Dataset],
    members: Sequence[Member],
) -> Sequence[Member]:
    """Train and measure the members for which the form gives the right bits; return them."""
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
    """Measure states as they are."""
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
    """Return the places in the dataset of some rows of a stretch."""
    return own.partition.starts[one.buffer] + one.first + within


def _orders(members: Sequence[Member], epoch: int, number: int) -> list[np.ndarray]:
    """Return the rows of each member in the dataset, in the order of a pass. Groups with equally many rows
    share an order, and so do configs that train on the same rows."""
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
    """Return the order of this many rows in a pass, as `PartitionRows.shuffled` has it."""
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
    """The circumstances of a trial: a form, a batch size, whether rows count differently, whether a smaller
    batch is left over (in the batched form, of how many rows: each is another program), and whether code
    for batches of this very size trains."""

    form: str
    batch_size: int
    weighted: bool
    rest: int
    fixed: bool


@dataclass(frozen=True)
class _FormTrials:
    """Trials of a stack on what it is to train first, which find the members for whom a form gives the right
    bits, whoever else is in the bundle."""

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
        """Return the rows of two mini-batches, and what is left over."""
        own, size = self.orders.rows[place], self.orders.batch_size
        full = len(own) // size * size
        return np.concatenate([own[: min(full, TRIED * size)], own[full:]])

    def _is_one(self, place: int) -> bool:
        """Return whether a state comes to the same in all places; else it would depend on who is in which."""
        places, few, member = stacks.BATCHED_PLACES, self._few(place), self.members[place]
        alike = replace(self.orders, rows=[few] * places, longest=len(few), fixed=[False] * places)
        with self.stack.loaded([member.state] * places, [member.work.compile] * places, batched=True):
            self.stack.train(self.dataset, alike, self.weights, self.tick, batched=True)
            first, *others = self.stack.states(places)
        return all(_same(first, other) for other in others)

    def _is_as_alone(self, place: int) -> bool:
        """Return whether a state comes to the same as by itself."""
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
