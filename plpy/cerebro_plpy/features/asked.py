"""Checks the options `columns` and `exclude`, in which a caller describes columns."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from cerebro_plpy.errors import DATATYPE_MISMATCH, CerebroError
from cerebro_plpy.features.specification import (
    ARRAY,
    CATEGORY,
    DATE,
    EMBED,
    HASH,
    IMAGE,
    MOST_VALUES,
    NUMBER,
    ONE_HOT,
    ORDINAL,
    PARTS,
    SCALES,
    TEXT,
)
from cerebro_plpy.logical.options import AUTO, Validator, boolean, integer, number, one_of
from cerebro_plpy.madlib.literal import shorten
from cerebro_plpy.madlib.nearest import unknown

NUMBERS = ("int2", "int4", "int8", "float4", "float8", "numeric", "bool")
DATES = ("date", "timestamp", "timestamptz", "time", "timetz", "interval")
TEXTS = ("text", "varchar", "bpchar", "name", "citext")
# pgvector's types, which have a cast to real[].
VECTORS = ("vector", "halfvec")
# Types whose values nobody groups by, and of which nothing can be counted.
OPAQUE = (
    *("json", "jsonb", "hstore", "record", "xml", "tsvector", "tsquery"),
    *("point", "line", "lseg", "box", "path", "polygon"),
)
# The key by which a number's values are a category as well, in an input of their own.
ALSO_CATEGORY = "also_category"
MEAN, MEDIAN, MOST_FREQUENT, NONE = "mean", "median", "most_frequent", "none"
# More are words, or keys.
MOST_ONE_HOT = 1000
MOST_CATEGORIES = 100_000


@dataclass(frozen=True)
class TableColumn:
    """The name and the type of a table's column."""

    name: str
    element: str
    is_array: bool
    shown_type: str

    @property
    def is_number(self) -> bool:
        return not self.is_array and self.element in NUMBERS

    @property
    def is_date(self) -> bool:
        return not self.is_array and self.element in DATES

    @property
    def is_array_of_numbers(self) -> bool:
        return self.element in (NUMBERS if self.is_array else VECTORS)

    @property
    def is_bytes(self) -> bool:
        return self.element == "bytea" and not self.is_array


@dataclass(frozen=True)
class AskedColumns:
    """The option `columns`: the keys that the caller gives for each column, such as `scale`."""

    each: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # Whether numbers are categories as well where the label jumps from value to value.
    also_categories: bool = False

    def also(self, name: str) -> bool | None:
        """Return whether the column of numbers `name` also becomes a category.

        None means that the label decides: the column also becomes a category if the label jumps from one
        value of the column to the next.
        """
        default = None if self.also_categories else False
        return self.each.get(name, {}).get(ALSO_CATEGORY, default)


def columns(key: str, value: object) -> AskedColumns:
    """Return the checked value of the option `columns`."""
    if value == AUTO:
        return AskedColumns()
    if not isinstance(value, Mapping):
        raise _wrong(f"option {key}", value, '"auto", or an object with columns as its keys')
    said = cast("Mapping[str, object]", value)
    return AskedColumns({name: _read_column(name, one) for name, one in said.items()})


