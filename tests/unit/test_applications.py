"""Nets of keras.applications are accepted; if frozen, all their layers can be computed once per run."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from cerebro_db import pretrained

import applications
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import architecture
from cerebro_plpy.engine.models import cut, model
from cerebro_plpy.engine.models.data import ONE_HOT, Block, Dataset, Target
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.params import Call, CompileParams
from engines import nothing

pytestmark = pytest.mark.usefixtures("engine")

PARAMS = CompileParams(
    optimizer=Call("Adam", (("learning_rate", 0.01),)), loss="categorical_crossentropy", metrics=["accuracy"]
)
CLASSES, ROWS = 3, 24

each = pytest.mark.parametrize(
    "name",
    [n if n in applications.FEW else pytest.param(n, marks=pytest.mark.slow) for n in applications.SIDES],
)


def headed(net: Any) -> tuple[Any, str]:
    made, config = pretrained.prepared(net, head=f"Dense({CLASSES}, activation='softmax')", freeze="*")
    return made, json.dumps(config)


def test_every_net_of_keras_is_tried() -> None:
    assert applications.names(runtime.keras()) == set(applications.SIDES)


@each
def test_a_net_is_admitted_and_frozen_a_trunk(name: str) -> None:
    with architecture.unallocated():
        net = applications.net(runtime.keras(), name)
        parameters, before = net.count_params(), net.to_json()
        _, text = headed(net)
    assert architecture.describe(before).parameters == parameters
    found = architecture.describe(text)
    (last,) = [one for one in found.trunk if one.leaves]
    assert last.name == net.layers[-1].name
    assert len(found.trunk) == len(net.operations)
    assert sum(one.work.get("convolution", 0) for one in found.trunk) > 0
    # The net that was passed is unchanged.
    assert net.to_json() == before and all(layer.trainable for layer in net.layers)


def test_what_follows_no_seed_is_refused() -> None:
    convnext = runtime.keras().src.applications.convnext
    with architecture.unallocated():
        net = convnext.ConvNeXt(
            depths=[1, 1, 1, 1], projection_dims=[8, 8, 8, 8], drop_path_rate=0.1, weights=None,
            include_top=False, input_shape=(32, 32, 3),
        )  # fmt: skip
    with pytest.raises(CerebroError, match="StochasticDepth") as refused:
        architecture.describe(net.to_json())
    assert "follows no seed" in str(refused.value.detail)


def test_a_head_on_mobilenet_has_the_bits_of_the_whole() -> None:
    keras = runtime.keras()
    keras.utils.set_random_seed(1)
    net, text = headed(applications.net(keras, "MobileNetV2"))
    found = architecture.describe(text)
    whole = model.compiled(found.json, PARAMS)
    flat = b"".join(array.astype("<f4").tobytes() for array in net.get_weights())
    state = whole.initial_state(PARAMS, 5, flat)
    parted = cut.find_cut(whole, PARAMS, [one.name for one in found.trunk])
    assert parted is not None
    random = np.random.default_rng(0)
    labels = np.eye(CLASSES, dtype=np.int16)[random.integers(0, CLASSES, ROWS)]
    images = random.uniform(-1, 1, (ROWS, 32, 32, 3)).astype(np.float32)
    rows = Dataset([images], [Target(labels, ONE_HOT)])
    block = Block(rows, np.arange(ROWS))
    (outputs,) = parted.trunk.features(parted.trunk.of_state(state), [block], ROWS, 8, nothing)
    if not parted.gives_the_same(state, PARAMS, 8, lambda most: rows.take(np.arange(most)), nothing):
        # Only where the last bits of a row depend on its place in the mini-batch.
        order = random.permutation(ROWS)
        moved = parted.trunk.features(parted.trunk.of_state(state), [Block(rows, order)], ROWS, 8, nothing)
        assert outputs[order].tobytes() != moved[0].tobytes()
        return
    kept = Block(Dataset([outputs], rows.targets), np.arange(ROWS))
    alone, _ = whole.train(state, [[block]] * 2, 8, None, nothing, ROWS)
    by_head, _ = parted.train(state, [[kept]] * 2, 8, None, nothing, ROWS)
    assert [a.tobytes() for a in alone.arrays] == [a.tobytes() for a in by_head.arrays]
