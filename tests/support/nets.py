"""Architectures as JSON, written without Keras: the same as of model.to_json(), but without defaults."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

Layer = dict[str, Any]

SIDE = 8
FEATURES = SIDE * SIDE
CLASSES = 3


def layer(class_name: str, **config: Any) -> Layer:
    return {"module": "keras.layers", "class_name": class_name, "config": config, "registered_name": None}


def sequential(shape: Sequence[int], *layers: Layer) -> str:
    """Return a Sequential net; a layer without a name gets one from its class and place, as "dense_1"."""
    placed = [layer("InputLayer", batch_shape=[None, *shape], dtype="float32"), *layers]
    for number, one in enumerate(placed):
        one["config"].setdefault("name", f"{one['class_name'].lower()}_{number}")
    return _model("Sequential", {"name": "net", "layers": placed})


def _model(class_name: str, config: dict[str, Any]) -> str:
    module = "keras" if class_name == "Sequential" else "keras.src.models.functional"
    return json.dumps({"module": module, "class_name": class_name, "config": config, "registered_name": None})


def mlp(
    features: int = FEATURES, units: int = 16, outputs: int = CLASSES, activation: str = "softmax"
) -> str:
    return sequential(
        [features],
        layer("Dense", units=units, activation="relu"),
        layer("Dense", units=outputs, activation=activation),
    )


def mlp_with_dropout() -> str:
    return sequential(
        [FEATURES],
        layer("Dense", units=16, activation="relu"),
        layer("Dropout", rate=0.3),
        layer("Dense", units=CLASSES, activation="softmax"),
    )


def cnn() -> str:
    return sequential(
        [FEATURES],
        layer("Reshape", target_shape=[SIDE, SIDE, 1]),
        layer("Conv2D", filters=4, kernel_size=[3, 3], activation="relu"),
        layer("BatchNormalization"),
        layer("MaxPooling2D", pool_size=[2, 2]),
        layer("Flatten"),
        layer("Dropout", rate=0.25),
        layer("Dense", units=CLASSES, activation="softmax"),
    )


def members(outputs: int = CLASSES, count: int = 3) -> str:
    """Return a net of several members, which share their weights and learn each by its own error."""
    own: Layer = {
        "module": None,
        "class_name": "Members",
        "config": {"classes": True},
        "registered_name": "cerebro>Members",
    }
    return sequential(
        [FEATURES],
        layer("RepeatVector", n=count),
        layer("EinsumDense", equation="bki,ki->bki", output_shape=[count, FEATURES]),
        layer("Dense", units=16, activation="relu"),
        layer("Dropout", rate=0.2),
        layer("EinsumDense", equation="bkw,kwo->bko", output_shape=[count, outputs], bias_axes="ko"),
        own,
        layer("Softmax"),
        layer("GlobalAveragePooling1D"),
    )


def too_large() -> str:
    """Return a net that no machine can train: its activations for a few rows are larger than any memory."""
    return sequential(
        [FEATURES],
        layer("RepeatVector", n=1_000_000),
        *(layer("Dense", units=1900, activation="relu") for _ in range(8)),
        layer("GlobalAveragePooling1D"),
        layer("Dense", units=CLASSES, activation="softmax"),
    )


def lstm() -> str:
    return sequential(
        [FEATURES],
        layer("Reshape", target_shape=[SIDE, SIDE]),
        # Not Keras' orthogonal start: on JAX it comes from LAPACK, whose last bit is another in a process
        # of the server than in one of its own. What is compared here is the training.
        layer("LSTM", units=6, dropout=0.2, recurrent_initializer="glorot_uniform"),
        layer("Dense", units=CLASSES, activation="softmax"),
    )


def two_by_two(features: Sequence[int], classes: int) -> str:
    """Return a functional net with two inputs and two outputs: classes by a softmax, and a number."""
    inputs = [_node("InputLayer", f"in_{n}", None, batch_shape=[None, f]) for n, f in enumerate(features)]
    both = _node("Concatenate", "both", [["in_0", [features[0]]], ["in_1", [features[1]]]])
    hidden = _node("Dense", "hidden", [["both", [sum(features)]]], units=8, activation="relu")
    kind = _node("Dense", "kind", [["hidden", [8]]], units=classes, activation="softmax")
    size = _node("Dense", "size", [["hidden", [8]]], units=1, activation="linear")
    return _model(
        "Functional",
        {
            "name": "net",
            "trainable": True,
            "layers": [*inputs, both, hidden, kind, size],
            "input_layers": [["in_0", 0, 0], ["in_1", 0, 0]],
            "output_layers": [["kind", 0, 0], ["size", 0, 0]],
        },
    )


def branches() -> str:
    """Return a functional net whose trained layers take the input and the outputs of two frozen layers."""
    wide = [12]
    layers = [
        _node("InputLayer", "rows", None, batch_shape=[None, FEATURES]),
        _node("Dense", "left", [["rows", [FEATURES]]], units=12, activation="tanh", trainable=False),
        _node("Dense", "right", [["left", wide]], units=12, activation="relu", trainable=False),
        _node("Dense", "own", [["rows", [FEATURES]]], units=12),
        _node("Add", "sum", [["left", wide], ["right", wide]]),
        _node("Concatenate", "all", [["sum", wide], ["own", wide], ["right", wide]]),
        _node("Dropout", "drop", [["all", [36]]], rate=0.2),
        _node("Dense", "kind", [["drop", [36]]], units=CLASSES, activation="softmax"),
    ]
    config = {"name": "net", "trainable": True, "layers": layers}
    ends = {"input_layers": [["rows", 0, 0]], "output_layers": [["kind", 0, 0]]}
    return _model("Functional", config | ends)


def passed_by() -> str:
    """Return a functional net with a frozen layer on its first input, beside which the second one joins."""
    layers = [
        _node("InputLayer", "rows", None, batch_shape=[None, FEATURES]),
        _node("InputLayer", "beside", None, batch_shape=[None, 3]),
        _node("Dense", "held", [["rows", [FEATURES]]], units=5, trainable=False),
        _node("Concatenate", "both", [["held", [5]], ["beside", [3]]]),
        _node("Dense", "kind", [["both", [8]]], units=CLASSES, activation="softmax"),
    ]
    config = {"name": "net", "trainable": True, "layers": layers}
    ends = {"input_layers": [["rows", 0, 0], ["beside", 0, 0]], "output_layers": [["kind", 0, 0]]}
    return _model("Functional", config | ends)


def encoder(width: int = 32, blocks: int = 2) -> str:
    """Return a small transformer: blocks of attention over eight steps of eight features, then a softmax."""
    steps = [SIDE, width]
    layers = [
        _node("InputLayer", "rows", None, batch_shape=[None, FEATURES]),
        _node("Reshape", "steps", [["rows", [FEATURES]]], target_shape=[SIDE, SIDE]),
        _node("Dense", "embed", [["steps", [SIDE, SIDE]]], units=width),
    ]
    last = "embed"
    for number in range(blocks):
        at = f"_{number}"
        names = [part + at for part in ("query", "value", "key")]
        parts = [_node("Dense", name, [[last, steps]], units=width) for name in names]
        layers += [
            *parts,
            _node("Attention", "look" + at, [[name, steps] for name in names]),
            _node("Add", "more" + at, [["look" + at, steps], [last, steps]]),
            _node("LayerNormalization", "norm" + at, [["more" + at, steps]]),
            _node("Dense", "wide" + at, [["norm" + at, steps]], units=2 * width, activation="gelu"),
            _node("Dense", "back" + at, [["wide" + at, [SIDE, 2 * width]]], units=width),
            _node("Add", "next" + at, [["back" + at, steps], ["norm" + at, steps]]),
        ]
        last = "next" + at
    layers += [
        _node("GlobalAveragePooling1D", "mean", [[last, steps]]),
        _node("Dense", "kind", [["mean", [width]]], units=CLASSES, activation="softmax"),
    ]
    config = {"name": "net", "trainable": True, "layers": layers}
    ends = {"input_layers": [["rows", 0, 0]], "output_layers": [["kind", 0, 0]]}
    return _model("Functional", config | ends)


def _node(class_name: str, name: str, sources: list[Any] | None, **config: Any) -> Layer:
    tensors = [_tensor(*source) for source in sources or []]
    arguments = [tensors] if class_name in ("Concatenate", "Add", "Attention") else tensors
    called = [{"args": arguments, "kwargs": {}}] if sources else []
    return {**layer(class_name, name=name, **config), "name": name, "inbound_nodes": called}


def _tensor(name: str, shape: list[int]) -> dict[str, Any]:
    place = {"shape": [None, *shape], "dtype": "float32", "keras_history": [name, 0, 0]}
    return {"class_name": "__keras_tensor__", "config": place}
