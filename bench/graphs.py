"""Measures `cerebro.propagate` on a random graph as large as ogbn-arxiv, and updates of its table."""

from __future__ import annotations

import time
from typing import Any

import server
import tables
from details import Section, Tell
from measure import Spread
from tables import Goal

NODES, EDGES, FEATURES, HOPS = 170_000, 1_200_000, 128, 2
MOST_SECONDS, MOST_MEGABYTES, MOST_SHARE = 20, 1024, 0.1
# New edges of three refreshes: those of the first reach few nodes.
NEW_EDGES = (50, 500, 12_000)
PAPERS, CITES, MADE = "graph_papers", "graph_cites", "graph_hops"
EDGE = f"(random() * {NODES - 1})::integer AS citing, (random() * {NODES - 1})::integer AS cited"


def graphs(tell: Tell) -> Section:
    """Measure propagating along all edges, and refreshing the table after edges were added."""
    with server.session() as connection:
        _drop(connection)
        _load(connection)
    with server.session() as connection:
        whole, nodes = _timed(
            connection,
            f"SELECT cerebro.propagate('{PAPERS}', '{CITES}', '{MADE}', 'paper', 'citing', 'cited', '{{x}}',"
            f" {HOPS})",
        )
        status = server.value(connection, "SELECT pg_read_file('/proc/self/status')")
        (peak,) = (int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmHWM"))
        tell(f"{HOPS} hops of {nodes:,} nodes: {whole:.1f} s, {peak} MB")
        lines = [[f"{HOPS} hops from scratch", f"{nodes:,}", f"{whole:.1f}", ""]]
        shares = list[float]()
        for count in NEW_EDGES:
            server.query(connection, f"INSERT INTO {CITES} SELECT {EDGE} FROM generate_series(1, {count})")
            seconds, nodes = _timed(connection, f"SELECT cerebro.refresh_propagation('{MADE}')")
            tell(f"{count:,} new edges: {nodes:,} nodes, {seconds:.1f} s")
            shares.append(seconds / whole)
            lines.append([f"{count:,} new edges", f"{nodes:,}", f"{seconds:.1f}", f"{shares[-1]:.3f}"])
        _drop(connection)
    text = (
        f"{NODES:,} nodes with {FEATURES} features, {EDGES:,} edges. The session takes {peak} MB at the peak."
        "\n\n" + tables.markdown(["", "nodes computed", "seconds", "over from scratch"], lines)
    )
    goals = [
        Goal("graphs: seconds from scratch", MOST_SECONDS, Spread.from_values([whole])),
        Goal("graphs: MB at the peak", MOST_MEGABYTES, Spread.from_values([peak])),
        Goal("graphs: a refresh of few nodes, over from scratch", MOST_SHARE, Spread.from_values(shares[:1])),
    ]
    return Section("Graphs", text, goals)


def _timed(connection: Any, call: str) -> tuple[float, int]:
    began = time.perf_counter()
    nodes = server.value(connection, call)
    return time.perf_counter() - began, nodes


def _load(connection: Any) -> None:
    server.query(connection, "SELECT setseed(0.5)")
    server.query(
        connection,
        f"CREATE TABLE {PAPERS} AS SELECT i AS paper, (SELECT array_agg(random()::real)"
        f" FROM generate_series(1, {FEATURES}) WHERE i >= 0) AS x FROM generate_series(0, {NODES - 1}) AS i",
    )
    server.query(connection, f"CREATE TABLE {CITES} AS SELECT {EDGE} FROM generate_series(1, {EDGES})")
    server.query(connection, f"VACUUM ANALYZE {PAPERS}, {CITES}")


def _drop(connection: Any) -> None:
    made = [f"{MADE}{end}" for end in ("", "_summary", "_nodes")]
    server.drop(connection, [PAPERS, CITES, *made])
