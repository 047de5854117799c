"""Measures single costs: waiting, hops, evaluation, packing, prediction, streaming."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jobs
import numpy as np
import server
import tables
import timeline
import workloads
from measure import Spread, ratio, slope
from tables import Goal
from workloads import Workload

if TYPE_CHECKING:
    from cerebro_plpy.planner.estimating.rates import Rates
    from cerebro_plpy.planner.estimating.work import RunWork

Tell = Callable[[str], None]

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "plpy"))
OPTIONS = json.dumps({"seed": server.SEED})


@dataclass
class Section:
    """A section of the report: its table and goals, and, in `about`, how it was measured."""

    title: str
    text: str
    goals: Sequence[Goal] = ()
    about: str = ""


def prepare(connection: Any, workload: Workload) -> None:
    server.load(connection, workload)
    server.make_configs(connection, workload)
    server.pack(connection, workload, server.packing_options(workload))


def _shares_of(
    workload: Workload, repetitions: int, options: str, frequency: int | None = None
) -> list[timeline.Shares]:
    """Run a workload several times in one session; return the shares of time of all runs but the first."""
    with server.session() as connection:
        prepare(connection, workload)
        server.fit(connection, workload, options, frequency)
        runs = [server.fit(connection, workload, options, frequency)[0] for _ in range(repetitions)]
        return [timeline.shares(connection, run_id) for run_id in runs]


def _spread(found: Sequence[timeline.Shares], seconds: Callable[[timeline.Shares], float]) -> Spread:
    return Spread.from_values([shares.compute_share(seconds(shares)) for shares in found])


def where_time_goes(repetitions: int, options: str, tell: Tell) -> Section:
    """Measure the time for waiting in `mixed`, for all but training in `wide`, and for hops in `big`."""
    rows, goals = [], []
    for workload, frequency in ((workloads.MIXED, None), (workloads.WIDE, 1), (workloads.BIG, None)):
        count = repetitions if workload is workloads.MIXED else min(2, repetitions)
        found = _shares_of(workload, count, options, frequency)
        parts = [_spread(found, part) for part in (_train, _hops, _evaluate, _commands, _waiting)]
        whole = Spread.from_values([shares.whole for shares in found])
        rows.append(
            [
                f"{workload.name}, {workload.rows:,} rows",
                tables.spread(whole),
                *(_percent(part) for part in parts),
            ]
        )
        tell(f"  {workload.name}: {rows[-1]}")
        goals += _time_goals(workload, found)
    goals += _simulated(8)
    head = [
        "",
        "seconds of all segments",
        "training",
        "taking up and writing states and rows",
        "evaluation",
        "commits and commands",
        "waiting",
    ]
    return Section("Where the time of a run goes", tables.markdown(head, rows), goals)


def _train(shares: timeline.Shares) -> float:
    return shares.train


def _hops(shares: timeline.Shares) -> float:
    return shares.hops


def _evaluate(shares: timeline.Shares) -> float:
    return shares.evaluate


def _commands(shares: timeline.Shares) -> float:
    return shares.commands


def _waiting(shares: timeline.Shares) -> float:
    return shares.waiting


def _overhead(shares: timeline.Shares) -> float:
    return shares.hops + shares.commands + shares.waiting


def _percent(value: Spread) -> str:
    return tables.spread(Spread(100 * value.median, 100 * value.low, 100 * value.high, value.count), 1) + " %"


def _time_goals(workload: Workload, found: Sequence[timeline.Shares]) -> list[Goal]:
    name, rows = workload.name, workload.rows
    if name == "mixed":
        return [
            Goal("share of `mixed` in which segments wait, 2 segments", 0.05, _spread(found, _waiting)),
        ]
    if name == "big":
        hops = Goal(
            f"share of `big` spent on hops, 4 configs, {rows:,} rows", 0.05, _spread(found, _overhead)
        )
        return [hops]
    return [
        Goal("share of `wide` outside training and evaluation", 0.03, _spread(found, _overhead)),
        Goal("share of `wide` for evaluation at frequency 1", 0.15, _spread(found, _evaluate)),
    ]


def _run_of(seconds: Sequence[float], segments: int, seed: int) -> tuple[RunWork, Rates]:
    """Return a run for the simulation whose configs take `seconds` on each segment, and matching rates."""
    from cerebro_plpy.planner.estimating.rates import Observation, Rates
    from cerebro_plpy.planner.estimating.work import ConfigKind, RunWork

    random = np.random.default_rng(seed)
    kinds = {key: ConfigKind(1, str(key), str(key), 1, 1, "jax", {}) for key in range(1, len(seconds) + 1)}
    observed = [
        Observation(
            host="here", backend="jax", threads=1, kind=kinds[key].name, architecture=str(key), batch_size=1,
            work={}, parameters=0, state_bytes=0, visits=1, batch_seconds=each * random.uniform(0.9, 1.1),
            compile_seconds=0.0, write_seconds=0.0, rest_seconds=0.0, evaluation_seconds=0.0,
            read_seconds=0.0,
        )
        for key, each in enumerate(seconds, 1)
    ]  # fmt: skip
    work = RunWork(
        kinds=kinds, rows=[1] * segments, validation_rows=[0] * segments, row_bytes=0.0, epochs=10,
        frequency=10, seed=seed, threads=1, sessions=segments, memory_mb=1, hosts=["here"],
        warm=True,
    )  # fmt: skip
    return work, Rates(observed, "here", 1)


def _simulated(segments: int) -> list[Goal]:
    """Simulate a schedule as the planner does, of 12 configs that take 1 second and 4 that take 10.

    A config is in only one visit at a time, so the slow configs may take longer than an even share of all
    work.
    """
    from cerebro_plpy.planner.estimating.estimates import estimate

    # The times of the configs differ a little.
    units = [1.0] * 12 + [10.0] * 4
    runs = [estimate(*_run_of(units, segments, seed), most_visits=10_000) for seed in range(1, 6)]
    what = f"`mixed` simulated on {segments} segments"
    waits = Spread.from_values([run.waiting for run in runs])
    beyond = Spread.from_values([run.seconds / run.bound - 1 for run in runs])
    return [
        Goal(f"{what}: share in which segments wait", 0.05, waits),
        Goal(f"{what}: time beyond what no schedule can avoid", 0.05, beyond),
    ]


HOP_MEGABYTES = (75, 150, 300, 600)
_HOP_SET_UP = """
import numpy as np
from cerebro_plpy import entry
from cerebro_plpy.engine import state as states
values = np.random.default_rng(1).random({mb} * 2**20 // 12, dtype=np.float32)
kinds = [states.WEIGHT, states.OPTIMIZER, states.OPTIMIZER]
GD["bench"] = states.State(["w", "m", "v"], [values, values, values], kinds, [0], 1)
GD["parts"] = list(states.to_parts(GD["bench"]))
GD["db"] = entry.SegmentSession()
"""
_HOP_WRITE = """
from cerebro_plpy.engine import state as states
from cerebro_plpy.store.runs import state_rows
state_rows.write(GD["db"], -1, {key}, 1, states.to_parts(GD["bench"]))
"""
_HOP_READ = """
from cerebro_plpy.engine import state as states
from cerebro_plpy.store.runs import state_rows
states.from_parts(state_rows.read(GD["db"], -1, {key}, 1))
"""
_PLAIN_WRITE = """
plan = plpy.prepare("INSERT INTO plain_state VALUES ($1, $2, $3)", ["integer", "integer", "bytea"])
for number, part in enumerate(GD["parts"]):
    plpy.execute(plan, [{key}, number, part])
"""
_PLAIN_READ = """
found = [row["data"] for row in plpy.cursor("SELECT data FROM plain_state WHERE id = {key} ORDER BY part")]
"""


def _do(connection: Any, code: str) -> float:
    clock = time.perf_counter()
    server.query(connection, f"DO LANGUAGE plpython3u $bench${code}$bench$")
    return time.perf_counter() - clock


def hops(repetitions: int, tell: Tell) -> Section:
    """Measure writing, committing and reading a state in one session, beside plain INSERT and SELECT."""
    rows, reached, middles = [], Spread(0, 0, 0, 0), []
    for megabytes in HOP_MEGABYTES:
        ours, plain = _hop_times(megabytes, repetitions)
        middles.append((Spread.from_values(ours).median, Spread.from_values(plain).median))
        pairs = [p / o for o, p in zip(ours, plain, strict=True)]
        speed = [megabytes / o for o in ours]
        rows.append(
            [
                f"{megabytes} MB",
                tables.spread(Spread.from_values(ours)),
                tables.spread(Spread.from_values(plain)),
                tables.spread(Spread.from_values(pairs)),
                tables.spread(Spread.from_values(speed), 0),
            ]
        )
        tell(f"  hop {rows[-1]}")
        reached = Spread.from_values(pairs) if megabytes == 300 else reached
    head = ["state", "a hop, seconds", "plain INSERT and SELECT, seconds", "speed ÷ plain", "MB/s"]
    goal = Goal(
        "hop of 300 MB: bytes per second ÷ those of plain INSERT and SELECT", 0.7, reached, at_most=False
    )
    exponents = [slope(HOP_MEGABYTES, seconds) for seconds in zip(*middles, strict=True)]
    text = f"Fitted: a hop ~ size^{exponents[0]:.2f}, plain ~ size^{exponents[1]:.2f}."
    linear = Goal(
        "hop: exponent of its growth with the size ÷ that of plain",
        1.05,
        Spread.from_values([exponents[0] / exponents[1]]),
    )
    return Section("A hop", tables.markdown(head, rows) + "\n\n" + text, [goal, linear])


def _hop_times(megabytes: int, repetitions: int) -> tuple[list[float], list[float]]:
    ours, plain = [], []
    with server.session() as connection:
        server.query(connection, "SELECT cerebro._boot()")
        server.drop(connection, ["plain_state"])
        server.query(
            connection,
            "CREATE TABLE plain_state (id integer, part integer, data bytea, PRIMARY KEY (id, part))",
        )
        server.query(connection, "ALTER TABLE plain_state ALTER COLUMN data SET STORAGE EXTERNAL")
        _do(connection, _HOP_SET_UP.format(mb=megabytes))
        for key in range(-1, repetitions):
            server.query(connection, "CHECKPOINT")
            hop = _do(connection, _HOP_WRITE.format(key=key)) + _do(connection, _HOP_READ.format(key=key))
            server.query(connection, "CHECKPOINT")
            bare = _do(connection, _PLAIN_WRITE.format(key=key)) + _do(
                connection, _PLAIN_READ.format(key=key)
            )
            if key >= 0:
                ours.append(hop)
                plain.append(bare)
        server.drop(connection, ["plain_state"])
        server.query(connection, "DELETE FROM cerebro._state WHERE run_id = -1")
        server.query(connection, "VACUUM cerebro._state")
    return ours, plain


def packing(repetitions: int, tell: Tell) -> Section:
    """Measure packing `wide` into one segment and into one for each core, against COPY to /dev/null."""
    times: dict[str, list[float]] = {
        "COPY": [],
        "packing, 1 segment": [],
        f"packing, {jobs.CORES} segments": [],
    }
    with server.session() as connection:
        server.load(connection, workloads.WIDE)
        for number in range(-1, repetitions):
            for name in times:
                seconds = _pack_once(connection, name)
                if number >= 0:
                    times[name].append(seconds)
    copy = times["COPY"]
    rows, goals = [], []
    for name, found in times.items():
        pairs = Spread.from_values([a / b for a, b in zip(found, copy, strict=True)])
        rows.append([name, tables.spread(Spread.from_values(found)), tables.spread(pairs)])
        if name != "COPY":
            goals.append(Goal(f"{name}: `wide` ÷ COPY to /dev/null", 2.5, pairs))
    tell(f"  packing {rows}")
    return Section("Packing", tables.markdown(["", "seconds", "÷ COPY"], rows), goals)


def _pack_once(connection: Any, name: str) -> float:
    clock = time.perf_counter()
    if name == "COPY":
        server.query(connection, "COPY (SELECT x, y FROM wide_train) TO '/dev/null' (FORMAT binary)")
        return time.perf_counter() - clock
    server.drop(connection, ["wide_train_packed", "wide_train_packed_summary"])
    options = server.packing_options(workloads.WIDE, int(name.split()[1]))
    clock = time.perf_counter()
    server.query(
        connection,
        "SELECT cerebro.training_preprocessor_dl('wide_train', 'wide_train_packed', 'y', 'x',"
        " num_classes => ARRAY[2], options => %s)",
        (options,),
    )
    return time.perf_counter() - clock


PREDICTED_ROWS = 1_000_000
_BARE_PREDICT = """
import json, sys, time
import numpy as np
import keras
rows, batch = int(sys.argv[2]), int(sys.argv[3])
model = keras.models.model_from_json(sys.argv[1])
x = np.random.default_rng(1).random((rows, 64), dtype=np.float32)
model.predict(x[:batch * 4], batch_size=batch, verbose=0)
clock = time.perf_counter()
model.predict(x, batch_size=batch, verbose=0)
print(time.perf_counter() - clock)
"""


def prediction(repetitions: int, rows: int, tell: Tell) -> Section:
    """Measure madlib_predict, which reads and writes tables, against model.predict on arrays."""
    net = workloads.DIGITS.nets[0]
    with server.session() as connection:
        prepare(connection, workloads.DIGITS)
        server.fit(connection, replace(workloads.DIGITS, epochs=1), OPTIONS)
        _million(connection, rows)
        ways: dict[str, Callable[[], float]] = {
            "madlib_predict, response": lambda: _predict(connection, "response"),
            "madlib_predict, prob (10 rows for each)": lambda: _predict(connection, "prob"),
            "model.predict, batch_size=32 (as it comes)": lambda: _bare_predict(net, rows, 32),
            "model.predict, batch_size=4096": lambda: _bare_predict(net, rows, 4096),
        }
        speeds: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(-1, repetitions):
            for name, way in ways.items():
                seconds = way()
                if number >= 0:
                    speeds[name].append(rows / seconds)
    ours, _, *bare = speeds
    table = [[name, tables.spread(Spread.from_values(found), 0)] for name, found in speeds.items()]
    tell(f"  prediction {table}")
    goals = [
        Goal(f"prediction: rows per second, {ours} ÷ {name}", 0.6, ratio(speeds[ours], speeds[name]), False)
        for name in bare
    ]
    first = [_first_prediction() for _ in range(max(3, repetitions))]
    tell(f"  first prediction {first}")
    goals.append(
        Goal("first cerebro.predict of a fresh session, seconds", 0.5, Spread.from_values(first), True)
    )
    return Section("Prediction", tables.markdown([f"{rows:,} rows x 64", "rows per second"], table), goals)


def _first_prediction() -> float:
    """Return the seconds of the first cerebro.predict of a new session, as a BI tool would call it."""
    with closing(server.connect()) as connection:
        clock = time.perf_counter()
        server.query(
            connection,
            "SELECT p.* FROM (SELECT x FROM million LIMIT 1) AS r,"
            " cerebro.predict('digits_models', 1, x) AS p",
        )
        return time.perf_counter() - clock


def _million(connection: Any, rows: int) -> None:
    server.drop(connection, ["million"])
    server.query(connection, "CREATE TABLE million (id integer, x real[], y integer)")
    data = np.random.default_rng(1).random((rows, 64), dtype=np.float32)
    server.load_table(connection, "million", workloads.Rows(data, np.zeros(rows, np.int32)))


def _predict(connection: Any, kind: str) -> float:
    server.drop(connection, ["million_predicted"])
    clock = time.perf_counter()
    server.query(
        connection,
        "SELECT cerebro.madlib_predict('digits_models', 'million', 'id', 'x', 'million_predicted', %s,"
        " mst_key => 1)",
        (kind,),
    )
    return time.perf_counter() - clock


def _bare_predict(net: str, rows: int, batch: int) -> float:
    environment = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    ended = subprocess.run(
        [sys.executable, "-c", _BARE_PREDICT, net, str(rows), str(batch)],
        env={**os.environ, **environment}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(ended.stdout.strip().splitlines()[-1])


def streaming(repetitions: int, options: str, tell: Tell) -> Section:
    """Measure one config on `wide`: with its rows in memory, and with memory for a third of the rows."""
    workload = replace(workloads.WIDE, configs=[workloads.Config(0, 0.001, 256)], epochs=1)
    segment_mb = workload.training_rows * 512 * 4 / jobs.CORES / 2**20
    budgets = {"cached": None, "streamed, 3x the budget": max(16, round(segment_mb / 3))}
    times: dict[str, list[float]] = {name: [] for name in budgets}
    with server.session() as connection:
        prepare(connection, workload)
        for number in range(-1, repetitions):
            for name, budget in budgets.items():
                given = json.loads(options) | ({} if budget is None else {"memory_mb": budget})
                run_id, _ = server.fit(connection, workload, json.dumps(given), validate=False)
                if number >= 0:
                    shares = timeline.shares(connection, run_id)
                    times[name].append((shares.train + shares.hops) / workload.training_rows * 1e6)
    pairs = Spread.from_values([s / c for c, s in zip(*times.values(), strict=True)])
    rows = [[name, tables.spread(Spread.from_values(found), 1)] for name, found in times.items()]
    tell(f"  streaming {rows} {pairs}")
    goal = Goal("streamed rows, 3x the memory budget: time per row ÷ cached rows", 1.3, pairs)
    return Section("Rows beyond the memory", tables.markdown(["", "µs per row and epoch"], rows), [goal])
