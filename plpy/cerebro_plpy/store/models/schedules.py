"""SQL on schedules of retraining: it handles pg_cron's jobs with the caller's rights, all else with the
owner's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.store.names import literal
from cerebro_plpy.store.writing import tell_of_model

# The session behind a run of a schedule holds an advisory lock of this class, whose object is the run's
# number. Any role may take it: it proves something only together with the session that the run's row names.
LOCK = 0x63657265
_NUMBERS = 2**31 - 1


@dataclass(frozen=True)
class Schedule:
    """When a model is trained again, and the arguments of the retraining."""

    name: str
    alias: str
    schedule: str
    job_id: int
    role: str
    source: str | None
    budget: str | None
    promote: str
    options: str | None


def has_cron(db: Database) -> bool:
    """Return whether the extension pg_cron is in this database."""
    return bool(db.query("SELECT FROM pg_catalog.pg_extension WHERE extname = 'pg_cron'"))


def database(db: Database) -> str:
    """Return the name of this database."""
    return db.query("SELECT pg_catalog.current_database()::pg_catalog.text AS name")[0]["name"]


def may_use_cron(db: Database) -> bool:
    """Return whether the caller may create jobs of pg_cron."""
    return db.query("SELECT pg_catalog.has_schema_privilege('cron', 'USAGE') AS may")[0]["may"]


def add_job(db: Database, name: str, alias: str, when: str) -> int:
    """Create a pg_cron job for the schedule of a model's alias, with the caller's rights; return its number.

    The caller's earlier job for this alias is replaced. It is removed first if it would run on another server
    or in another database, as a job from a dump does, since cron.schedule would let it run there still.
    """
    db.query(
        "SELECT cron.unschedule(j.jobid) FROM cron.job AS j WHERE j.jobname = $1"
        " AND (j.nodename, j.nodeport, j.database) <> ($2, $3, $4)",
        ["text", "text", "integer", "text"],
        [_job_name(name, alias), *_place_of_jobs(db)],
    )
    command = f"CALL cerebro.run_schedule({literal(name)}, {literal(alias)})"
    rows = db.query(
        "SELECT cron.schedule($1, $2, $3) AS job_id",
        ["text", "text", "text"],
        [_job_name(name, alias), when, command],
    )
    return rows[0]["job_id"]


@as_owner
def _place_of_jobs(db: Database) -> tuple[str, int, str]:
    """Return the host, the port and the database in which new jobs run."""
    rows = db.query(
        "SELECT pg_catalog.current_setting('cron.host') AS host,"
        " pg_catalog.current_setting('port')::integer AS port,"
        " pg_catalog.current_database()::pg_catalog.text AS name"
    )
    return rows[0]["host"], rows[0]["port"], rows[0]["name"]


def remove_job(db: Database, made: Schedule) -> None:
    """Remove the pg_cron job of one of the caller's schedules, if it is still there.

    The job's name is compared too: in a database restored without its jobs, another job may have the number.
    """
    db.query(
        "SELECT cron.unschedule(j.jobid) FROM cron.job AS j WHERE j.jobid = $1 AND j.jobname = $2",
        ["bigint", "text"],
        [made.job_id, _job_name(made.name, made.alias)],
    )


def _job_name(name: str, alias: str) -> str:
    return f"cerebro {name}@{alias}"


@as_owner
def find(db: Database, name: str, alias: str) -> Schedule | None:
    """Return the schedule of a model's alias, or None, and lock it until this transaction ends."""
    rows = db.query(
        "SELECT name, alias, schedule, job_id, role, source, budget::text AS budget, promote,"
        " options::text AS options FROM cerebro._schedule WHERE name = $1 AND alias = $2 FOR UPDATE",
        ["text", "text"],
        [name, alias],
    )
    return Schedule(**rows[0]) if rows else None


@as_owner
def aliases(db: Database, name: str) -> list[str]:
    """Return the aliases of a model that have a schedule."""
    rows = db.query("SELECT alias FROM cerebro._schedule WHERE name = $1 ORDER BY alias", ["text"], [name])
    return [row["alias"] for row in rows]


@as_owner
def keep(db: Database, made: Schedule) -> None:
    """Store a schedule in place of any other for the same alias of the model."""
    remove(db, made.name, made.alias)
    db.query(
        "INSERT INTO cerebro._schedule"
        " (name, alias, schedule, job_id, role, source, budget, promote, options)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7::text::interval, $8, $9::text::jsonb)",
        ["text", "text", "text", "bigint", "text", "text", "text", "text", "text"],
        [
            made.name, made.alias, made.schedule, made.job_id, made.role, made.source, made.budget,
            made.promote, made.options,
        ],
    )  # fmt: skip


@as_owner
def remove(db: Database, name: str, alias: str) -> None:
    """Delete the schedule of a model's alias; the rows of its runs stay."""
    db.query("DELETE FROM cerebro._schedule WHERE name = $1 AND alias = $2", ["text", "text"], [name, alias])


def running(db: Database, name: str, alias: str) -> int | None:
    """Return the number of a run of this schedule that is under way, or None."""
    rows = db.query(
        "SELECT schedule_run_id FROM cerebro.schedule_runs"
        " WHERE name = $1 AND alias = $2 AND outcome = 'running' LIMIT 1",
        ["text", "text"],
        [name, alias],
    )
    return rows[0]["schedule_run_id"] if rows else None


@as_owner
def begin(db: Database, asked: Schedule, role: str) -> int:
    """Store that a run of a schedule begins in this session, and return the run's number."""
    rows = db.query(
        "INSERT INTO cerebro._schedule_run (name, alias, role, pid)"
        " VALUES ($1, $2, $3, pg_catalog.pg_backend_pid()) RETURNING schedule_run_id",
        ["text", "text", "text"],
        [asked.name, asked.alias, role],
    )
    return rows[0]["schedule_run_id"]


def hold(db: Database, schedule_run_id: int) -> tuple[int, int]:
    """Take the advisory lock that shows that a run of a schedule is under way, and return the lock's two
    numbers."""
    number = schedule_run_id & _NUMBERS
    db.query("SELECT pg_catalog.pg_try_advisory_lock($1, $2)", ["integer", "integer"], [LOCK, number])
    return LOCK, number


@as_owner
def end(db: Database, schedule_run_id: int, outcome: str, **found: Any) -> bool:
    """Store the outcome of a schedule's run; return False unless this session began it and it has no outcome
    yet."""
    rows = db.query(
        "UPDATE cerebro._schedule_run SET outcome = $2, version = $3, promoted = $4, reason = $5,"
        " ended_at = pg_catalog.clock_timestamp() WHERE schedule_run_id = $1 AND outcome IS NULL"
        " AND pid = pg_catalog.pg_backend_pid() RETURNING name",
        ["bigint", "text", "integer", "boolean", "text"],
        [schedule_run_id, outcome, found.get("version"), found.get("promoted"), found.get("reason")],
    )
    if rows:
        tell_of_model(db, f"schedule {outcome}", schedule_run_id=schedule_run_id)
    return bool(rows)
