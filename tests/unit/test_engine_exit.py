"""A process that ends while threads of a library are working exits without a crash."""

from __future__ import annotations

import subprocess
import sys

import pytest

# One crash in five or ten without the cure: enough processes to see one.
PROCESSES = 30
WORK = """
import ctypes
from cerebro_plpy.engine.backends import runtime
runtime.start("jax", 1, False)
import jax, jax.numpy as jnp
x = jnp.ones((200, 200))
jax.jit(lambda x: jax.lax.fori_loop(0, 200_000, lambda _, a: jnp.tanh(a @ a), x))(x)
ctypes.CDLL(None).exit(7)
"""


@pytest.mark.slow
def test_no_process_crashes_at_its_end() -> None:
    """The process ends by C's exit(), as server processes do, and so without Python's own clean-up."""
    codes = {
        subprocess.run([sys.executable, "-c", WORK], env={"PYTHONPATH": "plpy"}, check=False).returncode
        for _ in range(PROCESSES)
    }
    assert codes == {7}
