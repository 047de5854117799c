"""cerebro.refresh_propagation: update a table of cerebro.propagate where its graph has changed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATA_CORRUPTED, UNDEFINED_COLUMN, UNDEFINED_TABLE, WRONG_STATE, CerebroError
from cerebro_plpy.executor.related import propagating
from cerebro_plpy.executor.related.propagating import Propagation
from cerebro_plpy.logical.options import is_number
from cerebro_plpy.predicting.models import open_threads
from cerebro_plpy.predicting.trained import check_readable
from cerebro_plpy.relations import propagation
from cerebro_plpy.relations.propagation import NumberedEdges
from cerebro_plpy.store import names
from cerebro_plpy.store.models import models
from cerebro_plpy.store.names import Table, quote
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.packed.packed import SourceColumn
from cerebro_plpy.store.related import graph_changes, graphs


@dataclass(frozen=True)
class Refresh:
    """A table of cerebro.propagate to be updated, with its columns and the kinds of edges in them.

    `asked` is the call that made the table, and `seen` is the table with what that call saw of each node.
    """

    asked: Propagation
    kinds: Sequence[str]
    output: Table
    columns: Mapping[str, SourceColumn]
    seen: Table

    @property
    def made(self) -> list[str]:
        return [name for name, _ in self.asked.name_made(self.kinds)]

    @property
    def node_columns(self) -> list[str]:
        """The columns of the table of nodes that the result has too."""
        return [name for name in self.asked.columns if name in self.columns]


@dataclass(frozen=True)
class ChangedGraph:
    """The graph as it is now, and its changes since the table of cerebro.propagate was made."""

    edges: NumberedEdges
    labels: np.ndarray
    digests: np.ndarray
    # For each node and kind: whether its edges have changed.
    edges_changed: np.ndarray
    # For each node: whether its features have changed, and whether it is new.
    features_changed: np.ndarray
    is_new: np.ndarray
    # The numbers of nodes with other values in any column.
    others: np.ndarray
    # How many nodes of the result are gone from the table of nodes.
    gone: int


def refresh_propagation(db: Database, output_table: str | None) -> int:
    """Update a table of cerebro.propagate; return the number of nodes whose features were computed again."""
    found = find_refresh(db, output_table)
    asked = found.asked
    graph_changes.lock_output(db, found.output)
    size = propagating.check_rows(db, asked)
    if strange := [kind for kind in size.kinds if kind not in found.kinds]:
        raise CerebroError(
            f'there are edges of a new kind, "{strange[0]}", and {found.output.quoted} has no columns for it',
            hint="Propagate anew, to a table of another name.",
            sqlstate=WRONG_STATE,
        )
    graphs.number_nodes(db, asked.nodes, asked.id.name)
    size = replace(size, kinds=found.kinds)
    edges = propagating.read_edges(db, asked.edges, size, asked.id)
    changes = _find_changes(db, found, edges, size.nodes)
    if changes.gone:
        graph_changes.delete_gone(db, found.output, asked.id.name)
        graph_changes.delete_gone(db, found.seen, "id")
    touched = _update(db, found, changes)
    digests_changed = np.flatnonzero(changes.edges_changed.any(axis=1))
    graph_changes.forget_seen(db, found.seen, digests_changed.tolist())
    graph_changes.add_seen(db, found.seen.quoted, digests_changed, changes.labels, changes.digests)
    graphs.drop_temporary(db)
    new = int(changes.is_new.sum())
    db.notice(f"{touched} of {size.nodes} nodes are computed anew; {new} new, {changes.gone} gone")
    return touched


def _find_changes(db: Database, found: Refresh, edges: NumberedEdges, nodes: int) -> ChangedGraph:
    asked, kinds = found.asked, len(found.kinds)
    known, before = graph_changes.read_seen(db, found.seen, kinds)
    features = [column.name for column in asked.features]
    others = [name for name in found.node_columns if name not in (asked.id.name, *features)]
    rows = graph_changes.find_changed(
        db, asked.nodes, found.output, asked.id.name, features=features, others=others
    )
    is_new, features_changed = known < 0, np.zeros(nodes, bool)
    is_new[rows.missing] = features_changed[rows.features] = True
    labels = known.copy()
    labels[known < 0] = known.max(initial=0) + 1 + np.arange((known < 0).sum())
    digests = propagation.find_digests(labels, edges, kinds, asked.aggregate)
    return ChangedGraph(
        edges=edges,
        labels=labels,
        digests=digests,
        edges_changed=(digests != before) | is_new[:, None],
        features_changed=features_changed,
        is_new=is_new,
        others=np.union1d(rows.features, rows.others),
        gone=rows.gone,
    )


def _update(db: Database, found: Refresh, changes: ChangedGraph) -> int:
    """Write the aggregated features of all nodes that the changes reach; return the number of these nodes."""
    asked, key = found.asked, found.asked.id.name
    nodes = len(changes.is_new)
    matrices, touched = list[Any](), list[list[np.ndarray]]()
    for number in range(len(found.kinds)):
        edges = changes.edges.choose_kind(number)
        matrices.append(propagation.build_matrix(nodes, edges, asked.aggregate))
        touched.append(
            propagation.find_touched(
                matrices[-1],
                changes.edges_changed[:, number],
                changes.features_changed,
                hops=asked.hops,
                both_ends=asked.aggregate == propagation.SYMMETRIC,
                keeps=asked.teleport > 0,
            )
        )
    wanted = np.logical_or.reduce([one for hops in touched for one in hops])
    rows = np.flatnonzero(wanted)
    if len(rows):
        _make_anew(db, found, changes, matrices=matrices, touched=touched, rows=rows)
        graph_changes.update_made(db, found.output, key, found.made)
        if changes.is_new.any():
            graph_changes.insert_made(
                db, asked.nodes, found.output, key, columns=found.node_columns, made=found.made
            )
    own = [name for name in found.node_columns if name != key]
    others = changes.others.tolist()
    graph_changes.copy_columns(db, asked.nodes, found.output, key, columns=own, changed=others)
    return len(rows)


def _make_anew(
    db: Database,
    found: Refresh,
    changes: ChangedGraph,
    *,
    matrices: Sequence[Any],
    touched: Sequence[Sequence[np.ndarray]],
    rows: np.ndarray,
) -> None:
    """Compute the features of the nodes that changes reach, hop by hop, and write them to a table.

    `rows` are the numbers of these nodes. `matrices` has a matrix of the edges for each kind of edges. For
    each kind and each hop, `touched` marks the nodes that get other features.
    """
    asked, threads = found.asked, open_threads(db)
    # The neighbours of touched nodes are read as well.
    giving = np.zeros(len(changes.is_new), bool)
    giving[rows] = True
    for matrix in matrices:
        giving[matrix[rows].indices] = True
    near = np.flatnonzero(giving)
    features, widths = propagating.read_numbers(db, asked.nodes, asked.id.name, asked.features, near.tolist())
    made = _read_made(db, found, near[~changes.is_new[near]], near, features.shape[1])
    place = np.searchsorted(near, rows)
    hops = list[np.ndarray]()
    for number, matrix in enumerate(matrices):
        reached = features
        own = matrix[near][:, near]
        for hop in range(asked.hops):
            now = made[number * asked.hops + hop]
            again = touched[number][hop][near]
            now[again] = propagation.make_hop(own[again], reached, features[again], asked.teleport, threads)
            hops.append(now[place])
            reached = now
    propagating.write_made(db, asked, found.kinds, nodes=rows.tolist(), hops=hops, widths=widths)


def _read_made(
    db: Database, found: Refresh, known: np.ndarray, near: np.ndarray, width: int
) -> list[np.ndarray]:
    """Return the stored features of the nodes `near` after each hop; zeros for nodes not in `known`.

    `width` is how many numbers a node has after one hop.
    """
    count = len(found.kinds) * found.asked.hops
    made = np.zeros((len(near), count * width), np.float32)
    if len(known):
        columns = [found.columns[name] for name in found.made]
        values, _ = propagating.read_numbers(db, found.output, found.asked.id.name, columns, known.tolist())
        if values.shape != (len(known), count * width):
            raise CerebroError(
                f"columns of {found.output.quoted} have other shapes than the features of"
                f" {found.asked.nodes.quoted}",
                hint="Propagate anew, to a table of another name.",
                sqlstate=WRONG_STATE,
            )
        made[np.searchsorted(near, known)] = values
    return [made[:, hop * width : (hop + 1) * width].copy() for hop in range(count)]


def find_refresh(db: Database, output_table: str | None) -> Refresh:
    """Return the table to update and the cerebro.propagate call that made it; raise an error without one."""
    output = names.resolve_table(db, output_table, "table of cerebro.propagate")
    names.check_writable(db, f"the change of {output.quoted}")
    asked, kinds = read_propagation(db, output)
    columns = packed.columns_of(db, output)
    seen = names.resolve_table(db, quote(output.schema, output.name + graph_changes.SEEN))
    found = Refresh(asked, kinds, output, columns, seen)
    lost = [name for name in (*asked.columns, *found.made) if name not in columns]
    if lost:
        raise CerebroError(
            f'{output.quoted} has no column "{lost[0]}", which it would have if it were made today',
            hint="Propagate anew, to a table of another name.",
            sqlstate=UNDEFINED_COLUMN,
        )
    return found


def read_propagation(
    db: Database, output: Table, *, hint: str | None = None
) -> tuple[Propagation, list[str]]:
    """Return the call of cerebro.propagate that made a table, and the kinds of edges in its columns."""
    summary = names.find_table(db, quote(output.schema, output.name + packed.SUMMARY))
    if summary is None or graph_changes.PROPAGATION not in packed.columns_of(db, summary):
        raise CerebroError(
            f"{output.quoted} was not made by cerebro.propagate",
            detail=f"There is no table {quote(output.schema, output.name + packed.SUMMARY)} that says how.",
            hint=hint,
            sqlstate=UNDEFINED_TABLE,
        )
    _check_tables(db, [summary])
    call, kinds = _read_call(graph_changes.read_summary(db, summary), summary.quoted)
    if not models.is_own(db, summary):
        _check_tables(db, [names.resolve_table(db, name) for name in (call.nodes, call.edges)])
    return propagating.check(db, call), kinds


def _check_tables(db: Database, tables: Sequence[Table]) -> None:
    check_readable(
        db,
        tables,
        instead="Have the table made from the tables themselves.",
        why="Nodes and edges are read with the rights of whoever calls.",
    )


def _read_call(text: str | None, what: str) -> tuple[propagating.PropagateCall, list[str]]:
    """Return the call that a document of cerebro.propagate describes; its arguments are not checked yet."""
    given = json.loads(text or "null")
    known: Mapping[str, Any] = given if isinstance(given, dict) else {}
    said = [known.get(key) for key in ("nodes", "edges", "id", "source", "target", "aggregate")]
    lists = [known.get(key) for key in ("features", "kinds")]
    may_lack = [known.get(key) for key in ("weight", "kind")]
    right = (
        all(isinstance(one, str) for one in said)
        and all(isinstance(one, list) and one and all(isinstance(x, str) for x in one) for one in lists)
        and all(one is None or isinstance(one, str) for one in may_lack)
        and len(known["kinds"]) <= propagating.MOST_KINDS
        and type(known.get("hops")) is int
        and is_number(known.get("teleport"))
    )
    if not right:
        raise CerebroError(
            f"what {what} says of a table is not what cerebro.propagate writes",
            hint="Propagate anew, to a table of another name.",
            sqlstate=DATA_CORRUPTED,
        )
    keys = [field.name for field in fields(propagating.PropagateCall) if field.name != "output_table"]
    return propagating.PropagateCall(output_table=None, **{key: known[key] for key in keys}), known["kinds"]