def excluded(key: str, value: object) -> tuple[str, ...]:
    """Return the checked value of the option `exclude`: the names of columns."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise _wrong(f"option {key}", value, "a list of columns")
    return tuple(cast("list[str]", value))


def _read_column(column: str, value: object) -> Mapping[str, Any]:
    if value == AUTO:
        return {}
    if not isinstance(value, Mapping):
        raise _wrong(f'option columns for "{column}"', value, '"auto" or an object')
    said = cast("Mapping[str, object]", value)
    known = {name for keys in KEYS.values() for name in keys}
    for key in said:
        if key not in known:
            raise unknown(f'option columns for "{column}": {shorten(key, 60)}', key, sorted(known))
    return {key: _ANY[key](f'columns."{column}".{key}', one) for key, one in said.items() if one is not None}


def kind_of(column: TableColumn, said: Mapping[str, Any]) -> str | None:
    """Return the kind that a column's type and `said`, the caller's keys for it, decide.

    Return None if they do not decide it, so that the column's values have to be examined.
    """
    if column.is_array_of_numbers or (column.is_bytes and "shape" in said):
        kind = ARRAY
    elif column.is_array:
        raise _unfit(column, "cannot be an input", "Arrays must be of numbers.")
    elif column.is_bytes:
        kind = IMAGE if said else None
    elif said.keys() & {"tokens", "vocabulary"}:
        kind = TEXT
    elif said.keys() & {"encode", "min_count"}:
        kind = CATEGORY
    elif column.is_number or column.is_date:
        kind = NUMBER if column.is_number else DATE
    elif column.element in TEXTS and not said.keys() - {"input"}:
        kind = None
    else:
        kind = CATEGORY
    if kind is not None:
        _check_keys(column, said, kind)
    return kind


def _check_keys(column: TableColumn, said: Mapping[str, Any], kind: str) -> None:
    for key in said:
        if key not in KEYS[kind]:
            raise _unfit(
                column,
                f"is taken as {_SHOWN[kind]}, which has no key {key}",
                f"Its keys are {', '.join(KEYS[kind])}.",
            )
    if kind == TEXT and column.element not in TEXTS:
        raise _unfit(column, "has no words", "Only text has tokens.")
    if kind == IMAGE and "decode" not in said:
        raise _unfit(column, "needs a size", 'Write {"decode": [rows, columns, channels]}.')
    if kind == CATEGORY and said.get("encode") == HASH:
        for key in ("min_count", "impute"):
            if key in said:
                raise _unfit(column, f"is hashed, so {key} has no effect", "Leave it out.")
    if column.is_bytes and kind in (CATEGORY, TEXT):
        raise _unfit(column, "cannot be a category", "bytea is an image or an array of bytes.")


def _unfit(column: TableColumn, problem: str, hint: str) -> CerebroError:
    return CerebroError(
        f'column "{column.name}" of type {column.shown_type} {problem}', hint=hint, sqlstate=DATATYPE_MISMATCH
    )


def _impute(key: str, value: object) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _wrong(f"option {key}", value, "mean, median, most_frequent, none or a constant")
    return value


def _impute_number(key: str, value: object) -> Any:
    if isinstance(value, str):
        return one_of(MEAN, MEDIAN, MOST_FREQUENT, NONE)(key, value)
    return number()(key, value)


def _parts(key: str, value: object) -> list[str]:
    if not isinstance(value, list) or not value:
        raise _wrong(f"option {key}", value, f"a list of {', '.join(PARTS)}")
    return list(dict.fromkeys(one_of(*PARTS)(key, part) for part in value))


def _size(key: str, value: object) -> list[int]:
    if not isinstance(value, list) or not value:
        raise _wrong(f"option {key}", value, "a list of sizes such as [64, 64, 3]")
    size = [integer(1, MOST_VALUES)(key, one) for one in value]
    if math.prod(size) > MOST_VALUES:
        raise _wrong(f"option {key}", value, f"a size of at most {MOST_VALUES} values")
    return size


def _picture(key: str, value: object) -> list[int]:
    size = _size(key, value)
    if len(size) != 3 or size[2] not in (1, 3, 4):
        raise _wrong(f"option {key}", value, "[rows, columns, channels], with 1, 3 or 4 channels")
    return size


def _positive(key: str, value: object) -> float:
    found = number()(key, value)
    if found <= 0:
        raise _wrong(f"option {key}", value, "a number above 0")
    return found


def _name(key: str, value: object) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise _wrong(f"option {key}", value, "the name of an input")
    return value


def _wrong(what: str, value: object, expected: str) -> CerebroError:
    return CerebroError(f"{what} is {shorten(json.dumps(value), 60)}", detail=f"It must be {expected}.")


_COMMON: Mapping[str, Validator] = {"input": _name}
KEYS: Mapping[str, Mapping[str, Validator]] = {
    NUMBER: {
        "scale": one_of(*SCALES),
        "impute": _impute_number,
        "indicator": boolean(),
        ALSO_CATEGORY: boolean(),
        **_COMMON,
    },
    DATE: {
        "parts": _parts,
        "cyclic": boolean(),
        "scale": one_of("standard", NONE),
        "impute": one_of(MEAN, NONE),
        "indicator": boolean(),
        **_COMMON,
    },
    CATEGORY: {
        "encode": one_of(ONE_HOT, EMBED, ORDINAL, HASH),
        "min_count": integer(1),
        "buckets": integer(1, 2**24),
        "impute": _impute,
        **_COMMON,
    },
    TEXT: {
        "tokens": integer(1, 2**16),
        "vocabulary": integer(3, 10**6),
        "buckets": integer(1, 2**24),
        **_COMMON,
    },
    ARRAY: {"shape": _size, "divide": _positive, **_COMMON},
    IMAGE: {"decode": _picture, "divide": _positive, **_COMMON},
}
# Before the kind is known: the strictest check that holds for all kinds with the key.
_ANY: Mapping[str, Validator] = {
    **{key: check for keys in KEYS.values() for key, check in keys.items()},
    "scale": one_of(*SCALES),
    "impute": _impute,
}
_SHOWN = {
    NUMBER: "a number",
    DATE: "a date",
    CATEGORY: "a category",
    TEXT: "text",
    ARRAY: "an array",
    IMAGE: "an image",
}


def checked(column: TableColumn, kind: str, said: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the caller's keys for a column; raise an error if the column's kind does not allow them."""
    _check_keys(column, said, kind)
    return {key: KEYS[kind][key](f'columns."{column.name}".{key}', one) for key, one in said.items()}


def listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
