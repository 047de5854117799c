"""The small job that is disturbed over and over, and everything that it leaves, to the bit."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from dataclasses import dataclass

import nets
from fixtures import Connection, Rows, execute
from scratch import Server
from trial import Trial, blobs, rows_of

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
class Left:
    """The result of a run: what must not depend on any fault."""

    weights: dict[int, bytes]
    metrics: Rows
    info: Rows

    @property
    def bits(self) -> int:
        return 8 * (sum(map(len, self.weights.values())) + 8 * len(self.metrics))


def prepare(server: Server) -> None:
    with closing(server.connect()) as connection:
        make_tables(connection)


def make_tables(connection: Connection) -> None:
    """Rows, packed rows, an architecture and configs."""
    trial = Trial(connection)
    trial.table("rows", "x real[], y integer", rows_of(*blobs(ROWS, classes=CLASSES)))
    trial.pack("rows", "packed", options={"segments": SEGMENTS})
    trial.model(nets.mlp(outputs=CLASSES))
    trial.select("mst", [1], COMPILES, FITS)


def fit(connection: Connection, out: str, backend: str, packed: str = "packed") -> None:
    """Train all configs."""
    options = json.dumps({"backend": backend, "seed": SEED, "threads": 1})
    execute(
        connection,
        "SELECT cerebro.madlib_fit_multiple_model(%s, %s, 'mst', %s, metrics_compute_frequency => 2,"
        " options => %s)",
        packed, out, EPOCHS, options,
    )  # fmt: skip


def left(connection: Connection, out: str) -> Left:
    """Read everything that a run left in its tables."""
    weights = execute(connection, f"SELECT mst_key, model_weights FROM {out}")
    metrics = execute(
        connection,
        "SELECT mst_key, epoch, dataset, metric, value FROM cerebro.metrics"
        f" WHERE run_id = (SELECT run_id FROM {out}_summary) ORDER BY 1, 2, 3, 4",
    )
    info = execute(
        connection,
        "SELECT mst_key, status, training_loss_final, training_loss, training_metrics"
        f" FROM {out}_info ORDER BY mst_key",
    )
    return Left({key: bytes(value) for key, value in weights}, metrics, info)


def check_visits(connection: Connection, run_id: int) -> None:
    """Every config has been to every segment once in every epoch."""
    rows = execute(connection, "SELECT mst_key, epoch, segment FROM cerebro._visit WHERE run_id = %s", run_id)
    expected = {
        (key, epoch, segment)
        for key in range(1, CONFIGS + 1)
        for epoch in range(1, EPOCHS + 1)
        for segment in range(SEGMENTS)
    }
    assert Counter(rows) == Counter(expected)


def drop(connection: Connection, out: str) -> None:
    execute(connection, f"DROP TABLE IF EXISTS {out}, {out}_info, {out}_summary")
