"""Gives a session on a worker what its commands need, and stores their results.

The facts of a run are read from the coordinator. Visits, states and evaluations are stored on the worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cerebro_plpy import memory
from cerebro_plpy.commands import Command, LeaveMetrics, Sent, TellFacts
from cerebro_plpy.engine.state import State, whole
from cerebro_plpy.planner import routes
from cerebro_plpy.segment import handlers
from cerebro_plpy.segment.rows import layout
from cerebro_plpy.segment.supply import Facts, TableSupply, read_state
from cerebro_plpy.store import citus
from cerebro_plpy.store.runs import measurements, runs


class _Keys(dict[int, Sequence[int]]):
    """The distribution keys of the segments by `run_id`, kept for one run at a time."""


@dataclass
class _Heard:
    """The facts of a run that the coordinator has told; none changes while the run goes on."""

    run: runs.RunRow
    configs: dict[int, runs.ConfigRow] = field(default_factory=dict[int, runs.ConfigRow])
    nets: dict[int, str] = field(default_factory=dict[int, str])
    functions: Sequence[Mapping[str, Any]] = ()


class _HeardRuns(dict[int, _Heard]):
    """The facts of runs by `run_id`, kept for one run at a time."""


class CitusSupply(TableSupply):
    """Reads what one command in a session on a worker needs, and stores the command's results."""

    def _ask(self, command: Command) -> Mapping[str, Any]:
        sent = Sent(command)
        if citus.is_coordinator(self._db):
            # The caller's session does the work itself; other sessions may not see its run before COMMIT.
            return handlers.carry_out(self._db, sent)
        return citus.ask_coordinator(self._db, sent.way.name, sent.as_json())

    def _hear(self, run_id: int, keys: Sequence[int]) -> _Heard:
        """Return what is known of a run and its configs `keys`; ask the coordinator for what is missing."""
        known = memory.get_instance(_HeardRuns)
        heard = known.get(run_id)
        if heard is None or not heard.configs.keys() >= set(keys):
            told = self._ask(TellFacts(run_id=run_id, keys=keys))
            heard = heard or _Heard(runs.RunRow(**told["run"]))
            heard.configs |= {row["mst_key"]: runs.ConfigRow(**row) for row in told["configs"]}
            heard.nets |= dict(told["nets"])
            heard.functions = told["functions"]
            known.clear()
            known[run_id] = heard
        return heard

    def facts(self, run_id: int, mst_key: int) -> Facts:
        heard = self._hear(run_id, [mst_key])
        config = heard.configs[mst_key]
        return Facts(heard.run, config, heard.nets[config.model_id], heard.functions)

    def bundle(self, run_id: int, keys: Sequence[int]) -> Sequence[runs.ConfigRow]:
        heard = self._hear(run_id, keys)
        return [heard.configs[key] for key in keys]

    def weights(self, run_id: int, model_id: int, mst_key: int) -> bytes | None:
        told = self._ask(TellFacts(run_id=run_id, model_id=model_id, keys=[mst_key]))
        found = dict(told["own"]).get(mst_key, told["shared"])
        return None if found is None else bytes.fromhex(found)

    def own_weights(self, run_id: int, keys: Sequence[int]) -> Mapping[int, bytes]:
        told = self._ask(TellFacts(run_id=run_id, model_id=0, keys=keys))
        return {key: bytes.fromhex(weights) for key, weights in told["own"]}

    def state(self, run_id: int, mst_key: int, step: int) -> State:
        return read_state(self._db, run_id, mst_key, step, self._place_of(run_id, mst_key, step))

    def evaluations(self, run_id: int, mst_key: int, epoch: int, dataset: str) -> Sequence[bytes]:
        keys = self._find_keys(self._hear(run_id, [mst_key]).run)
        return measurements.read_evaluations(self._db, run_id, mst_key, epoch, dataset, places=keys)

    def leave_visit(self, visit: runs.VisitRow, state: State) -> int:
        heard = self._hear(visit.run_id, [visit.mst_key])
        segment = visit.segment
        if segment == runs.EVERY_SEGMENT:
            segment = _find_segment(heard, visit.mst_key, visit.step)
        return super().leave_visit(replace(visit, place=self._find_keys(heard.run)[segment]), whole(state))

    def leave_bundle(self, visits: Sequence[runs.VisitRow], states: Sequence[tuple[int, State]]) -> int:
        keys = self._find_keys(self._hear(visits[0].run_id, []).run)
        placed = [replace(one, place=keys[one.segment]) for one in visits]
        return super().leave_bundle(placed, [(mst_key, whole(state)) for mst_key, state in states])

    def leave_evaluation(self, evaluation: measurements.EvaluationRow) -> None:
        keys = self._find_keys(self._hear(evaluation.run_id, []).run)
        super().leave_evaluation(replace(evaluation, place=keys[evaluation.segment]))

    def leave_metrics(self, measured: Sequence[measurements.Measured]) -> None:
        self._ask(LeaveMetrics(measured=[asdict(row) for row in measured]))

    def _place_of(self, run_id: int, mst_key: int, step: int) -> int | None:
        """Return the distribution key of the segment that made a config's state at a step.

        Return None if the config is unknown or a group's: groups do not hop.
        """
        heard = memory.get_instance(_HeardRuns).get(run_id)
        if heard is None or mst_key not in heard.configs or heard.configs[mst_key].group_id is not None:
            return None
        return self._find_keys(heard.run)[_find_segment(heard, mst_key, step)]

    def _find_keys(self, run: runs.RunRow) -> Sequence[int]:
        known = memory.get_instance(_Keys)
        if run.run_id not in known:
            found = self._db.as_caller(run.owner, layout, self._db, run.source_table)
            known.clear()
            known[run.run_id] = found.keys
        return known[run.run_id]


def _find_segment(heard: _Heard, mst_key: int, step: int) -> int:
    """Return the segment whose visit led to a step of a config."""
    run, config = heard.run, heard.configs[mst_key]
    return routes.segment_of(run.seed, config.epochs_before, config.key, step, run.segments)
