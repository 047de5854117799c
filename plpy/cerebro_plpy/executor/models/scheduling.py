"""cerebro.schedule: let pg_cron retrain a model regularly, and record the outcome of each retraining."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from cerebro_plpy.database import Database
from cerebro_plpy.errors import (
    INSUFFICIENT_PRIVILEGE,
    NOT_SUPPORTED,
    NULL_NOT_ALLOWED,
    UNDEFINED_OBJECT,
    WRONG_STATE,
    CerebroError,
)
from cerebro_plpy.executor.models import aliases, retraining
from cerebro_plpy.registry import references
from cerebro_plpy.store import session
from cerebro_plpy.store.dialect import call_text
from cerebro_plpy.store.models import model_versions, schedules
from cerebro_plpy.store.models import retraining as rows_made
from cerebro_plpy.store.models.schedules import Schedule
from cerebro_plpy.store.names import literal, resolve_table

# The row that tells the SQL procedure what to do: number, lock and arguments of a retraining.
BegunRun = tuple[int | None, int | None, int | None, str | None, str | None, str | None, str | None]
_NOTHING: BegunRun = (None, None, None, None, None, None, None)
SKIPPED = "skipped"


def schedule(
    db: Database,
    name: str | None,
    when: str | None,
    source: str | None,
    budget: str | None,
    promote: str | None,
    alias: str | None,
    options: str | None,
) -> int:
    """Create a job of pg_cron that retrains a model by a schedule; return the number of the job."""
    if when is None:
        raise CerebroError("schedule is NULL", sqlstate=NULL_NOT_ALLOWED)
    checked = retraining.check(
        db,
        retraining.RetrainCall(
            name=name, source=source, budget=budget, promote=promote, alias=alias, options=options
        ),
    )
    known, moved = checked.name, checked.alias
    # Only the check needed the features of related tables.
    rows_made.drop_temporary(db)
    # Qualified, so that a session with another search_path finds the table as well.
    rows = None if source is None else resolve_table(db, source, "source table").quoted
    asked = {"source": rows, "budget": budget, "promote": checked.when, "options": options}
    if not schedules.has_cron(db):
        raise _no_cron(db, when, known, {**asked, "alias": moved})
    aliases.begin_change(db, known)
    role = session.current_user(db)
    _check_own(schedules.find(db, known, moved), role)
    if not schedules.may_use_cron(db):
        raise CerebroError(
            "permission denied to create jobs of pg_cron",
            hint=f'An administrator may grant it: GRANT USAGE ON SCHEMA cron TO "{role}".',
            sqlstate=INSUFFICIENT_PRIVILEGE,
        )
    job_id = schedules.add_job(db, known, moved, when)
    schedules.keep(db, Schedule(known, moved, when, job_id, role, **asked))
    return job_id


def _check_own(found: Schedule | None, role: str) -> None:
    """Raise an error if the schedule belongs to another role, since pg_cron finds only the caller's jobs."""
    if found is not None and found.role != role:
        raise CerebroError(
            f"the schedule of {found.name}@{found.alias} was made by role {found.role}",
            hint=f'That role may change it: SET ROLE "{found.role}" first, if you are a member of it.',
            sqlstate=INSUFFICIENT_PRIVILEGE,
        )


def _no_cron(db: Database, when: str, name: str, asked: dict[str, str | None]) -> CerebroError:
    given = [f"{key} => {literal(value)}" for key, value in asked.items() if value is not None]
    statement = call_text("retrain", [literal(name), *given])
    command = f"psql -d {shlex.quote(schedules.database(db))} -c {shlex.quote(statement)}"
    return CerebroError(
        "pg_cron is not installed in this database",
        detail=f"A line for another scheduler, such as cron: {when} {command}",
        hint="An administrator installs it: CREATE EXTENSION pg_cron, in the database that"
        " cron.database_name names.",
        sqlstate=NOT_SUPPORTED,
    )


def unschedule(db: Database, name: str | None, alias: str | None) -> None:
    """Delete a model's schedule with its job of pg_cron."""
    known = aliases.begin_change(db, name)
    _remove(db, _existing(db, known, references.check_name(alias, "an alias")))


def unregister(db: Database, name: str | None) -> None:
    """Delete a registered model with all its versions and schedules."""
    known = aliases.begin_change(db, name)
    for alias in schedules.aliases(db, known):
        _remove(db, _existing(db, known, alias))
    model_versions.drop_model(db, known)


def _remove(db: Database, found: Schedule) -> None:
    _check_own(found, session.current_user(db))
    if schedules.has_cron(db):
        schedules.remove_job(db, found)
    schedules.remove(db, found.name, found.alias)


def _existing(db: Database, name: str, alias: str) -> Schedule:
    found = schedules.find(db, name, alias)
    if found is None:
        raise CerebroError(
            f"{name}@{alias} has no schedule",
            hint="The view cerebro.schedules shows those that there are.",
            sqlstate=UNDEFINED_OBJECT,
        )
    return found


def begin_run(db: Database, name: str | None, alias: str | None) -> Iterator[BegunRun]:
    """Record that a scheduled retraining begins, and return its number, lock and arguments.

    Return NULLs while an earlier retraining of the same schedule goes on.
    """
    known = aliases.check_change(db, name)
    asked = _existing(db, known, references.check_name(alias, "an alias"))
    role = session.current_user(db)
    if asked.role != role:
        # The schedule names rows, about which the model would tell the role that made the schedule.
        raise CerebroError(
            f"the schedule of {known}@{asked.alias} was made by role {asked.role},"
            " with whose rights alone it runs",
            hint=f"To train the model with your own rights, call cerebro.retrain('{known}', …).",
            sqlstate=INSUFFICIENT_PRIVILEGE,
        )
    before = schedules.running(db, known, asked.alias)
    begun = schedules.begin(db, asked, role)
    if before is not None:
        schedules.end(db, begun, SKIPPED, reason=f"run {before} of this schedule went on")
        return iter([_NOTHING])
    mark, number = schedules.hold(db, begun)
    return iter([(begun, mark, number, asked.source, asked.budget, asked.promote, asked.options)])


def end_run(
    db: Database,
    schedule_run_id: int,
    outcome: str,
    version: int | None,
    promoted: bool | None,
    reason: str | None,
) -> None:
    """Record the outcome of a scheduled retraining that this session began."""
    if not schedules.end(db, schedule_run_id, outcome, version=version, promoted=promoted, reason=reason):
        raise CerebroError(
            f"this session has begun no run {schedule_run_id} of a schedule", sqlstate=WRONG_STATE
        )
