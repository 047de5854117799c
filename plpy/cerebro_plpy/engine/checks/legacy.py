"""Translates architectures that Keras 2 wrote into Keras 3's form."""

from __future__ import annotations

from typing import Any

from cerebro_plpy.engine.checks import validate
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib import registered
from cerebro_plpy.madlib.registered import LAYER

# Arguments that Keras 3 has no more, or that had one legal value only.
_DROPPED = (
    "batch_input_shape",
    "ragged",
    "sparse",
    "implementation",
    "time_major",
    "keras_version",
    "backend",
)
_RENAMED_LAYERS = {
    "BatchNormalizationV1": "BatchNormalization",
    "BatchNormalizationV2": "BatchNormalization",
    "CuDNNLSTM": "LSTM",
    "CuDNNGRU": "GRU",
    "LSTMV2": "LSTM",
    "GRUV2": "GRU",
    "SyncBatchNormalization": "BatchNormalization",
}
_RENAMED_ARGUMENTS = {
    "LeakyReLU": {"alpha": "negative_slope"},
    "Dropout": {"p": "rate"},
    "Dense": {"output_dim": "units", "init": "kernel_initializer", "W_regularizer": "kernel_regularizer"},
}
_MODULES = (
    ("keras.initializers", validate.INITIALIZERS),
    ("keras.regularizers", validate.REGULARIZERS),
    ("keras.constraints", validate.CONSTRAINTS),
)


def is_legacy(config: dict[str, Any]) -> bool:
    """Return whether Keras 2 wrote an architecture.

    Keras 3 writes a module beside every class name. The last versions of Keras 2 did so only for inner
    objects.
    """
    if "module" in config:
        return False
    inner = config.get("config")
    layers = inner.get("layers") if isinstance(inner, dict) else inner
    first = layers[0] if isinstance(layers, list) and layers else {}
    return not (isinstance(first, dict) and str(first.get("module", "")).startswith("keras.layers"))


def translate(config: dict[str, Any]) -> dict[str, Any]:
    """Return an architecture in the form of Keras 3, converted from the form of Keras 2."""
    return _model(config)


def _model(found: dict[str, Any]) -> dict[str, Any]:
    inner = found["config"]
    if isinstance(inner, list):
        inner = {"name": "sequential", "layers": inner}
    if not isinstance(inner, dict) or not isinstance(inner.get("layers"), list):
        raise CerebroError("the architecture holds no list of layers")
    if found["class_name"] == "Sequential":
        return _sequential(inner)
    return _functional(found, inner)


def _sequential(inner: dict[str, Any]) -> dict[str, Any]:
    layers = [_layer(layer) for layer in inner["layers"]]
    first = inner["layers"][0] if inner["layers"] else {}
    shape = _input_shape(first)
    if shape is not None and layers[0]["class_name"] != "InputLayer":
        layers.insert(0, _input_layer(shape, _fields(first)))
    config = {"name": inner.get("name", "sequential"), "trainable": True, "layers": layers}
    return _object("keras", "Sequential", config)


def _input_shape(layer: dict[str, Any]) -> list[int | None] | None:
    """Return the input shape in the config of a first layer, or of the layer that it wraps; else None."""
    inner = _fields(layer)
    if layer.get("class_name") in validate.MODELS:
        return None
    for key in ("batch_input_shape", "batch_shape"):
        if inner.get(key) is not None:
            return list(inner[key])
    wrapped = inner.get("layer")
    return _input_shape(wrapped) if isinstance(wrapped, dict) else None


def _input_layer(shape: list[int | None], first: dict[str, Any]) -> dict[str, Any]:
    config = {
        "batch_shape": shape,
        "dtype": "float32",
        "name": f"{first.get('name', 'first')}_input",
    }
    return _object("keras.layers", "InputLayer", config)


def _functional(found: dict[str, Any], inner: dict[str, Any]) -> dict[str, Any]:
    """Return a functional model in Keras 3's form.

    Its inbound nodes stay as Keras 2 wrote them, since Keras 3 also reads that form.
    """
    layers = []
    for old in inner["layers"]:
        new = _layer(old)
        new["name"] = old.get("name", new["config"].get("name"))
        new["inbound_nodes"] = old.get("inbound_nodes", [])
        layers.append(new)
    config = {
        "name": inner.get("name", "model"),
        "trainable": inner.get("trainable", True),
        "layers": layers,
        "input_layers": inner.get("input_layers", []),
        "output_layers": inner.get("output_layers", []),
    }
    if found["class_name"] not in ("Model", "Functional"):
        raise CerebroError(f'the architecture is a "{found["class_name"]}", not a model')
    return _object("keras.src.models.functional", "Functional", config)


def _layer(found: dict[str, Any]) -> dict[str, Any]:
    name = found.get("class_name") if isinstance(found, dict) else None
    if not isinstance(name, str):
        raise CerebroError("the architecture holds a layer without a class name")
    if name in validate.MODELS:
        return _model(found)
    name = _RENAMED_LAYERS.get(name, name)
    return _object("keras.layers", name, _arguments(name, _fields(found)))


def _arguments(name: str, old: dict[str, Any]) -> dict[str, Any]:
    renamed = _RENAMED_ARGUMENTS.get(name, {})
    old = {**old, "dtype": _policy(old.get("dtype"))}
    new = {renamed.get(k, k): _value(v) for k, v in old.items() if k not in _DROPPED}
    if name == "InputLayer":
        new["batch_shape"] = old.get("batch_shape") or old.get("batch_input_shape")
    if name == "BatchNormalization" and isinstance(new.get("axis"), list):
        new["axis"] = new["axis"][0]
    return new


def _policy(dtype: Any) -> str:
    """Return the name of a dtype policy, which may be a name or an object in Keras 2; float32 if missing."""
    if isinstance(dtype, dict):
        dtype = _fields(dtype).get("name")
    return dtype if isinstance(dtype, str) else "float32"


def _value(value: Any) -> Any:
    """Return a value of a layer's config in Keras 3's form, for example an initializer or an inner layer."""
    if isinstance(value, list):
        return [_value(item) for item in value]
    if not isinstance(value, dict) or "class_name" not in value:
        return value
    name = value["class_name"]
    if (
        name in validate.MODELS
        or name in validate.LAYERS
        or name in _RENAMED_LAYERS
        or ("module" not in value and isinstance(name, str) and registered.find(name, (LAYER,)))
    ):
        return _layer(value)
    if "module" in value:
        return value
    return _part(name, _fields(value))


def _part(name: str, config: dict[str, Any]) -> dict[str, Any]:
    for module, names in _MODULES:
        if name in names:
            return _object(module, name, {k: v for k, v in config.items() if k not in ("dtype",)})
    raise CerebroError(f'the architecture holds "{name}", which is not a built-in part of Keras')


def _fields(found: dict[str, Any]) -> dict[str, Any]:
    config = found.get("config", {})
    return config if isinstance(config, dict) else {}


def _object(module: str, name: str, config: dict[str, Any]) -> dict[str, Any]:
    return {"module": module, "class_name": name, "config": config, "registered_name": None}
