"""A net that is trained in shards learns the same as a whole, and stays within the memory of the device."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import nets
from cerebro_plpy import memory
from cerebro_plpy.engine.activations import shards
from cerebro_plpy.engine.activations.shards import DeviceRoom
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import architecture
from cerebro_plpy.engine.models import model, sizing
from cerebro_plpy.engine.models.data import ONE_HOT, Block, Dataset, Target
from cerebro_plpy.engine.state import State
from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.madlib.literal import Value
from cerebro_plpy.madlib.params import Call, CompileParams
from engines import BACKEND, nothing

if TYPE_CHECKING:
    from cerebro_plpy.engine.activations.jax_shards import ShardedLoop

pytestmark = pytest.mark.usefixtures("engine")
on_jax = pytest.mark.skipif(BACKEND != "jax", reason="no other engine trains nets in shards")
ROWS, BATCH, SEED, MEASURED = 45, 20, 5, 32


def params(optimizer: str = "SGD", **given: Value) -> CompileParams:
    call = Call(optimizer, (("learning_rate", 0.05), *given.items()))
    return CompileParams(optimizer=call, loss="categorical_crossentropy", metrics=["accuracy"])


def dense(units: int = 64, **config: object) -> nets.Layer:
    return nets.layer("Dense", units=units, activation="tanh", **config)


def deep(*between: nets.Layer, hidden: int = 4) -> str:
    last = nets.layer("Dense", units=nets.CLASSES, activation="softmax")
    return nets.sequential([nets.FEATURES], dense(), *between, *(dense() for _ in range(hidden - 1)), last)


def nested() -> str:
    """Return a net with a frozen layer and a nested model, which counts as one layer."""
    inner = json.loads(nets.sequential([64], dense(), dense()))
    inner["config"]["name"] = "inner"
    return deep(dense(trainable=False), inner)


def with_penalties() -> str:
    l2 = {"module": "keras.regularizers", "class_name": "L2", "config": {"l2": 0.01}, "registered_name": None}
    return deep(dense(kernel_regularizer=l2), dense(activity_regularizer=l2))


EVERY_NET = {
    "changing": deep(
        nets.layer("Dropout", rate=0.3), nets.layer("BatchNormalization"), nets.layer("Dropout", rate=0.2)
    ),
    "penalties": with_penalties(),
    "nested": nested(),
    "convolutions": nets.cnn(),
    "recurrent": nets.lstm(),
    "two ends": nets.two_by_two([nets.FEATURES, 5], nets.CLASSES),
    "branches": nets.branches(),
    "attention": nets.encoder(),
}


@cache
def data(text: str) -> Dataset:
    random = np.random.default_rng(1)
    found = architecture.describe(text)
    inputs = [random.random((ROWS, *(d or 1 for d in shape)), np.float32) for shape in found.inputs]
    classes = [random.integers(0, shape[0] or 1, ROWS) for shape in found.outputs]
    targets = [
        Target(np.eye(shape[0] or 1, dtype=np.int16)[own], ONE_HOT)
        for shape, own in zip(found.outputs, classes, strict=True)
    ]
    return Dataset(inputs, targets)


def find_room(
    text: str, own: CompileParams, least: bool = False, batch: int = BATCH, measured: int = MEASURED
) -> DeviceRoom:
    """Return the memory of a device on which a net trains in shards: more than two of them if possible.

    `least` asks for the smallest device on which the net can train.
    """

    def count(size: int) -> int:
        room = DeviceRoom(size, batch, measured)
        try:
            return len(sizing.shards_of(architecture.describe(text).json, own, room))
        except CerebroError:
            return 0

    low, high = 1, 2**22
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if count(middle) else (middle + 1, high)
    sizes = [int(low * more) for more in (2.0, 1.6, 1.3, 1.1)] if not least else []
    chosen = next((size for size in sizes if count(size) > 2), low)
    return DeviceRoom(chosen, batch, measured)


def made(text: str, own: CompileParams, room: DeviceRoom | None = None) -> model.CompiledModel:
    return model.compiled(architecture.describe(text).json, own, room=room)


def loop_of(net: model.CompiledModel) -> ShardedLoop:
    from cerebro_plpy.engine.activations.jax_shards import ShardedLoop

    assert isinstance(net._loop, ShardedLoop)
    return net._loop


def trained(
    net: model.CompiledModel, text: str, own: CompileParams, passes: int = 2
) -> tuple[State, dict[str, float]]:
    rows = data(text)
    orders = [np.random.default_rng(n).permutation(ROWS) for n in range(passes)]
    begun = net.initial_state(own, SEED, None)
    return net.train(begun, [[Block(rows, o)] for o in orders], BATCH, None, nothing, params=own)


def check_alike(text: str, own: CompileParams, passes: int = 2) -> model.CompiledModel:
    room = find_room(text, own)
    net = made(text, own, room)
    assert len(loop_of(net).shards) > 1
    whole, losses = trained(made(text, own), text, own, passes)
    parts, its_losses = trained(net, text, own, passes)
    assert its_losses == pytest.approx(losses, rel=1e-5)
    assert whole.kinds == parts.kinds
    for one, other in zip(whole.arrays, parts.arrays, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-6)
    assert loop_of(net).ledger.most <= room.bytes
    return net


# The first of all, since a process uses memory again that it has kept from earlier tests.
@on_jax
def test_the_session_grows_by_what_the_ledger_counts() -> None:
    """Without a GPU the device is the process, whose growth shows what the ledger has overlooked.

    The net has few weights and large activations, so that hardly anything but the device's bytes comes and
    goes.
    """
    last = nets.layer("Dense", units=nets.CLASSES, activation="softmax")
    text, own = nets.sequential([nets.FEATURES], *(dense(units=128) for _ in range(24)), last), params("Adam")
    size, random = 16 * 1024, np.random.default_rng(1)
    classes = np.eye(nets.CLASSES, dtype=np.int16)[random.integers(0, nets.CLASSES, size)]
    rows = Dataset([random.random((size, nets.FEATURES), np.float32)], [Target(classes, ONE_HOT)])
    room = DeviceRoom(220 * 2**20, size, MEASURED)
    net = made(text, own, room)
    ledger, state = loop_of(net).ledger, net.initial_state(own, SEED, None)
    grown = []
    for _ in range(2):
        memory.trim()
        before = read_memory("VmRSS")
        # From here on, the kernel counts the peak anew.
        Path("/proc/self/clear_refs").write_text("5")
        ledger.most = 0
        state, _ = net.train(state, [[Block(rows, np.arange(size))]], size, None, nothing)
        grown.append(read_memory("VmHWM") - before)
    # The first visit also compiles.
    assert 64 * 2**20 < ledger.most <= room.bytes
    assert 0.75 * ledger.most < grown[1] < min(1.5 * ledger.most, room.bytes)


def read_memory(name: str) -> int:
    return 1024 * int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0])


# Each shard of each net is compiled twice, so most of them are left to the slow tests.
QUICK = ("changing", "penalties")


@on_jax
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in EVERY_NET]
)
def test_a_net_in_shards_learns_the_same(name: str) -> None:
    """Seeds and moving averages in the states are equal too, and so are the losses that layers add."""
    own = replace(params(), loss="mse") if name == "two ends" else params()
    check_alike(EVERY_NET[name], own)


@on_jax
def test_it_is_measured_in_shards() -> None:
    """Evaluating in shards keeps only the last tensor that was passed from one shard to the next."""
    text, own = deep(hidden=12), params()
    room = find_room(text, own, least=True, batch=1, measured=ROWS)
    net, whole = made(text, own, room), made(text, own)
    state, rows = net.initial_state(own, SEED, None), [Block(data(text), np.arange(ROWS))]
    found = [one.merge([one.evaluate(state, rows, ROWS, nothing)]) for one in (net, whole)]
    assert found[0] == pytest.approx(found[1], rel=1e-5)
    assert loop_of(net).ledger.most <= room.bytes


@on_jax
def test_it_trains_on_after_it_was_measured() -> None:
    """Training and evaluating alternate, as in each epoch; evaluating must not change averages and seeds."""
    text, own = EVERY_NET["changing"], params()
    rows, order = data(text), np.arange(ROWS)
    states = []
    for net in (made(text, own), made(text, own, find_room(text, own))):
        state = net.initial_state(own, SEED, None)
        for _ in range(2):
            state, _ = net.train(state, [[Block(rows, order)]], BATCH, None, nothing)
            net.evaluate(state, [Block(rows, order)], MEASURED, nothing)
        states.append(state)
    for one, other in zip(states[0].arrays, states[1].arrays, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-6)


@on_jax
def test_a_visit_that_is_broken_off_leaves_nothing_on_the_device() -> None:
    text, own = EVERY_NET["changing"], params()
    net = made(text, own, find_room(text, own))
    rest = set()
    for most in (1, 4, 7):
        calls = itertools.count()

        def tick(calls: Iterator[int] = calls, most: int = most) -> None:
            if next(calls) == most:
                raise KeyboardInterrupt

        state = net.initial_state(own, SEED, None)
        with pytest.raises(KeyboardInterrupt):
            net.train(state, [[Block(data(text), np.arange(ROWS))]], BATCH, None, tick)
        loop: Any = net._loop
        placed = loop._store._placed.values()
        rest.add(loop.ledger.held - sum(array.nbytes for array in placed))
    assert rest == {0}


@on_jax
def test_nothing_stays_on_the_device_between_visits() -> None:
    """Neither training nor evaluating leaves arrays: the next visit may train the net of another config."""
    text, own = deep(), params()
    net = made(text, own, find_room(text, own))
    rows = [Block(data(text), np.arange(ROWS))]
    state, _ = net.train(net.initial_state(own, SEED, None), [rows], BATCH, None, nothing)
    held = [loop_of(net).ledger.held]
    net.evaluate(state, rows, MEASURED, nothing)
    held.append(loop_of(net).ledger.held)
    assert held == [0, 0]


@on_jax
@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "given"),
    [
        ("Adam", {"weight_decay": 0.01, "clipnorm": 0.5}),
        ("Nadam", {}),
        ("Adafactor", {}),
        ("Lion", {"use_ema": True, "ema_momentum": 0.5}),
        ("RMSprop", {"gradient_accumulation_steps": 2}),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_each_optimizer_makes_the_steps_of_the_whole(optimizer: str, given: dict[str, Value]) -> None:
    check_alike(deep(), params(optimizer, **given), passes=1)


@on_jax
@pytest.mark.parametrize("optimizer", ["Muon", "Adafactor"])
def test_optimizers_that_compute_with_copies_stay_within_the_memory(optimizer: str) -> None:
    """With large weights and a single row, the optimizer's step needs most of the memory."""
    text, own = deep(*(dense(units=256) for _ in range(3))), params(optimizer)
    room = find_room(text, own, least=True, batch=1, measured=1)
    net = made(text, own, room)
    net.train(net.initial_state(own, SEED, None), [[Block(data(text), np.arange(2))]], 1, None, nothing)
    assert loop_of(net).ledger.most <= room.bytes


