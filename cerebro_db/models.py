"""Builds `keras.Model` objects from what the server stores, and writes them to files."""

from __future__ import annotations

import functools
import importlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from cerebro_db import losses
from cerebro_db.errors import CerebroError, needs, other_file
from cerebro_db.link import Row

_LAYER = re.compile(r"cerebro>(\w+)@[0-9a-f]{64}")
_HUB = "keras_hub"
# The server's layer for nets with several members; it matters only in training, and predicts its input.
_MEMBERS = "cerebro>Members"
_COMPILE = ("optimizer", "loss", "metrics", "loss_weights", "weighted_metrics")


def library() -> Any:
    """Return the Keras module; raise CerebroError with a hint if Keras is not installed."""
    try:
        import keras
    except ImportError:
        raise needs("keras", "Keras, which live models come from,") from None
    return keras


def build(
    architecture: str, params: Mapping[str, Any], state: Sequence[Row], custom: Mapping[str, Any]
) -> Any:
    """Build and compile a model, and set its variables and those of its optimizer from a config's state.

    With `unfreeze_at`, the layers train that the optimizer of the state has variables for.
    """
    keras = library()
    known = {**losses.make_losses(keras), **custom}
    stages = _stages(params.get("unfreeze_at") or {})
    while True:
        model = _model(keras, architecture, known)
        _thaw(model, stages.pop())
        model.compile(**{key: _made(keras, params[key], known) for key in _COMPILE})
        model.optimizer.build(model.trainable_variables)
        # A state may have further variables, which belong to the server's engine.
        variables = [*model.variables, *model.optimizer.variables]
        if not stages or _fits(state, variables):
            break
    if len(state) < len(variables):
        raise CerebroError(
            f"the state has {len(state)} variables, and this Keras makes {len(variables)} of the same config",
            hint=f"Here is Keras {keras.__version__}: is it the version of the server's?",
        )
    for row, variable in zip(state, variables, strict=False):
        _assign(row, variable)
    for layer in normalizations(model):
        layer.finalize_state()
    return model


def _stages(unfreeze_at: Mapping[str, str | Sequence[str]]) -> list[list[str]]:
    """Return the patterns of the layers that train in each stage of a config, the first stage first."""
    found: list[list[str]] = [[]]
    for epoch in sorted(unfreeze_at, key=int):
        named = unfreeze_at[epoch]
        found.append([*found[-1], *([named] if isinstance(named, str) else named)])
    return found


def _thaw(model: Any, patterns: Sequence[str]) -> None:
    for layer in model._flatten_layers(include_self=False):
        if any(fnmatchcase(layer.name, pattern) for pattern in patterns):
            for one in layer._flatten_layers():
                one.trainable = True


def _fits(state: Sequence[Row], variables: Sequence[Any]) -> bool:
    """Return whether a state has the given variables, and no others of the optimizer's."""
    shapes = [tuple(row["shape"]) for row in state[: len(variables)]]
    more = state[len(variables) :]
    return shapes == [tuple(one.shape) for one in variables] and all(
        row["kind"] != "optimizer" for row in more
    )


def restore(architecture: str, weights: bytes, custom: Mapping[str, Any]) -> Any:
    """Build a model from an architecture and its weights (float32, array after array); do not compile it."""
    import numpy as np

    keras = library()
    model = _model(keras, architecture, {**losses.make_losses(keras), **custom})
    values, first = np.frombuffer(weights, "<f4"), 0
    if len(values) != sum(math.prod(variable.shape) for variable in model.weights):
        raise CerebroError(
            f"the weights are {len(values)} numbers, and the net that this Keras makes has another number",
            hint=f"Here is Keras {keras.__version__}: is it the version of the server's?",
        )
    for variable in model.weights:
        size = math.prod(variable.shape)
        variable.assign(values[first : first + size].reshape(variable.shape))
        first += size
    for layer in normalizations(model):
        layer.finalize_state()
    return model


