"""Checks a model's JSON, converts it to Keras 3's form, and describes the model without its weights."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cerebro_plpy import errors
from cerebro_plpy.engine import derived, own
from cerebro_plpy.engine.activations.counting import NetUses, uses_of
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import connected, custom, hub, legacy, lora, validate
from cerebro_plpy.engine.checks.calls import one_line
from cerebro_plpy.engine.models import counting, frozen, symbolic, trunk
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib import registered
from cerebro_plpy.madlib.layers import sources
from cerebro_plpy.madlib.nearest import nearest

Shape = tuple[int | None, ...]

# The JSON of the largest nets of keras.applications has less than a million.
MAX_LENGTH = 4_000_000


@dataclass(frozen=True)
class DescribedModel:
    """A description of a model that has not been built. Shapes are the shapes of one row."""

    json: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    parameters: int
    flops_per_row: int
    # The work for one row, by family of layers (`counting`).
    work: Mapping[str, float] = field(hash=False)
    weight_shapes: tuple[tuple[int, ...], ...]
    adapters: tuple[lora.Adapter, ...] = ()
    # Names of layers that do nothing before they are given weights.
    adaptable: tuple[str, ...] = ()
    # Digests of the registered layers in the model.
    functions: tuple[str, ...] = ()
    # The layers whose outputs no training changes.
    trunk: tuple[trunk.TrunkLayer, ...] = field(default=(), hash=False)
    # How many of the parameters training changes.
    trained: int = 0
    # The uses of layers whose outputs the backward pass needs.
    uses: tuple[NetUses, ...] = field(default=(), hash=False)


def describe(
    model_arch: str,
    input_shapes: tuple[Shape, ...] | None = None,
    max_parameters: int = 2_000_000_000,
) -> DescribedModel:
    """Check an architecture and return its description; no weight is allocated, and nothing is computed.

    `input_shapes` are shapes of one row, for a Sequential that does not say the shape of its input. Raise an
    error if the net has more than `max_parameters`, or if a row has more numbers than this in one tensor.
    """
    try:
        return _describe(model_arch, input_shapes, max_parameters, registered.known())
    except CerebroError:
        raise
    # A value of the JSON may have a wrong type in more ways than the checks look for.
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise CerebroError(
            "the architecture is malformed",
            detail=f"{type(error).__name__}: {one_line(error)}",
            hint="Use what model.to_json() gives.",
        ) from error


def build(architecture_json: str) -> Any:
    """Return a Keras model with weights, made from the `json` of a `DescribedModel`."""
    config = json.loads(architecture_json)
    model = _deserialize(config, _custom_objects(config))
    derived.follow_weights(model)
    return model


def layers(architecture_json: str) -> list[list[Any]]:
    """Return for each layer its name, class, output shape of one row, number of parameters, and sources."""
    config = json.loads(architecture_json)
    taken = {layer["config"].get("name"): sources(layer) for layer in config["config"].get("layers", [])}
    with unallocated():
        model = _deserialize(config, _custom_objects(config))
        return [
            [
                layer.name,
                type(layer).__name__,
                _row_shape(layer),
                layer.count_params(),
                taken.get(layer.name, []),
            ]
            for layer in model._flatten_layers(include_self=False, recursive=False)
        ]


def _row_shape(layer: Any) -> list[int | None] | None:
    """Return the shape of a row of a layer's first output; None if Keras knows no output of the layer."""
    try:
        found = runtime.keras().tree.flatten(layer.output)[0]
    except (AttributeError, ValueError):
        return None
    return list(found.shape[1:])


@contextmanager
def unallocated() -> Iterator[None]:
    """Within the `with` block, let models be built with shapes only: their variables never get values."""
    keras = runtime.keras()
    state = keras.src.backend.common.global_state
    try:
        with runtime.generators_kept(), keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        # Keras would give values to the variables that wait here as soon as the next model is built.
        state.set_global_attribute("uninitialized_variables", [])


def output_names(model: Any) -> list[str]:
    """Return the names of a model's outputs, by which losses and metrics address the outputs.

    A Sequential has no such names: its output is addressed by the name of its last layer.
    """
    return list(getattr(model, "output_names", None) or [model.layers[-1].name])


