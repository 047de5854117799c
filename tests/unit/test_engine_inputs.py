"""Configs that differ only in numbers of their optimizer share compiled code and get Keras' own bits."""

from __future__ import annotations

import numpy as np
import pytest

import nets
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import architecture, calls
from cerebro_plpy.engine.models import model
from cerebro_plpy.engine.models.data import ONE_HOT, Block, Dataset, Target
from cerebro_plpy.madlib.params import CompileParams, parse_compile
from engines import BACKEND

pytestmark = pytest.mark.usefixtures("engine")

FEATURES, ROWS, BATCH = 6, 203, 10
NET = nets.mlp(FEATURES)


def params(optimizer: str) -> CompileParams:
    return parse_compile(f"loss='categorical_crossentropy',optimizer='{optimizer}'")


def rows() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, FEATURES)).astype(np.float32)
    return x, np.eye(nets.CLASSES, dtype=np.int16)[random.integers(0, nets.CLASSES, ROWS)]


def by_keras(text: str, own: CompileParams, weights: list[np.ndarray]) -> list[np.ndarray]:
    net = runtime.keras().models.model_from_json(text)
    net.set_weights(weights)
    net.compile(**calls.compile_arguments(own))
    x, y = rows()
    net.fit(x, y.astype(np.float32), batch_size=BATCH, epochs=3, shuffle=False, verbose=0)
    return net.get_weights()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("SGD(learning_rate=0.1,momentum=0.9)", "SGD(learning_rate=0.1,momentum=0.37)"),
        (
            "SGD(learning_rate=0.1,momentum=0.9,nesterov=True)",
            "SGD(learning_rate=0.1,momentum=0.6,nesterov=True)",
        ),
        ("Adam(learning_rate=0.01)", "Adam(learning_rate=0.02,beta_1=0.8,beta_2=0.95,epsilon=1e-5)"),
        ("Adam(beta_1=0.5,weight_decay=0.01)", "Adam(beta_1=0.123,weight_decay=0.01)"),
        ("Adam(beta_2=0.9,clipnorm=0.1)", "Adam(beta_2=0.77,epsilon=1e-3,clipnorm=0.1)"),
        ("Adam(beta_2=0.9,amsgrad=True)", "Adam(beta_2=0.99,epsilon=0.3,amsgrad=True)"),
        ("AdamW(learning_rate=0.01)", "AdamW(learning_rate=0.01,beta_1=0.7)"),
        ("RMSprop(learning_rate=0.01)", "RMSprop(learning_rate=0.01,rho=0.77)"),
    ],
)
def test_what_is_given_has_the_bits_of_what_is_constant(first: str, second: str) -> None:
    text = architecture.describe(NET).json
    net, own = model.compiled(text, params(first)), params(second)
    assert (model.compiled(text, own) is net) is (BACKEND == "jax")
    x, y = rows()
    block = Block(Dataset([x], [Target(y, ONE_HOT)]), np.arange(ROWS))
    # Code of the first is there when the second trains.
    for each in (params(first), own):
        trained = model.compiled(text, each)
        start = trained.initial_state(each, 3, None)
        after, _ = trained.train(start, [[block]] * 3, BATCH, None, lambda: None, rows=ROWS, params=each)
        before, found = ([s.arrays[place] for place in s.weight_order] for s in (start, after))
        expected = by_keras(text, each, before)
        assert [a.tobytes() for a in found] == [a.tobytes() for a in expected]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Adam(clipnorm=1.0)", "Adam(clipnorm=0.1)"),
        ("SGD(momentum=0.0)", "SGD(momentum=0.5)"),
        ("Adam(beta_1=0.9)", "Adamax(beta_1=0.9)"),
        ("Nadam(beta_1=0.9)", "Nadam(beta_1=0.8)"),
        ("Adam(weight_decay=0.1)", "Adam(weight_decay=0.2)"),
        ("SGD(momentum=0.9)", "SGD(momentum=0.9,nesterov=True)"),
    ],
)
def test_what_is_a_constant_has_code_of_its_own(first: str, second: str) -> None:
    text = architecture.describe(NET).json
    assert model.compiled(text, params(first)) is not model.compiled(text, params(second))


def test_nets_of_other_precisions_have_constants() -> None:
    text = architecture.describe(NET).json.replace('"float32"', '"float16"')
    assert "float16" in text
    own = [model.compiled(text, params(f"SGD(momentum={momentum})")) for momentum in (0.5, 0.9)]
    assert own[0] is not own[1]
