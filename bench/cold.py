"""Measures first calls of connections: on TensorFlow, and on JAX with and without stored programs."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import columns
import server
import tables
import workloads
from details import Section, Tell, prepare
from measure import Spread, wait_until_quiet
from tables import Goal

ROWS = 5_600
# A table of few rows and many columns.
FEW_ROWS, NUMBERS, KINDS = 1_616, 50, 6
# The names of the columns of the table, as they are shown.
TENSORFLOW, NEW, KEPT = "TensorFlow", "JAX, on a new server", "JAX, later connections"
TRAIN = {"epochs": 9, "configs": 6, "single": True}
Job = Callable[[Any, str], None]


def cold(repetitions: int, tell: Tell) -> Section:
    """Measure the first job of a connection, from the first statement to the last row."""
    digits = workloads.named("digits", workloads.ALL["digits"].rows)
    with server.session() as connection:
        prepare(connection, digits)
        columns.make(connection, ROWS)
        _make_broad(connection)

    def search(connection: Any, backend: str) -> None:
        server.fit(connection, digits, json.dumps({"backend": backend}))

    def train(source: str, connection: Any, backend: str) -> None:
        server.query(
            connection,
            "SELECT * FROM cerebro.train(%s, 'gone', 'cold', '10 minutes', %s)",
            (source, json.dumps({**TRAIN, "backend": backend})),
        )

    jobs: dict[str, tuple[Job, float]] = {
        "16 configs of `digits`": (search, 0.5),
        f"`cerebro.train`, {ROWS:,} rows": (partial(train, "mixed"), 0.6),
        f"`cerebro.train`, {FEW_ROWS:,} rows of {NUMBERS + KINDS} columns": (partial(train, "broad"), 0.6),
    }
    rows, goals = [], []
    for name, (job, later) in jobs.items():
        found, programs = _measure(job, repetitions, tell)
        rows.append([name, *[tables.spread(found[way]) for way in (TENSORFLOW, NEW, KEPT)], f"{programs:,}"])
        for ways, goal in (((KEPT, NEW), 0.5), ((KEPT, TENSORFLOW), later), ((NEW, TENSORFLOW), 1.1)):
            ratio = Spread.from_values([found[ways[0]].median / found[ways[1]].median])
            goals.append(Goal(f"first call, {name}: {ways[0]} ÷ {ways[1]}", goal, ratio))
    head = ["first job of a connection, seconds", TENSORFLOW, NEW, KEPT, "programs that JAX compiles"]
    return Section("First calls", tables.markdown(head, rows), goals)


def _make_broad(connection: Any) -> None:
    """Create a table of few rows, with many numbers and some categories."""
    numbers = [f"sin(i * {1 + number / 7:.4f}) AS n{number}" for number in range(NUMBERS)]
    kinds = [f"'k' || (i * {number + 3}) % {number + 4} AS c{number}" for number in range(KINDS)]
    label = "CASE WHEN sin(i * 1.0) + cos(i * 0.7) * (i % 4) > 0 THEN 'yes' ELSE 'no' END AS gone"
    server.drop(connection, ["broad"])
    server.query(
        connection,
        f"CREATE TABLE broad AS SELECT {', '.join([*numbers, *kinds, label])}"
        f" FROM generate_series(1, {FEW_ROWS}) AS i",
    )


def _measure(job: Job, repetitions: int, tell: Tell) -> tuple[dict[str, Spread], int]:
    """Return the seconds of each way, and the number of programs that a new server keeps afterwards."""
    taken: dict[str, list[float]] = {TENSORFLOW: [], NEW: [], KEPT: []}
    programs = 0
    for _ in range(repetitions):
        with _empty_folder() as folder:
            for way, backend in ((TENSORFLOW, "tensorflow"), (NEW, "jax"), (KEPT, "jax")):
                wait_until_quiet()
                taken[way].append(_first(job, backend))
                tell(f"  {way} {taken[way][-1]:.1f} s")
            # Beside the programs of a kind lies the result of a trial, whether they can be loaded.
            programs = sum(file.name != "loads" for file in folder.glob("*/*"))
    return {way: Spread.from_values(seconds) for way, seconds in taken.items()}, programs


def _first(job: Job, backend: str) -> float:
    with server.session() as connection:
        made = [f"cold{end}" for end in ("", "_info", "_summary", "_nets", "_best", "_best_summary")]
        made += [f"cold_packed{end}" for end in ("", "_summary", "_validation", "_validation_summary")]
        server.drop(connection, made)
        clock = time.perf_counter()
        job(connection, backend)
        return time.perf_counter() - clock


@contextmanager
def _empty_folder() -> Iterator[Path]:
    """Set `cache_folder`, the folder for compiled programs, to an empty folder until the end of the block."""
    with server.session() as connection:
        data = Path(server.value(connection, "SHOW data_directory"))
        folder = Path(tempfile.mkdtemp(prefix="cold_", dir=data))
        owner = data.stat()
        shutil.chown(folder, owner.st_uid, owner.st_gid)
        server.query(connection, "INSERT INTO cerebro.settings VALUES ('cache_folder', %s)", (str(folder),))
    try:
        yield folder
    finally:
        with server.session() as connection:
            server.query(connection, "DELETE FROM cerebro.settings WHERE name = 'cache_folder'")
        shutil.rmtree(folder)
