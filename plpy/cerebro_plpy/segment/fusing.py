"""Many groups trained as one program: the bits are those of one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from cerebro_plpy import seeding
from cerebro_plpy.commands import VisitGroups
from cerebro_plpy.engine import stacks
from cerebro_plpy.engine.data import Block, Dataset
from cerebro_plpy.engine.model import StackedModel, began_with_full_batches
from cerebro_plpy.engine.state import State
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.logical import class_weights
from cerebro_plpy.planner.work import EVALUATION_BATCH
from cerebro_plpy.segment import rows, visits
from cerebro_plpy.segment.members import Member
from cerebro_plpy.segment.supply import Supply
from cerebro_plpy.store import runs

# With fewer there is nothing to be saved.
LEAST_MEMBERS = 2
# How many mini-batches tell whether a stack gives the bits that a net alone gives.
TRIED = 2


def fused(work: visits.Task, datasets: Mapping[str, Dataset], members: Sequence[Member]) -> list[Member]:
    """Those of the members that are to train as one program, where all of their rows are in memory."""
    if not runs.limits(work.run).get("fuse", True) or work.model.stack is None:
        return []
    found = [member for member in members if _may_fuse(member, datasets)]
    return found if len(found) >= LEAST_MEMBERS else []


def _may_fuse(member: Member, datasets: Mapping[str, Dataset]) -> bool:
    in_memory = datasets.keys() >= {"training", *member.measured_on}
    return in_memory and len(member.rows.chosen) == 1 and member.state.nbytes <= stacks.LARGEST_STATE


def train(
    supply: Supply,
    work: visits.Task,
    asked: VisitGroups,
    datasets: Mapping[str, Dataset],
    members: Sequence[Member],
) -> bool:
    """Train and measure; whether that gives the same bits as alone is tried first."""
    stack, fit, tick, dataset = work.model.stack, work.fit, supply.ticker(), datasets["training"]
    if stack is None:
        return False
    weights = class_weights.settle(fit, runs.class_counts(work.run))
    with visits.own_faults("trained"):
        before = [member.state for member in members]
        orders = _orders(members, lambda count: _pass(work, asked.epoch, 0, count))
        longest = max(map(len, orders))
        if not _gives_the_same(stack, work, dataset, before=before, orders=orders, tick=tick):
            return False
        stack.load(before)
        for epoch in range(asked.epoch, asked.until + 1):
            for number in range(fit.epochs):
                in_pass = partial(_pass, work, epoch, number)
                orders = _orders(members, in_pass)
                stack.train(dataset, orders, fit.batch_size, weights, tick, longest=longest)
            _take_logs(members, stack.results(len(members)), asked.segment, epoch)
            if epoch in asked.measured:
                _measure_on(datasets, stack, members=members, epoch=epoch, tick=tick)
        for member, state in zip(members, stack.states(len(members)), strict=True):
            state.fixed_batch = began_with_full_batches(member.state, member.rows.rows, fit.batch_size)
            member.state = state
    return True


def measure(
    supply: Supply,
    work: visits.Task,
    asked: VisitGroups,
    datasets: Mapping[str, Dataset],
    members: Sequence[Member],
) -> bool:
    """Measure states as they are."""
    stack = work.model.stack
    if stack is None:
        return False
    with visits.own_faults("was evaluated"):
        stack.load([member.state for member in members])
        _measure_on(datasets, stack, members=members, epoch=asked.until, tick=supply.ticker())
    return True


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
    """Places in the dataset of some rows of a stretch."""
    return own.partition.starts[one.buffer] + one.first + within


def _orders(members: Sequence[Member], within: Callable[[int], np.ndarray]) -> list[np.ndarray]:
    """The rows of each member in the dataset. Groups of as many rows have one order."""
    known: dict[int, np.ndarray] = {}
    found = []
    for member in members:
        (one,) = member.rows.chosen
        if one.rows not in known:
            known[one.rows] = within(one.rows)
        found.append(_places(member.rows, one, known[one.rows]))
    return found


def _pass(work: visits.Task, epoch: int, number: int, count: int) -> np.ndarray:
    """The order of so many rows in a pass, as `PartitionRows.shuffled` has it."""
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


def _gives_the_same(
    stack: StackedModel,
    work: visits.Task,
    dataset: Dataset,
    before: Sequence[State],
    orders: Sequence[np.ndarray],
    tick: Callable[[], None],
) -> bool:
    """Train the first state on a few mini-batches, alone and in a stack of all."""
    tried, size = stack.tried, work.fit.batch_size
    if size not in tried:
        few = [orders[0][: TRIED * size], *(order[:0] for order in orders[1:])]
        alone, _ = work.model.train(before[0], [[Block(dataset, few[0])]], size, None, tick)
        stack.load(before)
        stack.train(dataset, few, size, None, tick, longest=max(map(len, orders)))
        together = stack.states(1)[0]
        tried[size] = all(
            a.tobytes() == b.tobytes() for a, b in zip(alone.arrays, together.arrays, strict=True)
        )
    return tried[size]
