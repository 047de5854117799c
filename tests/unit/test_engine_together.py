"""Frozen layers that several nets have in common are computed once, with the bits of each net alone."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pytest

import nets
from cerebro_plpy.engine import weights
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import architecture
from cerebro_plpy.engine.models import cut, together, trunk
from cerebro_plpy.engine.models.data import Block, Dataset
from cerebro_plpy.nets import joining
from cerebro_plpy.segment import features, rows
from cerebro_plpy.store.packed import partitions
from engines import nothing

pytestmark = [
    pytest.mark.usefixtures("engine"),
    pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning"),
]
ROWS, SIZE = 37, 8


def net(depth: int, *, width: int = 6) -> str:
    """Return a net with `depth` frozen convolutions and a head of `width` units."""
    config = {"filters": 4, "kernel_size": [3, 3], "activation": "relu", "trainable": False}
    kept = [nets.layer("Conv2D", name=f"conv_{n}", **config) for n in range(depth)]
    return nets.sequential(
        [nets.FEATURES],
        nets.layer("Reshape", target_shape=[nets.SIDE, nets.SIDE, 1], name="image"),
        *kept,
        nets.layer("GlobalAveragePooling2D", name="pooled"),
        nets.layer("Dense", units=width, name="head"),
        nets.layer("Dense", units=nets.CLASSES, name="out"),
    )


def part(text: str, values: Mapping[str, float]) -> together.TrunkWithValues:
    found = architecture.describe(text).json
    names = [one.name for one in trunk.layers(architecture.build(found))]
    made = cut.Trunk(found, names)
    own = [np.full(v.shape, values[v.path.split("/")[-2]], np.float32) for v in made.variables]
    return together.TrunkWithValues(made, own)


VALUES = {"conv_0": 0.3, "conv_1": -0.2, "conv_2": 0.1}


def block() -> tuple[Dataset, Block]:
    x = np.random.default_rng(0).normal(size=(ROWS, nets.FEATURES)).astype(np.float32)
    rows = Dataset([x], [])
    return rows, Block(rows, np.arange(ROWS))


def check_bits(joined: together.TogetherPass, parts: Sequence[together.TrunkWithValues]) -> None:
    """Assert that the trunks computed together have the same outputs, bit by bit, as each trunk alone."""
    _, rows = block()
    found = joined.features(joined.values, [rows], ROWS, SIZE, nothing)
    for own, places in zip(parts, joined.places, strict=True):
        alone = own.trunk.features(own.values, [rows], ROWS, SIZE, nothing)
        assert [found[place].tobytes() for place in places] == [array.tobytes() for array in alone]


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1), (2, 3, 1)])
def test_layers_in_common_are_computed_once(order: tuple[int, ...]) -> None:
    parts = [part(net(depth), VALUES) for depth in order]
    joined = together.TogetherPass(parts)
    # The image and each convolution stand once; each net averages another layer.
    assert len(joined.variables) == 2 * max(order)
    assert joined.shared == sum(1 + depth for depth in order) - 1 - max(order)
    check_bits(joined, parts)


def test_layers_with_other_weights_or_arguments_are_not_in_common() -> None:
    first, other = part(net(2), VALUES), part(net(2), {**VALUES, "conv_1": 0.5})
    joined = together.TogetherPass([first, other])
    assert joined.shared == 2 and len(joined.variables) == 6
    text = json.loads(net(2))
    for one in text["config"]["layers"]:
        if one["config"]["name"] == "conv_0":
            one["config"]["activation"] = "tanh"
    joined = together.TogetherPass([first, part(json.dumps(text), VALUES)])
    assert joined.shared == 1
    _, rows = block()
    found = joined.features(joined.values, [rows], ROWS, SIZE, nothing)
    assert found[joined.places[0][0]].tobytes() != found[joined.places[1][0]].tobytes()


def branched(first: str, second: str, dtype: str = "float32") -> str:
    """Return a net of two frozen layers, named `first` and `second`, with an addition between them."""
    layers = runtime.keras().layers
    rows = runtime.keras().Input((nets.FEATURES,), name="rows", dtype=dtype)
    inner = layers.Dense(nets.FEATURES, name=first, trainable=False)(rows)
    inner = layers.Dense(5, name=second, trainable=False)(inner + layers.Dropout(0.0, name="same")(inner))
    return runtime.keras().Model(rows, layers.Dense(nets.CLASSES, name="out")(inner)).to_json()


def test_names_that_clash_are_made_unique() -> None:
    pairs = [("a", "b"), ("b", "a_1"), ("a_1", "a")]
    parts = [part(branched(*pair), {pair[0]: 0.1 * n, pair[1]: 0.2}) for n, pair in enumerate(pairs, 1)]
    joined = together.TogetherPass(parts)
    assert joined.shared == 0
    check_bits(joined, parts)


def test_nets_whose_inputs_are_of_other_types_stay_apart() -> None:
    values = {"a": 0.1, "b": 0.2}
    parts = [part(branched("a", "b"), values), part(branched("a", "b", "float16"), values)]
    with pytest.raises(ValueError, match="take other rows"):
        together.TogetherPass(parts)


def test_weights_are_grafted_beside_operations() -> None:
    base = architecture.describe(branched("a", "b")).json
    sizes = [math.prod(shape) for shape in architecture.describe(base).weight_shapes]
    given = np.arange(sum(sizes), dtype="<f4").tobytes()
    begun = joining.begin_on(base, "b", 1)
    assert {"a", "b"} < set(begun.names)
    text = begun.graph.as_json([begun.graph.layer("Dense", begun.last, units=2, name="out")], "net")
    made = weights.graft_weights(base, given, architecture.describe(text).json, begun.names)
    kept = 4 * sum(sizes[:4])
    assert made[:kept] == given[:kept] and len(made) == kept + 4 * (5 * 2 + 2)


def test_a_partition_has_the_features_of_all_nets_after_one_pass() -> None:
    data, _ = block()
    partition = rows.Partition(1, "packed", 0, None, [partitions.Buffer(0, ROWS, 0)], cast("Any", None), data)
    parts = {number: part(net(number), VALUES) for number in (1, 2, 3)}
    digests = {n: one.trunk.digest(one.values) for n, one in parts.items()}
    others = {(n, SIZE): (lambda n=n: features.OtherTrunk(parts[n], digests[n])) for n in (2, 3)} | {
        (3, 20): lambda: pytest.fail("another batch size has other features")
    }
    needs = features.Needs((1, SIZE), others)
    limits = {"needs": needs, "budget": 2**30, "tick": nothing}
    made = features.compute_together(parts[1], (digests[1], SIZE), partition, **limits)
    assert set(made) == {(digests[n], SIZE) for n in (1, 2, 3)}
    assert [made[digests[n], SIZE].marks for n in (1, 2, 3)] == [{(n, SIZE)} for n in (1, 2, 3)]
    partition.features |= made
    # Nothing is left to be computed together.
    assert not features.compute_together(parts[2], (digests[2], SIZE), partition, **limits)
