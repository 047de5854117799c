"""Finds the columns of a table that a feature specification makes inputs of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATATYPE_MISMATCH, UNDEFINED_COLUMN, CerebroError
from cerebro_plpy.features import asked
from cerebro_plpy.features.asked import TableColumn
from cerebro_plpy.features.specification import ARRAY, DATE, IMAGE, NUMBER, TEXT, Feature, Specification
from cerebro_plpy.packing.columns import sources, survey
from cerebro_plpy.packing.columns.featured import FeaturePart
from cerebro_plpy.packing.columns.grammar import parse_items
from cerebro_plpy.packing.columns.sources import SourcePart
from cerebro_plpy.packing.options import PackOptions
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed.packed import SourceColumn

ALL = "*"


def specify(
    db: Database,
    source: Table,
    known: Mapping[str, SourceColumn],
    listed: str | None,
    outputs: Sequence[SourcePart],
    chosen: PackOptions,
) -> Specification:
    """Return the feature specification of the listed inputs; '*' lists all columns but labels and weight."""
    said = replace(chosen.columns or asked.AskedColumns(), also_categories=chosen.also_categories)
    for name in (*said.each, *chosen.exclude):
        sources.find_column(name, known, source.quoted)
    everything = listed is not None and listed.strip() == ALL
    labels = [column.name for one in outputs for column in one.columns] + [chosen.weight]
    names = [name for name in known if name not in labels] if everything else _names(listed)
    columns = [
        sources.find_column(name, known, source.quoted) for name in names if name not in chosen.exclude
    ]
    for name in said.each:
        if name not in [column.name for column in columns]:
            raise CerebroError(
                f'option columns describes "{name}", which is not an input',
                hint="It is in exclude as well: leave it out of one of the two."
                if name in chosen.exclude
                else "List it in independent_varname, which may be '*' for all columns.",
            )
    if not columns:
        raise CerebroError("no column is left to be an input", hint="Exclude fewer columns.")
    label = _find_label(outputs)
    return survey.specify(db, source, columns, said, named=not everything, label=label)


def _find_label(outputs: Sequence[SourcePart]) -> SourcePart | None:
    """Return the label if it is a single column of classes or numbers, else None."""
    if len(outputs) != 1 or len(outputs[0].columns) != 1:
        return None
    label = outputs[0]
    is_number = label.first.element in sources.NUMBERS and not label.first.is_array
    return label if label.kind == sources.CLASSES or (label.kind == sources.VALUES and is_number) else None


def _names(listed: str | None) -> list[str]:
    items = parse_items(listed, "independent_varname")
    for item in items:
        if item.bundled:
            raise CerebroError(
                f"independent_varname {listed} has ARRAY[…], which does not go with option columns",
                hint='Plain columns make one vector. {"columns": {"a": {"input": "name"}}} makes another.',
            )
    return list(dict.fromkeys(item.columns[0] for item in items))


def parts(found: Specification, known: Mapping[str, SourceColumn], table: str) -> list[FeaturePart]:
    """Return the inputs of a specification, read from a table; raise an error if the table lacks a column."""
    missing = [name for name in found.columns if name not in known]
    if missing:
        raise CerebroError(
            f"{table} lacks {'columns' if len(missing) > 1 else 'the column'} {asked.listed(missing)}",
            detail=f"The training rows had {asked.listed(list(found.columns))}.",
            hint="Give rows with these columns, NULL where a value is not known.",
            sqlstate=UNDEFINED_COLUMN,
        )
    for feature in found.features:
        check_type(feature, known[feature.name], table)
    return [FeaturePart(one, tuple(known[feature.name] for feature in one.features)) for one in found.inputs]


def check_type(feature: Feature, column: SourceColumn, table: str) -> None:
    """Raise an error if a column's type does not fit the feature that was made of the training column."""
    plain = TableColumn(column.name, column.element, column.is_array, column.shown_type)
    fits = {
        NUMBER: plain.is_number,
        DATE: plain.is_date,
        TEXT: not column.is_array and column.element in asked.TEXTS,
        IMAGE: plain.is_bytes,
        ARRAY: plain.is_array_of_numbers or plain.is_bytes,
    }
    if not fits.get(feature.way.kind, True):
        raise CerebroError(
            f'column "{column.name}" of {table} is {column.shown_type}; in the training rows it was'
            f" {feature.type}",
            hint="Cast it in a view.",
            sqlstate=DATATYPE_MISMATCH,
        )


def check_listed(listed: str | None, found: Specification) -> None:
    """Raise an error if the list lacks a column of the training rows; '*' or no list means all columns."""
    if listed is None or not listed.strip() or listed.strip() == ALL:
        return
    names = _names(listed)
    different = [name for name in found.columns if name not in names]
    if different:
        raise CerebroError(
            f"independent_varname lacks {asked.listed(different)}, which the training rows have",
            hint="Write '*': the columns are found by their names.",
            sqlstate=UNDEFINED_COLUMN,
        )
