"""Seconds of packing and of a warm run on the server that PG* names: a Greenplum cluster, or PostgreSQL.

    bench/cluster.py digits images wide --segments 3

Called once on each, it gives what docs/greenplum.md compares. A run trains, and evaluates on both sets; what
part of its time each segment has no visit is that of the last one.
With --bare, plain Keras does the same work in a process for each core, from an export and without its start.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

import contenders
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


def measure(connection: Any, workload: workloads.Workload, options: argparse.Namespace) -> str:
    server.load(connection, workload)
    packing = server.packing_options(workload, options.segments)
    packs = [server.pack(connection, workload, packing) for _ in range(options.repeat)]
    server.make_configs(connection, workload)
    fitting = json.dumps({"seed": server.SEED, "threads": options.threads})
    first, *warm = [server.fit(connection, workload, fitting)[1] for _ in range(options.repeat + 1)]
    ours = statistics.median(warm)
    pack = statistics.median(packs)
    waited = [f"{share:.0%}" for (share,) in server.query(connection, _WITHOUT_VISIT)]
    found = f"{workload.name}: pack {pack:.2f} s, first run {first:.2f} s, warm run {ours:.2f} s"
    found += f", the segments without a visit {' '.join(waited)}"
    return found + (_bare(workload, ours) if options.bare else "")


def _bare(workload: workloads.Workload, ours: float) -> str:
    name = contenders.AS_IT_COMES
    seconds = contenders.bare(name, contenders.Settings()).run(workload, False).outcomes[name].warm_seconds
    return f", {name} {seconds:.2f} s, ours / that {ours / seconds:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="+", choices=workloads.ALL)
    parser.add_argument("--segments", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--bare", action="store_true", help="plain Keras beside it")
    options = parser.parse_args()
    server.make_database()
    for name in options.workloads:
        with server.session() as connection:
            print(measure(connection, workloads.named(name), options), flush=True)
    server.drop_database()


if __name__ == "__main__":
    main()
