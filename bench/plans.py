"""How true plans are: estimates of whole runs beside what the runs took. `make bench-plan` prints the tables.

For each workload a run of another grid goes before, in the same session. Then the plan is asked for, and the
run made. "Cold" is what the plan says in a database that has measured nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jobs
import numpy as np
import server
import workloads
from measure import PeakMemory
from workloads import Config, Rows, Workload, sequential

WORDS, LENGTH = 2000, 40


def _readings(rows: int) -> Rows:
    """Return series of readings of two classes, which differ in the frequency of a wave."""
    random = np.random.default_rng(4)
    y = random.integers(0, 2, rows)
    steps = np.arange(24)[None, :, None] * (0.4 + 0.3 * y[:, None, None])
    x = np.sin(steps + random.uniform(0, 6, (rows, 1, 8))) + random.normal(0, 0.7, (rows, 24, 8))
    return Rows(x.reshape(rows, -1).astype(np.float32), y.astype(np.int32))


def _sentences(rows: int) -> Rows:
    """Return sentences of two classes, as numbers of words; some words are more frequent in one class."""
    random = np.random.default_rng(5)
    y = random.integers(0, 2, rows)
    x = random.integers(0, WORDS, (rows, LENGTH))
    x = np.where(random.random(x.shape) < 0.1, x // 2 + y[:, None] * WORDS // 2, x)
    return Rows(x.astype(np.float32), y.astype(np.int32))


def _configs(batches: Sequence[int]) -> list[Config]:
    return [Config(0, rate, batch) for rate in (0.003, 0.001) for batch in batches]


_DENSE = ("Dense", {"units": 2, "activation": "softmax"})
LSTM = Workload(
    "lstm", "6,000 series of 24 readings of 8 values, LSTM 32, 4 configs, 2 epochs",
    (24, 8), 2, 6000, _readings, [sequential((24, 8), [("LSTM", {"units": 32}), _DENSE])],
    _configs((64, 128)), 2,
)  # fmt: skip
EMBEDDED = Workload(
    "words", "20,000 sentences of 40 words, embedding 2,000 x 32, 4 configs, 2 epochs",
    (LENGTH,), 2, 20_000, _sentences,
    [
        sequential(
            (LENGTH,),
            [("Embedding", {"input_dim": WORDS, "output_dim": 32}), ("GlobalAveragePooling1D", {}), _DENSE],
        )
    ],
    _configs((64, 256)), 2,
)  # fmt: skip
ALL = {**workloads.ALL, "lstm": LSTM, "words": EMBEDDED}


@dataclass(frozen=True)
class Compared:
    """The estimates of a plan for a run, and what was measured in the run."""

    name: str
    plan: Mapping[str, Any]
    cold: float
    seconds: float
    log_bytes: int
    state_bytes: int
    memory: int
    asking: float

    @property
    def error(self) -> float:
        return abs(self.plan["Total Time"] - self.seconds) / self.seconds

    @property
    def contained(self) -> bool:
        return self.plan["Total Time Low"] <= self.seconds <= self.plan["Total Time High"]


def other_grid(workload: Workload) -> Workload:
    """Return the workload with other learning rates and batch sizes."""
    return replace(
        workload,
        configs=[
            replace(c, learning_rate=c.learning_rate / 2, batch_size=c.batch_size * 3 // 2)
            for c in workload.configs
        ],
    )


def explain(
    connection: Any,
    workload: Workload,
    options: Mapping[str, Any],
    what_if: Mapping[str, Any] | None = None,
    probe: bool = False,
) -> Mapping[str, Any]:
    name = workload.name
    text = server.value(
        connection,
        "SELECT cerebro.explain_fit(%s, %s, %s, validation_table => %s, options => %s, format => 'json',"
        " what_if => %s, probe => %s)",
        (f"{name}_train_packed", f"{name}_configs", workload.epochs, f"{name}_validation_packed",
         json.dumps(options), None if what_if is None else json.dumps(what_if), probe),
    )  # fmt: skip
    return json.loads(text)[0]["Plan"]


def compare(workload: Workload, options: Mapping[str, Any]) -> Compared:
    with closing(server.connect()) as connection:
        server.load(connection, workload)
        server.pack(connection, workload, server.packing_options(workload))
    memory = _measure_memory(workload, options)
    with server.session() as connection:
        # Remove the measurements of other workloads.
        server.query(connection, "TRUNCATE cerebro._rate")
        server.make_configs(connection, other_grid(workload))
        server.fit(connection, workload, json.dumps(options))
        server.make_configs(connection, workload)
        clock = time.perf_counter()
        plan = explain(connection, workload, options)
        asking = time.perf_counter() - clock
        cold = _unmeasured(connection, workload, options)
        before = server.value(connection, "SELECT pg_current_wal_lsn()")
        run_id, seconds = server.fit(connection, workload, json.dumps(options))
        log = server.value(connection, "SELECT pg_current_wal_lsn() - %s::pg_lsn", (before,))
        state = server.value(
            connection, "SELECT max(state_bytes) FROM cerebro.visits WHERE run_id = %s", (run_id,)
        )
    return Compared(workload.name, plan, cold, seconds, int(log), int(state), memory, asking)


def _measure_memory(workload: Workload, options: Mapping[str, Any]) -> int:
    """Return the peak memory of a run in a session that has run nothing else."""
    with server.session() as connection, closing(server.connect()) as watching:
        server.make_configs(connection, workload)
        with PeakMemory(lambda: {pid for (pid,) in server.query(watching, _SESSIONS)}) as memory:
            server.fit(connection, workload, json.dumps(options))
    return sum(memory.peak)


def show_memory(names: Sequence[str], backends: Sequence[str]) -> None:
    """Print the memory that plans say, without and with `probe`, divided by what runs take at their peak."""
    print("| workload | engine | Pss | planned ÷ Pss | planned with probe ÷ Pss |")
    print("|---|---|---|---|---|")
    for name in names:
        workload = ALL[name]
        with closing(server.connect()) as connection:
            server.load(connection, workload)
            server.pack(connection, workload, server.packing_options(workload))
        for backend in backends:
            options = {"seed": server.SEED, "backend": backend}
            memory = _measure_memory(workload, options)
            with server.session() as connection:
                server.make_configs(connection, workload)
                said = [
                    explain(connection, workload, options, probe=probe)["Memory Bytes"] / memory
                    for probe in (False, True)
                ]
            print(
                f"| {name} | {backend} | {memory / 2**20:.0f} MB | {said[0]:.2f} | {said[1]:.2f} |",
                flush=True,
            )


def _unmeasured(connection: Any, workload: Workload, options: Mapping[str, Any]) -> float:
    """Return the estimated time of a plan in a database that has no measurements of earlier runs."""
    server.query(connection, "BEGIN; DELETE FROM cerebro._rate")
    found = explain(connection, workload, options)["Total Time"]
    server.query(connection, "ROLLBACK")
    return found


_BARE = """
import json, sys, time
from pathlib import Path
import jobs
order, settings = jobs.Order(**json.loads(sys.argv[1])), jobs.Settings()
jobs.set_environment(settings)
import keras
clock = time.perf_counter()
rows = jobs.read_rows(jobs.export(order), order.what)
jobs.train_one(order.what, 0, order.epochs, settings, rows, Path(order.folder))
print(time.perf_counter() - clock)
"""


def show_single(names: Sequence[str], rounds: int = 3) -> None:
    """Print the time to pack, train and evaluate one config on all cores, beside plain Keras' time."""
    print("\n| workload | ours, warm | plain Keras, all cores | ratio |\n|---|---|---|---|")
    for name in names:
        workload = ALL[name]
        ours: list[float] = []
        bare: list[float] = []
        with server.session() as connection:
            server.load(connection, workload)
            _fit_one(connection, workload)
            for _ in range(rounds):
                ours.append(_fit_one(connection, workload))
                bare.append(_bare_one(workload))
        ratio = statistics.median(ours) / statistics.median(bare)
        print(f"| {name} | {statistics.median(ours):.2f} s | {statistics.median(bare):.2f} s | {ratio:.2f} |")


