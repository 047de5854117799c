"""SQL on the losses of a run's configs, read with the caller's rights."""

from __future__ import annotations

from cerebro_plpy.database import Database
from cerebro_plpy.store.runs.runs import no_such_run

# Epochs and losses, by config and kind of rows.
CurvesOfRun = dict[tuple[int, str], tuple[list[int], list[float]]]


def read(db: Database, run_id: int | None) -> CurvesOfRun:
    """Return the losses of a run after each epoch; raise an error if the caller may not see the run."""
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
    """Return the reason for which each failed config of a run failed, by the config's key."""
    rows = db.query(
        "SELECT mst_key, failure FROM cerebro.leaderboard WHERE run_id = $1 AND failure IS NOT NULL",
        ["bigint"],
        [run_id],
    )
    return {row["mst_key"]: row["failure"] for row in rows}
