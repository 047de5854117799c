"""The forward pass in NumPy computes graphs of layers as Keras does, with the weights in Keras' order."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cerebro_plpy.engine import own
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks.architecture import build, describe
from cerebro_plpy.engine.plain.forward import PlainNet, count_weights, is_dense, plain_net
from cerebro_plpy.nets.fitting import Moments, NetOutput, NetRows
from cerebro_plpy.nets.points import POINTS, nets

pytestmark = pytest.mark.usefixtures("engine")


# All layers have the same width, so that exchanged weights would fit and only the outputs would differ.
def dense(keras: Any, x: Any, name: str | None = None) -> Any:
    return keras.layers.Dense(4, activation="tanh", name=name)(x)


def one_after_the_other(keras: Any) -> Any:
    x = keras.Input((4,))
    return keras.Model(x, dense(keras, dense(keras, x)))


def beside(keras: Any) -> Any:
    x = keras.Input((4,))
    left, right = dense(keras, x), dense(keras, x)
    return keras.Model(x, keras.layers.Concatenate()([right, left]))


def one_branch_longer(keras: Any) -> Any:
    x = keras.Input((4,))
    short, long = dense(keras, x), dense(keras, dense(keras, dense(keras, x)))
    return keras.Model(x, keras.layers.Add()([short, long]))


def around(keras: Any) -> Any:
    x = keras.Input((4,))
    node = dense(keras, x)
    for _ in range(3):
        node = keras.layers.Add()([node, dense(keras, keras.layers.LayerNormalization()(node))])
    return keras.Model(x, dense(keras, node))


def inputs_in_another_order(keras: Any) -> Any:
    one, two, unused = keras.Input((4,)), keras.Input((4,)), keras.Input((4,))
    joined = keras.layers.Multiply()([dense(keras, two), dense(keras, one)])
    return keras.Model([two, unused, one], dense(keras, joined))


def two_outputs(keras: Any) -> Any:
    x = keras.Input((4,))
    middle = dense(keras, x)
    return keras.Model(x, [dense(keras, dense(keras, middle)), dense(keras, middle)])


def an_output_within(keras: Any) -> Any:
    x = keras.Input((4,))
    middle = dense(keras, x)
    return keras.Model(x, [middle, dense(keras, dense(keras, middle))])


def merged(name: str) -> Callable[[Any], Any]:
    def make(keras: Any) -> Any:
        x = keras.Input((4,))
        return keras.Model(x, getattr(keras.layers, name)()([dense(keras, x), x, dense(keras, x)]))

    return make


def tabular(keras: Any) -> Any:
    layers = keras.layers
    numbers, city, words = layers.Input((7,)), layers.Input((1,)), layers.Input((5,))
    near = layers.Flatten()(layers.Embedding(9, 3)(city))
    told = layers.GlobalAveragePooling1D()(layers.Embedding(11, 4)(words))
    wide = layers.Dense(8, activation="gelu")(layers.Concatenate()([numbers, near, told]))
    inner = layers.Dense(8, activation="silu")(layers.LayerNormalization()(wide))
    added = layers.Add()([wide, layers.Dropout(0.5)(inner)])
    scaled = layers.Multiply()([layers.BatchNormalization()(added), wide])
    return keras.Model([numbers, city, words], layers.Dense(3, activation="softmax")(scaled))


GRAPHS = [
    one_after_the_other, beside, one_branch_longer, around, inputs_in_another_order, two_outputs,
    an_output_within, tabular,
]  # fmt: skip
MERGES = ["Add", "Average", "Maximum", "Minimum", "Multiply", "Concatenate"]


def drawn(seed: int) -> Callable[[Any], Any]:
    """Return a function that builds a random graph of Dense and merging layers with one or two outputs."""

    def make(keras: Any) -> Any:
        chance = random.Random(seed)
        inputs = [keras.Input((4,)) for _ in range(chance.randint(1, 3))]
        nodes = list(inputs)
        for _ in range(chance.randint(3, 12)):
            if chance.random() < 0.35 and len(nodes) > 1:
                kind = chance.choice(["Add", "Multiply", "Average"])
                nodes.append(getattr(keras.layers, kind)()(chance.choices(nodes, k=chance.randint(2, 3))))
            else:
                nodes.append(dense(keras, chance.choice(nodes)))
        return keras.Model(inputs, chance.sample(nodes[len(inputs) :], chance.randint(1, 2)))

    return make


def weighed(model: Any, seed: int = 1) -> Any:
    """Set random weights in a Keras model, and return the model."""
    chance = np.random.default_rng(seed)
    for weight in model.weights:
        low = 0.5 if "variance" in weight.path else -1.0
        weight.assign(chance.uniform(low, 1.0, weight.shape).astype(np.float32))
    return model


def assert_counted(model: Any, text: str) -> None:
    """Check that NumPy counts a net's weights as Keras does."""
    weights = model.count_params()
    assert count_weights(text, weights) == weights
    assert count_weights(text, weights - 1) is None


