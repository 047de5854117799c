"""An architecture in which any part was replaced by anything is built or raises CerebroError."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cerebro_plpy.engine.checks import architecture, validate
from cerebro_plpy.errors import CerebroError

pytestmark = pytest.mark.usefixtures("engine")

FEW = settings(max_examples=150, derandomize=True, deadline=None, database=None)
MANY = settings(max_examples=5000, deadline=None, database=None)

INPUT = {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [None, 6, 6, 2]}}
CONV = {"module": "keras.layers", "class_name": "Conv2D", "config": {"filters": 2, "kernel_size": [2, 2]}}
DENSE = {"module": "keras.layers", "class_name": "Dense", "config": {"units": 2, "activation": "relu"}}
FLATTEN = {"module": "keras.layers", "class_name": "Flatten", "config": {}}
KERAS_3 = {
    "module": "keras",
    "class_name": "Sequential",
    "config": {
        "name": "net",
        "layers": [INPUT, CONV, {**DENSE, "class_name": "Flatten", "config": {}}, DENSE],
    },
}
LSTM = {"class_name": "LSTM", "config": {"units": 2}}
L2 = {"class_name": "L2", "config": {}}
KERAS_2 = {
    "class_name": "Sequential",
    "config": [
        {"class_name": "Bidirectional", "config": {"batch_input_shape": [None, 5, 3], "layer": LSTM}},
        {"class_name": "Dropout", "config": {"rate": 0.5}},
        {
            "class_name": "Dense",
            "config": {"units": 2, "kernel_regularizer": {"class_name": "L2", "config": {}}},
        },
    ],
}
A = ["a", 0, 0, {}]


def node(class_name: str, name: str, config: dict[str, Any], inbound: list[Any]) -> dict[str, Any]:
    config = {**config, "name": name}
    return {"class_name": class_name, "name": name, "config": config, "inbound_nodes": inbound}


FUNCTIONAL = {
    "class_name": "Model",
    "config": {
        "name": "m",
        "layers": [
            node("InputLayer", "a", {"batch_input_shape": [None, 4]}, []),
            node("Dense", "b", {"units": 4}, [[A]]),
            node("Add", "c", {}, [[A, ["b", 0, 0, {}]]]),
        ],
        "input_layers": [["a", 0, 0]],
        "output_layers": [["c", 0, 0]],
    },
}
SEEDS = [json.dumps(seed) for seed in (KERAS_3, KERAS_2, FUNCTIONAL)]

NUMBERS = st.sampled_from(
    [-1, 0, 1, 7, 2**31, 10**9, 10**18, 2**63, 10**30, 0.5, 1e300, float("nan"), float("inf")]
)
WORDS = st.sampled_from(
    [*sorted(validate.LAYERS), *sorted(validate.INITIALIZERS), "Lambda", "function", "__lambda__",
     "__numpy__", "__tensor__", "__keras_tensor__", "os", "builtins", "eval", "keras.layers", "keras.ops.nn",
     "/etc/passwd", "float8_e4m3fn", "channels_first", "valid", "\ud800", "\x00", ""]
)  # fmt: skip
KEYS = st.sampled_from(
    "class_name config module registered_name name layers layer units filters kernel_size activation dtype "
    "batch_shape batch_input_shape inbound_nodes input_layers build_config compile_config function".split()
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.integers() | WORDS | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return each list and dictionary within a value, once for each of its indexes or keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


@st.composite
def mutants(draw: Callable[..., Any]) -> str:
    tree = [json.loads(draw(st.sampled_from(SEEDS)))]
    for _ in range(draw(st.integers(1, 3))):
        container, key = draw(st.sampled_from(places(tree)))
        match draw(st.sampled_from(["replace", "remove", "repeat", "add"])):
            case "replace":
                container[key] = draw(JSON)
            case "remove" if container is not tree:
                del container[key]
            case "repeat":
                container[key] = [container[key], container[key]]
            case _ if isinstance(container[key], dict):
                container[key][draw(KEYS)] = draw(JSON)
            case _:
                pass
    return json.dumps(tree[0])


def describe(text: str) -> None:
    try:
        found = architecture.describe(text, max_parameters=10_000)
    except CerebroError as error:
        assert len(error.message) < 2000
    else:
        assert found.parameters <= 10_000
        # Segment sessions describe the resulting JSON again.
        again = architecture.describe(found.json, max_parameters=10_000)
        assert (again.weight_shapes, again.outputs) == (found.weight_shapes, found.outputs)


@FEW
@given(mutants())
def test_only_one_kind_of_error_ever_leaves(text: str) -> None:
    describe(text)


@FEW
@given(JSON.map(json.dumps) | st.text(max_size=50))
def test_no_json_is_too_strange(text: str) -> None:
    describe(text)


@pytest.mark.slow
@MANY
@given(mutants())
def test_only_one_kind_of_error_ever_leaves_many_more(text: str) -> None:
    describe(text)
