"""Adds trained nets to the architectures: appends a head, freezes layers, stores each net only once."""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import logging
import random
import re
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_db.architectures import flat_weights
from cerebro_db.errors import CerebroError, other_file
from cerebro_db.models import library
from cerebro_db.statements import identifier, table_name

if TYPE_CHECKING:
    from cerebro_db.architectures import Home
    from cerebro_db.packing import Packed

_log = logging.getLogger("cerebro_db")
# A layer, a line of layers as text, or a list of layers.
Head = str | Sequence[Any] | Any
# Model classes that a server accepts; others, such as KerasHub's backbones, build layers from arguments.
_GRAPHS = ("Functional", "Sequential")
# Layers that hold code or read it from files; a line of layers must not name them.
_CODE = ("FlaxLayer", "JaxLayer", "Lambda", "TFSMLayer", "TorchModuleWrapper")
# Layers that take one vector for each row; feature maps and sequences are averaged before them.
_OF_VECTORS = (
    "Activation", "BatchNormalization", "Dense", "Dropout", "ELU", "GaussianNoise", "LayerNormalization",
    "LeakyReLU", "PReLU", "ReLU", "Softmax",
)  # fmt: skip
# Arguments that are set to 0 in frozen layers whose class name contains the text, to stop random draws.
_DRAWN = {"rate": "Drop", "stddev": "Noise", "dropout": "", "recurrent_dropout": ""}
_SAME = """
SELECT model_id, model_arch FROM {table}
WHERE pg_catalog.octet_length(model_weights) OPERATOR(pg_catalog.=) %s
    AND pg_catalog.sha256(model_weights) OPERATOR(pg_catalog.=) %s
ORDER BY model_id
"""


@dataclass(frozen=True)
class PackedRows:
    """The shapes of a packed table's inputs and of its only label, which a net must fit."""

    inputs: Sequence[Sequence[int]]
    label: str
    classes: int | None
    shape: Sequence[int]

    @classmethod
    def from_packed(cls, db: Home, packed: Packed) -> PackedRows:
        found = packed.summary()
        labels = found["dependent_varname"]
        if len(labels) != 1:
            raise CerebroError(
                f"{packed.table} has {len(labels)} labels",
                hint="Put the outputs on the net yourself, and leave the packed table out.",
            )
        columns = [*found["independent_varname"], *labels]
        wanted = ", ".join(identifier(f"{name}_shape") for name in columns)
        rows = db.rows(f"SELECT {wanted} FROM {table_name(packed.table)} LIMIT 1")
        if not rows:
            raise CerebroError(f"{packed.table} has no rows")
        *inputs, label = [rows[0][f"{name}_shape"][1:] for name in columns]
        return cls(inputs, labels[0], found["num_classes"][0], label)


def load(
    db: Home,
    model: Any,
    packed: Packed | None,
    head: Head | None,
    freeze: str | Sequence[str] | None,
    layer: str | None,
    name: str | None,
    description: str | None,
) -> int:
    """Add a trained net to the table of architectures, unless it is stored there; return its model_id."""
    rows = None if packed is None else PackedRows.from_packed(db, packed)
    net, config = prepared(model, rows, head=head, freeze=freeze, layer=layer)
    weights = flat_weights(net)
    known = _known(db, config, weights)
    if known is not None:
        _log.info("model_id %s is in %s already", known, db.architectures.table)
        return known
    return db.architectures.add_json(
        json.dumps(config), weights, name=name or net.name, description=description
    )


def prepared(
    model: Any,
    rows: PackedRows | None = None,
    *,
    head: Head | None = None,
    freeze: str | Sequence[str] | None = None,
    layer: str | None = None,
) -> tuple[Any, dict[str, Any]]:
    """Return the net with its head, and its JSON with layers frozen by `freeze`; `model` is not changed."""
    keras = library()
    base = _live(keras, model)
    names = {one.name for one in base.layers}
    net, added = _with_head(keras, base, _read(keras, head, names), rows, layer)
    config = _graph(keras, net)
    if freeze is not None:
        _freeze(config, [freeze] if isinstance(freeze, str) else freeze, added)
    if rows is not None:
        _fill_inputs(config, rows.inputs)
    return net, config


