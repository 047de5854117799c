"""Makes the features of one row, given as JSON by the names of its columns.

They are the same features as a batch of one row would get, at less cost.
"""

from __future__ import annotations

import datetime
import itertools
import json
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cerebro_plpy.errors import (
    DATATYPE_MISMATCH,
    INVALID_PARAMETER,
    NOT_SUPPORTED,
    NULL_NOT_ALLOWED,
    UNDEFINED_COLUMN,
    CerebroError,
)
from cerebro_plpy.features import encode, images
from cerebro_plpy.features.specification import (
    HASH,
    LOG,
    ONE_HOT,
    PERIODS,
    QUANTILE,
    Array,
    Category,
    Date,
    Feature,
    FeatureInput,
    Image,
    Number,
    Specification,
    Text,
)

# Writes a column's value into the features of its input, which are 0 before.
Encode = Callable[[np.ndarray, Any], None]
# Beyond it a value is no 32-bit float.
_LARGEST = float(np.finfo(np.float32).max)
_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=datetime.UTC)
_CLOCK = r"(\d\d):(\d\d):(\d\d(?:\.\d+)?)(?:([+-])(\d\d)(?::?(\d\d))?(?::(\d\d))?)?"
_FAR = re.compile(rf"(\d+)-(\d\d)-(\d\d)(?:T{_CLOCK})?( BC)?", re.ASCII)
_OF_DAY = re.compile(_CLOCK, re.ASCII)
# A text that the server would take for a number, too; JSON has no numbers for the last ones.
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|NaN|-?Infinity", re.ASCII)


class Literal(str):
    """A number in JSON, kept as the text that the server wrote."""

    __slots__ = ()


exact = json.JSONDecoder(parse_float=Literal, parse_int=Literal).decode
# Python reads no integer of more than 4300 digits.
_of_any_length = json.JSONDecoder(parse_int=float).decode


def parse(text: str, decode: Callable[[str], Any] = json.loads) -> Any:
    """Return a row that is given as JSON; raise an error if it cannot be read."""
    try:
        try:
            return decode(text)
        except ValueError:
            return _of_any_length(text)
    except (ValueError, RecursionError) as error:
        raise CerebroError(
            f"the row cannot be read: {error}"[:200],
            detail="One of its columns holds JSON that is nested too deeply.",
            hint="Give the columns that the model takes: FROM (SELECT …) AS r, cerebro.predict('model', r).",
        ) from None


def number_of(value: Any) -> float:
    """Return a number in a row as a float.

    Raise ValueError for a text that Python takes for a number but the server does not.
    """
    if type(value) is str and _NUMBER.fullmatch(value) is None:
        raise ValueError(value)
    return float(value)


def array_of(value: Any) -> np.ndarray:
    """Return an array of numbers in a row as a NumPy array of doubles."""
    found = np.array(value)
    return np.array(_numbers_of(value) if found.dtype.kind == "U" else found, np.float64)


def _numbers_of(value: Any) -> Any:
    return [_numbers_of(one) for one in value] if isinstance(value, list) else number_of(value)


class RowEncoder:
    """An encoder that makes the inputs of a net from rows, by a feature specification."""

    def __init__(self, specification: Specification) -> None:
        self._inputs = [_InputEncoder(one) for one in specification.inputs]
        categories = [f for f in specification.features if isinstance(f.way, Category)]
        # Texts of numbers must be as the server wrote them; arrays are read faster as numbers.
        has_arrays = any(isinstance(f.way, Array) for f in specification.features)
        has_floats = any(feature.element in encode.FLOATS for feature in categories)
        self._decode = exact if categories and (has_floats or not has_arrays) else json.loads

    def parse(self, text: str) -> Any:
        return parse(text, self._decode)

    def encode(self, row: Mapping[str, Any]) -> list[np.ndarray]:
        """Return one array for each input, of shape (1, …)."""
        return [one.encode(row) for one in self._inputs]


