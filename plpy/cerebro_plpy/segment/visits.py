"""A visit: trains one config on one segment's partition, in one transaction."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from cerebro_plpy import memory, seeding
from cerebro_plpy.commands import Average, Visit
from cerebro_plpy.engine import slots
from cerebro_plpy.engine import state as states
from cerebro_plpy.engine.activations.shards import DeviceRoom
from cerebro_plpy.engine.checks import custom
from cerebro_plpy.engine.models import model as engine
from cerebro_plpy.engine.models import stages
from cerebro_plpy.engine.models.data import Block
from cerebro_plpy.errors import CONFIG_FAILED, OUT_OF_MEMORY, QUERY_CANCELED, CerebroError
from cerebro_plpy.logical import class_weights
from cerebro_plpy.madlib import registered
from cerebro_plpy.madlib.params import CompileParams, FitParams, parse_compile, parse_fit
from cerebro_plpy.planner import routes
from cerebro_plpy.planner.estimating.work import EVALUATION_BATCH
from cerebro_plpy.segment import features, rows
from cerebro_plpy.segment.kept import KeptFrozen
from cerebro_plpy.segment.supply import Supply
from cerebro_plpy.store.runs import runs


@dataclass(frozen=True)
class Task:
    """A config with its run, its parsed parameters and its compiled model, ready to train or evaluate."""

    run: runs.RunRow
    config: runs.ConfigRow
    compile: CompileParams
    fit: FitParams
    model: engine.CompiledModel
    # The frozen layers that train in this epoch, by `unfreeze_at`.
    thawed: tuple[str, ...] = ()

    def at(self, epoch: int) -> Task:
        """Return the task for an epoch: its net trains all layers that `unfreeze_at` names by then."""
        names = self.fit.thawed(epoch)
        if names == self.thawed:
            return self
        with own_faults("was compiled"):
            model = engine.compiled(
                stages.thawed(self.model.architecture_json, names),
                self.compile,
                self.model.again,
                self.model.room,
            )
        return replace(self, model=model, thawed=names)


def room_on_device(megabytes: int | None, batch_size: int) -> DeviceRoom | None:
    """Return the limit on a net's memory on the device, or None if `megabytes` is None."""
    return None if megabytes is None else DeviceRoom(megabytes * 2**20, batch_size, EVALUATION_BATCH)


class _ReadTasks(dict[tuple[int, int], Task]):
    """Tasks that this session has read, by `run_id` and `mst_key`; it keeps only the tasks of one run."""


class _NewestState(dict[tuple[int, int, int], states.State]):
    """The states that the last visit or bundle in this session made, by `run_id`, `mst_key` and step."""


def forget() -> None:
    """Drop the tasks and states of the last run, but not its compiled models."""
    memory.get_instance(_ReadTasks).clear()
    memory.get_instance(_NewestState).clear()


def task(supply: Supply, run_id: int, mst_key: int) -> Task:
    """Return the task of a config. It is read and compiled once per session, since configs never change."""
    tasks = memory.get_instance(_ReadTasks)
    if (run_id, mst_key) not in tasks:
        if any(known != run_id for known, _ in tasks):
            tasks.clear()
        facts = supply.facts(run_id, mst_key)
        with registered.scope(custom.take(facts.functions)):
            compile_params = parse_compile(facts.config.compile_params)
        fit_params = parse_fit(facts.config.fit_params)
        limits = runs.limits(facts.run)
        with own_faults("was compiled", bool(facts.functions)):
            model = engine.compiled(
                facts.model_arch,
                compile_params,
                engine.again_of(limits.get("recompute", False)),
                room_on_device(limits.get("device_memory_mb"), fit_params.batch_size),
            )
        tasks[run_id, mst_key] = Task(facts.run, facts.config, compile_params, fit_params, model)
    return tasks[run_id, mst_key]


