"""Repairs a run that is resumed: a config with a damaged state goes back to an earlier step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.engine import state as states
from cerebro_plpy.errors import DATA_CORRUPTED, CerebroError
from cerebro_plpy.planner import routes
from cerebro_plpy.store.runs import decisions, measurements, run_groups, runs, state_rows


def mend(db: Database, run_id: int, evaluation_epochs: Sequence[int]) -> list[Mapping[str, Any]]:
    """Check each state that the run still needs, and move configs with a damaged state to an earlier step.

    Return a mapping for each damaged state, with its config, its step, the step that the config goes back to,
    the reason, and the failure of the config if the earlier state is damaged, too.
    """
    if runs.has_finished(db, run_id):
        return []
    run = runs.run(db, run_id)
    segments = run.segments
    deleted = {entry.mst_key for entry in decisions.entries(db, run_id) if entry.decision == decisions.DELETE}
    configs = {config.mst_key: config for config in runs.configs(db, run_id)}
    at_home = {number for number, group in run_groups.read(db, run_id).items() if group.home is not None}
    found = []
    for standing in runs.standings(db, run_id).values():
        config = configs[standing.mst_key]
        # A clone has no states of its own before this step.
        first = config.source_step or 0
        waiting = {e * segments for e in evaluation_epochs if e not in standing.evaluated}
        waiting = {step for step in waiting if first < step < standing.step}
        if standing.failure is not None or standing.step == first or standing.mst_key in deleted:
            continue
        if config.group_id in at_home:
            found += _of_group(db, run, standing, first, incomplete=bool(waiting))
        else:
            steps = sorted({standing.step} | waiting)
            damaged = next((s for s in steps if _damage(db, run_id, standing.mst_key, s)), None)
            if damaged is not None:
                before = routes.step_before(damaged, segments, runs.limits(run).get("average_from"))
                found.append(_step_back(db, run, standing.mst_key, damaged, before))
    _mend_parts(db, run_id, segments)
    return found


def _of_group(
    db: Database, run: runs.RunRow, standing: runs.Standing, first: int, *, incomplete: bool
) -> list[Mapping[str, Any]]:
    """Move a group on one segment back to step `first` if its state is damaged or its metrics `incomplete`.

    It cannot go back to a later step: no state in between is stored, and only a visit can measure its epochs.
    Return the group's repair as a list of one mapping, or an empty list.
    """
    run_id, key = run.run_id, standing.mst_key
    reason = _damage(db, run_id, key, standing.step)
    if reason is None and incomplete:
        reason = f"what config {key} of run {run_id} came to was not all measured."
    if reason is None:
        return []
    runs.step_back(db, run_id, key, first)
    measurements.forget_after(db, run_id, key, first // run.segments)
    return [{"mst_key": key, "step": standing.step, "to": first, "reason": reason, "failure": None}]


def _mend_parts(db: Database, run_id: int, segments: int) -> None:
    """Remove the visits whose states wait to be averaged but are damaged, so that they are made again."""
    standings = runs.standings(db, run_id)
    for part in runs.parts(db, run_id):
        step = routes.part_of(part.epoch, part.segment, segments)
        waits = part.epoch == standings[part.mst_key].step // segments + 1
        if waits and _damage(db, run_id, part.mst_key, step) is not None:
            runs.forget_part(db, run_id, part.mst_key, step)


def _step_back(db: Database, run: runs.RunRow, mst_key: int, step: int, to: int) -> Mapping[str, Any]:
    run_id = run.run_id
    reason = _damage(db, run_id, mst_key, step)
    before = _damage(db, run_id, mst_key, to)
    failure = None
    if before is None:
        runs.step_back(db, run_id, mst_key, to)
    else:
        failure = f"{reason}; {before}"
        epoch, stop = divmod(step - 1, run.segments)
        measurements.write_failure(
            db, run_id=run_id, mst_key=mst_key, epoch=epoch + 1, segment=stop, reason=failure
        )
    return {"mst_key": mst_key, "step": step, "to": to, "reason": reason, "failure": failure}


def _damage(db: Database, run_id: int, mst_key: int, step: int) -> str | None:
    """Return what is wrong with a stored state, or None. Step 0 is never stored, so it cannot be damaged."""
    if step == 0:
        return None
    try:
        _look(db, run_id, mst_key, step)
    except CerebroError as error:
        if error.sqlstate != DATA_CORRUPTED:
            raise
        return f"{error.message}: {error.detail}"
    return None


@as_owner
def _look(db: Database, run_id: int, mst_key: int, step: int) -> None:
    key = runs.state_origin(db, run_id, mst_key, step)
    frozen = states.finder(partial(state_rows.frozen, db, run_id))
    states.of_config(state_rows.read(db, run_id, key, step), run_id, key, step, frozen)
