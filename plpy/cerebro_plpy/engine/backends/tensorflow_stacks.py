"""Trains one net in many states on TensorFlow, each on rows of its own, by one graph.

The graph goes through the stacked states. It puts each into the model's variables, and trains it by the
function that also trains a single state, so the bits are the same. This saves the work that Python would do
around each step. One graph serves any number of states and rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.backends.interfaces import Feed, Pace, Tick
from cerebro_plpy.engine.backends.stacks import Orders
from cerebro_plpy.engine.backends.tensorflow_rows import specs_of, tensors_of
from cerebro_plpy.errors import INTERNAL, CerebroError

if TYPE_CHECKING:
    from cerebro_plpy.engine.backends.on_tensorflow import TensorFlowLoop


class TensorFlowStack:
    """The states of a bundle, trained one by one in `model`; the model's own state is lost by this."""

    def __init__(self, model: Any, variables: Sequence[Any], loop: TensorFlowLoop) -> None:
        self._model = model
        self._variables = list(variables)
        self._loop = loop
        own = {id(variable) for variable in model.variables}
        # The places of the variables that measuring needs, which are none of the optimizer's.
        self._measuring = [place for place, v in enumerate(self._variables) if id(v) in own]
        self._stacked = [_stacked(variable.shape, variable.dtype) for variable in self._variables]
        logs = {name: tf.convert_to_tensor(value) for name, value in model.get_metrics_result().items()}
        self._results = {name: _stacked(value.shape, value.dtype) for name, value in logs.items()}
        self._places = 0
        self._walks: dict[tuple[str, int, int | None], Any] = {}
        self._paces: dict[tuple[str, int], Pace] = {}

    def room(self, count: int, *, batched: bool) -> int:
        return count

    def load(self, stacked: Sequence[np.ndarray], optimizers: Sequence[Any]) -> None:
        self._places = len(stacked[0])
        for variable, array in zip(self._stacked, stacked, strict=True):
            variable.assign(array)

    def save(self) -> list[np.ndarray]:
        return [variable.numpy() for variable in self._stacked]

    def clear(self) -> None:
        for variable in (*self._stacked, *self._results.values()):
            variable.assign(np.zeros((0, *variable.shape[1:]), variable.dtype.as_numpy_dtype))

    def reset_metrics(self) -> None:
        for variable in self._results.values():
            variable.assign(np.zeros((self._places, *variable.shape[1:]), variable.dtype.as_numpy_dtype))

    def train(self, feed: Feed, orders: Orders, tick: Tick, *, batched: bool) -> None:
        if batched:
            # The planner asks for it on JAX alone, and another form would give other bits than it asked for.
            raise CerebroError("TensorFlow has no batched form", sqlstate=INTERNAL)
        for fixed in sorted(set(orders.fixed)):
            places = [place for place, own in enumerate(orders.fixed) if own is fixed]
            self._run("train", feed, orders, orders.batch_size if fixed else None, places=places, tick=tick)

    def test(self, feed: Feed, orders: Orders, tick: Tick) -> None:
        self._run("test", feed, orders, None, places=range(self._places), tick=tick)

    def results(self) -> Mapping[str, np.ndarray]:
        return {name: variable.numpy() for name, variable in self._results.items()}

    def _run(
        self,
        what: str,
        feed: Feed,
        orders: Orders,
        fixed: int | None,
        *,
        places: Sequence[int],
        tick: Tick,
    ) -> None:
        key = what, len(feed.weights), fixed
        if key not in self._walks:
            self._walks[key] = self._walk(what, feed, fixed)
        walk, tensors = self._walks[key], tensors_of(feed)
        order = tf.constant(np.concatenate(orders.rows), tf.int64)
        bounds = tf.constant(np.cumsum([0, *map(len, orders.rows)]), tf.int64)
        size = tf.constant(orders.batch_size, tf.int64)
        working = np.array([place for place in places if len(orders.rows[place])], np.int64)
        batches = [-(-len(orders.rows[place]) // orders.batch_size) for place in working]
        pace = self._paces.setdefault((what, orders.batch_size), Pace())
        for first, last in pace.stretches(batches, tick):
            walk(tensors, order, bounds, size, self._fresh, tf.constant(working[first:last]))

    @cached_property
    def _fresh(self) -> list[Any]:
        """The values of the metrics' variables after a reset."""
        self._model.reset_metrics()
        return [tf.constant(runtime.to_numpy(variable)) for variable in self._model.metrics_variables]

    def _walk(self, what: str, feed: Feed, fixed: int | None) -> Any:
        """Return a graph that trains or tests the states at some places of the stack on their batches.

        `what` is "train" or "test". `fixed` is the batch size if the graph is for this size alone, else None.
        """
        nothing = self._model.get_metrics_result()
        step = self._loop.step(what, feed, fixed)
        trains = what == "train"

        def run(tensors: Any, order: Any, bounds: Any, size: Any, fresh: Any, places: Any) -> Any:
            def train_place(number: Any, _: Any) -> Any:
                place = places[number]
                self._take_up(place, fresh, trains)
                end = bounds[place + 1]

                def batch(first: Any, _: Any) -> Any:
                    return first + size, step(tensors, order[first : tf.minimum(first + size, end)])

                _, logs = _repeat(lambda first, _: first < end, batch, bounds[place], nothing)
                self._put_back(place, logs, trains)
                return number + 1, logs

            # The graph returns the same as the graph for a single state (on_tensorflow.py).
            count = tf.size(places, tf.int64)
            return _repeat(lambda number, _: number < count, train_place, tf.constant(0, tf.int64), nothing)

        whole, many = tf.TensorSpec([], tf.int64), tf.TensorSpec([None], tf.int64)
        metrics = [tf.TensorSpec(value.shape, value.dtype) for value in self._fresh]
        signature = [specs_of(feed), many, many, whole, metrics, many]
        return tf.function(run, input_signature=signature, autograph=False)

    def _take_up(self, place: Any, fresh: Sequence[Any], trains: bool) -> None:
        for number in range(len(self._variables)) if trains else self._measuring:
            put(self._variables[number], tf.gather(self._stacked[number], place))
        for variable, value in zip(self._model.metrics_variables, fresh, strict=True):
            variable.assign(value)

    def _put_back(self, place: Any, logs: Mapping[str, Any], trains: bool) -> None:
        written = [(self._results[name], value) for name, value in logs.items()]
        if trains:
            written += zip(self._stacked, (variable.value for variable in self._variables), strict=True)
        for stack, value in written:
            stack.scatter_update(tf.IndexedSlices(tf.convert_to_tensor(value), place))


def put(variable: Any, value: Any) -> None:
    """Set a variable's value, even if its shape differs: saving a large net leaves its variables empty."""
    tensor = tf.convert_to_tensor(value, variable.dtype)
    tf.raw_ops.AssignVariableOp(resource=variable.value.handle, value=tensor, validate_shape=False)


def _stacked(shape: Any, dtype: Any) -> Any:
    """Return a variable that can hold a value of this shape for each state, in the memory of the host.

    On other devices, values of some types cannot be written one at a time.
    """
    with tf.device("CPU:0"):
        return tf.Variable(tf.zeros([0, *shape], dtype), shape=[None, *shape], trainable=False)


def _repeat(condition: Any, body: Any, first: Any, nothing: Any) -> Any:
    return tf.while_loop(condition, body, [first, nothing], parallel_iterations=1)
