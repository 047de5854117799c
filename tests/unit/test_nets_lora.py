"""`enable_lora` adds adapters to the right layers and freezes the others."""

from __future__ import annotations

import json

import pytest

import nets
from cerebro_plpy.engine.models.stages import thawed
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.nets.lora import adapted

CHAIN = nets.sequential(
    [8],
    nets.layer("Dense", name="lower", units=8, activation="relu"),
    nets.layer(
        "BatchNormalization",
        name="norm",
        dtype={"module": "keras", "class_name": "DTypePolicy", "config": {"name": "float32"}},
    ),
    nets.layer("TimeDistributed", name="around", layer=nets.layer("Dense", name="inner", units=4)),
    nets.layer("Dense", name="head", units=3),
    nets.layer("Activation", name="last", activation="softmax"),
)


def changed(text: str) -> dict[str, object]:
    """Return the rank of each layer's adapter, or whether the layer trains, by the layer's name."""
    config = json.loads(text)["config"]
    every = [one["config"] for one in config["layers"]]
    every += [one["layer"]["config"] for one in every if "layer" in one]
    return {c["name"]: c.get("lora_rank") or c.get("trainable") for c in every if "trainable" in c}


def test_all_layers_that_can_have_one_get_an_adapter_but_the_head() -> None:
    assert changed(adapted(CHAIN, 4, None, None)) == {"lower": 4, "norm": False, "inner": 4, "last": False}


def test_what_is_no_layer_stays_as_it_is() -> None:
    layers = json.loads(adapted(CHAIN, 4, None, None))["config"]["layers"]
    (norm,) = [one["config"] for one in layers if one["class_name"] == "BatchNormalization"]
    assert norm["dtype"]["config"] == {"name": "float32"}


def test_names_say_which() -> None:
    found = changed(adapted(CHAIN, 2, ["low*"], ["norm", "head"]))
    assert found == {"lower": 2, "around": False, "inner": False, "last": False}


def test_the_outputs_of_a_graph_train() -> None:
    model = json.loads(adapted(nets.two_by_two([3, 4], 2), 2, None, None))["config"]
    configs = {one["name"]: one["config"] for one in model["layers"]}
    said = {name: own.get("lora_rank") or own.get("trainable") for name, own in configs.items()}
    assert said == {"in_0": None, "in_1": None, "both": False, "hidden": 2, "kind": None, "size": None}


def test_a_frozen_model_gives_its_layers_what_it_says() -> None:
    """Keras ignores `trainable` of a whole model, so that neither adapters nor layers would train."""
    held = json.loads(CHAIN)
    held["config"]["trainable"] = False
    found = json.loads(adapted(json.dumps(held), 4, None, None))["config"]
    assert found.get("trainable", True) and changed(json.dumps({"config": found}))["lower"] == 4
    inside = nets.sequential([8], json.loads(CHAIN), nets.layer("Dense", name="top", units=3))
    model = json.loads(inside)
    model["config"]["layers"][1]["config"]["trainable"] = False
    base = json.loads(thawed(json.dumps(model), ["norm"]))["config"]["layers"][1]["config"]
    trains = {one["config"]["name"]: one["config"].get("trainable") for one in base["layers"]}
    assert {name for name, does in trains.items() if does is not False} >= {"norm"}
    assert trains["lower"] is trains["head"] is False


@pytest.mark.parametrize(
    "rank, layers, train, message",
    [
        (0, None, None, "lora_rank is 0"),
        (None, None, None, "lora_rank is None"),
        (2, ["lowr"], None, 'layers names "lowr", and the net has no such layer'),
        (2, ["norm"], None, 'layer "norm" is a BatchNormalization, which has no adapter'),
        (2, ["head"], None, 'layer "head" would have an adapter and train whole'),
        (2, None, ["*"], "no layer of the net can have an adapter"),
    ],
)
def test_what_cannot_be_is_refused(
    rank: int | None, layers: list[str] | None, train: list[str] | None, message: str
) -> None:
    with pytest.raises(CerebroError) as caught:
        adapted(CHAIN, rank, layers, train)
    assert caught.value.message == message


def test_a_second_adapter_is_refused() -> None:
    with pytest.raises(CerebroError, match='layer "lower" has an adapter already'):
        adapted(adapted(CHAIN, 4, ["lower"], None), 2, ["lower"], None)
