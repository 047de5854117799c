"""The tables of names of optimizers, losses and metrics agree with the installed Keras."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from cerebro_plpy.madlib.check import _KINDS, _argument
from cerebro_plpy.madlib.names import LOSSES, METRICS, OPTIMIZERS, REQUIRED, SCHEDULES, Signature
from cerebro_plpy.madlib.spellings import LOSS_TEXTS, METRIC_TEXTS, OLD_LOSSES, OLD_METRICS, snake

TABLES = {"optimizers": OPTIMIZERS, "schedules": SCHEDULES, "losses": LOSSES, "metrics": METRICS}
# What stands in Keras' modules and is left out, with the reason.
LEFT_OUT = {
    "Optimizer": "abstract",
    "OptimizerMap": "no optimizer",
    "MultiOptimizer": "takes regular expressions from its user",
    "LearningRateSchedule": "abstract",
    "Loss": "abstract",
    "LossFunctionWrapper": "takes a function",
    "Metric": "abstract",
    "MeanMetricWrapper": "takes a function",
    "Mean": "compares nothing: fails in compile(metrics=…)",
    "Sum": "compares nothing: fails in compile(metrics=…)",
}
# Texts that compile() resolves by the shapes of the outputs, not the getters of losses and metrics.
BY_SHAPE = {"crossentropy", "ce", "accuracy", "acc"}
# Arguments that are required here, since Keras' default returns one number per class.
STRICTER = {("F1Score", "average"), ("FBetaScore", "average")}

# In a process of its own: a process has one Keras backend, and other tests need theirs.
INSPECT = """
import inspect, json, sys
import keras
from keras.src import losses, metrics
from keras.src.utils.naming import to_snake_case

required = json.loads(sys.argv[1])
modules = {
    "optimizers": keras.optimizers,
    "schedules": keras.optimizers.schedules,
    "losses": keras.losses,
    "metrics": keras.metrics,
}

def arguments(cls):
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    named = [p for p in parameters if p.kind is not p.VAR_KEYWORD and p.kind is not p.VAR_POSITIONAL]
    return {p.name: required if p.default is p.empty else p.default for p in named}

def classes(module):
    found = {name: getattr(module, name) for name in dir(module)}
    return {name: arguments(item) for name, item in found.items() if inspect.isclass(item)}

def names(objects):
    return {text: item.__name__ for text, item in objects.items()}

facts = {kind: classes(module) for kind, module in modules.items()}
facts["loss texts"] = names(losses.ALL_OBJECTS_DICT)
facts["metric texts"] = names(metrics.ALL_OBJECTS_DICT)
facts["snake"] = {name: to_snake_case(name) for kind in modules for name in facts[kind]}
print(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def keras() -> dict[str, dict[str, Any]]:
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    command = [sys.executable, "-c", INSPECT, json.dumps(REQUIRED)]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


@pytest.mark.parametrize("kind", TABLES)
def test_classes_arguments_and_defaults_are_those_of_keras(kind: str, keras: dict[str, Any]) -> None:
    expected = {name: arguments for name, arguments in keras[kind].items() if name not in LEFT_OUT}
    tables = {name: defaults(signature) for name, signature in TABLES[kind].items()}
    assert json.loads(json.dumps(tables)) == expected


@pytest.mark.parametrize("kind", TABLES)
def test_defaults_are_in_range(kind: str) -> None:
    for name, signature in TABLES[kind].items():
        for key, argument in signature.items():
            if argument.default != REQUIRED and (name, key) not in STRICTER:
                default = list(argument.default) if isinstance(argument.default, tuple) else argument.default
                assert _argument(default, argument, key) == default  # type: ignore[arg-type]


def test_texts_are_those_of_keras(keras: dict[str, Any]) -> None:
    losses, metrics = keras["loss texts"], keras["metric texts"]
    assert set(LOSS_TEXTS) - BY_SHAPE == set(losses) - set(LEFT_OUT)
    left_out = {text for name in LEFT_OUT for text in (name, snake(name))}
    assert set(METRIC_TEXTS) - BY_SHAPE == set(metrics) - left_out - BY_SHAPE


def test_texts_lead_to_the_class_that_keras_takes(keras: dict[str, Any]) -> None:
    folded = {name.replace("_", "").lower() for name in LOSSES}
    for text, class_name in LOSS_TEXTS.items():
        if text not in BY_SHAPE:
            taken = keras["loss texts"][text].replace("_", "").lower()
            assert taken == class_name.lower() and taken in folded
    for text, class_name in METRIC_TEXTS.items():
        if text not in BY_SHAPE:
            assert keras["metric texts"][text] == class_name


def test_snake_is_keras_own(keras: dict[str, Any]) -> None:
    assert {name: snake(name) for name in keras["snake"]} == keras["snake"]


def test_old_spellings_lead_to_new_ones() -> None:
    assert not set(OLD_LOSSES) & set(LOSS_TEXTS)
    assert set(OLD_LOSSES.values()) <= {*LOSS_TEXTS, *LOSSES}
    assert not set(OLD_METRICS) & set(METRIC_TEXTS)
    assert set(OLD_METRICS.values()) <= set(METRIC_TEXTS)


def test_tables_name_known_kinds_only() -> None:
    signatures = [signature for table in TABLES.values() for signature in table.values()]
    assert {argument.kind for signature in signatures for argument in signature.values()} == set(_KINDS)


def defaults(signature: Signature) -> dict[str, object]:
    return {key: argument.default for key, argument in signature.items()}
