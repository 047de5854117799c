"""Training never changes frozen weights, and a state contains all weights that are not frozen."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import every_layer
import nets
from cerebro_plpy.engine import state as states
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import architecture
from cerebro_plpy.engine.models import frozen, model, sizing
from cerebro_plpy.engine.models.data import ONE_HOT, Block, Dataset, Target
from cerebro_plpy.madlib.params import Call, CompileParams
from engines import BACKEND, nothing

PARAMS = CompileParams(
    optimizer=Call("Adam", (("learning_rate", 0.05),)), loss="categorical_crossentropy", metrics=[]
)
FEW = "Dense EinsumDense BatchNormalization SpectralNormalization LSTM Dropout Conv2D Embedding".split()
ROWS, BATCH = 12, 5

pytestmark = [
    pytest.mark.usefixtures("engine"),
    pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*destroy the mask information:UserWarning"),
]


def labelled(x: np.ndarray) -> Block:
    labels = np.eye(every_layer.CLASSES, dtype=np.int16)[np.arange(len(x)) % every_layer.CLASSES]
    return Block(Dataset([x], [Target(labels, ONE_HOT)]), np.arange(len(x)))


def compiled(text: str) -> model.CompiledModel:
    return model.compiled(architecture.describe(text).json, PARAMS)


def train(net: model.CompiledModel, state: states.State, block: Block) -> states.State:
    return net.train(state, [[block]], BATCH, None, nothing, rows=len(block.order))[0]


def short(name: str) -> str:
    """Return the name of a weight without the name of the net."""
    return name.removeprefix("net/")


def changed(before: states.State, after: states.State) -> set[str]:
    pairs = zip(before.names, before.arrays, after.arrays, strict=True)
    return {short(name) for name, a, b in pairs if a.tobytes() != b.tobytes()}


def frozen_names(state: states.State) -> list[str]:
    return [short(state.names[place]) for place in state.frozen_places]


TRUNK = nets.sequential(
    [nets.FEATURES],
    nets.layer("Dense", units=8, activation="relu", trainable=False),
    nets.layer("Dropout", rate=0.3, trainable=False),
    nets.layer("BatchNormalization", trainable=False),
    nets.layer("BatchNormalization"),
    nets.layer("Dense", units=8, lora_rank=2),
    nets.layer("Dense", units=nets.CLASSES, activation="softmax"),
)


@pytest.mark.parametrize(
    "name", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in every_layer.NETS]
)
def test_no_layer_changes_what_is_frozen(name: str) -> None:
    if (BACKEND, name) == ("jax", "RandomElasticTransform"):
        pytest.skip("Keras cannot compile it on JAX")
    keras = runtime.keras()
    built = every_layer.net(keras, name)
    for one in built.layers[:-1]:
        one.trainable = False
    net, block = compiled(built.to_json()), labelled(every_layer.rows(name))
    start = net.initial_state(PARAMS, 3, None)
    # A whole state does not say what is frozen, so the new state is read from the model completely.
    after = train(net, states.whole(start), block)
    assert not changed(start, after) & set(frozen_names(start))
    if name in ("Dense", "EinsumDense", "BatchNormalization", "LSTM", "Conv2D", "Embedding"):
        assert frozen_names(start)
    if name == "SpectralNormalization":
        assert changed(start, after) - {n for n in changed(start, after) if "dense" in n.lower()}


@pytest.mark.parametrize("name", ["MultiHeadAttention", "Bidirectional", "TimeDistributed"])
def test_what_is_inside_of_a_frozen_layer_is_frozen(name: str) -> None:
    """Layers inside a frozen layer stay frozen if the net is read from JSON, where Keras would train them."""
    built = every_layer.net(runtime.keras(), name)
    for one in built.layers[:-1]:
        one.trainable = False
    net, block = compiled(built.to_json()), labelled(every_layer.rows(name))
    start = net.initial_state(PARAMS, 3, None)
    weighty = [short(start.names[place]) for place in start.weight_order]
    assert changed(start, train(net, states.whole(start), block)) & set(weighty) == set(weighty[-2:])
    assert len(built.trainable_variables) == 2


def test_a_layer_that_keeps_things_called_layers_is_no_model() -> None:
    keras = runtime.keras()

    class Stacked(keras.layers.Layer):
        def __init__(self, sizes: list[int]) -> None:
            super().__init__(trainable=False)
            self.layers: list[Any] = [keras.layers.Dense(n) if n > 3 else n for n in sizes]

        def call(self, x: Any) -> Any:
            return self.layers[-1](x)

    net = keras.Sequential([keras.Input((4,)), Stacked([2, 5])])
    frozen.hold(net)
    assert net.trainable_variables == []


def test_what_is_frozen_and_what_is_not() -> None:
    net = compiled(TRUNK)
    start = net.initial_state(PARAMS, 3, None)
    assert frozen_names(start) == [
        "dense_1/kernel", "dense_1/bias",
        "batchnormalization_3/gamma", "batchnormalization_3/beta",
        "batchnormalization_3/moving_mean", "batchnormalization_3/moving_variance",
        "dense_5/kernel",
    ]  # fmt: skip
    x = np.random.default_rng(1).normal(size=(ROWS, nets.FEATURES)).astype(np.float32)
    after = train(net, start, labelled(x))
    moved = changed(start, after)
    assert {"batchnormalization_4/moving_mean", "dense_5/lora_kernel_b", "dense_5/bias"} <= moved
    assert any("seed" in name for name in moved)
    assert after.frozen is start.frozen


def test_the_bits_are_those_of_whole_states() -> None:
    """Three configs take turns on one model; two of them have the same frozen weights, the other does not."""
    net, block = compiled(TRUNK), labelled(np.random.default_rng(1).normal(size=(ROWS, 64)).astype("f"))
    starts = [net.initial_state(PARAMS, seed, None) for seed in (3, 4)]
    again = net.initial_state(PARAMS, 5, states.weights(starts[0]))
    assert again.frozen is not None and starts[0].frozen is not None
    assert again.frozen.digest == starts[0].frozen.digest
    own = {frozen.digest: frozen for state in starts if (frozen := state.frozen)}
    parted, whole = [*starts, again], [states.whole(state) for state in (*starts, again)]
    for _ in range(2):
        for turn in (0, 2, 1, 2, 0):
            parts = list(states.to_parts(train(net, parted[turn], block)))
            parted[turn] = states.from_parts(parts, own.__getitem__)
            net.evaluate(parted[turn], [block], BATCH, nothing)
    model.forget()
    net = compiled(TRUNK)
    for _ in range(2):
        for turn in (0, 2, 1, 2, 0):
            whole[turn] = train(net, whole[turn], block)
    for one, other in zip(parted, whole, strict=True):
        assert not changed(one, other)


def test_a_visit_that_breaks_off_leaves_nothing_behind() -> None:
    net, block = compiled(TRUNK), labelled(np.random.default_rng(1).normal(size=(ROWS, 64)).astype("f"))
    start = net.initial_state(PARAMS, 3, None)
    expected = train(net, start, block)

    def cancel() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        net.train(start, [[block]], BATCH, None, cancel, rows=ROWS)
    assert not changed(train(net, start, block), expected)


def test_sizes_are_known_before() -> None:
    net = compiled(TRUNK)
    start = net.initial_state(PARAMS, 3, None)
    assert start.frozen is not None
    sizes: Any = sizing.of_config(net.architecture_json, PARAMS)
    stored = sum(map(len, states.to_parts(start)))
    # The header may have null in place of true, which has another length.
    assert abs(sizes.state_bytes - stored) <= 8
    assert sizes.frozen_bytes == sum(map(len, states.frozen_to_parts(start.frozen)))


def test_a_net_without_frozen_layers_has_states_as_before() -> None:
    start = compiled(nets.mlp()).initial_state(PARAMS, 3, None)
    assert start.frozen is None
    (part,) = states.to_parts(start)
    assert "frozen" not in json.loads(bytes(part)[32 : 32 + int.from_bytes(part[24:32], "little")])
