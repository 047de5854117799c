"""Bare Keras on exported rows: one process per core, each training its share of the configs."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import jobs


def main() -> None:
    began = time.perf_counter()
    order = jobs.Order.read()
    context = multiprocessing.get_context("spawn")
    work: Any = context.Queue()
    done: Any = context.Queue()
    ready = context.Barrier(order.settings.processes + 1)
    processes = [
        context.Process(target=worker, args=(order, number, ready, work, done))
        for number in range(order.settings.processes)
    ]
    for process in processes:
        process.start()
    ready.wait()
    at = time.perf_counter()
    path = jobs.export(order)
    fill(order, work, path)
    results = dict(done.get() for _ in order.what.configs)
    accuracy = jobs.write_leaderboard(Path(order.folder), results)
    jobs.answer(accuracy, began, at)
    for process in processes:
        process.join()


def fill(order: jobs.Order, work: Queue[Any], path: Path) -> None:
    """Queue the configs: one share for each process or, with `share_queue`, one by one, costliest first."""
    count = order.settings.processes
    if order.settings.share_queue:
        for key in jobs.costliest_first(order.what):
            work.put((path, [key]))
    else:
        for share in jobs.shares(order.what, count):
            work.put((path, share))
    for _ in range(count):
        work.put(None)


def worker(order: jobs.Order, number: int, ready: Barrier, work: Queue[Any], done: Queue[Any]) -> None:
    jobs.set_environment(order.settings)
    import keras

    keras.backend.backend()
    ready.wait()
    rows = None
    while (item := work.get()) is not None:
        path, keys = item
        rows = rows or jobs.read_rows(path, order.what)
        for key in keys:
            found = jobs.train_one(order.what, key, order.epochs, order.settings, rows, Path(order.folder))
            done.put((key, found))


if __name__ == "__main__":
    main()
