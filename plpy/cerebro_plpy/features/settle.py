"""Decides what each column becomes, and why, from the caller's options and the server's statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.features import asked
from cerebro_plpy.features.asked import MEAN, MEDIAN, MOST_FREQUENT, NONE, TableColumn
from cerebro_plpy.features.encode import NAN
from cerebro_plpy.features.facts import ColumnFacts, NumberFacts, TextFacts, spread, steady
from cerebro_plpy.features.specification import (
    ARRAY,
    CATEGORY,
    DATE,
    EMBED,
    HASH,
    IMAGE,
    LOG,
    NUMBER,
    ONE_HOT,
    ORDINAL,
    QUANTILE,
    TEXT,
    VECTOR,
    Array,
    Category,
    Date,
    Feature,
    Image,
    Number,
    Text,
    Treatment,
)
from cerebro_plpy.madlib.literal import shorten

# The limits by which auto tells categories from texts.
FEW_VALUES = 64
MOST_AUTO = 50_000
WORDS = 3.0
# A text column that holds numbers in this share of its rows was meant as numbers.
NEARLY_ALL = 0.9
TOKENS, VOCABULARY, BUCKETS = 64, 5000, 1000
PICTURE = [64, 64, 3]
CALENDAR = ["days", "month", "weekday"]
# How often a value must occur to have a code of its own, where a number is a category as well.
ALSO_COUNT = 2


@dataclass(frozen=True)
class Wanted:
    """One column with everything that is known about it before its kind is decided."""

    column: TableColumn
    said: Mapping[str, Any]
    kind: str | None
    # Whether the caller named it; else auto may leave it out.
    named: bool = False
    # The reason why its values identify rows but say nothing about them, or None if they do not.
    key: str | None = None
    # For arrays, the shape of the first. For bytea, whether the first is a JPEG or PNG.
    shape: Sequence[int] | None = None
    is_image: bool = False


@dataclass(frozen=True)
class Becoming:
    """The kind that a column becomes, with the reason; a column without a kind is left out."""

    kind: str | None
    said: Mapping[str, Any]
    why: str


def choose(wanted: Wanted, facts: ColumnFacts | None, rows: int) -> Becoming:
    """Return the kind and the keys of a column, with the reason; decide what the caller left open."""
    if wanted.column.element == "money":
        return Becoming(None, {}, "money: cast it to numeric in a view, and it becomes a number")
    if not wanted.named:
        reason = _useless(wanted, facts, rows)
        if reason:
            return Becoming(None, {}, reason)
    if wanted.said.keys() - {"input"}:
        return Becoming(wanted.kind, wanted.said, "as you asked")
    if wanted.kind in (NUMBER, DATE, ARRAY):
        return Becoming(wanted.kind, wanted.said, f"type {wanted.column.shown_type}")
    if wanted.column.is_bytes:
        if wanted.is_image:
            return Becoming(IMAGE, {"decode": PICTURE, **wanted.said}, "holds JPEG or PNG")
        return Becoming(None, {}, "bytea that is neither JPEG nor PNG")
    if isinstance(facts, TextFacts):
        chosen = _choose_text(wanted, facts)
        return replace(chosen, why=chosen.why + of_numbers(wanted, facts))
    return Becoming(None, {}, f"type {wanted.column.shown_type}")


def _useless(wanted: Wanted, facts: ColumnFacts | None, rows: int) -> str | None:
    column = wanted.column
    if wanted.key is not None:
        return wanted.key
    if column.element == "uuid":
        return "a uuid tells rows apart and says nothing about them"
    if column.element in asked.OPAQUE or (column.is_array and not column.is_array_of_numbers):
        return f"type {column.shown_type} has no meaning for a net"
    if column.is_array_of_numbers and not wanted.shape:
        return "NULL in all rows" if wanted.shape is None else "an empty array in its first row"
    if facts is None:
        return None
    if facts.present == 0:
        return "NULL in all rows"
    if isinstance(facts, NumberFacts):
        if facts.is_constant and facts.present == rows:
            return f"constant, {facts.minimum:g} in all rows"
        return None
    if facts.distinct == 1 and facts.present == rows:
        return "constant, the same in all rows"
    few_words = facts.words < WORDS
    if few_words and facts.distinct > max(FEW_VALUES, facts.present // 2):
        return f"{facts.distinct} different values in {facts.present} rows{of_numbers(wanted, facts)}"
    return None


def of_numbers(wanted: Wanted, facts: ColumnFacts | None) -> str:
    """Return a remark if nearly all texts of a column are numbers; otherwise an empty text."""
    if wanted.column.element not in asked.TEXTS or not isinstance(facts, TextFacts):
        return ""
    found = facts.numbers
    if found.share < NEARLY_ALL:
        return ""
    other = "" if found.other is None else f'; "{shorten(found.other, 30)}" is not'
    return f", texts of which {found.share:.0%} are numbers{other}: cast it to numeric in a view"


def _choose_text(wanted: Wanted, facts: TextFacts) -> Becoming:
    is_text = wanted.column.element in asked.TEXTS
    if is_text and facts.words >= WORDS and facts.distinct > FEW_VALUES:
        return Becoming(TEXT, wanted.said, f"{facts.words:.0f} words on average")
    if facts.distinct <= FEW_VALUES:
        return Becoming(CATEGORY, {"encode": ONE_HOT, **wanted.said}, f"{facts.distinct} values")
    if facts.distinct > MOST_AUTO:
        said = {"encode": HASH, "buckets": MOST_AUTO, **wanted.said}
        return Becoming(CATEGORY, said, f"{facts.distinct} values")
    return Becoming(CATEGORY, {"encode": EMBED, **wanted.said}, f"{facts.distinct} values")


def settle(
    wanted: Wanted, chosen: Becoming, facts: ColumnFacts | None, rows: int, words: Sequence[str] = ()
) -> Feature:
    """Return the feature that a column becomes."""
    kind, column = str(chosen.kind), wanted.column
    said = asked.checked(column, kind, chosen.said)
    if facts is not None and facts.present == 0:
        raise CerebroError(
            f'column "{column.name}" is NULL in all rows', hint=_leave_out(column.name), sqlstate="22004"
        )
    if wanted.kind is None and wanted.said.keys() - {"input"} and chosen.kind is None:
        raise CerebroError(f'column "{column.name}" cannot be an input: {chosen.why}')
    way = _WAYS[kind](Making(column, said, facts, rows, wanted.shape, words))
    of = said.get("input") or (VECTOR if _is_plain(way) else column.name)
    known = {**_statistics(facts, rows), **_counts(way, facts)}
    return Feature(column.name, column.shown_type, column.element, of, way, statistics=known)


def settle_also(wanted: Wanted, facts: TextFacts, rows: int) -> Feature:
    """Return a second feature of a column of numbers: its values as a category, in an input of its own.

    Rare values share the code of unseen values, so that training rows have this code, too.
    """
    column, said = wanted.column, {"encode": EMBED, "min_count": ALSO_COUNT}
    way = _category(Making(column, said, facts, rows, None))
    known = {**_statistics(facts, rows), **_counts(way, facts)}
    return Feature(column.name, column.shown_type, column.element, column.name, way, statistics=known)


def _is_plain(way: Treatment) -> bool:
    """Return whether a column's feature joins the input vector of all numbers."""
    return isinstance(way, Number | Date) or (isinstance(way, Category) and way.encode in (ONE_HOT, ORDINAL))


