"""A large state is moved into a model and out of it, so it is in memory only once."""

from __future__ import annotations

import functools
import weakref

import numpy as np
import pytest

import nets
from cerebro_plpy.engine import state as states
from cerebro_plpy.engine.backends.interfaces import Tick
from cerebro_plpy.engine.backends.stacks import Orders
from cerebro_plpy.engine.checks import architecture
from cerebro_plpy.engine.models import model
from cerebro_plpy.engine.models.data import ONE_HOT, Block, Dataset, Target
from cerebro_plpy.engine.models.model import CompiledModel
from cerebro_plpy.engine.state import State
from cerebro_plpy.madlib.params import parse_compile
from cerebro_plpy.memory import LARGE_BYTES
from engines import nothing

pytestmark = pytest.mark.usefixtures("engine")

PARAMS = parse_compile("loss='categorical_crossentropy',optimizer='Adam(lr=0.001)'")
ROWS, BATCH = 24, 8


@functools.cache
def rows() -> Block:
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, nets.FEATURES)).astype(np.float32)
    labels = np.eye(nets.CLASSES, dtype=np.int16)[random.integers(0, nets.CLASSES, ROWS)]
    return Block(Dataset([x], [Target(labels, ONE_HOT)]), np.arange(ROWS))


def compiled() -> CompiledModel:
    return model.compiled(architecture.describe(nets.mlp(units=25_000)).json, PARAMS)


def stored(state: State) -> State:
    """Return a state after it was written as parts and read from them."""
    return states.from_parts(states.to_parts(state))


def train(net: CompiledModel, state: State, tick: Tick = nothing, moves: bool = False) -> State:
    return net.train(state, [[rows()]], BATCH, None, tick, rows=ROWS, moves=moves)[0]


def bits(state: State) -> list[bytes]:
    return [array.tobytes() for array in state.arrays]


def test_a_state_that_moves_is_gone_while_it_trains_and_comes_to_the_same_bits() -> None:
    net = compiled()
    first = net.initial_state(PARAMS, 1, None)
    assert first.nbytes > LARGE_BYTES
    expected = bits(train(net, stored(first)))
    state = stored(first)
    large = [weakref.ref(array.base) for array in state.arrays if array.nbytes > 2**20]
    left: list[int] = []

    def look() -> None:
        left.append(sum(one() is not None for one in large))

    assert bits(train(net, state, look, moves=True)) == expected
    assert large and left and not any(left)


def test_a_state_is_the_same_after_it_was_measured() -> None:
    net = compiled()
    state = stored(net.initial_state(PARAMS, 2, None))
    before = bits(state)
    measured = [net.evaluate(state, [rows()], BATCH, nothing, moves) for moves in (True, False, True)]
    assert bits(state) == before
    first, *others = [[array.tolist() for array in one] for one in measured]
    assert others == [first, first]
    # What was saved first is not written over by what trains next.
    trained = train(net, state)
    kept = bits(trained)
    assert bits(train(net, trained)) != kept == bits(trained)


def test_a_stack_trains_a_net_that_has_been_saved() -> None:
    net = compiled()
    first = stored(net.initial_state(PARAMS, 3, None))
    expected = bits(train(net, first))
    assert net.stack is not None
    with net.stack.loaded([first, first], [PARAMS] * 2, batched=False):
        orders = Orders([np.arange(ROWS)] * 2, BATCH, ROWS, [True, True])
        net.stack.train(rows().dataset, orders, None, nothing, batched=False)
        assert [bits(state) for state in net.stack.states(2)] == [expected, expected]