def state_after(supply: Supply, work: Task, step: int) -> states.State:
    """Return the state of a config at a step, from this session's memory if it is there."""
    run_id, mst_key = work.run.run_id, work.config.mst_key
    if step == (work.config.source_step or 0):
        return _first_state(supply, work)
    newest = memory.get_instance(_NewestState).get((run_id, mst_key, step))
    return _grown(work, supply.state(run_id, mst_key, step) if newest is None else newest)


def _grown(work: Task, state: states.State) -> states.State:
    """Return the state, with new optimizer variables for layers that were frozen when it was stored."""
    layout = work.model.layout
    same = state.names == layout.names and list(state.frozen_places or layout.frozen) == layout.frozen
    if not work.thawed or same:
        return state
    if len(set(state.names)) < len(state.names):
        raise CerebroError(
            "two of its layers have weights of one name: unfreeze_at cannot tell what belongs to which",
            hint="Give the layers inside of other models names of their own.",
            sqlstate=CONFIG_FAILED,
        )
    with own_faults("was initialized"):
        return warmed(work.model.initial_state(work.compile, 0, None), state)


def states_after(supply: Supply, works: Sequence[Task], step: int) -> list[states.State]:
    """Return the states of several configs at one step, in the order of `works`."""
    run_id, newest = works[0].run.run_id, memory.get_instance(_NewestState)
    known = {work.config.mst_key: newest.get((run_id, work.config.mst_key, step)) for work in works}
    lying = [
        work.config.mst_key
        for work in works
        if known[work.config.mst_key] is None and step != (work.config.source_step or 0)
    ]
    read = dict(zip(lying, supply.states(run_id, lying, step), strict=True)) if lying else {}
    return [
        _grown(work, read[work.config.mst_key])
        if work.config.mst_key in read
        else state_after(supply, work, step)
        for work in works
    ]


def remember(run_id: int, step: int, made: Mapping[int, states.State]) -> None:
    """Keep the states of a step, by `mst_key`, for a later visit or evaluation in this session.

    States that were kept before are dropped.
    """
    newest = memory.get_instance(_NewestState)
    newest.clear()
    newest.update({(run_id, mst_key, step): state for mst_key, state in made.items()})


def _first_state(supply: Supply, work: Task) -> states.State:
    config, run_id = work.config, work.run.run_id
    first = fresh_state(supply, work, config.mst_key)
    if config.source_key is not None and config.source_step is not None:
        source = task(supply, run_id, config.source_key)
        first = warmed(first, state_after(supply, source, config.source_step))
    elif config.warm_run_id is not None and config.warm_step is not None:
        key = config.mst_key if config.warm_key is None else config.warm_key
        first = warmed(first, supply.state(config.warm_run_id, key, config.warm_step))
    memory.get_instance(KeptFrozen).share(first)
    return first


def fresh_state(supply: Supply, work: Task, mst_key: int) -> states.State:
    """Return a new initial state for a config, made from its seed and its starting weights, if it has any."""
    seed = seeding.derive_small(work.run.seed, "weights", work.config.key)
    weights = supply.weights(work.run.run_id, work.config.model_id, mst_key)
    with own_faults("was initialized"):
        return work.model.initial_state(work.compile, seed, weights)


