"""Seconds of packing and of a run on the server that PG* names: a Greenplum cluster, or PostgreSQL.

    bench/cluster.py digits images wide --beside 'host=… port=… user=…'

With --beside, the same on another server as well: the runs take turns, and the ratio of their medians is what
docs/greenplum.md has. A run trains, and evaluates on both sets; what part of its time each segment has no
visit is that of the last one. With --fresh each run is the first call of a session, with imports and all.
With --bare, plain Keras does the same work in a process for each core, from an export and without its start.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import contenders
import psycopg2.extensions
import server
import workloads

# Of the time until the first config had finished: after that there are not visits enough for all segments.
_WITHOUT_VISIT = """
WITH visit AS (SELECT * FROM cerebro.visits WHERE run_id = cerebro.last_run()),
finished AS (SELECT min(ended_at) AS at FROM visit WHERE step = (SELECT max(step) FROM visit))
SELECT 1 - sum(extract(epoch FROM v.ended_at - v.started_at))
    / extract(epoch FROM max(v.ended_at) - min(v.started_at))
FROM visit AS v, finished AS f WHERE v.ended_at <= f.at GROUP BY v.segment ORDER BY v.segment
"""


@dataclass
class Place:
    """A server, and the seconds that were measured on it for one workload."""

    name: str
    environment: Mapping[str, str]
    connection: Any = None
    packs: list[float] = field(default_factory=list)
    runs: list[float] = field(default_factory=list)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Let new connections of the benchmark go to this server until the end of the block."""
        before = {name: os.environ.get(name) for name in self.environment}
        os.environ.update(self.environment)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value

    @contextmanager
    def session(self) -> Iterator[None]:
        opened = ExitStack()
        with self.at_work():
            self.connection = opened.enter_context(server.session())
        try:
            yield
        finally:
            with self.at_work():
                self.connection.close()
                opened.close()

    def renew(self) -> None:
        """Open a new session in place of the old one; it has nothing in memory and no segment sessions."""
        with self.at_work():
            self.connection.close()
            server.wait_for_end()
            self.connection = server.connect()

    @property
    def median(self) -> float:
        """The median seconds of all runs except the first."""
        return statistics.median(self.runs[1:])


def _places(beside: str | None) -> list[Place]:
    found = [Place("here", {})]
    if beside is not None:
        given = psycopg2.extensions.parse_dsn(beside)
        found.append(Place("beside", {f"PG{name.upper()}": str(value) for name, value in given.items()}))
    return found


def measure(workload: workloads.Workload, options: argparse.Namespace) -> Iterator[str]:
    places = _places(options.beside)
    with ExitStack() as opened:
        for place in places:
            opened.enter_context(place.session())
            _make_ready(place, workload, options)
        for _ in range(options.repeat + 1):
            for place in places:
                _run(place, workload, options)
        for place in places:
            yield _found(place, workload)
        here, *others = places
        for other in others:
            pairs = sorted(ours / theirs for ours, theirs in zip(here.runs[1:], other.runs[1:], strict=True))
            yield (
                f"{workload.name}: here / beside {here.median / other.median:.2f},"
                f" of single pairs {pairs[0]:.2f} to {pairs[-1]:.2f}"
            )
    if options.bare:
        yield _bare(workload, places[0].median)


def _make_ready(place: Place, workload: workloads.Workload, options: argparse.Namespace) -> None:
    server.load(place.connection, workload)
    packing = server.packing_options(workload, options.segments)
    place.packs = [server.pack(place.connection, workload, packing) for _ in range(options.repeat)]
    server.make_configs(place.connection, workload)


def _run(place: Place, workload: workloads.Workload, options: argparse.Namespace) -> None:
    if options.fresh:
        place.renew()
    fitting = json.dumps({"seed": server.SEED, "threads": options.threads})
    place.runs.append(server.fit(place.connection, workload, fitting)[1])


def _found(place: Place, workload: workloads.Workload) -> str:
    waited = [f"{share:.0%}" for (share,) in server.query(place.connection, _WITHOUT_VISIT)]
    return (
        f"{workload.name} {place.name}: pack {statistics.median(place.packs):.2f} s,"
        f" first run {place.runs[0]:.2f} s, those after it {place.median:.2f} s,"
        f" the segments without a visit {' '.join(waited)}"
    )


def _bare(workload: workloads.Workload, ours: float) -> str:
    name = contenders.AS_IT_COMES
    seconds = contenders.bare(name, contenders.Settings()).run(workload, False).outcomes[name].warm_seconds
    return f"{workload.name}: {name} {seconds:.2f} s, ours / that {ours / seconds:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="+", choices=workloads.ALL)
    parser.add_argument("--segments", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--beside", metavar="DSN", help="another server that does the same in turn")
    parser.add_argument("--fresh", action="store_true", help="each run is the first call of a session")
    parser.add_argument("--bare", action="store_true", help="plain Keras beside it")
    options = parser.parse_args()
    places = _places(options.beside)
    for place in places:
        with place.at_work():
            server.make_database()
    for name in options.workloads:
        for line in measure(workloads.named(name), options):
            print(line, flush=True)
    for place in places:
        with place.at_work():
            server.drop_database()


if __name__ == "__main__":
    main()
