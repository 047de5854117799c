"""Layers of KerasHub that are pure data are accepted if KerasHub is installed; its other layers never are."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cerebro_db import pretrained

from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import architecture, hub
from cerebro_plpy.engine.models import inference, model
from cerebro_plpy.engine.models.data import ONE_HOT, Block, Dataset, Target
from cerebro_plpy.engine.state import weights
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.params import Call, CompileParams
from cerebro_plpy.threads import Threads
from engines import BACKEND, nothing

pytestmark = pytest.mark.usefixtures("engine")

PARAMS = CompileParams(
    optimizer=Call("SGD", (("learning_rate", 0.05),)), loss="categorical_crossentropy", metrics=[]
)
ROWS, BATCH, CLASSES, WORDS, LENGTH = 24, 8, 3, 20, 6


def named(name: str, **changes: Any) -> dict[str, Any]:
    own = {
        "module": "keras_hub.src.layers.modeling.somewhere",
        "class_name": name,
        "config": {"name": "own", "intermediate_dim": 4, "num_heads": 2},
        "registered_name": f"keras_hub>{name}",
    }
    return {**own, **changes}


def holding(layer: dict[str, Any]) -> str:
    first = {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [None, 6, 8]}}
    return json.dumps(
        {"module": "keras", "class_name": "Sequential", "config": {"name": "net", "layers": [first, layer]}}
    )


def test_without_keras_hub_the_refusal_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(CerebroError, match='"TransformerEncoder" of KerasHub, which is not') as said:
        architecture.describe(holding(named("TransformerEncoder")))
    assert "requirements/hub.lock" in str(said.value.hint)


@pytest.mark.parametrize(
    "layer",
    [
        named("BertTokenizer"),
        named("BertBackbone"),
        named("BertTextClassifierPreprocessor"),
        named("MaskedLMHead"),
        named("Backbone", module="keras_hub.models"),
        named("Dense"),
        named("TransformerEncoder", registered_name="keras_hub>BertTokenizer"),
        named("TransformerEncoder", registered_name="other>TransformerEncoder"),
        named("os.system", module="keras_hub"),
        named("function", config="keras_hub>from_preset"),
        named("function", config="gelu_approximate", registered_name="keras_hub>other"),
        named("Dense", module="keras.layers"),
        named("Dense", module="keras.layers", registered_name="keras_hub>TransformerEncoder"),
    ],
    ids=lambda layer: f"{layer['class_name']} {layer['registered_name']}",
)
def test_what_is_not_on_the_list_is_refused_before_keras_hub_is_imported(
    layer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "keras_hub", raising=False)
    with pytest.raises(CerebroError, match="of KerasHub, which is not allowed"):
        architecture.describe(holding(layer))
    assert "keras_hub" not in sys.modules


@pytest.mark.parametrize("kind", ["float8_from_float32", "int4_from_float32", "int8_from_float32"])
def test_its_layers_are_not_quantized(kind: str) -> None:
    config = {"name": "own", "intermediate_dim": 4, "num_heads": 2, "dtype": kind}
    with pytest.raises(CerebroError, match="quantized as"):
        architecture.describe(holding(named("TransformerEncoder", config=config)))


def test_a_backbone_is_refused_with_what_to_do() -> None:
    with pytest.raises(CerebroError, match='"BertBackbone" of KerasHub') as refused:
        architecture.describe(holding(named("BertBackbone")))
    assert "load_pretrained" in str(refused.value.detail)


@pytest.fixture
def layers() -> Iterator[Any]:
    """Register the layers of KerasHub under the names that they have in a user's process; yield keras_hub."""
    wanted = {hub.registered_name(name) for name in hub.LAYERS | hub.FUNCTIONS}
    names = runtime.keras().src.saving.object_registration.GLOBAL_CUSTOM_NAMES
    made = {found: name for name, found in hub.objects(wanted).items()}
    names.update(made)
    yield sys.modules["keras_hub"]
    for found in made:
        del names[found]


def encoder(layers: Any) -> Any:
    """Return a net that embeds words and encodes them by a KerasHub transformer."""
    keras = runtime.keras()
    keras.utils.set_random_seed(3)
    x = keras.Input((LENGTH,), dtype="int32")
    y = layers.layers.TokenAndPositionEmbedding(WORDS, LENGTH, 8, name="words")(x)
    y = layers.layers.TransformerEncoder(16, 2, dropout=0.1, name="encoder")(y)
    y = keras.layers.GlobalAveragePooling1D()(y)
    return keras.Model(x, keras.layers.Dense(CLASSES, activation="softmax")(y))


def flat(net: Any) -> bytes:
    return b"".join(array.astype("<f4").tobytes() for array in net.get_weights())


