"""Configs that share one compiled model, in any order, get the same bits as with Keras' own fit."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nets
from cerebro_plpy.engine import own
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import architecture
from cerebro_plpy.engine.models import model
from cerebro_plpy.engine.models.data import ONE_HOT, WEIGHT, Block, Dataset, Target, concatenate
from cerebro_plpy.engine.state import State, from_parts, to_parts, weights
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.params import Call, CompileParams
from engines import BACKEND, nothing

# Keras itself calls TensorFlow and NumPy in an outdated way.
pytestmark = [
    pytest.mark.usefixtures("engine"),
    pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning"),
]

CLASSES = 4
CLASS_WEIGHT = {0: 1.0, 1: 2.5, 2: 0.5}
# Learning rate, batch size, seed. 25 divides 100 rows and is no power of two: the hard case on TensorFlow.
CONFIGS = [(0.01, 32, 1), (0.002, 25, 2), (0.05, 32, 3)]


def mlp(keras: Any) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((20,)),
            layers.Dense(32, activation="relu", kernel_regularizer="l2"),
            layers.Dropout(0.3),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def cnn(keras: Any) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((12, 12, 3)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Conv2D(12, 3, padding="same", activation="relu"),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def lstm(keras: Any) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((7, 5)),
            layers.LSTM(9, dropout=0.2),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def blocks(keras: Any) -> Any:
    """Build a net that adds gradients of several branches in front of a normalization."""
    layers = keras.layers
    node = start = layers.Input((20,))
    node = layers.Dense(16, activation="relu")(node)
    for _ in range(2):
        inner = layers.Dense(16, activation="relu")(layers.LayerNormalization()(node))
        node = layers.Add()([node, layers.Dense(16)(layers.Dropout(0.1)(inner))])
    end = layers.Dense(CLASSES, activation="softmax")(layers.LayerNormalization()(node))
    return keras.Model(start, end)


def members(_: Any) -> str:
    """Return the JSON of a net of several members; Keras alone would give their layer another name."""
    return nets.members(CLASSES)


NETS: dict[str, Callable[[Any], Any]] = {
    "mlp": mlp,
    "cnn": cnn,
    "lstm": lstm,
    "blocks": blocks,
    "members": members,
}


@functools.cache
def architecture_of(net: str) -> architecture.DescribedModel:
    made = NETS[net](runtime.keras())
    return architecture.describe(made if isinstance(made, str) else made.to_json())


@functools.cache
def partitions(net: str) -> list[Dataset]:
    rng = np.random.default_rng(0)
    shape = tuple(size or 1 for size in architecture_of(net).inputs[0])
    return [
        Dataset(
            [rng.normal(size=(rows, *shape)).astype(np.float32)],
            [Target(np.eye(CLASSES, dtype=np.int16)[rng.integers(0, CLASSES, rows)], ONE_HOT)],
        )
        for rows in (100, 97)
    ]


def order_of(visit: int, rows: int) -> np.ndarray:
    return np.random.default_rng(visit).permutation(rows)


DECAY = Call("ExponentialDecay", (("initial_learning_rate", 0.01), ("decay_steps", 7), ("decay_rate", 0.9)))
OPTIMIZERS: dict[str, Callable[[float], Call]] = {
    "adam": lambda rate: Call("Adam", (("learning_rate", rate),)),
    "momentum": lambda rate: Call("SGD", (("learning_rate", rate), ("momentum", 0.9))),
    "schedule": lambda _: Call("SGD", (("learning_rate", DECAY), ("momentum", 0.9))),
}


def params_of(optimizer: str, rate: float) -> CompileParams:
    return CompileParams(
        optimizer=OPTIMIZERS[optimizer](rate), loss="categorical_crossentropy", metrics=["accuracy"]
    )


def plain_optimizer(name: str, rate: float) -> Any:
    optimizers = runtime.keras().optimizers
    if name == "adam":
        return optimizers.Adam(learning_rate=rate)
    if name == "schedule":
        return optimizers.SGD(optimizers.schedules.ExponentialDecay(0.01, 7, 0.9), momentum=0.9)
    return optimizers.SGD(learning_rate=rate, momentum=0.9)


Result = tuple[list[np.ndarray], list[dict[str, float]]]


def plain_keras(
    net: str,
    optimizer: str,
    config: tuple[float, int, int],
    visits: int,
    class_weight: dict[int, float] | None,
) -> Result:
    """Train a config with Keras alone, and return its final variables and the metrics of each visit."""
    keras = runtime.keras()
    rate, batch_size, seed = config
    keras.utils.set_random_seed(seed)
    made = keras.models.model_from_json(architecture_of(net).json, custom_objects=own.objects())
    made.compile(plain_optimizer(optimizer, rate), "categorical_crossentropy", metrics=["accuracy"])
    logs = []
    for visit in range(visits):
        dataset = partitions(net)[visit % 2]
        order = order_of(visit, dataset.rows)
        x, y = dataset.inputs[0][order], dataset.targets[0].values[order].astype(np.float32)
        history = made.fit(
            x, y, batch_size=batch_size, epochs=1, shuffle=False, verbose=0, class_weight=class_weight
        )
        logs.append({name: values[0] for name, values in history.history.items()})
    return [runtime.to_numpy(v) for v in made.variables + made.optimizer.variables], logs


def visit_once(
    net: str, optimizer: str, config: tuple[float, int, int], state: State, visit: int, class_weight: Any
) -> tuple[State, dict[str, float]]:
    rate, batch_size, _ = config
    dataset = partitions(net)[visit % 2]
    block = Block(dataset, order_of(visit, dataset.rows))
    shared = model.compiled(architecture_of(net).json, params_of(optimizer, rate))
    return shared.train(
        state, [[block]], batch_size, class_weight and [class_weight], nothing, rows=dataset.rows
    )


def ours(net: str, optimizer: str, visits: int, class_weight: dict[int, float] | None) -> list[Result]:
    """Train all configs in turn on one compiled model; before each visit, the state is rebuilt from bytes."""
    states = []
    for rate, _, seed in CONFIGS:
        params = params_of(optimizer, rate)
        shared = model.compiled(architecture_of(net).json, params)
        states.append(shared.initial_state(params, seed, None))
    logs: list[list[dict[str, float]]] = [[] for _ in CONFIGS]
    for visit in range(visits):
        for number in ([0, 1, 2], [2, 0, 1])[visit % 2]:
            state = from_parts(to_parts(states[number]))
            states[number], log = visit_once(net, optimizer, CONFIGS[number], state, visit, class_weight)
            logs[number].append(log)
    return [(state.arrays, log) for state, log in zip(states, logs, strict=True)]


def assert_same_bits(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    # On PyTorch a state holds its generator too.
    assert len(found) - len(expected) in ((0, 1) if BACKEND == "torch" else (0,))
    for number, (one, other) in enumerate(zip(found, expected, strict=False)):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other, err_msg=f"variable {number}")


CASES = [
    ("mlp", "adam", None),
    ("cnn", "momentum", CLASS_WEIGHT),
    ("blocks", "adam", CLASS_WEIGHT),
    ("members", "adam", None),
    pytest.param("members", "momentum", CLASS_WEIGHT, marks=pytest.mark.slow),
    pytest.param("mlp", "schedule", CLASS_WEIGHT, marks=pytest.mark.slow),
    pytest.param("mlp", "momentum", None, marks=pytest.mark.slow),
    pytest.param("cnn", "adam", CLASS_WEIGHT, marks=pytest.mark.slow),
    pytest.param("cnn", "schedule", None, marks=pytest.mark.slow),
    pytest.param("lstm", "adam", CLASS_WEIGHT, marks=pytest.mark.slow),
    pytest.param("lstm", "momentum", None, marks=pytest.mark.slow),
    pytest.param("lstm", "schedule", CLASS_WEIGHT, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("net", "optimizer", "class_weight"), CASES)
def test_same_bits_as_keras_fit(net: str, optimizer: str, class_weight: dict[int, float] | None) -> None:
    visits = 3
    found = ours(net, optimizer, visits, class_weight)
    for config, (arrays, logs) in zip(CONFIGS, found, strict=True):
        expected, expected_logs = plain_keras(net, optimizer, config, visits, class_weight)
        assert_same_bits(arrays, expected)
        for log, expected_log in zip(logs, expected_logs, strict=True):
            # XLA may round the running loss, which is only reported, in another way within a loop.
            exact = BACKEND != "jax"
            assert log == (expected_log if exact else pytest.approx(expected_log, rel=1e-6))


def test_configs_share_one_compiled_model() -> None:
    text = architecture_of("mlp").json
    one, other = params_of("adam", 0.01), params_of("adam", 0.5)
    assert model.compiled(text, one) is model.compiled(text, other)
    assert model.compiled(text, one) is not model.compiled(text, params_of("momentum", 0.01))


def start_state(net: str = "mlp", optimizer: str = "adam") -> tuple[model.CompiledModel, State]:
    params = params_of(optimizer, 0.01)
    shared = model.compiled(architecture_of(net).json, params)
    return shared, shared.initial_state(params, 5, None)


def pieces(dataset: Dataset, order: np.ndarray, ends: list[int]) -> Iterator[Block]:
    """Yield the rows of a dataset in blocks with a dataset each, as if each block came from one buffer."""
    for rows in np.split(order, ends):
        yield Block(dataset.take(rows), np.arange(len(rows)))


def test_blocks_make_the_same_bits_as_one_piece() -> None:
    shared, state = start_state()
    dataset = partitions("mlp")[0]
    order = order_of(0, 100)
    whole, log = shared.train(state, [[Block(dataset, order)]], 32, None, nothing, rows=100)
    cut, cut_log = shared.train(state, [pieces(dataset, order, [7, 50, 90])], 32, None, nothing, rows=100)
    assert_same_bits(cut.arrays, whole.arrays)
    assert cut_log == pytest.approx(log, rel=1e-6)


def test_large_states_are_taken_up_as_small_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, state = start_state("cnn")
    blocks = [[Block(partitions("cnn")[0], order_of(0, 100))]]
    small, _ = shared.train(state, blocks, 32, None, nothing)
    if BACKEND == "tensorflow":
        monkeypatch.setattr("cerebro_plpy.engine.backends.on_tensorflow.LARGE_BYTES", 0)
    other = model.CompiledModel(shared.architecture_json, params_of("adam", 0.01))
    for _ in range(2):
        large, _ = other.train(state, blocks, 32, None, nothing)
        assert_same_bits(large.arrays, small.arrays)


def test_passes_are_visits_without_a_hop() -> None:
    shared, state = start_state()
    blocks = [[Block(partitions("mlp")[0], order_of(n, 100))] for n in range(3)]
    together, log = shared.train(state, blocks, 32, None, nothing, rows=100)
    singles: list[dict[str, float]] = []
    for block in blocks:
        state, single = shared.train(state, [block], 32, None, nothing, rows=100)
        singles.append(single)
    assert_same_bits(together.arrays, state.arrays)
    assert log == singles[-1]


def test_the_state_given_is_left_alone() -> None:
    shared, state = start_state()
    before = [array.copy() for array in state.arrays]
    trained, _ = shared.train(state, [[Block(partitions("mlp")[0], order_of(0, 100))]], 32, None, nothing)
    assert_same_bits(state.arrays, before)
    assert (state.step, trained.step) == (0, 4)


def test_initial_states_are_keras_own_and_leave_the_generators_alone() -> None:
    import random

    keras = runtime.keras()
    architecture_of("cnn")
    random.seed(11)
    np.random.seed(11)
    _, state = start_state("cnn")
    drawn = (random.random(), np.random.random())
    random.seed(11)
    np.random.seed(11)
    assert drawn == (random.random(), np.random.random())
    keras.utils.set_random_seed(5)
    made = keras.models.model_from_json(architecture_of("cnn").json)
    made.compile("adam", "categorical_crossentropy")
    made.optimizer.build(made.trainable_variables)
    made.optimizer.learning_rate = 0.01
    assert_same_bits(state.arrays, [runtime.to_numpy(v) for v in made.variables + made.optimizer.variables])


def test_weights_replace_the_initial_ones() -> None:
    params = params_of("adam", 0.01)
    shared, state = start_state()
    other = shared.initial_state(params, 6, weights(state))
    assert weights(other) == weights(state)
    with pytest.raises(CerebroError, match="804 values expected, 803 received"):
        shared.initial_state(params, 6, weights(state)[:-4])


def test_a_loss_that_is_not_finite_is_reported() -> None:
    shared, state = start_state()
    state.arrays[0] = np.full_like(state.arrays[0], np.nan)
    _, log = shared.train(state, [[Block(partitions("mlp")[0], order_of(0, 100))]], 32, None, nothing)
    assert np.isnan(log["loss"])


class Cancelled(Exception):
    pass


def test_a_cancel_leaves_the_model_usable() -> None:
    shared, state = start_state()
    blocks = [[Block(partitions("mlp")[0], order_of(0, 100))]]
    expected, _ = shared.train(state, blocks, 32, None, nothing)

    def cancel() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        shared.train(state, blocks, 32, None, cancel)
    again, _ = shared.train(state, blocks, 32, None, nothing)
    assert_same_bits(again.arrays, expected.arrays)


def test_ticks_come_from_the_main_thread() -> None:
    shared, state = start_state()
    threads: list[threading.Thread] = []
    blocks = [[Block(partitions("mlp")[0], np.tile(order_of(0, 100), 400))]]
    shared.train(state, blocks, 32, None, lambda: threads.append(threading.current_thread()))
    assert set(threads) == {threading.main_thread()}


def test_rows_are_in_memory_once_whatever_is_trained_on_them() -> None:
    """An engine on CPUs trains on the partition's own memory without copying it, for every loss."""
    rows = 64
    given = np.random.default_rng(1).normal(size=(rows, 20)).astype(np.float32)
    labels = np.eye(CLASSES, dtype=np.int16)[np.arange(rows) % CLASSES]
    parts = [
        Dataset([x], [Target(y, ONE_HOT)])
        for x, y in zip(np.split(given, 2), np.split(labels, 2), strict=True)
    ]
    dataset = concatenate(parts, rows)
    for loss in ("categorical_crossentropy", "sparse_categorical_crossentropy"):
        params = CompileParams(optimizer=OPTIMIZERS["adam"](0.01), loss=loss, metrics=["accuracy"])
        shared = model.compiled(architecture_of("mlp").json, params)
        state = shared.initial_state(params, 1, None)
        shared.train(state, [[Block(dataset, np.arange(rows))]], 8, None, nothing, rows=rows)
    (used,) = dataset.derived(runtime.backend(), list)
    assert np.shares_memory(np.asarray(used), dataset.inputs[0])
    assert np.array_equal(dataset.inputs[0], given) and np.array_equal(dataset.targets[0].values, labels)