def warmed(fresh: states.State, old: states.State) -> states.State:
    """Return a state that has the values of `old`, but the learning rate of `fresh`.

    Arrays are matched by position, because the names of seeds have numbers that differ between processes. If
    only the optimizers differ, optimizer variables are matched by name, shape and type; if the nets differ,
    all arrays are. An array of `fresh` without a match stays as it is, but a copy of a weight follows the
    weight.
    """
    same = _forms(fresh, optimizer=True) == _forms(old, optimizer=True) and _roles(fresh) == _roles(old)
    if not same and _forms(fresh, optimizer=False) != _forms(old, optimizer=False):
        # The state is of another net, so arrays can be matched only by name.
        known = _by_name(old)
        own = [known.get(key, a) for key, a in zip(_keys(fresh), fresh.arrays, strict=True)]
    elif same:
        own = list(old.arrays)
    else:
        kept = _by_name(old)
        others = iter([a for a, kind in zip(old.arrays, old.kinds, strict=True) if kind != states.OPTIMIZER])
        own = [
            kept.get(key, array) if kind == states.OPTIMIZER else next(others)
            for key, array, kind in zip(_keys(fresh), fresh.arrays, fresh.kinds, strict=True)
        ]
    arrays = [
        array if states.is_rate(name, kind) else taken
        for name, array, kind, taken in zip(fresh.names, fresh.arrays, fresh.kinds, own, strict=True)
    ]
    warm = states.State(fresh.names, arrays, fresh.kinds, fresh.weight_order, old.step)
    slots.copy_weights(warm, [place for place, array in enumerate(own) if array is fresh.arrays[place]])
    warm.fixed_batch = old.fixed_batch
    warm.freeze(fresh.frozen_places)
    return warm


def _forms(state: states.State, *, optimizer: bool) -> list[tuple[tuple[int, ...], np.dtype]]:
    """Return the shape and type of each array of a state, without optimizer variables unless `optimizer`."""
    pairs = zip(state.arrays, state.kinds, strict=True)
    return [(a.shape, a.dtype) for a, kind in pairs if optimizer or kind != states.OPTIMIZER]


def _roles(state: states.State) -> list[str]:
    pairs = zip(state.names, state.kinds, strict=True)
    return [slots.role_of(name) for name, kind in pairs if kind == states.OPTIMIZER]


_ArrayKey = tuple[str, tuple[int, ...], np.dtype]


def _keys(state: states.State) -> list[_ArrayKey]:
    """Return the name, shape and type of each array; variables of an optimizer that belong to no weight have
    no number in their name."""
    return [
        (name if "/" in name or kind != states.OPTIMIZER else slots.role_of(name), array.shape, array.dtype)
        for name, array, kind in zip(state.names, state.arrays, state.kinds, strict=True)
    ]


def _by_name(state: states.State) -> dict[_ArrayKey, np.ndarray]:
    return dict(zip(_keys(state), state.arrays, strict=True))


def visit(supply: Supply, asked: Visit) -> Mapping[str, Any]:
    """Train one config on one segment, and store its state and log row in the transaction of the command."""
    started_at, clock, computed = time.time(), time.monotonic(), time.process_time()
    run_id, mst_key, epoch, stop = asked.run_id, asked.mst_key, asked.epoch, asked.stop
    work = task(supply, run_id, mst_key)
    run = work.run
    whole_epoch = work.config.epochs_before + epoch
    key = work.config.key
    if asked.part:
        segment, before = stop, (epoch - 1) * run.segments
        step = routes.part_of(epoch, segment, run.segments)
    else:
        segment = routes.route(run.seed, whole_epoch, key, run.segments)[stop]
        step = routes.step_of(epoch, stop, run.segments)
        before = step - 1
    work = work.at(whole_epoch)
    all_rows = rows.partition(supply.source, run, run.source_table, segment)
    subset = rows.Subset(work.config.fold, group=work.config.group_id)
    partition = rows.choose_training_rows(run, all_rows, subset)
    newest = memory.get_instance(_NewestState)
    if (run_id, mst_key, before) not in newest:
        newest.clear()
    state = state_after(supply, work, before)
    read = time.monotonic()
    needs = find_needs(supply, work, asked.cut_configs)
    newest.clear()
    # Nothing else needs the state that the visit begins with, so its arrays may move into the net.
    state, logs = train(supply, work, state, partition, whole_epoch, needs=needs, moves=True)
    if partition.rows:
        check_finite(logs, segment, epoch)
    trained = time.monotonic()
    row = runs.VisitRow(
        run_id=run_id,
        mst_key=mst_key,
        step=step,
        epoch=epoch,
        segment=segment,
        rows=partition.rows,
        loss=logs.get("loss"),
        logs=as_json(logs),
        state_bytes=0,
        read_seconds=read - clock,
        train_seconds=trained - read,
        write_seconds=0.0,
        started_at=started_at,
        pid=os.getpid(),
        cpu_seconds=time.process_time() - computed,
        memory_bytes=memory_bytes(),
    )
    size = supply.leave_visit(row, state)
    remember(run_id, step, {mst_key: state})
    seconds = time.monotonic() - clock
    return {"seconds": seconds, "loss": logs.get("loss"), "state_bytes": size, "rows": partition.rows}