def _live(keras: Any, model: Any) -> Any:
    if isinstance(model, str | Path):
        path = Path(model)
        if path.suffix != ".keras":
            raise other_file(path, ".keras")
        _check_size(path)
        try:
            model = keras.saving.load_model(path, compile=False)
        except Exception as error:  # of any kind, with words from the file in its message
            raise CerebroError(
                f"{path.name} cannot be read as a model of Keras'", detail=f"{type(error).__name__}: {error}"
            ) from error
    if not isinstance(model, keras.Model):
        raise CerebroError(
            f"{type(model).__name__} is no trained net",
            hint="Give a keras.Model, or the path of a .keras file.",
        )
    if not getattr(model, "inputs", None) or not getattr(model, "outputs", None):
        raise CerebroError(
            f"{type(model).__name__} is not a graph of layers, or does not know the shape of its inputs",
            hint="Make it of layers, as keras.Model(inputs, outputs) or a Sequential with a keras.Input.",
        )
    return model


def _check_size(path: Path) -> None:
    """Raise CerebroError if the file names a layer with more units than its weights have bytes.

    Keras would allocate such a layer before it reads the weights.
    """
    if path.is_file() and not zipfile.is_zipfile(path):
        raise CerebroError(f"{path.name} is no .keras file, or a damaged one")
    try:
        with zipfile.ZipFile(path) as archive:
            size = archive.getinfo("model.weights.h5").file_size
            widest = max(_widths(json.loads(archive.read("config.json"))), default=0)
    except (OSError, KeyError, TypeError, ValueError, RecursionError, zipfile.BadZipFile):
        return  # Keras says what is wrong with it.
    if widest > size:
        raise CerebroError(
            f"{path.name} names a layer of {widest} units, and its weights have {size} bytes: it is damaged"
        )


def _widths(config: Any) -> Iterator[int]:
    """Yield the sizes of layers in a config, such as `units`; a layer has at least that many weights."""
    for key, value in config.items() if isinstance(config, dict) else enumerate(config):
        if isinstance(value, dict | list):
            yield from _widths(value)
        elif isinstance(value, int) and key in ("units", "filters", "input_dim"):
            yield value


def _read(keras: Any, head: Head | None, taken: Collection[str]) -> list[Any]:
    """Return the layers of the head. For a head that is text, choose layer names that are not in `taken`."""
    if head is None:
        return []
    if not isinstance(head, str):
        return list(head) if isinstance(head, list | tuple) else [head]
    try:
        line = ast.parse(f"[{head}]", mode="eval").body
        calls = line.elts if isinstance(line, ast.List) else []
        with _seeded():
            return [
                _layer(keras, call, _free(f"head_{number}", taken)) for number, call in enumerate(calls, 1)
            ]
    except (SyntaxError, ValueError, TypeError) as error:
        raise CerebroError(
            f"the head is no line of layers: {head}",
            detail=str(error),
            hint="Write Dense(64, activation='relu'), Dropout(0.2), by Keras' names; or give Keras' layers.",
        ) from None


def _free(name: str, taken: Collection[str]) -> str:
    """Return the name, or, if the name is in `taken`, the name with the first free number: `head_1_2`."""
    free = (f"{name}_{number}" for number in count(2))
    return name if name not in taken else next(one for one in free if one not in taken)


def _layer(keras: Any, call: ast.expr, name: str) -> Any:
    """Create a Keras layer from a parsed call such as `Dense(64)`, whose arguments must be literals."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError(f"{ast.unparse(call)} is no layer.")
    kind = getattr(keras.layers, call.func.id, None)
    if not isinstance(kind, type) or not issubclass(kind, keras.layers.Layer):
        raise ValueError(f"Keras has no layer {call.func.id}.")
    if call.func.id in _CODE:
        raise ValueError(f"{call.func.id} holds code.")
    values = [ast.literal_eval(value) for value in call.args]
    named = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    return kind(*values, **{"name": name, **named})


@contextmanager
def _seeded() -> Iterator[None]:
    """Seed Python's `random` within the block, so that new layers get the same initial weights each time."""
    before = random.getstate()
    random.seed(0)
    try:
        yield
    finally:
        random.setstate(before)


def _with_head(
    keras: Any, base: Any, head: list[Any], rows: PackedRows | None, layer: str | None
) -> tuple[Any, set[str]]:
    """Return the net with the head and an output layer appended, and the names of the appended layers."""
    if not head and rows is None and layer is None:
        plain = type(base).__name__ in _GRAPHS
        return (base if plain else keras.Model(base.inputs, base.outputs, name=base.name)), set()
    taken = {one.name for one in base.layers}
    out = end = _end(base, layer)
    behind: list[Any] = []

    def put(one: Any) -> None:
        nonlocal out
        out = one(out)
        behind.append(one)

    try:
        with _seeded():
            if not head or type(head[0]).__name__ in _OF_VECTORS:
                _average(keras, out, taken, put)
            for one in head:
                put(one)
            if rows is not None:
                _average(keras, out, taken, put)
                put(_output(keras, rows, taken))
        return keras.Model(base.inputs, out, name=base.name), {one.name for one in behind}
    except (TypeError, ValueError) as error:
        raise CerebroError(
            "the head cannot stand behind the net",
            detail=str(error),
            hint=f"It takes what has the shape {tuple(end.shape)}.",
        ) from error


