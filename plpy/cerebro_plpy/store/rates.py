"""SQL on what runs have measured of their kinds of configs, and on the visits that it is made of."""

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
    """What one run has measured of one kind of config, as `cerebro._rate` has it."""

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
    """What keeps the rates of a run, and removes those that are too old."""
    if not rates:
        return []
    drop = (
        "DELETE FROM cerebro._rate WHERE run_id < ($1::json->>'run_id')::bigint"
        f" - {MOST_ROWS} AND (SELECT count(*) FROM cerebro._rate) > {MOST_ROWS}"
    )
    return [(_INSERTION, [as_given(rate) for rate in rates]), (drop, {"run_id": run_id})]


@as_owner
def known(db: Database, before: int | None = None) -> list[Row]:
    """The newest rates of each kind, the newest of all last; only of runs before one, where one is given."""
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
    """What the sessions of a run had made code for when it began, for the runs just before it."""
    return db.query(
        "SELECT DISTINCT backend, compiled, batch_size FROM cerebro._rate WHERE run_id IN ("
        " SELECT v.run_id FROM cerebro._visit AS v WHERE v.run_id < $1 AND v.run_id >= $1 - $2"
        " AND v.pid IN (SELECT x.pid FROM cerebro._visit AS x WHERE x.run_id = $1))",
        ["bigint", "integer"],
        [run_id, MOST_RUNS_BEFORE],
    )


@as_owner
def visits(db: Database, run_id: int, most: int | None = None) -> list[Row]:
    """The visits of a run in the order in which they began, with when that was; only so many, where said."""
    return db.query(
        "SELECT mst_key, segment, rows, state_bytes, read_seconds, train_seconds, write_seconds, pid,"
        " pg_catalog.date_part('epoch', started_at) AS began"
        " FROM cerebro._visit WHERE run_id = $1 AND segment >= 0 ORDER BY started_at LIMIT $2",
        ["bigint", "integer"],
        [run_id, most],
    )


@as_owner
def evaluations(db: Database, run_id: int) -> list[Row]:
    """What measuring took, by config, segment and kind of rows."""
    return db.query(
        "SELECT mst_key, segment, dataset, min(seconds) AS least,"
        " max(seconds) AS most, sum(seconds) AS seconds"
        " FROM cerebro._evaluation WHERE run_id = $1 GROUP BY mst_key, segment, dataset",
        ["bigint"],
        [run_id],
    )


@as_owner
def standing(db: Database, run_id: int) -> Row:
    """How a run stands, how long it has taken so far, and how long it will take yet."""
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
