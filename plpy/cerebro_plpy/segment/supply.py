"""Reads the facts, weights, rows and states that commands need, and stores their results.

`TableSupply` is for a session that can read and write tables. On Greenplum the process that trains may not:
`ToldSupply` in cluster/process.py gets what it needs from the session on the coordinator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from cerebro_plpy import memory
from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.engine.state import Frozen, State, frozen_to_parts, of_config, to_parts
from cerebro_plpy.segment import cancel
from cerebro_plpy.segment.handed import find_handed
from cerebro_plpy.segment.kept import KeptFrozen
from cerebro_plpy.segment.rows import PartitionSource, TableSource, layout
from cerebro_plpy.store.models import functions
from cerebro_plpy.store.runs import measurements, runs, starting_weights, state_rows


@dataclass(frozen=True)
class Facts:
    """A run, one of its configs, the config's architecture, and the registered functions of the run."""

    run: runs.RunRow
    config: runs.ConfigRow
    model_arch: str
    # The registered functions of the run, with their sources.
    functions: Sequence[Mapping[str, Any]] = ()


class Supply(Protocol):
    def ticker(self) -> Callable[[], None]:
        """Return a function for long work to call often, which raises an error after a cancel."""
        ...

    def facts(self, run_id: int, mst_key: int) -> Facts: ...

    def bundle(self, run_id: int, keys: Sequence[int]) -> Sequence[runs.ConfigRow]:
        """Return the rows of a bundle's configs, in the order of `keys`."""
        ...

    def weights(self, run_id: int, model_id: int, mst_key: int) -> bytes | None: ...

    def own_weights(self, run_id: int, keys: Sequence[int]) -> Mapping[int, bytes]:
        """Return, by `mst_key`, the starting weights of the configs that have their own."""
        ...

    def states(self, run_id: int, keys: Sequence[int], step: int) -> Sequence[State]:
        """Return the states of several configs at one step, in the order of `keys`."""
        ...

    def state(self, run_id: int, mst_key: int, step: int) -> State: ...

    def source(self, run: runs.RunRow, table: str, segment: int) -> PartitionSource: ...

    def evaluations(self, run_id: int, mst_key: int, epoch: int, dataset: str) -> Sequence[bytes]: ...

    def leave_visit(self, visit: runs.VisitRow, state: State) -> int:
        """Store a visit's log row and state; return the size of the stored state in bytes."""
        ...

    def leave_bundle(self, visits: Sequence[runs.VisitRow], states: Sequence[tuple[int, State]]) -> int:
        """Store the log rows and states of a bundle's visits; return the size of all states in bytes."""
        ...

    def leave_evaluation(self, evaluation: measurements.EvaluationRow) -> None: ...

    def leave_metrics(self, measured: Sequence[measurements.Measured]) -> None: ...


@as_owner
def read_state(db: Database, run_id: int, mst_key: int, step: int, place: int | None = None) -> State:
    """Return a config's state at a step; read it only at the distribution key `place`, if that is given."""
    parts = state_rows.read(db, run_id, mst_key, step, place)
    return of_config(parts, run_id, mst_key, step, partial(_frozen, db, run_id))


@as_owner
def _read_states(db: Database, run_id: int, keys: Sequence[int], step: int) -> list[State]:
    # Frozen weights are read while the statement that reads the states is still running.
    frozen = partial(_frozen, db, run_id)
    found = {
        key: of_config(parts, run_id, key, step, frozen)
        for key, parts in state_rows.read_several(db, run_id, dict.fromkeys(keys, step))
    }
    # A state that is missing raises an error.
    return [found[key] if key in found else of_config((), run_id, key, step) for key in keys]


def _frozen(db: Database, run_id: int, digest: str) -> Frozen:
    return memory.get_instance(KeptFrozen).find(digest, partial(state_rows.frozen, db, run_id))


