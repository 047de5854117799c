"""Simulates a run without server and without Keras: configs hop over segments, visits take random times.

It checks the decisions of a search procedure: only a config that waits may be stopped, or go on to a
later epoch. The run is over when no config trains any more.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cerebro_plpy.logical.search.template import Clone, Decision, GoOn, Procedure, Result, StartConfig, Stop
from cerebro_plpy.planner import routes

Begun = StartConfig | Clone
Curve = Callable[["Config", int], float | None]


@dataclass
class Config:
    """A config in the simulation; `history` has its value after each epoch.

    The history of a clone begins with the values that its source had when it was cloned.
    """

    begun: Begun
    until: int
    epoch: int = 0
    stop: int = 0
    state: str = "training"
    busy: bool = False
    history: list[float | None] = field(default_factory=list)

    @property
    def key(self) -> int:
        return self.begun.mst_key


class Simulation:
    """A simulated run of a search procedure; `curve` returns values, `order` seeds the times of visits."""

    def __init__(self, procedure: Procedure, curve: Curve, segments: int = 3, order: int = 0) -> None:
        self.configs: dict[int, Config] = {}
        self.results: list[Result] = []
        self.decisions: list[Decision] = []
        self.visits = 0
        self._procedure = procedure
        self._curve = curve
        self._segments = segments
        self._random = random.Random(order)
        self._clock = 0.0
        self._ends: list[tuple[float, int, int]] = []
        self._free = set(range(segments))

    def run(self) -> Simulation:
        self._apply(self._procedure.begin())
        while self._dispatch() or self._ends:
            self._clock, segment, key = heapq.heappop(self._ends)
            self._free.add(segment)
            self._visited(self.configs[key])
        return self

    def states(self, state: str) -> list[int]:
        return [key for key, config in self.configs.items() if config.state == state]

    def epochs(self) -> dict[int, int]:
        return {key: config.epoch for key, config in self.configs.items()}

    def _dispatch(self) -> bool:
        for segment in sorted(self._free):
            waiting = [c for c in self.configs.values() if self._stands_at(c, segment)]
            if waiting:
                config = max(waiting, key=lambda c: (c.until - c.epoch, -c.key))
                config.busy = True
                self._free.remove(segment)
                time = self._clock + self._random.lognormvariate(0, 0.7)
                heapq.heappush(self._ends, (time, segment, config.key))
        return bool(self._ends)

    def _stands_at(self, config: Config, segment: int) -> bool:
        if config.busy or config.state != "training":
            return False
        return routes.route(1, config.epoch + 1, config.key, self._segments)[config.stop] == segment

    def _visited(self, config: Config) -> None:
        self.visits += 1
        config.busy = False
        config.stop += 1
        if config.stop < self._segments:
            return
        config.stop = 0
        config.epoch += 1
        value = self._curve(config, config.epoch)
        config.history.append(value)
        if value is None or config.epoch == config.until:
            config.state = "waiting" if value is not None else "failed"
            self._tell(Result(config.key, config.epoch, value))

    def _tell(self, result: Result) -> None:
        self.results.append(result)
        self._apply(self._procedure.observe(result))

    def _apply(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            self.decisions.append(decision)
            assert decision.reason
            match decision:
                case StartConfig() | Clone():
                    self._begin(decision)
                case GoOn(key, epochs):
                    config = self.configs[key]
                    assert config.state == "waiting" and epochs > config.epoch
                    config.state, config.until = "training", epochs
                case Stop(key):
                    assert self.configs[key].state == "waiting"
                    self.configs[key].state = "stopped"

    def _begin(self, begun: Begun) -> None:
        assert begun.mst_key not in self.configs
        config = Config(begun, begun.epochs)
        if isinstance(begun, Clone):
            source = self.configs[begun.source]
            assert source.begun.model_id == begun.model_id
            config.epoch, config.history = source.epoch, list(source.history)
        assert config.until > config.epoch
        self.configs[begun.mst_key] = config


def replay(procedure: Procedure, results: Iterable[Result]) -> list[Decision]:
    """Pass logged results to a search procedure in their order, and return all its decisions."""
    decisions = procedure.begin()
    for result in results:
        decisions += procedure.observe(result)
    return decisions
