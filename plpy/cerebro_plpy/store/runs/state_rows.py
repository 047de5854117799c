"""SQL on the rows of states; all of it runs with the rights of the extension's owner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.store.writing import Writing, cast_value

# In queries of their own: a plan that is kept for other values would read the JSON anew for each state.
_DROP_STATES = (
    f"DELETE FROM cerebro._state WHERE run_id = (SELECT {cast_value('run_id', 'bigint')})"
    # Paths are used, because the operator -> would copy what is said of all configs for each state.
    " AND abs(step) <= ((SELECT $1::jsonb) #>> ARRAY['newest', mst_key::text])::integer"
    " AND NOT ((SELECT $1::jsonb) #> ARRAY['keep', mst_key::text]) @> step::text::jsonb"
)
# Parts have 4 MB at most.
_PARTS_AT_ONCE = 16


@as_owner
def write(
    db: Database, run_id: int, mst_key: int, step: int, parts: Iterable[bytes | memoryview], place: int = 0
) -> int:
    """Store the parts of a state, and return its size in bytes. `place` is the distribution key by which a
    cluster chooses the node that stores the state."""
    size = 0
    for number, part in enumerate(parts):
        db.query(
            "INSERT INTO cerebro._state (place, run_id, mst_key, step, part, data)"
            " VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
            ["integer", "bigint", "integer", "integer", "integer", "bytea"],
            [place, run_id, mst_key, step, number, bytes(part)],
        )
        size += len(part)
    return size


@as_owner
def write_frozen(db: Database, run_id: int, digest: str, parts: Iterable[bytes]) -> None:
    """Store frozen weights, unless they are stored already; the run's states name them by their digest."""
    there = db.query(
        "SELECT FROM cerebro._frozen WHERE run_id = $1 AND digest = $2 AND part = 0",
        ["bigint", "text"],
        [run_id, digest],
    )
    if there:
        return
    # Another session may be writing it: what it has written counts once it has committed, which for large
    # weights takes longer than sessions wait for a lock otherwise.
    waited = db.query("SELECT pg_catalog.current_setting('lock_timeout') AS waited")[0]["waited"]
    _wait_for_locks(db, "0")
    for number, part in enumerate(parts):
        db.query(
            "INSERT INTO cerebro._frozen (run_id, digest, part, data) VALUES ($1, $2, $3, $4)"
            " ON CONFLICT DO NOTHING",
            ["bigint", "text", "integer", "bytea"],
            [run_id, digest, number, part],
        )
    _wait_for_locks(db, waited)


def _wait_for_locks(db: Database, setting: str) -> None:
    db.query("SELECT pg_catalog.set_config('lock_timeout', $1, true)", ["text"], [setting])


def frozen(db: Database, run_id: int, digest: str) -> Iterator[bytes]:
    """Yield the parts of frozen weights in order, one at a time; yield nothing if they are not stored."""
    batches = db.scan(
        "SELECT data FROM cerebro._frozen WHERE run_id = $1 AND digest = $2 ORDER BY part",
        ["bigint", "text"],
        [run_id, digest],
        batch=1,
    )
    return (row["data"] for batch in batches for row in batch)


# The most bytes of rows that one statement writes.
_BYTES_AT_ONCE = 16 * 2**20


@as_owner
def write_several(
    db: Database, run_id: int, step: int, states: Iterable[tuple[int, Iterable[bytes]]], place: int = 0
) -> list[int]:
    """Store the states of several configs after the same step; return the size of each in bytes. `place` is
    the distribution key by which a cluster chooses the node that stores them."""
    sizes: list[int] = []
    waiting: list[tuple[int, int, bytes]] = []
    filled = 0
    for mst_key, parts in states:
        sizes.append(0)
        for number, part in enumerate(parts):
            waiting.append((mst_key, number, bytes(part)))
            sizes[-1] += len(part)
            filled += len(part)
        if filled >= _BYTES_AT_ONCE:
            _insert(db, place, run_id, step, waiting)
            waiting, filled = [], 0
    _insert(db, place, run_id, step, waiting)
    return sizes


def _insert(db: Database, place: int, run_id: int, step: int, rows: Sequence[tuple[int, int, bytes]]) -> None:
    if rows:
        db.query(
            "INSERT INTO cerebro._state (place, run_id, step, mst_key, part, data) SELECT $1, $2, $3, r.*"
            " FROM ROWS FROM (unnest($4), unnest($5), unnest($6)) AS r ON CONFLICT DO NOTHING",
            ["integer", "bigint", "integer", "integer[]", "integer[]", "bytea[]"],
            [place, run_id, step, *(list(column) for column in zip(*rows, strict=True))],
        )


