"""The feature specification: a document that says what each column becomes.

It is stored with the packed rows, copied with the model, and used at prediction. It may come from a user's
table, so all of it is checked when it is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar

from cerebro_plpy.errors import DATA_CORRUPTED, CerebroError
from cerebro_plpy.logical.options import is_number

VERSION = 1
# The input of all columns that name none and need none of their own.
VECTOR = "independent_var"
# More could not be stored in one field.
MOST_VALUES = 2**27
# No time of the server's is so far from 1970, in seconds.
MOST_SECONDS = 1e17
NUMBER, DATE, CATEGORY, TEXT, ARRAY, IMAGE = "number", "date", "category", "text", "array", "image"
ONE_HOT, EMBED, ORDINAL, HASH = "one_hot", "embed", "ordinal", "hash"
# Parts of dates: their first value, and how many there are.
PERIODS = {
    "quarter": (1, 4),
    "month": (1, 12),
    "day": (1, 31),
    "weekday": (0, 7),
    "day_of_year": (1, 366),
    "hour": (0, 24),
    "minute": (0, 60),
    "second": (0, 60),
}
PARTS = ("days", "year", *PERIODS)
LOG, QUANTILE = "log", "quantile"
SCALES = ("standard", "minmax", "robust", LOG, QUANTILE, "none")


@dataclass(frozen=True)
class Number:
    """A number, scaled as (value - center) / spread.

    With scale "log", sign(value) * log(1 + |value|) is scaled instead. With scale "quantile", the number
    becomes the normal deviate of its place among `quantiles`.
    """

    kind: ClassVar[str] = NUMBER
    scale: str
    center: float
    spread: float
    fill: float | None
    indicator: bool
    quantiles: list[float] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, ...]:
        return (1 + self.indicator,)


@dataclass(frozen=True)
class Date:
    """Parts of a time in UTC, such as its month. Times (center and fill) count in seconds since 1970."""

    kind: ClassVar[str] = DATE
    parts: list[str]
    cyclic: bool
    scale: str
    center: float
    spread: float
    fill: float | None
    indicator: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(1 + self.is_cyclic(part) for part in self.parts) + self.indicator,)

    def is_cyclic(self, part: str) -> bool:
        return self.cyclic and part in PERIODS


@dataclass(frozen=True)
class Category:
    """A value, encoded by its place in `values`; `null` and `other` add places for NULL and other values."""

    kind: ClassVar[str] = CATEGORY
    encode: str
    values: list[str]
    null: bool
    other: bool
    buckets: int
    fill: str | None

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.values) + self.null + self.other,) if self.encode == ONE_HOT else (1,)

    @property
    def codes(self) -> int:
        """The number of codes: for each value, NULL and unseen values; if hashed, for NULL and each hash."""
        return self.buckets + 1 if self.encode == HASH else len(self.values) + 2


@dataclass(frozen=True)
class Text:
    """The codes of the first `tokens` words of a text.

    A code is 0 after the end and 1 for a word outside the vocabulary. With `buckets`, all words are hashed
    to codes from 1.
    """

    kind: ClassVar[str] = TEXT
    tokens: int
    vocabulary: list[str]
    buckets: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.tokens,)

    @property
    def codes(self) -> int:
        return self.buckets + 1 if self.buckets else len(self.vocabulary) + 2


@dataclass(frozen=True)
class Array:
    """An array of numbers, which has the same shape in all rows."""

    kind: ClassVar[str] = ARRAY
    size: list[int]
    divide: float

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.size)


@dataclass(frozen=True)
class Image:
    """A JPEG or PNG image, decoded to the size `decode`: rows, columns, channels."""

    kind: ClassVar[str] = IMAGE
    decode: list[int]
    divide: float

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.decode)


Treatment = Number | Date | Category | Text | Array | Image
KINDS: Mapping[str, type[Treatment]] = {way.kind: way for way in (Number, Date, Category, Text, Array, Image)}


@dataclass(frozen=True)
class Feature:
    """One column: its type in the training table, what it becomes, and statistics of its training rows."""

    name: str
    type: str
    element: str
    input: str
    way: Treatment
    statistics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def width(self) -> int:
        return math.prod(self.way.shape)

    @property
    def key(self) -> tuple[str, str]:
        """The names of the column and its input.

        The column's name is not enough, since a column may be a number in one input and a category in
        another.
        """
        return self.name, self.input

    def as_json(self) -> Mapping[str, Any]:
        head = {"name": self.name, "type": self.type, "element": self.element, "kind": self.way.kind}
        # Documents of earlier versions have no quantiles, and are the same without.
        own = {key: value for key, value in asdict(self.way).items() if value or key != "quantiles"}
        return {**head, "input": self.input, **own, "statistics": dict(self.statistics)}


@dataclass(frozen=True)
class FeatureInput:
    """One input of a net: the features of one column, or of several columns side by side."""

    name: str
    features: tuple[Feature, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the input for one row: that of its only feature, or a vector of all features."""
        if len(self.features) == 1:
            return self.features[0].way.shape
        return (sum(feature.width for feature in self.features),)