@on_jax
def test_rows_on_the_device_count() -> None:
    """The inputs of the rows that are measured take more than the net, and are counted before it is cut."""
    text, own = nets.sequential([5000], *(dense() for _ in range(4)), dense(nets.CLASSES)), params()
    room = find_room(text, own, least=True, measured=ROWS)
    net = made(text, own, room)
    assert len(loop_of(net).shards) > 1 and room.bytes > 4 * 5000 * ROWS
    state, _ = trained(net, text, own, passes=1)
    net.evaluate(state, [Block(data(text), np.arange(ROWS))], ROWS, nothing)
    assert loop_of(net).ledger.most <= room.bytes


@on_jax
def test_what_stays_on_the_device_has_no_say() -> None:
    own, text = params("Adam"), EVERY_NET["changing"]
    room = find_room(text, own, least=True)
    net = made(text, own, room)
    spilled, _ = trained(net, text, own)
    spans = sizing.shards_of(architecture.describe(text).json, own, room)
    large = replace(room, bytes=100 * room.bytes)
    backend, variables = runtime.get_keras_backend(), net.layout.variables
    moved = loop_of(net).ledger.moved
    net._loop = backend.make_sharded_loop(net._model, variables, net._inputs, spans, large)
    resident, _ = trained(net, text, own)
    for one, other in zip(spilled.arrays, resident.arrays, strict=True):
        np.testing.assert_array_equal(one, other)
    # It came and went once.
    assert loop_of(net).ledger.moved < moved / 3


