"""cerebro.describe_columns: shows what the option `columns` would make of each column of a table, and why."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.features import asked, settle
from cerebro_plpy.features.facts import NumberFacts, TextFacts
from cerebro_plpy.features.specification import DATE
from cerebro_plpy.logical.options import parse_options
from cerebro_plpy.packing import options
from cerebro_plpy.packing.columns import sources
from cerebro_plpy.packing.columns.survey import Surveyed, survey
from cerebro_plpy.store import names
from cerebro_plpy.store.packed import packed

Described = tuple[Any, ...]
_SHOWN = ("columns", "exclude")


def describe(db: Database, source_table: str | None, text: str | None) -> Iterator[Described]:
    """Return an iterator over the result rows, one for each column of the described table."""
    given = parse_options(text, {key: options.TRAINING[key] for key in _SHOWN})
    said: asked.AskedColumns = given.get("columns", asked.AskedColumns())
    excluded: tuple[str, ...] = given.get("exclude", ())
    source = names.resolve_table(db, source_table, "input table")
    known = packed.columns_of(db, source)
    for name in (*said.each, *excluded):
        sources.find_column(name, known, source.quoted)
    kept = [column for name, column in known.items() if name not in excluded]
    rows, found = survey(db, source, kept, said, named=False)
    by_name = {one.wanted.column.name: one for one in found}
    # All is looked at before a row is given: an error after that would lose its fields.
    made = [
        _described(by_name[name], rows)
        if name in by_name
        else (name, column.shown_type, *[None] * 6, "excluded")
        for name, column in known.items()
    ]
    return iter(made)


def _described(one: Surveyed, rows: int) -> Described:
    column, facts = one.wanted.column, one.facts
    becomes, reason = _becomes(one, rows)
    head = (column.name, column.shown_type)
    nulls = None if facts is None else rows - facts.present
    if isinstance(facts, TextFacts):
        return (*head, nulls, facts.distinct, None, None, None, becomes, reason)
    if isinstance(facts, NumberFacts):
        is_date = one.chosen.kind == DATE or column.is_date
        show = _moment if is_date else _number
        ends = (show(facts.minimum), show(facts.maximum))
        return (*head, nulls, None, *ends, None if is_date else facts.steady_mean, becomes, reason)
    return (*head, nulls, None, None, None, None, becomes, reason)


def _becomes(one: Surveyed, rows: int) -> tuple[str | None, str]:
    if one.chosen.kind is None:
        return None, f"left out: {one.chosen.why}"
    try:
        feature = settle.settle(one.wanted, one.chosen, one.facts, rows)
    except CerebroError as error:
        return None, f"refused: {error.message}"
    shown = dict(feature.as_json())
    for key in ("name", "type", "element", "statistics", "values", "vocabulary"):
        shown.pop(key, None)
    if one.also is not None:
        shown[asked.ALSO_CATEGORY] = True
    return json.dumps(shown), one.chosen.why


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.15g}"


def _moment(value: float | None) -> str | None:
    """Return a time in seconds since 1970 as ISO text, or as a number if Python's calendar lacks it."""
    if value is None:
        return None
    try:
        epoch = datetime.datetime(1970, 1, 1)
        return (epoch + datetime.timedelta(seconds=value)).isoformat(sep=" ")
    except (OverflowError, ValueError):
        return _number(value)