class _InputEncoder:
    def __init__(self, one: FeatureInput) -> None:
        self._shape = (1, *one.shape)
        self._width = math.prod(one.shape)
        ends = itertools.accumulate(feature.width for feature in one.features)
        self._features = [
            (feature.name, _encoder(feature, end - feature.width))
            for feature, end in zip(one.features, ends, strict=True)
        ]

    def encode(self, row: Mapping[str, Any]) -> np.ndarray:
        out = np.zeros(self._width, np.float32)
        for name, write in self._features:
            try:
                write(out, row[name])
            except KeyError:
                raise CerebroError(
                    f'the row has no column "{name}"',
                    hint="Give rows with the columns of the training rows, NULL where a value is not known.",
                    sqlstate=UNDEFINED_COLUMN,
                ) from None
            except (TypeError, ValueError, AttributeError, OverflowError, RecursionError):
                raise _other_type(name, row[name]) from None
        return out.reshape(self._shape)


def _too_large() -> CerebroError:
    return CerebroError("the row holds infinity, or values that are too large")


def _other_type(name: str, value: Any) -> CerebroError:
    return CerebroError(
        f'column "{name}" has the value {json.dumps(value)[:60]}, which is of another type than in training',
        hint="Cast it in the query.",
        sqlstate=DATATYPE_MISMATCH,
    )


def _is_null(name: str) -> CerebroError:
    return CerebroError(
        f'column "{name}" is NULL',
        hint="Leave such rows out (WHERE … IS NOT NULL), or fill them with coalesce().",
        sqlstate=NULL_NOT_ALLOWED,
    )


def _encoder(feature: Feature, place: int) -> Encode:
    """Return a function that writes a column's feature into an array, from index `place` on."""
    match feature.way:
        case Number() as way:
            return _number(feature, way, place)
        case Date() as way:
            return _date(feature, way, place)
        case Category() as way:
            return _category(way, feature, place)
        case Text() as way:
            return _text(way, place)
        case Array() as way:
            return _array(feature.name, way, place)
        case Image() as way:
            return _image(feature.name, way, place)


def _number(feature: Feature, way: Number, place: int) -> Encode:
    name, is_single = feature.name, feature.element == "float4"
    center, spread, fill = way.center, way.spread, way.fill
    curve = encode.scaler(way) if way.scale in (LOG, QUANTILE) else None
    indicator = place + 1 if way.indicator else None

    def encode_number(out: np.ndarray, value: Any) -> None:
        number = math.nan if value is None else number_of(value)
        if is_single:
            # The text of a float4 has as few digits as identify it, and as a double it is another number.
            number = float(np.float32(number))
        if number != number:
            if fill is None:
                raise _is_null(name)
            number = fill
            if indicator is not None:
                out[indicator] = 1.0
        number = (number - center) / spread if curve is None else float(curve(np.array([number]))[0])
        if not -_LARGEST <= number <= _LARGEST:
            raise _too_large()
        out[place] = number

    return encode_number


class _Raising:
    """A counter of faults that raises an error at the first fault."""

    def add(self, column: str, problem: str, rows: Sequence[int], example: str = "") -> None:
        if problem == encode.IS_NULL:
            raise _is_null(column)
        raise CerebroError(f'column "{column}" {problem}{example}')


def _date(feature: Feature, way: Date, place: int) -> Encode:
    if feature.element == "interval":
        raise _not_of_one_row(feature, "extract(epoch FROM …) in a view")
    parts = [_part(part, way) for part in way.parts]
    notes = encode.Notes(feature.name, 1, _Raising())
    end = place + feature.width

    fill = way.fill, None if way.fill is None else _moment(way.fill)

    def encode_date(out: np.ndarray, value: Any) -> None:
        seconds, moment = fill if value is None else _time_of(value)
        if seconds is None or moment is None:
            # A NULL that must not be, infinity, and years that Python's calendar does not have.
            given = np.array([math.nan if value is None else seconds])
            encode.date(way, given, out[np.newaxis, place:end], notes)
            return
        at = place
        for part in parts:
            found = part(seconds, moment)
            if isinstance(found, tuple):
                out[at], out[at + 1] = found
                at += 2
            else:
                out[at] = found
                at += 1
        if way.indicator:
            out[at] = value is None

    return encode_date


