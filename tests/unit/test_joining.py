"""Nets with the same inputs are joined to one net, whose answer is the weighted mean of their answers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.plain.forward import plain_net
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.nets import joining

pytestmark = pytest.mark.usefixtures("engine")


def chain(keras: Any) -> Any:
    """Return a sequential net with a BatchNormalization, whose statistics are weights too."""
    layers = keras.layers
    return keras.Sequential(
        [keras.Input((4,)), layers.BatchNormalization(), layers.Dense(5, "relu"), layers.Dense(3, "softmax")]
    )


def graph(keras: Any) -> Any:
    layers = keras.layers
    x = keras.Input((4,))
    shared = layers.Dense(4, "tanh")
    y = layers.Add()([shared(x), shared(shared(x))])
    return keras.Model(x, layers.Dense(3, "softmax", name="net1_x")(y))


def twice(keras: Any) -> Any:
    """Return a net whose output is the second call of a shared layer."""
    x = keras.Input((4,))
    shared, turned = keras.layers.Dense(3, "softmax"), keras.layers.Dense(3)
    return keras.Model(x, shared(shared(turned(x))))


def drawn(model: Any, seed: int) -> Any:
    random = np.random.default_rng(seed)
    model.set_weights([random.uniform(0.1, 1, array.shape) for array in model.get_weights()])
    return model


def test_the_answer_is_the_weighted_mean() -> None:
    keras = runtime.keras()
    nets = [drawn(make(keras), seed) for seed, make in enumerate((chain, graph, twice))]
    shares = [0.5, 0.2, 0.3]
    text = joining.join([net.to_json() for net in nets], shares, "all of them")
    joined = keras.models.model_from_json(text)
    for layer in joined.layers:
        place = joining.layer_name(layer.name)
        if place is not None:
            layer.set_weights(nets[place[0] - 1].get_layer(place[1]).get_weights())
    rows = np.random.default_rng(3).normal(size=(7, 4)).astype(np.float32)
    mean = sum(share * net.predict(rows, verbose=0) for share, net in zip(shares, nets, strict=True))
    np.testing.assert_allclose(joined.predict(rows, verbose=0), mean, rtol=1e-5)
    assert joined.output_names == [nets[0].layers[-1].name]
    assert len(joined.inputs) == 1


def hard(keras: Any) -> Any:
    """Return a net whose first class always has the probability 1, and the others exactly 0."""
    net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "softmax")])
    net.set_weights([np.zeros((4, 3)), np.array([500.0, 0, 0])])
    return net


@pytest.mark.parametrize("temperature", [0.5, 1.7])
@pytest.mark.parametrize("makes", [(chain, chain), (hard, hard)])
def test_a_temperature_changes_how_sure_the_mean_is(makes: Any, temperature: float) -> None:
    keras = runtime.keras()
    nets = [make(keras) if make is hard else drawn(make(keras), seed) for seed, make in enumerate(makes)]
    tempering = joining.Tempering(temperature, 1e-15)
    text = joining.join([net.to_json() for net in nets], [0.25, 0.75], "both", tempering)
    joined = keras.models.model_from_json(text)
    for layer in joined.layers:
        place = joining.layer_name(layer.name)
        if place is not None:
            layer.set_weights(nets[place[0] - 1].get_layer(place[1]).get_weights())
    rows = np.random.default_rng(3).normal(size=(7, 4)).astype(np.float32)
    mean = 0.25 * nets[0].predict(rows, verbose=0) + 0.75 * nets[1].predict(rows, verbose=0)
    powers = mean ** (1 / temperature)
    found = joined.predict(rows, verbose=0)
    np.testing.assert_allclose(found, powers / powers.sum(axis=1, keepdims=True), rtol=2e-5, atol=1e-7)
    assert joined.output_names == [nets[0].layers[-1].name]
    # An infinite logarithm would have no gradient.
    logarithms = keras.Model(joined.inputs, joined.get_layer("temper_4").output).predict(rows, verbose=0)
    assert np.isfinite(logarithms).all()
    plain = plain_net(joined.to_json(), b"".join(a.astype("<f4").tobytes() for a in joined.get_weights()))
    assert plain is not None
    np.testing.assert_allclose(plain([rows])[0], found, rtol=1e-5, atol=1e-7)


def test_nets_with_other_inputs_are_refused() -> None:
    keras = runtime.keras()
    two = [keras.Input((4,)), keras.Input((4,))]
    other = keras.Model(two, keras.layers.Dense(3)(keras.layers.Add()(two)))
    with pytest.raises(CerebroError, match="the nets have different inputs"):
        joining.join([chain(keras).to_json(), other.to_json()], [0.5, 0.5], "both")


def test_inputs_keep_their_type() -> None:
    keras = runtime.keras()
    x = keras.Input((4,), dtype="int32")
    net = drawn(keras.Model(x, keras.layers.Dense(3, "softmax")(keras.layers.Rescaling(1.0)(x))), 1)
    joined = keras.models.model_from_json(joining.join([net.to_json()], [1.0], "one"))
    assert joined.inputs[0].dtype == "int32"
    with pytest.raises(CerebroError, match="the nets have different inputs"):
        joining.join([net.to_json(), chain(keras).to_json()], [0.5, 0.5], "both")


def test_an_input_without_a_type_has_floats() -> None:
    """An input without a dtype, as in hand-written architectures, is read as float32, as Keras reads it."""
    keras = runtime.keras()
    bare = json.loads(chain(keras).to_json())
    del bare["config"]["layers"][0]["config"]["dtype"]
    for nets in ([json.dumps(bare), graph(keras).to_json()], [graph(keras).to_json(), json.dumps(bare)]):
        joined = keras.models.model_from_json(joining.join(nets, [0.5, 0.5], "both"))
        assert joined.inputs[0].dtype == "float32"


def test_names_of_inputs_and_outputs_are_refused() -> None:
    keras = runtime.keras()
    x = keras.Input((4,), name="a")
    named = keras.Model({"a": x}, keras.layers.Dense(3)(x))
    with pytest.raises(CerebroError, match="have names of their own cannot be joined"):
        joining.join([named.to_json()], [1.0], "one")


@pytest.mark.parametrize("name", ["net1_h", "share_1", "input_1"])
def test_an_output_named_like_an_added_layer(name: str) -> None:
    keras = runtime.keras()
    x = keras.Input((4,))
    net = drawn(keras.Model(x, keras.layers.Dense(3, name=name)(keras.layers.Dense(3, name="h")(x))), 2)
    joined = keras.models.model_from_json(joining.join([net.to_json()], [1.0], "one"))
    assert joined.output_names == ["answer"]


def test_a_chain_without_an_input_is_refused() -> None:
    text = json.dumps({"class_name": "Sequential", "config": {"layers": [{"class_name": "Dense"}]}})
    with pytest.raises(CerebroError, match="a net without an input layer cannot be joined"):
        joining.join([text], [1.0], "one")
