"""SQL of cerebro.propagate: numbers nodes, reads features and edges, and writes the new features that
propagation along the edges computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from cerebro_plpy.database import Database, Row
from cerebro_plpy.store.arrays import read_array
from cerebro_plpy.store.dialect import distributed
from cerebro_plpy.store.names import Table, TargetTable, quote, temporary
from cerebro_plpy.store.packed.packed import Expression, SourceColumn

# Temporary tables, which no other transaction sees.
_NODES, _HOPS = "cerebro_numbered_nodes", "cerebro_propagated"
NUMBERED, MADE = temporary(_NODES), temporary(_HOPS)
# The server returns the edges in so many rows of arrays.
_PARTS = 64
# Ids are sparse if they span more than this many times their number.
_SPARSE = 8


@dataclass(frozen=True)
class Edges:
    """The table of edges, and its columns: the two ends of an edge, its weight, and its kind."""

    table: Table
    source: str
    target: str
    weight: str | None
    kind: str | None
    # Whether both ends are integers.
    integers: bool

    @property
    def counted(self) -> str:
        """The SQL expression for the weight of an edge s; 1 if there is no column of weights."""
        return "1::double precision" if self.weight is None else f"s.{quote(self.weight)}::double precision"

    @property
    def named(self) -> str:
        """The SQL expression for the kind of an edge s; an empty text if there is no column of kinds."""
        return "''::text" if self.kind is None else f"s.{quote(self.kind)}::text"


def count_ids(db: Database, nodes: Table, id_column: str) -> Row:
    """Return how many nodes there are, how many have an id, and how many different ids there are."""
    name = quote(id_column)
    return db.query_once(
        f"SELECT count(*) AS nodes, count(s.{name}) AS present, count(DISTINCT s.{name}) AS ids"
        f" FROM {nodes.rows}"
    )[0]


def number_nodes(db: Database, nodes: Table, id_column: str) -> None:
    """Number the nodes from 0, in the order of their ids, in a temporary table that lasts as long as the
    transaction."""
    db.query_once(
        f"CREATE TEMPORARY TABLE {_NODES} ON COMMIT DROP AS"
        f" SELECT s.{quote(id_column)} AS id, row_number() OVER (ORDER BY s.{quote(id_column)}) - 1 AS i"
        f" FROM {nodes.rows}{distributed(db, 'BY (id)')}"
    )
    db.query_once(f"ANALYZE {NUMBERED}")


# The column of numbers beside those of the nodes.
NUMBER = SourceColumn(
    name="__number__", element="int8", is_array=False, base_type="bigint", shown_type="bigint", sortable=True
)


def with_numbers(nodes: Table, id_column: str) -> Table:
    """Return the nodes with their numbers in a further column, in the order of the numbers."""
    joined = f"{nodes.rows} JOIN {NUMBERED} AS n ON n.id = s.{quote(id_column)}"
    return replace(nodes, selection=f"(SELECT s.*, n.i AS {quote(NUMBER.name)} FROM {joined} ORDER BY n.i)")


def drop_temporary(db: Database) -> None:
    """Drop the temporary tables of the nodes' numbers and of the features that propagation computed."""
    there = db.query(
        "SELECT t.name FROM pg_catalog.unnest($1) AS t (name)"
        " WHERE pg_catalog.to_regclass(t.name) IS NOT NULL",
        ["text[]"],
        [[NUMBERED, MADE]],
    )
    db.query_once(f"DROP TABLE {', '.join(row['name'] for row in there)}")


def read_features(
    db: Database,
    nodes: Table,
    id_column: str,
    features: Sequence[Expression],
    *,
    batch: int,
    numbers: Sequence[int] | None = None,
) -> Iterator[list[Row]]:
    """Yield the features of all nodes, or of the nodes with these numbers, in batches, in the order of the
    numbers."""
    columns = ", ".join(f"{one.text} AS c{place}" for place, one in enumerate(features))
    few = "" if numbers is None else " JOIN pg_catalog.unnest($1) AS u (i) ON u.i = n.i"
    return db.scan(
        f"SELECT {columns} FROM {nodes.rows} JOIN {NUMBERED} AS n ON n.id = s.{quote(id_column)}{few}"
        " ORDER BY n.i",
        [] if numbers is None else ["bigint[]"],
        [] if numbers is None else [list(numbers)],
        batch=batch,
    )


def count_edges(db: Database, edges: Edges) -> Row:
    """Return how many edges there are, how many have a weight that is not a finite number from 0 on, and how
    many have no kind."""
    weight = edges.counted
    return db.query_once(
        "SELECT count(*) AS edges, count(*) FILTER (WHERE"
        f" NOT coalesce({weight} >= 0 AND {weight} < 'Infinity', FALSE)) AS wrong,"
        f" count(*) - count({edges.named}) AS unnamed FROM {edges.table.rows}"
    )[0]


def find_kinds(db: Database, edges: Edges, most: int) -> list[str]:
    """Return the kinds of edges in a fixed order; if there are over `most`, only the first `most` + 1."""
    if edges.kind is None:
        return [""]
    rows = db.query_once(
        f"SELECT k.kind FROM (SELECT DISTINCT {edges.named} AS kind FROM {edges.table.rows}) AS k"
        f' ORDER BY k.kind COLLATE "C" LIMIT {most + 1}'
    )
    return [row["kind"] for row in rows]


