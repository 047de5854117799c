"""Trains configs with plain Keras: no database, only `model.fit` on the rows in the order of the route.

This file is also a program, whose argument is a backend. It reads folders, one a line, from standard input.
In each folder it reads a job (JSON) and rows (npz), and writes weights (npz) and evaluations (JSON).
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import json
import math
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

# The engine of runs that name none: where Python has no TensorFlow, the tests' databases are set to JAX.
BACKEND = "tensorflow" if importlib.util.find_spec("tensorflow") else "jax"
# The class of an optimizer, schedule or metric with its arguments, as plain JSON.
Call = Sequence[Any]


@dataclass(frozen=True)
class Config:
    """A config of a job, described by arguments of Keras."""

    mst_key: int
    model_arch: str
    optimizer: Call
    loss: str
    batch_size: int
    passes: int = 1
    metrics: Sequence[Any] = ()
    class_weight: Mapping[int, float] | None = None
    shuffle: bool = True
    # Initial weights of all layers except adapters.
    weights: Sequence[float] | None = None


@dataclass(frozen=True)
class Job:
    """A whole run to repeat with plain Keras; `buffers` has the number of buffers of each segment."""

    backend: str
    seed: int
    epochs: int
    buffers: Sequence[int]
    configs: Sequence[Config]
    sparse: bool = False
    # The inputs of the nets, and whether the arrays w_<segment>_<buffer> have a weight for each row.
    inputs: Sequence[str] = ("x",)
    weighted: bool = False


@dataclass(frozen=True)
class Found:
    """The final weights and the metrics that plain Keras computed for each config, by mst_key."""

    weights: Mapping[int, bytes]
    evaluations: Mapping[int, Mapping[str, float]] = field(default_factory=dict)


def run(job: Job, rows: Mapping[str, np.ndarray], folder: Path) -> Found:
    """Carry out a job in another process; the keys of `rows` are x_<segment>_<buffer> and
    y_<segment>_<buffer>, with the names of the job's inputs in place of x."""
    (folder / "job.json").write_text(json.dumps(asdict(job)))
    np.savez(folder / "rows.npz", allow_pickle=False, **rows)
    process = _process(job.backend)
    assert process.stdin and process.stdout
    print(folder, file=process.stdin, flush=True)
    failure = json.loads(process.stdout.readline() or '"it has ended"')
    if failure is not None:
        raise RuntimeError(f"the reference failed: {failure}")
    answers = json.loads((folder / "evaluations.json").read_text())
    with np.load(folder / "weights.npz") as weights:
        return Found(
            {int(key): weights[key].tobytes() for key in weights.files},
            {int(key): values for key, values in answers.items()},
        )