def show_averaging(names: Sequence[str], rounds: int = 3) -> None:
    """Print the times of hopping and of averaging for one config on two segments, and compare their losses.

    The times are for averaging in all 6 epochs, the losses for averaging in the last two.
    """
    print("\n| workload | hopping | averaging | ratio | loss of the last third averaged ÷ of hopping |")
    print("|---|---|---|---|---|")
    for name in names:
        workload = replace(ALL[name], epochs=6)
        late = workload.epochs - workload.epochs // 3 + 1
        plain: Mapping[str, Any] = {"threads": 1}
        every, last = ({**plain, "hybrid": {"average_from_epoch": each}} for each in (1, late))
        hopping: list[float] = []
        averaging: list[float] = []
        with server.session() as connection:
            server.load(connection, workload)
            _fit_one(connection, workload, plain)
            for _ in range(rounds):
                hopping.append(_fit_one(connection, workload, plain))
                averaging.append(_fit_one(connection, workload, every))
            losses: list[float] = []
            for options in (last, plain):
                _fit_one(connection, workload, options)
                losses.append(
                    server.value(connection, f"SELECT validation_loss_final FROM {name}_one_summary")
                )
        ours, other = statistics.median(hopping), statistics.median(averaging)
        print(f"| {name} | {ours:.2f} s | {other:.2f} s | {other / ours:.2f} | {losses[0] / losses[1]:.3f} |")


