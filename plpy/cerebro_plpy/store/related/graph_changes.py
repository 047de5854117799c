"""SQL of cerebro.refresh_propagation: how a result of cerebro.propagate was made, and what has changed
since."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.store.arrays import read_array
from cerebro_plpy.store.dialect import HEAP, distributed, is_greenplum
from cerebro_plpy.store.names import Table, TargetTable, literal, quote
from cerebro_plpy.store.packed.packed import SUMMARY
from cerebro_plpy.store.related.graphs import MADE, NUMBERED, with_setting

# The summary's column for the call, and the suffix of the table with the digests of each node's edges.
PROPAGATION, SEEN = "propagation", "_nodes"
_WRITTEN = 20_000
# The server's memory for comparing the nodes with the result.
_MEMORY = "256MB"


def write_summary(db: Database, target: TargetTable, document: str) -> None:
    """Create the summary of a result of cerebro.propagate, with the document that describes the call."""
    table = quote(target.schema, target.name + SUMMARY)
    db.query(f"CREATE TABLE {table} ({PROPAGATION} jsonb){HEAP}{distributed(db, 'REPLICATED')}")
    db.query(f"INSERT INTO {table} SELECT $1::jsonb", ["text"], [document])
    db.query(f"COMMENT ON TABLE {table} IS {literal(f'How {target.quoted} was made by cerebro.propagate.')}")


def read_summary(db: Database, table: Table) -> str | None:
    """Return the document in the summary of a result of cerebro.propagate, as JSON; None if it has no row."""
    rows = db.query(f"SELECT {PROPAGATION}::text AS found FROM {table.quoted} LIMIT 1")
    return rows[0]["found"] if rows else None


def create_seen(db: Database, target: TargetTable) -> str:
    """Create the empty table for digests of each node's edges, beside a result of cerebro.propagate; return
    the table's name."""
    table = quote(target.schema, target.name + SEEN)
    db.query_once(
        f"CREATE TABLE {table}{HEAP} AS SELECT n.id, 0::bigint AS label, '{{}}'::bigint[] AS edges"
        f" FROM {NUMBERED} AS n WHERE FALSE{distributed(db, 'BY (id)')}"
    )
    db.query(
        f"COMMENT ON TABLE {table} IS"
        f" {literal(f'What the edges of each node of {target.quoted} were, for refresh_propagation.')}"
    )
    return table


def add_seen(db: Database, seen: str, nodes: np.ndarray, labels: np.ndarray, digests: np.ndarray) -> None:
    """Store, for each node whose number is in `nodes`, its label and the digests of its edges. In a later
    call a node may have another number, but it keeps its label; so digests name edges' ends by labels."""
    for start in range(0, len(nodes), _WRITTEN):
        part = nodes[start : start + _WRITTEN]
        texts = ["{" + ",".join(map(str, row)) + "}" for row in digests[part].tolist()]
        db.query(
            f"INSERT INTO {seen} SELECT n.id, u.label, u.edges::bigint[]"
            f" FROM unnest($1, $2, $3) AS u (i, label, edges) JOIN {NUMBERED} AS n ON n.i = u.i",
            ["bigint[]", "bigint[]", "text[]"],
            [part.tolist(), labels[part].tolist(), texts],
        )


