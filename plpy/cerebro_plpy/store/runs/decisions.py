"""SQL on the requests to runs under way and on the decisions in them, with the rights of the extension's
owner."""

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
    """A row of a run's log: a measurement that its search procedure was given, or a decision and its author.

    `step` is the config's last step before the decision takes effect, and `epochs` the number of epochs that
    the config is to train. A decision without a role was made by the search procedure or to keep a budget;
    `cause` is the number of the measurement that led to it.
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
    """A user's request to a run; `mst_key` is the key of the config that it adds, if it adds one."""

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
    """Return the writings that store decisions and the configs that these add; running the writings again
    changes nothing."""
    noted = [as_given(entry) for entry in entries]
    statement = insertion("cerebro._decision", Entry, {"run_id": str(int(run_id))})
    return [*inserts("cerebro._config", run_id, [asdict(c) for c in configs]), (statement, noted)]


@as_owner
def entries(db: Database, run_id: int) -> list[Entry]:
    """Return all rows of a run's log in order."""
    rows = db.query(
        f"SELECT {_ENTRY} FROM cerebro._decision AS d WHERE d.run_id = $1 ORDER BY d.number",
        ["bigint"],
        [run_id],
    )
    return [Entry(**row) for row in rows]


@as_owner
def ended_searches(db: Database, role: str) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the `run_id` and the description of each finished search of the role. A search is left out if
    its description says nothing about the table that it was made on."""
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
    """Return the requests to a run that have not been answered yet, the oldest first."""
    rows = db.query(
        f"SELECT {_ASKED} FROM cerebro._request AS q WHERE q.run_id = $1 AND NOT EXISTS"
        " (SELECT FROM cerebro._decision AS d WHERE d.request_id = q.request_id) ORDER BY q.request_id",
        ["bigint"],
        [run_id],
    )
    return [Asked(**row) for row in rows]


@as_owner
def ask(db: Database, run_id: int, role: str, decision: str, wanted: Mapping[str, object]) -> None:
    """Store a user's request to a run; the run sees it once this transaction is committed."""
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
    """Let only one session at a time make requests to a run, until its transaction ends.

    This does not lock the run's own row, since a session locks that row to become the run's control session.
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
    """Return the status of a run, read with the caller's rights; None if the caller may see no such run."""
    # Else a transaction sees for its whole length the sessions that there were when it looked first.
    db.query("SELECT pg_catalog.pg_stat_clear_snapshot()")
    rows = db.query("SELECT status FROM cerebro.runs WHERE run_id = $1", ["bigint"], [run_id])
    return rows[0]["status"] if rows else None


def detail(db: Database, run_id: int | None) -> str | None:
    """Return what is stored about how a run ended, such as the reason of a failure; None if there is
    nothing."""
    rows = db.query("SELECT detail FROM cerebro.runs WHERE run_id = $1", ["bigint"], [run_id])
    return rows[0]["detail"] if rows else None


def in_background(db: Database, run_id: int) -> bool:
    """Return whether a run still has a driving session in the background. While it has one, its result tables
    may not be committed yet, even if the run has finished."""
    rows = db.query(
        "SELECT FROM pg_stat_activity AS a JOIN pg_roles AS r ON r.oid = a.usesysid WHERE r.rolsuper"
        " AND a.datname = current_database() AND a.application_name = 'cerebro drive run=' || $1",
        ["text"],
        [str(run_id)],
    )
    return bool(rows)
