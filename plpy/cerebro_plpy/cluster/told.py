"""The facts of a run that a segment's process has been told and keeps for later commands."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cerebro_plpy.cluster.protocol import Lacking, Where
from cerebro_plpy.database import Database
from cerebro_plpy.planner import routes
from cerebro_plpy.segment.supply import Facts
from cerebro_plpy.store.packed import partitions
from cerebro_plpy.store.runs import runs

PartitionPlace = tuple[str, str, int]
Seen = tuple[object, list[partitions.Buffer]]

# How long a look at a partition as the caller holds: it is expensive on a cluster. Every command asks whether
# the caller may still read the table.
_LOOK_SECONDS = 1.0
# Clocks that are less apart are taken for one: a command is under way for a while, too.
_TOGETHER_SECONDS = 1.0


class CoordinatorClock:
    """The clock of the coordinator's host, as far as the time in its commands tells of it."""

    def __init__(self) -> None:
        self._ahead = -math.inf

    def hear(self, at: float) -> None:
        """Note when a command was sent; the one that came fastest tells most."""
        self._ahead = max(self._ahead, at - time.time())

    def forget(self) -> None:
        self._ahead = -math.inf

    @property
    def ahead(self) -> float:
        """By how many seconds it is ahead of the clock of this host."""
        return self._ahead if _TOGETHER_SECONDS <= abs(self._ahead) < math.inf else 0.0

    def now(self) -> float:
        return time.time() + self.ahead


class RunTold:
    """One run, as far as this process has been told of it."""

    def __init__(self, run: runs.RunRow, has_weights: bool) -> None:
        self.run = run
        self.has_weights = has_weights
        # How the servers are found on which the run's segments lie, one after the other.
        self.servers: Sequence[Where] = []
        self._configs: dict[int, runs.ConfigRow] = {}
        self._nets: dict[int, str] = {}
        self._functions: Sequence[Mapping[str, Any]] = ()

    def add(
        self,
        configs: Sequence[Mapping[str, Any]],
        nets: Sequence[tuple[int, str]],
        functions: Sequence[Mapping[str, Any]],
    ) -> None:
        self._configs |= {config["mst_key"]: runs.ConfigRow(**config) for config in configs}
        self._nets |= dict(nets)
        self._functions = functions

    def facts(self, mst_key: int) -> Facts:
        if mst_key not in self._configs:
            raise Lacking("config", self.run.run_id, mst_key)
        config = self._configs[mst_key]
        return Facts(self.run, config, self._nets[config.model_id], self._functions)

    def where(self, mst_key: int, step: int) -> tuple[Where] | None:
        """Return how to reach the server that has a config's state after a step; None if that is unknown."""
        config = self._configs.get(mst_key)
        if config is None or not self.servers:
            return None
        epoch, stop = routes.place_of(abs(step), self.run.segments)
        if step < 0:
            return (self.servers[stop],)
        route = routes.route(self.run.seed, config.epochs_before + epoch, config.key, self.run.segments)
        return (self.servers[route[stop]],)


class Looks:
    """A cache of what the caller has seen of partitions."""

    def __init__(self) -> None:
        self._seen: dict[PartitionPlace, tuple[float, Seen]] = {}
        self._sure: set[PartitionPlace] = set()

    def begin(self) -> None:
        """Begin another command, for which no look is certain yet."""
        self._sure.clear()

    def add(self, place: PartitionPlace, found: str | None) -> None:
        self._seen[place] = time.monotonic(), partitions.parse(found)
        self._sure.add(place)

    def clear(self) -> None:
        self._seen.clear()
        self._sure.clear()

    def look(self, db: Database, place: PartitionPlace) -> Seen:
        if place not in self._sure:
            role, table, _ = place
            at = self._seen[place][0] if place in self._seen else -math.inf
            if time.monotonic() - at >= _LOOK_SECONDS or not partitions.may_read(db, role, table):
                raise Lacking("look", *place)
            self._sure.add(place)
        return self._seen[place][1]