def memory_bytes() -> int | None:
    """Return the resident memory of this process in bytes, shared pages included; None if not on Linux."""
    try:
        with open("/proc/self/statm") as told:
            return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def average(supply: Supply, asked: Average) -> Mapping[str, Any]:
    """Average the states that the segments made in an epoch, and store this as the state after the epoch."""
    started_at, clock = time.time(), time.monotonic()
    run_id, mst_key, epoch = asked.run_id, asked.mst_key, asked.epoch
    run = task(supply, run_id, mst_key).run
    steps = [routes.part_of(epoch, segment, run.segments) for segment in range(run.segments)]
    state = states.averaged([supply.state(run_id, mst_key, step) for step in steps], asked.rows)
    step = epoch * run.segments
    losses = [(loss, n) for loss, n in zip(asked.losses, asked.rows, strict=True) if loss is not None]
    total = sum(n for _, n in losses)
    loss = sum(loss * n for loss, n in losses) / total if total else None
    row = runs.VisitRow(
        run_id=run_id,
        mst_key=mst_key,
        step=step,
        epoch=epoch,
        segment=runs.EVERY_SEGMENT,
        rows=sum(asked.rows),
        loss=loss,
        logs=as_json({} if loss is None else {"loss": loss}),
        state_bytes=0,
        read_seconds=time.monotonic() - clock,
        train_seconds=0.0,
        write_seconds=0.0,
        started_at=started_at,
        pid=os.getpid(),
    )
    size = supply.leave_visit(row, state)
    remember(run_id, step, {mst_key: state})
    return {"seconds": time.monotonic() - clock, "loss": loss, "state_bytes": size}


def find_needs(
    supply: Supply, work: Task, cut_configs: Sequence[tuple[int, int, int]]
) -> features.Needs | None:
    """Return which nets need outputs of frozen layers, and drop the stored outputs that no net needs.

    `cut_configs` names the configs that need outputs, each by `mst_key`, `model_id` and batch size. Return
    None if it is empty.
    """
    if not cut_configs:
        return None
    own = work.config.model_id, work.fit.batch_size
    others = {
        (model_id, size): partial(_other_trunk, supply, work, key)
        for key, model_id, size in cut_configs
        if (model_id, size) != own
    }
    needs = features.Needs(own, others)
    features.drop_unneeded(needs)
    return needs


def _other_trunk(supply: Supply, own: Task, mst_key: int) -> features.OtherTrunk | None:
    try:
        work = task(supply, own.run.run_id, mst_key)
        if not features.may_share(own, work):
            return None
        return features.other_trunk(work, fresh_state(supply, work, mst_key))
    except CerebroError as error:
        if error.sqlstate == QUERY_CANCELED:
            raise
        # The other config is at fault: it fails in its own visit, not in this one.
        return None


