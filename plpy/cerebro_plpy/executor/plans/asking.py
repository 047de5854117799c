"""Asks an engine what the nets of a call are and what mini-batches take, for plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cerebro_plpy.commands import BesideRows, Engine, Probe, ProbedConfig, Sent
from cerebro_plpy.database import Database
from cerebro_plpy.executor.running import run as runner
from cerebro_plpy.executor.starting import gpus
from cerebro_plpy.executor.starting import request as requests
from cerebro_plpy.planner.estimating.rates import Observation, Rates
from cerebro_plpy.planner.estimating.work import ConfigKind, RunWork
from cerebro_plpy.topology.choose import warm_sessions


class AskedEngine:
    """An engine that describes and times nets, in running segment sessions or else in this session."""

    def __init__(self, db: Database, request: requests.Request) -> None:
        self._db = db
        engines = request.engines
        dealt = gpus.of_segments(db, engines.use_gpus, request.source.summary, False)
        self._engines = {name: engines.start(name, dealt) for name in request.backends}
        self._sessions = warm_sessions(db, list(self._engines.values()), request.segments)

    @property
    def warm(self) -> bool:
        return self._sessions is not None

    def describe(self, request: requests.Request) -> Mapping[str, Mapping[str, Any]]:
        """Return the engine's description of the nets and configs of a request."""
        command = replace(runner.check_command(self._db, request), sizes=True)
        engine = next(iter(self._engines.values()))
        return self._ask(command, replace(engine, or_any=True))

    def _ask(self, command: BesideRows, engine: Engine) -> Mapping[str, Any]:
        if self._sessions is not None:
            return self._sessions.ask(engine.backend, command)
        return self._db.run_here(Sent(command, engine))

    def probe(
        self,
        work: RunWork,
        request: requests.Request,
        examples: Sequence[requests.Chosen],
        described: Mapping[str, Mapping[str, Any]],
    ) -> tuple[RunWork, list[Observation]]:
        """Time one config of each kind; return the times in the form in which runs store theirs.

        The work is returned with the memory that the engine says a step takes.
        """
        one_each = {work.kinds[config.mst_key].name: config for config in examples}.values()
        summary, check = request.source.summary, runner.check_command(self._db, request)
        found: dict[str, Mapping[str, Any]] = {}
        for name, engine in self._engines.items():
            own = [c for c in one_each if request.engines.find_engine(c.model_id) == name]
            command = Probe(
                architectures={model_id: facts["json"] for model_id, facts in described.items()},
                configs=[ProbedConfig(c.mst_key, c.model_id, c.compile_params, c.batch_size) for c in own],
                functions=check.functions,
                input_shapes=summary.input_shapes,
                target_shapes=summary.target_shapes,
                target_kinds=check.target_kinds,
                recompute=request.limits.recompute,
                device_memory_mb=request.limits.device_memory_mb,
            )
            found.update(self._ask(command, engine))
        taken = {work.kinds[int(key)].name: told["step_bytes"] for key, told in found.items()}
        most = max(work.rows, default=0)
        kinds = {
            # The engine was asked for whole nets and full batches.
            key: kind
            if kind.trunk is not None or kind.batch_size > most * kind.share
            else replace(kind, step_bytes=taken.get(kind.name))
            for key, kind in work.kinds.items()
        }
        times = [_observed(work, work.kinds[int(key)], told) for key, told in found.items()]
        return replace(work, kinds=kinds), times


def _observed(work: RunWork, kind: ConfigKind, times: Mapping[str, float]) -> Observation:
    plain = Rates((), work.host_of(0), work.threads)
    return Observation(
        host=work.host_of(0),
        backend=kind.backend,
        threads=work.threads,
        kind=kind.name,
        architecture=kind.architecture,
        batch_size=kind.batch_size,
        work=kind.work,
        parameters=kind.parameters,
        state_bytes=kind.state_bytes,
        visits=0,
        batch_seconds=times["batch"],
        compile_seconds=times["compile"] or None,
        write_seconds=plain.writing(kind).seconds,
        rest_seconds=plain.resting().seconds,
        evaluation_seconds=times["evaluation"],
        read_seconds=None,
    )