def read_seen(db: Database, seen: Table, kinds: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the stored label of each node, -1 for a new node, and the stored digests of its edges, one for
    each of `kinds` kinds; both are in the order of the nodes' numbers."""
    wanted = {"i": "n.i", "labels": "coalesce(w.label, -1)"}
    wanted |= {f"d{kind}": f"coalesce(w.edges[{kind + 1}], 0)" for kind in range(kinds)}
    listed = ", ".join(f"cerebro._array_bytes(array_agg({one})) AS {name}" for name, one in wanted.items())
    (row,) = db.query_once(
        f"SELECT {listed} FROM {NUMBERED} AS n LEFT JOIN {seen.quoted} AS w ON w.id = n.id"
    )
    # The server would sort wider rows.
    numbers, *columns = (read_array(row[name], "<i8") for name in wanted)
    labels, *digests = (column[np.argsort(numbers)] for column in columns)
    return labels, np.stack(digests, axis=1)


def forget_seen(db: Database, seen: Table, changed: Sequence[int]) -> None:
    """Delete the stored labels and digests of the nodes with the numbers `changed`."""
    db.query(
        f"DELETE FROM {seen.quoted} AS w USING {NUMBERED} AS n, unnest($1) AS u (i)"
        " WHERE n.i = u.i AND w.id = n.id",
        ["bigint[]"],
        [list(changed)],
    )


@dataclass(frozen=True)
class ChangedRows:
    """The numbers of nodes that have no row in a result of cerebro.propagate, of nodes whose features have
    changed since, and of nodes with changes in other columns."""

    missing: np.ndarray
    features: np.ndarray
    others: np.ndarray
    # How many rows of the result have no node.
    gone: int


def find_changed(
    db: Database,
    nodes: Table,
    output: Table,
    id_column: str,
    *,
    features: Sequence[str],
    others: Sequence[str],
) -> ChangedRows:
    """Compare the nodes with their rows in a result of cerebro.propagate, and return the nodes that differ.

    A node that has no row there is in all three lists. Only nodes that differ are joined with their numbers.
    """
    key = quote(id_column)
    wanted = {"missing": f"o.{key} IS NULL", "features": _differ(features), "others": _differ(others)}
    differ = ", ".join(f"({condition}) AS {name}" for name, condition in wanted.items())
    lists = ", ".join(
        "cerebro._array_bytes(array_agg(n.i ORDER BY n.i)"
        f" FILTER (WHERE n.i IS NOT NULL AND (c.missing OR c.{name})))"
        f" AS {name}"
        for name in wanted
    )
    statement = (
        f"SELECT {lists}, count(*) FILTER (WHERE c.id IS NULL) AS gone FROM (SELECT s.{key} AS id, {differ}"
        f" FROM {nodes.rows} FULL JOIN {output.quoted} AS o ON o.{key} = s.{key}"
        f" WHERE o.{key} IS NULL OR s.{key} IS NULL OR {' OR '.join(list(wanted.values())[1:])}) AS c"
        f" LEFT JOIN {NUMBERED} AS n ON n.id = c.id"
    )
    # Rows are wide: with less memory, all of them go through files. Greenplum goes by another setting, and
    # warns of this one.
    with nullcontext() if is_greenplum(db) else with_setting(db, "work_mem", _MEMORY):
        (row,) = db.query_once(statement)
    empty = np.empty(0, "<i8")
    found = (read_array(row[name], "<i8") if row[name] else empty for name in wanted)
    return ChangedRows(*found, gone=row["gone"])


def _differ(columns: Sequence[str]) -> str:
    if not columns:
        return "FALSE"
    own, other = (", ".join(f"{row}.{quote(name)}" for name in columns) for row in ("s", "o"))
    return f"ROW({own})::record OPERATOR(pg_catalog.*<>) ROW({other})::record"


def lock_output(db: Database, output: Table) -> None:
    """Keep other sessions from changing a result of cerebro.propagate until this transaction ends."""
    db.query_once(f"LOCK TABLE {output.quoted} IN SHARE ROW EXCLUSIVE MODE")


def delete_gone(db: Database, table: Table, id_column: str) -> None:
    """Delete the rows of a table whose id is not the id of any node."""
    db.query_once(
        f"DELETE FROM {table.quoted} AS o WHERE NOT EXISTS"
        f" (SELECT FROM {NUMBERED} AS n WHERE n.id = o.{quote(id_column)})"
    )


def copy_columns(
    db: Database,
    nodes: Table,
    output: Table,
    id_column: str,
    *,
    columns: Sequence[str],
    changed: Sequence[int],
) -> None:
    """Copy columns of the nodes with the numbers `changed` to the rows of these nodes in a result of
    cerebro.propagate."""
    if not columns or not changed:
        return
    key = quote(id_column)
    listed = ", ".join(f"{quote(name)} = s.{quote(name)}" for name in columns)
    db.query(
        f"UPDATE {output.quoted} AS o SET {listed} FROM {nodes.rows}"
        f" JOIN {NUMBERED} AS n ON n.id = s.{key} JOIN unnest($1) AS u (i) ON u.i = n.i"
        f" WHERE o.{key} = s.{key}",
        ["bigint[]"],
        [list(changed)],
    )


def update_made(db: Database, output: Table, id_column: str, made: Sequence[str]) -> None:
    """Update the columns `made` in a result of cerebro.propagate, which have the features that propagation
    computes."""
    listed = ", ".join(f"{quote(name)} = m.h{place}" for place, name in enumerate(made))
    db.query_once(
        f"UPDATE {output.quoted} AS o SET {listed} FROM {MADE} AS m JOIN {NUMBERED} AS n ON n.i = m.i"
        f" WHERE o.{quote(id_column)} = n.id"
    )


def insert_made(
    db: Database, nodes: Table, output: Table, id_column: str, *, columns: Sequence[str], made: Sequence[str]
) -> None:
    """Insert rows into a result of cerebro.propagate for the nodes that have none in it."""
    key = quote(id_column)
    listed = ", ".join(quote(name) for name in (*columns, *made))
    own = [f"s.{quote(name)}" for name in columns]
    hops = [f"m.h{place}" for place in range(len(made))]
    db.query_once(
        f"INSERT INTO {output.quoted} ({listed}) SELECT {', '.join([*own, *hops])} FROM {nodes.rows}"
        f" JOIN {NUMBERED} AS n ON n.id = s.{key} JOIN {MADE} AS m ON m.i = n.i"
        f" WHERE NOT EXISTS (SELECT FROM {output.quoted} AS o WHERE o.{key} = s.{key})"
    )