def words() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(2)
    labels = np.eye(CLASSES, dtype=np.int16)[random.integers(0, CLASSES, ROWS)]
    return random.integers(0, WORDS, (ROWS, LENGTH)).astype(np.float32), labels


def test_its_layers_train_and_predict_as_in_keras(layers: Any) -> None:
    keras, net, (x, labels) = runtime.keras(), encoder(layers), words()
    described = architecture.describe(net.to_json())
    own = model.compiled(described.json, PARAMS)
    start = own.initial_state(PARAMS, 3, flat(net))
    block = Block(Dataset([x], [Target(labels, ONE_HOT)]), np.arange(ROWS))
    trained, _ = own.train(start, [[block]], BATCH, None, nothing, rows=ROWS)

    keras.utils.set_random_seed(3)
    known = hub.objects({"keras_hub>TransformerEncoder", "keras_hub>TokenAndPositionEmbedding"})
    alone = keras.models.model_from_json(described.json, custom_objects=known)
    alone.set_weights(net.get_weights())
    alone.compile(keras.optimizers.SGD(0.05), PARAMS.loss)
    alone.fit(x, labels, batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
    found = [trained.arrays[place] for place in trained.weight_order]
    if BACKEND == "jax":
        assert [a.tobytes() for a in found] == [a.tobytes() for a in alone.get_weights()]
    # TensorFlow arranges attention otherwise in another function, Keras' own MultiHeadAttention as well.
    for one, other in zip(found, alone.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    forward = inference.inference(described)
    (predicted,) = forward.predict_many(forward.load(weights(trained)), [x], ROWS, Threads(1, nothing))
    np.testing.assert_allclose(predicted, alone.predict(x, verbose=0), rtol=1e-5, atol=1e-6)


def test_frozen_they_are_a_trunk(layers: Any) -> None:
    _, config = pretrained.prepared(encoder(layers), layer="encoder", head="Dense(3)", freeze="*")
    found = architecture.describe(json.dumps(config))
    (last,) = [one for one in found.trunk if one.leaves]
    assert last.name == "head_pooled"
    own = model.compiled(found.json, PARAMS)
    start = own.initial_state(PARAMS, 3, None)
    hopping = set(range(len(start.arrays))) - set(start.frozen_places)
    assert not [start.names[place] for place in hopping if "encoder" in start.names[place]]


@pytest.mark.parametrize(
    ("name", "config", "end"),
    [
        ("BertBackbone", {"intermediate_dim": 16, "num_segments": 2}, "pooled_dense"),
        ("RobertaBackbone", {"intermediate_dim": 16}, "transformer_layer_1"),
        ("DistilBertBackbone", {"intermediate_dim": 16}, "transformer_layer_1"),
        ("GPT2Backbone", {"intermediate_dim": 16}, "layer_norm"),
        ("OPTBackbone", {"intermediate_dim": 16}, "layer_norm"),
        ("FNetBackbone", {"intermediate_dim": 16, "num_segments": 2}, "pooled_dense"),
    ],
)
def test_a_backbone_comes_as_the_graph_of_its_layers(
    layers: Any, name: str, config: dict[str, Any], end: str
) -> None:
    keras = runtime.keras()
    heads = {} if name == "FNetBackbone" else {"num_heads": 2}
    make = getattr(layers.models, name)
    backbone = make(
        vocabulary_size=WORDS, num_layers=2, hidden_dim=8, max_sequence_length=LENGTH, **heads, **config
    )
    rows = pretrained.PackedRows([[LENGTH]] * len(backbone.inputs), "kind", CLASSES, [CLASSES])
    net, made = pretrained.prepared(backbone, rows, layer=end, freeze="*")
    found = architecture.describe(json.dumps(made))
    assert set(found.inputs) == {(LENGTH,)} and found.outputs == ((CLASSES,),)
    assert found.parameters == net.count_params()
    # Of one that stands inside of another net, too.
    out = backbone(backbone.input)
    out = next(iter(out.values())) if isinstance(out, dict) else out
    within = keras.Model(backbone.input, keras.layers.Dense(2)(out))
    _, nested = pretrained.prepared(within)
    assert architecture.describe(json.dumps(nested)).parameters == within.count_params()


def test_nothing_of_keras_hub_is_found_by_its_name_alone(layers: Any) -> None:
    """Keras looks up an initializer's name among all registered classes; it must not find KerasHub's."""
    dense = {"units": 2, "kernel_initializer": "keras_hub>BertTokenizer"}
    layer = {"module": "keras.layers", "class_name": "Dense", "config": dense}
    with pytest.raises(CerebroError, match="Keras cannot build"):
        architecture.describe(holding(layer))
    assert "kagglehub" not in sys.modules and "huggingface_hub" not in sys.modules
