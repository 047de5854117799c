"""SQL that looks at the rows that are to be packed, with the caller's rights."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

from cerebro_plpy.database import Database
from cerebro_plpy.store.dialect import HEAP, distributed
from cerebro_plpy.store.names import Table, is_temporary, resolve_table, target
from cerebro_plpy.store.packed.packed import SourceColumn, as_double


def rows_up_to(db: Database, source: Table, most: int) -> int:
    """Return the number of rows of a table; counting stops at `most`."""
    rows = db.query(
        f"SELECT pg_catalog.count(*) AS found FROM (SELECT 1 FROM {source.rows} LIMIT $1) AS n",
        ("bigint",),
        (most,),
    )
    return rows[0]["found"]


def limit(source: Table, condition: str) -> Table:
    """Return the table, limited to the rows s that meet a condition."""
    if source.selection is None:
        both = condition if source.condition is None else f"({source.condition}) AND {condition}"
        return replace(source, condition=both)
    return replace(source, selection=f"(SELECT s.* FROM {source.rows} WHERE {condition})")


def with_values(source: Table, column: SourceColumn) -> Table:
    """Return the table, limited to the rows in which a column is not NULL."""
    return limit(source, f"{column.value} IS NOT NULL")


def view_of(view: str, source: Table) -> str:
    """Return the statement that creates a view of the rows of a table."""
    return f"CREATE VIEW {view} AS SELECT s.* FROM {source.rows};"


@contextmanager
def copied(db: Database, source: Table, schema: str) -> Generator[Table]:
    """Yield the table with a copy of its selected rows in a schema, from which they are read; drop the copy
    after the block.

    A few rows of a very large table are found once, and not again by each statement that reads them.
    """
    name = target(db, schema, f"_{secrets.token_hex(16)}").quoted
    kind = "" if is_temporary(schema) else "UNLOGGED "
    end = distributed(db, "RANDOMLY")
    db.query(f"CREATE {kind}TABLE {name}{HEAP} AS SELECT s.* FROM {source.rows}{end}")
    yield replace(source, selection=None, condition=None, copy=resolve_table(db, name))
    db.query(f"DROP TABLE {name}")


def draw_rows(source: Table, most: int, seed: int) -> Table:
    """Return the table, limited to `most` rows chosen at random; with equal rows and seeds, the same rows are
    chosen."""
    chance = f"pg_catalog.hashtextextended((s.*)::pg_catalog.text, {int(seed)})"
    drawn = f"(SELECT s.* FROM {source.rows} ORDER BY {chance} LIMIT {int(most)})"
    return replace(source, selection=drawn)


def count_values(db: Database, source: Table, column: SourceColumn) -> tuple[int, int]:
    """Return the number of rows in which a column has a value, and of those in which it is NULL."""
    row = db.query(f"SELECT count(*) AS found, count({column.value}) AS present FROM {source.rows}")[0]
    return row["present"], row["found"] - row["present"]


def count(db: Database, source: Table) -> int:
    """Return the number of rows of a table."""
    return db.query(f"SELECT count(*) AS found FROM {source.rows}")[0]["found"]


def first_negative(db: Database, source: Table, column: SourceColumn) -> float | None:
    """Return any value of a column that is less than 0, or None if there is none."""
    rows = db.query(
        f"SELECT {as_double(column)} AS found FROM {source.rows} WHERE {column.value} < 0 LIMIT 1"
    )
    return rows[0]["found"] if rows else None