def show_cheapest(names: Sequence[str]) -> None:
    """Print whether the plan with the least estimated time belongs to the run that takes the least time.

    Two runs of another grid come first, one with each engine, so that there are measurements. Each plan is
    made, and each run begun, by the first call of a session.
    """
    ways = [
        {"backend": backend, "segments": segments, "threads": threads}
        for backend in ("tensorflow", "jax")
        for segments in (1, 2)
        for threads in (1, 2)
        # A plan assumes that there is a core for each thread.
        if segments * threads <= len(os.sched_getaffinity(0))
    ]
    within = 0
    print("\n| workload | called cheapest | took | took least | took | ratio |\n|---|---|---|---|---|---|")
    for name in names:
        workload = ALL[name]
        with server.session() as connection:
            server.query(connection, "TRUNCATE cerebro._rate")
            server.load(connection, workload)
            server.pack(connection, workload, server.packing_options(workload, 2))
            server.make_configs(connection, other_grid(workload))
            for backend in ("tensorflow", "jax"):
                server.fit(connection, workload, json.dumps({"seed": server.SEED, "backend": backend}))
            server.make_configs(connection, workload)
        with server.session() as connection:
            said = [explain(connection, workload, {"seed": server.SEED}, way)["Total Time"] for way in ways]
        took = [_first_call(workload, way) for way in ways]
        called, least = said.index(min(said)), took.index(min(took))
        within += took[called] <= 1.15 * took[least]
        print(
            f"| {name} | {_spelled(ways[called])} | {took[called]:.2f} s | {_spelled(ways[least])}"
            f" | {took[least]:.2f} s | {took[called] / took[least]:.2f} |", flush=True,
        )  # fmt: skip
        for way, planned, seconds in zip(ways, said, took, strict=True):
            print(f"    {_spelled(way)}: said {planned:.2f} s, took {seconds:.2f} s", file=sys.stderr)
    print(f"\nwithin 15% of the best: {within} of {len(names)}")


def _first_call(workload: Workload, way: Mapping[str, Any]) -> float:
    with server.session() as connection:
        server.pack(connection, workload, server.packing_options(workload, way["segments"]))
        options = {"seed": server.SEED, "backend": way["backend"], "threads": way["threads"]}
        return server.fit(connection, workload, json.dumps(options))[1]


def _spelled(way: Mapping[str, Any]) -> str:
    return f"{way['backend']}, {way['segments']} × {way['threads']}"


def _fit_one(connection: Any, workload: Workload, options: Mapping[str, Any] | None = None) -> float:
    name, config = workload.name, workload.configs[0]
    seconds = server.pack(connection, workload, server.packing_options(workload))
    server.drop(connection, [f"{name}_one", f"{name}_one_summary"])
    clock = time.perf_counter()
    server.query(
        connection,
        "SELECT cerebro.madlib_fit(%s, %s, %s, %s, %s, %s, %s, FALSE, %s, options => %s)",
        (f"{name}_train_packed", f"{name}_one", f"{name}_nets", config.net + 1,
         f"optimizer='Adam(learning_rate={config.learning_rate!r})',loss='categorical_crossentropy',"
         "metrics=['accuracy']", f"batch_size={config.batch_size}", workload.epochs,
         f"{name}_validation_packed", json.dumps({"seed": server.SEED, **(options or {})})),
    )  # fmt: skip
    return seconds + time.perf_counter() - clock


def _bare_one(workload: Workload) -> float:
    with tempfile.TemporaryDirectory() as folder:
        order = asdict(jobs.Order(workload.name, workload.rows, folder, workload.epochs, {}))
        ended = subprocess.run(
            [sys.executable, "-c", _BARE, json.dumps(order)],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parent)},
            capture_output=True,
            text=True,
            check=True,
        )
        return float(ended.stdout.split()[-1])


