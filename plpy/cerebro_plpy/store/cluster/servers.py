"""SQL that a segment's process on Greenplum runs over its own connections, and COPY's binary format.

States are sent by COPY, which takes their bytes unchanged. Everything else is written as JSON.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.store import session
from cerebro_plpy.store.cluster import places
from cerebro_plpy.store.cluster.messages import Part
from cerebro_plpy.store.dialect import is_greenplum
from cerebro_plpy.store.runs import measurements, runs, state_rows
from cerebro_plpy.store.writing import write

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_STATE_ROW = struct.Struct(">hiiiqiiiiiii")
_COUNT, _LENGTH = struct.Struct(">h"), struct.Struct(">i")


@dataclass(frozen=True)
class Login:
    """The settings with which a process connects to a segment's server; the host is a folder of sockets, or
    an address."""

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
    """Return the login for this process's own server alone: on Greenplum, in utility mode, without the rest
    of the cluster."""
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


def other_server(own: Login, address: str, port: int, same_host: bool) -> Login:
    """Return the login for another segment's server: by its socket if our own server's folder has it, or else
    by its address."""
    by_socket = same_host and os.path.exists(f"{own.host}/.s.PGSQL.{port}")
    return replace(own, host=own.host if by_socket else address, port=str(port))


def where(db: Database, key: int, keys: Sequence[int]) -> list[tuple[str, int, bool] | None]:
    """Return, for each distribution key in `keys`, the server that has the rows of this key: its address, its
    port, and whether it is on the host of the process that asks. The process that asks is on the segment with
    the rows of `key`; None stands for its own server."""
    if not is_greenplum(db):
        return [None] * len(keys)
    own, *others = places.servers(db, [key, *keys])
    return [
        None if other == own else (other.address, other.port, _is_same_host(own, other)) for other in others
    ]


def _is_same_host(own: places.Address, other: places.Address) -> bool:
    """Return whether two servers are on one host.

    Hosts in containers may all have the same name. Then servers with the same port differ only in their
    addresses.
    """
    return other.host == own.host and (other.named_alone or other.address == own.address)


# Statements that PREPARE below has planned, once for each connection.
VISITS, EVALUATIONS = "EXECUTE visits (%s)", "EXECUTE evaluations (%s)"
# A visit is a transaction, which is sent to the server in two steps.
BEGIN_WITH_STATE = (
    "BEGIN; COPY cerebro._state (place, run_id, mst_key, step, part, data) FROM STDIN (FORMAT binary)"
)
END_WITH_VISIT = f"{VISITS}; COMMIT"
UNDO = "ROLLBACK"
_PREPARED = {"visits": runs.VISIT_ROWS, "evaluations": measurements.EVALUATION_ROWS}
PREPARE = "; ".join(f"PREPARE {name} (json) AS {statement}" for name, statement in _PREPARED.items())


def write_visit(db: Database, visit: Mapping[str, Any], parts: Sequence[Part]) -> None:
    """Write a visit's state and log row in the current transaction."""
    state_rows.write(
        db,
        run_id=visit["run_id"],
        mst_key=visit["mst_key"],
        step=visit["step"],
        parts=parts,
        place=visit["place"],
    )
    write(db, [(runs.VISIT_ROWS, [visit])])


def write_evaluations(db: Database, evaluations: Sequence[Mapping[str, Any]]) -> None:
    write(db, [(measurements.EVALUATION_ROWS, evaluations)])


def read_state(run_id: int, mst_key: int, step: int) -> str:
    return _copy(
        f"SELECT data FROM cerebro._state WHERE run_id = {int(run_id)} AND mst_key = {int(mst_key)}"
        f" AND step = {int(step)} ORDER BY part"
    )


def read_states(run_id: int, keys: Sequence[int], step: int) -> str:
    """Return the COPY statement that reads several configs' states after the same step: for each part of a
    state, the config's key and the data."""
    return _copy(
        f"SELECT mst_key, data FROM cerebro._state WHERE run_id = {int(run_id)} AND step = {int(step)}"
        f" AND mst_key IN ({', '.join(str(int(key)) for key in keys)}) ORDER BY mst_key, part"
    )


def read_evaluations(run_id: int, mst_key: int, epoch: int) -> str:
    """Return the COPY statement that reads a config's evaluations after an epoch from the server that runs
    the statement: the dataset, the segment and the metric variables of each."""
    return _copy(
        "SELECT dataset, segment, data FROM cerebro._evaluation"
        f" WHERE run_id = {int(run_id)} AND mst_key = {int(mst_key)} AND epoch = {int(epoch)}"
    )


def _copy(query: str) -> str:
    return f"COPY ({query}) TO STDOUT (FORMAT binary)"


def copied_states(visits: Sequence[Mapping[str, Any]], states: Sequence[Sequence[bytes]]) -> Iterator[Part]:
    """Yield the states of visits as rows in COPY's binary format, one row for each part of a state."""
    yield _HEADER
    for visit, parts in zip(visits, states, strict=True):
        place, run_id, mst_key, step = (visit[name] for name in ("place", "run_id", "mst_key", "step"))
        for number, part in enumerate(parts):
            yield _STATE_ROW.pack(6, 4, place, 8, run_id, 4, mst_key, 4, step, 4, number, len(part))
            yield part
    yield _TRAILER


def rows_of(copied: Part) -> Iterator[list[memoryview]]:
    """Yield the fields of each row in COPY's binary output. Each field is a view of the output's memory; none
    is NULL."""
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