def _statistics(facts: ColumnFacts | None, rows: int) -> Mapping[str, Any]:
    if facts is None:
        return {}
    # A view may have other rows each time that it is read.
    nulls = max(0, rows - facts.present)
    known: dict[str, Any] = {"present": facts.present, "nulls": nulls}
    if isinstance(facts, TextFacts):
        return {**known, "distinct": facts.distinct}
    unit = facts.deviation
    known |= {"mean": steady(facts.mean, unit), "deviation": steady(unit, unit)}
    known |= {"minimum": steady(facts.minimum, None), "maximum": steady(facts.maximum, None)}
    if facts.quartiles is not None:
        known["quartiles"] = list(facts.quartiles)
    return known


def _counts(way: Treatment, facts: ColumnFacts | None) -> Mapping[str, Any]:
    """Return, under `counts`, the number of rows with each value that has a code of its own."""
    if not isinstance(way, Category) or not isinstance(facts, TextFacts) or not way.values:
        return {}
    counts = dict(facts.values)
    return {"counts": [counts[value] for value in way.values]}


@dataclass(frozen=True)
class Making:
    """The arguments of the functions that make a feature, one function for each kind."""

    column: TableColumn
    said: Mapping[str, Any]
    facts: ColumnFacts | None
    rows: int
    shape: Sequence[int] | None
    words: Sequence[str] = field(default_factory=list)

    @property
    def numbers(self) -> NumberFacts:
        return self.facts if isinstance(self.facts, NumberFacts) else NumberFacts(0)

    @property
    def texts(self) -> TextFacts:
        return self.facts if isinstance(self.facts, TextFacts) else TextFacts(0, 0)

    @property
    def has_nulls(self) -> bool:
        return self.facts is not None and self.facts.present < self.rows

    @property
    def indicator(self) -> bool:
        default = self.has_nulls and self.said.get("impute") != NONE
        return bool(self.said.get("indicator", default))


