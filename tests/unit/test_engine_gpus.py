"""An engine uses only the GPU that it was given; each test starts it in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PACKAGES = Path(__file__).resolve().parents[2] / "plpy"
NAMES = (
    "CUDA_VISIBLE_DEVICES", "CEREBRO_SEEN_GPUS", "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_PREALLOCATE", "TF_FORCE_GPU_ALLOW_GROWTH", "JAX_PLATFORMS",
)  # fmt: skip
# No GPU is here: the engine says so, after it was told what to use.
SCRIPT = """
import json, os, sys
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.errors import CerebroError
said = []
try:
    runtime.start("jax", 1, {use_gpus}, {gpu})
except CerebroError as error:
    said = [error.message, error.detail, error.sqlstate]
print(json.dumps([{{name: os.environ.get(name) for name in {names}}}, said]))
"""


def started(use_gpus: bool, gpu: str, **variables: str) -> tuple[dict[str, str | None], list[Any]]:
    # What an engine in the tests' own process has set is not the administrator's.
    own = {name: value for name, value in os.environ.items() if name not in NAMES}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(use_gpus=use_gpus, gpu=gpu, names=NAMES)],
        env={**own, "PYTHONPATH": str(PACKAGES), **variables},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return tuple(json.loads(done.stdout))


@pytest.mark.parametrize("before", [{}, {"CUDA_VISIBLE_DEVICES": "2,3"}])
def test_a_process_sees_its_own_gpu_and_takes_its_part(before: dict[str, str]) -> None:
    environment, said = started(True, "runtime.Gpu('GPU-7', 0.45, 7200)", **before)
    assert environment == {
        "CUDA_VISIBLE_DEVICES": "GPU-7",
        "CEREBRO_SEEN_GPUS": before.get("CUDA_VISIBLE_DEVICES", "all"),
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.45",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "JAX_PLATFORMS": None,
    }
    assert said == [
        "use_gpus is true, but jax finds no GPU on this server",
        "This process was given GPU-7 of its host.",
        "55000",
    ]


def test_without_gpus_a_process_sees_none() -> None:
    environment, said = started(False, "None")
    assert environment["CUDA_VISIBLE_DEVICES"] == "-1"
    assert environment["CEREBRO_SEEN_GPUS"] == "all"
    assert environment["XLA_PYTHON_CLIENT_MEM_FRACTION"] is None
    assert said == []
