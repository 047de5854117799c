"""cerebro.propagate: a table of nodes with what the nodes around each one have, hop by hop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATATYPE_MISMATCH, DUPLICATE_COLUMN, NULL_NOT_ALLOWED, CerebroError
from cerebro_plpy.packing.columns import sources
from cerebro_plpy.packing.faults import Faults
from cerebro_plpy.packing.rows import reading
from cerebro_plpy.relations import propagation
from cerebro_plpy.store import interrupts, names
from cerebro_plpy.store.arrays import write_arrays, write_numbers
from cerebro_plpy.store.names import Table, TargetTable
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.packed.packed import SourceColumn
from cerebro_plpy.store.related import graphs

MOST_HOPS = 16
_READ, _WRITTEN = 2_000, 1_000


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


@dataclass(frozen=True)
class Propagation:
    """The checked arguments."""

    nodes: Table
    id: SourceColumn
    edges: graphs.Edges
    features: Sequence[SourceColumn]
    target: TargetTable
    hops: int
    aggregate: str
    teleport: float

    @property
    def made(self) -> list[tuple[str, str]]:
        """Name and type of each column that the result has beside those of the nodes, hop by hop."""
        return [
            (f"{column.name}_{hop}", "real[]" if column.is_array else "real")
            for hop in range(1, self.hops + 1)
            for column in self.features
        ]


def propagate(db: Database, call: PropagateCall) -> int:
    """Make the table, and return how many nodes it has."""
    asked = _check(db, call)
    counted = graphs.count_ids(db, asked.nodes, asked.id.name)
    _check_ids(asked, counted["nodes"], counted["present"], counted["ids"])
    found = graphs.count_edges(db, asked.edges)
    if found["wrong"]:
        raise CerebroError(
            f'weight "{asked.edges.weight}" is NULL, negative or not finite in {found["wrong"]} of'
            f" {found['edges']} edges",
            hint="Leave such edges out with a view.",
        )
    graphs.number_nodes(db, asked.nodes, asked.id.name)
    features, widths = _read_features(db, asked, counted["nodes"])
    source, target, weight = graphs.read_edges(db, asked.edges)
    left_out = found["edges"] - len(source)
    if left_out:
        db.notice(f"{left_out} of {found['edges']} edges are left out: an end of theirs is no node")
    matrix = propagation.build_matrix(len(features), source, target, weight, asked.aggregate)
    tick = partial(interrupts.tick, db)
    hops = list(propagation.propagate(matrix, features, asked.hops, asked.teleport, tick))
    _write(db, asked, hops, widths)
    return len(features)


def _check(db: Database, call: PropagateCall) -> Propagation:
    nodes = names.resolve_table(db, call.nodes, "table of nodes")
    edges = names.resolve_table(db, call.edges, "table of edges")
    of_nodes, of_edges = packed.columns_of(db, nodes), packed.columns_of(db, edges)
    key = sources.find_named(call.id, "id", of_nodes, nodes.quoted)
    if not key.sortable:
        raise CerebroError(
            f'id "{key.name}" of type {key.shown_type} has no order',
            hint="Cast it to text in a view.",
            sqlstate=DATATYPE_MISMATCH,
        )
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
    if call.hops is None or not 1 <= call.hops <= MOST_HOPS:
        raise CerebroError(f"hops is {call.hops}, it must be from 1 to {MOST_HOPS}")
    if call.aggregate not in propagation.WAYS:
        raise CerebroError(
            f"aggregate is {call.aggregate}", detail=f"It must be one of {', '.join(propagation.WAYS)}."
        )
    if call.teleport is None or not 0 <= call.teleport < 1:
        raise CerebroError(f"teleport is {call.teleport}, it must be from 0 to below 1")
    source = sources.find_named(call.source, "source", of_edges, edges.quoted)
    target = sources.find_named(call.target, "target", of_edges, edges.quoted)
    weight = None
    if call.weight is not None:
        weight = sources.find_named(call.weight, "weight", of_edges, edges.quoted)
    if weight is not None and (weight.is_array or weight.element not in sources.NUMBERS):
        raise CerebroError(
            f'weight "{weight.name}" of type {weight.shown_type} is no number', sqlstate=DATATYPE_MISMATCH
        )
    found = Propagation(
        nodes=nodes,
        id=key,
        edges=graphs.Edges(edges, source.name, target.name, weight and weight.name),
        features=features,
        target=names.target_table(db, call.output_table),
        hops=call.hops,
        aggregate=call.aggregate,
        teleport=call.teleport,
    )
    _check_names(found, of_nodes)
    return found


def _check_names(asked: Propagation, known: dict[str, SourceColumn]) -> None:
    made = [name for name, _ in asked.made]
    twice = next((name for name in made if name in known or made.count(name) > 1), None)
    if twice is not None:
        raise CerebroError(
            f'the result would have two columns "{twice}"',
            hint="Rename the column of the nodes with a view.",
            sqlstate=DUPLICATE_COLUMN,
        )


def _check_ids(asked: Propagation, nodes: int, present: int, ids: int) -> None:
    name = asked.id.name
    if nodes == 0:
        raise CerebroError(f"{asked.nodes.quoted} has no rows")
    if present < nodes:
        raise CerebroError(
            f'id "{name}" is NULL in {nodes - present} of {nodes} nodes', sqlstate=NULL_NOT_ALLOWED
        )
    if ids < nodes:
        raise CerebroError(
            f'id "{name}" has {ids} different values in {nodes} nodes',
            hint="Each node needs an id of its own.",
        )


def _read_features(db: Database, asked: Propagation, nodes: int) -> tuple[np.ndarray, list[int]]:
    """Return the features of all nodes side by side, and how wide each one is."""
    parts = [sources.SourcePart(column.name, (column,), sources.VALUES) for column in asked.features]
    batches = graphs.read_features(db, asked.nodes, asked.id.name, reading.fields(parts), _READ)
    seen, read = Faults(), 0
    columns: list[reading.Column] = []
    blocks: list[np.ndarray] = []
    for rows in batches:
        values = [[row[f"c{place}"] for row in rows] for place in range(len(parts))]
        if not columns:
            columns = [
                reading.open_column(part, own[0], None, 1.0, 0, seen)
                for part, own in zip(parts, values, strict=True)
            ]
        beside = zip(columns, values, strict=True)
        blocks.append(np.concatenate([reading.read_column(one, [own], read) for one, own in beside], axis=1))
        read += len(rows)
    if seen:
        raise seen.error(read)
    if read != nodes:
        raise CerebroError(f"{asked.nodes.quoted} has changed while it was read", hint="Call again.")
    widths = [column.stored[1] for column in columns]
    return np.concatenate(blocks), widths


def _write(db: Database, asked: Propagation, hops: Sequence[np.ndarray], widths: Sequence[int]) -> None:
    types = [kind for _, kind in asked.made]
    graphs.create_made(db, types)
    ends = np.cumsum([0, *widths])
    for start in range(0, len(hops[0]), _WRITTEN):
        rows = slice(start, start + _WRITTEN)
        columns = [
            write_arrays(hop[rows, ends[place] : ends[place + 1]])
            if column.is_array
            else write_numbers(hop[rows, ends[place]])
            for hop in hops
            for place, column in enumerate(asked.features)
        ]
        graphs.add_made(db, types, range(start, start + len(columns[0])), columns)
    graphs.create_output(db, asked.nodes, asked.id.name, asked.target, [name for name, _ in asked.made])