def _not_of_one_row(feature: Feature, instead: str) -> CerebroError:
    return CerebroError(
        f'column "{feature.name}" is of type {feature.type}, which a single row cannot have',
        hint=f"Use cerebro.madlib_predict, or train with {instead}.",
        sqlstate=NOT_SUPPORTED,
    )


def _part(part: str, way: Date) -> Callable[[float, datetime.datetime], float | tuple[float, float]]:
    """Return a function that computes a part of one time, or its sine and cosine, as `encode.date` does."""
    raw, first, unit = way.scale == "none", 0, 1.0
    if part == "days":
        center, spread = (0.0, encode.DAY) if raw else (way.center, way.spread)

        def days(seconds: float, _: datetime.datetime) -> float:
            return (seconds - center) / spread

        return days
    own = _CALENDAR[part]
    if part in PERIODS and way.cyclic:
        begin, period = PERIODS[part]
        angles = 2 * np.pi * np.arange(period) / period
        turns = list(zip(np.sin(angles).tolist(), np.cos(angles).tolist(), strict=True))

        def turn(_: float, moment: datetime.datetime) -> tuple[float, float]:
            return turns[own(moment) - begin]

        return turn
    if not raw and part == "year":
        first = int(encode.calendar("year", np.array([int(way.center)], "datetime64[s]"))[0])
        unit = max(1.0, way.spread / encode.YEAR)
    elif not raw:
        first, unit = PERIODS[part][0], PERIODS[part][1] - 1

    def number(_: float, moment: datetime.datetime) -> float:
        return (own(moment) - first) / unit

    return number


def _quarter(moment: datetime.datetime) -> int:
    return (moment.month + 2) // 3


def _day_of_year(moment: datetime.datetime) -> int:
    return moment.toordinal() - datetime.date(moment.year, 1, 1).toordinal() + 1


_CALENDAR: Mapping[str, Callable[[datetime.datetime], int]] = {
    "quarter": _quarter,
    "weekday": datetime.datetime.weekday,
    "day_of_year": _day_of_year,
    **{part: operator.attrgetter(part) for part in ("year", "month", "day", "hour", "minute", "second")},
}


def seconds_of(text: str) -> float:
    """Return the seconds since 1970 of a date or time in JSON, or since midnight for a time of day."""
    return _time_of(text)[0]


def _time_of(text: str) -> tuple[float, datetime.datetime | None]:
    """Return the seconds of a date or time in JSON, and the same moment as a datetime in UTC.

    The datetime is None if it lies beyond Python's calendar.
    """
    if text[2:3] == ":":
        of_day = _OF_DAY.fullmatch(text)
        if of_day is None:
            raise ValueError(text)
        seconds = _seconds(*of_day.groups())
        return seconds, _moment(seconds)
    if not text.isascii():
        raise ValueError(text)
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        seconds = math.inf if text in ("infinity", "-infinity") else _far(text)
        return seconds, _moment(seconds)
    if found.tzinfo is None:
        return (found - _EPOCH).total_seconds(), found
    since = found - _EPOCH_UTC
    return since.total_seconds(), _moment(since.total_seconds())


def _moment(seconds: float) -> datetime.datetime | None:
    try:
        return _EPOCH + datetime.timedelta(seconds=math.floor(seconds))
    except (OverflowError, ValueError):
        return None


def _far(text: str) -> float:
    """Return the seconds since 1970 of a date that Python lacks: before Christ or after the year 9999."""
    found = _FAR.fullmatch(text)
    if found is None:
        raise ValueError(text)
    year, month, day, *clock, before = found.groups()
    number = 1 - int(year) if before else int(year)
    date = np.datetime64(number - 1970, "Y").astype("datetime64[M]") + (int(month) - 1)
    days = (date.astype("datetime64[D]") + (int(day) - 1)).astype(np.int64)
    return int(days) * encode.DAY + _seconds(*clock)


