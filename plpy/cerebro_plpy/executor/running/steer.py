"""Check users' requests to a run that another session carries out, and store them for that session."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.errors import NOT_SUPPORTED, NULL_NOT_ALLOWED, WRONG_STATE, CerebroError
from cerebro_plpy.executor.running import resume, run_rows
from cerebro_plpy.executor.running import run as runner
from cerebro_plpy.executor.starting import cutting, functions, groups
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.logical.budget import MOST_EPOCHS
from cerebro_plpy.logical.search.build import brings_configs
from cerebro_plpy.madlib.params import BALANCED
from cerebro_plpy.madlib.spaces import grid
from cerebro_plpy.packing.dividing.grouping import MOST_GROUPS
from cerebro_plpy.store import session
from cerebro_plpy.store.models import functions as registry
from cerebro_plpy.store.models import models
from cerebro_plpy.store.names import Table, resolve_table
from cerebro_plpy.store.runs import decisions, drivers, runs
from cerebro_plpy.store.runs.decisions import (
    CLONE,
    DELETE,
    PAUSE,
    RESUME,
    SET_EPOCHS,
    START,
    STOP,
    Asked,
    Entry,
)
from cerebro_plpy.store.writing import write
from cerebro_plpy.topology.choose import choose

# The first key of configs that users add to a search, whose procedure uses the keys below.
FIRST_OWN_KEY = 1_000_001
GOING = ("running", "paused")
LOOK_SECONDS = (0.05, 1.0)
# How long to wait for sessions that are told to end.
END_SECONDS = 10.0


@dataclass
class RunStanding:
    """The status of a run and its configs, as it will be once all pending requests are answered."""

    run: runs.RunRow
    configs: dict[int, runs.ConfigRow]
    steps: dict[int, int]
    failed: set[int]
    until: dict[int, int] = field(default_factory=dict)
    stopped: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)
    paused: bool = False
    ending: bool = False

    def take(self, of: Entry | Asked) -> None:
        key = of.mst_key
        if key is None:
            self.paused = of.decision == PAUSE
            self.ending |= of.decision == STOP
            return
        if of.epochs is not None:
            self.until[key] = of.epochs
        if of.decision == STOP:
            self.stopped.add(key)
        elif of.decision == RESUME:
            self.stopped.discard(key)
        elif of.decision == DELETE:
            self.deleted.add(key)
        if isinstance(of, Asked) and of.decision in (START, CLONE):
            source = self.configs.get(of.source_key) if of.source_key is not None else None
            self.configs[key] = runs.ConfigRow(
                key, of.model_id or 0, of.compile_params or "", of.fit_params or "", "",
                config_key=of.config_key,
                group_id=of.group_id if source is None else source.group_id,
                class_counts=None if source is None else source.class_counts,
            )  # fmt: skip

    @property
    def next_key(self) -> int:
        hands_out = brings_configs(runs.searched(self.run))
        return max([FIRST_OWN_KEY - 1 if hands_out else 0, *self.configs]) + 1

    def rests(self, key: int) -> bool:
        """Return whether a config has completed all visits that are planned for it so far."""
        return key in self.until and self.steps.get(key, 0) >= self.until[key] * self.run.segments


@as_owner
def _standing(db: Database, run_id: int | None, role: str) -> RunStanding:
    """Return the standing of one of the role's runs; lock the run against other requests until the commit."""
    run = runs.own_run(db, run_id, role)
    decisions.lock(db, run.run_id)
    # Read before the decisions: a request that is answered at this moment is in both lists, not in neither.
    asked = decisions.pending(db, run.run_id)
    configs = {row.mst_key: row for row in runs.configs(db, run.run_id)}
    found = runs.standings(db, run.run_id)
    standing = RunStanding(
        run, configs, {key: s.step for key, s in found.items()},
        {key for key, s in found.items() if s.failure is not None},
    )  # fmt: skip
    if run.search is None:
        standing.until = dict.fromkeys(configs, run.epochs)
    for of in (*decisions.entries(db, run.run_id), *asked):
        standing.take(of)
    return standing


def _going(db: Database, run_id: int | None) -> RunStanding:
    """Return the standing of a run that is running or paused; raise an error if it has ended or is ending."""
    role = session.current_user(db)
    standing = _standing(db, run_id, role)
    status = decisions.status(db, standing.run.run_id)
    if status not in GOING:
        hint = f"cerebro.resume({run_id}) goes on with it." if status == "interrupted" else None
        raise _refused(f"run {run_id} is {status}", hint)
    if standing.ending:
        raise _refused(f"run {run_id} is ending: it was asked to stop")
    return standing