def read(db: Database, run_id: int, mst_key: int, step: int, place: int | None = None) -> Iterator[bytes]:
    """Yield the parts of a state in order, one at a time; yield nothing if the step is not stored.

    With `place`, a distribution key, only the node of a cluster that has this key's rows is asked.
    """
    batches = db.scan(
        "SELECT data FROM cerebro._state WHERE run_id = $1 AND mst_key = $2 AND step = $3"
        f"{'' if place is None else ' AND place = $4'} ORDER BY part",
        ["bigint", "integer", "integer", *([] if place is None else ["integer"])],
        [run_id, mst_key, step, *([] if place is None else [place])],
        batch=1,
    )
    return (row["data"] for batch in batches for row in batch)


def read_several(
    db: Database, run_id: int, steps: Mapping[int, int]
) -> Iterator[tuple[int, Iterator[bytes]]]:
    """Yield, for each config in `steps`, its key and the parts of its state after the given step; one
    statement reads all of them."""
    batches = db.scan(
        "SELECT s.mst_key, s.data FROM cerebro._state AS s"
        " JOIN ROWS FROM (pg_catalog.unnest($2), pg_catalog.unnest($3)) AS k (mst_key, step)"
        " ON k.mst_key = s.mst_key AND k.step = s.step WHERE s.run_id = $1 ORDER BY s.mst_key, s.part",
        ["bigint", "integer[]", "integer[]"],
        [run_id, list(steps), list(steps.values())],
        batch=_PARTS_AT_ONCE,
    )
    rows = (row for batch in batches for row in batch)
    for mst_key, parts in groupby(rows, lambda row: row["mst_key"]):
        yield mst_key, (part["data"] for part in parts)


@as_owner
def parts(db: Database, run_id: int, mst_key: int, step: int) -> list[bytes]:
    """Return all parts of a state as a list; for a small state this takes fewer statements than `read`."""
    rows = db.query(
        "SELECT data FROM cerebro._state WHERE run_id = $1 AND mst_key = $2 AND step = $3 ORDER BY part",
        ["bigint", "integer", "integer"],
        [run_id, mst_key, step],
    )
    return [row["data"] for row in rows]


@as_owner
def parts_of_several(db: Database, run_id: int, step: int, keys: Sequence[int]) -> dict[int, list[bytes]]:
    """Return the parts of several configs' states after the same step, by the config's key."""
    rows = read_several(db, run_id, dict.fromkeys(keys, step))
    return {mst_key: list(parts) for mst_key, parts in rows}


def dropping(run_id: int, keep: Mapping[int, Sequence[int]]) -> Writing:
    """Return the writing that deletes states of the configs in `keep`, except at the steps that it lists.

    The run is under way: a state newer than all kept states of its config stays too, since it may have been
    stored after `keep` was decided. A step below zero, whose state waits to be averaged, is compared without
    its sign.
    """
    newest = {mst_key: max(steps) for mst_key, steps in keep.items()}
    # No join: nothing moves between the segments of a cluster.
    return _DROP_STATES, {"run_id": run_id, "keep": keep, "newest": newest}


@as_owner
def keep_only(db: Database, run_id: int, keep: Sequence[tuple[int, int]]) -> None:
    """Delete the states of a run that is over, except those that its results hold, given by config and
    step."""
    db.query(
        # A table of so many configs, whatever is known of that of the states.
        "DELETE FROM cerebro._state AS s WHERE s.run_id = $1 AND (s.mst_key, s.step) NOT IN"
        " (SELECT k.mst_key, k.step FROM"
        " ROWS FROM (pg_catalog.unnest($2), pg_catalog.unnest($3)) AS k (mst_key, step))",
        ["bigint", "integer[]", "integer[]"],
        [run_id, [key for key, _ in keep], [step for _, step in keep]],
    )


@as_owner
def newest(db: Database, run_id: int, role: str) -> list[Mapping[str, Any]]:
    """Return the newest step of each config of a run, and the epochs that it was trained for; empty if the
    role may not continue from this run."""
    return db.query(
        "SELECT s.mst_key, max(s.step) AS step, max(c.epochs_before + s.step / r.segments) AS epochs"
        " FROM cerebro._run AS r JOIN cerebro._config AS c USING (run_id)"
        " JOIN cerebro._state AS s USING (run_id, mst_key)"
        " WHERE r.run_id = $1 AND s.step > 0 AND pg_has_role($2::name, r.owner, 'USAGE') GROUP BY s.mst_key",
        ["bigint", "text"],
        [run_id, role],
    )