@dataclass(frozen=True)
class Specification:
    """The features of a packed table's inputs, and the columns that were left out, with the reasons."""

    features: tuple[Feature, ...]
    rows: int
    left_out: Mapping[str, str] = field(default_factory=dict)
    # The recipe that made the rows of related tables, if one did (relations/recipe.py).
    relations: Mapping[str, Any] | None = None

    @cached_property
    def inputs(self) -> list[FeatureInput]:
        found: dict[str, list[Feature]] = {}
        for feature in self.features:
            found.setdefault(feature.input, []).append(feature)
        return [FeatureInput(name, tuple(features)) for name, features in found.items()]

    @cached_property
    def columns(self) -> Mapping[str, Feature]:
        """The columns that a row must have, each with its first feature."""
        found: dict[str, Feature] = {}
        for feature in self.features:
            found.setdefault(feature.name, feature)
        return found

    def leads(self, feature: Feature) -> bool:
        """Return whether a feature is the first feature of its column."""
        return self.columns[feature.name] is feature

    def as_json(self) -> str:
        return json.dumps(
            {
                "version": VERSION,
                "rows": self.rows,
                "inputs": [
                    {
                        "name": one.name,
                        "shape": list(one.shape),
                        "columns": [feature.name for feature in one.features],
                    }
                    for one in self.inputs
                ],
                "columns": [feature.as_json() for feature in self.features],
                "left_out": dict(self.left_out),
                **({} if self.relations is None else {"relations": dict(self.relations)}),
            },
            ensure_ascii=False,
        )


def difference(
    own: Specification | None, other: Specification | None, *, shows_own: bool = True
) -> str | None:
    """Return how another specification treats the same rows differently; None if there is no difference.

    If `shows_own` is False, the text has no values of `own`, which its reader may not be allowed to see.
    """
    if own is None or other is None:
        return None if own is other else f"its columns were {'' if own is None else 'not '}prepared"
    ours, theirs = ({feature.key: feature for feature in one.features} for one in (own, other))
    for place in {**ours, **theirs}:
        name, at = place
        if place not in ours or place not in theirs:
            as_well = f' as "{at}"' if name in own.columns and name in other.columns else ""
            return f'column "{name}" is {"an" if place in theirs else "no"} input there{as_well}'
        said = theirs[place].as_json()
        for key, value in ours[place].as_json().items():
            if key not in _FACTS and said.get(key) != value:
                found, expected = (json.dumps(one)[:60] for one in (said.get(key), value))
                text = f'{key} of column "{name}" is {found}'
                return f"{text}, not {expected}" if shows_own else f"{text}, and another one there"
    if list(ours) != list(theirs):
        return f"its columns come in the order {', '.join(other.columns)}"
    return None


# The keys that describe a column but do not change what it becomes.
_FACTS = ("type", "element", "statistics")


