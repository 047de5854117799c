"""Computes statistics of a table's columns, and decides what each column becomes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATATYPE_MISMATCH, CerebroError
from cerebro_plpy.features import asked, settle
from cerebro_plpy.features.asked import AskedColumns, TableColumn
from cerebro_plpy.features.facts import ColumnFacts, NumberFacts, TextFacts
from cerebro_plpy.features.settle import Becoming, Wanted
from cerebro_plpy.features.specification import (
    CATEGORY,
    DATE,
    LOG,
    NUMBER,
    QUANTILE,
    TEXT,
    Feature,
    Specification,
)
from cerebro_plpy.packing.columns import outliers, row_keys
from cerebro_plpy.packing.columns.sources import VALUES, SourcePart
from cerebro_plpy.packing.rows.arrays import shape_of
from cerebro_plpy.relations.recipe import read as read_recipe
from cerebro_plpy.store.names import Table, quote
from cerebro_plpy.store.packed import packed, statistics
from cerebro_plpy.store.packed.packed import Expression, SourceColumn
from cerebro_plpy.store.packed.statistics import Counted
from cerebro_plpy.store.related import relations

# In a larger table, counting the label at each value of each number would take long.
MOST_ROWS = 250_000
JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Surveyed:
    """A column with its statistics and the decision what it becomes."""

    wanted: Wanted
    facts: ColumnFacts | None
    chosen: Becoming
    # The counts of its values, if a number is also made a category.
    also: TextFacts | None = None

    @property
    def is_scaled(self) -> bool:
        """Whether the column is scaled in a way that outliers can spoil, unlike logarithms and quantiles."""
        return self.chosen.said.get("scale") not in (asked.NONE, LOG, QUANTILE)

    @property
    def is_text_of_numbers(self) -> bool:
        """Whether the column holds numbers as text, and the caller has not said what it becomes."""
        facts, said = self.facts, self.wanted.said.keys() - {"input"}
        return not said and isinstance(facts, TextFacts) and bool(settle.of_numbers(self.wanted, facts))


def survey(
    db: Database,
    source: Table,
    columns: Sequence[SourceColumn],
    said: AskedColumns,
    *,
    named: bool,
    label: SourcePart | None = None,
) -> tuple[int, list[Surveyed]]:
    """Return the number of rows, and each column with its statistics and what it becomes.

    If the columns are not `named` by the caller, some may be left out.
    """
    wanted = _wanted(db, source, columns, said, named)
    by_name = {column.name: column for column in columns}
    rows, facts = _facts(db, source, by_name, wanted)
    open_ones = [(by_name[one.column.name], one.column) for one in wanted if not (one.named or one.key)]
    keys = row_keys.find_keys(db, source, open_ones, facts)
    found = []
    for one in wanted:
        name = one.column.name
        known = replace(one, key=one.key or keys.get(name))
        found.append(Surveyed(known, facts.get(name), settle.choose(known, facts.get(name), rows)))
    found = _with_categories(db, source, by_name, said, label if rows <= MOST_ROWS else None, found)
    return rows, _with_outliers(db, source, by_name, found)


def _with_categories(
    db: Database,
    source: Table,
    by_name: Mapping[str, SourceColumn],
    said: AskedColumns,
    label: SourcePart | None,
    found: Sequence[Surveyed],
) -> list[Surveyed]:
    """Return `found`, with counts of values for the numeric columns that also become categories."""
    numbers = [
        one.wanted.column.name
        for one in found
        if one.chosen.kind == NUMBER and one.wanted.column.element != "bool"
    ]
    also = {name for name in numbers if said.also(name)}
    if label is not None:
        open_ones = [by_name[name] for name in numbers if said.also(name) is None]
        also |= _find_jumping(db, source, open_ones, label)
    chosen = [by_name[name] for name in numbers if name in also]
    values = statistics.values(db, source, chosen, asked.MOST_CATEGORIES + 1)
    facts = {column.name: TextFacts(*of) for column, of in zip(chosen, values, strict=True)}
    return [replace(one, also=facts.get(one.wanted.column.name)) for one in found]


def _find_jumping(
    db: Database, source: Table, columns: Sequence[SourceColumn], label: SourcePart
) -> set[str]:
    """Return the numeric columns in which the label jumps from one value to the next (`LabelByValue.jumps`).

    If several columns divide the rows alike, such as a distance in miles and in kilometres, return one of
    them.
    """
    found: dict[bytes, str] = {}
    is_quantity = label.kind == VALUES
    for column in columns:
        counted = statistics.label_by_value(
            db, source, column, label.first, is_quantity=is_quantity, most=asked.MOST_CATEGORIES
        )
        if counted is not None and counted.jumps:
            found.setdefault(counted.division, column.name)
    return set(found.values())


def _with_outliers(
    db: Database, source: Table, by_name: Mapping[str, SourceColumn], found: Sequence[Surveyed]
) -> list[Surveyed]:
    """Return `found`, with each outlier added to the reason for what its column becomes.

    Send a notice about the outliers.
    """
    scaled = [
        (by_name[one.wanted.column.name], one.facts)
        for one in found
        if isinstance(one.facts, NumberFacts) and one.chosen.kind == NUMBER and one.is_scaled
    ]
    far = outliers.find(db, source, scaled)
    outliers.tell_inputs(db, far)
    return [
        replace(one, chosen=replace(one.chosen, why=f"{one.chosen.why}; {far[name]}")) if name in far else one
        for name, one in ((one.wanted.column.name, one) for one in found)
    ]


def specify(
    db: Database,
    source: Table,
    columns: Sequence[SourceColumn],
    said: AskedColumns,
    *,
    named: bool,
    label: SourcePart | None,
) -> Specification:
    """Return the feature specification of these columns, as inputs to predict the label from."""
    rows, found = survey(db, source, columns, said, named=named, label=label)
    if not rows:
        raise CerebroError(f"input table {source.quoted} has no rows")
    left_out = {one.wanted.column.name: one.chosen.why for one in found if one.chosen.kind is None}
    features: list[Feature] = []
    for one in found:
        if one.chosen.kind is not None:
            features.append(_feature(db, source, columns, one, rows))
        if one.also is not None:
            features.append(settle.settle_also(one.wanted, one.also, rows))
    for name, why in left_out.items():
        if named or name in said.each:
            raise CerebroError(
                f'column "{name}" cannot be an input: {why}',
                hint="Leave it out, or say what it is in the option columns.",
                sqlstate=DATATYPE_MISMATCH,
            )
    as_numbers = [one for one in found if one.chosen.kind is not None and one.is_text_of_numbers]
    if as_numbers:
        shown = ", ".join(f'"{one.wanted.column.name}" ({one.chosen.why})' for one in as_numbers)
        db.notice(f"columns taken as text, though nearly all of their values are numbers: {shown}")
    jumping = [one.wanted.column.name for one in found if one.also and not said.also(one.wanted.column.name)]
    if jumping:
        alone = json.dumps(
            {"columns": {name: {asked.ALSO_CATEGORY: False} for name in jumping}}, ensure_ascii=False
        )
        db.notice(
            f"learned as numbers and as categories, since the label jumps from value to value:"
            f" {asked.listed(jumping)}; as numbers alone: {alone}"
        )
    if left_out:
        shown = ", ".join(f'"{name}" ({why})' for name, why in left_out.items())
        db.notice(f"left out of the inputs: {shown}")
    if not features:
        raise CerebroError(
            f"no column of {source.quoted} can be an input",
            detail="; ".join(f'"{name}": {why}' for name, why in left_out.items()),
            hint="cerebro.describe_columns(…) shows what is known of each column.",
        )
    recipe = relations.recipe_beside(db, source)
    return Specification(tuple(features), rows, left_out, None if recipe is None else json.loads(recipe))


def _feature(
    db: Database, source: Table, columns: Sequence[SourceColumn], one: Surveyed, rows: int
) -> Feature:
    words: list[str] = []
    if one.chosen.kind == TEXT and settle.vocabulary(one.chosen.said):
        column = next(c for c in columns if c.name == one.wanted.column.name)
        words = statistics.words(db, source, column, settle.vocabulary(one.chosen.said))
    return settle.settle(one.wanted, one.chosen, one.facts, rows, words)


def _of_relations(db: Database, source: Table) -> dict[str, str]:
    """Return the columns that only join rows with related tables, each with the reason why it is no input."""
    text = relations.recipe_beside(db, source)
    if text is None:
        return {}
    recipe = read_recipe(text)
    entity = quote(*recipe.entity)
    return {
        **dict.fromkeys(recipe.key, f"the key of {entity}"),
        recipe.cutoff: f"the cut-off of the rows of {entity}",
    }


def _wanted(
    db: Database, source: Table, columns: Sequence[SourceColumn], said: AskedColumns, named: bool
) -> list[Wanted]:
    keys = {**row_keys.listed(statistics.keys(db, source)), **_of_relations(db, source)}
    found = [
        (column, TableColumn(column.name, column.element, column.is_array, column.shown_type))
        for column in columns
    ]
    sniffed = _sniff(db, source, found)
    wanted = []
    for column, plain in found:
        own = said.each.get(column.name, {})
        first = sniffed.get(column.name)
        has_shape = first is not None and plain.is_array_of_numbers
        is_named = named or column.name in said.each
        can_be = is_named or not column.is_array or plain.is_array_of_numbers
        wanted.append(
            Wanted(
                column=plain,
                said=own,
                kind=asked.kind_of(plain, own) if can_be else None,
                named=is_named,
                key=keys.get(column.name),
                shape=shape_of(first) if first is not None and has_shape else None,
                is_image=plain.is_bytes and first is not None and first.startswith((JPEG, PNG)),
            )
        )
    return wanted


def _sniff(
    db: Database, source: Table, columns: Sequence[tuple[SourceColumn, TableColumn]]
) -> Mapping[str, bytes | None]:
    """Return the first value of each column of bytes or of numeric arrays, whose types say too little."""
    looked = [
        Expression(packed.BYTES if plain.is_bytes else packed.ARRAY, (column,))
        for column, plain in columns
        if plain.is_bytes or plain.is_array_of_numbers
    ]
    found = statistics.firsts(db, source, looked)
    return {one.columns[0].name: first for one, first in zip(looked, found, strict=True)}


def _facts(
    db: Database, source: Table, columns: Mapping[str, SourceColumn], wanted: Sequence[Wanted]
) -> tuple[int, dict[str, ColumnFacts]]:
    numbers = [one for one in wanted if one.kind in (NUMBER, DATE)]
    texts = [one for one in wanted if _is_counted(one)]
    worded = [one for one in texts if one.kind is None]
    counted = [_counted(columns[one.column.name], one) for one in numbers]
    rows, found, lengths = statistics.numbers(
        db, source, counted, [columns[one.column.name] for one in worded]
    )
    facts: dict[str, ColumnFacts] = {
        one.column.name: NumberFacts.from_counts(values) for one, values in zip(numbers, found, strict=True)
    }
    words = {one.column.name: length for one, length in zip(worded, lengths, strict=True)}
    listed = [columns[one.column.name] for one in texts]
    values = statistics.values(db, source, listed, asked.MOST_CATEGORIES + 1)
    for column, (present, distinct, frequent) in zip(listed, values, strict=True):
        facts[column.name] = TextFacts(present, distinct, frequent, words.get(column.name, 0.0))
    return rows, facts


def _is_counted(one: Wanted) -> bool:
    """Return whether to count a column's values; keys that the caller did not name have too many."""
    if one.key is not None and not one.named:
        return False
    if one.kind == CATEGORY:
        return one.named or one.column.element not in (*asked.OPAQUE, "uuid")
    return one.kind is None and not one.column.is_bytes and not one.column.is_array


def _counted(column: SourceColumn, one: Wanted) -> Counted:
    scale, impute = one.said.get("scale"), one.said.get("impute")
    return Counted(
        column,
        quartiles=scale == "robust" or impute == asked.MEDIAN,
        mode=impute == asked.MOST_FREQUENT,
        quantiles=scale == QUANTILE,
        logarithms=scale == LOG,
    )