def train(
    supply: Supply,
    work: Task,
    state: states.State,
    partition: rows.PartitionRows,
    epoch: int,
    needs: features.Needs | None = None,
    moves: bool = False,
) -> tuple[states.State, dict[str, float]]:
    """Train a state on a partition; return the new state and its logs. Without rows, return it unchanged.

    If `moves`, the arrays of `state` may move into the net, so that `state` cannot be used afterwards.
    """
    if not partition.rows:
        return state, {}
    fit, tick = work.fit, supply.ticker()
    class_weight = class_weights.settle(fit, runs.class_counts(work.run, work.config))
    share = fit.share_of_rate(epoch)
    with own_faults("trained"):
        trainer, own = features.trainer(work, state, partition, tick, needs)
        rate = None if share == 1 else state.rate
        began = state if rate is None else state.with_rate(rate * share)
        run = trainer.train
        if moves and trainer is work.model:
            run = partial(work.model.train, moves=True)
            if began is not state:
                # Or this list would keep the arrays alive that leave `began`.
                state.arrays = []
        passes = _passes(own, fit, work.run.seed, epoch)
        made, logs = run(
            began, passes, fit.batch_size, class_weight, tick, rows=partition.rows, params=work.compile
        )
    return made if rate is None else made.with_rate(rate), logs


# Part of the message, because views show failures without hints. The cheapest remedy comes first.
_SMALLER = (
    ": smaller batches take less, and with gradient_accumulation_steps=4 in the optimizer, four of them make"
    " one step; the option recompute keeps fewer outputs of layers; device_memory_mb trains a net in shards"
)


@contextmanager
def own_faults(doing: str, strictly: bool = False) -> Iterator[None]:
    """Turn an exception of the engine into a CerebroError that fails only the config, not the run.

    `doing` is part of the message, for example "was compiled". If `strictly`, also turn a CerebroError into
    one that fails the config, because a registered function may have raised it.
    """
    try:
        yield
    except CerebroError as error:
        if not strictly or error.sqlstate == QUERY_CANCELED:
            raise
        raise CerebroError(
            f"it failed while it {doing}: {error.message}", detail=error.detail, sqlstate=CONFIG_FAILED
        ) from error
    except (Exception, SystemExit) as error:
        if _is_out_of_memory(error):
            raise CerebroError(
                f"the memory ran out while it {doing}{_SMALLER}", sqlstate=OUT_OF_MEMORY
            ) from None
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CerebroError(
            f"it failed while it {doing}: {reason}{custom.place_of(error)}", sqlstate=CONFIG_FAILED
        ) from error


def _is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says that memory ran out: then the visit may succeed in another session."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ in ("ResourceExhaustedError", "OutOfMemoryError")
        or "RESOURCE_EXHAUSTED" in str(error)
    )


def measure(
    supply: Supply,
    work: Task,
    state: states.State,
    partition: rows.PartitionRows,
    needs: features.Needs | None = None,
) -> list[np.ndarray]:
    """Return the variables of a net's loss and metrics after a state has been evaluated on some rows."""
    tick = supply.ticker()
    try:
        with own_faults("was evaluated"):
            trainer, own = features.trainer(work, state, partition, tick, needs)
            moves = {"moves": True} if trainer is work.model else {}
            return trainer.evaluate(state, own.in_order(), EVALUATION_BATCH, tick, **moves)
    except BaseException:
        # A large state may have lost its arrays.
        memory.get_instance(_NewestState).clear()
        raise


def _passes(own: features.Ordered, fit: FitParams, seed: int, epoch: int) -> Iterator[Iterator[Block]]:
    for number in range(fit.epochs):
        yield own.shuffled(seed, epoch, number) if fit.shuffle else own.in_order(epoch)


def as_json(logs: Mapping[str, float]) -> str:
    """Return metrics as JSON, with null for NaN and infinity."""
    return json.dumps({name: value if math.isfinite(value) else None for name, value in logs.items()})


def check_finite(logs: Mapping[str, float], segment: int, epoch: int) -> None:
    loss = logs.get("loss")
    if loss is None or not math.isfinite(loss):
        raise CerebroError(
            f"the loss became {loss} on segment {segment} in epoch {epoch}",
            hint="A smaller learning rate, or features on a smaller scale, may help.",
            sqlstate=CONFIG_FAILED,
        )
