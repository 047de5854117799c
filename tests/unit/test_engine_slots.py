"""The variables of an optimizer, when a net begins with the weights or the state of another one."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.models import model
from cerebro_plpy.engine.models.data import VALUE, Block, Dataset, Target
from cerebro_plpy.engine.state import OPTIMIZER, State, weights
from cerebro_plpy.madlib.literal import read_arguments
from cerebro_plpy.madlib.params import parse_compile
from cerebro_plpy.segment.visits import warmed
from engines import nothing

pytestmark = pytest.mark.usefixtures("engine")
ROWS, FEATURES = 40, 3
RATE = "learning_rate=0.01"


@functools.cache
def net() -> str:
    layers = runtime.keras().layers
    made = [
        layers.Input((FEATURES,)),
        layers.Dense(4, activation="tanh", name="a"),
        layers.Dense(1, name="b"),
    ]
    return runtime.keras().Sequential(made).to_json()


@functools.cache
def data() -> Dataset:
    random = np.random.default_rng(2)
    x = random.normal(size=(ROWS, FEATURES)).astype(np.float32)
    return Dataset([x], [Target(x[:, :1] * 2, VALUE)])


def start(optimizer: str, given: bytes | None = None, seed: int = 1) -> State:
    params = parse_compile(f"optimizer='{optimizer}',loss='mse'")
    return model.compiled(net(), params).initial_state(params, seed, given)


def train(optimizer: str, state: State) -> State:
    params = parse_compile(f"optimizer='{optimizer}',loss='mse'")
    blocks = [[Block(data(), np.arange(ROWS))]]
    return model.compiled(net(), params).train(state, blocks, 8, None, nothing, rows=ROWS, params=params)[0]


def slots(state: State, end: str) -> list[np.ndarray]:
    named = zip(state.names, state.arrays, strict=True)
    return [array for name, array in named if name.endswith(end)]


def nets_weights(state: State) -> list[np.ndarray]:
    kinds = zip(state.kinds, state.arrays, strict=True)
    return [array for kind, array in kinds if kind != OPTIMIZER]


@pytest.mark.parametrize(
    ("before", "after"),
    [(f"SGD({RATE},momentum=0.9)", f"RMSprop({RATE})"), (f"Adam({RATE})", f"Adamax({RATE})")],
)
def test_another_optimizer_begins_anew_though_its_variables_look_alike(before: str, after: str) -> None:
    trained = train(before, start(before))
    fresh = start(after)
    found = warmed(fresh, trained)
    assert weights(found) == weights(trained)
    for name, kind, array, first in zip(found.names, found.kinds, found.arrays, fresh.arrays, strict=True):
        if kind == OPTIMIZER:
            np.testing.assert_array_equal(array, first, err_msg=name)


def test_the_same_optimizer_goes_on() -> None:
    trained = train(f"Adam({RATE})", start(f"Adam({RATE})"))
    found = warmed(start("Adam(learning_rate=0.5)"), trained)
    for end in ("iteration", "_momentum", "_velocity"):
        for one, other in zip(slots(found, end), slots(trained, end), strict=True):
            np.testing.assert_array_equal(one, other)


def test_moving_averages_begin_with_the_weights() -> None:
    """Zeros would draw the weights towards zero at the end of the pass."""
    trained = train(f"Adam({RATE})", start(f"Adam({RATE})"))
    averaging = f"Adam({RATE},use_ema=True)"
    found = warmed(start(averaging), trained)
    for average, weight in zip(slots(found, "_average"), nets_weights(found), strict=True):
        np.testing.assert_array_equal(average, weight)
    further = train(averaging, found)
    sizes = [sum(float(np.abs(one).sum()) for one in nets_weights(state)) for state in (trained, further)]
    assert sizes[1] > 0.8 * sizes[0]


def test_an_optimizer_without_a_schedule_begins_with_the_given_weights() -> None:
    given = weights(train(f"Adam({RATE})", start(f"Adam({RATE})")))
    slow = "ScheduleFreeAdamW(learning_rate=1e-7)"
    further = train(slow, start(slow, given, seed=5))
    np.testing.assert_allclose(
        np.frombuffer(weights(further), np.float32), np.frombuffer(given, np.float32), atol=1e-4
    )


@pytest.mark.parametrize("number", ["", "_1", "_700"])
@pytest.mark.parametrize("more", ["", ",use_ema=True"])
def test_a_variable_that_belongs_to_no_weight_is_found_by_any_number(number: str, more: str) -> None:
    """With slots in addition, names decide, and else places."""
    trained = train(f"Nadam({RATE})", start(f"Nadam({RATE})"))
    ((place, _),) = unnamed(trained)
    renamed = [f"variable{number}" if at == place else name for at, name in enumerate(trained.names)]
    old = State(renamed, trained.arrays, trained.kinds, trained.weight_order)
    ((_, found),) = unnamed(warmed(start(f"Nadam({RATE}{more})"), old))
    assert found == trained.arrays[place] != 1.0


def unnamed(state: State) -> list[tuple[int, np.ndarray]]:
    named = enumerate(zip(state.names, state.arrays, strict=True))
    return [(place, array) for place, (name, array) in named if name.startswith("variable")]


def test_the_rate_is_that_of_the_optimizer_inside() -> None:
    scaled = f"LossScaleOptimizer(inner_optimizer=Adam({RATE}))"
    state = start(scaled)
    assert state.rate == np.float32(0.01)
    still = train(scaled, state.with_rate(np.zeros(())))
    assert weights(still) == weights(state)


@pytest.mark.parametrize("optimizer", ["use_ema=True,ema_momentum=0.5", "gradient_accumulation_steps=2"])
@pytest.mark.parametrize("scaled", [False, True])
def test_passes_are_those_of_keras(optimizer: str, scaled: bool) -> None:
    said = f"Adam({optimizer})"
    said = f"LossScaleOptimizer(inner_optimizer={said})" if scaled else said
    state = start(said)
    keras = runtime.keras()
    plain = keras.models.model_from_json(net())
    plain.set_weights(nets_weights(state))
    made = keras.optimizers.Adam(**read_arguments(optimizer))
    plain.compile(keras.optimizers.LossScaleOptimizer(made) if scaled else made, "mse")
    plain.fit(data().inputs[0], data().targets[0].values, batch_size=8, shuffle=False, verbose=0)
    for one, other in zip(nets_weights(train(said, state)), plain.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
