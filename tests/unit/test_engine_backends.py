"""Tests of JAX and PyTorch, each in a process of its own, since a process can run only one engine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run(arguments: list[str], backend: str) -> str:
    environment = {**os.environ, "CEREBRO_TEST_BACKEND": backend}
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        cwd=HERE.parents[1],
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def suite(backend: str) -> None:
    files = [str(HERE / f"test_engine_{name}.py") for name in ("training", "metrics", "recompute")]
    # Not `python -m pytest`: it would put the repository's root on the path.
    pytest_alone = ["-c", "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))", "-q"]
    run([*pytest_alone, *files], backend)
    run([*pytest_alone, "-m", "not slow", str(HERE / "test_every_layer.py")], backend)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inputs", "stacks", "shards"])
def test_what_jax_does_in_its_own_way(name: str) -> None:
    # Not `python -m pytest`: it would put the repository's root on the path.
    run(
        [
            "-c",
            "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))",
            "-q",
            str(HERE / f"test_engine_{name}.py"),
        ],
        "jax",
    )


@pytest.mark.slow
def test_jax() -> None:
    suite("jax")


@pytest.mark.slow
@pytest.mark.torch
def test_torch() -> None:
    suite("torch")


START = """
import sys
sys.path.insert(0, "plpy")
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine import state
from cerebro_plpy.engine.checks import architecture, calls, check
from cerebro_plpy.engine.backends import interfaces as backends
from cerebro_plpy.engine.models import data, forms, model
from cerebro_plpy.errors import CerebroError
assert not {"keras", "tensorflow", "jax", "torch"} & set(sys.modules), "loaded before it was started"
"""


def test_a_process_runs_one_backend() -> None:
    code = """
runtime.start("jax", 1, False)
runtime.start("jax", 1, False)
print(runtime.versions()["jax"], runtime.backend())
for backend, threads in (("tensorflow", 1), ("jax", 2)):
    try:
        runtime.start(backend, threads, False)
    except CerebroError as error:
        print(error.message, error.sqlstate)
"""
    lines = run(["-c", START + code], "").splitlines()
    assert lines[0].endswith(" jax")
    assert lines[1:] == ['this session already runs Keras on "jax" with 1 threads 55000'] * 2


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_keras_comes_without_companions_but_for_those_that_are_there(backend: str) -> None:
    """Keras does not import optional packages that are installed, such as pandas; a user still can."""
    code = f"""
import gc
import matplotlib, numpy
runtime.start({backend!r}, 1, False)
print(sorted({{"IPython", "jax", "matplotlib", "pandas", "sklearn"}} & set(sys.modules)))
print(gc.isenabled(), gc.get_freeze_count() > 100_000, sum(gc.get_count()) < 10_000)
import IPython, jax, pandas, sklearn
model = runtime.keras().Sequential([runtime.keras().layers.Dense(1)])
print(model.predict(numpy.zeros((2, 3)), verbose=0).shape, pandas.DataFrame({{"a": [1]}}).shape)
"""
    there = ["jax", "matplotlib"] if backend == "jax" else ["matplotlib"]
    assert run(["-c", START + code], "").splitlines() == [f"{there}", "True True True", "(2, 1) (1, 1)"]


def test_nonsense_is_refused_before_anything_is_loaded() -> None:
    code = """
import importlib.util
importlib.util.find_spec = lambda name: None
for backend, threads in (("theano", 1), ("jax", 0), ("torch", 1)):
    try:
        runtime.start(backend, threads, False)
    except CerebroError as error:
        print(error.message, "|", error.hint)
assert "keras" not in sys.modules
"""
    lines = run(["-c", START + code], "").splitlines()
    assert lines[0].startswith('unknown backend "theano"')
    assert lines[1].startswith("threads must be at least 1, not 0")
    assert lines[2].startswith('the Python package "numpy" is missing')
    assert "pip install numpy" in lines[2]
