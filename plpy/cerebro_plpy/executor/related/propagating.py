"""cerebro.propagate: write a table of nodes with features aggregated from neighbouring nodes.

This happens in hops. In each hop, a node gets an aggregate of the features that its neighbours have so far.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cerebro_plpy.database import Database, Row
from cerebro_plpy.errors import (
    DATATYPE_MISMATCH,
    DUPLICATE_COLUMN,
    NULL_NOT_ALLOWED,
    OUT_OF_RANGE,
    PROGRAM_LIMIT_EXCEEDED,
    CerebroError,
)
from cerebro_plpy.packing.columns import sources
from cerebro_plpy.packing.faults import Faults
from cerebro_plpy.packing.rows import reading
from cerebro_plpy.predicting.models import open_threads
from cerebro_plpy.relations import propagation
from cerebro_plpy.relations.propagation import NumberedEdges
from cerebro_plpy.store import names
from cerebro_plpy.store.arrays import write_arrays, write_numbers
from cerebro_plpy.store.names import Table, quote
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.packed.packed import SourceColumn
from cerebro_plpy.store.related import graph_changes, graphs, relations
from cerebro_plpy.threads import Threads

MOST_HOPS, MOST_KINDS = 16, 32
_READ, _WRITTEN = 2_000, 1_000
# The types of kinds of edges, which become parts of column names.
_NAMES = ("text", "varchar", "bpchar", "name", *sources.INTEGERS)


@dataclass(frozen=True)
class PropagateCall:
    """The arguments of cerebro.propagate, unchecked."""

    nodes: str | None
    edges: str | None
    output_table: str | None
    id: str | None
    source: str | None
    target: str | None
    features: Sequence[str | None] | None
    hops: int | None
    aggregate: str | None
    weight: str | None
    teleport: float | None
    kind: str | None


@dataclass(frozen=True)
class Propagation:
    """The checked arguments of cerebro.propagate."""

    nodes: Table
    id: SourceColumn
    columns: Mapping[str, SourceColumn]
    edges: graphs.Edges
    features: Sequence[SourceColumn]
    hops: int
    aggregate: str
    teleport: float

    def name_made(self, kinds: Sequence[str]) -> list[tuple[str, SourceColumn]]:
        """Return the name of each computed column with the feature that it aggregates, by kind and hop."""
        return [
            ("_".join([column.name, *([kind] if self.edges.kind else []), str(hop)]), column)
            for kind in kinds
            for hop in range(1, self.hops + 1)
            for column in self.features
        ]

    def as_document(self, kinds: Sequence[str]) -> str:
        """Return the call as JSON, from which cerebro.refresh_propagation brings the result up to date."""
        edges = self.edges
        columns = {"source": edges.source, "target": edges.target, "weight": edges.weight, "kind": edges.kind}
        return json.dumps(
            {
                "nodes": self.nodes.quoted,
                "edges": edges.table.quoted,
                "id": quote(self.id.name),
                "features": [quote(column.name) for column in self.features],
                "hops": self.hops,
                "aggregate": self.aggregate,
                "teleport": self.teleport,
                "kinds": list(kinds),
                **{what: name and quote(name) for what, name in columns.items()},
            }
        )


@dataclass(frozen=True)
class GraphSize:
    """The number of nodes, the number of edges, and the kinds of edges of a graph."""

    nodes: int
    edges: int
    kinds: Sequence[str]


def propagate(db: Database, call: PropagateCall) -> int:
    """Create the table of nodes with their aggregated features; return the number of nodes."""
    asked = check(db, call)
    target = names.target_table(db, call.output_table, suffixes=(packed.SUMMARY, graph_changes.SEEN))
    size = check_rows(db, asked)
    nodes, kinds = size.nodes, size.kinds
    if not kinds:
        raise CerebroError(f"{asked.edges.table.quoted} has no rows, so edges have no kind")
    check_names(asked, kinds)
    graphs.number_nodes(db, asked.nodes, asked.id.name)
    features, widths = read_numbers(db, asked.nodes, asked.id.name, asked.features)
    if len(features) != nodes:
        raise CerebroError(f"{asked.nodes.quoted} has changed while it was read", hint="Call again.")
    edges = read_edges(db, asked.edges, size, asked.id)
    hops = _hops(asked, edges, kinds, features, threads=open_threads(db))
    write_made(db, asked, kinds, nodes=range(nodes), hops=hops, widths=widths)
    made = [name for name, _ in asked.name_made(kinds)]
    graphs.create_output(db, asked.nodes, asked.id.name, target, made)
    graph_changes.write_summary(db, target, asked.as_document(kinds))
    labels = np.arange(nodes)
    digests = propagation.find_digests(labels, edges, len(kinds), asked.aggregate)
    graph_changes.add_seen(db, graph_changes.create_seen(db, target), labels, labels, digests)
    graphs.drop_temporary(db)
    return nodes


def _hops(
    asked: Propagation,
    edges: NumberedEdges,
    kinds: Sequence[str],
    features: np.ndarray,
    *,
    threads: Threads,
) -> list[np.ndarray]:
    """Return the aggregated features of all nodes after each hop, by kind of edges."""
    found = list[np.ndarray]()
    for number in range(len(kinds)):
        matrix = propagation.build_matrix(len(features), edges.choose_kind(number), asked.aggregate)
        found += propagation.propagate(matrix, features, asked.hops, asked.teleport, threads)
    return found


def check(db: Database, call: PropagateCall) -> Propagation:
    """Return the checked arguments, except the output table; no rows are read yet."""
    nodes = names.resolve_table(db, call.nodes, "table of nodes")
    edges = names.resolve_table(db, call.edges, "table of edges")
    of_nodes = packed.columns_of(db, nodes)
    key = find_id(call.id, of_nodes, nodes)
    if not call.features:
        raise CerebroError("features is NULL or empty", sqlstate=NULL_NOT_ALLOWED)
    features = [sources.find_named(name, "features", of_nodes, nodes.quoted) for name in call.features]
    for column in features:
        if column.element not in sources.NUMBERS:
            raise CerebroError(
                f'feature "{column.name}" of type {column.shown_type} is no number',
                hint="Features are numbers and arrays of numbers. A view can make 0 and 1 of a category.",
                sqlstate=DATATYPE_MISMATCH,
            )
    hops, aggregate, teleport = _check_hops(call)
    found = find_edges(db, edges, ends=(call.source, call.target), weight=call.weight, kind=call.kind)
    check_ends(db, nodes, key, found)
    return Propagation(
        nodes=nodes,
        id=key,
        columns=of_nodes,
        edges=found,
        features=features,
        hops=hops,
        aggregate=aggregate,
        teleport=teleport,
    )


def _check_hops(call: PropagateCall) -> tuple[int, str, float]:
    """Return the number of hops, the aggregate, and the share of its own features that a node keeps."""
    hops, aggregate, teleport = call.hops, call.aggregate, call.teleport
    if hops is None or not 1 <= hops <= MOST_HOPS:
        raise CerebroError(f"hops is {show(hops)}, it must be from 1 to {MOST_HOPS}")
    if aggregate not in propagation.WAYS:
        raise CerebroError(
            f"aggregate is {show(aggregate)}", detail=f"It must be one of {', '.join(propagation.WAYS)}."
        )
    if teleport is None or not 0 <= teleport < 1:
        raise CerebroError(f"teleport is {show(teleport)}, it must be from 0 to below 1")
    return hops, aggregate, teleport


def show(value: object) -> str:
    """Return an argument as text, with NULL for None."""
    return "NULL" if value is None else str(value)


def find_id(name: str | None, columns: Mapping[str, SourceColumn], nodes: Table) -> SourceColumn:
    """Return the column with the ids of nodes."""
    key = sources.find_named(name, "id", columns, nodes.quoted)
    if not key.sortable:
        raise CerebroError(
            f'id "{key.name}" of type {key.shown_type} has no order',
            hint="Cast it to text in a view.",
            sqlstate=DATATYPE_MISMATCH,
        )
    return key


def find_edges(
    db: Database, table: Table, *, ends: tuple[str | None, str | None], weight: str | None, kind: str | None
) -> graphs.Edges:
    """Return a table of edges with its columns for the two ends, the weight and the kind of an edge."""
    known = packed.columns_of(db, table)
    source, target = [
        sources.find_named(name, what, known, table.quoted)
        for what, name in zip(("source", "target"), ends, strict=True)
    ]
    counted = None if weight is None else sources.find_named(weight, "weight", known, table.quoted)
    if counted is not None and (counted.is_array or counted.element not in sources.NUMBERS):
        raise CerebroError(
            f'weight "{counted.name}" of type {counted.shown_type} is no number', sqlstate=DATATYPE_MISMATCH
        )
    named = None if kind is None else sources.find_named(kind, "kind", known, table.quoted)
    if named is not None and (named.is_array or named.element not in _NAMES):
        raise CerebroError(
            f'kind "{named.name}" of type {named.shown_type} is neither a text nor an integer',
            hint="Cast it to text in a view.",
            sqlstate=DATATYPE_MISMATCH,
        )
    return graphs.Edges(
        table=table,
        source=source.name,
        target=target.name,
        weight=counted and counted.name,
        kind=named and named.name,
        integers=all(
            column.element in sources.INTEGERS and not column.is_array for column in (source, target)
        ),
    )


def check_ends(db: Database, nodes: Table, key: SourceColumn, edges: graphs.Edges) -> None:
    """Raise an error if the ends of edges cannot be compared with the ids of nodes."""
    for name in (edges.source, edges.target):
        if not relations.can_compare(db, edges.table, name, nodes, key.name):
            raise CerebroError(
                f'"{name}" of {edges.table.quoted} cannot be compared with the id "{key.name}" of type'
                f" {key.shown_type}",
                hint="Cast one of them in a view.",
                sqlstate=DATATYPE_MISMATCH,
            )


def check_rows(db: Database, asked: Propagation) -> GraphSize:
    """Return the size of the graph; raise an error for ids, weights or kinds that are not valid."""
    counted = graphs.count_ids(db, asked.nodes, asked.id.name)
    check_ids(asked.id.name, asked.nodes, counted)
    edges = check_weights(db, asked.edges)
    kinds = graphs.find_kinds(db, asked.edges, MOST_KINDS)
    if len(kinds) > MOST_KINDS:
        raise CerebroError(
            f'kind "{asked.edges.kind}" has more than {MOST_KINDS} values',
            hint="Leave rare kinds out with a view, or give several the same name.",
            sqlstate=PROGRAM_LIMIT_EXCEEDED,
        )
    return GraphSize(counted["nodes"], edges, kinds)


def check_weights(db: Database, edges: graphs.Edges) -> int:
    """Return the number of edges; raise an error if an edge has no valid weight or no kind."""
    found = graphs.count_edges(db, edges)
    if found["wrong"]:
        raise CerebroError(
            f'weight "{edges.weight}" is NULL, negative or not finite in {found["wrong"]} of'
            f" {found['edges']} edges",
            hint="Leave such edges out with a view.",
        )
    if found["unnamed"]:
        raise CerebroError(
            f'kind "{edges.kind}" is NULL in {found["unnamed"]} of {found["edges"]} edges',
            hint="Leave such edges out with a view.",
            sqlstate=NULL_NOT_ALLOWED,
        )
    return found["edges"]


def read_edges(db: Database, edges: graphs.Edges, size: GraphSize, key: SourceColumn) -> NumberedEdges:
    """Return the edges between nodes; send a notice if other edges are left out.

    `key` is the column with the ids of nodes.
    """
    integers = edges.integers and key.element in sources.INTEGERS
    found = NumberedEdges(**graphs.read_edges(db, edges, size.kinds, integers=integers))
    left_out = size.edges - len(found)
    if left_out:
        db.notice(f"{left_out} of {size.edges} edges are left out: an end of theirs is no node")
    return found


def check_names(asked: Propagation, kinds: Sequence[str]) -> None:
    """Raise an error if two columns of the result would have one name, or if a name is too long."""
    made = [name for name, _ in asked.name_made(kinds)]
    twice = next((name for name in made if name in asked.columns or made.count(name) > 1), None)
    if twice is not None:
        raise CerebroError(
            f'the result would have two columns "{twice}"',
            hint="Rename the column of the nodes with a view.",
            sqlstate=DUPLICATE_COLUMN,
        )
    long = next((name for name in made if len(name.encode()) > names.LONGEST), None)
    if long is not None:
        raise CerebroError(
            f'the result would have a column "{long}", whose name is longer than {names.LONGEST} bytes',
            hint="Rename the feature, or the kind of edges, with a view.",
        )


def check_ids(name: str, nodes: Table, counted: Row) -> None:
    """Raise an error if there are no nodes, or if their ids are NULL or not unique."""
    total, present, ids = counted["nodes"], counted["present"], counted["ids"]
    if total == 0:
        raise CerebroError(f"{nodes.quoted} has no rows")
    if present < total:
        raise CerebroError(
            f'id "{name}" is NULL in {total - present} of {total} nodes', sqlstate=NULL_NOT_ALLOWED
        )
    if ids < total:
        raise CerebroError(
            f'id "{name}" has {ids} different values in {total} nodes',
            hint="Each node needs an id of its own.",
        )


def read_numbers(
    db: Database,
    table: Table,
    id_column: str,
    columns: Sequence[SourceColumn],
    numbers: Sequence[int] | None = None,
) -> tuple[np.ndarray, list[int]]:
    """Return columns of the nodes, side by side in one array, and the width of each column.

    `numbers` are the numbers of the nodes to read; None reads all nodes.
    """
    parts = [sources.SourcePart(column.name, (column,), sources.VALUES) for column in columns]
    fields = reading.fields(parts)
    seen, read = Faults(), 0
    opened: list[reading.Column] = []
    blocks: list[np.ndarray] = []
    for rows in graphs.read_features(db, table, id_column, fields, batch=_READ, numbers=numbers):
        values = [[row[f"c{place}"] for row in rows] for place in range(len(parts))]
        if not opened:
            opened = [
                reading.open_column(part, own[0], None, 1.0, 0, seen)
                for part, own in zip(parts, values, strict=True)
            ]
        beside = zip(opened, values, strict=True)
        blocks.append(np.concatenate([reading.read_column(one, [own], read) for one, own in beside], axis=1))
        read += len(rows)
    if seen:
        raise seen.error(read)
    for column in opened:
        if len(column.shape) > 1:
            raise CerebroError(
                f'feature "{column.part.name}" has arrays of {len(column.shape)} dimensions',
                hint="Make lists of them in a view: ARRAY(SELECT pg_catalog.unnest(…)).",
                sqlstate=DATATYPE_MISMATCH,
            )
    widths = [column.stored[1] for column in opened]
    return np.concatenate(blocks) if blocks else np.empty((0, 0), np.float32), widths


def _check_range(made: Sequence[tuple[str, SourceColumn]], hops: Sequence[np.ndarray]) -> None:
    """Raise an error if values exceed single precision, since nets could not be trained on them."""
    each = len(made) // len(hops)
    for place, hop in enumerate(hops):
        if not np.isfinite(hop).all():
            raise CerebroError(
                f'values of "{made[place * each][0]}" are beyond the range of real',
                hint="Smaller weights or features, fewer hops, or the aggregate mean keep sums small.",
                sqlstate=OUT_OF_RANGE,
            )


def write_made(
    db: Database,
    asked: Propagation,
    kinds: Sequence[str],
    *,
    nodes: Sequence[int],
    hops: Sequence[np.ndarray],
    widths: Sequence[int],
) -> None:
    """Write the aggregated features of nodes, given by their numbers, to a temporary table."""
    _check_range(asked.name_made(kinds), hops)
    types = ["real[]" if column.is_array else "real" for _, column in asked.name_made(kinds)]
    graphs.create_made(db, types)
    ends = np.cumsum([0, *widths])
    for start in range(0, len(nodes), _WRITTEN):
        rows = slice(start, start + _WRITTEN)
        columns = [
            write_arrays(hop[rows, ends[place] : ends[place + 1]])
            if column.is_array
            else write_numbers(hop[rows, ends[place]])
            for hop in hops
            for place, column in enumerate(asked.features)
        ]
        graphs.add_made(db, types, nodes[rows], columns)
