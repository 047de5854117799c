"""Ray Tune on exported rows: each config is a trial, and each trial reads all rows."""

from __future__ import annotations

import time
from pathlib import Path

import jobs
import ray  # pyright: ignore[reportMissingImports]: it is in the environment of the benchmark alone
from ray import tune  # pyright: ignore[reportMissingImports]


def main() -> None:
    began = time.perf_counter()
    order = jobs.Order.read()
    ray.init(num_cpus=jobs.CORES, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    at = time.perf_counter()
    path = jobs.export(order)
    tuner = tune.Tuner(
        tune.with_resources(tune.with_parameters(trial, order=order, path=path), {"cpu": 1}),
        param_space={"key": tune.grid_search(list(range(len(order.what.configs))))},
        run_config=tune.RunConfig(name="tune", storage_path=str(Path(order.folder).resolve()), verbose=0),
    )
    found = tuner.fit()
    results = {
        result.config["key"]: {n: result.metrics[n] for n in ("loss", "accuracy", "validation_accuracy")}
        for result in found
    }
    accuracy = jobs.write_leaderboard(Path(order.folder), results)
    jobs.answer(accuracy, began, at)
    ray.shutdown()


def trial(config: dict[str, int], order: jobs.Order, path: Path) -> None:
    jobs.set_environment(order.settings)
    rows = jobs.read_rows(path, order.what)
    measured = jobs.train_one(
        order.what, config["key"], order.epochs, order.settings, rows, Path(order.folder)
    )
    tune.report(measured)


if __name__ == "__main__":
    main()