@functools.lru_cache(maxsize=64)
def _describe(
    model_arch: str,
    input_shapes: tuple[Shape, ...] | None,
    max_parameters: int,
    functions: Sequence[registered.Function],
) -> DescribedModel:
    """Return the description of an architecture, from a cache if all arguments are equal.

    `functions` are the registered functions that the caller may use; they decide what names in the JSON mean.
    """
    config = canonical(model_arch, input_shapes)
    # Before Keras gets the config: Keras takes the config of a functional model apart.
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    layers = _custom_objects(config)

    def look() -> tuple[DescribedModel, int]:
        with unallocated():
            model = _deserialize(config, layers)
            _check_built(model)
            whole = _close(model, json.loads(text), layers, input_shapes) or model
            return _summary(model, text, whole), _largest_tensor(whole)

    architecture, largest = symbolic.without_computing(look)
    if architecture.parameters > max_parameters:
        raise _too_large(f"has {architecture.parameters} parameters", max_parameters)
    if largest > max_parameters:
        raise _too_large(f"makes {largest} numbers of one row in one layer", max_parameters)
    return architecture


def _too_large(what: str, limit: int) -> CerebroError:
    return CerebroError(
        f"the architecture {what}, more than {limit}",
        hint="An administrator may allow more: the setting max_parameters.",
        sqlstate=errors.NOT_SUPPORTED,
    )


def canonical(model_arch: str, input_shapes: tuple[Shape, ...] | None = None) -> dict[str, Any]:
    """Return an architecture as parsed JSON of Keras 3; raise an error if it could run code."""
    config = _parse(model_arch)
    if legacy.is_legacy(config):
        config = legacy.translate(config)
    _drop_compile_config(config)
    validate.check(config)
    connected.check(config)
    if input_shapes is not None:
        _give_input_shape(config, input_shapes)
    _name_layers(config)
    return config


def has_old_sigmoid(model_arch: str) -> bool:
    """Return whether Keras 2 wrote an architecture with `hard_sigmoid`, which is another function now."""
    return '"hard_sigmoid"' in model_arch and legacy.is_legacy(_parse(model_arch))


def _name_layers(config: dict[str, Any]) -> None:
    """Name the unnamed layers of a Sequential, which Keras would number differently in each process."""
    layers = config["config"].get("layers") if isinstance(config["config"], dict) else None
    if config["class_name"] != "Sequential" or not isinstance(layers, list):
        return
    for number, layer in enumerate(layers):
        layer["config"].setdefault("name", f"{layer['class_name'].lower()}_{number}")
        _name_layers(layer)


def _drop_compile_config(value: Any) -> None:
    """Remove `compile_config` at any depth: compile parameters are no part of an architecture here."""
    if isinstance(value, dict):
        value.pop("compile_config", None)
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            _drop_compile_config(item)


def _parse(model_arch: str) -> dict[str, Any]:
    if len(model_arch) > MAX_LENGTH:
        raise CerebroError(f"the architecture is longer than {MAX_LENGTH} characters")
    try:
        config = json.loads(model_arch)
    except (ValueError, RecursionError) as error:
        raise CerebroError("the architecture is not valid JSON", detail=f"{error}.") from error
    # A string within the JSON is what json.dumps(model.to_json()) gives, a common slip.
    if isinstance(config, str):
        return _parse(config)
    if not isinstance(config, dict) or "class_name" not in config or "config" not in config:
        raise CerebroError(
            "the architecture is not a Keras model",
            detail='A JSON object with "class_name" and "config" is expected.',
            hint="Use what model.to_json() gives.",
        )
    return config


def _custom_objects(config: dict[str, Any]) -> dict[str, Any]:
    """Return, by registered name, the classes and functions in an architecture that Keras does not have."""
    registered_layers = validate.registered_layers(config).items()
    of_hub = hub.objects(validate.hub_names(config))
    members = own.objects() if validate.has_members(config) else {}
    return {**{name: custom.get(digest) for name, digest in registered_layers}, **of_hub, **members}


def _deserialize(config: dict[str, Any], layers: dict[str, Any]) -> Any:
    serialization = runtime.keras().saving
    try:
        model = serialization.deserialize_keras_object(config, custom_objects=layers, safe_mode=True)
        if isinstance(model, runtime.keras().Model):
            frozen.hold(model)
        return model
    except CerebroError:
        raise
    except Exception as error:
        raise CerebroError(
            "Keras cannot build the architecture",
            detail=f"Keras says: {one_line(error)}",
            hint=_meant(str(error)),
        ) from error


# Keras' message about a name that it does not know: the kind of the name, and the name.
_UNKNOWN = re.compile(
    r"Could not interpret (activation|regularizer|initializer|constraint)\b.*identifier: '?(\w+)"
)


