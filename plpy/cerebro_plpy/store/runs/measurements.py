"""SQL on the evaluations of configs, and on configs that failed; with the rights of the extension's owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.store.plain import as_json_text
from cerebro_plpy.store.runs.runs import LONGEST_REASON, inserts, no_such_run
from cerebro_plpy.store.writing import BigInt, Writing, as_given, insertion, write

# Epochs and losses, by config and kind of rows.
CurvesOfRun = dict[tuple[int, str], tuple[list[int], list[float]]]


@as_owner
def forget_after(db: Database, run_id: int, mst_key: int, epoch: int) -> None:
    """Delete a config's metrics of all epochs after `epoch`, which are trained and measured again."""
    db.query(
        "DELETE FROM cerebro._metric WHERE run_id = $1 AND mst_key = $2 AND epoch > $3",
        ["bigint", "integer", "integer"],
        [run_id, mst_key, epoch],
    )


@as_owner
def drop_partial_evaluations(db: Database, run_id: int) -> None:
    """Delete evaluations of single segments that have not been merged into metrics."""
    # In several statements: on Citus one table is on the workers, and the other is not.
    listed = "SELECT DISTINCT mst_key, epoch, dataset FROM cerebro.{} WHERE run_id = $1"
    there, merged = (
        {tuple(row.values()) for row in db.query(listed.format(table), ["bigint"], [run_id])}
        for table in ("_evaluation", "_metric")
    )
    for part in sorted(there - merged):
        db.query(
            "DELETE FROM cerebro._evaluation"
            " WHERE run_id = $1 AND mst_key = $2 AND epoch = $3 AND dataset = $4",
            ["bigint", "integer", "integer", "text"],
            [run_id, *part],
        )


@dataclass(frozen=True)
class EvaluationRow:
    """The evaluation of a config on the rows of one segment."""

    run_id: BigInt
    mst_key: int
    epoch: int
    dataset: str
    segment: int
    data: bytes
    seconds: float
    # On Greenplum and Citus the distribution key of the rows beside which it was made.
    place: int = 0


# The kinds of rows that a config is measured on.
DATASETS = ("training", "validation")
EVALUATION_ROWS = insertion("cerebro._evaluation", EvaluationRow)


def write_evaluation(db: Database, evaluation: EvaluationRow) -> None:
    write(db, [(EVALUATION_ROWS, [as_given(evaluation)])])


@as_owner
def read_evaluations(
    db: Database, run_id: int, mst_key: int, epoch: int, dataset: str, places: Sequence[int] = ()
) -> list[bytes]:
    """Return the metric variables of an epoch's evaluations, in the order of the segments.

    In this order, their sum is always the same to the last bit. With `places`, only the nodes of a cluster
    that have these distribution keys are asked.
    """
    rows = db.query(
        "SELECT data FROM cerebro._evaluation WHERE run_id = $1 AND mst_key = $2 AND epoch = $3"
        f" AND dataset = $4{' AND place = ANY ($5)' if places else ''} ORDER BY segment",
        ["bigint", "integer", "integer", "text", *(["integer[]"] if places else [])],
        [run_id, mst_key, epoch, dataset, *([list(places)] if places else [])],
    )
    return [row["data"] for row in rows]


@dataclass(frozen=True)
class Measured:
    """The value of one metric of a config after an epoch, merged over all segments."""

    run_id: BigInt
    mst_key: int
    epoch: int
    dataset: str
    position: int
    metric: str
    value: float
    higher_is_better: bool


METRIC_ROWS = insertion("cerebro._metric", Measured)


def write_metrics(db: Database, measured: Sequence[Measured]) -> None:
    write(db, [(METRIC_ROWS, [as_given(row) for row in measured])])


@as_owner
def write_failure(db: Database, run_id: int, mst_key: int, epoch: int, segment: int, reason: str) -> None:
    write(db, failure_of(run_id, mst_key, epoch, segment, reason))


