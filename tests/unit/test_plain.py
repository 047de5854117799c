"""The forward pass in NumPy, without an engine, computes each layer that it knows as Keras does."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import every_layer
import nets
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.plain.activations import ACTIVATIONS
from cerebro_plpy.engine.plain.forward import LAYERS, NotHere, is_dense, plain_net

pytestmark = pytest.mark.usefixtures("engine")

FLAT, STEPS, PLANE = (6,), (9, 4), (9, 8, 3)
ROWS = 5
SAME: list[dict[str, Any]] = [
    {"padding": "same"}, {"padding": "same", "strides": 2}, {"padding": "same", "strides": 3},
]  # fmt: skip
CONVOLVED: list[dict[str, Any]] = [
    {}, {"strides": 2}, {"dilation_rate": 2}, {"use_bias": False, "activation": "relu"}, *SAME,
    {"padding": "same", "dilation_rate": 2},
]  # fmt: skip
POOLED: list[dict[str, Any]] = [
    {"pool_size": size, **one} for size in (2, 3) for one in [{}, {"strides": 1}, *SAME]
]
CARRIED: list[dict[str, Any]] = [
    {}, {"return_sequences": True}, {"go_backwards": True}, {"use_bias": False}, {"activation": "relu"},
    {"return_sequences": True, "go_backwards": True, "dropout": 0.5},
]  # fmt: skip
SPREAD = np.arange(1.0, 37).reshape(STEPS)
EACH = {"axis": [1, 2], "mean": SPREAD.tolist(), "variance": (SPREAD**2).tolist()}
GATED = [*CARRIED, {"recurrent_activation": "hard_sigmoid"}]
# The shape of a row for each layer, and the parameters that are tried.
TRIED: dict[str, tuple[tuple[int, ...], list[dict[str, Any]]]] = {
    "Activation": (FLAT, [{"activation": name} for name in sorted(ACTIVATIONS)]),
    "ActivityRegularization": (FLAT, [{"l2": 0.1}]),
    "AlphaDropout": (FLAT, [{"rate": 0.3}]),
    "AveragePooling1D": (STEPS, POOLED),
    "AveragePooling2D": (PLANE, POOLED),
    "BatchNormalization": (PLANE, [{}, {"scale": False}, {"center": False, "epsilon": 0.1}, {"axis": 3}]),
    "Conv1D": (
        STEPS,
        [{"filters": 3, "kernel_size": 3, **one} for one in [*CONVOLVED, {"padding": "causal"}]],
    ),
    "Conv2D": (PLANE, [{"filters": 4, "kernel_size": [3, 2], **one} for one in CONVOLVED]),
    "Cropping1D": (STEPS, [{}, {"cropping": 2}, {"cropping": [8, 0]}]),
    "Dense": (STEPS, [{"units": 3}, {"units": 3, "use_bias": False, "activation": "softmax"}]),
    "Dropout": (FLAT, [{"rate": 0.3}]),
    "Embedding": (FLAT, [{"input_dim": 7, "output_dim": 3}]),
    "EinsumDense": (
        STEPS,
        [
            {"equation": "bki,ki->bki", "output_shape": [STEPS[0], STEPS[1]]},
            {"equation": "bki,kio->bko", "output_shape": [STEPS[0], 3], "bias_axes": "ko"},
            {"equation": "bki,io->bko", "output_shape": [None, 3], "activation": "relu"},
            {"equation": "bti,tij->bij", "output_shape": [STEPS[1], 5], "bias_axes": "ij"},
        ],
    ),
    "Flatten": (PLANE, [{}]),
    "GRU": (STEPS, [{"units": 3, **one} for one in GATED]),
    "GaussianDropout": (FLAT, [{"rate": 0.3}]),
    "GaussianNoise": (FLAT, [{"stddev": 0.3}]),
    "GlobalAveragePooling1D": (STEPS, [{}]),
    "GlobalAveragePooling2D": (PLANE, [{}]),
    "GlobalMaxPooling1D": (STEPS, [{}]),
    "GlobalMaxPooling2D": (PLANE, [{}]),
    "Identity": (FLAT, [{}]),
    "LSTM": (STEPS, [{"units": 3, **one} for one in [*GATED, {"unit_forget_bias": False}]]),
    "LayerNormalization": (STEPS, [{}, {"scale": False, "epsilon": 0.1}, {"center": False}]),
    "LeakyReLU": (FLAT, [{}, {"negative_slope": 0.7}]),
    "MaxPooling1D": (STEPS, POOLED),
    "MaxPooling2D": (PLANE, POOLED),
    "Normalization": (STEPS, [{}, {"mean": [1.0, 2, 3, 4], "variance": [4.0, 1, 0, 2]}, EACH]),
    "Permute": (PLANE, [{"dims": [3, 1, 2]}]),
    "ReLU": (FLAT, [{}, {"max_value": 0.5}, {"negative_slope": 0.1}]),
    "RepeatVector": (FLAT, [{"n": 3}]),
    "Rescaling": (
        FLAT,
        [{"scale": 0.1}, {"scale": 2, "offset": -1.5}, {"scale": [1.0, 2, 3, 4, 5, 6], "offset": [0.5] * 6}],
    ),
    "Reshape": (FLAT, [{"target_shape": [3, 2]}, {"target_shape": [-1, 3]}]),
    "SimpleRNN": (STEPS, [{"units": 3, **one} for one in CARRIED]),
    "Softmax": (STEPS, [{}, {"axis": 2}]),
    "SpatialDropout1D": (STEPS, [{"rate": 0.3}]),
    "SpatialDropout2D": (PLANE, [{"rate": 0.3}]),
}
# tests/unit/test_plain_graphs.py tests layers of several inputs and layers that Keras does not have.
SEVERAL = {
    "Add",
    "Arctan",
    "Average",
    "Concatenate",
    "Cos",
    "Log",
    "Maximum",
    "Members",
    "Minimum",
    "Multiply",
    "Sin",
    "Take",
}
CASES = [(name, shape, params) for name, (shape, tried) in TRIED.items() for params in tried]
# Layers with parameters that only an engine computes.
ELSEWHERE: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("Conv2D", PLANE, {"filters": 3, "kernel_size": 3, "groups": 3}),
    ("BatchNormalization", PLANE, {"axis": 1}),
    ("EinsumDense", STEPS, {"equation": "...i,io->...o", "output_shape": 3}),
    ("Embedding", FLAT, {"input_dim": 7, "output_dim": 3, "mask_zero": True}),
    ("GRU", STEPS, {"units": 3, "reset_after": False}),
    ("GlobalMaxPooling1D", STEPS, {"keepdims": True}),
    ("ReLU", FLAT, {"threshold": 1.0}),
    ("Softmax", STEPS, {"axis": 1}),
    ("Dense", FLAT, {"units": 3, "dtype": "float64"}),
    ("Dense", FLAT, {"units": 3, "activation": "hard_silu"}),
    ("UnitNormalization", FLAT, {}),
]


def made(name: str, shape: tuple[int, ...], params: dict[str, Any]) -> tuple[Any, np.ndarray]:
    """Return a Keras net of the named layer with random weights, and rows for it."""
    keras = runtime.keras()
    net = keras.Sequential([keras.Input(shape), getattr(keras.layers, name)(**params)])
    random = np.random.default_rng(7)
    given = [random.normal(size=array.shape) for array in net.get_weights()]
    names = [variable.name for variable in net.weights]
    every_layer.put(
        net, [np.abs(one) if "variance" in n else one for one, n in zip(given, names, strict=True)]
    )
    x = random.normal(size=(ROWS, *shape)).astype("float32")
    return net, np.floor(np.abs(x) * 2) if name == "Embedding" else x


def flat(net: Any) -> bytes:
    return b"".join(np.asarray(array).astype("<f4").tobytes() for array in net.get_weights())


def test_every_layer_that_it_knows_is_tried() -> None:
    assert TRIED.keys() | SEVERAL == LAYERS.keys()


@pytest.mark.parametrize(("name", "shape", "params"), CASES, ids=str)
def test_a_layer_gives_what_keras_gives(name: str, shape: tuple[int, ...], params: dict[str, Any]) -> None:
    net, x = made(name, shape, params)
    plain = plain_net(net.to_json(), flat(net))
    assert plain is not None
    (found,) = plain([x])
    expected = net.predict(x, verbose=0)
    assert (plain.described.outputs, found.dtype) == ((expected.shape[1:],), np.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "shape", "params"), ELSEWHERE, ids=str)
def test_what_it_does_not_know_is_left_to_an_engine(
    name: str, shape: tuple[int, ...], params: dict[str, Any]
) -> None:
    net, _ = made(name, shape, params)
    assert plain_net(net.to_json(), flat(net)) is None


def test_a_whole_net_gives_what_keras_gives() -> None:
    keras = runtime.keras()
    for text in (nets.cnn(), nets.mlp_with_dropout()):
        net = keras.models.model_from_json(text)
        every_layer.put(net, [np.abs(array) + 0.1 for array in net.get_weights()])
        x = np.random.default_rng(1).normal(size=(ROWS, *net.input_shape[1:])).astype("float32")
        plain = plain_net(text, flat(net))
        assert plain is not None
        np.testing.assert_allclose(plain([x])[0], net.predict(x, verbose=0), rtol=1e-5, atol=1e-5)


def test_what_is_malformed_or_branches_is_left_to_an_engine() -> None:
    good = json.loads(nets.mlp())
    keras = runtime.keras()
    weights = flat(keras.models.model_from_json(nets.mlp()))
    assert plain_net(json.dumps(good), weights) is not None
    assert plain_net(json.dumps(good), weights + bytes(4)) is None
    assert plain_net(json.dumps(good), weights[:-4]) is None
    assert plain_net("[]", b"") is None
    assert plain_net(json.dumps({**good, "class_name": "Functional"}), weights) is None
    good["config"]["layers"][1]["registered_name"] = "cerebro>mine@0"
    assert plain_net(json.dumps(good), weights) is None


def test_nets_with_convolutions_recurrent_or_unknown_layers_are_not_dense() -> None:
    assert is_dense(nets.mlp()) and is_dense(nets.mlp_with_dropout())
    assert not is_dense(nets.cnn()) and not is_dense(nets.lstm())
    other = json.loads(nets.mlp())
    other["config"]["layers"][1]["registered_name"] = "cerebro>mine@0"
    assert not is_dense(json.dumps(other)) and not is_dense("[]")


def test_a_word_that_an_embedding_does_not_have_is_an_engines_matter() -> None:
    net, x = made("Embedding", FLAT, {"input_dim": 7, "output_dim": 3})
    plain = plain_net(net.to_json(), flat(net))
    assert plain is not None
    with pytest.raises(NotHere):
        plain([x + 7])


def test_an_embedding_looks_up_a_single_value_as_it_does_many() -> None:
    net, _ = made("Embedding", (1,), {"input_dim": 7, "output_dim": 3})
    plain = plain_net(net.to_json(), flat(net))
    assert plain is not None
    places = np.arange(7, dtype=np.float32).reshape(-1, 1)
    (together,) = plain([places])
    for place, expected in zip(places, together, strict=True):
        np.testing.assert_array_equal(plain([place[np.newaxis]])[0][0], expected)
    for absent in (-1, 7, np.nan, np.inf):
        with pytest.raises(NotHere):
            plain([np.full((1, 1), absent, np.float32)])
