"""Keep every segment busy until the plan is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from cerebro_plpy.commands import (
    Average,
    ConfigCommand,
    DropStates,
    Evaluate,
    FailConfig,
    Merge,
    TellEpochs,
    Visit,
    VisitBundle,
)
from cerebro_plpy.errors import CONFIG_FAILED, OUT_OF_MEMORY, CerebroError
from cerebro_plpy.planner import keeping
from cerebro_plpy.planner.plan import Plan
from cerebro_plpy.planner.units import AVERAGE, BUNDLE, EVALUATE, MERGE, PART, VISIT, PartDone, Unit
from cerebro_plpy.topology import Answer, Topology

# States that nobody needs any more are dropped after this time, or when they reach this size.
DROP_SECONDS = 2.0
DROP_BYTES = 256 * 2**20
# Listeners hear of the end of a config's epoch this much later, and of several at once.
TELL_SECONDS = 0.1


class RunLoop:
    """The loop of one run: it sends units of work from the plan to free segments, and takes the answers."""

    def __init__(
        self,
        run_id: int,
        plan: Plan,
        topology: Topology,
        report: Callable[[Unit, Mapping[str, Any]], None],
        decide: Callable[[], None],
        tick: Callable[[], None],
        retries: int,
    ) -> None:
        self._run_id = run_id
        self._plan = plan
        self._topology = topology
        self._report = report
        self._decide = decide
        self._tick = tick
        self._retries = retries
        # When each segment was given its current unit.
        self._began: dict[int, float] = {}
        # How often a unit was lost, by its purpose: its last epoch may differ at the next try.
        self._lost: dict[tuple[object, ...], int] = {}
        self._stale: set[int] = set()
        self._stale_bytes = 0
        self._next_drop = time.monotonic() + DROP_SECONDS
        self._ended: list[tuple[int, int]] = []
        self._next_tell = 0.0

    def run(self) -> None:
        self._decide()
        while not self._plan.done():
            for segment in range(self._plan.segments):
                unit = self._plan.next(segment) if self._topology.free(segment) else None
                if unit is not None:
                    self._submit(unit)
            # Done here because the segments are working now, not waiting.
            self._drop_states()
            self._tell_epochs()
            self._tick()
            for answer in self._topology.answers():
                self._take(answer)
            self._decide()
        self._drop_states()
        self._tell_epochs(at_once=True)
        self._topology.finish_background()

    def _submit(self, unit: Unit) -> None:
        self._began[unit.segment] = time.monotonic()
        self._topology.submit(self._plan.configs[unit.mst_key].backend, self._command(unit))

    def _command(self, unit: Unit) -> ConfigCommand:
        run_id, mst_key, epoch, segment = self._run_id, unit.mst_key, unit.epoch, unit.segment
        if unit.kind in (VISIT, PART):
            return Visit(
                cut_configs=keeping.find_cut_configs(self._plan, unit.keys),
                run_id=run_id,
                mst_key=mst_key,
                epoch=epoch,
                segment=segment,
                stop=unit.stop,
                part=unit.kind == PART,
            )
        if unit.kind == BUNDLE:
            return VisitBundle(
                run_id=run_id,
                mst_key=mst_key,
                epoch=epoch,
                segment=segment,
                members=unit.members,
                until=unit.until,
                measured=unit.measured,
                form=unit.form,
                stop=unit.stop if self._plan.configs[mst_key].home is None else None,
            )
        if unit.kind == AVERAGE:
            parts = [part for _, part in sorted(self._plan.configs[mst_key].parts.items())]
            return Average(
                run_id=run_id,
                mst_key=mst_key,
                epoch=epoch,
                segment=segment,
                rows=[part.rows for part in parts],
                losses=[part.loss for part in parts],
            )
        if unit.kind == MERGE:
            return Merge(run_id=run_id, mst_key=mst_key, epoch=epoch, segment=segment, members=unit.members)
        return Evaluate(
            run_id=run_id,
            mst_key=mst_key,
            epoch=epoch,
            segment=segment,
            members=unit.members,
            cut_configs=keeping.find_cut_configs(self._plan, unit.keys),
        )

    def _take(self, answer: Answer) -> None:
        unit = self._plan.under_way(answer.segment)
        if answer.error is not None:
            self._take_error(unit, answer.error, answer.lost)
            return
        # The seconds for which the segment was busy, with the commit and both transfers.
        result = {**(answer.result or {}), "seconds": time.monotonic() - self._began[unit.segment]}
        if unit.kind == VISIT:
            self._plan.visited(unit, result["seconds"], result["loss"])
            if unit.stop == self._plan.segments - 1:
                self._ended.append((unit.mst_key, unit.epoch))
        elif unit.kind == BUNDLE:
            self._take_bundle(unit, result)
        elif unit.kind == PART:
            self._plan.parted(unit, result["seconds"], PartDone(result["rows"], result["loss"]))
        elif unit.kind == AVERAGE:
            self._plan.averaged(unit, result["loss"])
            self._ended.append((unit.mst_key, unit.epoch))
        elif unit.kind == EVALUATE:
            self._plan.evaluated_on(unit, result["seconds"])
        else:
            self._plan.merged(unit)
        self._lost.pop(_purpose(unit), None)
        self._stale.update(unit.keys)
        self._stale_bytes += result.get("state_bytes", 0)
        if unit.kind == MERGE and unit.members:
            for key in unit.members:
                self._report(replace(unit, mst_key=key, members=()), result[str(key)])
            return
        self._report(unit, result)

    def _take_bundle(self, unit: Unit, result: Mapping[str, Any]) -> None:
        failures = {int(key): reason for key, reason in result["failures"].items()}
        self._plan.bundled(unit, result["seconds"], result["losses"], failures)
        hops = self._plan.configs[unit.mst_key].home is None
        if not hops:
            # One config stands for all: listeners look at the whole run.
            self._ended.append((unit.mst_key, unit.until))
        elif unit.stop == self._plan.segments - 1:
            self._ended += [(key, unit.epoch) for key in unit.members if key not in failures]
        for key, reason in failures.items():
            self._note_failure(key, unit, reason)

    def _take_error(self, unit: Unit, error: CerebroError, lost: bool) -> None:
        configs = [self._plan.configs[key] for key in unit.keys]
        gone = any(config.failure is not None or config.deleted for config in configs)
        if len(configs) > 1:
            # The config at fault shows when each config goes by itself, or with fewer others.
            if not (lost or gone or error.sqlstate in (OUT_OF_MEMORY, CONFIG_FAILED)):
                raise error
            self._plan.again(unit)
        elif gone:
            self._plan.left(unit)
        elif lost or error.sqlstate == OUT_OF_MEMORY:
            purpose = _purpose(unit)
            times = self._lost[purpose] = self._lost.get(purpose, 0) + 1
            if times <= self._retries:
                self._plan.again(unit)
                return
            what = "its segment session was lost" if lost else "it failed"
            self._fail(unit, f"{what} {times} times: {error.message}")
        elif error.sqlstate == CONFIG_FAILED:
            self._fail(unit, error.message)
        else:
            raise error

    def _fail(self, unit: Unit, reason: str) -> None:
        self._plan.failed(unit, reason)
        for key in unit.keys:
            self._note_failure(key, unit, reason)

    def _note_failure(self, mst_key: int, unit: Unit, reason: str) -> None:
        self._topology.background(
            FailConfig(
                run_id=self._run_id,
                mst_key=mst_key,
                epoch=unit.epoch,
                segment=unit.segment,
                reason=reason,
            )
        )
        self._report(replace(unit, mst_key=mst_key), {"failure": reason})

    def _drop_states(self) -> None:
        """Have unneeded states deleted, but only now and then, since each time costs a transaction."""
        now = time.monotonic()
        if not self._stale or (now < self._next_drop and self._stale_bytes < DROP_BYTES):
            return
        keep = self._plan.needed_steps(self._stale)
        self._topology.background(DropStates(run_id=self._run_id, keep=list(keep.items())))
        self._stale.clear()
        self._stale_bytes = 0
        self._next_drop = now + DROP_SECONDS

    def _tell_epochs(self, at_once: bool = False) -> None:
        now = time.monotonic()
        if self._ended and (at_once or now >= self._next_tell):
            self._topology.background(TellEpochs(run_id=self._run_id, ended=self._ended))
            self._ended = []
            self._next_tell = now + TELL_SECONDS


def _purpose(unit: Unit) -> tuple[object, ...]:
    return unit.kind, unit.keys, unit.epoch, unit.segment, unit.stop