def _changed(db: Database, run_id: int | None) -> RunStanding:
    """Return the standing of a run to which configs are to be added, and load its registered functions.

    Raise an error if the run is a search on groups.
    """
    standing = _going(db, run_id)
    if "scope" in (runs.searched(standing.run) or {}):
        raise CerebroError(
            f"run {run_id} searches groups, and takes no configs but its own",
            hint="Begin another run, or add them to a fit.",
            sqlstate=NOT_SUPPORTED,
        )
    registry.begin(db, standing.run.run_id)
    return standing


def _refused(message: str, hint: str | None = None) -> CerebroError:
    return CerebroError(message, hint=hint, sqlstate=WRONG_STATE)


def _ask(db: Database, standing: RunStanding, decision: str, **wanted: Any) -> None:
    role, run_id = session.current_user(db), standing.run.run_id
    decisions.ask(db, run_id, role, decision, wanted)


def _config(standing: RunStanding, mst_key: int | None) -> int:
    """Return the key of a config; raise an error if the config is unknown, deleted or failed."""
    run_id = standing.run.run_id
    if mst_key is None:
        raise CerebroError("mst_key is NULL", sqlstate=NULL_NOT_ALLOWED)
    if mst_key not in standing.configs:
        raise CerebroError(
            f"run {run_id} has no config {mst_key}", hint=f"cerebro.progress shows those of run {run_id}."
        )
    for what, keys in (("was deleted", standing.deleted), ("has failed", standing.failed)):
        if mst_key in keys:
            raise _refused(f"config {mst_key} of run {run_id} {what}")
    return mst_key


def stop_config(db: Database, run_id: int | None, mst_key: int | None) -> None:
    """Request that a config gets no further visits; its result so far is kept."""
    standing = _going(db, run_id)
    key = _config(standing, mst_key)
    if key in standing.stopped:
        raise _refused(f"config {key} of run {run_id} is stopped already")
    if runs.searched(standing.run) is None and standing.rests(key):
        raise _refused(f"config {key} of run {run_id} is finished")
    _ask(db, standing, STOP, mst_key=key)


def resume_config(db: Database, run_id: int | None, mst_key: int | None) -> None:
    """Request that a stopped config continues its training."""
    standing = _going(db, run_id)
    key = _config(standing, mst_key)
    if key not in standing.stopped:
        raise _refused(f"config {key} of run {run_id} is not stopped")
    if standing.steps.get(key, 0) >= standing.run.epochs * standing.run.segments and standing.rests(key):
        raise _refused(
            f"config {key} of run {run_id} has all its epochs behind it",
            "cerebro.set_epochs gives it more.",
        )
    _ask(db, standing, RESUME, mst_key=key)


def delete_config(db: Database, run_id: int | None, mst_key: int | None) -> None:
    """Request that a config is left out of the rest of the run and of its result tables."""
    standing = _going(db, run_id)
    _ask(db, standing, DELETE, mst_key=_config(standing, mst_key))


def set_epochs(db: Database, run_id: int | None, mst_key: int | None, epochs: int | None) -> None:
    """Request that a config is trained for `epochs` epochs in all."""
    standing = _going(db, run_id)
    key = _config(standing, mst_key)
    if epochs is None or not 1 <= epochs <= MOST_EPOCHS:
        raise CerebroError(f"epochs is {epochs}", detail=f"It must be an integer from 1 to {MOST_EPOCHS}.")
    behind = standing.steps.get(key, 0) // standing.run.segments
    if epochs < behind:
        raise CerebroError(f"config {key} of run {run_id} has {behind} epochs behind it already")
    if epochs == standing.until.get(key):
        raise _refused(f"config {key} of run {run_id} trains for {epochs} epochs already")
    _ask(db, standing, SET_EPOCHS, mst_key=key, epochs=epochs)


def pause(db: Database, run_id: int | None) -> None:
    """Request that a run begins no more visits until it is resumed; visits that have begun are finished."""
    standing = _going(db, run_id)
    if standing.paused:
        raise _refused(f"run {run_id} is paused already")
    _ask(db, standing, PAUSE)


def stop(db: Database, run_id: int | None, force: bool | None) -> None:
    """Request that a run ends and writes its results so far; with `force`, end its sessions immediately."""
    if force:
        _end(db, run_id)
    else:
        _ask(db, _going(db, run_id), STOP)


