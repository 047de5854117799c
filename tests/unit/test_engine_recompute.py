"""A net trains the same whether layers are computed again in the backward pass or their outputs are kept."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import nets
from cerebro_plpy.engine.activations import blocks
from cerebro_plpy.engine.checks import architecture
from cerebro_plpy.engine.models import model
from cerebro_plpy.engine.models.data import ONE_HOT, Block, Dataset, Target
from cerebro_plpy.engine.state import State
from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.madlib import recomputed
from cerebro_plpy.madlib.params import Call, CompileParams
from engines import BACKEND, nothing

# XLA puts arithmetic together in another way where what it is given is recomputed: the last bits of some nets
# differ. Adam would magnify that, since it divides slopes by their size.
EXACT = BACKEND != "jax"
OPTIMIZER = Call("Adam" if EXACT else "SGD", (("learning_rate", 0.01),))
PARAMS = CompileParams(optimizer=OPTIMIZER, loss="categorical_crossentropy", metrics=["accuracy"])
ROWS, SEED = 103, 5
pytestmark = [
    pytest.mark.usefixtures("engine"),
    pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning"),
]


def deep(*between: nets.Layer) -> str:
    hidden = [nets.layer("Dense", units=24, activation="relu") for _ in range(9)]
    last = nets.layer("Dense", units=nets.CLASSES, activation="softmax")
    return nets.sequential([nets.FEATURES], *hidden[:5], *between, *hidden[5:], last)


DENSE = deep()
# Its layers draw, and change variables that do not train.
CHANGING = deep(
    nets.layer("Dropout", rate=0.3),
    nets.layer("BatchNormalization"),
    nets.layer("Activation", activation="relu"),
    nets.layer("Dropout", rate=0.2),
)
EVERY_NET = {
    "dense": DENSE,
    "changing": CHANGING,
    "convolutions": nets.cnn(),
    "recurrent": nets.lstm(),
    "branches": nets.branches(),
    "attention": nets.encoder(),
}


def data(text: str) -> Dataset:
    random = np.random.default_rng(1)
    shapes = architecture.describe(text).inputs
    inputs = [random.random((ROWS, *(d or 1 for d in shape)), np.float32) for shape in shapes]
    if text == EVERY_NET["attention"]:
        inputs = [np.floor(9 * array) for array in inputs]
    targets = []
    for shape in architecture.describe(text).outputs:
        classes = random.integers(0, shape[0] or 1, ROWS)
        targets.append(Target(np.eye(shape[0] or 1, dtype=np.int16)[classes], ONE_HOT))
    return Dataset(inputs, targets)


def trained(text: str, again: model.Recomputed, passes: int = 2) -> tuple[State, dict[str, float]]:
    made = model.compiled(architecture.describe(text).json, PARAMS, again)
    rows = data(text)
    orders = [np.random.default_rng(n).permutation(ROWS) for n in range(passes)]
    return made.train(
        made.initial_state(PARAMS, SEED, None), [[Block(rows, o)] for o in orders], 20, None, nothing
    )


@pytest.mark.parametrize("name", EVERY_NET)
def test_a_net_learns_the_same(name: str) -> None:
    """The states are also equal in seeds and moving averages."""
    kept, losses = trained(EVERY_NET[name], False)
    again, its_losses = trained(EVERY_NET[name], True)
    assert kept.kinds == again.kinds
    tolerance = 0.0 if EXACT or name == "dense" else 1e-6
    assert its_losses == pytest.approx(losses, rel=tolerance, abs=0)
    check_alike(kept, again, tolerance)


def check_alike(one: State, other: State, tolerance: float) -> None:
    for first, second in zip(one.arrays, other.arrays, strict=True):
        np.testing.assert_allclose(first, second, rtol=tolerance, atol=tolerance)


def test_the_bits_are_the_same_every_time() -> None:
    once, twice = (trained(CHANGING, True)[0] for _ in range(2))
    check_alike(once, twice, 0.0)


def blocks_of(text: str, again: model.Recomputed) -> list[blocks.LayerBlock]:
    made = model.CompiledModel(architecture.describe(text).json, PARAMS, again=again)._model
    call = (getattr(made, "_functional", None) or made).call
    return [part for part in call.args[3] if part.again] if hasattr(call, "args") else []


def test_layers_are_recomputed_in_blocks() -> None:
    parts = blocks_of(DENSE, True)
    assert len(parts) > 1
    assert max(part.last - part.first for part in parts) > 1
    # The loss needs what the last layers make at once.
    assert max(part.last for part in parts) < 10


def test_named_layers_alone_are_recomputed() -> None:
    parts = blocks_of(DENSE, ("dense_3", "dense_4"))
    assert {place for part in parts for place in range(part.first, part.last)} == {2, 3}
    assert blocks_of(DENSE, False) == []


def test_named_layers_learn_the_same() -> None:
    kept, _ = trained(CHANGING, False)
    named, _ = trained(CHANGING, ("dense_5", "dropout_6", "batchnormalization_7", "activation_8"))
    check_alike(kept, named, 0.0 if EXACT else 1e-6)


def test_unknown_layers_are_refused() -> None:
    text = architecture.describe(DENSE).json
    with pytest.raises(CerebroError, match='"dense_33", and no net has such a layer') as found:
        recomputed.check(["dense_3", "dense_33"], [text])
    assert found.value.hint == 'Did you mean "dense_3"?'


def test_layers_that_must_be_kept_are_refused_by_name() -> None:
    regular = {"module": "keras.regularizers", "class_name": "L2", "config": {"l2": 0.1}}
    text = deep(nets.layer("Dense", name="regular", units=3, activity_regularizer=regular))
    for net, reason in ((text, "adds to the loss"), (nets.lstm(), "step by step")):
        found = architecture.describe(net).json
        (name,) = recomputed.kept(found)
        with pytest.raises(CerebroError, match=f'names "{name}", which cannot be computed again') as error:
            recomputed.check([name], [found])
        assert error.value.sqlstate == NOT_SUPPORTED
        assert reason in str(error.value.detail)


_PEAK = """
import sys
from cerebro_plpy.engine.backends import runtime
runtime.start("jax", 1, False)
import numpy as np
import nets
from cerebro_plpy.engine.checks import architecture
from cerebro_plpy.engine.models import model
from cerebro_plpy.engine.models.data import ONE_HOT, Dataset, Target
from cerebro_plpy.madlib.params import Call, CompileParams

hidden = [nets.layer("Dense", units=32, activation="relu") for _ in range(40)]
text = architecture.describe(
    nets.sequential([8], *hidden, nets.layer("Dense", units=3, activation="softmax"))
).json
params = CompileParams(optimizer=Call("Adam", ()), loss="categorical_crossentropy", metrics=[])
rows = Dataset([np.ones((2048, 8), np.float32)], [Target(np.eye(3, dtype=np.int16)[[0] * 2048], ONE_HOT)])
for again in (False, True):
    made = model.compiled(text, params, again)
    made._loop.load(made.initial_state(params, 1, None).arrays, {})
    print(made.count_step_bytes(rows, 2048))
"""


def test_the_compiled_program_of_a_deep_net_needs_less_memory() -> None:
    """XLA may merge equal computations, which would undo the effect; the memory is what XLA reports."""
    done = subprocess.run(
        [sys.executable, "-c", _PEAK],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    kept, again = map(int, done.stdout.split())
    assert again < 0.4 * kept