def _seconds(
    hour: str | None,
    minute: str | None,
    second: str | None,
    sign: str | None,
    *zone: str | None,
) -> float:
    """Return the seconds since midnight, in UTC, of a time of day with its zone.

    The server may write 24:00:00, and zones with seconds.
    """
    hours, minutes, seconds = (int(part or 0) for part in zone)
    offset = 3600 * hours + 60 * minutes + seconds
    of_day = 3600 * int(hour or 0) + 60 * int(minute or 0) + float(second or 0)
    return of_day - (-offset if sign == "-" else offset)


def _plain_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict):
        # The server writes arrays and objects in another way.
        raise TypeError
    return json.dumps(value)


def _without_blanks(text: str) -> str:
    return text.rstrip(" ")


# By type, a function that turns a text in JSON into the text that the training rows had.
_AS_TRAINED: Mapping[str, Callable[[str], str]] = {"bpchar": _without_blanks}


def _category(way: Category, feature: Feature, place: int) -> Encode:
    if feature.element in ("json", "jsonb"):
        raise _not_of_one_row(feature, f'a view with "{feature.name}"::text')
    codes = encode.CategoryCodes(way, feature.element)
    as_trained = _AS_TRAINED.get(feature.element)

    def encode_category(out: np.ndarray, value: Any) -> None:
        text = value if value is None or type(value) is str else _plain_text(value)
        if as_trained is not None and text is not None:
            text = as_trained(text)
        if way.encode == HASH:
            out[place] = 0 if text is None else 1 + encode.hashed(text) % way.buckets
        elif way.encode != ONE_HOT:
            out[place] = codes[text]
        else:
            code = codes[text]
            if code >= 0:
                out[place + code] = 1.0

    return encode_category


def _text(way: Text, place: int) -> Encode:
    words = encode.Words(way)

    def encode_text(out: np.ndarray, value: Any) -> None:
        if value is not None and value != "":
            codes = [words[word] for word in encode.split(value) if word][: way.tokens]
            out[place : place + len(codes)] = codes

    return encode_text


def _bytes(value: str) -> bytes:
    """Return the bytes of a bytea value, which the server writes to JSON as hexadecimal text."""
    if not value.startswith("\\x"):
        raise ValueError(value)
    return bytes.fromhex(value[2:])


def _array(name: str, way: Array, place: int) -> Encode:
    width = math.prod(way.shape)

    def encode_array(out: np.ndarray, value: Any) -> None:
        if value is None:
            raise _is_null(name)
        if isinstance(value, str):
            # pgvector's types, or bytes.
            value = json.loads(value) if value.startswith("[") else list(_bytes(value))
        with np.errstate(over="ignore"):
            found = array_of(value).astype(np.float32) / np.float32(way.divide)
        if found.shape != way.shape and found.shape != (width,):
            raise CerebroError(f'column "{name}" has the shape {list(found.shape)}, not {list(way.shape)}')
        if not np.isfinite(found).all():
            raise CerebroError(
                f'column "{name}" has NULL elements, or values that are too large',
                hint="Leave such rows out, or replace the values.",
                sqlstate=NULL_NOT_ALLOWED if np.isnan(found).any() else INVALID_PARAMETER,
            )
        out[place : place + width] = found.reshape(-1)

    return encode_array


def _image(name: str, way: Image, place: int) -> Encode:
    width = math.prod(way.shape)

    def encode_image(out: np.ndarray, value: Any) -> None:
        if value is None:
            raise _is_null(name)
        try:
            images.decode(way, _bytes(value), out[place : place + width])
        except images.NoImageError as error:
            raise CerebroError(f'column "{name}" is not an image: it {error}') from None

    return encode_image
