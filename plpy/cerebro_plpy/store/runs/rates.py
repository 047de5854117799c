"""SQL on the rates, such as seconds per mini-batch, that runs have measured for each kind of config, and on
the visits and evaluations that they come from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from cerebro_plpy.database import Database, Row, as_owner
from cerebro_plpy.store.writing import BigInt, Writing, as_given, insertion

# Older rows go: a server that was changed takes other times.
MOST_ROWS = 2000
# What an estimate looks at; each run begins with one.
MOST_KINDS = 500
MOST_RUNS_BEFORE = 100
_KIND = "host, backend, threads, versions, kind"


@dataclass(frozen=True)
class RateRow:
    """The measurements of one kind of config in a run: a row of `cerebro._rate`."""

    run_id: BigInt
    host: str
    backend: str
    threads: int
    versions: str
    kind: str
    architecture: str
    compiled: str
    batch_size: int
    # JSON: operations by family of layers.
    work: str
    parameters: BigInt
    state_bytes: BigInt
    visits: int
    batch_seconds: float
    compile_seconds: float | None
    write_seconds: float
    rest_seconds: float
    evaluation_seconds: float | None
    read_seconds: float | None


_INSERTION = insertion("cerebro._rate", RateRow)
_COLUMNS = (
    "host, backend, threads, versions, kind, architecture, batch_size, work, parameters,"
    " state_bytes, visits, batch_seconds, compile_seconds, write_seconds, rest_seconds, evaluation_seconds,"
    " read_seconds"
)


def writings(run_id: int, rates: Sequence[RateRow]) -> list[Writing]:
    """Return the writings that store the rates of a run and delete the oldest rates if there are too many."""
    if not rates:
        return []
    drop = (
        "DELETE FROM cerebro._rate WHERE run_id < ($1::json->>'run_id')::bigint"
        f" - {MOST_ROWS} AND (SELECT count(*) FROM cerebro._rate) > {MOST_ROWS}"
    )
    return [(_INSERTION, [as_given(rate) for rate in rates]), (drop, {"run_id": run_id})]


@as_owner
def known(db: Database, before: int | None = None) -> list[Row]:
    """Return the newest rates of each kind of config, the oldest of these first. `before` is the number of a
    run: with it, only rates of earlier runs count."""
    rows = db.query(
        f"SELECT {_COLUMNS} FROM (SELECT DISTINCT ON ({_KIND}) * FROM cerebro._rate"
        f" WHERE $1 IS NULL OR run_id < $1 ORDER BY {_KIND}, run_id DESC) AS newest"
        f" ORDER BY run_id DESC LIMIT {MOST_KINDS}",
        ["bigint"],
        [before],
    )
    return [{**row, "work": json.loads(row["work"])} for row in reversed(rows)]


@as_owner
def code_before(db: Database, run_id: int) -> list[Row]:
    """Return which code the processes of this run had compiled already, in the last few runs before this one:
    for each compiled program the engine, a digest of the code, and the batch size."""
    return db.query(
        "SELECT DISTINCT backend, compiled, batch_size FROM cerebro._rate WHERE run_id IN ("
        " SELECT v.run_id FROM cerebro._visit AS v WHERE v.run_id < $1 AND v.run_id >= $1 - $2"
        " AND v.pid IN (SELECT x.pid FROM cerebro._visit AS x WHERE x.run_id = $1))",
        ["bigint", "integer"],
        [run_id, MOST_RUNS_BEFORE],
    )


@as_owner
def visits(db: Database, run_id: int, most: int | None = None) -> list[Row]:
    """Return the visits of a run, at most `most` of them, in the order in which they began."""
    return db.query(
        "SELECT mst_key, segment, rows, state_bytes, read_seconds, train_seconds, write_seconds, pid,"
        " pg_catalog.date_part('epoch', started_at) AS began"
        " FROM cerebro._visit WHERE run_id = $1 AND segment >= 0 ORDER BY started_at LIMIT $2",
        ["bigint", "integer"],
        [run_id, most],
    )


@as_owner
def evaluations(db: Database, run_id: int) -> list[Row]:
    """Return the least, the greatest and the total time of a run's evaluations, by config, segment and kind
    of rows (training or validation)."""
    return db.query(
        "SELECT mst_key, segment, dataset, min(seconds) AS least,"
        " max(seconds) AS most, sum(seconds) AS seconds"
        " FROM cerebro._evaluation WHERE run_id = $1 GROUP BY mst_key, segment, dataset",
        ["bigint"],
        [run_id],
    )


@as_owner
def cost(db: Database, run_id: int) -> Row:
    """Return the core and GPU seconds that a run has taken, and the bytes that it has moved and stored."""
    return db.query(
        "SELECT core_seconds, gpu_seconds, moved_bytes, stored_bytes FROM cerebro.costs WHERE run_id = $1",
        ["bigint"],
        [run_id],
    )[0]


@as_owner
def standing(db: Database, run_id: int) -> Row:
    """Return a run's status, the seconds that it has taken so far, and the estimated seconds that are
    left."""
    return db.query(
        "SELECT r.status, pg_catalog.date_part('epoch',"
        " COALESCE(r.ended_at, pg_catalog.clock_timestamp()) - r.started_at) AS seconds,"
        # The segments share what is left, and no config is in two visits: Plan.seconds_left. Greenplum cannot
        # execute the view for the run of a row beside it.
        " (SELECT GREATEST(sum(p.seconds_left) / r.segments, max(p.seconds_left))"
        " FROM cerebro.progress AS p WHERE p.run_id = $1) AS seconds_left"
        " FROM cerebro.runs AS r WHERE r.run_id = $1",
        ["bigint"],
        [run_id],
    )[0]
