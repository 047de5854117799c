"""Code that the scripts of the peers share: read the job and the rows, train, and print the result."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import server
import workloads
from workloads import Config, Rows, Workload

CORES = os.cpu_count() or 1
DATA = "rows.npz"


@dataclass(frozen=True)
class Settings:
    """A peer's use of Keras; by default Keras' own settings, in one process for each core."""

    backend: str = "tensorflow"
    processes: int = CORES
    threads: int | None = None
    steps_per_execution: int = 1
    jit: bool | str = "auto"
    evaluation_batch: int = 32
    share_queue: bool = False


@dataclass(frozen=True)
class Order:
    """A job for a peer's script, which gets it as JSON on its command line."""

    workload: str
    rows: int
    folder: str
    epochs: int
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls) -> Order:
        return cls(**json.loads(sys.argv[1]))

    @property
    def what(self) -> Workload:
        return workloads.named(self.workload, self.rows)

    @property
    def settings(self) -> Settings:
        return Settings(**self.options)


def export(order: Order) -> Path:
    """Copy the rows from the server to a file, which every process reads; return the path of the file."""
    width = int(np.prod(order.what.shape))
    with closing(server.connect()) as connection:
        train, validation = (
            server.export(connection, f"{order.workload}_{part}", width) for part in ("train", "validation")
        )
    path = Path(order.folder) / DATA
    np.savez(path, x=train.x, y=train.y, validation_x=validation.x, validation_y=validation.y)
    return path


def read_rows(path: Path, workload: Workload) -> tuple[Rows, Rows]:
    """Return training and validation rows from the file: features in their shape, and one-hot labels."""
    found = np.load(path)
    classes = np.eye(workload.classes, dtype=np.float32)
    train = Rows(found["x"].reshape(-1, *workload.shape), classes[found["y"]])
    return train, Rows(found["validation_x"].reshape(-1, *workload.shape), classes[found["validation_y"]])


def set_environment(settings: Settings) -> None:
    """Set environment variables for Keras and its engine; call this before Keras is imported."""
    os.environ |= {
        "KERAS_BACKEND": settings.backend,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    os.environ["JAX_PLATFORMS"] = "cpu"
    if settings.threads is not None:
        names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS", "NPROC")
        os.environ |= dict.fromkeys(names, str(settings.threads))


def train_one(
    workload: Workload, key: int, epochs: int, settings: Settings, rows: tuple[Rows, Rows], folder: Path
) -> dict[str, float]:
    """Train one config as any user of Keras would: build, fit, evaluate on both sets, save."""
    import keras

    config: Config = workload.configs[key]
    train, validation = rows
    keras.utils.set_random_seed(key)
    model = keras.models.model_from_json(workload.nets[config.net])
    if workload.weights is not None:
        model.set_weights(workload.weights[config.net])
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate=config.learning_rate),
        loss="categorical_crossentropy",
        metrics=["accuracy"],
        steps_per_execution=settings.steps_per_execution,
        jit_compile=settings.jit,
    )
    model.fit(train.x, train.y, batch_size=config.batch_size, epochs=epochs, verbose=0)
    batch = settings.evaluation_batch
    measured = model.evaluate(train.x, train.y, batch_size=batch, verbose=0)
    measured += model.evaluate(validation.x, validation.y, batch_size=batch, verbose=0)
    model.save(folder / f"model_{key}.keras")
    names = ("loss", "accuracy", "validation_loss", "validation_accuracy")
    return dict(zip(names, map(float, measured), strict=True))


def write_leaderboard(folder: Path, results: Mapping[int, Mapping[str, float]]) -> float:
    """Write the results to leaderboard.csv, the best config first; return the best validation accuracy."""
    ranked = sorted(results.items(), key=lambda item: -item[1]["validation_accuracy"])
    lines = [",".join([str(key), *(f"{v:.6f}" for v in row.values())]) for key, row in ranked]
    header = ",".join(["config", *ranked[0][1]])
    (folder / "leaderboard.csv").write_text("\n".join([header, *lines]) + "\n")
    return ranked[0][1]["validation_accuracy"]


def answer(accuracy: float, began: float, ready: float, moved: int = 0) -> None:
    """Print the result as a line of JSON; `ready` is the time when all workers had imported Keras."""
    now = time.perf_counter()
    print(json.dumps({"accuracy": accuracy, "start": ready - began, "work": now - ready, "moved": moved}))


def shares(workload: Workload, processes: int) -> list[list[int]]:
    """Return the keys of the configs that each process trains, dealt out one by one."""
    return [list(range(first, len(workload.configs), processes)) for first in range(processes)]


def costliest_first(workload: Workload) -> Sequence[int]:
    return sorted(
        range(len(workload.configs)), key=lambda k: (-workload.configs[k].net, workload.configs[k].batch_size)
    )
