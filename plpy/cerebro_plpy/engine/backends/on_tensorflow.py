"""Trains on TensorFlow: many batches in one graph, over rows that stay on the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from cerebro_plpy import threads
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.backends.interfaces import (
    Again,
    BoundForward,
    Entering,
    Feed,
    Forward,
    Gradient,
    KerasBackend,
    KnownArrays,
    Pace,
    ScoreOf,
    Slope,
    Tick,
    VariableLoop,
    unwrap_optimizer,
)
from cerebro_plpy.engine.backends.runtime import Running
from cerebro_plpy.engine.backends.tensorflow_rows import specs_of, tensors_of
from cerebro_plpy.engine.backends.tensorflow_stacks import TensorFlowStack, put
from cerebro_plpy.engine.checks.architecture import Shape
from cerebro_plpy.engine.models import forms
from cerebro_plpy.memory import LARGE_BYTES

# Runs Keras' step on some rows of the tensors that `tensors_of` returns.
OnRows = Callable[[Any, Any], Any]


class TensorFlow(KerasBackend):
    def set_up(self, wanted: Running) -> None:
        try:
            tf.config.threading.set_intra_op_parallelism_threads(wanted.threads)
            tf.config.threading.set_inter_op_parallelism_threads(wanted.threads)
            already = False
        except RuntimeError:
            # Code of the user's has used it in this session before: it keeps the threads that it has.
            already = True
        if wanted.threads > 1 or already:
            # Else threads race where one batch updates a row of an embedding more than once.
            tf.config.experimental.enable_op_determinism()
        tf.get_logger().setLevel("ERROR")
        if already:
            return
        _choose_gpu(wanted)
        with threads.no_signals():
            # This call makes TensorFlow's threads.
            tf.config.list_logical_devices()

    def has_gpu(self) -> bool:
        return bool(tf.config.list_physical_devices("GPU"))

    def to_numpy(self, tensor: Any) -> np.ndarray:
        # numpy() has made a copy already.
        return np.asarray(tensor.numpy()) if hasattr(tensor, "numpy") else np.array(tensor)

    def make_loop(
        self, model: Any, variables: list[Any], inputs: Sequence[str], whole: Any
    ) -> TensorFlowLoop:
        return TensorFlowLoop(model, variables)

    def make_stack(
        self, model: Any, variables: list[Any], inputs: Sequence[str], loop: Any
    ) -> TensorFlowStack | None:
        return None if unwrap_optimizer(model.optimizer).use_ema else TensorFlowStack(model, variables, loop)

    def compute_again(self, compute: Again, given: Entering) -> tuple[list[Any], list[Any]]:
        beside: list[list[Any]] = []
        sloped = [place for place, tensor in enumerate(given.tensors) if tensor.dtype.is_floating]

        def run(*tensors: Any) -> list[Any]:
            own = list(given.tensors)
            for place, tensor in zip(sloped, tensors, strict=True):
                own[place] = tensor
            left, others = compute(replace(given, tensors=own))
            beside.append(others)
            return left

        left = tf.recompute_grad(run)(*(given.tensors[place] for place in sloped))
        # The results of the first call; the second call comes later.
        return list(left), beside[0]

    def to_tensor(self, array: np.ndarray) -> Any:
        return tf.constant(array)

    def make_forward(self, model: Any, inputs: Sequence[Shape]) -> Forward:
        return _TracedForward(model, inputs)

    def make_slope(self, model: Any, inputs: Sequence[Shape], score: ScoreOf) -> Callable[[list[Any]], Slope]:
        return partial(_BoundSlope, model, inputs, score)

    def make_gradient(self, model: Any, score: ScoreOf) -> Gradient:
        return partial(_gradient, model, score)


def _bytes_of(variables: Sequence[Any]) -> int:
    return sum(math.prod(variable.shape) * tf.as_dtype(variable.dtype).size for variable in variables)


def _choose_gpu(wanted: Running) -> None:
    if not wanted.use_gpus:
        tf.config.set_visible_devices([], "GPU")
    elif wanted.gpu is not None and wanted.gpu.memory_mb is not None:
        part = tf.config.LogicalDeviceConfiguration(memory_limit=wanted.gpu.memory_mb)
        for device in tf.config.list_physical_devices("GPU"):
            tf.config.set_logical_device_configuration(device, [part])


class TensorFlowLoop(VariableLoop):
    """A loop whose functions have one explicit signature, with a batch dimension that is open or fixed.

    TensorFlow would trace a function for one batch size, and again for all sizes when it meets another. The
    last bits of the two traces may differ, so that a result would depend on what this process did before.
    """

    def __init__(self, model: Any, variables: list[Any]) -> None:
        super().__init__(model, variables)
        self._steps: dict[tuple[str, int, int | None], OnRows] = {}
        self._train: dict[tuple[int, int | None], Any] = {}
        self._test: dict[int, Any] = {}
        self._assign: Any = None
        self._paces = {"train": Pace(), "test": Pace()}
        self._is_large = _bytes_of(variables) > LARGE_BYTES

    def load(self, arrays: Iterable[np.ndarray], known: KnownArrays) -> None:
        """Load the values of all variables: of a small net in one call, of a large one one by one.

        A call for each variable would cost more than training a small net on few rows. A large net would be
        in memory twice in a single call.
        """
        if self._is_large:
            for place, (variable, array) in enumerate(zip(self._variables, arrays, strict=True)):
                if place not in known:
                    put(variable, array)
            return
        if self._assign is None:
            self._assign = self._assign_function()
        self._assign([tf.constant(array) for array in arrays])

    def save(self, known: KnownArrays) -> list[np.ndarray]:
        """Return the values of all variables: copies for a small net, views for a large one.

        After views have been returned, the variables are empty, so that a large net is in memory only once.
        """
        if not self._is_large:
            return super().save(known)
        found = [
            known[place] if place in known else np.asarray(tf.convert_to_tensor(variable.value))
            for place, variable in enumerate(self._variables)
        ]
        for place, variable in enumerate(self._variables):
            if place not in known:
                put(variable, tf.zeros(0, variable.dtype))
        return found

    def _assign_function(self) -> Any:
        def assign(values: list[Any]) -> None:
            for variable, value in zip(self._variables, values, strict=True):
                variable.assign(value)

        specs = [tf.TensorSpec(v.shape, v.dtype) for v in self._variables]
        return tf.function(assign, input_signature=[specs], autograph=False)

    def train(self, feed: Feed, order: np.ndarray, batch_size: int, fixed: bool, tick: Tick) -> None:
        key = (len(feed.weights), batch_size if fixed else None)
        if key not in self._train:
            self._train[key] = self._function("train", feed, key[1])
        self._run(self._train[key], feed, order, batch_size, self._paces["train"], tick)

    def test(self, feed: Feed, order: np.ndarray, batch_size: int, tick: Tick) -> None:
        key = len(feed.weights)
        if key not in self._test:
            self._test[key] = self._function("test", feed, None)
        self._run(self._test[key], feed, order, batch_size, self._paces["test"], tick)

    def _run(
        self, function: Any, feed: Feed, order: np.ndarray, batch_size: int, pace: Pace, tick: Tick
    ) -> None:
        tensors = tensors_of(feed)
        rows = tf.constant(order, tf.int64)
        size = tf.constant(batch_size, tf.int64)
        for first, last in pace.pieces(-(-len(order) // batch_size), tick):
            function(tensors, rows, size, tf.constant(first, tf.int64), tf.constant(last, tf.int64))

    def _function(self, what: str, feed: Feed, fixed: int | None) -> Any:
        """Return a graph that runs Keras' train or test step over the batches `first` to `last` - 1.

        `first` and `last` are arguments of the graph. `what` is "train" or "test". `fixed` is the batch size
        if the graph is for this size alone, else None.
        """
        nothing = self._model.get_metrics_result()
        step = self.step(what, feed, fixed)

        def run(tensors: Any, order: Any, size: Any, first: Any, last: Any) -> Any:
            def body(number: Any, _: Any) -> Any:
                return number + 1, step(tensors, order[number * size : (number + 1) * size])

            # Nobody reads the logs. But TensorFlow optimizes a graph by what it returns, and one that returns
            # nothing not at all; the last bits depend on that, so this returns what Keras' own fit does.
            return tf.while_loop(
                lambda number, _: number < last, body, [first, nothing], parallel_iterations=1
            )

        whole = tf.TensorSpec([], tf.int64)
        signature = [specs_of(feed), tf.TensorSpec([None], tf.int64), whole, whole, whole]
        return tf.function(run, input_signature=signature, autograph=False)

    def step(self, what: str, feed: Feed, fixed: int | None) -> OnRows:
        """Return Keras' train or test step as a function of some rows; all graphs share one trace of it.

        `what` and `fixed` are as in `_function`.
        """
        key = what, len(feed.weights), fixed
        if key not in self._steps:
            traced = self._model.train_step if what == "train" else self._model.test_step
            # A function within, as in Keras' own fit: TensorFlow optimizes a graph that holds the step itself
            # in another way, with other last bits where gradients of branches are added.
            self._steps[key] = partial(_on_rows, self._model, tf.function(traced, autograph=False), fixed)
        return self._steps[key]


def _on_rows(model: Any, step: Any, fixed: int | None, tensors: Any, rows: Any) -> Any:
    inputs, targets, weights = tensors
    rows = tf.ensure_shape(rows, [fixed])
    batch = [tf.gather(tensor, rows) for tensor in inputs]
    labels = [tf.gather(tensor, rows) for tensor in targets]
    counts = [tf.gather(tensor, rows) for tensor in weights]
    return step((forms.pack(model, batch), forms.one_or_all(labels), *forms.if_any(counts)))


class _TracedForward:
    """A forward pass as one graph for any number of rows."""

    def __init__(self, model: Any, inputs: Sequence[Shape]) -> None:
        self._model = model
        self._inputs = [tf.TensorSpec((None, *shape), tf.float32) for shape in inputs]
        variables = [*model.trainable_variables, *model.non_trainable_variables]
        self._split, self._end = len(model.trainable_variables), len(variables)
        signature = [tf.TensorSpec(v.shape, v.dtype) for v in variables] + self._inputs
        self._concrete = _traced(self._run, signature)

    def __call__(self, variables: list[Any], batch: list[np.ndarray]) -> list[Any]:
        return [output.numpy() for output in self._concrete(*variables, *map(tf.constant, batch))]

    def bound(self, variables: list[Any]) -> BoundForward:
        """Return the forward pass as a graph of the inputs alone, which holds the variables.

        TensorFlow looks at every tensor that a graph is given, which for one row would cost more than the
        model.
        """
        concrete = _traced(lambda *batch: self._run(*variables, *batch), self._inputs)
        return lambda batch: [output.numpy() for output in concrete(*map(tf.constant, batch))]

    def _run(self, *tensors: Any) -> Any:
        found, _ = self._model.stateless_call(
            list(tensors[: self._split]),
            list(tensors[self._split : self._end]),
            forms.pack(self._model, list(tensors[self._end :])),
            training=False,
        )
        return runtime.keras().tree.flatten(found)


class _BoundSlope:
    """A score and its slopes along the inputs, as one graph for any number of rows.

    The graph holds the variables: for TensorFlow, looking at each of them in every call would cost more than
    a small net.
    """

    def __init__(self, model: Any, inputs: Sequence[Shape], score: ScoreOf, variables: list[Any]) -> None:
        split = len(model.trainable_variables)
        self._model, self._score = model, score
        self._variables = variables[:split], variables[split:]
        signature = [tf.TensorSpec((None, *shape), tf.float32) for shape in inputs]
        self._concrete = _traced(self._run, [tf.TensorSpec((None, None), tf.float32), *signature])

    def __call__(self, batch: list[np.ndarray], given: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        scores, *slopes = self._concrete(*map(tf.constant, [given, *batch]))
        return scores.numpy(), [slope.numpy() for slope in slopes]

    def _run(self, given: Any, *batch: Any) -> Any:
        inputs = list(batch)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(inputs)
            found, _ = self._model.stateless_call(
                *self._variables, forms.pack(self._model, inputs), training=False
            )
            scores = self._score(runtime.keras().tree.flatten(found)[0], given)
        slopes = tape.gradient(scores, inputs, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return [scores, *slopes]


def _gradient(
    model: Any, score: ScoreOf, variables: list[Any], batch: list[np.ndarray], given: np.ndarray
) -> list[np.ndarray]:
    split = len(model.trainable_variables)
    trainable = list(map(tf.convert_to_tensor, variables[:split]))
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(trainable)
        inputs = forms.pack(model, list(map(tf.constant, batch)))
        found, _ = model.stateless_call(trainable, variables[split:], inputs, training=False)
        mean = tf.reduce_mean(score(runtime.keras().tree.flatten(found)[0], tf.constant(given)))
    slopes = tape.gradient(mean, trainable, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    # The slopes of an embedding come as slopes of the rows that were used.
    return [tf.convert_to_tensor(slope).numpy() for slope in slopes]


def _traced(run: Callable[..., Any], signature: list[Any]) -> Any:
    return tf.function(run, input_signature=signature, autograph=False).get_concrete_function()


make = TensorFlow
