"""Finds keys: columns that identify rows but say nothing about them. A net would memorize their values.

The whole table is examined, including rows that are held out: without these, consecutive numbers would have
gaps, and would not be recognized as a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from cerebro_plpy.database import Database
from cerebro_plpy.features import asked
from cerebro_plpy.features.asked import TableColumn
from cerebro_plpy.features.facts import ColumnFacts, NumberFacts, TextFacts
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed import statistics
from cerebro_plpy.store.packed.packed import SourceColumn
from cerebro_plpy.store.packed.statistics import DistinctValues

KEY = "a key: no two rows have the same"
NUMBERS = "numbers the rows"
RISES = "numbers the rows: it rises from row to row"
WHOLE = ("int2", "int4", "int8")
# Names that only keys have, such as id, customer_id, orderId and uuid.
_NAME = re.compile(
    r"(.*[_ .-])?(id|uuid|guid)|row[_ .]?(id|num|number|names?)|index|unnamed: 0", re.IGNORECASE
)
_CAMEL = re.compile(r".*[a-z0-9](Id|ID)")
# As many pairs of equal values a quantity would have at least, were it even over its range.
LEAST_PAIRS = 10
# A table of fewer rows may be in order by chance, or as it was typed.
LEAST_RISING = 12
FEWEST = 3


def find_keys(
    db: Database,
    table: Table,
    columns: Sequence[tuple[SourceColumn, TableColumn]],
    facts: Mapping[str, ColumnFacts],
) -> dict[str, str]:
    """Return the columns whose values identify the rows of a table, each with the reason."""
    whole = replace(table, selection=None, condition=None, copy=None)
    possible = [column for column, plain in columns if _may_be_key(plain, facts.get(column.name))]
    found: dict[str, str] = {}
    for column, values in zip(possible, statistics.distinct(db, whole, possible), strict=True):
        reason = _reason(column, values)
        if reason is None and _may_rise(column, values) and statistics.rises(db, whole, column):
            reason = RISES
        if reason is not None:
            found[column.name] = reason
    return found


def is_key_name(name: str) -> bool:
    """Return whether the name of a column is typical of keys, for example `id` or `customer_id`."""
    return bool(_NAME.fullmatch(name) or _CAMEL.fullmatch(name))


def listed(names: Iterable[str]) -> dict[str, str]:
    """Return the columns `names`, each with the reason that it is a key by the table's definition."""
    return dict.fromkeys(names, KEY)


def _may_be_key(column: TableColumn, facts: ColumnFacts | None) -> bool:
    """Return whether all values of a column may be different, according to its statistics."""
    if isinstance(facts, NumberFacts):
        is_named = column.element in asked.NUMBERS and is_key_name(column.name)
        if not (column.element in WHOLE or is_named) or facts.minimum is None or facts.maximum is None:
            return False
        return column.element != "bool" and facts.present <= facts.maximum - facts.minimum + 1
    if isinstance(facts, TextFacts):
        return is_key_name(column.name) and facts.distinct == facts.present
    return False


def _reason(column: SourceColumn, values: DistinctValues) -> str | None:
    if not values.all_different or values.present < FEWEST:
        return None
    if is_key_name(column.name) and (values.are_whole or column.element not in asked.NUMBERS):
        return KEY
    if column.element not in WHOLE or values.present < values.rows:
        return None
    if values.minimum is None or values.maximum is None:
        return None
    width = values.maximum - values.minimum + 1
    if width == values.rows and values.minimum in (0, 1):
        return NUMBERS
    # Among this many numbers drawn from a range this wide, some would be equal.
    return NUMBERS if values.rows**2 / (2 * width) >= LEAST_PAIRS else None


def _may_rise(column: SourceColumn, values: DistinctValues) -> bool:
    return (
        column.element in WHOLE
        and values.all_different
        and values.present == values.rows
        and values.rows >= LEAST_RISING
    )
