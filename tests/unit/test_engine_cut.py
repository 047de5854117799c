"""A net is cut behind its frozen layers, and its head trains on their outputs with the bits of the whole."""

from __future__ import annotations

import json
import math
from typing import Any, cast

import numpy as np
import pytest

import nets
from cerebro_plpy.engine.checks import architecture
from cerebro_plpy.engine.models import cut, model, stages, trunk
from cerebro_plpy.engine.models.data import ONE_HOT, Block, Dataset, Target
from cerebro_plpy.madlib.params import Call, CompileParams
from cerebro_plpy.segment import features, rows
from cerebro_plpy.store.packed import partitions
from engines import nothing

PARAMS = CompileParams(
    optimizer=Call("Adam", (("learning_rate", 0.05),)), loss="categorical_crossentropy", metrics=["accuracy"]
)
ROWS = 103
pytestmark = [
    pytest.mark.usefixtures("engine"),
    pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning"),
]


def head() -> list[nets.Layer]:
    return [
        nets.layer("Dropout", rate=0.3),
        nets.layer("Dense", units=8, activation="relu"),
        nets.layer("BatchNormalization"),
        nets.layer("Dense", units=nets.CLASSES, activation="softmax"),
    ]


DENSE = nets.sequential(
    [nets.FEATURES],
    nets.layer("Dense", units=50, activation="tanh", trainable=False),
    nets.layer("BatchNormalization", trainable=False),
    *head(),
)
CONVOLUTIONS = nets.sequential(
    [nets.FEATURES],
    nets.layer("Reshape", target_shape=[nets.SIDE, nets.SIDE, 1]),
    nets.layer("Conv2D", filters=4, kernel_size=[3, 3], activation="relu", trainable=False),
    nets.layer("BatchNormalization", trainable=False),
    nets.layer("MaxPooling2D", pool_size=[2, 2]),
    nets.layer("GlobalAveragePooling2D"),
    nets.layer("Dense", units=6, activation="relu", trainable=False),
    *head(),
)


BRANCHES = nets.branches()


def inside(text: str) -> list[str]:
    return [one.name for one in trunk.layers(architecture.build(architecture.describe(text).json))]


def test_a_trunk_ends_where_something_trains_or_draws() -> None:
    assert inside(DENSE) == ["inputlayer_0", "dense_1", "batchnormalization_2"]
    assert inside(nets.mlp()) == []


def test_what_is_no_layer_is_not_thawed() -> None:
    """In Keras' JSON, a layer's dtype is an object with a name, which must not be taken for a layer."""
    text = json.loads(DENSE)
    for one in text["config"]["layers"]:
        policy = {"module": "keras", "class_name": "DTypePolicy", "config": {"name": "float32"}}
        one["config"]["dtype"] = {**policy, "registered_name": None}
    found = architecture.describe(json.dumps(text)).json
    thawed = architecture.build(stages.thawed(found, ["*"]))
    assert all(layer.trainable for layer in thawed.layers)
    assert "float32" not in stages.names(found)


def digest(text: str, names: list[str] | None = None) -> str:
    made = cut.Trunk(architecture.describe(text).json, inside(text) if names is None else names)
    return made.digest([np.ones(v.shape, np.float32) for v in made.of_weights(weights_of(text))])


def weights_of(text: str) -> bytes:
    shapes = architecture.describe(text).weight_shapes
    return np.ones(sum(math.prod(shape) for shape in shapes), "<f4").tobytes()


def test_trunks_that_compute_something_else_have_another_digest() -> None:
    def net(activation: str, name: str, units: int = 4) -> str:
        return nets.sequential(
            [nets.FEATURES],
            nets.layer("Dense", units=units, trainable=False),
            nets.layer("Activation", activation=activation, name=name),
            nets.layer("Dense", units=nets.CLASSES),
        )

    assert digest(net("relu", "relu")) == digest(net("relu", "other"))
    assert digest(net("relu", "relu")) != digest(net("tanh", "tanh"))
    # The second trunk has one more layer.
    assert digest(BRANCHES, ["rows", "left"]) != digest(BRANCHES, ["rows", "left", "right"])