class TableSupply:
    """A supply for a session that can read and write the tables."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def ticker(self) -> Callable[[], None]:
        return cancel.ticker(self._db)

    def facts(self, run_id: int, mst_key: int) -> Facts:
        run, config = runs.run(self._db, run_id), runs.config(self._db, run_id, mst_key)
        used = functions.of_run(self._db, run_id)
        return Facts(run, config, runs.model_arch(self._db, run_id, config.model_id), used)

    def all_facts(self, run_id: int) -> Mapping[int, Facts]:
        """Return the facts of all configs that a run has so far, by `mst_key`."""
        run, configs = runs.run(self._db, run_id), runs.configs(self._db, run_id)
        nets = {a.model_id: a.model_arch for a in runs.architectures(self._db, run_id)}
        used = [dict(row) for row in functions.of_run(self._db, run_id)]
        return {config.mst_key: Facts(run, config, nets[config.model_id], used) for config in configs}

    def bundle(self, run_id: int, keys: Sequence[int]) -> Sequence[runs.ConfigRow]:
        found = {row.mst_key: row for row in runs.configs_among(self._db, run_id, keys)}
        return [found[key] for key in keys]

    def states(self, run_id: int, keys: Sequence[int], step: int) -> Sequence[State]:
        return _read_states(self._db, run_id, keys, step)

    def weights(self, run_id: int, model_id: int, mst_key: int) -> bytes | None:
        return starting_weights.of_config(self._db, run_id, model_id, mst_key)

    def own_weights(self, run_id: int, keys: Sequence[int]) -> Mapping[int, bytes]:
        return starting_weights.read_own_weights(self._db, run_id, keys)

    def state(self, run_id: int, mst_key: int, step: int) -> State:
        return read_state(self._db, run_id, mst_key, step)

    def source(self, run: runs.RunRow, table: str, segment: int) -> PartitionSource:
        handed = find_handed(run, table, segment)
        if handed is not None:
            return handed
        known = self._db.as_caller(run.owner, layout, self._db, table, runs.below(run, table))
        return TableSource(self._db, run.owner, table, segment, known)

    def evaluations(self, run_id: int, mst_key: int, epoch: int, dataset: str) -> Sequence[bytes]:
        return measurements.read_evaluations(self._db, run_id, mst_key, epoch, dataset)

    def leave_visit(self, visit: runs.VisitRow, state: State) -> int:
        clock = time.monotonic()
        self._leave_frozen(visit.run_id, [state])
        size = state_rows.write(
            self._db, visit.run_id, visit.mst_key, visit.step, to_parts(state), visit.place
        )
        seconds = visit.write_seconds + time.monotonic() - clock
        runs.write_visit(self._db, replace(visit, state_bytes=size, write_seconds=seconds))
        return size

    def _leave_frozen(self, run_id: int, states: Sequence[State]) -> None:
        for frozen in {state.frozen.digest: state.frozen for state in states if state.frozen}.values():
            state_rows.write_frozen(self._db, run_id, frozen.digest, frozen_to_parts(frozen))

    def leave_bundle(self, visits: Sequence[runs.VisitRow], states: Sequence[tuple[int, State]]) -> int:
        clock, run_id = time.monotonic(), visits[0].run_id
        self._leave_frozen(run_id, [state for _, state in states])
        parts = ((mst_key, to_parts(state)) for mst_key, state in states)
        sizes = state_rows.write_several(self._db, run_id, visits[0].step, parts, visits[0].place)
        each = (time.monotonic() - clock) / len(visits)
        runs.write_visits(
            self._db,
            [
                replace(visit, state_bytes=size, write_seconds=each)
                for visit, size in zip(visits, sizes, strict=True)
            ],
        )
        return sum(sizes)

    def leave_evaluation(self, evaluation: measurements.EvaluationRow) -> None:
        measurements.write_evaluation(self._db, evaluation)

    def leave_metrics(self, measured: Sequence[measurements.Measured]) -> None:
        measurements.write_metrics(self._db, measured)
