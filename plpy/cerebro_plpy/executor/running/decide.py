"""Make the decisions of a run while it goes on: those of its search procedure, its budget and its users.

Each decision is committed before it takes effect. A resumed run reads the log of decisions and measurements,
and so continues at the point where the run was interrupted.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cerebro_plpy.commands import Decide
from cerebro_plpy.database import Database
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.executor.running import replay
from cerebro_plpy.executor.running.report import duration, tell_decision
from cerebro_plpy.executor.starting.request import Engines
from cerebro_plpy.logical.budget import LEAST_SHARE, Limits
from cerebro_plpy.logical.metrics import badness, deciding
from cerebro_plpy.logical.search.template import Clone, Decision, GoOn, Procedure, Result, StartConfig, Stop
from cerebro_plpy.madlib.params import CompileParams, parse_compile, reparse_compile
from cerebro_plpy.planner.plan import Plan
from cerebro_plpy.planner.units import BUNDLE, MERGE, Config, Unit
from cerebro_plpy.store.models import functions
from cerebro_plpy.store.runs import decisions
from cerebro_plpy.store.runs.decisions import Asked, Entry
from cerebro_plpy.store.runs.runs import ConfigRow
from cerebro_plpy.topology import Topology

# How often to look for users' requests: often enough for clients that wait, and still cheap.
LOOK_SECONDS = 0.25
FAILED, IN_HAND, ENDING = "it failed", "it is in a person's hands", "the run is ending"
NO_NUMBER = "its loss or its metric is not a number"

Planned = Callable[[ConfigRow, int], Config]
Decided = tuple[Entry, ConfigRow | None]


@dataclass(frozen=True)
class Search:
    """The search procedure of a run. It gets losses if `by_loss`, else values of the metric.

    In a replay, it gets the results in the order of `order`, a list of pairs of `mst_key` and epoch.
    """

    procedure: Procedure
    by_loss: bool = False
    order: Sequence[tuple[int, int]] = ()


class Decider:
    """The decision maker of a run: it asks the search procedure, budgets and users, and changes the plan."""

    def __init__(
        self,
        db: Database,
        topology: Topology,
        run_id: int,
        engines: Engines,
        plan: Plan,
        planned: Planned,
        rows: Sequence[ConfigRow],
        search: Search | None,
        limits: Limits,
        seconds_before: float = 0.0,
        ends_at: float | None = None,
    ) -> None:
        self._db = db
        self._topology = topology
        self._run_id = run_id
        self._engines = engines
        self._plan = plan
        self._planned = planned
        self._rows = {row.mst_key: row for row in rows}
        self._procedure = search.procedure if search else None
        self._by_loss = limits.by_loss or (search is not None and search.by_loss)
        self._order = list(search.order) if search else []
        self._limits = limits
        self._configs = len(rows)
        self._seconds_before = seconds_before
        # The time at which the caller's budget ends, and the time at which the run's budget is spent. The
        # latter is known once the first visit is done.
        self._caller_ends_at = ends_at
        self._ends_at: float | None = None
        self._has_model = False
        self._next_look, self._last_turn = 0.0, time.monotonic()
        self._number = 0
        self._begun = self._closed = False
        # Configs withdrawn from the procedure, as things stand and as the log has it: the procedure gets no
        # more results of the first set, and its decisions about the second set are refused.
        self._lost: set[int] = set()
        self._released: set[int] = set()
        self._told: set[tuple[int, int]] = set()
        self._results: list[Result] = []
        self.reasons: dict[int, str] = {}
        plan.visits_limit = limits.max_visits

    # The results that the loop reports.

    def take(self, unit: Unit, result: Mapping[str, Any]) -> None:
        """Record the result of a unit of work, such as a visit. The first visit decides when time is up."""
        if self._ends_at is None and self._limits.max_seconds is not None and "seconds" in result:
            # The first visit began with engines to start and nets to compile, which is no training.
            trained = min(result["seconds"], self._plan.configs[unit.mst_key].visit_units)
            self._ends_at = self._find_end(time.monotonic() - trained, self._limits.max_seconds)
        if "failure" in result:
            self._lose(unit.mst_key)
        elif unit.kind == MERGE:
            self.measured(unit.mst_key, unit.epoch, result.get("validation") or result["training"])
        elif unit.kind == BUNDLE and (self._procedure is not None or self._plan.keeps_best):
            for mst_key, epoch, values in result["measured"]:
                self.measured(mst_key, epoch, values)

    def _find_end(self, began: float, seconds: int) -> float:
        """Return the time at which the budget of a run is spent that began to train at `began`.

        It is no later than the caller's budget ends, but the run gets a fixed share of its seconds at least.
        """
        began -= self._seconds_before
        if self._caller_ends_at is None:
            return began + seconds
        return min(began + seconds, max(self._caller_ends_at, began + seconds * LEAST_SHARE))

    def measured(self, mst_key: int, epoch: int, values: Mapping[str, float | None]) -> None:
        """Record an evaluation, and queue it for the search procedure if the config waits for a decision."""
        name = "loss" if self._by_loss else deciding(list(values))
        params = self.params(mst_key)
        loss = values.get("loss", 0.0)
        # A config whose loss is no number has learned nothing, whatever its metric says.
        learned = loss is not None and math.isfinite(loss)
        value = badness(name, values.get(name), params) if name is not None and learned else None
        self._plan.note_value(mst_key, epoch, value)
        config = self._plan.configs[mst_key]
        waits = epoch == config.until and config.stop_at is None and mst_key not in self._lost
        if waits and (mst_key, epoch) not in self._told:
            self._tell(Result(mst_key, epoch, value))

    def params(self, mst_key: int) -> CompileParams:
        """Return a config's compile parameters, which say in which direction each of its metrics improves."""
        text = self._rows[mst_key].compile_params
        try:
            return parse_compile(text)
        except CerebroError:
            # A config that came in may name a function that was registered since this session began.
            functions.begin(self._db, self._run_id)
            return reparse_compile(text)

    def _lose(self, mst_key: int) -> None:
        """Withdraw a config from the search procedure, which then decides nothing more about it.

        The procedure gets a result without a value for the epoch at which it would decide.
        """
        if self._procedure is not None and mst_key not in self._lost:
            self._lost.add(mst_key)
            self._tell(Result(mst_key, self._plan.configs[mst_key].until, None))

    def _tell(self, result: Result) -> None:
        if self._procedure is not None and not self._closed:
            self._told.add((result.mst_key, result.epoch))
            self._results.append(result)

    # The decisions that follow.

    def turn(self) -> None:
        """Make every decision that is due: of the search procedure, of the budget, and of users."""
        self._wait_for_pause(time.monotonic())
        if self._procedure is not None and not self._begun:
            self._begun = True
            self._commit(self._as_entries(self._procedure, self._procedure.begin()))
        self._deliver()
        self._tell_time_left()
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_SECONDS
            self._look()

    def _wait_for_pause(self, now: float) -> None:
        """Put the end of the time budget off by the time since the last turn, if the run is paused."""
        pause, self._last_turn = now - self._last_turn, now
        if self._plan.paused and self._ends_at is not None:
            self._ends_at += pause
            self._caller_ends_at = None if self._caller_ends_at is None else self._caller_ends_at + pause

    def _tell_time_left(self) -> None:
        """Set the seconds that the plan has left of the time budget, once a config has finished an epoch.

        From then on, the plan begins no config that would end too late.
        """
        if self._ends_at is None:
            return
        self._has_model = self._has_model or any(
            config.step >= config.first_step + self._plan.segments for config in self._plan.configs.values()
        )
        if self._has_model:
            self._plan.time_left = self._ends_at - time.monotonic()

    def unpause(self, role: str) -> None:
        """End the pause of a run that was paused; `role` is the user who resumes it."""
        if self._plan.paused:
            self._commit([(Entry(0, decisions.RESUME, role=role), None)])

    def finish(self) -> str | None:
        """Return a message if the time budget was exceeded, after sending it as a notice; else None.

        Raise an error if a replay has results that the replayed run did not have at this point.
        """
        ends_at, why = self._ends_at, "configs that have begun finish an epoch, and are measured"
        if ends_at is not None and self._caller_ends_at is not None and self._caller_ends_at < ends_at:
            ends_at, why = self._caller_ends_at, f"engines took long to start, and {why}"
        over, said = 0.0 if ends_at is None else time.monotonic() - ends_at, None
        if over >= 1:
            said = f"the budget of {self._limits.max_seconds} s was exceeded by {duration(over)}: {why}"
            self._db.notice(said)
        if self._results and not self._closed:
            raise replay.refuse_result(self._results[0])
        return said

    def _deliver(self) -> None:
        """Pass the queued results to the search procedure, and commit its decisions.

        In a replay, the results are passed in the order of the replayed run.
        """
        found: list[Decided] = []
        while self._procedure is not None and not self._closed and (result := self._next_result()):
            entry = self._measured_entry(result)
            found += [(entry, None), *self._observe(self._procedure, result, entry.reason)]
        self._commit(found)

    def _observe(self, procedure: Procedure, result: Result, reason: str | None) -> list[Decided]:
        """Return the procedure's decisions on a result, and one that stops a config that has no value.

        No procedure decides about a config without a value again, so that it would wait until the end.
        """
        decided = procedure.observe(replace(result, is_taken=reason == IN_HAND))
        if result.value is None and reason is None:
            decided = [*decided, Stop(result.mst_key, NO_NUMBER)]
        return self._as_entries(procedure, decided)

    def _next_result(self) -> Result | None:
        if not self._order:
            return self._results.pop(0) if self._results else None
        places = [(result.mst_key, result.epoch) for result in self._results]
        if self._order[0] not in places:
            return None
        return self._results.pop(places.index(self._order.pop(0)))

    def _measured_entry(self, result: Result) -> Entry:
        key, reason = result.mst_key, None
        if key in self._lost and result.value is None:
            self._released.add(key)
            reason = FAILED if self._plan.configs[key].failure is not None else IN_HAND
        step = result.epoch * self._plan.segments
        return Entry(0, decisions.MEASURED, key, step, value=result.value, reason=reason)

    def _as_entries(self, procedure: Procedure, decided: Sequence[Decision]) -> list[Decided]:
        """Return the log entries of decisions, and of those that follow because a new config was refused."""
        found, left = list[Decided](), deque(decided)
        while left:
            decision = left.popleft()
            found.append(self._as_entry(decision))
            if found[-1][0].decision == decisions.REFUSED and isinstance(decision, StartConfig | Clone):
                # Else the procedure would wait for its result.
                refused = Result(decision.mst_key, decision.epochs, None, is_taken=True)
                left += procedure.observe(refused)
        return found

    def _as_entry(self, decision: Decision) -> Decided:
        key, reason = decision.mst_key, decision.reason
        if isinstance(decision, StartConfig | Clone):
            most = self._limits.max_configs
            if most is not None and self._configs >= most:
                self._released.add(key)
                return Entry(0, decisions.REFUSED, key, reason=f"the run has its {most} configs"), None
            self._configs += 1
            source = decision.source if isinstance(decision, Clone) else None
            kind = decisions.START if source is None else decisions.CLONE
            row = self._new_row(decision, source, source is not None)
            return Entry(0, kind, key, row.source_step, decision.epochs, reason=reason), row
        if key in self._released:
            return Entry(0, decisions.REFUSED, key, reason=IN_HAND), None
        step = self._plan.begun_step(key)
        if isinstance(decision, GoOn):
            return Entry(0, decisions.GO_ON, key, step, decision.epochs, reason=reason), None
        return Entry(0, decisions.STOP, key, step, reason=reason), None

    def _new_row(self, of: StartConfig | Clone, source: int | None, with_state: bool) -> ConfigRow:
        """Return the row of a new config; a clone with a state starts from its source's last whole epoch."""
        step = before = None
        if source is not None and with_state:
            step = self._plan.whole_epochs(self._plan.configs[source]) * self._plan.segments
            before = self._plan.configs[source].epochs_before
        return ConfigRow(
            of.mst_key, of.model_id, of.compile_params, of.fit_params,
            self._engines.find_engine(of.model_id),
            epochs_before=before or 0, source_key=source, source_step=step,
            config_key=of.config_key,
            group_id=of.group if of.group is not None or source is None else self._rows[source].group_id,
            class_counts=None if source is None else self._rows[source].class_counts,
        )  # fmt: skip

    # Budgets and persons.

    def _look(self) -> None:
        for together in _in_turns(decisions.pending(self._db, self._run_id)):
            self._commit([decided for asked in together for decided in self._answer(asked)])
        limits = self._limits
        if self._ends_at is not None and (time.monotonic() >= self._ends_at or self._plan.rests()):
            # Each config that has begun has a model in the end: it finishes its first epoch.
            self._close(f"the run's {limits.max_seconds} seconds are spent", self._first_whole_step)
        elif limits.max_visits is not None and self._plan.visits_begun >= limits.max_visits:
            self._close(f"the run's {limits.max_visits} visits are spent", self._plan.begun_step)

    def _first_whole_step(self, mst_key: int) -> int:
        """Return the step at which a config stops when time is up: never amid its first epoch."""
        begun, first = self._plan.begun_step(mst_key), self._plan.configs[mst_key].first_step
        return max(begun, first + self._plan.segments) if begun > first else begun

    def _close(self, reason: str, last_step: Callable[[int], int]) -> None:
        if not self._closed and not self._plan.done():
            self._commit(self._closing(Entry(0, decisions.STOP, reason=reason), last_step))

    def _closing(self, first: Entry, last_step: Callable[[int], int]) -> list[Decided]:
        """Return log entries that end the run: `first`, and one to stop each config at its `last_step`."""
        going = [key for key in self._plan.configs if self._plan.trains(key)]
        each = replace(first, request_id=None)
        stops = [replace(each, mst_key=key, step=last_step(key)) for key in going]
        return [(first, None), *((stop, None) for stop in stops)]

    def _answer(self, asked: Asked) -> list[Decided]:
        """Return the log entries that answer a user's request; a request that is too late is refused."""
        key, source = asked.mst_key, asked.source_key
        entry = Entry(0, asked.decision, key, role=asked.role, request_id=asked.request_id)
        if self._closed:
            return [(replace(entry, decision=decisions.REFUSED, reason=ENDING), None)]
        if asked.decision in (decisions.START, decisions.CLONE):
            row = self._new_row(_wanted(asked), source, bool(asked.with_state))
            behind = (row.source_step or 0) // self._plan.segments
            until = max(self._plan.epochs, behind + 1)
            return [(replace(entry, step=row.source_step, epochs=until), row)]
        if key is None:
            return (
                self._closing(entry, self._plan.begun_step)
                if asked.decision == decisions.STOP
                else [(entry, None)]
            )
        config, step = self._plan.configs[key], self._plan.begun_step(key)
        if config.failure is not None:
            return [(replace(entry, decision=decisions.REFUSED, reason=FAILED), None)]
        behind = -(-step // self._plan.segments)
        if asked.decision == decisions.SET_EPOCHS:
            return [(replace(entry, step=step, epochs=max(asked.epochs or 0, behind)), None)]
        if asked.decision == decisions.RESUME:
            rests = step >= config.until * self._plan.segments
            return [(replace(entry, epochs=max(self._plan.epochs, behind) if rests else config.until), None)]
        return [(replace(entry, step=step), None)]

    # The log.

    def _commit(self, decided: Sequence[Decided]) -> None:
        """Write decisions to the log, then apply them to the plan."""
        if not decided:
            return
        rows = [row for _, row in decided if row is not None]
        planned = [self._planned(row, 0) for row in rows]
        rows = [
            replace(row, kind=str(config.kind), visit_seconds=config.visit_units)
            for row, config in zip(rows, planned, strict=True)
        ]
        numbered = _number([entry for entry, _ in decided], self._number)
        self._topology.command(Decide(run_id=self._run_id, entries=numbered, configs=rows))
        self._rows |= {row.mst_key: row for row in rows}
        for config in planned:
            self._plan.add(config)
        for entry in numbered:
            self._apply(entry)
            if entry.mst_key in self._plan.configs:
                self._plan.settle(entry.mst_key)
            if entry.role is not None and self._is_first(entry):
                self._db.notice(tell_decision(entry))

    def _is_first(self, entry: Entry) -> bool:
        """Return whether to send a notice of a log entry: a new config on several groups gets only one."""
        row = self._rows.get(entry.mst_key or 0)
        return entry.decision != decisions.START or row is None or row.key == row.mst_key

    def _apply(self, entry: Entry) -> None:
        """Apply a log entry to the plan: a new decision, or one that a resumed run reads."""
        plan, key = self._plan, entry.mst_key
        self._number = entry.number
        if entry.decision == decisions.MEASURED:
            return
        if key is None:
            plan.paused = entry.decision == decisions.PAUSE
            self._closed |= entry.decision == decisions.STOP
            return
        if entry.role is not None and not self._closed:
            self._take_in_hand(entry, key)
        if entry.decision == decisions.STOP:
            self.reasons[key] = entry.reason or f"{entry.role} stopped it"
        if entry.epochs is not None:
            plan.set_until(key, entry.epochs)
        if entry.decision == decisions.STOP:
            plan.stop(key, entry.step or 0)
        elif entry.decision == decisions.RESUME:
            plan.go_on(key)
        elif entry.decision == decisions.DELETE:
            plan.delete(key)

    def _take_in_hand(self, entry: Entry, key: int) -> None:
        if entry.decision == decisions.REFUSED:
            return
        self._released.add(key)
        if entry.decision in (decisions.START, decisions.CLONE):
            self._lost.add(key)
            self._configs += 1
        else:
            self._lose(key)

    def take_up(self, log: Sequence[Entry], measured: Mapping[tuple[int, int], Mapping[str, Any]]) -> None:
        """Apply the whole log of an interrupted run, so that the run continues where the log ends.

        `measured` has the metrics that configs are compared by; its keys are pairs of config and epoch.
        """
        awaited: list[Decided] = []
        self._configs -= sum(e.decision in (decisions.START, decisions.CLONE) for e in log)
        for entry in log:
            awaited = self._take_up_entry(entry, awaited)
        if awaited:
            raise replay.refuse_decision(awaited[0][0], None)
        for config in self._plan.configs.values():
            if config.failure is not None:
                self._lose(config.mst_key)
        for (key, epoch), values in sorted(measured.items()):
            self.measured(key, epoch, values)

    def _take_up_entry(self, entry: Entry, awaited: list[Decided]) -> list[Decided]:
        """Apply one log entry; return the procedure's decisions that must follow it in the log."""
        if self._procedure is not None and not self._begun and not self._closed:
            self._begun = True
            awaited = self._as_entries(self._procedure, self._procedure.begin())
        if entry.decision == decisions.MEASURED and self._procedure is not None:
            if awaited:
                raise replay.refuse_decision(awaited[0][0], entry)
            awaited = self._observe(self._procedure, self._read_measured(entry), entry.reason)
        elif entry.role is None and entry.mst_key is not None and not self._closed:
            expected = awaited.pop(0)[0] if awaited else None
            if expected is None or not replay.are_same(expected, entry):
                raise replay.refuse_decision(expected, entry)
        self._apply(entry)
        return awaited

    def _read_measured(self, entry: Entry) -> Result:
        result = Result(entry.mst_key or 0, (entry.step or 0) // self._plan.segments, entry.value)
        self._told.add((result.mst_key, result.epoch))
        del self._order[:1]
        if entry.reason is not None:
            self._lost.add(result.mst_key)
            self._released.add(result.mst_key)
            self._results = [r for r in self._results if r.mst_key != result.mst_key]
        return result


def _number(entries: Sequence[Entry], after: int) -> list[Entry]:
    """Return log entries, numbered from `after` + 1; each has the last measurement before it as `cause`."""
    numbered, cause = [], None
    for number, entry in enumerate(entries, after + 1):
        cause = number if entry.decision == decisions.MEASURED else cause
        numbered.append(replace(entry, number=number, cause=None if cause == number else cause))
    return numbered


def _in_turns(asked: Sequence[Asked]) -> list[list[Asked]]:
    """Return requests in batches, each of which is committed in one transaction.

    Consecutive requests for new configs share a batch, since on groups there may be thousands of them.
    """
    turns: list[list[Asked]] = []
    for one in asked:
        if turns and one.decision == turns[-1][-1].decision == decisions.START:
            turns[-1].append(one)
        else:
            turns.append([one])
    return turns


def _wanted(asked: Asked) -> StartConfig:
    """Return the new config that a user's request describes."""
    return StartConfig(
        mst_key=asked.mst_key or 0,
        model_id=asked.model_id or 0,
        compile_params=asked.compile_params or "",
        fit_params=asked.fit_params or "",
        epochs=0,
        reason="",
        config_key=asked.config_key,
        group=asked.group_id,
    )
