"""cerebro.smooth: correct a model's answers for the nodes of a graph by the labels of neighbouring nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATATYPE_MISMATCH, NULL_NOT_ALLOWED, WRONG_STATE, CerebroError
from cerebro_plpy.executor.related import propagating, refreshing
from cerebro_plpy.packing.columns import sources
from cerebro_plpy.predicting.examining.labeled import Judge, find_judge
from cerebro_plpy.predicting.models import open_threads
from cerebro_plpy.relations import propagation
from cerebro_plpy.store import names
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.packed.packed import Expression, SourceColumn
from cerebro_plpy.store.related import graphs

SmoothedNode = tuple[str | None, str | None, str | None, float]


@dataclass(frozen=True)
class SmoothCall:
    """The arguments of cerebro.smooth, unchecked."""

    model: str | None
    mst_key: int | None
    nodes: str | None
    edges: str | None
    labels: str | None
    id: str | None
    source: str | None
    target: str | None
    weight: str | None
    correct: float | None
    smooth: float | None


@dataclass(frozen=True)
class LabelledGraph:
    """The nodes of a graph, their id and label columns, and the edges."""

    nodes: Table
    id: SourceColumn
    labels: SourceColumn
    edges: graphs.Edges


def smooth(db: Database, call: SmoothCall) -> Iterator[SmoothedNode]:
    """Return for each node: its id, its label if known, and the smoothed class with its score."""
    correct, again = (_share(what, getattr(call, what)) for what in ("correct", "smooth"))
    names.check_writable(db, "the table of the nodes' numbers")
    graph = _find_graph(db, call)
    judge = find_judge(
        db, call.model, call.nodes, call.mst_key, [graph.id.name, graph.labels.name], needs_label=False
    )
    values = judge.output.values
    if values is None:
        raise CerebroError(
            f"{call.model} predicts a number, and only classes are smoothed", sqlstate=DATATYPE_MISMATCH
        )
    count = graphs.count_ids(db, graph.nodes, graph.id.name)
    propagating.check_ids(graph.id.name, graph.nodes, count)
    total = propagating.check_weights(db, graph.edges)
    graphs.number_nodes(db, graph.nodes, graph.id.name)
    texts, given = _read_nodes(db, judge, graph, count["nodes"])
    edges = propagating.read_edges(
        db, graph.edges, propagating.GraphSize(count["nodes"], total, [""]), graph.id
    )
    graphs.drop_temporary(db)
    matrix = propagation.build_matrix(count["nodes"], edges, propagation.SYMMETRIC)
    found = propagation.correct_and_smooth(matrix, given, correct, again, open_threads(db))
    best = found.argmax(axis=1)
    return (
        (node, label, values[place], float(row[place]))
        for (node, label), place, row in zip(texts, best.tolist(), found, strict=True)
    )


def _share(what: str, value: float | None) -> float:
    if value is None or not 0 <= value < 1:
        raise CerebroError(f"{what} is {propagating.show(value)}, it must be from 0 to below 1")
    return value


def _find_graph(db: Database, call: SmoothCall) -> LabelledGraph:
    """Return the nodes and edges of a call.

    For columns that the call does not name, take those of the call of cerebro.propagate that made the table
    of nodes.
    """
    nodes = names.resolve_table(db, call.nodes, "table of nodes")
    if call.labels is None:
        raise CerebroError("labels is NULL", hint="Name the column of nodes.", sqlstate=NULL_NOT_ALLOWED)
    wanted = {name: getattr(call, name) for name in ("id", "source", "target")}
    missing = [name for name, given in wanted.items() if given is None]
    weight = call.weight
    if missing:
        instead = f"Give {', '.join(missing)}, or name such a table."
        known, _ = refreshing.read_propagation(db, nodes, hint=instead)
        before = {"id": known.id.name, "source": known.edges.source, "target": known.edges.target}
        wanted |= {name: names.quote(before[name]) for name in missing}
        if weight is None and known.edges.weight is not None:
            weight = names.quote(known.edges.weight)
    columns = packed.columns_of(db, nodes)
    key = propagating.find_id(wanted["id"], columns, nodes)
    table = names.resolve_table(db, call.edges, "table of edges")
    ends = wanted["source"], wanted["target"]
    edges = propagating.find_edges(db, table, ends=ends, weight=weight, kind=None)
    propagating.check_ends(db, nodes, key, edges)
    labels = sources.find_named(call.labels, "labels", columns, nodes.quoted)
    return LabelledGraph(nodes=nodes, id=key, labels=labels, edges=edges)


def _read_nodes(
    db: Database, judge: Judge, graph: LabelledGraph, nodes: int
) -> tuple[list[tuple[str | None, str | None]], propagation.KnownClasses]:
    """Return the id and label of each node, and the model's answers, in the order of the nodes' numbers."""
    ordered = graphs.with_numbers(graph.nodes, graph.id.name)
    number = Expression(packed.TEXT, (graphs.NUMBER,))
    reader = replace(judge, table=ordered, label=None, texts=[number, *judge.texts])
    judge = replace(judge, label=graph.labels)
    values = judge.output.values or []
    answers = np.zeros((nodes, len(values)))
    texts: list[tuple[str | None, str | None]] = [(None, None)] * nodes
    read = 0
    for inputs, _, rows, _ in reader.read_all():
        places = [int(str(row[0])) for row in rows]
        answers[places] = judge.answer(inputs)
        for place, (_, node, label) in zip(places, rows, strict=True):
            texts[place] = node, label
        read += len(rows)
    if read != nodes:
        raise CerebroError(f"{graph.nodes.quoted} has changed while it was read", hint="Call again.")
    known = [label if label is not None and judge.knows(label) else None for _, label in texts]
    is_known = np.array([label is not None for label in known])
    if not is_known.any():
        raise CerebroError(
            f'the model knows the label "{graph.labels.name}" of none of {nodes} nodes',
            hint="Labels are the classes that it was trained on, and NULL where nobody knows.",
            sqlstate=WRONG_STATE,
        )
    strange = sum(label is not None for _, label in texts) - int(is_known.sum())
    if strange:
        db.notice(f"{strange} of {nodes} labels are taken for unknown: the model has no such class")
    truth = np.zeros_like(answers)
    truth[is_known] = judge.truth([label for label in known if label is not None])
    return texts, propagation.KnownClasses(answers, is_known, truth)
