"""Neither checks for cancels nor signals of the server damage the heap while an engine computes.

Kernels of oneDNN let the stack pointer point into the heap, so a signal handler would overwrite it.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

# A product of matrices by the kernel in question, interrupted thousands of times.
MULTIPLY = """
import time
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.segment import cancel
runtime.start("tensorflow", 1, False)
import tensorflow
cancel._WORK_SECONDS = 0.001
looks = []
left, right = tensorflow.random.normal((64, 4096)), tensorflow.random.normal((4096, 4))
end = time.monotonic() + 8
with cancel.interruptible(lambda: looks.append(1), lambda: False):
    while time.monotonic() < end:
        tensorflow.matmul(left, right).numpy()
assert len(looks) > 100, len(looks)
"""
# By the names that they give those that compute.
THREADS = """
import pathlib, re, signal, numpy
from cerebro_plpy.engine.backends import runtime
runtime.start("{backend}", 2, False)
import keras
keras.utils.set_random_seed(1)
net = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4)])
net.compile(loss="mse")
net.fit(numpy.ones((64, 8)), numpy.ones((64, 4)), verbose=0)
def status(task):
    try:
        return (task / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # it has ended since it was listed
tasks = map(status, list(pathlib.Path("/proc/self/task").iterdir()))
pools = [task for task in tasks if re.search("^Name:.*(Compute|Eigen)", task, re.M)]
blocked = [int(re.search("SigBlk:\\s*(\\w+)", task)[1], 16) for task in pools]
wanted = [signal.SIGALRM, signal.SIGUSR1, signal.SIGINT, signal.SIGTERM]
assert blocked
assert all(mask >> (number - 1) & 1 for mask in blocked for number in wanted), blocked
assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
"""


def run(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": "plpy"},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-1000:]


def test_looks_for_cancels_leave_the_heap_whole() -> None:
    run(MULTIPLY)


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_the_engines_threads_are_sent_none_of_the_servers_signals(backend: str) -> None:
    run(THREADS.format(backend=backend))
