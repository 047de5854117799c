from __future__ import annotations

import json
from typing import Any

import pytest

from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import architecture, validate
from cerebro_plpy.errors import CerebroError

pytestmark = pytest.mark.usefixtures("engine")


def sequential(*layers: Any) -> str:
    return runtime.keras().Sequential(list(layers)).to_json()


def dense(**changes: Any) -> dict[str, Any]:
    return {"module": "keras.layers", "class_name": "Dense", "config": {"units": 2}, **changes}


def model(*layers: dict[str, Any]) -> str:
    first = {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [None, 3]}}
    config = {"name": "net", "layers": [first, *layers]}
    return json.dumps({"module": "keras", "class_name": "Sequential", "config": config})


# As MADlib's documentation has it for the iris data.
IRIS = """{"class_name": "Sequential", "keras_version": "2.1.6", "config": [{"class_name": "Dense", "config":
{"kernel_initializer": {"class_name": "VarianceScaling", "config": {"distribution": "uniform",
"scale": 1.0, "seed": null, "mode": "fan_avg"}}, "name": "dense_1", "kernel_constraint": null,
"bias_regularizer": null, "bias_constraint": null, "dtype": "float32", "activation": "relu",
"trainable": true, "kernel_regularizer": null, "bias_initializer": {"class_name": "Zeros", "config":
{}}, "units": 10, "batch_input_shape": [null, 4], "use_bias": true, "activity_regularizer": null}},
{"class_name": "Dense", "config": {"name": "dense_3", "activation": "softmax", "trainable": true,
"units": 3, "use_bias": true}}], "backend": "tensorflow"}"""


def node(name: str) -> list[Any]:
    return [name, 0, 0, {}]


FUNCTIONAL_2 = {
    "class_name": "Model",
    "config": {
        "name": "m",
        "layers": [
            {
                "name": "in",
                "class_name": "InputLayer",
                "config": {
                    "batch_input_shape": [None, 8, 8, 1],
                    "dtype": "float32",
                    "sparse": False,
                    "name": "in",
                },
                "inbound_nodes": [],
            },
            {
                "name": "c",
                "class_name": "Conv2D",
                "config": {
                    "name": "c",
                    "filters": 4,
                    "kernel_size": [3, 3],
                    "dtype": {"class_name": "Policy", "config": {"name": "float32"}},
                    "kernel_initializer": {"class_name": "GlorotUniform", "config": {"dtype": "float32"}},
                },
                "inbound_nodes": [[node("in")]],
            },
            {
                "name": "bn",
                "class_name": "BatchNormalizationV1",
                "config": {"name": "bn", "axis": [3]},
                "inbound_nodes": [[node("c")]],
            },
            {"name": "f", "class_name": "Flatten", "config": {"name": "f"}, "inbound_nodes": [[node("bn")]]},
            {
                "name": "a",
                "class_name": "Dense",
                "config": {"name": "a", "units": 2},
                "inbound_nodes": [[node("f")]],
            },
            {
                "name": "join",
                "class_name": "Concatenate",
                "config": {"name": "join"},
                "inbound_nodes": [[node("a"), node("f")]],
            },
        ],
        "input_layers": [["in", 0, 0]],
        "output_layers": [["join", 0, 0], ["a", 0, 0]],
    },
}


def test_a_sequential_model_of_keras_2() -> None:
    found = architecture.describe(IRIS)
    assert (found.inputs, found.outputs) == (((4,),), ((3,),))
    assert found.weight_shapes == ((4, 10), (10,), (10, 3), (3,))
    assert found.parameters == 83
    assert architecture.build(found.json).count_params() == 83


def test_a_functional_model_of_keras_2() -> None:
    found = architecture.describe(json.dumps(FUNCTIONAL_2))
    assert found.inputs == ((8, 8, 1),)
    assert found.outputs == ((146,), (2,))
    assert found.output_names == ("join", "a")


