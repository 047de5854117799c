"""With the layer Members, the loss of a net's mean answer equals the mean of its members' losses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cerebro_plpy.engine import own

PLPY = Path(own.__file__).parents[2]
# One step of plain gradient descent, with Members and with a loss that is written out, from the same weights.
COMPARE = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from cerebro_plpy.engine import own
from cerebro_plpy.engine.backends import runtime
backend, classes = sys.argv[2], sys.argv[3] == "classes"
runtime.start(backend, 1, use_gpus=False)
keras = runtime.keras()
ops, layers = keras.ops, keras.layers
Members = own.objects()["cerebro>Members"]
random = np.random.default_rng(3)
ROWS, K, WIDTH = 20, 5, 3
x = random.normal(size=(ROWS, 4)).astype("float32")
y = np.eye(WIDTH)[random.integers(0, WIDTH, ROWS)] if classes else random.normal(size=(ROWS, WIDTH))

def hidden():
    inputs = keras.Input((4,))
    node = layers.RepeatVector(K)(inputs)
    node = layers.EinsumDense("bki,ki->bki", output_shape=(K, 4))(node)
    node = layers.Dense(7, activation="tanh")(node)
    return inputs, layers.EinsumDense("bkw,kwo->bko", output_shape=(K, WIDTH), bias_axes="ko")(node)

inputs, node = hidden()
node = Members(classes=classes)(node)
node = layers.Softmax()(node) if classes else node
with_members = keras.Model(inputs, layers.GlobalAveragePooling1D()(node))
plain = keras.Model(*hidden())
for one in plain.weights:
    one.assign(random.normal(size=one.shape))
before = plain.get_weights()
with_members.set_weights(before)

def of_each(truth, answers):
    if classes:
        return ops.mean(-ops.sum(truth[:, None] * ops.log_softmax(answers, axis=-1), axis=-1), axis=1)
    return ops.mean(ops.square(truth[:, None] - answers), axis=(1, 2))

answers = plain.predict(x, verbose=0)
if classes:
    answers = np.exp(answers) / np.exp(answers).sum(-1, keepdims=True)
apart = np.abs(with_members.predict(x, verbose=0) - answers.mean(1)).max()
assert apart < 1e-6, apart
with_members.compile(keras.optimizers.SGD(0.5), "categorical_crossentropy" if classes else "mse")
plain.compile(keras.optimizers.SGD(0.5), of_each)
measured = with_members.evaluate(x, y, verbose=0)
mean = answers.mean(1)
expected = -np.log((mean * y).sum(1)).mean() if classes else np.square(mean - y).mean()
assert abs(measured - expected) < 1e-5, "a measured loss is that of the mean, and nothing is added"
losses = [
    model.fit(x, y, batch_size=ROWS, verbose=0).history["loss"][0] for model in (with_members, plain)
]
assert abs(losses[0] - losses[1]) < 1e-5, losses
apart = [np.abs(a - b).max() for a, b in zip(with_members.get_weights(), plain.get_weights())]
moved = [np.abs(a - b).max() for a, b in zip(before, plain.get_weights())]
assert max(apart) < 1e-5 and min(moved) > 1e-3, (apart, moved)
"""


@pytest.mark.parametrize("task", ["classes", "numbers"])
@pytest.mark.parametrize("backend", ["tensorflow", "jax", pytest.param("torch", marks=pytest.mark.torch)])
def test_each_member_learns_by_its_own_error(backend: str, task: str) -> None:
    """Each case runs in a process of its own, since a process can run only one engine."""
    done = subprocess.run(
        [sys.executable, "-c", COMPARE, PLPY, backend, task], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