def normalizations(model: Any) -> list[Any]:
    """Return the Normalization layers of a model whose mean and variance are weights, not arguments.

    Such a layer uses new weights only after its method `finalize_state` was called.
    """
    kind = library().layers.Normalization
    return [
        layer
        for layer in model._flatten_layers()  # pyright: ignore[reportPrivateUsage]
        if isinstance(layer, kind) and layer.input_mean is None
    ]


def _model(keras: Any, architecture: str, known: Mapping[str, Any]) -> Any:
    if f'"{_HUB}>' in architecture:
        _import_hub()
    config = json.loads(architecture, object_hook=_without_members)
    found = sorted(_registered(config))
    for name in found:
        if name not in known:
            raise _missing(name)
    try:
        model = keras.saving.deserialize_keras_object(
            config, custom_objects={name: known[name] for name in found}
        )
        _hold(model)
        return model
    except Exception as error:  # of any kind, with words from the architecture in its message
        raise CerebroError(
            "this Keras cannot make the model of its architecture",
            detail=f"{type(error).__name__}: {error}",
            hint=f"Here is Keras {keras.__version__}: is it the version of the server's?",
        ) from error


def _without_members(found: dict[str, Any]) -> dict[str, Any]:
    """Return a layer's config, with the server's layer Members replaced by Keras' Identity.

    A file with the model then needs no code of this package.
    """
    if found.get("registered_name") != _MEMBERS:
        return found
    kept = {name: value for name, value in found["config"].items() if name != "classes"}
    own = {"module": "keras.layers", "class_name": "Identity", "config": kept, "registered_name": None}
    return {**found, **own}


def _hold(model: Any) -> None:
    """Freeze the layers inside frozen layers, as the server does; Keras alone would train them."""
    for layer in model.layers:
        if isinstance(layer, library().Model) and layer.trainable:
            _hold(layer)
        elif not layer.trainable:
            for part in layer._flatten_layers(include_self=False):
                part.trainable = False


def _import_hub() -> None:
    """Import KerasHub, which makes its layers known to Keras."""
    try:
        importlib.import_module(_HUB)
    except ImportError:
        raise CerebroError(
            "KerasHub, which layers of the model come from, is not installed", hint="pip install keras-hub"
        ) from None


def _registered(value: Any) -> Iterator[str]:
    """Yield the names of registered layers in an architecture, and drop the digests from its names."""
    if isinstance(value, dict):
        match = _LAYER.fullmatch(str(value.get("registered_name")))
        if match:
            value["registered_name"] = match[1]
            yield match[1]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _registered(item)


def _missing(name: str) -> CerebroError:
    return CerebroError(
        f"the model needs {name}, which is registered in the database and not here",
        hint=f"Give it: custom_objects={{'{name}': …}}; db.functions.source('{name}') is its source.",
        shell=f"The client for Python can be given {name}, and writes the file.",
    )


def _assign(row: Row, variable: Any) -> None:
    import numpy as np

    if tuple(row["shape"]) != tuple(variable.shape):
        raise CerebroError(
            f"variable {row['name']} has shape {row['shape']}, and here {list(variable.shape)}",
            hint="Is the version of Keras that of the server's?",
        )
    dtype = np.dtype(_bfloat16() if row["dtype"] == "bfloat16" else row["dtype"])
    variable.assign(np.frombuffer(row["data"], dtype.newbyteorder("<")).reshape(row["shape"]))


def _bfloat16() -> Any:
    import ml_dtypes  # comes with Keras

    return ml_dtypes.bfloat16


def _made(keras: Any, value: Any, known: Mapping[str, Any]) -> Any:
    """Create Keras objects from parameters: `{"name": "Adam", "arguments": {}}` becomes an optimizer."""
    if isinstance(value, list):
        return [_made(keras, item, known) for item in value]
    if not isinstance(value, Mapping):
        return value
    if value.keys() != {"name", "arguments"}:
        return {key: _made(keras, item, known) for key, item in value.items()}
    for room in (keras.optimizers, keras.optimizers.schedules, keras.losses, keras.metrics):
        if hasattr(room, value["name"]):
            arguments = {key: _made(keras, item, known) for key, item in value["arguments"].items()}
            return getattr(room, value["name"])(**arguments)
    if value["name"] not in known:
        raise _missing(value["name"])
    return _make_object(known[value["name"]], value["arguments"])


