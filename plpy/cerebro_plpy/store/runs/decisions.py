"""SQL on the requests to runs under way, and on the decisions in them; as the extension's owner."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.store.dialect import is_greenplum
from cerebro_plpy.store.runs.runs import ConfigRow, inserts, role_oid
from cerebro_plpy.store.writing import BigInt, Role, Writing, as_given, insertion, selection

MEASURED, START, CLONE, GO_ON, STOP = "measured", "start", "clone", "go_on", "stop"
RESUME, DELETE, SET_EPOCHS, PAUSE, REFUSED = "resume", "delete", "set_epochs", "pause", "refused"


@dataclass(frozen=True)
class Entry:
    """A row of a run's log: a result that its search procedure was told, or a decision and who took it.

    `step` is the config's last visit before it takes effect, `epochs` how far the config is to train. A
    decision without a role is the procedure's or a budget's; `cause` is the number of the measurement that
    led to it.
    """

    number: int
    decision: str
    mst_key: int | None = None
    step: int | None = None
    epochs: int | None = None
    value: float | None = None
    reason: str | None = None
    role: Role | None = None
    request_id: BigInt | None = None
    cause: int | None = None


@dataclass(frozen=True)
class Asked:
    """A user's request to a run; `mst_key` is the key of the new config, if it brings one."""

    request_id: BigInt
    role: Role
    decision: str
    mst_key: int | None = None
    epochs: int | None = None
    source_key: int | None = None
    with_state: bool | None = None
    model_id: int | None = None
    compile_params: str | None = None
    fit_params: str | None = None
    # For a new config on a group: the config that it is, and the group.
    config_key: int | None = None
    group_id: int | None = None


_ASKED, _ENTRY = selection(Asked, "q"), selection(Entry, "d")


def writings(run_id: int, entries: Sequence[Entry], configs: Sequence[ConfigRow]) -> list[Writing]:
    """Return the writings of decisions and of the configs that come in; repeated, they change nothing."""
    noted = [as_given(entry) for entry in entries]
    statement = insertion("cerebro._decision", Entry, {"run_id": str(int(run_id))})
    return [*inserts("cerebro._config", run_id, [asdict(c) for c in configs]), (statement, noted)]


@as_owner
def entries(db: Database, run_id: int) -> list[Entry]:
    """Return a run's log in its order."""
    rows = db.query(
        f"SELECT {_ENTRY} FROM cerebro._decision AS d WHERE d.run_id = $1 ORDER BY d.number",
        ["bigint"],
        [run_id],
    )
    return [Entry(**row) for row in rows]


@as_owner
def ended_searches(db: Database, role: str) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the descriptions of the role's searches that have ended and describe their tables."""
    rows = db.query(
        "SELECT r.run_id, r.search FROM cerebro._run AS r"
        " WHERE r.owner = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = $1)"
        " AND r.search::pg_catalog.json -> 'table' IS NOT NULL"
        " AND EXISTS (SELECT FROM cerebro._run_event AS e WHERE e.run_id = r.run_id AND e.event = 'finished')"
        " ORDER BY r.run_id",
        ["name"],
        [role],
    )
    return [(row["run_id"], json.loads(row["search"])) for row in rows]


@as_owner
def pending(db: Database, run_id: int) -> list[Asked]:
    """Return the requests to a run that are not answered yet, in order."""
    rows = db.query(
        f"SELECT {_ASKED} FROM cerebro._request AS q WHERE q.run_id = $1 AND NOT EXISTS"
        " (SELECT FROM cerebro._decision AS d WHERE d.request_id = q.request_id) ORDER BY q.request_id",
        ["bigint"],
        [run_id],
    )
    return [Asked(**row) for row in rows]


@as_owner
def ask(db: Database, run_id: int, role: str, decision: str, wanted: Mapping[str, object]) -> None:
    """Write down a user's request to a run; it counts once this transaction is committed."""
    row = {"role": role_oid(db, role), "decision": decision, **wanted}
    names = ", ".join(["run_id", *row])
    db.query(
        f"INSERT INTO cerebro._request ({names}) SELECT {names}"
        " FROM pg_catalog.jsonb_populate_record(NULL::cerebro._request, $1)",
        ["jsonb"],
        [json.dumps({"run_id": run_id, **row})],
    )


@as_owner
def lock(db: Database, run_id: int) -> None:
    """Let sessions that ask something of a run do so one after another.

    This does not lock the run's own row: whoever locks that drives the run.
    """
    if is_greenplum(db):
        # Rows cannot be locked one by one there. Nobody but those who ask writes to this table.
        db.query("LOCK TABLE cerebro._request IN SHARE ROW EXCLUSIVE MODE")
        return
    db.query(
        "SELECT FROM cerebro._run_event WHERE run_id = $1 ORDER BY at LIMIT 1 FOR UPDATE",
        ["bigint"],
        [run_id],
    )


def status(db: Database, run_id: int) -> str | None:
    """Return the status of a run, with the rights of whoever asks."""
    # Else a transaction sees for its whole length the sessions that there were when it looked first.
    db.query("SELECT pg_catalog.pg_stat_clear_snapshot()")
    rows = db.query("SELECT status FROM cerebro.runs WHERE run_id = $1", ["bigint"], [run_id])
    return rows[0]["status"] if rows else None


def detail(db: Database, run_id: int | None) -> str | None:
    """Return what there is to say of how a run has ended."""
    rows = db.query("SELECT detail FROM cerebro.runs WHERE run_id = $1", ["bigint"], [run_id])
    return rows[0]["detail"] if rows else None


def in_background(db: Database, run_id: int) -> bool:
    """Return whether a run has a session of its own, which then has not committed the result tables."""
    rows = db.query(
        "SELECT FROM pg_stat_activity AS a JOIN pg_roles AS r ON r.oid = a.usesysid WHERE r.rolsuper"
        " AND a.datname = current_database() AND a.application_name = 'cerebro drive run=' || $1",
        ["text"],
        [str(run_id)],
    )
    return bool(rows)
