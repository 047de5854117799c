"""cerebro.windows: a view that cuts readings over time into windows of equal length."""

from __future__ import annotations

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATATYPE_MISMATCH, DUPLICATE_COLUMN, NULL_NOT_ALLOWED, CerebroError
from cerebro_plpy.packing.columns import sources
from cerebro_plpy.packing.columns.grammar import parse_items
from cerebro_plpy.store import names
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.packed import windows as store
from cerebro_plpy.store.packed.packed import SourceColumn

LABELS = ("last", "majority", "next")
LONGEST = 1_000_000
_OWN = ("starts", "ends", "x", "label")


def create(
    db: Database,
    source_table: str | None,
    output_view: str | None,
    partition_by: str | None,
    order_by: str | None,
    columns: str | None,
    length: int | None,
    stride: int | None,
    label: str | None,
    label_from: str | None,
    gap: str | None,
) -> None:
    """Create the view of windows; raise an error if an argument does not fit the source table."""
    source = names.resolve_table(db, source_table, "input table")
    known = packed.columns_of(db, source)

    def find_column(text: str | None, parameter: str) -> SourceColumn:
        return sources.find_named(text, parameter, known, source.quoted)

    order = find_column(order_by, "order_by")
    inputs = [
        sources.find_column(item.columns[0], known, source.quoted) for item in parse_items(columns, "columns")
    ]
    for column in inputs:
        if column.is_array or column.element not in sources.NUMBERS:
            raise _wrong_type(column, "cannot be in a window", "Windows are of numbers.")
    for column in (order, *((find_column(partition_by, "partition_by"),) if partition_by else ())):
        if not column.sortable:
            raise _wrong_type(column, "has no order", "Cast it in a view.")
    if gap is not None and order.element not in packed.DATES:
        raise _wrong_type(order, "has no gaps in time", "Leave gap out.")
    if label_from not in LABELS:
        raise CerebroError(f"label_from is {label_from}", detail=f"It must be one of {', '.join(LABELS)}.")
    _check_partition(partition_by and find_column(partition_by, "partition_by").name)
    target = names.target_table(db, output_view)
    store.create(
        db,
        source,
        target,
        store.Windows(
            partition=find_column(partition_by, "partition_by").name if partition_by else None,
            order=order.name,
            columns=[column.name for column in inputs],
            length=_positive(length, "length"),
            stride=_positive(stride if stride is not None else length, "stride"),
            label=find_column(label, "label").name if label else None,
            label_from=str(label_from),
            gap=gap,
        ),
    )


def _check_partition(name: str | None) -> None:
    if name in _OWN:
        raise CerebroError(
            f'partition_by names "{name}", which is also a column of the view',
            detail=f"The view has the columns {', '.join(_OWN)} beside it.",
            hint="Rename the column with a view.",
            sqlstate=DUPLICATE_COLUMN,
        )


def _positive(value: int | None, what: str) -> int:
    if value is None:
        raise CerebroError(f"{what} is NULL", sqlstate=NULL_NOT_ALLOWED)
    if not 1 <= value <= LONGEST:
        raise CerebroError(f"{what} must be from 1 to {LONGEST}, not {value}")
    return value


def _wrong_type(column: SourceColumn, problem: str, hint: str) -> CerebroError:
    return CerebroError(
        f'column "{column.name}" of type {column.shown_type} {problem}', hint=hint, sqlstate=DATATYPE_MISMATCH
    )