@on_jax
def test_a_host_with_pinned_memory_gives_the_same_bits() -> None:
    """A host with a GPU keeps the arrays that go to and from the GPU in pinned memory."""
    import jax

    own, text = params("Adam"), deep()
    net = made(text, own, find_room(text, own, least=True))
    usual, _ = trained(net, text, own)
    store = loop_of(net)._store
    device = jax.devices()[0]
    store._pinned = jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
    pinned, _ = trained(net, text, own)
    for one, other in zip(usual.arrays, pinned.arrays, strict=True):
        np.testing.assert_array_equal(one, other)


@on_jax
def test_a_net_that_fits_is_not_cut() -> None:
    own, text = params(), deep()
    assert not hasattr(made(text, own, DeviceRoom(64 * 2**20, BATCH, MEASURED))._loop, "shards")


def test_the_cuts_lie_where_one_tensor_passes() -> None:
    """A net is not cut within a skip connection or between two uses of the same layer."""
    text = nets.encoder(blocks=3)
    known = architecture.describe(text).json
    spans = sizing.shards_of(known, params(), find_room(text, params(), least=True))
    names = [node["name"] for node in json.loads(known)["config"]["layers"][1:]]
    assert {names[span.first - 1] for span in spans[1:]} <= {"steps", "embed"} | {
        f"{part}_{n}" for n in range(3) for part in ("norm", "next")
    }
    assert [span.last for span in spans[:-1]] == [span.first for span in spans[1:]]