def _meant(message: str) -> str | None:
    """Return a hint with the name that was probably meant, if Keras' message is about an unknown name."""
    found = _UNKNOWN.search(message)
    if found is None:
        return None
    kind, name = found.groups()
    known = [each for each in vars(getattr(runtime.keras(), f"{kind}s")) if each[0].isalpha()]
    match = nearest(name, known)
    return (
        f'No {kind} is called "{name}". Did you mean "{match}"?'
        if match
        else f'No {kind} is called "{name}".'
    )


def _give_input_shape(config: dict[str, Any], input_shapes: tuple[Shape, ...]) -> None:
    """Insert an input layer into a Sequential whose first layer does not say the shape of its input."""
    if config["class_name"] != "Sequential" or _has_input(config):
        return
    shape = [None, *input_shapes[0]]
    config["config"]["layers"].insert(
        0,
        {
            "module": "keras.layers",
            "class_name": "InputLayer",
            "config": {"batch_shape": shape, "dtype": "float32", "name": "input_layer"},
            "registered_name": None,
        },
    )


def _has_input(config: dict[str, Any]) -> bool:
    layers = config["config"].get("layers") or [{}]
    first = layers[0]
    if first.get("class_name") == "InputLayer" or config["config"].get("build_input_shape"):
        return True
    return "batch_input_shape" in first.get("config", {}) or "batch_shape" in first.get("config", {})


def _check_built(model: Any) -> None:
    if not isinstance(model, runtime.keras().Model):
        raise CerebroError(f"the architecture is a {type(model).__name__}, not a model")
    if not model.built or not getattr(model, "inputs", None):
        raise CerebroError(
            "the architecture does not say the shape of its input",
            hint="Start the model with keras.Input(shape=...) or give input_shape to its first layer.",
        )


def _close(
    model: Any, config: dict[str, Any], layers: dict[str, Any], input_shapes: tuple[Shape, ...] | None
) -> Any:
    """Return a model with the shapes of the rows where `model` leaves dimensions of its inputs open.

    Memory and time are counted by it. `config` is the configuration of `model`, with the classes of its own
    `layers`. Return None if no dimension is open, or if the shapes do not fit.
    """
    names = [tensor.name for tensor in model.inputs]
    is_open = any(None in tensor.shape[1:] for tensor in model.inputs)
    if input_shapes is None or not is_open or len(names) != len(input_shapes):
        return None
    given = dict(zip(names, input_shapes, strict=True))
    for layer in config["config"].get("layers", ()):
        if layer["class_name"] == "InputLayer" and layer["config"].get("name") in given:
            layer["config"]["batch_shape"] = [None, *given[layer["config"]["name"]]]
    try:
        return _deserialize(config, layers)
    except CerebroError:
        return None


def _summary(model: Any, text: str, whole: Any) -> DescribedModel:
    """Return the description of a model; operations and outputs of layers are counted by `whole`."""
    shapes = tuple(tuple(int(d) for d in weight.shape) for weight in model.weights)
    return DescribedModel(
        json=text,
        inputs=tuple(tuple(tensor.shape[1:]) for tensor in model.inputs),
        outputs=tuple(tuple(tensor.shape[1:]) for tensor in model.outputs),
        input_names=tuple(tensor.name for tensor in model.inputs),
        output_names=tuple(output_names(model)),
        parameters=sum(math.prod(shape) for shape in shapes),
        trained=sum(math.prod(variable.shape) for variable in model.trainable_variables),
        flops_per_row=sum(counting.flops(layer) for layer in _leaves(whole)),
        work=counting.work(_leaves(whole)),
        weight_shapes=shapes,
        adapters=lora.adapters(model),
        adaptable=tuple(layer.name for layer in derived.adaptable(model)),
        functions=tuple(sorted(set(validate.registered_layers(json.loads(text)).values()))),
        trunk=tuple(trunk.layers(model)),
        uses=uses_of(whole),
    )


def _largest_tensor(model: Any) -> int:
    """Return the size of the largest input or output of any layer or operation, for one row."""
    operations = getattr(getattr(model, "_functional", None) or model, "operations", [])
    shapes = [
        t.shape for operation in operations for node in operation._inbound_nodes for t in node.output_tensors
    ]
    within = [_largest_tensor(operation) for operation in operations if hasattr(operation, "layers")]
    return max([*(math.prod(d or 1 for d in shape[1:]) for shape in shapes), *within], default=0)


def _leaves(model: Any) -> list[Any]:
    """Return the layers of a model and of all models inside it; a wrapper counts as one layer."""
    layers = []
    for layer in model.layers:
        layers += _leaves(layer) if hasattr(layer, "layers") else [layer]
    return layers
