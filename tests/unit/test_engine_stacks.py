"""States that are trained together as one program get the same bits as each of them trained alone."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import nets
from cerebro_plpy.engine.backends.stacks import Orders
from cerebro_plpy.engine.checks import architecture
from cerebro_plpy.engine.models import model
from cerebro_plpy.engine.models.data import ONE_HOT, Block, ClassWeights, Dataset, Target
from cerebro_plpy.engine.models.model import StackedModel, has_fixed_batches
from cerebro_plpy.engine.state import State
from cerebro_plpy.madlib.params import CompileParams, parse_compile
from engines import BACKEND, nothing

# Keras itself calls TensorFlow and NumPy in an outdated way.
pytestmark = [
    pytest.mark.usefixtures("engine"),
    pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning"),
]

FEATURES, CLASSES = nets.FEATURES, nets.CLASSES
# Full batches of no power of two, which TensorFlow has code of its own for; and what is left over.
ROWS, BATCH = (50, 57, 9, 50, 31), 10
CLASS_WEIGHT = [{0: 1.0, 1: 2.5, 2: 0.5}]
NETS = {"mlp": nets.mlp(), "dropout": nets.mlp_with_dropout(), "cnn": nets.cnn(), "members": nets.members()}
RATES = (0.01, 0.3, 0.002, 0.05, 0.001)


@functools.cache
def dataset() -> Dataset:
    random = np.random.default_rng(0)
    x = random.normal(size=(100, FEATURES)).astype(np.float32)
    return Dataset([x], [Target(np.eye(CLASSES, dtype=np.int16)[random.integers(0, CLASSES, 100)], ONE_HOT)])


def params(optimizer: str, rate: float) -> CompileParams:
    return parse_compile(
        f"loss='categorical_crossentropy',metrics=['accuracy'],optimizer='{optimizer.format(rate)}'"
    )


def compiled(net: str, own: CompileParams) -> model.CompiledModel:
    return model.compiled(architecture.describe(NETS[net]).json, own)


def orders(number: int, sizes: Sequence[int] = ROWS) -> list[np.ndarray]:
    random = np.random.default_rng(number)
    return [random.permutation(100)[:size] for size in sizes]


def train(
    stack: StackedModel, states: Sequence[State], own: Sequence[CompileParams], weights: ClassWeights = None
) -> tuple[list[State], list[dict[str, float]]]:
    """Train the states of a stack in two passes, and return the new states and their metrics."""
    with stack.loaded(states, own, batched=False):
        for number in range(2):
            rows = orders(number, ROWS[: len(states)])
            fixed = [has_fixed_batches(s, len(r), BATCH) for s, r in zip(states, rows, strict=True)]
            stack.train(dataset(), Orders(rows, BATCH, max(ROWS), fixed), weights, nothing, batched=False)
        return stack.states(len(states)), stack.results(len(states))


def assert_same_bits(found: State, expected: State) -> None:
    for name, one, other in zip(found.names, found.arrays, expected.arrays, strict=True):
        assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes()), name


@pytest.mark.parametrize(
    ("net", "optimizer", "weights"),
    [
        ("mlp", "Adam(lr={})", None),
        ("dropout", "SGD(lr={},momentum=0.9)", CLASS_WEIGHT),
        ("dropout", "Adam(lr={},clipnorm=0.5)", None),
        ("cnn", "Adam(lr={})", CLASS_WEIGHT),
        ("members", "Adam(lr={})", None),
    ],
)
def test_states_of_a_stack_come_to_the_bits_of_each_alone(
    net: str, optimizer: str, weights: ClassWeights
) -> None:
    own = [params(optimizer, rate) for rate in RATES]
    shared = compiled(net, own[0])
    if net == "cnn" and BACKEND == "jax":
        assert shared.stack is None
        return
    assert shared.stack is not None
    states = [shared.initial_state(each, seed, None) for seed, each in enumerate(own)]
    alone = [
        shared.train(
            state,
            [[Block(dataset(), orders(number)[place])] for number in range(2)],
            BATCH, weights, nothing, rows=ROWS[place], params=own[place],
        )
        for place, state in enumerate(states)
    ]  # fmt: skip
    found, logs = train(shared.stack, states, own, weights)
    for place, (expected, log) in enumerate(alone):
        assert_same_bits(found[place], expected)
        # XLA may round the running loss, which is only reported, in another way within a loop.
        exact = BACKEND != "jax"
        assert logs[place] == (log if exact else pytest.approx(log, rel=1e-6))


@pytest.mark.parametrize("net", ["dropout", "members"])
def test_states_of_a_stack_are_measured_as_each_alone(net: str) -> None:
    own = params("Adam(lr={})", 0.01)
    shared = compiled(net, own)
    assert shared.stack is not None
    states = [shared.initial_state(own, seed, None) for seed in range(len(ROWS))]
    with shared.stack.loaded(states, [own] * len(states), batched=False):
        shared.stack.test(dataset(), orders(0), 16, nothing)
        measured, after = shared.stack.results(len(states)), shared.stack.states(len(states))
    for state, rows, found in zip(states, orders(0), measured, strict=True):
        alone = shared.merge([shared.evaluate(state, [Block(dataset(), rows)], 16, nothing)])
        # XLA may round the running loss in another way within a loop, by the processor.
        assert found == (alone if BACKEND != "jax" else pytest.approx(alone, rel=1e-6))
    for state, left in zip(states, after, strict=True):
        assert_same_bits(left, state)


def test_one_that_diverges_leaves_the_others_alone() -> None:
    own = [params("SGD(lr={})", rate) for rate in (0.01, 1e30, 0.01)]
    shared = compiled("mlp", own[0])
    assert shared.stack is not None
    states = [shared.initial_state(each, 3, None) for each in own]
    found, logs = train(shared.stack, states, own)
    assert [np.isfinite(log["loss"]) for log in logs] == [True, False, True]
    assert_same_bits(found[0], train(shared.stack, states[:1], own[:1])[0][0])


@pytest.mark.skipif(BACKEND != "tensorflow", reason="JAX has a program for each number of states")
def test_a_stack_of_any_size_is_traced_once() -> None:
    own = params("Adam(lr={})", 0.01)
    shared = compiled("mlp", own)
    assert shared.stack is not None
    state = shared.initial_state(own, 3, None)
    for count in (1, 5, 3):
        train(shared.stack, [state] * count, [own] * count)
    # Nothing but the number of its functions' traces tells.
    within: Any = shared.stack
    walks = within._stack._walks
    assert [walk.experimental_get_tracing_count() for walk in walks.values()] == [1, 1]


def test_a_model_that_others_were_put_into_takes_up_frozen_weights_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if BACKEND == "tensorflow":
        # Small states are taken up whole each time.
        monkeypatch.setattr("cerebro_plpy.engine.backends.on_tensorflow.LARGE_BYTES", 0)
    own = params("SGD(lr={})", 0.01)
    text = nets.sequential(
        [FEATURES],
        nets.layer("Dense", units=8, activation="relu", trainable=False),
        nets.layer("Dense", units=CLASSES, activation="softmax"),
    )
    shared = model.compiled(architecture.describe(text).json, own)
    assert shared.stack is not None
    one, other = (shared.initial_state(own, seed, None) for seed in (1, 2))
    block = Block(dataset(), np.arange(40))
    expected, _ = shared.train(one, [[block]], BATCH, None, nothing, rows=40)
    train(shared.stack, [other, other], [own, own])
    found, _ = shared.train(one, [[block]], BATCH, None, nothing, rows=40)
    assert_same_bits(found, expected)
