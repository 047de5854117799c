"""A bundle trained as one program: with the bits of one after the other, or in the batched form."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cerebro_plpy import seeding
from cerebro_plpy.commands import VisitBundle
from cerebro_plpy.engine import stacks
from cerebro_plpy.engine.data import Block, Dataset
from cerebro_plpy.engine.model import StackedModel, began_with_full_batches
from cerebro_plpy.engine.state import State
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.logical import class_weights
from cerebro_plpy.logical.options import EXACT, FAST, OFF
from cerebro_plpy.madlib.params import CompileParams
from cerebro_plpy.planner.work import EVALUATION_BATCH
from cerebro_plpy.segment import rows, visits
from cerebro_plpy.segment.members import Member
from cerebro_plpy.segment.supply import Supply
from cerebro_plpy.store import runs

# With fewer there is nothing to be saved.
LEAST_MEMBERS = 2
# How many mini-batches tell whether a stack gives the bits that it has to.
TRIED = 2


def fused(
    work: visits.Task, form: str, datasets: Mapping[str, Dataset], members: Sequence[Member]
) -> list[Member]:
    """Those of the members that are to train as one program, where all of their rows are in memory."""
    if form == OFF or work.model.stack is None:
        return []
    found = [member for member in members if _may_fuse(member, datasets)]
    # The batched form has bits of its own: one that is left alone has them too.
    return found if len(found) >= (1 if form == FAST else LEAST_MEMBERS) else []


def _may_fuse(member: Member, datasets: Mapping[str, Dataset]) -> bool:
    in_memory = datasets.keys() >= {"training", *member.measured_on}
    together = len(member.rows.chosen) == 1 if _is_group(member) else member.rows.rows > 0
    return in_memory and together and member.state.nbytes <= stacks.LARGEST_STATE


def _is_group(member: Member) -> bool:
    return member.rows.segment == rows.ALONE


def whole_epoch(member: Member, epoch: int) -> int:
    """The epoch that the order of rows follows from: those before a warm start count."""
    return member.work.config.epochs_before + epoch


def train(
    supply: Supply,
    work: visits.Task,
    asked: VisitBundle,
    datasets: Mapping[str, Dataset],
    members: Sequence[Member],
) -> str:
    """Train and measure; says in which form, or that neither gives the bits that it has to."""
    stack, fit, tick, dataset = work.model.stack, work.fit, supply.ticker(), datasets["training"]
    if stack is None:
        return OFF
    weights = class_weights.settle(fit, runs.class_counts(work.run))
    with visits.own_faults("trained"):
        before, params = [member.state for member in members], [member.work.compile for member in members]
        orders = _orders(members, asked.epoch, 0)
        longest = max(map(len, orders))
        form = _form(
            stack, work, asked.form, dataset=dataset, before=before, params=params, orders=orders, tick=tick
        )
        if form == OFF:
            return OFF
        stack.load(before, params, batched=form == FAST)
        for epoch in range(asked.epoch, asked.until + 1):
            for number in range(fit.epochs):
                orders = _orders(members, epoch, number)
                stack.train(
                    dataset, orders, fit.batch_size, weights, tick, longest=longest, batched=form == FAST
                )
            _take_logs(members, stack.results(len(members)), asked.segment, epoch)
            if epoch in asked.measured:
                _measure_on(datasets, stack, members=members, epoch=epoch, tick=tick)
        for member, state in zip(members, stack.states(len(members)), strict=True):
            state.fixed_batch = began_with_full_batches(member.state, member.rows.rows, fit.batch_size)
            member.state = state
    return form


def measure(
    supply: Supply,
    work: visits.Task,
    asked: VisitBundle,
    datasets: Mapping[str, Dataset],
    members: Sequence[Member],
) -> str:
    """Measure states as they are."""
    stack = work.model.stack
    if stack is None:
        return OFF
    with visits.own_faults("was evaluated"):
        stack.load([member.state for member in members], [work.compile] * len(members), batched=False)
        _measure_on(datasets, stack, members=members, epoch=asked.until, tick=supply.ticker())
    return EXACT


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


def _orders(members: Sequence[Member], epoch: int, number: int) -> list[np.ndarray]:
    """The rows of each member in the dataset, in the order of a pass. Groups of as many rows have one order,
    and so have configs that train on the same rows."""
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
            (block,) = own.shuffled(member.work.run.seed, whole, number) if shuffles else own.in_order()
            known[id(own), whole] = block.order
        found.append(known[id(own), whole])
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


def _form(
    stack: StackedModel,
    work: visits.Task,
    asked: str,
    *,
    dataset: Dataset,
    before: Sequence[State],
    params: Sequence[CompileParams],
    orders: Sequence[np.ndarray],
    tick: Callable[[], None],
) -> str:
    """The form that was asked for, where it gives the bits that it has to; else the exact one, or none."""
    size, longest = work.fit.batch_size, max(map(len, orders))
    few = [orders[0][: TRIED * size], *(order[:0] for order in orders[1:])]
    if asked == FAST:
        if (True, size) not in stack.tried:
            places = stacks.BATCHED_PLACES
            stack.load([before[0]] * places, [params[0]] * places, batched=True)
            alike = [few[0]] * places
            stack.train(dataset, alike, size, None, tick, longest=len(few[0]), batched=True)
            # Else what a config comes to would depend on who is in which place.
            first, *others = stack.states(places)
            stack.tried[True, size] = all(_same(first, other) for other in others)
        if stack.tried[True, size]:
            return FAST
    if (False, size) not in stack.tried:
        few_rows = [[Block(dataset, few[0])]]
        alone, _ = work.model.train(before[0], few_rows, size, None, tick, params=params[0])
        stack.load(before, params, batched=False)
        stack.train(dataset, few, size, None, tick, longest=longest, batched=False)
        stack.tried[False, size] = _same(alone, stack.states(1)[0])
    return EXACT if stack.tried[False, size] else OFF


def _same(one: State, other: State) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(one.arrays, other.arrays, strict=True))