@pytest.mark.parametrize(
    ("optimizer", "given", "said"),
    [
        ("SGD", {"global_clipnorm": 1.0}, "global_clipnorm needs the slopes of all weights at once"),
        ("SGD", {"loss_scale_factor": 512.0}, "each shard would have to scale the loss"),
    ],
)
def test_what_needs_all_weights_at_once_is_refused(
    optimizer: str, given: dict[str, Value], said: str
) -> None:
    text, own = deep(), params(optimizer, **given)
    room = DeviceRoom(400 * 1024, BATCH, MEASURED)
    with pytest.raises(CerebroError, match="device_memory_mb cannot be used") as caught:
        sizing.shards_of(architecture.describe(text).json, own, room)
    assert said in (caught.value.detail or "")
    assert caught.value.sqlstate == NOT_SUPPORTED


def test_the_least_that_is_named_is_enough() -> None:
    text, own = deep(dense(units=700), dense(units=700, name="large")), params("Adam")
    known = architecture.describe(text).json
    with pytest.raises(CerebroError, match="the least is ") as caught:
        sizing.shards_of(known, own, DeviceRoom(2**20, BATCH, MEASURED))
    assert 'layer "large"' in (caught.value.detail or "")
    least = int(caught.value.message.rsplit(" ", 1)[1])
    spans = sizing.shards_of(known, own, DeviceRoom(least * 2**20, BATCH, MEASURED))
    assert shards.peak_bytes(spans, DeviceRoom(least * 2**20, BATCH, MEASURED)) <= least * 2**20
