"""SQL on the losses of a run's configs, as far as the caller sees them."""

from __future__ import annotations

from cerebro_plpy.database import Database
from cerebro_plpy.store.runs.runs import no_such_run

# Epochs and losses, by config and kind of rows.
CurvesOfRun = dict[tuple[int, str], tuple[list[int], list[float]]]


def read(db: Database, run_id: int | None) -> CurvesOfRun:
    """Return the losses of a run after each epoch; refuse a run that is not the caller's to see."""
    if not db.query("SELECT FROM cerebro.runs WHERE run_id = $1", ["bigint"], [run_id]):
        raise no_such_run(run_id)
    rows = db.query(
        "SELECT mst_key, dataset, epoch, value FROM cerebro.metrics WHERE run_id = $1 AND metric = 'loss'"
        " ORDER BY mst_key, dataset, epoch",
        ["bigint"],
        [run_id],
    )
    found: CurvesOfRun = {}
    for row in rows:
        epochs, losses = found.setdefault((row["mst_key"], row["dataset"]), ([], []))
        epochs.append(row["epoch"])
        losses.append(row["value"])
    return found


def failures(db: Database, run_id: int | None) -> dict[int, str]:
    """Return why configs of a run failed."""
    rows = db.query(
        "SELECT mst_key, failure FROM cerebro.leaderboard WHERE run_id = $1 AND failure IS NOT NULL",
        ["bigint"],
        [run_id],
    )
    return {row["mst_key"]: row["failure"] for row in rows}
