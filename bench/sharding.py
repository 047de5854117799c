"""Measures a net that is trained in shards: its memory on the device, and the cost of moving shards.

It needs no server: .local/venv/bin/python bench/sharding.py
With --gpu, JAX gets only as much memory as the device is meant to have, so that a net that needs more fails:
python bench/sharding.py --gpu --units 8192
With --simulate, it cuts the net for devices of several sizes, and prints how much time a device would save if
it alternated between shards of several such nets.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
MB = 2**20
PARTS = (1, 3, 4)
# How many times the memory of the device a simulated net takes.
RATIOS = (1.25, 2, 2.5, 3, 4)
# The rows that are measured at a time.
MEASURED = 256
# A step through a shard: the seconds to compute it, to move its variables in, and to move them out.
Step = tuple[float, float, float]


def main() -> None:
    asked = _arguments()
    if asked.simulate:
        simulate(asked)
        return
    if asked.part is not None:
        print(json.dumps(measure(asked, asked.part)))
        return
    print(
        "state ÷ device  shards  MB device  MB placed at most  MB moved per step  s per step"
        "  MB of the session"
    )
    for part in (0, *([-PARTS[1]] if asked.gpu else []), *PARTS):
        done = _apart(asked, part)
        if done is None:
            print(f"{f'whole in 1/{-part}':>14} the memory runs out")
            continue
        print(
            f"{part or 'whole':>14} {done['shards']:7} {done['device'] / MB:10.0f}"
            f" {done['most'] / MB:18.0f} {done['moved'] / MB:18.0f} {done['seconds']:11.3f}"
            f" {done['pss'] / MB:18.0f}"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--units", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--part", type=int)
    return parser.parse_args()


def simulate(asked: argparse.Namespace) -> None:
    """Print the greatest share of time that any tried order of shards saves, over many speeds of computing.

    In each order, one shard computes while the next one, of the same or another net, moves to the device.
    """
    sys.path.insert(0, str(HERE.parent / "plpy"))
    from cerebro_plpy.engine.backends import runtime

    runtime.start("jax", 1, False, None)
    from cerebro_plpy.engine.activations.shards import DeviceRoom
    from cerebro_plpy.engine.models import sizing

    text, params = _make_net(asked)
    print("state ÷ device  shards  nets  saved by turns  no order saves more than")
    for ratio, nets in itertools.product(RATIOS, (2, 4)):
        room = DeviceRoom(int(_count_state_bytes(asked) / ratio), asked.batch, MEASURED)
        shards = len(sizing.shards_of(text, params, room))
        saved = [_saved(_cycle(shards, speed / 10), nets) for speed in range(1, 41)]
        most, bound = (max(values) for values in zip(*saved, strict=True))
        print(f"{ratio:14} {shards:7} {nets:5} {most:15.0%} {bound:25.0%}")


def _count_state_bytes(asked: argparse.Namespace) -> int:
    """Return the bytes of the net's weights, and of Adam's two moments of each."""
    return 12 * asked.layers * asked.units**2


def _make_net(asked: argparse.Namespace) -> tuple[str, Any]:
    """Return the JSON of the net, and its compile parameters; an engine must be running."""
    from cerebro_plpy.engine.backends import runtime
    from cerebro_plpy.engine.checks import architecture
    from cerebro_plpy.madlib.params import Call, CompileParams

    params = CompileParams(
        optimizer=Call("Adam", ()), loss="sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    keras = runtime.keras()
    hidden = [keras.layers.Dense(asked.units, activation="relu") for _ in range(asked.layers)]
    last = keras.layers.Dense(10, activation="softmax")
    with architecture.unallocated():
        net = keras.Sequential([keras.Input((asked.units,)), *hidden, last])
        return architecture.describe(net.to_json()).json, params


def _cycle(shards: int, forward: float) -> list[Step]:
    """Return the steps of one mini-batch through the shards; moving a shard's weights takes one second.

    In the backward pass, a shard is computed twice and its gradients once, and the two moments of the
    optimizer move as well. The first shard is still on the device when the next mini-batch begins.
    """
    first, last = (forward, 0.0, 0.0), (3 * forward, 3.0, 3.0)
    return [first, *[(forward, 1.0, 0.0)] * (shards - 2), *[last] * shards]


def _saved(steps: list[Step], nets: int) -> tuple[float, float]:
    """Return the share of time that alternating between nets saves, and the share that no order exceeds."""
    alone = nets * _makespan(steps)
    least = nets * max(sum(step[part] for step in steps) for part in range(3))
    orders = [
        [steps[(net * apart + place) % len(steps)] for place in range(len(steps)) for net in range(nets)]
        for apart in range(len(steps))
    ]
    return 1 - min(alone, *map(_makespan, orders)) / alone, 1 - least / alone


def _makespan(steps: list[Step]) -> float:
    """Return the time of a cycle of steps: while one shard computes, the next moves in and the last out."""
    beside = zip(steps, [*steps[1:], steps[0]], [steps[-1], *steps[:-1]], strict=True)
    return sum(max(own[0], following[1], before[2]) for own, following, before in beside)


def _apart(asked: argparse.Namespace, part: int) -> dict[str, float] | None:
    """Call `measure` in a process of its own; return None if the memory is too small for a whole net."""
    done = subprocess.run(
        [sys.executable, __file__, *sys.argv[1:], f"--part={part}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent / "plpy"), *sys.path])},
        capture_output=True,
        text=True,
    )
    if part < 0 and "RESOURCE_EXHAUSTED" in done.stderr:
        return None
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])


def measure(asked: argparse.Namespace, part: int) -> dict[str, float]:
    """Train a net in shards on a device with 1/`part` of the memory of its weights and moments.

    With `part` 0, the net is not divided, and memory is ample; with a negative `part`, it is not divided
    either, but has only that part of the memory. Return the measurements.
    """
    from cerebro_plpy.engine.backends import runtime

    state_bytes = _count_state_bytes(asked)
    device = state_bytes // abs(part) if abs(part) > 1 else 4 * state_bytes
    gpu = runtime.Gpu("0", min(0.9, _fraction(device)), None) if asked.gpu else None
    runtime.start("jax", 1, asked.gpu, gpu)
    from cerebro_plpy.engine.activations.shards import DeviceRoom
    from cerebro_plpy.engine.models import model
    from cerebro_plpy.engine.models.data import INDEX, Dataset, Target, whole

    text, params = _make_net(asked)
    room = DeviceRoom(device, asked.batch, MEASURED) if part > 0 else None
    made = model.compiled(text, params, room=room)
    random, rows = np.random.default_rng(0), asked.batch * asked.steps
    inputs = random.normal(size=(rows, asked.units)).astype(np.float32)
    data = Dataset([inputs], [Target(random.integers(0, 10, rows, np.int32), INDEX)])
    state, seconds = made.initial_state(params, 1, None), []
    logs: dict[str, float] = {}
    for _ in range(3):
        began = time.monotonic()
        _, logs = made.train(state, [[whole(data)]], asked.batch, None, lambda: None, rows=rows)
        seconds.append((time.monotonic() - began) / asked.steps)
    ledger = getattr(made._loop, "ledger", None)
    return {
        "device": device,
        "shards": len(getattr(made._loop, "shards", [0])),
        "most": ledger.most if ledger else 0,
        "moved": ledger.moved / 3 / asked.steps if ledger else 0,
        "seconds": min(seconds),
        "loss": logs["loss"],
        "pss": _pss(),
    }


def _pss() -> float:
    told = Path("/proc/self/smaps_rollup").read_text().split("Pss:")[1]
    return 1024 * float(told.split()[0])


def _fraction(device: int) -> float:
    told = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
    )
    return device / MB / float(told.stdout.split()[0])


if __name__ == "__main__":
    main()
