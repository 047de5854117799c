"""Where the time of a run of ours went, from its timeline."""

from __future__ import annotations

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


@dataclass(frozen=True)
class Shares:
    """Seconds of all segments together, from the first visit to the last metric, cut by what they went to.

    `commands` is what lies between two visits that follow each other at once: a commit, an answer, the choice
    of the next config, a command; the median of all gaps, for each of them. `waiting` is what is left.
    """

    whole: float
    train: float
    hops: float
    evaluate: float
    commands: float

    @property
    def waiting(self) -> float:
        return self.whole - self.train - self.hops - self.evaluate - self.commands

    def of(self, seconds: float) -> float:
        return seconds / self.whole


def shares(connection: Any, run_id: int) -> Shares:
    visits = server.query(connection, _VISITS, (run_id,))
    evaluated, last_metric = server.query(
        connection,
        "SELECT (SELECT COALESCE(sum(seconds), 0) FROM cerebro._evaluation WHERE run_id = %(run)s),"
        " (SELECT extract(epoch FROM max(at))::float8 FROM cerebro._metric WHERE run_id = %(run)s)",
        {"run": run_id},
    )[0]
    segments = len({visit[0] for visit in visits})
    end = max([last_metric or 0.0, *(visit[2] for visit in visits)])
    return Shares(
        segments * (end - min(visit[1] for visit in visits)),
        sum(visit[4] for visit in visits),
        sum(visit[3] + visit[5] for visit in visits),
        evaluated,
        _commands(visits),
    )


def _commands(visits: Sequence[tuple[Any, ...]]) -> float:
    following = pairwise(sorted(visits))
    gaps = [later[1] - earlier[2] for earlier, later in following if earlier[0] == later[0]]
    return len(visits) * statistics.median(gaps) if gaps else 0.0