def _number(made: Making) -> Number:
    facts, said = made.numbers, made.said
    scale = said.get("scale", NONE if made.column.element == "bool" else "standard")
    low, middle, high = facts.quartiles or (0.0, 0.0, 0.0)
    center, by = {
        "standard": (steady(facts.mean, facts.deviation), facts.deviation),
        "minmax": (steady(facts.minimum, None), _difference(facts.maximum, facts.minimum)),
        "robust": (middle, high - low),
        LOG: (steady(facts.log_mean, facts.log_deviation), facts.log_deviation),
        QUANTILE: (0.0, 1.0),
        NONE: (0.0, 1.0),
    }[scale]
    impute = said.get("impute", MEAN)
    fills = {
        MEAN: steady(facts.mean, facts.deviation),
        MEDIAN: middle,
        MOST_FREQUENT: steady(facts.mode, None),
        NONE: None,
    }
    fill = fills[impute] if isinstance(impute, str) else float(impute)
    constant = facts.is_constant and scale != NONE
    return Number(
        scale, center, 1.0 if constant else spread(by), fill, made.indicator, _quantiles(facts, scale)
    )


def _quantiles(facts: NumberFacts, scale: str) -> list[float]:
    if scale != QUANTILE:
        return []
    found = facts.quantiles or []
    # A column of infinities has none; its rows are refused when they are read.
    return list(found) if found and all(map(math.isfinite, found)) else [0.0, 0.0]


def _difference(high: float | None, low: float | None) -> float | None:
    return None if high is None or low is None else high - low


def _date(made: Making) -> Date:
    facts, said = made.numbers, made.said
    default = ["hour"] if made.column.element in ("time", "timetz") else list(CALENDAR)
    if made.column.element in ("timestamp", "timestamptz"):
        default.append("hour")
    if made.column.element == "interval":
        default = ["days"]
    mean = steady(facts.mean, facts.deviation)
    return Date(
        parts=said.get("parts", default),
        cyclic=said.get("cyclic", "parts" not in said),
        scale=said.get("scale", "standard"),
        center=mean,
        spread=spread(None if facts.is_constant else facts.deviation),
        fill=None if said.get("impute") == NONE else mean,
        indicator=made.indicator,
    )


def _category(made: Making) -> Category:
    facts, said = made.texts, made.said
    encode = said.get("encode", ONE_HOT if facts.distinct <= FEW_VALUES else EMBED)
    if encode == HASH:
        return Category(HASH, [], null=True, other=False, buckets=said.get("buckets", BUCKETS), fill=None)
    numeric = made.column.is_number and made.column.element != "bool"
    least = said.get("min_count", 1)
    kept = [value for value, count in facts.values if count >= least and not (numeric and value == NAN)]
    most = asked.MOST_ONE_HOT if encode == ONE_HOT else asked.MOST_CATEGORIES
    if len(kept) > most or (len(kept) == len(facts.values) < facts.distinct):
        raise _too_many(made.column.name, facts.distinct, encode, most)
    impute = said.get("impute")
    fill = None if impute is None else str(impute)
    if impute == MOST_FREQUENT and facts.values:
        fill = facts.values[0][0]
    return Category(
        encode,
        sorted(kept, key=float if numeric else str),
        null=made.has_nulls and fill is None and encode == ONE_HOT,
        other=len(kept) < facts.distinct and encode == ONE_HOT,
        buckets=0,
        fill=fill,
    )


def _too_many(name: str, distinct: int, encode: str, most: int) -> CerebroError:
    others = '"embed" takes 100000, and ' if encode == ONE_HOT else ""
    return CerebroError(
        f'column "{name}" has {distinct} different values, too many for "{encode}"',
        detail=f"At most {most} values can have a place of their own; {others}rare ones can share one.",
        hint=f'Write {{"min_count": 20}} to have rare values share a place, {{"encode": "hash", "buckets":'
        f" 1000}} to hash them, or leave the column out. {_leave_out(name)}",
    )


def _leave_out(name: str) -> str:
    return f'Leave it out: {{"exclude": ["{name}"]}}.'


def _text(made: Making) -> Text:
    said = made.said
    buckets = said.get("buckets", 0)
    return Text(said.get("tokens", TOKENS), [] if buckets else list(made.words), buckets)


def vocabulary(said: Mapping[str, Any]) -> int:
    """Return the number of words to look up, or 0 if words are hashed.

    The option `vocabulary` counts two codes more: for no word, and for a word outside the vocabulary.
    """
    return 0 if said.get("buckets") else said.get("vocabulary", VOCABULARY) - 2


def _array(made: Making) -> Array:
    size = made.said.get("shape") or made.shape
    if not size:
        what = "no rows that are not NULL" if size is None else "an empty array in its first row"
        raise CerebroError(
            f'column "{made.column.name}" has {what}',
            hint=_leave_out(made.column.name),
            sqlstate="22004",
        )
    if made.shape and math.prod(size) != math.prod(made.shape):
        raise CerebroError(
            f'column "{made.column.name}" has {math.prod(made.shape)} numbers in its first row,'
            f" and shape {list(size)} has {math.prod(size)}"
        )
    return Array(list(size), made.said.get("divide", 1.0))


def _image(made: Making) -> Image:
    return Image(made.said["decode"], made.said.get("divide", 255.0))


_WAYS: Mapping[str, Callable[[Making], Treatment]] = {
    NUMBER: _number,
    DATE: _date,
    CATEGORY: _category,
    TEXT: _text,
    ARRAY: _array,
    IMAGE: _image,
}