@functools.cache
def _process(backend: str) -> subprocess.Popen[str]:
    """Start the process that carries out all jobs of a backend, so that Keras is imported only once."""
    process = subprocess.Popen(
        [sys.executable, __file__, backend],
        env=_environment(backend), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    atexit.register(_end, process)
    return process


def _end(process: subprocess.Popen[str]) -> None:
    with process:
        process.kill()


def _environment(backend: str) -> dict[str, str]:
    """Return the environment of a process that computes in one thread and finds the project's modules."""
    package = Path(__file__).resolve().parents[2] / "plpy"
    single = dict.fromkeys("TF_NUM_INTRAOP_THREADS TF_NUM_INTEROP_THREADS OMP_NUM_THREADS NPROC".split(), "1")
    mute = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
    return {**os.environ, **single, **mute, "KERAS_BACKEND": backend, "PYTHONPATH": str(package)}


def main(backend: str) -> None:
    """Carry out the job in each folder that standard input names, and print null or the error as JSON."""
    if backend == "tensorflow":
        _single_threaded_tensorflow()
    answers = os.fdopen(os.dup(1), "w")
    # Whatever Keras prints goes where nobody takes it for an answer.
    os.dup2(2, 1)
    for line in sys.stdin:
        failure = None
        try:
            _do(Path(line.strip()))
        except Exception:
            failure = traceback.format_exc()
        print(json.dumps(failure), file=answers, flush=True)


def _do(folder: Path) -> None:
    import keras

    # Layers without a name get those that they would have in a process of their own.
    keras.utils.clear_session()
    job = json.loads((folder / "job.json").read_text())
    with np.load(folder / "rows.npz") as data:
        rows = {name: data[name] for name in data.files}
    models = {config["mst_key"]: _trained(job, config, rows) for config in job["configs"]}
    np.savez(
        folder / "weights.npz",
        allow_pickle=False,
        **{str(key): _flat(model) for key, model in models.items()},
    )
    answers = {key: _evaluated(model, job, rows) for key, model in models.items()}
    (folder / "evaluations.json").write_text(json.dumps(answers))


def _single_threaded_tensorflow() -> None:
    import tensorflow

    tensorflow.config.threading.set_intra_op_parallelism_threads(1)
    tensorflow.config.threading.set_inter_op_parallelism_threads(1)


def _trained(job: dict[str, Any], config: dict[str, Any], rows: dict[str, np.ndarray]) -> Any:
    from cerebro_plpy.planner import routes

    model = _compiled(job["seed"], config)
    weight = config["class_weight"] and {int(k): v for k, v in config["class_weight"].items()}
    segments = len(job["buffers"])
    for epoch in range(1, job["epochs"] + 1):
        for segment in routes.route(job["seed"], epoch, config["mst_key"], segments):
            for number in range(config["passes"] if job["buffers"][segment] else 0):
                order = _order(job, config, epoch, segment, number, rows)
                taken = [(f"{segment}_{b}", o) for b, o in order]
                x, y = _inputs(job, rows, taken), _joined("y", rows, taken)
                model.fit(
                    x, _labels(y, job), batch_size=config["batch_size"], epochs=1, shuffle=False,
                    class_weight=weight, verbose=0,
                    sample_weight=_joined("w", rows, taken) if job["weighted"] else None,
                )  # fmt: skip
    return model


def _joined(name: str, rows: dict[str, np.ndarray], taken: Sequence[tuple[str, Any]]) -> np.ndarray:
    return np.concatenate([rows[f"{name}_{place}"][order] for place, order in taken])


def _inputs(job: dict[str, Any], rows: dict[str, np.ndarray], taken: Sequence[tuple[str, Any]]) -> Any:
    """Return the rows `taken` of each input: one array if the job has one input, or else a list of arrays."""
    found = [_joined(name, rows, taken) for name in job["inputs"]]
    return found[0] if len(found) == 1 else found


def _order(
    job: dict[str, Any],
    config: dict[str, Any],
    epoch: int,
    segment: int,
    number: int,
    rows: dict[str, np.ndarray],
) -> list[tuple[int, np.ndarray]]:
    """Return the buffers of a segment in the order of one pass, each with the order of its rows.

    The seed of the job, the epoch, the segment and the number of the pass decide both orders.
    """
    from cerebro_plpy import seeding

    count = job["buffers"][segment]
    sizes = [len(rows[f"y_{segment}_{b}"]) for b in range(count)]
    if not config["shuffle"]:
        return [(b, np.arange(size)) for b, size in enumerate(sizes)]
    purpose = ("rows", epoch, segment, number)
    order = seeding.permutation(count, job["seed"], *purpose).tolist()
    return [(b, seeding.permutation(sizes[b], job["seed"], *purpose, b)) for b in order]


def _labels(stored: np.ndarray, job: dict[str, Any]) -> np.ndarray:
    return stored.argmax(axis=-1).astype(np.int32) if job["sparse"] else stored.astype(np.float32)


def _compiled(seed: int, config: dict[str, Any]) -> Any:
    import keras

    from cerebro_plpy import seeding

    keras.utils.set_random_seed(seeding.derive_small(seed, "weights", config["mst_key"]))
    model = keras.models.model_from_json(config["model_arch"])
    if config["weights"] is not None:
        _put(model, np.array(config["weights"], "<f4"))
    model.compile(
        optimizer=_made(keras.optimizers, config["optimizer"]),
        loss=config["loss"],
        metrics=[m if isinstance(m, str) else _made(keras.metrics, m) for m in config["metrics"]],
    )
    return model


def _put(model: Any, flat: np.ndarray) -> None:
    for weight in model.weights:
        if not weight.name.startswith("lora_"):
            weight.assign(flat[: math.prod(weight.shape)].reshape(weight.shape))
            flat = flat[math.prod(weight.shape) :]
    assert not len(flat)


def _made(module: Any, call: Call) -> Any:
    name, arguments = call
    rate = arguments.get("learning_rate")
    if isinstance(rate, list):
        arguments = {**arguments, "learning_rate": _made(module.schedules, rate)}
    return getattr(module, name)(**arguments)


def _flat(model: Any) -> np.ndarray:
    return np.concatenate([w.astype("<f4").ravel() for w in model.get_weights()])


def _evaluated(model: Any, job: dict[str, Any], rows: dict[str, np.ndarray]) -> dict[str, float]:
    """Return the metrics that Keras' own evaluate computes on all rows of all segments."""
    places = [(f"{s}_{b}", slice(None)) for s, count in enumerate(job["buffers"]) for b in range(count)]
    x, y = _inputs(job, rows, places), _joined("y", rows, places)
    found = model.evaluate(x, _labels(y, job), batch_size=100, verbose=0, return_dict=True)
    return {name: float(np.asarray(value).mean()) for name, value in found.items()}


if __name__ == "__main__":
    main(sys.argv[1])