def show_constants(names: Sequence[str], backends: Sequence[str]) -> None:
    """Print this machine's values for `planner/estimating/constants.py`, with one thread for each segment."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "plpy"))
    from cerebro_plpy.planner.estimating import rates

    for backend in backends:
        options = json.dumps({"seed": server.SEED, "backend": backend, "threads": 1})
        with server.session() as connection:
            server.query(connection, "TRUNCATE cerebro._rate")
            for name in names:
                workload = ALL[name]
                server.load(connection, workload)
                server.pack(connection, workload, server.packing_options(workload))
                for grid in (workload, other_grid(workload)):
                    server.make_configs(connection, grid)
                    server.fit(connection, grid, options)
            found = server.query(
                connection,
                "SELECT work::json, parameters, batch_size, batch_seconds, evaluation_seconds,"
                " compile_seconds, write_seconds, state_bytes, rest_seconds, read_seconds FROM cerebro._rate",
            )
        for what, size, column in (("training", None, 3), ("evaluation", 256, 4)):
            seen = [row for row in found if row[column]]
            parts = np.array([rates.features(r[0], r[1], size or r[2]) for r in seen])
            took = np.array([row[column] for row in seen])
            fitted = rates.fit(parts, took)
            print(backend, what, [float(f"{each:.2g}") for each in fitted])
            print("  said ÷ took", [round(float(x), 2) for x in parts @ fitted / took])
        print(backend, "compiling", [(row[0]["layers"], round(row[5], 2)) for row in found if row[5]])
        print(backend, "writing", sorted({(row[7], round(row[6], 4)) for row in found}))
        print(backend, "resting", [round(row[8], 4) for row in found], "reading", [row[9] for row in found])


_SESSIONS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'cerebro%'"
    " ORDER BY backend_start OFFSET 1"
)


def show(found: Sequence[Compared]) -> None:
    print("| workload | planned | took | error | in range | cold ÷ took | log | states | memory | asked in |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for one in found:
        largest = max(node.get("State Bytes", 0) for node in one.plan["Plans"])
        print(
            f"| {one.name} | {one.plan['Total Time']:.2f} s | {one.seconds:.2f} s | {one.error:.0%}"
            f" | {'yes' if one.contained else 'no'} | {one.cold / one.seconds:.2f}"
            f" | {one.plan['Log Bytes'] / one.log_bytes:.2f} | {largest - one.state_bytes:+d} B"
            f" | {one.plan['Memory Bytes'] / one.memory if one.memory else float('nan'):.2f}"
            f" | {one.asking * 1000:.0f} ms |"
        )
    errors = [one.error for one in found]
    print(f"\nmedian error {statistics.median(errors):.0%}, worst {max(errors):.0%}")


def show_what_if(names: Sequence[str], options: Mapping[str, Any]) -> None:
    """Print the estimate for all rows after a run on a quarter of them, beside the time of the full run."""
    print("\n| workload | said of four times the rows | took | error |\n|---|---|---|---|")
    for name in names:
        workload = ALL[name]
        small, said = replace(workload, rows=workload.rows // 4), 0.0
        with server.session() as connection:
            server.query(connection, "TRUNCATE cerebro._rate")
            for rows in (small, workload):
                server.load(connection, rows)
                server.pack(connection, rows, server.packing_options(rows))
                server.make_configs(connection, rows)
                if rows is small:
                    server.fit(connection, rows, json.dumps(options))
                    said = explain(connection, rows, options, {"rows": workload.training_rows})["Total Time"]
            _, seconds = server.fit(connection, workload, json.dumps(options))
        print(f"| {name} | {said:.2f} s | {seconds:.2f} s | {abs(said - seconds) / seconds:.0%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(ALL))
    parser.add_argument("--what-if", nargs="*", default=["images", "wide", "words"])
    parser.add_argument("--backend", help="tensorflow; for constants tensorflow and jax")
    parser.add_argument("--single", nargs="*", help="compare one config with plain Keras instead")
    parser.add_argument("--averaging", nargs="*", help="compare averaging with hopping instead")
    parser.add_argument("--cheapest", nargs="*", help="run each of the plans there are for one call instead")
    parser.add_argument("--memory", action="store_true", help="compare memory alone, on both engines")
    parser.add_argument("--constants", nargs="*", help="print constants fitted on these instead")
    given = parser.parse_args()
    options = {"seed": server.SEED, "backend": given.backend or "tensorflow"}
    server.make_database()
    try:
        if given.constants is not None:
            show_constants(
                given.constants or list(ALL), [given.backend] if given.backend else ["tensorflow", "jax"]
            )
            return
        if given.memory:
            show_memory(given.only, [given.backend] if given.backend else ["tensorflow", "jax"])
            return
        if given.cheapest is not None:
            show_cheapest(given.cheapest or list(ALL))
            return
        if given.averaging is not None:
            show_averaging(given.averaging or ["wide", "images"])
            return
        if given.single is not None:
            show_single(given.single or ["wide", "images"])
            return
        show([compare(ALL[name], options) for name in given.only])
        show_what_if(given.what_if, options)
    finally:
        server.drop_database()


if __name__ == "__main__":
    main()
