"""Measures memory and the load of the processors, and computes statistics of repetitions."""

from __future__ import annotations

import math
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

# Reading the sizes slows down the processes that are watched, and the sizes change slowly.
INTERVAL_SECONDS = 1.0
QUIET_SHARE, LOOK_SECONDS, PATIENCE_SECONDS = 0.85, 1.0, 120.0


@dataclass(frozen=True)
class Outcome:
    """The costs of one whole job; `warm_seconds` leaves out the start of processes and imports."""

    seconds: float
    warm_seconds: float
    stored: int
    moved: int
    accuracy: float


@dataclass(frozen=True)
class Spread:
    """The median, the least and the greatest value of several repetitions, and their number."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def from_values(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values), len(values))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return the ratio of the medians, with the least and greatest ratio of two values of one round."""
    rounds = [a / b for a, b in zip(ours, theirs, strict=False)]
    return Spread(statistics.median(ours) / statistics.median(theirs), min(rounds), max(rounds), len(rounds))


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the exponent of y ~ x**slope, by least squares on the logarithms."""
    return statistics.linear_regression(_logs(xs), _logs(ys)).slope


def _logs(values: Iterable[float]) -> list[float]:
    return [math.log(value) for value in values]


def folder_bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def wait_until_quiet() -> bool:
    """Wait until the processors are mostly idle; return False if they are not within two minutes."""
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE_SECONDS:
        idle, whole = _processor_time()
        time.sleep(LOOK_SECONDS)
        idle_now, whole_now = _processor_time()
        if idle_now - idle >= QUIET_SHARE * (whole_now - whole):
            return True
    return False


def _processor_time() -> tuple[int, int]:
    """Return the idle time and the whole time of all processors since the machine was started."""
    times = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return times[3] + times[4], sum(times)


class PeakMemory:
    """A watcher of the proportional set size (Pss) of some processes and of all their descendants.

    A page that processes share counts once in total, so that a server's shared buffers or Python's libraries
    are not counted for each session. `peak` has the size of each process when their sum was greatest.
    """

    def __init__(self, roots: Callable[[], set[int]]) -> None:
        self._roots = roots
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak: list[int] = []

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(INTERVAL_SECONDS):
            self.peak = max(self.peak, [_pss(pid) for pid in family(self._roots())], key=sum)


def family(roots: set[int]) -> set[int]:
    """Return the process IDs in `roots`, and those of all their descendants."""
    parents = {
        pid: parent for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) for parent in _parent(pid)
    }
    found = set(roots)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _parent(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return [int(text.rpartition(")")[2].split()[1])]


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