def _end(db: Database, run_id: int | None) -> None:
    role = session.current_user(db)
    run = runs.own_run(db, run_id, role, members=True)
    status = decisions.status(db, run.run_id)
    if status not in GOING:
        raise _refused(f"run {run_id} is {status}")

    drivers.end_sessions(db, run.run_id)
    write(db, runs.event_of(run.run_id, "interrupted", f"ended by force, by {role}"))
    deadline = time.monotonic() + END_SECONDS
    while drivers.held_elsewhere(db, run.run_id) and time.monotonic() < deadline:
        session.sleep(db, LOOK_SECONDS[0])
    db.notice(f"the sessions of run {run_id} were ended: cerebro.resume({run_id}) goes on with it")


def resume_run(db: Database, run_id: int | None) -> None:
    """Let a paused run go on; if the run is not paused, continue it in this session after an interruption."""
    if not _unpause(db, run_id):
        resume.resume(db, run_id)


def _unpause(db: Database, run_id: int | None) -> bool:
    """Request that a paused run goes on; return False if the run is not paused."""
    if run_id is None or decisions.status(db, run_id) not in GOING:
        return False
    role = session.current_user(db)
    standing = _standing(db, run_id, role)
    if not standing.paused or standing.ending:
        return False
    _ask(db, standing, RESUME)
    return True


def clone_config(
    db: Database,
    run_id: int | None,
    mst_key: int | None,
    compile_params: str | None,
    fit_params: str | None,
    with_state: bool | None,
) -> int:
    """Add to a run a copy of a config, by default with its state; return the new key.

    The copy has the same architecture, and its own compile and fit parameters if they are given.
    """
    standing = _changed(db, run_id)
    source = standing.configs[_config(standing, mst_key)]
    new = models.Selected(
        standing.next_key, source.model_id, compile_params or source.compile_params,
        fit_params or source.fit_params,
    )  # fmt: skip
    _check_number(standing, 1)
    if source.group_id is not None and source.class_counts is None:
        _refuse_balanced([new])
    if (new.compile_params, new.fit_params) != (source.compile_params, source.fit_params):
        _check(db, standing=standing, new=[new], fresh=[])
    _bring_in(db, standing, CLONE, new, source_key=source.mst_key, with_state=with_state is not False)
    return new.mst_key


def add_configs(db: Database, run_id: int | None, selection_table: str | None) -> list[int]:
    """Add the configs of a model selection table to a run; return their new keys in the table's order."""
    standing = _changed(db, run_id)
    selection = requests.selected(db, selection_table)
    arch_table, chosen = selection.arch_table, selection.configs
    if arch_table.quoted != standing.run.arch_table:
        raise CerebroError(
            f"the configs belong to {arch_table.quoted}, and run {run_id} to {standing.run.arch_table}"
        )
    return _add(
        db,
        standing=standing,
        arch_table=arch_table,
        chosen=chosen,
    )


def add_space(
    db: Database,
    run_id: int | None,
    model_ids: list[int] | None,
    compile_space: str | None,
    fit_space: str | None,
    search_type: str | None,
    num_configs: int | None,
    random_state: int | None,
) -> list[int]:
    """Add configs from a space of parameters to a run, all or a random sample; return their new keys."""
    standing = _changed(db, run_id)
    arch_table = resolve_table(db, standing.run.arch_table, "model architecture table")
    rows, seed = grid.search_configs(
        model_ids=model_ids or [],
        compile_grid=compile_space or "",
        fit_grid=fit_space or "",
        search_type=search_type,
        num_configs=num_configs,
        random_state=random_state,
    )
    selected = [
        models.Selected(key, row.model_id, row.compile_params, row.fit_params)
        for key, row in enumerate(rows, 1)
    ]
    added = _add(
        db,
        standing=standing,
        arch_table=arch_table,
        chosen=requests.choose(selected),
    )
    if seed is not None and random_state is None:
        db.notice(f"the configs were drawn with random_state {seed}")
    return added