def read_edges(db: Database, edges: Edges, kinds: Sequence[str], *, integers: bool) -> dict[str, np.ndarray]:
    """Return the edges between nodes as arrays: source and target as nodes' numbers, weight, and kind.

    Kinds are positions in `kinds`. With `integers`, the nodes' ids and the ends of edges are integers: then
    NumPy looks the nodes' numbers up, which spares the server two joins.
    """
    read = {"source": "<i8", "target": "<i8"}
    counted = kind = ""
    if edges.weight is not None:
        read["weight"], counted = "<f8", f", {edges.counted} AS weight"
    if edges.kind is not None:
        read["kind"], kind = "<i4", f", pg_catalog.array_position($1, {edges.named}) - 1 AS kind"
    source, target = (f"s.{quote(name)}" for name in (edges.source, edges.target))
    ends = f"{source}::bigint AS source, {target}::bigint AS target"
    rows = f"{edges.table.rows} WHERE {source} IS NOT NULL AND {target} IS NOT NULL"
    if not integers:
        ends = "a.i AS source, b.i AS target"
        joins = f"JOIN {NUMBERED} AS a ON a.id = {source} JOIN {NUMBERED} AS b ON b.id = {target}"
        rows = f"{edges.table.rows} {joins}"
    arrays = ", ".join(f"cerebro._array_bytes(array_agg(e.{name})) AS {name}" for name in read)
    # There are few groups, and the server expects many: a table of hashes is faster than a sort.
    with with_setting(db, "enable_sort", "off"):
        parts = db.scan(
            f"SELECT {arrays} FROM (SELECT {ends}{counted}{kind} FROM {rows}) AS e"
            f" WHERE $1::text[] IS NOT NULL GROUP BY e.target & {_PARTS - 1}",
            ["text[]"],
            [list(kinds)],
            batch=16,
        )
        rows_read = [row for some in parts for row in some]
    found = {
        name: np.concatenate([np.empty(0, form), *(read_array(row[name], form) for row in rows_read)])
        for name, form in read.items()
    }
    found.setdefault("weight", np.ones(len(found["source"])))
    found.setdefault("kind", np.zeros(len(found["source"]), np.int32))
    return _look_up(db, found) if integers else found


@contextmanager
def with_setting(db: Database, name: str, value: str) -> Iterator[None]:
    """Give a setting of the server another value during the block."""
    before = db.query("SELECT pg_catalog.current_setting($1) AS found", ["text"], [name])[0]["found"]
    change = "SELECT pg_catalog.set_config($1, $2, true)"
    db.query(change, ["text", "text"], [name, value])
    yield
    db.query(change, ["text", "text"], [name, before])


def _look_up(db: Database, found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the edges in `found` with nodes' numbers in place of ids; leave out edges with an end that is no
    node."""
    (row,) = db.query_once(
        f"SELECT cerebro._array_bytes(array_agg(n.id::bigint ORDER BY n.i)) AS ids FROM {NUMBERED} AS n"
    )
    ids = read_array(row["ids"], "<i8")
    places = {name: find_places(ids, found[name]) for name in ("source", "target")}
    kept = np.logical_and(*(place >= 0 for place in places.values()))
    return {name: values[kept] for name, values in {**found, **places}.items()}


def find_places(ids: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the position of each wanted number in `ids`, which are sorted; -1 for a number that is not
    there."""
    first, last = int(ids[0]), int(ids[-1])
    if last - first > _SPARSE * len(ids):
        places = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
        return np.where(ids[places] == wanted, places, -1)
    # If the numbers have few gaps, a lookup table of the whole range is faster.
    table = np.full(last - first + 1, -1)
    table[ids - first] = np.arange(len(ids))
    inside = (wanted >= first) & (wanted <= last)
    return np.where(inside, table[np.where(inside, wanted, first) - first], -1)


def create_made(db: Database, columns: Sequence[str]) -> None:
    """Create the temporary table for the features that propagation along the edges computes.

    `columns` has the types of these features.
    """
    listed = ", ".join(f"h{place} {kind}" for place, kind in enumerate(columns))
    db.query_once(
        f"CREATE TEMPORARY TABLE {_HOPS} (i bigint, {listed}) ON COMMIT DROP{distributed(db, 'BY (i)')}"
    )


def add_made(
    db: Database, types: Sequence[str], numbers: Sequence[int], columns: Sequence[list[str]]
) -> None:
    """Insert the features that propagation along the edges computed for the nodes with these numbers.

    `columns` has a list of texts for each feature, and `types` the features' types.
    """
    places = range(len(types))
    given = ", ".join(f"${place + 2}::text[]" for place in places)
    cast = ", ".join(f"u.h{place}::{kind}" for place, kind in enumerate(types))
    named = ", ".join(f"h{place}" for place in places)
    db.query(
        f"INSERT INTO {MADE} SELECT u.i, {cast} FROM unnest($1::bigint[], {given}) AS u (i, {named})",
        ["bigint[]", *["text[]"] * len(types)],
        [list(numbers), *columns],
    )


def create_output(
    db: Database, nodes: Table, id_column: str, target: TargetTable, names: Sequence[str]
) -> None:
    """Create the result of cerebro.propagate: the columns of `nodes`, and a column for each feature that
    propagation computed, by its name in `names`.
    """
    made = ", ".join(f"made.h{place} AS {quote(name)}" for place, name in enumerate(names))
    db.query_once(
        f"CREATE TABLE {target.quoted} AS SELECT s.*, {made} FROM {nodes.rows}"
        f" JOIN {NUMBERED} AS n ON n.id = s.{quote(id_column)} JOIN {MADE} AS made ON made.i = n.i"
        f"{distributed(db, f'BY ({quote(id_column)})')}"
    )
    # Rows that a refresh reads and writes are found by their ids.
    db.query_once(f"CREATE INDEX ON {target.quoted} ({quote(id_column)})")
    db.query_once(f"ANALYZE {target.quoted}")
