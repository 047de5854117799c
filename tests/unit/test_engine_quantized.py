"""Adapters on layers with int8 kernels train as in Keras, and other quantized layers are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import architecture
from cerebro_plpy.engine.models import inference, model
from cerebro_plpy.engine.models.data import ONE_HOT, Block, Dataset, Target
from cerebro_plpy.engine.state import from_parts, frozen_from_parts, frozen_to_parts, to_parts, weights
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.params import Call, CompileParams
from cerebro_plpy.threads import Threads
from engines import nothing

pytestmark = pytest.mark.usefixtures("engine")

PARAMS = CompileParams(
    optimizer=Call("Adam", (("learning_rate", 0.05),)), loss="categorical_crossentropy", metrics=[]
)
ROWS, BATCH, CLASSES = 24, 8, 3
Build = Callable[[Any, Any], Any]
# The shape of a row, and the layer.
LAYERS: dict[str, tuple[tuple[int, ...], Build]] = {
    "Dense": ((6,), lambda layers, x: layers.Dense(5, "relu", name="base")(x)),
    "EinsumDense": (
        (4, 6),
        lambda layers, x: layers.EinsumDense(
            "btd,dhe->bthe", output_shape=(4, 2, 3), bias_axes="he", name="base"
        )(x),
    ),
    "Embedding": (
        (5,),
        lambda layers, x: layers.Embedding(4, 6, name="base")(layers.Discretization([-1.0, 0.0, 1.0])(x)),
    ),
}
each = pytest.mark.parametrize("name", LAYERS)


def net(name: str, mode: str = "int8") -> Any:
    """Return a net whose layer "base" is quantized and has an adapter, behind a layer that trains."""
    keras = runtime.keras()
    keras.utils.set_random_seed(4)
    shape, build = LAYERS[name]
    x = keras.Input(shape)
    before = x if name == "Embedding" else keras.layers.Dense(6)(x)
    flat = keras.layers.Flatten()(build(keras.layers, before))
    made = keras.Model(x, keras.layers.Dense(CLASSES, activation="softmax")(flat))
    base = made.get_layer("base")
    base.quantize(mode)
    base.enable_lora(2)
    for weight in made.weights:
        if weight.name.startswith("lora_"):
            weight.assign(np.random.default_rng(3).normal(0, 0.3, weight.shape))
    return made


def flat(made: Any) -> bytes:
    return b"".join(array.astype("<f4").tobytes() for array in made.get_weights())


def rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(2)
    labels = np.eye(CLASSES, dtype=np.int16)[random.integers(0, CLASSES, ROWS)]
    return random.normal(size=(ROWS, *LAYERS[name][0])).astype(np.float32), labels


@each
def test_adapters_on_an_int8_base_have_the_bits_of_keras(name: str) -> None:
    keras, made, (x, labels) = runtime.keras(), net(name), rows(name)
    own = model.compiled(architecture.describe(made.to_json()).json, PARAMS)
    start = own.initial_state(PARAMS, 3, flat(made))
    assert weights(start) == flat(made)
    block = Block(Dataset([x], [Target(labels, ONE_HOT)]), np.arange(ROWS))
    trained, _ = own.train(start, [[block]], BATCH, None, nothing, rows=ROWS)

    alone = keras.models.model_from_json(made.to_json())
    alone.set_weights(made.get_weights())
    alone.compile(keras.optimizers.Adam(0.05), PARAMS.loss)
    alone.fit(x, labels, batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
    found = [trained.arrays[place] for place in trained.weight_order]
    assert [a.tobytes() for a in found] == [a.tobytes() for a in alone.get_weights()]
    changed = [w.name for w, a in zip(made.weights, found, strict=True) if (a != w.numpy()).any()]
    assert "lora_kernel_b" in changed or "lora_embeddings_b" in changed


@each
def test_an_int8_kernel_stands_once_and_does_not_hop(name: str) -> None:
    made = net(name)
    own = model.compiled(architecture.describe(made.to_json()).json, PARAMS)
    state = own.initial_state(PARAMS, 3, flat(made))
    frozen = {
        state.names[place].rsplit("/", 1)[1]: state.arrays[place].dtype for place in state.frozen_places
    }
    kernel = "embeddings" if name == "Embedding" else "kernel"
    assert frozen == {kernel: np.dtype("int8"), f"{kernel}_scale": np.dtype("float32")}
    known = state.frozen
    assert known is not None
    again = from_parts(to_parts(state), lambda digest: frozen_from_parts(digest, frozen_to_parts(known)))
    assert [a.tobytes() for a in again.arrays] == [a.tobytes() for a in state.arrays]


@each
def test_predictions_are_those_of_keras(name: str) -> None:
    made, (x, _) = net(name), rows(name)
    forward = inference.inference(architecture.describe(made.to_json()))
    (found,) = forward.predict_many(forward.load(flat(made)), [x], ROWS, Threads(1, nothing))
    np.testing.assert_allclose(found, made.predict(x, verbose=0), rtol=1e-5, atol=1e-6)
    (bound,) = forward.bound(forward.load(flat(made)), flat(made))([x])
    np.testing.assert_allclose(bound, found, rtol=1e-5, atol=1e-6)
    # Of the base alone, where these are all the weights that there are.
    base = b"".join(w.numpy().astype("<f4").tobytes() for w in made.weights if not w.name.startswith("lora_"))
    for weight in made.weights:
        if weight.name.startswith("lora_"):
            weight.assign(np.zeros(weight.shape))
    (plain,) = forward.predict_many(forward.load(base), [x], ROWS, Threads(1, nothing))
    np.testing.assert_allclose(plain, made.predict(x, verbose=0), rtol=1e-5, atol=1e-6)
    assert np.abs(plain - found).max() > 1e-3


def quantized(policy: Any, layer: str = "Dense", **config: Any) -> str:
    first = {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [None, 8]}}
    own = {"module": "keras.layers", "class_name": layer, "config": {**config, "dtype": policy}}
    layers = {"name": "net", "layers": [first, own]}
    return json.dumps({"module": "keras", "class_name": "Sequential", "config": layers})


def policy(kind: str, mode: str) -> dict[str, Any]:
    config = {"mode": mode, "source_name": "float32"}
    return {"module": "keras.dtype_policies", "class_name": kind, "config": config, "registered_name": None}


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("int4_from_float32", "two numbers in a byte"),
        (policy("Int4DTypePolicy", "int4/-1"), "two numbers in a byte"),
        ("float8_from_float32", "scales change in training"),
        (policy("QuantizedFloat8DTypePolicy", "float8"), "scales change in training"),
        (policy("QuantizedDTypePolicy", "float8"), "scales change in training"),
        ("gptq/4/128_from_float32", "What calibrated it"),
        (policy("AWQDTypePolicy", "awq/4/128"), "What calibrated it"),
        (policy("QuantizedDTypePolicy", "other"), "Dense, EinsumDense, Embedding with int8"),
    ],
)
def test_another_kind_of_quantization_is_refused_with_the_reason(written: Any, reason: str) -> None:
    with pytest.raises(CerebroError, match="a Dense quantized as") as refused:
        architecture.describe(quantized(written, units=4))
    assert reason in str(refused.value.detail)


def test_int8_is_for_the_layers_that_keep_their_kernels() -> None:
    assert architecture.describe(quantized("int8_from_float32", units=4)).parameters == 8 * 4 + 4 + 4
    with pytest.raises(CerebroError, match="a Dropout quantized as int8"):
        architecture.describe(quantized("int8_from_float32", "Dropout", rate=0.1))