def flat(model: Any) -> bytes:
    return b"".join(np.asarray(array).astype("<f4").tobytes() for array in model.get_weights())


def rows_for(model: Any) -> list[np.ndarray]:
    chance = np.random.default_rng(2)
    return [chance.uniform(0, 5, (8, *tensor.shape[1:])).astype(np.float32) for tensor in model.inputs]


def assert_same(model: Any, text: str) -> PlainNet:
    plain = plain_net(text, flat(model))
    assert plain is not None
    assert [tuple(shape) for shape in plain.described.weight_shapes] == [w.shape for w in model.weights]
    assert plain.described.output_names == tuple(model.output_names)
    rows = rows_for(model)
    tree = runtime.keras().tree
    expected = model(tree.pack_sequence_as(model._inputs_struct, rows), training=False)
    for one, other in zip(plain(rows), tree.flatten(expected), strict=True):
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, runtime.to_numpy(other), rtol=1e-5, atol=1e-5)
    return plain


@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
def test_a_graph_gives_what_keras_gives(make: Callable[[Any], Any]) -> None:
    model = weighed(make(runtime.keras()))
    assert_same(model, model.to_json())


@pytest.mark.parametrize("name", MERGES)
def test_a_layer_of_several_inputs_gives_what_keras_gives(name: str) -> None:
    model = weighed(merged(name)(runtime.keras()))
    assert_same(model, model.to_json())


@pytest.mark.parametrize("seed", range(40))
def test_weights_stand_in_keras_order_whatever_the_order_of_the_json(seed: int) -> None:
    """Keras sorts the layers of a graph when it reads the JSON, so their order in the JSON is irrelevant."""
    keras = runtime.keras()
    found = json.loads(drawn(seed)(keras).to_json())
    random.Random(seed).shuffle(found["config"]["layers"])
    text = json.dumps(found)
    assert_same(weighed(keras.models.model_from_json(text), seed), text)


def test_the_order_of_the_json_is_not_that_of_the_weights() -> None:
    """Keras' order of the layers differs from their order in the JSON, so the test before is meaningful."""
    keras = runtime.keras()
    model = weighed(one_branch_longer(keras))
    found = json.loads(model.to_json())
    order = [layer["name"] for layer in found["config"]["layers"]]
    found["config"]["layers"].sort(key=lambda layer: layer["name"])
    assert [layer["name"] for layer in found["config"]["layers"]] != order
    again = keras.models.model_from_json(json.dumps(found))
    assert [layer.name for layer in again.layers] == order


@pytest.mark.parametrize("name", sorted(POINTS))
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_every_net_by_name_is_known(name: str, activation: str) -> None:
    shape = {"image": (9, 8, 3), "series": (9, 4)}.get(name, (6,))
    chosen: dict[str, str | int] = {"activation": activation}
    if name == "nhits":
        # Its blocks subtract: of many units with such weights nothing but rounding would be left.
        chosen["width"] = 4
    given = None if name.endswith("linear") else json.dumps(chosen)
    is_classes = name not in ("dlinear", "nhits", "nlinear")
    ((_, text),) = nets(name, given, NetRows([shape], [NetOutput("y", (3,), is_classes)], None))
    known = own.objects()
    model = weighed(runtime.keras().models.model_from_json(text, custom_objects=known))
    assert_same(model, text)
    has_convolutions = name in ("image", "series")
    assert is_dense(text) is not has_convolutions
    if not has_convolutions:
        assert_counted(model, text)


