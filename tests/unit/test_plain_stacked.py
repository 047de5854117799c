"""Nets that are joined to an ensemble are computed together by NumPy, and answer as Keras has them answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cerebro_plpy.engine import own
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.plain import forward
from cerebro_plpy.nets.fitting import Moments, NetOutput, NetRows
from cerebro_plpy.nets.joining import Tempering, join
from cerebro_plpy.nets.points import nets

pytestmark = pytest.mark.usefixtures("engine")

VALUES = np.random.default_rng(5).normal(size=(300, 6)).astype(np.float32)
OUTPUTS = {
    "classes": NetOutput("y", (3,), True, None),
    "quantity": NetOutput("y", (1,), False, Moments([3.0], [2.0])),
}
SMALL = json.dumps({"width": 8, "depth": 2})


def make_net(name: str, output: str) -> str:
    rows = NetRows([(6,)], [OUTPUTS[output]], None, lambda _: VALUES)
    ((_, text),) = nets(name, None if name == "linear" else SMALL, rows)
    return text


def weigh(text: str, seed: int = 1) -> tuple[Any, bytes]:
    """Return a Keras model with random weights, and the weights as bytes."""
    model = runtime.keras().models.model_from_json(text, custom_objects=own.objects())
    chance = np.random.default_rng(seed)
    for weight in model.weights:
        low = 0.5 if "variance" in weight.path else -1.0
        weight.assign(chance.uniform(low, 1.0, weight.shape).astype(np.float32))
    return model, b"".join(np.asarray(array).astype("<f4").tobytes() for array in model.get_weights())


def check(text: str, inputs: Sequence[np.ndarray] = (VALUES,)) -> forward.PlainNet:
    """Compare NumPy's answers with Keras', for many rows and for one; return NumPy's net."""
    model, weights = weigh(text)
    net = forward.plain_net(text, weights)
    assert net is not None
    for rows in (slice(None), slice(7, 8)):
        some = [one[rows] for one in inputs]
        given = runtime.keras().tree.pack_sequence_as(model._inputs_struct, some)
        expected = runtime.to_numpy(runtime.keras().tree.flatten(model(given, training=False))[0])
        (found,) = net(some)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    return net


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("name", ["linear", "tabular", "tabm", "realmlp"])
def test_members_of_one_kind_take_the_steps_of_one(name: str, output: str) -> None:
    text = make_net(name, output)
    alone = check(text)
    shares = [0.1, 0.3, 0.2, 0.4]
    together = check(join([text] * 4, shares, "ensemble"))
    # Each has its own share of the sum.
    assert len(together.steps) <= len(alone.steps) + 5


@pytest.mark.parametrize("tempering", [None, Tempering(1.5, 1e-15)])
def test_members_of_several_kinds_answer_with_their_mean(tempering: Tempering | None) -> None:
    kinds = ("tabm", "realmlp", "tabm", "linear", "tabular", "realmlp", "tabm", "tabular")
    texts = [make_net(name, "classes") for name in kinds]
    check(join(texts, [1 / 8] * 8, "ensemble", tempering))


def test_members_with_embeddings_and_other_layers_answer_with_their_mean() -> None:
    """Layers whose twins are computed one by one lie between layers that are stacked."""
    layers = runtime.keras().layers
    code, numbers = runtime.keras().Input((1,)), runtime.keras().Input((6,))
    node = layers.Flatten()(layers.Embedding(5, 3)(code))
    node = layers.Concatenate()([layers.BatchNormalization()(numbers), node])
    left, right = layers.Dense(4, activation="relu")(node), layers.Dense(4, activation="relu")(node)
    node = layers.Reshape((4, 1))(layers.Multiply()([left, layers.Concatenate()([right])]))
    node = layers.Flatten()(layers.Conv1D(2, 3, padding="same")(node))
    text = runtime.keras().Model([code, numbers], layers.Dense(2, activation="softmax")(node)).to_json()
    codes = np.random.default_rng(3).integers(0, 5, (300, 1)).astype(np.float32)
    check(text, [codes, VALUES])
    check(join([text] * 3, [0.5, 0.25, 0.25], "ensemble"), [codes, VALUES])


@pytest.mark.parametrize("name", ["LayerNormalization", "BatchNormalization"])
def test_members_that_begin_with_a_normalization_answer_with_their_mean(name: str) -> None:
    layers = runtime.keras().layers
    given = runtime.keras().Input((6,))
    normalized = getattr(layers, name)()(given)
    text = runtime.keras().Model(given, layers.Dense(2, activation="softmax")(normalized)).to_json()
    check(join([text] * 3, [0.5, 0.25, 0.25], "ensemble"))


def test_layers_that_are_equal_within_a_net_keep_their_own_weights() -> None:
    """Each half goes through twins that the other half goes through in the other order."""
    layers = runtime.keras().layers
    given = runtime.keras().Input((6,))
    one, other = layers.Dense(6, activation="tanh")(given), layers.Dense(6, activation="tanh")(given)
    mixed = layers.Add()([layers.Dense(6)(one), layers.Dense(6)(one), layers.Dense(6)(other)])
    crossed = layers.Concatenate()([layers.Multiply()([one, other]), layers.Multiply()([other, one]), mixed])
    text = runtime.keras().Model(given, layers.Dense(2)(crossed)).to_json()
    check(text)
    check(join([text] * 3, [0.5, 0.25, 0.25], "ensemble"))
