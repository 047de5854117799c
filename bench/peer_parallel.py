"""Model averaging and synchronous data-parallel training, on cerebro's own engine.

All processes train one config at a time, each on its part of the rows. With averaging, each process trains
one pass over its rows, and then all continue from the mean of their states. With all-reduce, they apply the
mean of their gradients in every mini-batch, so that the result is that of one process. The processes exchange
arrays through shared memory, the cheapest way on one machine.
"""

from __future__ import annotations

import multiprocessing
import queue
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import shared_memory
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import jobs
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "plpy"))
BOARD_BYTES = 512 * 2**20
START_SECONDS = 120


@dataclass
class Part:
    """The training and validation rows of one process."""

    train: Any
    validation: Any


Train = Callable[[jobs.Order, int, Any, Any, Part, "Exchange"], Any]


@dataclass
class Exchange:
    """Shared memory in which each process writes arrays for the other processes to read."""

    number: int
    processes: int
    barrier: Barrier
    board: str
    moved: int = 0

    def __post_init__(self) -> None:
        self._memory = shared_memory.SharedMemory(self.board)

    def mean(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Return the mean of all processes' arrays, with the same bits in each process."""
        flat = np.concatenate([np.asarray(a, np.float32).ravel() for a in arrays])
        boards = [self._view(number, len(flat)) for number in range(self.processes)]
        boards[self.number][:] = flat
        self.moved += flat.nbytes * (self.processes - 1)
        self.barrier.wait()
        total = boards[0].copy()
        for board in boards[1:]:
            total += board
        total /= self.processes
        self.barrier.wait()
        ends = np.cumsum([a.size for a in arrays])
        return [
            total[end - a.size : end].reshape(a.shape).astype(a.dtype)
            for a, end in zip(arrays, ends, strict=True)
        ]

    def _view(self, number: int, count: int) -> np.ndarray:
        size = BOARD_BYTES // self.processes
        return np.ndarray(count, np.float32, self._memory.buf, number * size)


def main() -> None:
    began = time.perf_counter()
    order = jobs.Order.read()
    context = multiprocessing.get_context("spawn")
    processes = jobs.CORES
    board = shared_memory.SharedMemory(create=True, size=BOARD_BYTES)
    barrier, ready, go = (
        context.Barrier(processes),
        context.Barrier(processes + 1),
        context.Barrier(processes + 1),
    )
    done: Any = context.Queue()
    workers = [
        context.Process(
            target=worker, args=(order, n, processes, barrier, board.name, ready, go, done), daemon=True
        )
        for n in range(processes)
    ]
    for process in workers:
        process.start()
    # A worker that cannot start never reaches the barrier.
    ready.wait(START_SECONDS)
    at = time.perf_counter()
    jobs.export(order)
    go.wait()
    answers = _collect(done, workers)
    results = next(results for results, _ in answers if results)
    accuracy = jobs.write_leaderboard(Path(order.folder), results)
    jobs.answer(accuracy, began, at, sum(moved for _, moved in answers))
    for process in workers:
        process.join()
    board.close()
    board.unlink()


def _collect(done: Any, workers: Sequence[Any]) -> list[Any]:
    """Return the results of all workers; raise RuntimeError if one has failed, as the others then hang."""
    answers: list[Any] = []
    while len(answers) < len(workers):
        try:
            answers.append(done.get(timeout=1))
        except queue.Empty:
            if any(one.exitcode for one in workers):
                raise RuntimeError("a worker has failed") from None
    return answers


def worker(
    order: jobs.Order,
    number: int,
    processes: int,
    barrier: Barrier,
    board: str,
    ready: Barrier,
    go: Barrier,
    done: Any,
) -> None:
    from cerebro_plpy.engine.backends import runtime

    runtime.start(order.options["backend"], max(1, jobs.CORES // processes), False)
    exchange = Exchange(number, processes, barrier, board)
    ready.wait()
    go.wait()
    train: Train = {"averaging": averaging, "allreduce": allreduce}[order.options["how"]]
    rows = own_rows(order, number, processes)
    results = {}
    for key in range(len(order.what.configs)):
        results[key] = train_config(order, key, rows, exchange, train)
    done.put((results if number == 0 else {}, exchange.moved))


def own_rows(order: jobs.Order, number: int, processes: int) -> Part:
    from cerebro_plpy.engine.models.data import ONE_HOT, Dataset, Target

    def dataset(rows: Any) -> Dataset:
        x = np.ascontiguousarray(rows.x[number::processes])
        return Dataset([x], [Target(rows.y[number::processes].astype(np.int16), ONE_HOT)])

    return Part(*map(dataset, jobs.read_rows(Path(order.folder) / jobs.DATA, order.what)))


def train_config(
    order: jobs.Order, key: int, rows: Part, exchange: Exchange, train: Train
) -> dict[str, float]:
    from cerebro_plpy.engine import state as states
    from cerebro_plpy.engine.models import model as engine
    from cerebro_plpy.engine.models.data import whole
    from cerebro_plpy.madlib.params import parse_compile

    config = order.what.configs[key]
    params = parse_compile(
        f"optimizer='Adam(learning_rate={config.learning_rate})',loss='categorical_crossentropy',metrics=['accuracy']"
    )
    model = engine.compiled(order.what.nets[config.net], params)
    state = model.initial_state(params, key, None)
    state = train(order, key, model, state, rows, exchange)
    found: dict[str, float] = {}
    for prefix, dataset in (("", rows.train), ("validation_", rows.validation)):
        variables = model.evaluate(state, [whole(dataset)], 1024, lambda: None)
        summed = [a * exchange.processes for a in exchange.mean(variables)]
        found |= {prefix + name: value for name, value in model.merge([summed]).items()}
    if exchange.number == 0:
        (Path(order.folder) / f"model_{key}.state").write_bytes(b"".join(states.to_parts(state)))
    return found


def averaging(order: jobs.Order, key: int, model: Any, state: Any, rows: Part, exchange: Exchange) -> Any:
    """Train a config; after each pass over its own rows, a process goes on from the mean of all states."""
    from cerebro_plpy.engine.models.data import Block

    config = order.what.configs[key]
    for epoch in range(order.epochs):
        shuffled = np.random.default_rng([key, epoch, exchange.number]).permutation(rows.train.rows)
        blocks = [Block(rows.train, shuffled)]
        state, _ = model.train(state, [blocks], config.batch_size, None, lambda: None)
        floats = [n for n, a in enumerate(state.arrays) if a.dtype == np.float32]
        for n, array in zip(floats, exchange.mean([state.arrays[n] for n in floats]), strict=True):
            state.arrays[n] = array
    return state


def allreduce(order: jobs.Order, key: int, model: Any, state: Any, rows: Part, exchange: Exchange) -> Any:
    """Train a config on this process' share of every mini-batch; apply the mean gradient of all processes."""
    config = order.what.configs[key]
    share = config.batch_size // exchange.processes
    stepper = GRADIENTS[order.options["backend"]](model, state)
    # The same number of steps in every process, though their parts may differ by a row.
    steps = -(-(order.what.training_rows // exchange.processes) // share)
    for epoch in range(order.epochs):
        shuffled = np.random.default_rng([key, epoch, exchange.number]).permutation(rows.train.rows)
        for step in range(steps):
            picked = shuffled[step * share : (step + 1) * share]
            stepper.apply(exchange.mean(stepper.gradients(rows.train, picked)))
    return stepper.state()


class TensorFlowGradients:
    """A compiled model's training step in two parts: compute gradients, and apply given gradients."""

    _functions: dict[int, tuple[Any, Any]] = {}

    def __init__(self, model: Any, state: Any) -> None:
        self._model, self._layout, self._loop = model._model, model.layout, model._loop
        self._loop.load(state.arrays, {})
        if id(model) not in self._functions:
            self._functions[id(model)] = self._trace()
        self._gradients, self._apply = self._functions[id(model)]

    def _trace(self) -> tuple[Any, Any]:
        import tensorflow as tf

        model = self._model

        def gradients(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = model.compute_loss(x=x, y=y, y_pred=model(x, training=True), training=True)
            return tape.gradient(loss, [v.value for v in model.trainable_variables])

        def apply(*gradients: Any) -> None:
            model.optimizer.apply(gradients, model.trainable_variables)

        x = tf.TensorSpec([None, *model.inputs[0].shape[1:]], tf.float32)
        y = tf.TensorSpec([None, *model.outputs[0].shape[1:]], tf.float32)
        specs = [tf.TensorSpec(v.shape, tf.float32) for v in model.trainable_variables]
        return (
            tf.function(gradients, input_signature=[x, y], autograph=False),
            tf.function(apply, input_signature=specs, autograph=False),
        )

    def gradients(self, dataset: Any, picked: np.ndarray) -> list[np.ndarray]:
        found = self._gradients(
            dataset.inputs[0][picked], dataset.targets[0].values[picked].astype(np.float32)
        )
        return [gradient.numpy() for gradient in found]

    def apply(self, gradients: list[np.ndarray]) -> None:
        self._apply(*gradients)

    def state(self) -> Any:
        return self._layout.state(self._loop.save({}))


GRADIENTS = {"tensorflow": TensorFlowGradients}


if __name__ == "__main__":
    main()
