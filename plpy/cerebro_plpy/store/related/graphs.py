"""SQL of cerebro.propagate: nodes and edges as numbers, and the table of what each hop makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cerebro_plpy.database import Database, Row
from cerebro_plpy.store.arrays import read_array
from cerebro_plpy.store.dialect import distributed
from cerebro_plpy.store.names import Table, TargetTable, quote, temporary
from cerebro_plpy.store.packed.packed import Expression

# Of this transaction's own; no row of it leaves.
_NODES, _HOPS = "cerebro_numbered_nodes", "cerebro_propagated"
_NUMBERED, _MADE = temporary(_NODES), temporary(_HOPS)
# So many nodes' edges come in one row.
_SHIFT = 14


@dataclass(frozen=True)
class Edges:
    """The table of edges, and its columns: both ends, and how much an edge counts."""

    table: Table
    source: str
    target: str
    weight: str | None

    @property
    def counted(self) -> str:
        """The weight of an edge s in SQL."""
        return "1::double precision" if self.weight is None else f"s.{quote(self.weight)}::double precision"


def count_ids(db: Database, nodes: Table, id_column: str) -> Row:
    """Return how many nodes there are, how many have an id, and how many ids there are."""
    name = quote(id_column)
    return db.query_once(
        f"SELECT count(*) AS nodes, count(s.{name}) AS present, count(DISTINCT s.{name}) AS ids"
        f" FROM {nodes.rows}"
    )[0]


def number_nodes(db: Database, nodes: Table, id_column: str) -> None:
    """Give each node a number, in the order of the ids, for as long as the transaction lasts."""
    db.query_once(
        f"CREATE TEMPORARY TABLE {_NODES} ON COMMIT DROP AS"
        f" SELECT s.{quote(id_column)} AS id, row_number() OVER (ORDER BY s.{quote(id_column)}) - 1 AS i"
        f" FROM {nodes.rows}{distributed(db, 'BY (id)')}"
    )
    db.query_once(f"ANALYZE {_NUMBERED}")


def read_features(
    db: Database, nodes: Table, id_column: str, features: Sequence[Expression], batch: int
) -> Iterator[list[Row]]:
    """Read the features of all nodes, in the order of their numbers."""
    columns = ", ".join(f"{one.text} AS c{place}" for place, one in enumerate(features))
    return db.scan(
        f"SELECT {columns} FROM {nodes.rows} JOIN {_NUMBERED} AS n ON n.id = s.{quote(id_column)}"
        " ORDER BY n.i",
        batch=batch,
    )


def count_edges(db: Database, edges: Edges) -> Row:
    """Return how many edges there are, and how many weights are no number from 0 on."""
    weight = edges.counted
    return db.query_once(
        "SELECT count(*) AS edges, count(*) FILTER (WHERE"
        f" NOT coalesce({weight} >= 0 AND {weight} < 'Infinity', FALSE)) AS wrong FROM {edges.table.rows}"
    )[0]


def read_edges(db: Database, edges: Edges) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return sources, targets and weights of the edges whose ends are nodes, by the nodes' numbers."""
    parts = db.scan(
        "SELECT cerebro._array_bytes(array_agg(e.source)) AS source,"
        " cerebro._array_bytes(array_agg(e.target)) AS target,"
        " cerebro._array_bytes(array_agg(e.weight)) AS weight"
        f" FROM (SELECT a.i AS source, b.i AS target, {edges.counted} AS weight FROM {edges.table.rows}"
        f" JOIN {_NUMBERED} AS a ON a.id = s.{quote(edges.source)}"
        f" JOIN {_NUMBERED} AS b ON b.id = s.{quote(edges.target)}) AS e"
        f" GROUP BY e.target >> {_SHIFT} ORDER BY e.target >> {_SHIFT}",
        batch=16,
    )
    rows = [row for some in parts for row in some]
    kinds = {"source": "<i8", "target": "<i8", "weight": "<f8"}
    source, target, weight = (
        np.concatenate([np.empty(0, kind), *(read_array(row[name], kind) for row in rows)])
        for name, kind in kinds.items()
    )
    return source, target, weight


def create_made(db: Database, columns: Sequence[str]) -> None:
    """Make the table that takes what the hops make; `columns` are types."""
    listed = ", ".join(f"h{place} {kind}" for place, kind in enumerate(columns))
    db.query_once(
        f"CREATE TEMPORARY TABLE {_HOPS} (i bigint, {listed}) ON COMMIT DROP{distributed(db, 'BY (i)')}"
    )


def add_made(
    db: Database, types: Sequence[str], numbers: Sequence[int], columns: Sequence[list[str]]
) -> None:
    """Add rows of what the hops made, as text."""
    places = range(len(types))
    given = ", ".join(f"${place + 2}::text[]" for place in places)
    cast = ", ".join(f"u.h{place}::{kind}" for place, kind in enumerate(types))
    named = ", ".join(f"h{place}" for place in places)
    db.query(
        f"INSERT INTO {_MADE} SELECT u.i, {cast} FROM unnest($1::bigint[], {given}) AS u (i, {named})",
        ["bigint[]", *["text[]"] * len(types)],
        [list(numbers), *columns],
    )


def create_output(
    db: Database, nodes: Table, id_column: str, target: TargetTable, names: Sequence[str]
) -> None:
    """Make the result, those of the hops beside the nodes' columns; drop the tables in between."""
    made = ", ".join(f"made.h{place} AS {quote(name)}" for place, name in enumerate(names))
    db.query_once(
        f"CREATE TABLE {target.quoted} AS SELECT s.*, {made} FROM {nodes.rows}"
        f" JOIN {_NUMBERED} AS n ON n.id = s.{quote(id_column)} JOIN {_MADE} AS made ON made.i = n.i"
        f"{distributed(db, f'BY ({quote(id_column)})')}"
    )
    db.query_once(f"DROP TABLE {_NUMBERED}, {_MADE}")
