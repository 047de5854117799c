"""Seconds of packing and of a warm run on the server that PG* names: a Greenplum cluster, or PostgreSQL.

    bench/cluster.py digits images wide --segments 3

Called once on each, it gives what docs/greenplum.md compares. A run trains, and evaluates on both sets.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

import server
import workloads


def measure(connection: Any, workload: workloads.Workload, options: argparse.Namespace) -> str:
    server.load(connection, workload)
    packing = server.packing_options(workload, options.segments)
    packs = [server.pack(connection, workload, packing) for _ in range(options.repeat)]
    server.make_configs(connection, workload)
    fitting = json.dumps({"seed": server.SEED, "threads": options.threads})
    first, *warm = [server.fit(connection, workload, fitting)[1] for _ in range(options.repeat + 1)]
    return (
        f"{workload.name}: pack {statistics.median(packs):.2f} s, first run {first:.2f} s,"
        f" warm run {statistics.median(warm):.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="+", choices=workloads.ALL)
    parser.add_argument("--segments", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    server.make_database()
    for name in options.workloads:
        with server.session() as connection:
            print(measure(connection, workloads.named(name), options), flush=True)
    server.drop_database()


if __name__ == "__main__":
    main()
