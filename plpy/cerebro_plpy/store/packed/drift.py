"""SQL on the drift of a packed table: how added rows differ from earlier ones.

Counts and samples are taken with the caller's rights; `cerebro._drift` is written with the owner's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from cerebro_plpy.database import Database, Row, as_owner
from cerebro_plpy.store.names import Table, quote
from cerebro_plpy.store.packed.packed import BUFFER, GROUPS, SHAPE, SourceColumn, as_double
from cerebro_plpy.store.writing import ColumnKind, Role, as_given, insertion, write

Relation = Annotated[int, ColumnKind("bigint", "{}::oid")]
# A sample need not be larger; buffers have at most 16 MB.
SAMPLE_ROWS, SAMPLE_BYTES = 100_000, 64 << 20


@dataclass(frozen=True)
class DriftRow:
    """How one column differs between the rows that a call has added and the earlier rows: a row of
    `cerebro._drift`."""

    packed: Relation
    owner: Role
    version: int
    rows: int
    column_name: str
    nulls_before: float | None
    nulls: float | None
    unseen_before: float | None
    unseen: float | None
    mean_before: float | None
    mean: float | None
    stability: float | None


_INSERTION = insertion("cerebro._drift", DriftRow)
_FORGET = (
    "DELETE FROM cerebro._drift AS d USING (SELECT ($1::json->>'packed')::bigint::oid AS packed,"
    " ($1::json->>'version')::integer AS version) AS g"
    " WHERE (d.packed::oid = g.packed AND d.version >= g.version)"
    " OR NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = d.packed::oid)"
)


@as_owner
def keep(db: Database, rows: Sequence[DriftRow]) -> None:
    """Store the drift of a version, in place of what was stored for this and later versions of the table.
    Also delete the drift of tables that no longer exist."""
    first = rows[0]
    write(
        db,
        [
            (_FORGET, {"packed": first.packed, "version": first.version}),
            (_INSERTION, [as_given(row) for row in rows]),
        ],
    )


def count(
    db: Database, source: Table, columns: Sequence[SourceColumn], numbers: Sequence[bool]
) -> tuple[int, list[tuple[int, float | None]]]:
    """Return the number of rows and, for each column, how many values it has and their mean. `numbers` says
    which columns have numbers; for all others, the mean is None."""
    made = []
    for number, (column, is_number) in enumerate(zip(columns, numbers, strict=True)):
        value = f"nullif({as_double(column)}, 'NaN')" if is_number else column.value
        mean = f"avg({value})" if is_number else "NULL::double precision"
        made.append(f"count({value}) AS c{number}, {mean} AS m{number}")
    row = db.query(f"SELECT {', '.join(['count(*) AS rows', *made])} FROM {source.rows}")[0]
    return row["rows"], [(row[f"c{number}"], row[f"m{number}"]) for number in range(len(columns))]


def sample(
    db: Database, table: Table, columns: Sequence[str], first: int, below: int, *, in_groups: bool = False
) -> list[Row]:
    """Return the first buffers with numbers from `first` to below `below`, enough of them for a sample.

    With `in_groups`, return randomly chosen buffers with their groups instead, as many as fit into memory.
    """
    order = f"hashint4({BUFFER}), {BUFFER}" if in_groups else BUFFER
    shape, sizes = quote(columns[0] + SHAPE), " + ".join(f"octet_length({quote(c)})::bigint" for c in columns)
    listed = db.query(
        f"SELECT {BUFFER} AS number, {shape}[1] AS rows, {sizes} AS bytes FROM {table.quoted}"
        f" WHERE {BUFFER} >= $1 AND {BUFFER} < $2 ORDER BY {order}",
        ["integer", "integer"],
        [first, below],
    )
    wanted = ", ".join(f"{quote(name)}, {quote(name + SHAPE)}" for name in columns)
    wanted += f", {GROUPS}" if in_groups else ""
    most = sys.maxsize if in_groups else SAMPLE_ROWS
    found: list[Row] = []
    rows = size = 0
    for buffer in listed:
        if found and (rows >= most or size + buffer["bytes"] > SAMPLE_BYTES):
            break
        found += db.query(
            f"SELECT {wanted} FROM {table.quoted} WHERE {BUFFER} = $1", ["integer"], [buffer["number"]]
        )
        rows, size = rows + buffer["rows"], size + buffer["bytes"]
    return found
