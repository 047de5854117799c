"""Finds outliers: values so distant that scaling makes the other values of their column nearly constant."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cerebro_plpy.database import Database
from cerebro_plpy.features.facts import NumberFacts
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed import statistics
from cerebro_plpy.store.packed.packed import SourceColumn

# A value is far off from this many deviations of the rest.
FAR = 1e6
# With a dozen such values, each is at least the root of a twelfth of the rows away from the mean, in
# deviations. Only columns with such an end are looked at closely.
MOST_FAR = 12


@dataclass(frozen=True)
class Outlier:
    """A column's value farthest from the rest, and its distance in standard deviations of the rest."""

    value: float
    deviations: float

    def __str__(self) -> str:
        return f"its value {self.value:.10g} is {self.deviations:.1g} deviations away from the rest"


def find(
    db: Database, source: Table, columns: Sequence[tuple[SourceColumn, NumberFacts]]
) -> Mapping[str, Outlier]:
    """Return the outlier of each column that has one, by the column's name."""
    suspected = [(column, end) for column, facts in columns if (end := _lonely_end(facts)) is not None]
    found = {}
    for (column, end), rest in zip(suspected, statistics.rest(db, source, suspected), strict=True):
        if rest.deviation and abs(end - rest.median) > FAR * rest.deviation:
            found[column.name] = Outlier(end, abs(end - rest.median) / rest.deviation)
    return found


def _lonely_end(facts: NumberFacts) -> float | None:
    """Return the minimum or maximum, the one farther from the mean; None if many rows may have it."""
    known = (facts.mean, facts.deviation, facts.minimum, facts.maximum)
    mean, deviation, low, high = (math.nan if one is None else one for one in known)
    if not (math.isfinite(mean) and math.isfinite(high - low) and deviation > 0):
        return None
    end = high if high - mean > mean - low else low
    return end if MOST_FAR * ((end - mean) / deviation) ** 2 >= facts.present else None


def tell_inputs(db: Database, found: Mapping[str, Outlier]) -> None:
    """Send a notice that names the inputs with outliers."""
    if found:
        shown = "; ".join(f'"{name}": {one}' for name, one in found.items())
        by_logarithms = json.dumps(
            {"columns": {name: {"scale": "log"} for name in found}}, ensure_ascii=False
        )
        db.notice(
            f"values so far from the rest that a net can hardly tell the others apart: {shown}. Correct such"
            f" rows or leave them out, in a view; or scale by logarithms: {by_logarithms}"
        )


def tell_target(db: Database, source: Table, column: SourceColumn) -> None:
    """Send a notice if a quantity to learn has an outlier."""
    _, (counted,), _ = statistics.numbers(db, source, [statistics.Counted(column)], [])
    found = find(db, source, [(column, NumberFacts.from_counts(counted))])
    if column.name in found:
        db.notice(
            f'target "{column.name}": {found[column.name]}: a net can hardly tell the others apart.'
            " Correct such rows or leave them out, in a view"
        )
