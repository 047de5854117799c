"""train_test_split: divides the rows of a table into rows to train on and rows to test on."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATATYPE_MISMATCH, DUPLICATE_COLUMN, NULL_NOT_ALLOWED, CerebroError
from cerebro_plpy.logical.options import LARGEST, Validator, integer, parse_options
from cerebro_plpy.packing.columns import sources
from cerebro_plpy.packing.columns.grammar import parse_items
from cerebro_plpy.store import names
from cerebro_plpy.store.packed import packed, splits
from cerebro_plpy.store.packed.packed import SourceColumn

OPTIONS: Mapping[str, Validator] = {"seed": integer(-LARGEST)}
# Proportions such as 0.7 and 0.3 may come to a little more than 1.
SLACK = 1e-9


def train_test_split(
    db: Database,
    source_table: str | None,
    output_table: str | None,
    train_proportion: float | None,
    test_proportion: float | None = None,
    grouping_cols: str | None = None,
    target_cols: str | None = None,
    with_replacement: bool | None = False,
    separate_output_tables: bool | None = False,
    options: str | None = None,
) -> None:
    """Write the rows of a table to one or two output tables, as rows to train on and rows to test on."""
    seed = parse_options(options, OPTIONS).get("seed")
    train, test = _proportions(train_proportion, test_proportion, bool(with_replacement))
    source = names.resolve_table(db, source_table, "input table")
    known = packed.columns_of(db, source)
    groups = _columns(grouping_cols, "grouping_cols", known, source)
    _check_groups(groups)
    columns = _target_columns(target_cols, groups, known, source)
    targets = _targets(db, output_table, bool(separate_output_tables))
    if len(targets) == 1:
        _check_column(columns)
    if not splits.has_rows(db, source):
        raise CerebroError(f"input table {source.quoted} has no rows")
    split = splits.Split(
        source=source,
        columns=[column.name for column in columns],
        groups=[column.name for column in groups],
        train=train,
        test=test,
        seed=seed if seed is not None else secrets.randbits(63),
        repeatable=seed is not None,
    )
    splits.write(db, split, targets, replacement=bool(with_replacement))


def _proportions(train: float | None, test: float | None, replacement: bool) -> tuple[float, float]:
    if train is None:
        raise CerebroError("train_proportion is NULL", sqlstate=NULL_NOT_ALLOWED)
    for what, given in (("train_proportion", train), ("test_proportion", test)):
        if given is not None and not 0 < given < 1:
            raise CerebroError(f"{what} must be between 0 and 1, not {given:g}")
    if test is None:
        return train, 1 - train
    if train + test > 1 + SLACK and not replacement:
        raise CerebroError(
            f"train_proportion and test_proportion add up to {train + test:g}, which is more than 1",
            hint="Without replacement each row is given out once.",
        )
    return train, test


def _columns(
    text: str | None, parameter: str, known: Mapping[str, SourceColumn], source: names.Table
) -> list[SourceColumn]:
    """Return the columns that a comma-separated list names, without repetitions."""
    if text is None or not text.strip():
        return []
    items = parse_items(text, parameter)
    if any(item.bundled for item in items):
        raise CerebroError(f"{parameter} {text} is not a list of columns")
    listed = dict.fromkeys(name for item in items for name in item.columns)
    return [sources.find_column(name, known, source.quoted) for name in listed]


def _check_groups(groups: list[SourceColumn]) -> None:
    for column in groups:
        if not (column.sortable or column.is_array):
            raise CerebroError(
                f'column "{column.name}" of type {column.shown_type} cannot be a grouping column',
                hint="Its type has no order. Cast it to text in a view.",
                sqlstate=DATATYPE_MISMATCH,
            )


def _target_columns(
    text: str | None, groups: list[SourceColumn], known: Mapping[str, SourceColumn], source: names.Table
) -> list[SourceColumn]:
    """Return the grouping columns and the columns that `text` names, or all columns if it is empty or '*'."""
    if text is None or text.strip() in ("", "*"):
        return list(known.values())
    named = _columns(text, "target_cols", known, source)
    return groups + [column for column in named if column not in groups]


def _targets(db: Database, output_table: str | None, separate: bool) -> list[names.TargetTable]:
    """Return the output table, or, if `separate`, one table to train on and one to test on."""
    if not separate:
        return [names.target_table(db, output_table)]
    schema, table = names.parse_table(output_table, "output table", made=True)
    place = () if schema is None else (schema,)
    return [names.target_table(db, names.quote(*place, table + suffix)) for suffix in ("_train", "_test")]


def _check_column(columns: list[SourceColumn]) -> None:
    if any(column.name == splits.COLUMN for column in columns):
        raise CerebroError(
            f'the output table would have two columns called "{splits.COLUMN}"',
            hint="Name others in target_cols, or give separate_output_tables.",
            sqlstate=DUPLICATE_COLUMN,
        )