def failure_of(run_id: int, mst_key: int, epoch: int, segment: int, reason: str) -> list[Writing]:
    """Return the writings that store the reason why a config failed; a reason that is stored already
    stays."""
    row = {"mst_key": mst_key, "epoch": epoch, "segment": segment, "reason": reason[:LONGEST_REASON]}
    return inserts("cerebro._failure", run_id, [row])


@dataclass(frozen=True)
class MetricRow:
    mst_key: int
    epoch: int
    dataset: str
    metric: str
    value: float | None
    elapsed_seconds: float


@as_owner
def metrics(db: Database, run_id: int) -> list[MetricRow]:
    rows = db.query(
        "SELECT m.mst_key, m.epoch, m.dataset, m.metric, m.value,"
        " pg_catalog.date_part('epoch', m.at - r.started_at) AS elapsed_seconds"
        " FROM cerebro._metric AS m JOIN cerebro._run AS r USING (run_id) WHERE m.run_id = $1"
        ' ORDER BY m.mst_key, m.epoch, m.dataset, m."position"',
        ["bigint"],
        [run_id],
    )
    return [MetricRow(**row) for row in rows]


@as_owner
def seconds_spent(db: Database, run_id: int) -> float:
    """Return for how many seconds a run was under way: the time from each start or resume to the last visit
    after it."""
    return db.query(
        "SELECT COALESCE(sum(pg_catalog.date_part('epoch', b.ended_at - b.at)), 0) AS seconds FROM ("
        " SELECT e.at, max(v.ended_at) AS ended_at"
        " FROM (SELECT x.at, COALESCE(lead(x.at) OVER (ORDER BY x.at), 'infinity') AS next_at"
        "   FROM cerebro._run_event AS x WHERE x.run_id = $1 AND x.event = 'running') AS e"
        " JOIN (SELECT w.ended_at FROM cerebro._visit AS w WHERE w.run_id = $1) AS v"
        "   ON v.ended_at >= e.at AND v.ended_at < e.next_at GROUP BY e.at) AS b",
        ["bigint"],
        [run_id],
    )[0]["seconds"]


@as_owner
def times(db: Database, run_id: int) -> Mapping[str, str]:
    """Return when a run began and when its last visit ended, as texts in the server's time zone, the form
    that MADlib's summaries have."""
    return db.query(
        f"SELECT {as_json_text('r.started_at::timestamp', 'timestamp')} AS started,"
        f" {as_json_text('COALESCE(max(v.ended_at), clock_timestamp())::timestamp', 'timestamp')} AS ended"
        " FROM cerebro._run AS r LEFT JOIN cerebro._visit AS v USING (run_id) WHERE r.run_id = $1"
        " GROUP BY r.started_at",
        ["bigint"],
        [run_id],
    )[0]


def of_results(db: Database, run_id: int, metrics: Sequence[str]) -> dict[tuple[int, str], float]:
    """Return the named metrics of the states that a run's configs delivered, by config and metric."""
    rows = db.query(
        "SELECT m.mst_key, m.metric, m.value FROM cerebro.leaderboard AS b"
        " JOIN cerebro.metrics AS m USING (run_id, mst_key, epoch, dataset)"
        " WHERE b.run_id = $1 AND m.metric = ANY ($2)",
        ["bigint", "text[]"],
        [run_id, list(metrics)],
    )
    return {(row["mst_key"], row["metric"]): row["value"] for row in rows}


def read_curves(db: Database, run_id: int | None) -> CurvesOfRun:
    """Return the losses of a run after each epoch, read with the caller's rights.

    Raise an error if the caller may not see the run.
    """
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


def read_failures(db: Database, run_id: int | None) -> dict[int, str]:
    """Return the reason for which each failed config failed, by its key, read with the caller's rights."""
    rows = db.query(
        "SELECT mst_key, failure FROM cerebro.leaderboard WHERE run_id = $1 AND failure IS NOT NULL",
        ["bigint"],
        [run_id],
    )
    return {row["mst_key"]: row["failure"] for row in rows}
