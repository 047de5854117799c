"""Computes from a run's visits and evaluations how much of its time each kind of work took."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import server

_VISITS = """
SELECT segment, extract(epoch FROM started_at)::float8, extract(epoch FROM ended_at)::float8,
       read_seconds, train_seconds, write_seconds
FROM cerebro.visits WHERE run_id = %s
"""

_EVALUATIONS = """
SELECT COALESCE(sum(seconds), 0), min(seconds) FILTER (WHERE epoch < r.epochs),
       count(DISTINCT (mst_key, epoch, segment)) + count(DISTINCT (mst_key, epoch)),
       (SELECT extract(epoch FROM max(m.at))::float8 FROM cerebro._metric AS m WHERE m.run_id = r.run_id)
FROM cerebro._run AS r LEFT JOIN cerebro._evaluation AS e USING (run_id)
WHERE r.run_id = %(run)s GROUP BY r.run_id, r.epochs
"""


@dataclass(frozen=True)
class Shares:
    """The seconds of all segments, from the first visit to the last metric, divided by kind of work.

    `commands` is the time between two commands that follow each other at once: a commit, an answer, the
    choice of the next config, a request. It is the median gap between visits, times the number of visits, of
    evaluations on a segment, and of merges. Where configs are evaluated between visits, gaps that are long
    enough for an evaluation do not count. `waiting` is the rest of the seconds.
    """

    whole: float
    train: float
    hops: float
    evaluate: float
    commands: float

    @property
    def waiting(self) -> float:
        return self.whole - self.train - self.hops - self.evaluate - self.commands

    def compute_share(self, seconds: float) -> float:
        return seconds / self.whole


def shares(connection: Any, run_id: int) -> Shares:
    visits = server.query(connection, _VISITS, (run_id,))
    evaluated, shortest, commands, last_metric = server.query(connection, _EVALUATIONS, {"run": run_id})[0]
    segments = len({visit[0] for visit in visits})
    end = max([last_metric or 0.0, *(visit[2] for visit in visits)])
    return Shares(
        segments * (end - min(visit[1] for visit in visits)),
        sum(visit[4] for visit in visits),
        sum(visit[3] + visit[5] for visit in visits),
        evaluated,
        (len(visits) + commands) * _gap(visits, math.inf if shortest is None else shortest),
    )


def _gap(visits: Sequence[tuple[Any, ...]], longest: float) -> float:
    following = pairwise(sorted(visits))
    gaps = [later[1] - earlier[2] for earlier, later in following if earlier[0] == later[0]]
    short = [gap for gap in gaps if gap < longest]
    return statistics.median(short) if short else 0.0
