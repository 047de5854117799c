"""The contenders of the comparison (our runs and other systems), each of which does a whole job."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import measure
import server
from jobs import Order, Settings
from measure import Outcome, PeakMemory
from workloads import Workload

HERE = Path(__file__).resolve().parent
TIMEOUT_SECONDS = 3600


@dataclass(frozen=True)
class Measured:
    """One repetition: its outcomes by row of the report, and, if watched, the peak memory of each process."""

    outcomes: Mapping[str, Outcome]
    peak: Sequence[int] | None = None


@dataclass(frozen=True)
class Contender:
    """A contender. With `often` false, as it is slow, it takes part only in the first measured round."""

    name: str
    run: Callable[[Workload, bool], Measured]
    often: bool = True


@contextmanager
def watched(memory: bool) -> Iterator[PeakMemory | None]:
    """Yield a watcher of the peak of memory, or None unless `memory`; the watching slows a contender down."""
    if not memory:
        yield None
        return
    with closing(server.connect()) as connection:
        roots = {server.server_process(connection)}
    own = os.getpid()
    with PeakMemory(lambda: roots | {p for p in measure.family({own}) if p != own}) as peak:
        yield peak


OURS_FIRST, OURS = "ours, first call in a fresh session", "ours, warm sessions"


def ours(options: str) -> Callable[[Workload, bool], Measured]:
    """Return a function that does the job twice in one session; the second job finds sessions and models."""

    def run(workload: Workload, memory: bool) -> Measured:
        found = {}
        with watched(memory) as peak, server.session() as connection:
            for name in (OURS_FIRST, OURS):
                before = server.database_bytes(connection)
                job = server.job(connection, workload, options)
                found[name] = Outcome(
                    job.seconds,
                    job.seconds,
                    server.database_bytes(connection) - before,
                    server.hopped(connection, job.run_id),
                    server.accuracy(connection, job.run_id),
                )
        return Measured(found, peak.peak if peak else None)

    return run


def peer(name: str, script: str, options: Mapping[str, Any]) -> Callable[[Workload, bool], Measured]:
    def run(workload: Workload, memory: bool) -> Measured:
        folder = Path(tempfile.mkdtemp(prefix="cerebro-bench-"))
        try:
            with watched(memory) as peak:
                order = Order(workload.name, workload.rows, str(folder), workload.epochs, options)
                said = _run(script, order)
            outcome = Outcome(
                said["start"] + said["work"],
                said["work"],
                measure.folder_bytes(folder),
                said["moved"],
                said["accuracy"],
            )
            return Measured({name: outcome}, peak.peak if peak else None)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    return run


def _run(script: str, order: Order) -> dict[str, Any]:
    ended = subprocess.run(
        [sys.executable, str(HERE / script), json.dumps(asdict(order))],
        cwd=order.folder,
        env=os.environ | {"PYTHONPATH": str(HERE), "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    if ended.returncode != 0:
        raise RuntimeError(f"{script} failed:\n{ended.stderr[-4000:]}")
    return json.loads(ended.stdout.strip().splitlines()[-1])


AS_IT_COMES, BEST = "bare Keras as it comes", "bare Keras at its best settings"
RAY, SEQUENTIAL = "Ray Tune", "sequential, one process"
AVERAGING, ALLREDUCE = "model averaging", "data-parallel, all-reduce"

_ONE_THREAD = Settings(threads=1, evaluation_batch=1024, share_queue=True)
# Settings for bare Keras that are tried before anything is measured; the fastest are its best.
CANDIDATES = {
    "TensorFlow, one thread each": _ONE_THREAD,
    "TensorFlow, steps_per_execution=16": replace(_ONE_THREAD, steps_per_execution=16),
    "TensorFlow, steps_per_execution=16, no jit": replace(_ONE_THREAD, steps_per_execution=16, jit=False),
    "TensorFlow, steps_per_execution=16, jit": replace(_ONE_THREAD, steps_per_execution=16, jit=True),
    "JAX, one thread each": replace(_ONE_THREAD, backend="jax"),
    "JAX, steps_per_execution=16": replace(_ONE_THREAD, backend="jax", steps_per_execution=16),
}
# The best settings on two cores, for benchmarks without the search for them.
KNOWN_BEST = {
    "digits": "TensorFlow, steps_per_execution=16",
    "images": "TensorFlow, one thread each",
    "wide": "JAX, one thread each",
}


def bare(name: str, settings: Settings) -> Contender:
    return Contender(name, peer(name, "peer_keras.py", asdict(settings)))


def find_best(workload: Workload, tell: Callable[[str], None]) -> str:
    """Run bare Keras once with each of the settings in CANDIDATES; return the name of the fastest."""
    seconds = {}
    for label, settings in CANDIDATES.items():
        measure.wait_until_quiet()
        outcome = bare(label, settings).run(workload, False).outcomes[label]
        seconds[label] = outcome.seconds
        tell(f"  candidate {label}: {outcome.seconds:.1f} s ({outcome.warm_seconds:.1f} s warm)")
    return min(seconds, key=lambda label: seconds[label])


def field(best: Settings, options: str) -> list[Contender]:
    """Return all contenders of the comparison of whole jobs."""
    return [
        Contender("ours", ours(options)),
        bare(AS_IT_COMES, Settings()),
        bare(BEST, best),
        Contender(RAY, peer(RAY, "peer_ray.py", asdict(Settings())), often=False),
        Contender(SEQUENTIAL, peer(SEQUENTIAL, "peer_keras.py", asdict(Settings(processes=1))), often=False),
        Contender(
            AVERAGING,
            peer(AVERAGING, "peer_parallel.py", {"how": "averaging", "backend": "tensorflow"}),
            often=False,
        ),
        Contender(
            ALLREDUCE,
            peer(ALLREDUCE, "peer_parallel.py", {"how": "allreduce", "backend": "tensorflow"}),
            often=False,
        ),
    ]
