"""How many activations a net keeps for the backward pass, and how much memory a mini-batch needs."""

from __future__ import annotations

from typing import Any

import pytest

from cerebro_plpy.engine.activations import counting
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.planner.estimating.needs import needs_of

pytestmark = pytest.mark.usefixtures("engine")


def net(*layers: Any) -> Any:
    keras = runtime.keras()
    return keras.Sequential([keras.Input((8,)), *layers])


def kept(model: Any, recompute: bool | list[str] = False) -> int:
    return counting.count_kept(counting.uses_of(model), recompute)


@pytest.mark.parametrize(
    ("activation", "each"), [("linear", 1), ("softmax", 1), ("relu", 2), ("tanh", 2), ("gelu", 4)]
)
def test_an_activation_keeps_what_its_slopes_need(activation: str, each: int) -> None:
    assert kept(net(runtime.keras().layers.Dense(10, activation=activation))) == 10 * each


def test_a_layer_shares_its_input_with_the_one_before() -> None:
    layers = runtime.keras().layers
    assert kept(net(layers.Dense(10), layers.BatchNormalization(), layers.Activation("relu"))) == 30
    assert kept(net(layers.Dense(10), layers.LayerNormalization(), layers.Activation("relu"))) == 60
    assert kept(net(layers.Dense(10, activation="relu"), layers.Dropout(0.1))) == 40


def test_frozen_layers_at_the_front_keep_nothing() -> None:
    layers = runtime.keras().layers
    model = net(layers.Dense(100, trainable=False), layers.Dense(50, trainable=False), layers.Dense(10))
    assert kept(model) == 10
    behind = net(layers.Dense(10), layers.Dense(100, trainable=False), layers.Dense(3))
    assert kept(behind) == 113


def test_layers_of_a_net_within_count_once() -> None:
    keras = runtime.keras()
    inner = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(20), keras.layers.Dense(30)], name="inner"
    )
    assert kept(net(inner, keras.layers.Dense(10))) == 60


def test_what_is_computed_again_keeps_less() -> None:
    layers = runtime.keras().layers
    model = net(*(layers.Dense(64, activation="relu", name=f"d{n}") for n in range(16)), layers.Dense(3))
    whole, few = kept(model), kept(model, ["d3", "d4", "d5"])
    assert kept(model, recompute=True) < few < whole == 16 * 2 * 64 + 3


def facts(trained: int, kept: int, again: int | None = None) -> dict[str, Any]:
    again = kept if again is None else again
    return {"parameters": 10**12, "trained": trained, "work": {"kept": kept}, "kept_again": again}


def test_a_mini_batch_needs_what_trains_with_gradients_and_half_of_what_is_kept() -> None:
    needs = needs_of(facts(1000, 100), 10)
    assert needs.bytes == 4 * (2 * 1000 + 10 * 50)


def test_a_batch_is_cut_until_it_takes_half_of_the_memory() -> None:
    needs = needs_of(facts(0, 200), 64)
    assert needs.parts(400 * 64) == 2
    assert needs.parts(400 * 16) == 8
    assert needs.parts(400) is None


def test_computing_layers_again_may_be_enough() -> None:
    assert needs_of(facts(0, 200, 50), 64).fits_again(2 * 64 * 100)
    assert not needs_of(facts(0, 200, 50), 64).fits_again(2 * 64 * 100 - 1)
    assert not needs_of(facts(0, 200), 64).fits_again(10**9)