def test_numbers_in_pieces_are_known() -> None:
    values = np.random.default_rng(5).normal(size=(200, 6))
    values[:, 2] = values[:, 2] > 0
    rows = NetRows([(6,)], [NetOutput("y", (1,), False, Moments([3.0], [2.0]))], None, lambda _: values)
    ((_, text),) = nets("tabm", '{"members": 3, "pieces": 5}', rows)
    layers = json.loads(text)["config"]["layers"]
    assert [layer["config"]["n"] for layer in layers if layer["class_name"] == "RepeatVector"] == [5]
    known = own.objects()
    model = weighed(runtime.keras().models.model_from_json(text, custom_objects=known))
    assert_same(model, text)
    assert_counted(model, text)


VALUES = np.random.default_rng(6).normal(size=(200, 6))
PERIODIC = NetRows(
    [(6,)],
    [NetOutput("y", (1,), False, Moments([3.0], [2.0]))],
    None,
    lambda _: np.where(np.arange(6) == 2, VALUES > 0, 5 + 3 * VALUES) * (np.arange(6) != 4),
)


def test_numbers_with_cosines_are_known() -> None:
    ((_, text),) = nets("realmlp", '{"width": 8, "frequencies": 3}', PERIODIC)
    model = weighed(runtime.keras().models.model_from_json(text))
    assert_same(model, text)
    assert_counted(model, text)


def test_cosines_are_those_of_the_formula() -> None:
    """A column that is a flag or constant gets no cosines."""
    ((_, text),) = nets("realmlp", '{"width": 8, "frequencies": 3, "embedding": 2}', PERIODIC)
    keras, values = runtime.keras(), PERIODIC.values(0).astype(np.float32)
    model = weighed(keras.models.model_from_json(text))
    found = keras.Model(model.inputs, model.get_layer("concatenate_1").output).predict(values, verbose=0)
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
    apart = np.where(high > low, high - low, 1)
    apart[2] = high[2] - low[2] or 0.5
    plain = (values - middle) / apart
    scaled = plain / np.sqrt(1 + (plain / 3) ** 2)
    many = [0, 1, 3, 5]
    rates, shifts = model.get_layer("einsumdense_1").get_weights()
    kernel, bias = model.get_layer("einsumdense_2").get_weights()
    cosines = np.cos(scaled[:, many, None] * rates + shifts)
    wanted = np.einsum("bfk,fkd->bfd", cosines, kernel) + bias
    np.testing.assert_allclose(found[:, :6], scaled, atol=1e-6)
    np.testing.assert_allclose(found[:, 6:], wanted.reshape(200, -1), atol=1e-5)
    assert rates.shape == (4, 3) and kernel.shape == (4, 3, 2)


# The answers of pytabkit 1.8.0 (`PLREmbeddingsLayerCosBias`, activation `linear`) for the weights below.
PYTABKIT = [
    [-0.1558817, -0.0025155, -0.3485787, 0.0060294, 0.8081192, 1.1211105, 2.1576955, 2.522982],
    [0.0375123, 0.1558317, -0.0755528, 0.2010478, 0.5559049, 0.7679907, 0.1254962, 0.0977572],
    [0.3502879, 0.3845865, 0.423872, 0.5577798, 0.2386974, 0.2189779, 0.3464788, 0.4265847],
]


def test_cosines_are_those_of_pytabkit() -> None:
    ((_, text),) = nets("realmlp", '{"width": 8, "frequencies": 2, "embedding": 2}', PERIODIC)
    keras = runtime.keras()
    model = keras.models.model_from_json(text)
    first, last = model.get_layer("einsumdense_1"), model.get_layer("einsumdense_2")
    rates, shifts = np.linspace(-0.3, 0.4, 8).reshape(4, 2), np.linspace(-3, 3, 8).reshape(4, 2)
    # pytabkit multiplies by 2π in each pass; here the rates hold the factor.
    first.set_weights([2 * np.pi * rates, shifts])
    last.set_weights([np.linspace(-1, 1, 16).reshape(4, 2, 2), np.linspace(0.1, 0.8, 8).reshape(4, 2)])
    values = np.linspace(-2.5, 2.5, 12, dtype=np.float32).reshape(3, 4)
    found = keras.Model(first.input, last.output).predict(values, verbose=0)
    np.testing.assert_allclose(found.reshape(3, 8), PYTABKIT, atol=1e-6)