def _average(keras: Any, end: Any, taken: Collection[str], put: Callable[[Any], None]) -> None:
    """Append, with `put`, a global average pooling layer unless `end` is one vector for each row already."""
    if len(end.shape) <= 2:
        return
    layer = getattr(keras.layers, f"GlobalAveragePooling{len(end.shape) - 2}D", None)
    if layer is None:
        raise ValueError(f"Nothing averages what has the shape {tuple(end.shape)}.")
    put(layer(name=_free("head_pooled", taken)))


def _end(base: Any, layer: str | None) -> Any:
    if layer is None:
        found = base.outputs
        if len(found) != 1:
            raise CerebroError(
                f"{base.name} has {len(found)} outputs",
                hint='Say which layer the head stands behind: layer="pooled_dense".',
            )
        return found[0]
    names = [one.name for one in base.layers]
    if layer not in names:
        raise _no_layer("the net has no layer", layer, names)
    # A nested model also has tensors of its own graph; take those of this net's graph.
    graph = getattr(base, "_functional", None) or base
    nodes = [node for depth in graph._nodes_by_depth.values() for node in depth]
    found = [tensor for node in nodes if node.operation.name == layer for tensor in node.output_tensors]
    if len(found) != 1:
        raise CerebroError(f'layer "{layer}" gives {len(found)} outputs in the net', hint="Name another one.")
    return found[0]


def _output(keras: Any, rows: PackedRows, taken: Collection[str]) -> Any:
    """Return the output layer for a packed table: a softmax over its classes, or linear units for numbers."""
    width = rows.classes
    plain = rows.label.isidentifier() and rows.label.isascii()
    name = _free(f"out_{rows.label}" if plain else "head_out", taken)
    if width is not None:
        return keras.layers.Dense(width, activation="softmax", name=name)
    if len(rows.shape) > 1:
        raise CerebroError(
            f"the label {rows.label} has the shape {list(rows.shape)}",
            hint="Put the outputs on the net yourself, and leave the packed table out.",
        )
    return keras.layers.Dense(rows.shape[0] if rows.shape else 1, name=name)


def _graph(keras: Any, net: Any) -> dict[str, Any]:
    """Return the JSON of a net, with nested models such as KerasHub's backbones written layer by layer."""
    config = json.loads(net.to_json())
    if type(net).__name__ == "Sequential":
        return config
    models = {layer.name: layer for layer in net.layers if isinstance(layer, keras.Model)}
    for one in config["config"]["layers"]:
        if one["name"] in models:
            live = models[one["name"]]
            if type(live).__name__ not in _GRAPHS:
                live = keras.Model(live._inputs_struct, live._outputs_struct, name=live.name)
            one |= {key: value for key, value in _graph(keras, live).items() if key != "build_config"}
    return config


def _freeze(config: Mapping[str, Any], patterns: Sequence[str], added: set[str]) -> None:
    """Freeze layers whose names match a pattern, except `added` ones; turn off their dropout and noise."""
    own = [one for one in config["config"]["layers"] if one["config"]["name"] not in added]
    known = [one["config"]["name"] for layer in own for one in _inside(layer)]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise _no_layer("freeze names a layer that is not there:", pattern, known)
    for layer in (one for each in own for one in _inside(each)):
        if any(fnmatchcase(layer["config"]["name"], pattern) for pattern in patterns):
            for one in _inside(layer):
                _hold(one)


def _hold(layer: dict[str, Any]) -> None:
    config = layer["config"]
    if layer["class_name"] == "InputLayer":
        return
    config["trainable"] = False
    for key, kind in _DRAWN.items():
        if isinstance(config.get(key), int | float) and kind in layer["class_name"]:
            config[key] = 0.0