def _add(
    db: Database,
    standing: RunStanding,
    arch_table: Table,
    chosen: Sequence[requests.Chosen],
) -> list[int]:
    run_id = standing.run.run_id
    # Each new config trains on the same groups as the other configs.
    subsets = sorted({row.group_id for row in standing.configs.values()}, key=_last)
    _check_number(standing, len(chosen))
    new = [
        models.Selected(standing.next_key + n * len(subsets), c.model_id, c.compile_params, c.fit_params)
        for n, c in enumerate(chosen)
    ]
    in_groups = any(group is not None for group in subsets)
    if in_groups:
        _refuse_balanced(new)
    here = {a.model_id for a in runs.architectures(db, run_id)}
    ids = sorted({config.model_id for config in new} - here)
    fresh = models.architectures(db, arch_table, ids) if ids else []
    for architecture in fresh:
        if architecture.has_weights:
            raise CerebroError(
                f"model_id {architecture.model_id} starts from stored weights, and run {run_id} does not"
                " know it",
                hint="Such an architecture must have been among those that the run began with.",
                sqlstate=NOT_SUPPORTED,
            )
    described = _check(db, standing=standing, new=new, fresh=fresh)
    added = [row for row in described if row.model_id in ids]
    runs.add_architectures(db, run_id, added)
    for config in new:
        if not in_groups:
            _bring_in(db, standing, START, config)
        for place, group in enumerate(subsets if in_groups else ()):
            own = replace(config, mst_key=config.mst_key + place)
            # The first has the config's own number, which result tables show.
            _bring_in(db, standing, START, own, config_key=config.mst_key, group_id=group)
    return [config.mst_key for config in new]


def _last(group: int | None) -> int:
    """Return a sort key for a group's number that puts None, which stands for all rows, last."""
    return MOST_GROUPS + 1 if group is None else group


def _refuse_balanced(new: Sequence[models.Selected]) -> None:
    for config in new:
        if BALANCED in config.fit_params:
            raise CerebroError(
                f"a config with class_weight '{BALANCED}' cannot come into a run of groups",
                detail="How many rows of each class its groups have was not counted when the run began.",
                hint="Say what each class counts, or begin another run.",
                sqlstate=NOT_SUPPORTED,
            )


def _check_number(standing: RunStanding, more: int) -> None:
    most = runs.limits(standing.run).get("max_configs")
    # A config counts once, on however many groups it trains.
    here = len({row.key for row in standing.configs.values()})
    if most is not None and here + more > most:
        raise _refused(f"run {standing.run.run_id} may have {most} configs, and has {here}")


def _bring_in(db: Database, standing: RunStanding, decision: str, new: models.Selected, **more: Any) -> None:
    _ask(
        db, standing, decision, mst_key=new.mst_key, model_id=new.model_id,
        compile_params=new.compile_params, fit_params=new.fit_params, **more,
    )  # fmt: skip


def _check(
    db: Database,
    standing: RunStanding,
    new: Sequence[models.Selected],
    fresh: Sequence[models.Architecture],
) -> list[runs.ArchitectureRow]:
    """Have an engine check new configs in a session of the caller; return their architectures' rows."""
    run = standing.run
    known = runs.architectures(db, run.run_id)
    wanted = {config.model_id for config in new}
    kept = [models.Architecture(a.model_id, a.model_arch, False) for a in known if a.model_id in wanted]
    like = resume.request_of(db, run)
    request = replace(like, configs=requests.choose(new), architectures=[*kept, *fresh])
    topology = choose(db, [])
    requests.check_class_weights(request, request.configs)
    groups.check_epochs(request, request.configs)
    described = runner.check(db, topology, request, sessions=1)
    cutting.with_stored(request, described, request.configs)
    registry.add_to_run(db, run.run_id, functions.used(described))
    return run_rows.architectures(described)


def wait(db: Database, run_id: int | None, timeout: str | None) -> str:
    """Wait until a run is over or the timeout has passed, and return the status of the run."""
    if session.isolation(db) != "read committed":
        raise _refused(
            "a transaction that is not read committed never sees how a run goes on",
            "Call cerebro.wait outside of it.",
        )
    left = float("inf") if timeout is None else session.seconds(db, timeout)
    pause_ = LOOK_SECONDS[0]
    while (status := _status(db, run_id)) in GOING or _is_left(db, run_id):
        if left <= 0:
            # The tables of a run that is over may not be there yet.
            return status if status in GOING else "running"
        session.sleep(db, min(pause_, left))
        left -= pause_
        pause_ = min(2 * pause_, LOOK_SECONDS[1])
    if status == "finished" and (detail := decisions.detail(db, run_id)) is not None:
        db.notice(f"run {run_id}: {detail}")
    return status


def _is_left(db: Database, run_id: int | None) -> bool:
    """Return whether a background session still carries out the run or writes its result tables."""
    return run_id is not None and decisions.in_background(db, run_id)


def _status(db: Database, run_id: int | None) -> str:
    status = None if run_id is None else decisions.status(db, run_id)
    if status is None:
        raise runs.no_such_run(run_id)
    return status
