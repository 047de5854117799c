"""SQL of what a segment's process on Greenplum reads and writes itself, and COPY's binary form.

States go by COPY, which needs no other form of their bytes. What else is written is given as JSON.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.store import session, state_rows
from cerebro_plpy.store.cluster import places
from cerebro_plpy.store.cluster.messages import Part
from cerebro_plpy.store.dialect import is_greenplum
from cerebro_plpy.store.names import quote

_PLACED = {"place": "integer", "run_id": "bigint", "mst_key": "integer"}
_VISIT = _PLACED | {
    "step": "integer", "epoch": "integer", "segment": "integer", "rows": "bigint", "loss": "float8",
    "logs": "text", "state_bytes": "bigint", "read_seconds": "float8", "train_seconds": "float8",
    "write_seconds": "float8", "pid": "integer", "started_at": "float8",
}  # fmt: skip
_EVALUATION = _PLACED | {
    "epoch": "integer", "dataset": "text", "segment": "integer", "seconds": "float8", "data": "text",
}  # fmt: skip
# How a column is made of what is given, where it is not the same.
_MADE = {
    "logs": "g.logs::jsonb",
    "started_at": "pg_catalog.to_timestamp(g.started_at)",
    "data": "pg_catalog.decode(g.data, 'base64')",
    "ended_at": "pg_catalog.clock_timestamp()",
}

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_STATE_ROW = struct.Struct(">hiiiqiiiiiii")
_COUNT, _LENGTH = struct.Struct(">h"), struct.Struct(">i")


@dataclass(frozen=True)
class Login:
    """A segment's server, and how one logs in there: the host is a folder of sockets, or an address."""

    host: str
    port: str
    dbname: str
    user: str
    options: str
    application_name: str = "cerebro link"
    connect_timeout: int = 10
    # So that a host which is gone is noticed within a minute.
    keepalives_idle: int = 30
    keepalives_interval: int = 10
    keepalives_count: int = 3
    tcp_user_timeout: int = 60000


def own_server(db: Database) -> Login:
    """The server of this process, in which a cluster's other processes have no part."""
    row = db.query(
        "SELECT pg_catalog.current_setting('unix_socket_directories') AS sockets,"
        " pg_catalog.current_setting('port') AS port, pg_catalog.current_database()::text AS dbname,"
        " session_user::text AS role"
    )[0]
    settings = {**session.SETTINGS, **session.VISIT_SETTINGS, "lock_timeout": "1s"}
    if is_greenplum(db):
        settings["gp_role"] = "utility"
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return Login(session.first_socket(row["sockets"]), row["port"], row["dbname"], row["role"], options)


def other_server(own: Login, address: str | None, port: int) -> Login:
    """Another segment's: on the same host where there is no address, and its sockets in the same folder."""
    return replace(own, host=address or own.host, port=str(port))


def where(db: Database, key: int, keys: Sequence[int]) -> list[tuple[str | None, int] | None]:
    """How the process beside a key finds the servers of others: None its own; no address: on its host."""
    if not is_greenplum(db):
        return [None] * len(keys)
    own, *others = places.servers(db, [key, *keys])
    return [
        None if other == own else (None if other.host == own.host else other.address, other.port)
        for other in others
    ]


def _insert(table: str, columns: Mapping[str, str], more: Sequence[str] = ()) -> str:
    names = [*columns, *more]
    given = ", ".join(f"{quote(name)} {kind}" for name, kind in columns.items())
    return (
        f"INSERT INTO cerebro.{table} ({', '.join(map(quote, names))})"
        f" SELECT {', '.join(_MADE.get(name, quote(name)) for name in names)}"
        f" FROM pg_catalog.json_to_recordset($1) AS g ({given}) ON CONFLICT DO NOTHING"
    )


# Planned once for each connection.
VISITS, EVALUATIONS = "EXECUTE visits (%s)", "EXECUTE evaluations (%s)"
# A visit is a transaction, told to the server in two turns.
BEGIN_WITH_STATE = (
    "BEGIN; COPY cerebro._state (place, run_id, mst_key, step, part, data) FROM STDIN (FORMAT binary)"
)
END_WITH_VISIT = f"{VISITS}; COMMIT"
UNDO = "ROLLBACK"
_VISIT_ROWS, _EVALUATION_ROWS = _insert("_visit", _VISIT, ["ended_at"]), _insert("_evaluation", _EVALUATION)
PREPARE = f"PREPARE visits (json) AS {_VISIT_ROWS}; PREPARE evaluations (json) AS {_EVALUATION_ROWS}"


@as_owner
def write_visit(db: Database, visit: Mapping[str, Any], parts: Sequence[Part]) -> None:
    """The same in a transaction that is under way elsewhere."""
    state_rows.write(
        db,
        run_id=visit["run_id"],
        mst_key=visit["mst_key"],
        step=visit["step"],
        parts=parts,
        place=visit["place"],
    )
    db.query(_VISIT_ROWS, ["json"], [json.dumps([visit])])


@as_owner
def write_evaluations(db: Database, evaluations: Sequence[Mapping[str, Any]]) -> None:
    db.query(_EVALUATION_ROWS, ["json"], [json.dumps(evaluations)])


def read_state(run_id: int, mst_key: int, step: int) -> str:
    return _copy(
        f"SELECT data FROM cerebro._state WHERE run_id = {int(run_id)} AND mst_key = {int(mst_key)}"
        f" AND step = {int(step)} ORDER BY part"
    )


def read_evaluations(run_id: int, mst_key: int, epoch: int) -> str:
    """What was measured there: dataset, segment and variables of each."""
    return _copy(
        "SELECT dataset, segment, data FROM cerebro._evaluation"
        f" WHERE run_id = {int(run_id)} AND mst_key = {int(mst_key)} AND epoch = {int(epoch)}"
    )


def _copy(query: str) -> str:
    return f"COPY ({query}) TO STDOUT (FORMAT binary)"


def copied_state(visit: Mapping[str, Any], parts: Sequence[bytes]) -> Iterator[Part]:
    """The rows of a state in COPY's binary form, part by part."""
    yield _HEADER
    place, run_id, mst_key, step = (visit[name] for name in ("place", "run_id", "mst_key", "step"))
    for number, part in enumerate(parts):
        yield _STATE_ROW.pack(6, 4, place, 8, run_id, 4, mst_key, 4, step, 4, number, len(part))
        yield part
    yield _TRAILER


def rows_of(copied: Part) -> Iterator[list[memoryview]]:
    """The fields of each row that COPY gave, of which none is NULL; they share its memory."""
    view = memoryview(copied)
    start = len(_HEADER)
    while (count := _COUNT.unpack_from(view, start)[0]) >= 0:
        start += _COUNT.size
        row = []
        for _ in range(count):
            length = _LENGTH.unpack_from(view, start)[0]
            start += _LENGTH.size
            row.append(view[start : start + length])
            start += length
        yield row