def test_row_weights_are_keras_sample_weight() -> None:
    rows, (rate, batch_size, seed) = 100, CONFIGS[0]
    given, weights = partitions("mlp")[0], np.linspace(0, 3, 100, dtype=np.float32)
    order = order_of(0, rows)
    params = CompileParams(
        optimizer=OPTIMIZERS["adam"](rate), loss="categorical_crossentropy", weighted_metrics=["accuracy"]
    )
    shared = model.compiled(architecture_of("mlp").json, params)
    dataset = Dataset(given.inputs, [*given.targets, Target(weights[:, np.newaxis], WEIGHT)])
    state = shared.initial_state(params, seed, None)
    trained, _ = shared.train(state, [[Block(dataset, order)]], batch_size, None, nothing, rows=rows)

    keras = runtime.keras()
    keras.utils.set_random_seed(seed)
    plain = keras.models.model_from_json(architecture_of("mlp").json)
    plain.compile(plain_optimizer("adam", rate), "categorical_crossentropy", weighted_metrics=["accuracy"])
    x, y = given.inputs[0], given.targets[0].values.astype(np.float32)
    fit = {"batch_size": batch_size, "shuffle": False, "verbose": 0}
    plain.fit(x[order], y[order], sample_weight=weights[order], **fit)
    assert_same_bits(
        trained.arrays, [runtime.to_numpy(v) for v in plain.variables + plain.optimizer.variables]
    )

    # Merged evaluations of segments of unequal size equal Keras' evaluate on all rows.
    halves = [
        shared.evaluate(trained, [Block(dataset, part)], 32, nothing) for part in (order[:30], order[30:])
    ]
    expected = plain.evaluate(x, y, sample_weight=weights, batch_size=32, verbose=0, return_dict=True)
    assert shared.merge(halves) == pytest.approx(expected, rel=1e-5)