# The answers of pytabkit 1.8.0 (`MedianCenterFactory`, `RobustScaleFactory`, `smooth_clip_func`) for SPREAD.
CLIPPED = [
    [-1.5271233, 0.0, -0.9486833],
    [-0.5394484, 0.0, -0.6948616],
    [-0.0967239, 0.0, -0.4242641],
    [-0.0322562, 0.0, -0.1426954],
    [0.0322562, 0.0, 0.1426954],
    [0.4776973, 0.0, 0.4242641],
    [1.4853975, 0.0, 0.6948616],
    [2.4204261, 1.6641006, 0.9486833],
]
SPREAD = np.stack([np.arange(-3, 5) ** 3.0, np.arange(8) > 6, np.arange(100, 108)], axis=1)


def test_scaled_and_clipped_numbers_are_those_of_pytabkit() -> None:
    rows = NetRows(((3,),), [NetOutput("y", (1,), False, Moments([3.0], [2.0]))], None, lambda _: SPREAD)
    ((_, text),) = nets("realmlp", '{"width": 8, "frequencies": 2, "embedding": 2}', rows)
    keras = runtime.keras()
    model = keras.models.model_from_json(text)
    found = keras.Model(model.inputs, model.get_layer("concatenate_1").output).predict(SPREAD, verbose=0)
    np.testing.assert_allclose(found[:, :3], CLIPPED, atol=1e-6)


def keras_2(shape: list[int]) -> str:
    """Return a graph of layers in the JSON of Keras 2."""

    def layer(kind: str, name: str, config: dict[str, Any], *sources: str) -> dict[str, Any]:
        nodes = [[[source, 0, 0, {}] for source in sources]] if sources else []
        return {"class_name": kind, "name": name, "config": {"name": name, **config}, "inbound_nodes": nodes}

    width = {"units": 4, "activation": "relu", "use_bias": True, "dtype": "float32"}
    layers = [
        layer("InputLayer", "x", {"batch_input_shape": [None, *shape], "dtype": "float32", "sparse": False}),
        layer("Dense", "a", width, "x"),
        layer("Dense", "b", width, "x"),
        layer("Dense", "c", width, "b"),
        layer("Add", "sum", {"dtype": "float32"}, "a", "c"),
    ]
    config = {
        "name": "old", "layers": layers, "input_layers": [["x", 0, 0]], "output_layers": [["sum", 0, 0]],
    }  # fmt: skip
    return json.dumps({"class_name": "Functional", "config": config, "keras_version": "2.4.0"})


def test_a_graph_of_keras_2_is_known() -> None:
    model = weighed(build(describe(keras_2([4])).json))
    assert_same(model, keras_2([4]))


def shared(keras: Any) -> Any:
    x, layer = keras.Input((4,)), keras.layers.Dense(4)
    return keras.Model(x, layer(layer(x)))


def within(keras: Any) -> Any:
    x = keras.Input((4,))
    return keras.Model(x, dense(keras, one_after_the_other(keras)(x)))


def by_names(keras: Any) -> Any:
    one, two = keras.Input((4,), name="z"), keras.Input((4,), name="a")
    return keras.Model({"z": one, "a": two}, keras.layers.Add()([dense(keras, one), two]))


def attending(keras: Any) -> Any:
    x = keras.Input((3, 4))
    return keras.Model(x, keras.layers.MultiHeadAttention(2, 3)(x, x))


def of_other_shapes(keras: Any) -> Any:
    x = keras.Input((3, 4))
    return keras.Model(x, keras.layers.Add()([x, dense(keras, keras.layers.GlobalMaxPooling1D()(x))]))


def while_training(keras: Any) -> Any:
    x = keras.Input((4,))
    return keras.Model(x, keras.layers.Dropout(0.5)(dense(keras, x), training=True))


def of_halves(keras: Any) -> Any:
    x = keras.Input((4,))
    return keras.Model(x, keras.layers.Dense(4, dtype="float16")(x))


def of_any_length(keras: Any) -> Any:
    x = keras.Input((None, 4))
    return keras.Model(x, dense(keras, x))


ELSEWHERE = [
    shared, within, by_names, attending, of_other_shapes, while_training, of_halves, of_any_length,
]  # fmt: skip


@pytest.mark.parametrize("make", ELSEWHERE, ids=lambda make: make.__name__)
def test_other_graphs_are_left_to_an_engine(make: Callable[[Any], Any]) -> None:
    model = make(runtime.keras())
    assert plain_net(model.to_json(), flat(model)) is None