def test_open_dimensions_and_outputs_are_in_no_trunk() -> None:
    flexible = nets.sequential(
        cast("Any", [None, 3]),
        nets.layer("Dense", units=4, trainable=False),
        nets.layer("GlobalAveragePooling1D"),
        nets.layer("Dense", units=nets.CLASSES),
    )
    assert inside(flexible) == []
    assert "kind" not in inside(nets.branches().replace('"units": 3', '"units": 3, "trainable": false'))


def test_layers_that_change_or_draw_are_in_no_trunk() -> None:
    def after(*layers: nets.Layer) -> list[str]:
        return inside(nets.sequential([nets.FEATURES], *layers, nets.layer("Dense", units=nets.CLASSES)))

    first = nets.layer("Dense", units=4, trainable=False)
    assert after(first)
    assert after(nets.layer("Dropout", rate=0.1), first) == []
    assert after(nets.layer("BatchNormalization"), first) == []
    assert after(nets.layer("ActivityRegularization", l1=0.1), first) == []
    assert after(nets.layer("Embedding", input_dim=4, output_dim=2, mask_zero=True, trainable=False)) == []
    assert after(nets.layer("SpectralNormalization", layer=first, trainable=False)) == []


@pytest.mark.parametrize("batch_size", [8, 20, 32, 51])
@pytest.mark.parametrize("text", [DENSE, CONVOLUTIONS, BRANCHES], ids=["dense", "convolutions", "branches"])
def test_a_head_has_the_bits_of_the_whole(text: str, batch_size: int) -> None:
    found = architecture.describe(text).json
    whole = model.compiled(found, PARAMS)
    state = whole.initial_state(PARAMS, 5, None)
    parted = cut.find_cut(whole, PARAMS, inside(text))
    assert parted is not None
    rng = np.random.default_rng(0)
    labels = np.eye(nets.CLASSES, dtype=np.int16)[rng.integers(0, nets.CLASSES, ROWS)]
    raw = Dataset([rng.normal(size=(ROWS, nets.FEATURES)).astype(np.float32)], [Target(labels, ONE_HOT)])
    outputs = parted.trunk.features(
        parted.trunk.of_state(state), [Block(raw, np.arange(ROWS))], ROWS, batch_size, nothing
    )
    partition = rows.Partition(1, "packed", 0, None, [partitions.Buffer(0, ROWS, 0)], cast("Any", None), raw)
    kept = features.FeatureRows(
        parted.trunk,
        parted.trunk.of_state(state),
        Dataset(outputs, raw.targets),
        partition.choose_rows(rows.Subset()),
        batch_size,
    )
    if not parted.gives_the_same(state, PARAMS, batch_size, lambda most: raw.take(np.arange(most)), nothing):
        # Only where the last bits of a row depend on its place in the mini-batch.
        order = rng.permutation(ROWS)
        moved = parted.trunk.features(
            parted.trunk.of_state(state), [Block(raw, order)], ROWS, batch_size, nothing
        )
        assert any(a[order].tobytes() != b.tobytes() for a, b in zip(outputs, moved, strict=True))
        return
    alone, logs = whole.train(
        state,
        [partition.choose_rows(rows.Subset()).shuffled(3, 1, n) for n in range(2)],
        batch_size,
        None,
        nothing,
        ROWS,
    )
    by_head, own = parted.train(
        state, [kept.shuffled(3, 1, n) for n in range(2)], batch_size, None, nothing, ROWS
    )
    assert logs == own
    assert [a.tobytes() for a in alone.arrays] == [a.tobytes() for a in by_head.arrays]
    assert (alone.step, alone.fixed_batch) == (by_head.step, by_head.fixed_batch)
