"""Architectures that would take much memory are described without computing anything, or refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BACKENDS = ("tensorflow", "jax")
# What a process that only imports Keras needs, and far less than any of these would take.
ROOM = 3 * 2**30
BIG = 10**5

DESCRIBE = """
import json, resource, sys
sys.path.insert(0, "plpy")
from cerebro_plpy.engine.checks import architecture
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.errors import CerebroError
runtime.start(sys.argv[1], 1, False)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name, text in json.loads(sys.stdin.read()).items():
    try:
        architecture.describe(text)
        print(name, "| taken")
    except CerebroError as error:
        print(name, "|", error.message, error.detail)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def made(module: str, class_name: str, name: str, nodes: list[Any], **config: Any) -> dict[str, Any]:
    return {
        "module": module, "class_name": class_name, "name": name, "config": {"name": name, **config},
        "registered_name": None, "inbound_nodes": nodes,
    }  # fmt: skip


def layer(class_name: str, name: str, *sources: str, **config: Any) -> dict[str, Any]:
    nodes = [{"args": [tensor(source) for source in sources], "kwargs": {}}] if sources else []
    return made("keras.layers", class_name, name, nodes, **config)


def operation(
    class_name: str, name: str, *arguments: Any, module: str = "numpy", **config: Any
) -> dict[str, Any]:
    node = {"args": list(arguments), "kwargs": {}}
    return made(f"keras.src.ops.{module}", class_name, name, [node], **config)


def tensor(name: str) -> dict[str, Any]:
    config = {"shape": [None, 4], "dtype": "float32", "keras_history": [name, 0, 0]}
    return {"class_name": "__keras_tensor__", "config": config}


def functional(*layers: dict[str, Any], output: str, shape: tuple[int, ...] = (4,)) -> str:
    first = made("keras.layers", "InputLayer", "x", [], batch_shape=[None, *shape], dtype="float32")
    config = {
        "name": "net", "trainable": True, "layers": [first, *layers],
        "input_layers": [["x", 0, 0]], "output_layers": [[output, 0, 0]],
    }  # fmt: skip
    module = "keras.src.models.functional"
    return json.dumps({"module": module, "class_name": "Functional", "config": config})


def sequential(shape: list[int], *layers: dict[str, Any]) -> str:
    placed = [{"class_name": "InputLayer", "config": {"batch_shape": [None, *shape]}}, *layers]
    config = {"name": "net", "layers": [{"module": "keras.layers", **one} for one in placed]}
    return json.dumps({"module": "keras", "class_name": "Sequential", "config": config})


def plain(class_name: str, **config: Any) -> dict[str, Any]:
    return {"class_name": class_name, "config": config}


DENSE = layer("Dense", "y", "x", units=2)
LITERAL = [[1.0] * 100]
UNCONNECTED = {
    "a Tile on a literal": operation("Tile", "t", LITERAL, repeats=[BIG, 100]),
    "a Repeat of a literal": operation("Repeat", "t", LITERAL, repeats=10**9, axis=None),
    "a broadcast literal": operation("BroadcastTo", "t", LITERAL, shape=[BIG, BIG, 100]),
    "a padded literal": operation("Pad", "t", LITERAL, pad_width=[[BIG, BIG], [BIG, BIG]]),
    "ones like nothing": operation("Outer", "t", [1.0] * 100_000, [1.0] * 100_000),
    "a range": operation("Arange", "t", 0, 10**11),
    "evenly spaced numbers": operation("Linspace", "t", 0.0, 1.0, num=10**11),
    "one-hot classes": operation("OneHot", "t", [1, 2], module="nn", num_classes=10**11),
    "a layer on a literal": made(
        "keras.layers", "ZeroPadding1D", "t", [{"args": [[LITERAL]], "kwargs": {}}], padding=10**9
    ),
    "a layer that leads nowhere": layer("Dense", "t", "x", units=10**9),
}
TOO_LARGE = {
    "a Tile of the input": functional(operation("Tile", "y", tensor("x"), repeats=[1, 10**10]), output="y"),
    "fixed statistics": sequential(
        [BIG, BIG], plain("Normalization", axis=[1, 2], mean=0.0, variance=1.0), plain("Flatten")
    ),
    "adapted statistics": sequential([BIG, BIG], plain("Normalization", axis=[1, 2]), plain("Flatten")),
    "statistics behind a layer that repeats": sequential(
        [BIG], plain("RepeatVector", n=BIG), plain("Normalization", axis=[1, 2]), plain("Flatten")
    ),
    "padding": sequential([4, 4], plain("ZeroPadding1D", padding=10**10)),
    "an embedding": sequential([4], plain("Embedding", input_dim=10**6, output_dim=10**6)),
    "categories": sequential([4], plain("CategoryEncoding", num_tokens=10**11)),
    "spectra": sequential([512], plain("MelSpectrogram", fft_length=2048, num_mel_bins=10**10)),
}


def described(backend: str, architectures: dict[str, str]) -> tuple[dict[str, str], int]:
    """Describe architectures in another process; return the outcome of each and the peak memory in bytes."""
    done = subprocess.run(
        ["bash", "-c", f'ulimit -v {40 * 2**20}; exec "$0" "$@"', sys.executable, "-c", DESCRIBE, backend],
        input=json.dumps(architectures), capture_output=True, text=True, check=False, cwd=ROOT,
        env=os.environ, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    *lines, took = done.stdout.splitlines()
    return dict(line.split(" | ", 1) for line in lines), int(took)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_large_is_computed(backend: str) -> None:
    unconnected = {name: functional(DENSE, one, output="y") for name, one in UNCONNECTED.items()}
    found, took = described(backend, {**unconnected, **TOO_LARGE})
    for name in UNCONNECTED:
        assert found[name].startswith('the layer "t" is not connected'), found
    for name in TOO_LARGE:
        assert ", more than 2000000000" in found[name], (name, found[name])
    assert took < ROOM