def read(text: str) -> Specification:
    """Return the specification in a JSON document; raise an error if the document is not valid."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _corrupt(f"it is not JSON that can be read, {error}") from None
    if not isinstance(given, dict) or given.get("version") != VERSION:
        version = given.get("version") if isinstance(given, dict) else None
        raise _corrupt(f"its version is {json.dumps(version)[:40]}, this one reads {VERSION}")
    columns, left_out = given.get("columns"), given.get("left_out", {})
    relations = given.get("relations")
    if not isinstance(columns, list) or not columns or not all(isinstance(c, dict) for c in columns):
        raise _corrupt("columns are missing")
    if not isinstance(left_out, dict):
        raise _corrupt("left_out is not an object")
    if relations is not None and not isinstance(relations, dict):
        raise _corrupt("relations is not an object")
    reasons = {str(name): str(why) for name, why in left_out.items()}
    features = tuple(map(read_feature, columns))
    if sum(feature.width for feature in features) > MOST_VALUES:
        raise _corrupt("its rows are too wide")
    if len({feature.key for feature in features}) < len(features):
        raise _corrupt("a column is in it twice")
    return Specification(features, int(_checked(given, "rows", "int")), reasons, relations)


def read_feature(given: Mapping[str, Any]) -> Feature:
    """Return the feature that one column of a document describes; raise an error if it is not valid."""
    kind = KINDS.get(str(given.get("kind")))
    if kind is None:
        raise _corrupt(f"a kind is {json.dumps(given.get('kind'))[:40]}")
    needed = [f for f in fields(kind) if f.name in given or f.default_factory is MISSING]
    way = kind(**{f.name: _checked(given, f.name, str(f.type)) for f in needed})
    _check_way(way)
    statistics = given.get("statistics", {})
    if not isinstance(statistics, dict):
        raise _corrupt("statistics are not an object")
    name, type_, element, of = (_checked(given, key, "str") for key in ("name", "type", "element", "input"))
    return Feature(name, type_, element, of, way, statistics=statistics)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_CHECKS: Mapping[str, Callable[[object], bool]] = {
    "str": _is_text,
    "bool": lambda value: isinstance(value, bool),
    "int": _is_integer,
    "float": is_number,
    "str | None": lambda value: value is None or isinstance(value, str),
    "float | None": lambda value: value is None or is_number(value),
    "list[str]": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "list[float]": lambda value: isinstance(value, list) and all(map(is_number, value)),
    "list[int]": lambda value: isinstance(value, list) and all(map(_is_integer, value)),
}


# The server writes large floats without an exponent, which JSON reads as integers.
_FLOATS: Mapping[str, Callable[[Any], Any]] = {
    "float": float,
    "float | None": float,
    "list[float]": lambda values: [float(value) for value in values],
}


def _checked(given: Mapping[str, Any], key: str, kind: str) -> Any:
    value: Any = given.get(key)
    if not _CHECKS[kind](value):
        raise _corrupt(f"{key} is {json.dumps(value)[:60]}")
    return _FLOATS[kind](value) if kind in _FLOATS and value is not None else value


def _check_way(way: Treatment) -> None:
    """Raise an error if a feature's fields have the right types but values that no column can have."""
    match way:
        case Number():
            good = way.spread > 0 and way.scale in SCALES and way.quantiles == sorted(way.quantiles)
            good = good and (way.scale == QUANTILE) == (len(way.quantiles) > 1)
        case Date():
            good = way.spread > 0 and bool(way.parts) and set(way.parts) <= set(PARTS)
            good = good and max(abs(way.center), abs(way.fill or 0)) < MOST_SECONDS
        case Category():
            good = way.encode in (ONE_HOT, EMBED, ORDINAL) or (way.encode == HASH and way.buckets > 0)
        case Text():
            good = 0 < way.tokens <= MOST_VALUES
        case Array() | Image():
            good = way.divide > 0 and 0 < math.prod(way.shape) <= MOST_VALUES
    if isinstance(way, Image):
        good = good and len(way.decode) == 3 and way.decode[2] in (1, 3, 4)
    if not good:
        raise _corrupt(f"a {way.kind} column has impossible values")


def _corrupt(problem: str) -> CerebroError:
    return CerebroError(
        f"the feature specification cannot be used: {problem}",
        detail="It is in the summary of the packed table, and in that of the model.",
        hint="Pack the table again, or give the document as it is there.",
        sqlstate=DATA_CORRUPTED,
    )


def names(features: Sequence[Feature]) -> list[str]:
    return [feature.name for feature in features]
