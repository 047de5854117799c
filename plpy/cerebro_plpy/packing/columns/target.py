"""Checks whether a net can learn a column, before its table is packed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATATYPE_MISMATCH, CerebroError
from cerebro_plpy.features import asked
from cerebro_plpy.features.facts import TextFacts
from cerebro_plpy.features.settle import NEARLY_ALL
from cerebro_plpy.packing.columns import row_keys, sources
from cerebro_plpy.packing.dividing import holdout
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed import source_rows, statistics
from cerebro_plpy.store.packed.packed import SourceColumn

# An integer label of more values is a quantity: marks and digits have fewer, ages and counts have more.
MOST_INTEGERS = 20
# Texts of more values are looked at for numbers.
MOST_TEXTS = 100
# With fewer rows, a share that is held out says nothing.
LEAST_ROWS = 10
# Labels are 32-bit floats: the distance between two of them, as a share of their size.
FLOAT_STEP = 2.0**-23
# The least number of these steps in a quantity's deviation.
LEAST_STEPS = 100
# The square of an error must be a float of 32 bits as well.
SMALLEST, LARGEST = 1e-15, 1e15
CLASSIFICATION, REGRESSION = "classification", "regression"


@dataclass(frozen=True)
class LearnedColumn:
    """A column to learn, with its task: classification or regression."""

    column: SourceColumn
    task: str
    nulls: int
    # The number of rows in which the column is not NULL.
    rows: int


def settle(
    db: Database, source: Table, column: SourceColumn, task: str | None, splits: bool
) -> LearnedColumn:
    """Return a column with its task; raise an error if it cannot be learned.

    If `splits`, a fifth of the rows will be held out, so enough rows must be left.
    """
    _check_type(source, column)
    if task == REGRESSION and column.element not in (*asked.NUMBERS, "bool"):
        raise _unfit(column, "no number, and so no quantity", "Without option task, texts are classes.")
    present, nulls = source_rows.count_values(db, source, column)
    distinct, frequent = 0, []
    if not column.is_array:
        ((present, distinct, frequent),) = statistics.values(db, source, [column], asked.MOST_CATEGORIES)
    _check_rows(source, column, present, nulls, splits)
    if task is None:
        quantity = column.element in sources.FLOATS or column.is_array
        integers = column.element in sources.INTEGERS and not column.is_array
        many = integers and distinct > MOST_INTEGERS
        task = REGRESSION if quantity or many else CLASSIFICATION
        if integers and distinct > 2:
            _tell_task(db, column, distinct, task)
        if column.element in asked.TEXTS and distinct > MOST_TEXTS:
            _refuse_numbers(column, TextFacts(present, distinct, frequent))
    if column.is_array and statistics.is_constant(db, source, column):
        raise _constant(column, present)
    if task == CLASSIFICATION and not column.is_array:
        held = sum(round(count * holdout.SHARE) for _, count in frequent)
        _check_classes(
            column, present, distinct, frequent[0][0] if frequent else "", has_held=held > 0 or not splits
        )
    if task == REGRESSION and not column.is_array:
        _check_quantity(db, source, column, present, distinct)
        if distinct == present and _is_key(db, source, column):
            db.notice(f'target "{column.name}" is a key: it tells rows apart and teaches a net little else')
    return LearnedColumn(column, task, nulls, present)


def _tell_task(db: Database, column: SourceColumn, distinct: int, task: str) -> None:
    """Send a notice that says whether integers are learned as classes or as a quantity."""
    as_what, other, instead = "classes", REGRESSION, "a quantity"
    if task == REGRESSION:
        as_what, other, instead = instead, CLASSIFICATION, as_what
    db.notice(
        f'target "{column.name}" has {distinct} different integers and is learned as {as_what};'
        f' {{"task": "{other}"}} makes it {instead}'
    )


def _check_quantity(db: Database, source: Table, column: SourceColumn, present: int, distinct: int) -> None:
    """Raise an error if a quantity is constant, or if 32-bit floats cannot tell its values apart."""
    name = column.name
    if distinct == 1:
        raise _constant(column, present)
    ends = statistics.spread(db, source, column)
    if not all(map(math.isfinite, (ends.least, ends.greatest, ends.deviation))):
        return  # Packing says which rows have no number.
    step = max(abs(ends.least), abs(ends.greatest)) * FLOAT_STEP
    if ends.deviation < LEAST_STEPS * step:
        raise CerebroError(
            f'target "{name}" lies between {ends.least:.10g} and {ends.greatest:.10g}, where floats of'
            f" 32 bits are up to {step:.3g} apart: its values cannot be told apart",
            hint=f'Make a view with the difference and learn that: "{name}" - {ends.least:.10g}.',
        )
    if not SMALLEST <= ends.deviation <= LARGEST:
        raise CerebroError(
            f'the values of target "{name}" differ by {ends.deviation:.3g}:'
            f" less than {SMALLEST:g} or more than {LARGEST:g} cannot be learned with floats of 32 bits",
            hint=f'Make a view with a multiple and learn that: "{name}" / {ends.deviation:.1g}.',
        )


def _constant(column: SourceColumn, present: int) -> CerebroError:
    return CerebroError(
        f'target "{column.name}" is the same in all {present} rows: there is nothing to learn',
        hint="Name a column whose values differ.",
    )


def _is_key(db: Database, source: Table, column: SourceColumn) -> bool:
    return row_keys.is_key_name(column.name) or column.name in statistics.keys(db, source)


def _check_type(source: Table, column: SourceColumn) -> None:
    known = (*asked.NUMBERS, *asked.TEXTS)
    if column.element in asked.DATES:
        raise _unfit(
            column, "a time, and neither a class nor a quantity", "extract(epoch FROM …) gives a number."
        )
    if column.element in asked.OPAQUE or (column.is_array and column.element not in known):
        raise _unfit(column, "neither a class nor a quantity", "Learn a field of it, as text or as a number.")


def _check_rows(source: Table, column: SourceColumn, present: int, nulls: int, splits: bool) -> None:
    if present == 0 and nulls == 0:
        raise CerebroError(f"input table {source.quoted} has no rows")
    if present == 0:
        raise CerebroError(
            f'target "{column.name}" is NULL in all {nulls} rows of {source.quoted}', sqlstate="22004"
        )
    if splits and present < LEAST_ROWS:
        raise CerebroError(
            f'{source.quoted} has {present} rows in which "{column.name}" is known, too few to learn from',
            detail=f"A fifth is held out to validate on. At least {LEAST_ROWS} rows are needed.",
        )


def _check_classes(column: SourceColumn, present: int, distinct: int, first: str, has_held: bool) -> None:
    name = column.name
    if distinct == 1:
        raise CerebroError(
            f"target \"{name}\" is '{first}' in all {present} rows: there is nothing to tell apart",
            hint="Give rows of at least two classes.",
        )
    if not has_held:
        raise CerebroError(
            f'target "{name}" has {distinct} different values in {present} rows: too many to learn',
            detail="A fifth of each class is held out, and no class has three rows.",
            hint="Name a column with fewer values. A number is learned as a quantity: "
            '{"task": "regression"}, or a cast in a view.',
        )


def _refuse_numbers(column: SourceColumn, facts: TextFacts) -> None:
    found = facts.numbers
    if found.share < NEARLY_ALL:
        return
    other = "" if found.other is None else f'; "{found.other[:30]}" is not'
    raise CerebroError(
        f'target "{column.name}" has {facts.distinct} different texts, of which {found.share:.0%} are'
        f" numbers{other}",
        hint="Cast it to numeric in a view to learn it as a quantity. "
        '{"task": "classification"} learns each text as a class.',
    )


def _unfit(column: SourceColumn, what: str, way_out: str) -> CerebroError:
    return CerebroError(
        f'target "{column.name}" of type {column.shown_type} is {what}',
        hint=f"Name the column of a view that computes one. {way_out}",
        sqlstate=DATATYPE_MISMATCH,
    )