def test_a_recurrent_model_of_keras_2() -> None:
    lstm = {"class_name": "LSTM", "config": {"units": 4, "implementation": 1, "time_major": False}}
    around = {"class_name": "Bidirectional", "config": {"batch_input_shape": [None, 5, 3], "layer": lstm}}
    leaky = {"class_name": "LeakyReLU", "config": {"alpha": 0.25}}
    found = architecture.describe(json.dumps({"class_name": "Sequential", "config": [around, leaky]}))
    assert found.outputs == ((8,),)
    assert architecture.build(found.json).layers[-1].negative_slope == 0.25


def test_what_is_described_needs_no_memory() -> None:
    wide = dense(config={"units": 40_000})
    found = architecture.describe(model(wide, dense(config={"units": 40_000})))
    assert found.parameters == 3 * 40_000 + 40_000 + 40_000 * 40_000 + 40_000


def test_too_many_parameters_are_refused() -> None:
    huge = dense(config={"units": 1_000_000_000})
    with pytest.raises(CerebroError, match="1000000005000000000 parameters, more than 2000000000"):
        architecture.describe(model(huge, huge))


def test_a_layer_that_follows_no_seed_is_refused() -> None:
    keras = runtime.keras()
    text = sequential(keras.Input((8, 8, 3)), keras.layers.AugMix(), keras.layers.Flatten())
    with pytest.raises(CerebroError, match="AugMix") as caught:
        architecture.describe(text)
    assert "What it does follows no seed" in str(caught.value.detail)


def test_an_open_input_needs_a_shape() -> None:
    text = sequential(runtime.keras().layers.Dense(3))
    with pytest.raises(CerebroError, match="shape of its input") as caught:
        architecture.describe(text)
    assert "keras.Input" in str(caught.value.hint)
    assert architecture.describe(text, ((4,),)).weight_shapes == ((4, 3), (3,))


def test_description_and_model_agree() -> None:
    keras = runtime.keras()
    layers = keras.layers
    inputs = [keras.Input((6, 4), name="one"), keras.Input((3,), name="two")]
    joined = layers.Concatenate()([layers.GRU(5)(inputs[0]), layers.Dense(2)(inputs[1])])
    made = keras.Model(inputs, [layers.Dense(1, name="x")(joined), keras.ops.relu(joined) * 2])
    found = architecture.describe(made.to_json())
    assert found.input_names == ("one", "two")
    assert found.outputs == ((1,), (7,))
    assert found.weight_shapes == tuple(tuple(w.shape) for w in made.weights)
    assert found.flops_per_row == pytest.approx(2 * (6 * (4 * 15 + 5 * 15) + 3 * 2 + 7), rel=0.25)


