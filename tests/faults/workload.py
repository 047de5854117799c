"""The jobs that the fault harness disturbs, and functions that read all that a run of a job leaves."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np

import nets
from fixtures import Connection, Rows, execute
from scratch import Server
from trial import ADAM, SGD, Trial, blobs, rows_of

ROWS, CLASSES, SEGMENTS, EPOCHS = 600, 10, 2, 8
CONFIGS = 4
SEED = 11
COMPILES = [
    f"loss='categorical_crossentropy',optimizer='{optimizer}',metrics=['accuracy']"
    for optimizer in ("Adam(lr=0.001)", "Adam(lr=0.002)", "Adam(lr=0.004)", "Adam(lr=0.008)")
]
# All rows of a segment are whole batches: one shape to compile.
FITS = ["batch_size=50,epochs=6"]
VISITS = CONFIGS * SEGMENTS * EPOCHS
# How long a call may take to end after a fault, on a busy machine.
PATIENCE = 120.0


@dataclass(frozen=True)
class Job:
    """A run to disturb: its packed table, configs, epochs and options."""

    name: str
    proof: str  # a query that returns whether a run was as the name says
    packed: str = "packed"
    selection: str = "mst"
    epochs: int = EPOCHS
    options: Mapping[str, object] = field(default_factory=dict)
    # The columns that name a model in the result table.
    keys: str = "mst_key"
    jax_only: bool = False


_SHARED = "SELECT count(DISTINCT xmin::text) < count(*) FROM cerebro._visit WHERE run_id = %s"
_BOTH = "SELECT count(DISTINCT model_id) = 2 FROM cerebro._config WHERE run_id = %s"
_CUT = "SELECT limits::json ->> 'cuts' <> '{}' FROM cerebro._run WHERE run_id = %s"
SMALL = Job("small", "SELECT count(*) > 0 FROM cerebro._visit WHERE run_id = %s")
FAST = Job("fuse: fast", _SHARED, "few", "eight", 160, {"fuse": "fast"}, jax_only=True)
FEATURES = Job("stored features", _CUT, "features", "heads", 20, {"materialize": "auto"})
GROUPS = Job(
    "groups", _SHARED, "grouped", "two", 90, {"fuse": "exact", "checkpoint_every": 3}, "shop, mst_key"
)
STRONG = Job("realmlp and tabm", _BOTH, "bills_packed", "strong", 20)
FEW = 6
# Stored features are of the layer "low"; a run on them computes those of "high" once.
UNITS, WIDE = 600, 120
FROZEN_NET = nets.sequential(
    [WIDE],
    nets.layer("Dense", units=UNITS, activation="relu", trainable=False, name="low"),
    nets.layer("Dense", units=UNITS, activation="tanh", trainable=False, name="high"),
    nets.layer("Dense", units=3, activation="softmax"),
)
FROZEN_WEIGHTS = WIDE * UNITS + UNITS + UNITS * UNITS + UNITS + UNITS * 3 + 3


@dataclass(frozen=True)
class Left:
    """The results of a run, which must not depend on any fault."""

    weights: dict[object, bytes]
    metrics: Rows
    info: Rows

    @property
    def bits(self) -> int:
        return 8 * (sum(map(len, self.weights.values())) + 8 * len(self.metrics))


def prepare(server: Server) -> None:
    with closing(server.connect()) as connection:
        make_tables(connection)
        make_more_tables(Trial(connection))


def make_tables(connection: Connection) -> None:
    """Make the tables of the small job: rows, a packed table, an architecture and configs."""
    trial = Trial(connection)
    trial.table("rows", "x real[], y integer", rows_of(*blobs(ROWS, classes=CLASSES)))
    trial.pack("rows", "packed", options={"segments": SEGMENTS})
    trial.model(nets.mlp(outputs=CLASSES))
    trial.select("mst", [1], COMPILES, FITS)


def make_more_tables(trial: Trial) -> None:
    """Make the rows, packed tables, architectures and configs of the other jobs."""
    trial.table("few_rows", "x real[], y integer", rows_of(*blobs(400, features=FEW)))
    trial.pack("few_rows", "few", options={"segments": SEGMENTS})
    trial.sql(
        "CREATE TABLE sales AS SELECT x, y, (number % 7)::text AS shop"
        " FROM (SELECT *, row_number() OVER () AS number FROM few_rows) AS b"
    )
    trial.pack("sales", "grouped", options={"segments": SEGMENTS, "group_by": "shop"})
    few = trial.model(nets.mlp(FEW))
    rates = [ADAM.replace("0.01", f"{0.001 * (1 + n)}") for n in range(8)]
    trial.select("eight", [few], rates, ["batch_size=10"])
    trial.select("two", [few], [ADAM, SGD], ["batch_size=10"])
    x, y = blobs(2000, features=FEW)
    trial.table("wide_rows", "x real[], y integer", rows_of(np.tile(x, WIDE // FEW), y))
    trial.pack("wide_rows", "wide", options={"segments": SEGMENTS})
    weights = np.random.default_rng(1).normal(size=FROZEN_WEIGHTS, scale=0.02).astype("<f4")
    frozen = trial.model(FROZEN_NET, weights=weights.tobytes())
    trial.select("heads", [frozen], [ADAM, SGD], ["batch_size=16"])
    _make_strong_tables(trial)
    trial.sql("SELECT cerebro.materialize_features('wide', 'arch', %s, 'low', 'features')", frozen)


def _make_strong_tables(trial: Trial) -> None:
    """Make bills in their own unit, and the strong nets that learn them."""
    trial.sql(
        "CREATE TABLE bills AS SELECT sin(i)::float8 AS a, cos(i * 1.7)::float8 AS b,"
        " chr(97 + i % 3) AS plan, 1000 * (7 + 2 * sin(i) + i % 3) AS bill FROM generate_series(1, 500) AS i"
    )
    trial.pack("bills", "bills_packed", "bill", "*", options={"columns": "auto", "segments": SEGMENTS})
    for net in ("realmlp", "tabm"):
        params = json.dumps({"width": 16, "depth": 1})
        trial.sql("SELECT cerebro.load_net('strong_nets', 'bills_packed', %s, %s)", net, params)
    compiled = [f"loss='mse',metrics=['mae'],optimizer='Adam(learning_rate={rate})'" for rate in (0.01, 0.02)]
    trial.select("strong", [1, 2], compiled, ["batch_size=16"], arch="strong_nets")


def fit(connection: Connection, out: str, backend: str, job: Job = SMALL) -> None:
    """Train all configs of a job, with its options and the seed that all runs share."""
    options = json.dumps({"backend": backend, "seed": SEED, "threads": 1, **job.options})
    execute(
        connection,
        "SELECT cerebro.madlib_fit_multiple_model(%s, %s, %s, %s, metrics_compute_frequency => 2,"
        " options => %s)",
        job.packed, out, job.selection, job.epochs, options,
    )  # fmt: skip


def left(connection: Connection, out: str, job: Job = SMALL) -> Left:
    """Return the weights, metrics and info rows that a run left in its tables."""
    rows = execute(connection, f"SELECT model_weights, {job.keys} FROM {out}")
    weights: dict[object, bytes] = {
        key[0] if len(key) == 1 else tuple(key): bytes(value) for value, *key in rows
    }
    metrics = execute(
        connection,
        "SELECT mst_key, epoch, dataset, metric, value FROM cerebro.metrics"
        f" WHERE run_id = (SELECT run_id FROM {out}_summary) ORDER BY 1, 2, 3, 4",
    )
    info = execute(
        connection,
        "SELECT mst_key, status, training_loss_final, training_loss, training_metrics"
        f" FROM {out}_info ORDER BY {job.keys}",
    )
    return Left(weights, metrics, info)


def check_visits(connection: Connection, run_id: int) -> None:
    """Check that every config of the small job has visited every segment exactly once in every epoch."""
    rows = execute(connection, "SELECT mst_key, epoch, segment FROM cerebro._visit WHERE run_id = %s", run_id)
    expected = {
        (key, epoch, segment)
        for key in range(1, CONFIGS + 1)
        for epoch in range(1, EPOCHS + 1)
        for segment in range(SEGMENTS)
    }
    assert Counter(rows) == Counter(expected)


def logged(connection: Connection, run_id: int) -> tuple[Rows, Rows]:
    """Return the visits that a run has made, and the states that it has kept."""
    visits = "SELECT mst_key, step, epoch, segment FROM cerebro._visit WHERE run_id = %s ORDER BY 1, 2"
    states = "SELECT mst_key, step FROM cerebro._state WHERE run_id = %s AND part = 0 ORDER BY 1, 2"
    return execute(connection, visits, run_id), execute(connection, states, run_id)


def drop(connection: Connection, out: str) -> None:
    execute(connection, f"DROP TABLE IF EXISTS {out}, {out}_info, {out}_summary")
