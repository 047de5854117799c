"""Converts values of Python's libraries to the JSON values that the server would write in a row."""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from cerebro_plpy.features.encode import INTEGERS, read_decimal
from cerebro_plpy.features.specification import Array, Category, Date, Feature, Image, Number, Text

# Beyond this many digits before the point, the server writes an exponent.
_DIGITS = {"float4": 6, "float8": 15}
_NUMERIC = "numeric"
# Zeros that end a fraction of a second, which the server does not write.
_ZEROS = re.compile(r"(\.\d*?)0+(?!\d)")
# pandas' values for what is missing, which equal nothing and are no numbers.
_MISSING = ("NAType", "NaTType")


def converter(feature: Feature) -> Callable[[Any], Any]:
    """Return a function that converts a column's Python value to the value that features are made of."""
    match feature.way:
        case Number():
            return _known
        case Date():
            return partial(_unless_missing, _time)
        case Category() as way if feature.element in _DIGITS:
            return partial(_unless_missing, partial(_float_text, feature.element))
        case Category() as way if feature.element == _NUMERIC:
            return partial(_unless_missing, _NumericText(way.values))
        case Category() if feature.element in INTEGERS:
            return partial(_unless_missing, _integer_text)
        case Category():
            return partial(_unless_missing, _plain_text)
        case Text():
            return partial(_unless_missing, str)
        case Array() | Image():
            return as_array


def _known(value: Any) -> Any:
    return None if type(value).__name__ in _MISSING else value


def is_missing(value: Any) -> bool:
    """Return whether a value is None or NaN, or what pandas has in place of a missing value.

    The latter does not even say whether it equals itself.
    """
    if value is None or type(value).__name__ in _MISSING:
        return True
    return isinstance(value, float | np.floating) and math.isnan(value)


def _unless_missing(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if is_missing(value) else convert(value)


def _time(value: Any) -> Any:
    """Return a date or time in ISO format."""
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _plain_text(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime | datetime.time | np.datetime64):
        return _ZEROS.sub(lambda found: found[1].rstrip("."), _time(value))
    return _time(value)


def _integer_text(value: Any) -> str:
    """Return a whole number as text; it may be a float, as in a column of pandas with missing values."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _float_text(element: str, value: Any) -> str:
    """Return a number as the server writes it: with the fewest digits that identify it."""
    if isinstance(value, str):
        return value
    number = np.float32(value) if element == "float4" else np.float64(value)
    if np.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    mantissa, exponent = np.format_float_scientific(number, trim="-").split("e")
    if -4 <= int(exponent) < _DIGITS[element]:
        return np.format_float_positional(number, trim="-")
    return f"{mantissa}e{exponent}"


class _NumericText:
    """A function that writes a decimal as the server does, with zeros at its end, such as 1.50.

    A float has lost such zeros, so it is written like the equal number in `values`, if there is one.
    """

    def __init__(self, values: Sequence[str]) -> None:
        self._written: dict[decimal.Decimal, str] = {}
        for text in values:
            number = read_decimal(text)
            if number is not None:
                self._written.setdefault(number, text)

    def __call__(self, value: Any) -> str:
        number = read_decimal(str(value))
        if isinstance(value, str) or number is None:
            return str(value)
        # A float does not say how many digits follow the point.
        if not isinstance(value, decimal.Decimal) and number in self._written:
            return self._written[number]
        return f"{number:f}"


def as_array(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return "\\x" + bytes(value).hex()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else _known(value)