REFUSED = {
    "a Lambda": dense(class_name="Lambda", config={"function": ["4wEA", None, None]}),
    "a file": dense(class_name="TFSMLayer", config={"filepath": "/etc/passwd"}),
    "a pickle": dense(class_name="TorchModuleWrapper", config={"module": "gASV"}),
    "a vocabulary file": dense(class_name="StringLookup", config={"vocabulary": "/etc/passwd"}),
    "another module": dense(module="os", class_name="system", config="true"),
    "a module that looks like Keras": dense(module="keras_evil.layers"),
    "a hidden class": dense(module="keras.src.layers.core.lambda_layer", class_name="Lambda"),
    "a registered object": dense(registered_name="evil>Dense"),
    "a function as initializer": dense(
        config={
            "units": 2,
            "kernel_initializer": {"module": "builtins", "class_name": "function", "config": "eval"},
        }
    ),
    "a lambda as activation": dense(
        config={"units": 2, "activation": {"class_name": "__lambda__", "config": {"value": "4wEA"}}}
    ),
    "a wrapped Lambda": dense(
        class_name="TimeDistributed", config={"layer": dense(class_name="Lambda", config={})}
    ),
    "a Lambda in a list": dense(class_name="StackedRNNCells", config={"cells": [dense(class_name="Lambda")]}),
    "an operation that calls": dense(module="keras.src.ops.function", class_name="Function"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_code_is_refused(case: str) -> None:
    with pytest.raises(CerebroError, match="which is not allowed"):
        architecture.describe(model(dense(), REFUSED[case]))


@pytest.mark.parametrize("class_name", ["Lambda", "TFOpLambda", "TFSMLayer", "MyLayer"])
def test_code_is_refused_in_models_of_keras_2(class_name: str) -> None:
    layers = [{"class_name": class_name, "config": {"batch_input_shape": [None, 3]}}]
    with pytest.raises(CerebroError, match="which is not allowed"):
        architecture.describe(json.dumps({"class_name": "Sequential", "config": layers}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[1]", "not a Keras model"),
        ('{"class_name": "Sequential", "config": {}}', "no list of layers"),
        ("[" * 100_000, "not valid JSON"),
        (IRIS.replace('"units": 10', '"units": -1'), "cannot build"),
        (IRIS.replace('"relu"', '"nosuch"'), "cannot build"),
    ],
)
def test_nonsense_is_one_clear_error(text: str, message: str) -> None:
    with pytest.raises(CerebroError, match=message) as caught:
        architecture.describe(text)
    assert "\n" not in f"{caught.value.message}{caught.value.detail}"


def test_a_compiled_models_json_is_not_compiled_again() -> None:
    made = runtime.keras().Sequential([runtime.keras().Input((3,)), runtime.keras().layers.Dense(2)])
    made.compile("adam", "mse")
    assert not architecture.build(architecture.describe(made.to_json()).json).compiled


def test_the_lists_name_only_what_keras_has() -> None:
    keras = runtime.keras()
    for module, names in (
        (keras.layers, validate.LAYERS),
        (keras.initializers, validate.INITIALIZERS),
        (keras.regularizers, validate.REGULARIZERS),
        (keras.constraints, validate.CONSTRAINTS),
        (keras.activations, validate.ACTIVATIONS),
    ):
        assert [name for name in names if not hasattr(module, name)] == []


def test_open_dimensions_count_as_long_as_the_rows_are() -> None:
    """A net that takes series of any length keeps and computes as much as one for the table's length."""
    keras = runtime.keras()
    shapes = ((1000, 8),)

    def describe(length: int | None, functional: bool) -> architecture.DescribedModel:
        series, lstm = keras.Input((length, 8), name="series"), keras.layers.LSTM(16, name="lstm")
        last = keras.layers.Dense(2, name="last")
        net = (
            keras.Model(series, last(lstm(series)), name="net")
            if functional
            else keras.Sequential([series, lstm, last], name="net")
        )
        return architecture.describe(net.to_json(), input_shapes=shapes)

    for functional in (True, False):
        free, fixed = (describe(length, functional) for length in (None, 1000))
        assert free.inputs == ((None, 8),) and free.weight_shapes == fixed.weight_shapes
        assert (free.flops_per_row, free.work) == (fixed.flops_per_row, fixed.work)
        assert [use.keeps for net in free.uses for use in net.uses] == [
            use.keeps for net in fixed.uses for use in net.uses
        ]


def test_hard_sigmoid_is_another_function_where_keras_2_wrote_it() -> None:
    config = {"units": 3, "activation": "hard_sigmoid", "batch_input_shape": [None, 2]}
    layer: dict[str, object] = {"class_name": "Dense", "config": config}
    old = json.dumps({"class_name": "Sequential", "config": {"layers": [layer]}})
    assert architecture.has_old_sigmoid(old)
    assert not architecture.has_old_sigmoid(old.replace("hard_sigmoid", "sigmoid"))
    new = json.dumps({"module": "keras", "class_name": "Sequential", "config": {"layers": [layer]}})
    assert not architecture.has_old_sigmoid(new)