def _inside(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the config of every layer in a JSON value, including layers inside other layers."""
    if isinstance(value, dict):
        config = value.get("config")
        if isinstance(config, dict) and "name" in config and not _is_no_layer(value):
            yield value
        value = [item for key, item in value.items() if key != "inbound_nodes"]
    if isinstance(value, list):
        for item in value:
            yield from _inside(item)


def _is_no_layer(value: Mapping[str, Any]) -> bool:
    """Return whether a named object in the JSON of a net is a dtype policy or an operation, not a layer."""
    module = value.get("module") or "keras.layers"
    return value["class_name"].endswith("DTypePolicy") or module.startswith("keras.src.ops")


def _fill_inputs(config: Mapping[str, Any], shapes: Sequence[Sequence[int]]) -> None:
    """Set unknown sizes of input layers to those of the packed rows; raise an error if other sizes differ."""
    layers = config["config"]["layers"]
    inputs = [one["config"] for one in layers if one["class_name"] == "InputLayer"]
    if "input_layers" in config["config"]:
        by_name = {one["name"]: one for one in inputs}
        inputs = [by_name[name] for name in _ends(config["config"]["input_layers"])]
    for one, shape in zip(inputs, shapes, strict=False):
        _, *wanted = one["batch_shape"]
        if len(wanted) == len(shape):
            if any(own not in (None, given) for own, given in zip(wanted, shape, strict=True)):
                raise CerebroError(
                    f"the net takes rows of shape {wanted}, the packed table has rows of {list(shape)}",
                    hint="Pack the rows as the net takes them, or give a net for these.",
                )
            one["batch_shape"] = [None, *(own or given for own, given in zip(wanted, shape, strict=True))]


def _ends(value: Any) -> Iterator[str]:
    """Yield the layer names from `[layer, node, tensor]` references, which may be in lists or in a dict."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if value and isinstance(value[0], str):
        yield value[0]
        return
    for one in value:
        yield from _ends(one)


def _known(db: Home, config: Mapping[str, Any], weights: bytes) -> int | None:
    """Return the model_id of the stored architecture that has this config and these weights, if any.

    Names that Keras has generated for layers are ignored, because Keras numbers them anew for each net.
    """
    if not db.architectures.ids():
        return None
    query = _SAME.format(table=table_name(db.architectures.table))
    wanted = _unnamed(config)
    for row in db.rows(query, len(weights), hashlib.sha256(weights).digest()):
        if _unnamed(row["model_arch"]) == wanted:
            return row["model_id"]
    return None


def _unnamed(model: Any) -> Any:
    """Return an architecture with numbers in place of the layer names that Keras has generated."""
    if isinstance(model, str):
        # The server also accepts JSON that is a string in JSON.
        return _unnamed(json.loads(model))
    config = model.get("config")
    if not isinstance(config, Mapping) or "layers" not in config:
        # Keras 2 wrote such architectures.
        return model
    numbers: dict[str, str] = {}
    for number, one in enumerate(_inside(config["layers"])):
        if _is_automatic(one):
            numbers.setdefault(one["config"]["name"], f"#{number}")
    return [
        model["class_name"],
        _numbered(config["layers"], numbers),
        *(_numbered_ends(config.get(key, []), numbers) for key in ("input_layers", "output_layers")),
    ]


def _is_automatic(layer: Mapping[str, Any]) -> bool:
    """Return whether Keras has generated a layer's name: its class, perhaps with a number (`dense_1`)."""
    plain = re.sub(r"_\d+$", "", str(layer["config"]["name"])).replace("_", "")
    return plain in (layer["class_name"].lower(), "inputlayer")


def _numbered_ends(value: Any, numbers: Mapping[str, str]) -> Any:
    """Return `[layer, node, tensor]` references with the layer names replaced as `numbers` says."""
    if isinstance(value, Mapping):
        return {key: _numbered_ends(one, numbers) for key, one in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], str):
        return [numbers.get(value[0], value[0]), *value[1:]]
    return [_numbered_ends(one, numbers) for one in value] if isinstance(value, list) else value


def _numbered(value: Any, numbers: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_numbered(one, numbers) for one in value]
    if not isinstance(value, Mapping):
        return value
    found = {}
    for key, one in value.items():
        if key == "name" and isinstance(one, str):
            found[key] = numbers.get(one, one)
        elif key == "keras_history":
            found[key] = [numbers.get(one[0], one[0]), *one[1:]]
        else:
            found[key] = one if key == "dtype" else _numbered(one, numbers)
    return found


def _no_layer(message: str, name: str, known: Sequence[str]) -> CerebroError:
    near = difflib.get_close_matches(name, known, n=1)
    return CerebroError(
        f'{message} "{name}"',
        detail=f"Its layers are {', '.join(known)}.",
        hint=f'Did you mean "{near[0]}"?' if near else None,
    )
