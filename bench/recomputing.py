"""Measures how much memory computing layers again in the backward pass saves, and how much time it costs.

It needs no server: .local/venv/bin/python bench/recomputing.py
With --gpu it measures JAX on a GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
NETS = {"dense, 40 layers": 8192, "residual, 24 convolutions": 64}
ENGINES = ("jax", "tensorflow")
STEPS, MB = 4, 2**20


def main() -> None:
    print("engine      net                         MB kept  MB again  ratio  s kept  s again")
    for engine in ("gpu",) if "--gpu" in sys.argv else ENGINES:
        for net in NETS:
            kept, again = (_apart(engine, net, again) for again in (False, True))
            print(
                f"{engine:11} {net:26} {kept['bytes'] / MB:8.0f} {again['bytes'] / MB:9.0f}"
                f" {again['bytes'] / kept['bytes']:6.2f} {kept['seconds']:7.2f} {again['seconds']:8.2f}"
            )


def _apart(engine: str, net: str, again: bool) -> dict[str, float]:
    """Call `measure` in a process of its own, so that the peak of its memory is due to this net alone."""
    done = subprocess.run(
        [sys.executable, __file__, engine, net, str(int(again))],
        env={**os.environ, "PYTHONPATH": str(HERE.parent / "plpy")},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def measure(engine: str, net: str, again: bool) -> dict[str, float]:
    """Train for some steps; return the bytes of the activations and the seconds, the better of two tries."""
    from cerebro_plpy.engine.backends import runtime

    on_gpu = engine == "gpu"
    runtime.start("jax" if on_gpu else engine, 1, on_gpu)
    from cerebro_plpy.engine.checks import architecture
    from cerebro_plpy.engine.models import model
    from cerebro_plpy.engine.models.data import INDEX, Dataset, Target, whole
    from cerebro_plpy.madlib.params import Call, CompileParams

    params = CompileParams(
        optimizer=Call("Adam", ()), loss="sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    built, batch = _net(runtime.keras(), net), NETS[net]
    made = model.compiled(architecture.describe(built.to_json()).json, params, again)
    random, rows = np.random.default_rng(0), batch * STEPS
    inputs = random.normal(size=(rows, *built.inputs[0].shape[1:])).astype(np.float32)
    data = Dataset([inputs], [Target(random.integers(0, 10, rows, np.int32), INDEX)])
    state, seconds, before = made.initial_state(params, 1, None), [], _peak()
    for _ in range(2):
        began = time.monotonic()
        made.train(state, [[whole(data)]], batch, None, lambda: None, rows=rows)
        seconds.append(time.monotonic() - began)
    found = _temporary(made, state, data, batch) if runtime.backend() == "jax" else _peak() - before
    return {"bytes": found, "seconds": min(seconds)}


def _net(keras: Any, net: str) -> Any:
    layers = keras.layers
    if net.startswith("dense"):
        hidden = [layers.Dense(128, activation="relu") for _ in range(40)]
        return keras.Sequential([keras.Input((128,)), *hidden, layers.Dense(10, activation="softmax")])
    image = keras.Input((32, 32, 3))
    passed = layers.Conv2D(16, 3, padding="same")(image)
    for _ in range(12):
        made = passed
        for _ in range(2):
            made = layers.Conv2D(16, 3, padding="same")(made)
            made = layers.Activation("relu")(layers.BatchNormalization()(made))
        passed = layers.Add()([passed, layers.Dropout(0.1)(made)])
    pooled = layers.GlobalAveragePooling2D()(passed)
    return keras.Model(image, layers.Dense(10, activation="softmax")(pooled))


def _temporary(made: Any, state: Any, data: Any, batch: int) -> float:
    """Return the bytes that XLA has planned for a training step in addition to weights and rows."""
    made._load(state, moves=False)
    return float(made.count_step_bytes(data, batch))


def _peak() -> float:
    told = Path("/proc/self/status").read_text().split("VmHWM:")[1]
    return 1024 * float(told.split()[0])


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print(json.dumps(measure(sys.argv[1], sys.argv[2], sys.argv[3] == "1")))
    else:
        main()
