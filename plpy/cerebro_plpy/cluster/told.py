"""The facts of a run that a segment's process was sent and keeps for later commands."""

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

# How long the list of a partition's buffers is valid, since listing them is expensive on a cluster. Each
# command checks whether the caller may still read the table.
_LOOK_SECONDS = 1.0
# A smaller difference between two clocks is ignored, because sending a command takes time, too.
_TOGETHER_SECONDS = 1.0


class CoordinatorClock:
    """The clock of the coordinator's host, estimated from the times at which commands were sent."""

    def __init__(self) -> None:
        self._ahead = -math.inf

    def hear(self, at: float) -> None:
        """Note the time when the coordinator sent a command; the command with the least delay counts."""
        self._ahead = max(self._ahead, at - time.time())

    def forget(self) -> None:
        self._ahead = -math.inf

    @property
    def ahead(self) -> float:
        """The seconds by which the coordinator's clock is ahead of this host's, or 0 if they are few."""
        return self._ahead if _TOGETHER_SECONDS <= abs(self._ahead) < math.inf else 0.0

    def now(self) -> float:
        return time.time() + self.ahead


class RunTold:
    """The facts of one run that this process was sent: the run, its configs, nets, functions and servers."""

    def __init__(self, run: runs.RunRow, has_weights: bool) -> None:
        self.run = run
        self.has_weights = has_weights
        # Where the server of each of the run's segments is, in segment order.
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
        """Return a tuple with the server that has a config's state at a step; None if the server is unknown.

        The tuple tells an unknown server from this process's own, for which `Where` is None.
        """
        config = self._configs.get(mst_key)
        if config is None or not self.servers:
            return None
        run = self.run
        segment = routes.segment_of(run.seed, config.epochs_before, config.key, step, run.segments)
        return (self.servers[segment],)


class Looks:
    """A cache of the buffers of partitions, as they were last listed with the caller's rights."""

    def __init__(self) -> None:
        self._seen: dict[PartitionPlace, tuple[float, Seen]] = {}
        self._sure: set[PartitionPlace] = set()

    def begin(self) -> None:
        """Begin another command: from now on, check each cached list of buffers before it is used again."""
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