def _make_object(function: Any, arguments: Mapping[str, Any]) -> Any:
    """Return an instance of a class, or a function with the arguments bound to it."""
    if isinstance(function, type):
        return function(**arguments)
    return functools.wraps(function)(functools.partial(function, **arguments)) if arguments else function


def features_file(path: Path) -> Path:
    """Return the path of the file with the feature specification that belongs to a model's file."""
    return path.with_suffix(".features.json")


def save(model: Any, path: Path, specification: Mapping[str, Any] | None = None) -> Path:
    """Write a model as `.keras` or `.onnx`, and its feature specification, if any, to a file beside it."""
    model = merged(model)
    if path.suffix == ".keras":
        model.save(path)
    elif path.suffix == ".onnx":
        _save_onnx(model, path)
    else:
        raise other_file(path, ".keras", ".onnx")
    if specification is not None:
        text = json.dumps(specification, ensure_ascii=False, indent=1)
        features_file(path).write_text(text + "\n", encoding="utf-8")
    return path


def merged(model: Any) -> Any:
    """Return the model with low-rank adapters added to its kernels; without adapters, return it unchanged."""
    adapted = [
        layer
        for layer in model._flatten_layers()  # pyright: ignore[reportPrivateUsage]
        if getattr(layer, "lora_enabled", False)
    ]
    # For quantized kernels, Keras itself adds the adapters when it writes a file.
    if not adapted or any(layer.quantization_mode for layer in adapted):
        return model
    values = {id(weight): weight for weight in model.weights}
    for layer in adapted:
        kernel, whole = (
            (layer._embeddings, layer.embeddings)
            if hasattr(layer, "lora_embeddings_a")
            else (layer._kernel, layer.kernel)
        )
        values[id(kernel)] = whole
        for name in ("kernel", "embeddings"):
            for side in ("a", "b"):
                values.pop(id(getattr(layer, f"lora_{name}_{side}", None)), None)
    plain = type(model).from_config(_without_adapters(model.get_config()))
    for variable, value in zip(plain.weights, values.values(), strict=True):
        variable.assign(value)
    return plain


def _without_adapters(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: one for key, one in value.items() if key not in ("lora_rank", "lora_alpha")}
        return {key: _without_adapters(one) for key, one in kept.items()}
    return [_without_adapters(one) for one in value] if isinstance(value, list) else value


def _save_onnx(model: Any, path: Path) -> None:
    keras = library()
    _make_statistics_constant(model)
    blank = [keras.ops.zeros((1, *tensor.shape[1:]), tensor.dtype) for tensor in model.inputs]
    # Keras exports a model only after it was called, with the inputs of that call.
    model(blank if len(blank) > 1 else blank[0])
    try:
        model.export(path, format="onnx", verbose=False)
    except ImportError as error:
        raise needs("onnx", f"what Keras writes ONNX with ({error})") from None
    onnx = importlib.import_module("onnx")
    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        # Keras writes operations that ONNX lacks under their own names.
        path.unlink()
        raise CerebroError(
            "the model cannot be written as ONNX",
            detail=str(error).strip(),
            hint="Save it as .keras, or train a net without that operation.",
        ) from None


def _make_statistics_constant(model: Any) -> None:
    """Make the mean and variance of Normalization layers arrays of NumPy, which are written into the file.

    TensorFlow's tensors would become further inputs of the file, which nobody could give.
    """
    import numpy as np

    for layer in model._flatten_layers():  # pyright: ignore[reportPrivateUsage]
        if isinstance(layer, library().layers.Normalization):
            layer.mean, layer.variance = np.asarray(layer.mean), np.asarray(layer.variance)
