"""The initial weights of nets with adapters (LoRA), their predictions, and the kernels in their files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cerebro_db import models

from cerebro_plpy.engine import state as states
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import architecture, lora
from cerebro_plpy.engine.models import inference, model
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.params import Call, CompileParams
from cerebro_plpy.threads import Threads
from engines import nothing

pytestmark = pytest.mark.usefixtures("engine")

PARAMS = CompileParams(optimizer=Call("SGD", (("learning_rate", 0.1),)), loss="mse", metrics=[])
# The shape of a row, and what goes before the layer.
LAYERS: dict[str, tuple[tuple[int, ...], Callable[[Any, Any], Any]]] = {
    "Dense": ((6,), lambda layers, x: layers.Dense(5, lora_rank=2, lora_alpha=6)(x)),
    "EinsumDense": (
        (4, 6),
        lambda layers, x: layers.EinsumDense(
            "btd,dhe->bthe", output_shape=(4, 2, 3), bias_axes="he", lora_rank=2
        )(x),
    ),
    "Embedding": (
        (5,),
        lambda layers, x: layers.Embedding(4, 6, lora_rank=2)(layers.Discretization([-1.0, 0.0, 1.0])(x)),
    ),
    "Conv1D": ((8, 3), lambda layers, x: layers.Conv1D(4, 3, lora_rank=2)(x)),
    "Conv2D": ((6, 6, 2), lambda layers, x: layers.Conv2D(4, 3, groups=2, lora_rank=2)(x)),
    "Conv3D": ((4, 4, 4, 2), lambda layers, x: layers.Conv3D(4, 2, lora_rank=2)(x)),
}


def net(name: str) -> Any:
    keras = runtime.keras()
    shape, build = LAYERS[name]
    x = keras.Input(shape)
    found = keras.Model(x, keras.layers.Dense(2)(keras.layers.Flatten()(build(keras.layers, x))))
    random = np.random.default_rng(1)
    for weight in found.weights:
        weight.assign(random.normal(size=weight.shape))
    return found


def flat(arrays: Any) -> bytes:
    return b"".join(np.asarray(array, "<f4").tobytes() for array in arrays)


def rows(name: str) -> np.ndarray:
    return np.random.default_rng(2).normal(size=(9, *LAYERS[name][0])).astype(np.float32)


@pytest.mark.parametrize("name", LAYERS)
def test_predictions_are_those_of_the_adapted_net(name: str) -> None:
    made, x = net(name), rows(name)
    described = architecture.describe(made.to_json())
    assert len(described.adapters) == 1
    forward = inference.inference(described)
    loaded = forward.load(flat(made.get_weights()))
    (found,) = forward.predict_many(loaded, [x], 9, Threads(1, nothing))
    np.testing.assert_allclose(found, made.predict(x, verbose=0), rtol=1e-4, atol=1e-5)
    assert not lora.adapters(forward.model)
    # And those of the base, where these are all the weights that there are.
    base = [w for w in made.weights if not w.name.startswith("lora_")]
    (plain,) = forward.predict_many(forward.load(flat(w.numpy() for w in base)), [x], 9, Threads(1, nothing))
    assert np.abs(plain - found).max() > 1e-3


@pytest.mark.parametrize("name", LAYERS)
def test_a_file_has_plain_kernels(name: str, tmp_path: Path) -> None:
    made, x = net(name), rows(name)
    keras = runtime.keras()
    loaded: Any = keras.models.load_model(models.save(made, tmp_path / "net.keras"))
    assert not lora.adapters(loaded)
    assert len(loaded.weights) == len(made.weights) - 2
    np.testing.assert_allclose(loaded.predict(x, verbose=0), made.predict(x, verbose=0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_a_net_with_adapters_begins_with_the_weights_of_one_without(name: str) -> None:
    made = net(name)
    own = model.compiled(architecture.describe(made.to_json()).json, PARAMS)
    base = [np.asarray(w.numpy()) for w in made.weights if not w.name.startswith("lora_")]
    start = own.initial_state(PARAMS, 3, flat(base))
    seeded = own.initial_state(PARAMS, 3, None)
    for place, array in enumerate(start.arrays[place] for place in start.weight_order):
        if made.weights[place].name.startswith("lora_"):
            np.testing.assert_array_equal(array, seeded.arrays[seeded.weight_order[place]])
        else:
            np.testing.assert_array_equal(array, made.weights[place].numpy())
    (kernel,) = [n for n in start.frozen_places if n in start.weight_order]
    assert start.names[kernel].endswith(("kernel", "embeddings"))
    whole = own.initial_state(PARAMS, 3, flat(made.get_weights()))
    assert states.weights(whole) == flat(made.get_weights())
    with pytest.raises(CerebroError, match="the weights do not fit the architecture"):
        own.initial_state(PARAMS, 3, flat(base[:-1]))
