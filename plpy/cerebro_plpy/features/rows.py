"""One row, given as JSON by the names of its columns, as features: the same as a batch of one makes, without
what a batch costs."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import DATATYPE_MISMATCH, NOT_SUPPORTED, NULL_NOT_ALLOWED, UNDEFINED_COLUMN, CerebroError
from . import encode, images
from .specification import (
    HASH,
    ONE_HOT,
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

Values = Sequence[float]
Encode = Callable[[Any], Values]
# Beyond it a value is no 32-bit float.
_LARGEST = float(np.finfo(np.float32).max)
_EPOCH = datetime.datetime(1970, 1, 1)
_FAR = re.compile(r"(\d+)-(\d\d)-(\d\d)(?:T(\d\d):(\d\d):(\d\d(?:\.\d+)?)(?:([+-])(\d\d):?(\d\d)?)?)?( BC)?")
_FLOATS = ("float4", "float8", "numeric")


class RowEncoder:
    """Makes the inputs of a net from rows."""

    def __init__(self, specification: Specification) -> None:
        self._inputs = [_InputEncoder(one) for one in specification.inputs]
        categories = [f for f in specification.features if isinstance(f.way, Category)]
        # Texts of numbers must be as the server wrote them.
        self._parse: Callable[[str], Any] = json.loads
        if any(feature.element in _FLOATS for feature in categories):
            self._parse = json.JSONDecoder(parse_float=str).decode

    def parse(self, text: str) -> Any:
        return self._parse(text)

    def encode(self, row: Mapping[str, Any]) -> list[np.ndarray]:
        """One array for each input, (1, …)."""
        return [one.encode(row) for one in self._inputs]


class _InputEncoder:
    def __init__(self, one: FeatureInput) -> None:
        self._shape = (1, *one.shape)
        self._features = [(feature.name, _encoder(feature)) for feature in one.features]

    def encode(self, row: Mapping[str, Any]) -> np.ndarray:
        values: list[float] = []
        for name, made in self._features:
            try:
                values.extend(made(row[name]))
            except KeyError:
                raise CerebroError(
                    f'the row has no column "{name}"',
                    hint="Give rows with the columns of the training rows, NULL where a value is not known.",
                    sqlstate=UNDEFINED_COLUMN,
                ) from None
            except (TypeError, ValueError, AttributeError, OverflowError):
                raise _other_type(name, row[name]) from None
        found = np.array(values, np.float64)
        if not float(np.abs(found).max()) <= _LARGEST:
            raise CerebroError("the row holds infinity, or values that are too large")
        return found.astype(np.float32).reshape(self._shape)


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


def _encoder(feature: Feature) -> Encode:
    match feature.way:
        case Number() as way:
            return _number(feature.name, way)
        case Date() as way:
            return _date(feature, way)
        case Category() as way:
            return _category(way, feature.element == "bpchar")
        case Text() as way:
            return _text(way)
        case Array() as way:
            return _array(feature.name, way)
        case Image() as way:
            return _image(feature.name, way)


def _number(name: str, way: Number) -> Encode:
    center, spread, fill, is_log = way.center, way.spread, way.fill, way.scale == "log"

    def encode_number(value: Any) -> Values:
        number = math.nan if value is None else float(value)
        missing = number != number
        if missing:
            if fill is None:
                raise _is_null(name)
            number = fill
        if is_log:
            number = float(np.sign(number) * np.log1p(np.abs(number)))
        scaled = (number - center) / spread
        return (scaled, missing) if way.indicator else (scaled,)

    return encode_number


class _Raising:
    """Faults of one row are errors at once."""

    def add(self, column: str, problem: str, rows: Sequence[int], example: str = "") -> None:
        if problem == encode.IS_NULL:
            raise _is_null(column)
        raise CerebroError(f'column "{column}" {problem}{example}')


def _date(feature: Feature, way: Date) -> Encode:
    """Times come in few different values, or are dear anyway: as a batch of one, and kept for a while."""
    if feature.element == "interval":
        raise CerebroError(
            f'column "{feature.name}" is an interval, which a single row cannot have',
            hint="Use cerebro.madlib_predict, or train with extract(epoch FROM …) in a view.",
            sqlstate=NOT_SUPPORTED,
        )
    kept: dict[Any, Values] = {}

    def encode_date(value: Any) -> Values:
        found = kept.get(value)
        if found is None:
            seconds = np.array([math.nan if value is None else seconds_of(value)])
            out = np.empty((1, *way.shape), np.float32)
            encode.date(way, seconds, out, encode.Notes(feature.name, 1, _Raising()))
            found = out[0].tolist()
            if len(kept) >= 10_000:
                kept.clear()
            kept[value] = found
        return found

    return encode_date


def seconds_of(text: str) -> float:
    """The seconds since 1970 of a date or time as JSON has it; of a time of day those since midnight."""
    if text in ("infinity", "-infinity"):
        return math.inf
    if text[2:3] == ":":
        time = datetime.time.fromisoformat(text)
        offset = (time.utcoffset() or datetime.timedelta()).total_seconds()
        return 3600 * time.hour + 60 * time.minute + time.second + time.microsecond / 1e6 - offset
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return _far(text)
    if found.tzinfo is not None:
        found = found.astimezone(datetime.UTC).replace(tzinfo=None)
    return (found - _EPOCH) / datetime.timedelta(microseconds=1) / 1e6


def _far(text: str) -> float:
    """Before Christ, or after the year 9999, where Python's calendar does not go."""
    found = _FAR.fullmatch(text)
    if found is None:
        raise ValueError(text)
    year, month, day, hour, minute, second, sign, zone, zone_minutes, before = found.groups()
    number = 1 - int(year) if before else int(year)
    date = np.datetime64(number - 1970, "Y").astype("datetime64[M]") + (int(month) - 1)
    days = (date.astype("datetime64[D]") + (int(day) - 1)).astype(np.int64)
    offset = 3600 * int(zone or 0) + 60 * int(zone_minutes or 0)
    of_day = 3600 * int(hour or 0) + 60 * int(minute or 0) + float(second or 0)
    return int(days) * encode.DAY + of_day - (-offset if sign == "-" else offset)


def _plain_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _category(way: Category, is_padded: bool) -> Encode:
    codes = encode.CategoryCodes(way)
    width = way.shape[0]
    one_hot: list[Values] = [
        tuple(float(place == code) for place in range(width)) for code in [*range(width), -1]
    ]

    def encode_category(value: Any) -> Values:
        text = None if value is None else _plain_text(value)
        if is_padded and text is not None:
            text = text.rstrip(" ")
        if way.encode == HASH:
            return (0 if text is None else 1 + encode.hashed(text) % way.buckets,)
        code = codes[text]
        return one_hot[code] if way.encode == ONE_HOT else (code,)

    return encode_category


def _text(way: Text) -> Encode:
    words = encode.Words(way)

    def encode_text(value: Any) -> Values:
        found = [words[word] for word in encode.split(value)[: way.tokens]] if value else []
        return found + [0] * (way.tokens - len(found))

    return encode_text


def _bytes(value: str) -> bytes:
    """As the server writes bytea in JSON."""
    if not value.startswith("\\x"):
        raise ValueError(value)
    return bytes.fromhex(value[2:])


def _array(name: str, way: Array) -> Encode:
    width = math.prod(way.shape)

    def encode_array(value: Any) -> Values:
        if value is None:
            raise _is_null(name)
        if isinstance(value, str):
            # pgvector's types, or bytes.
            value = json.loads(value) if value.startswith("[") else list(_bytes(value))
        with np.errstate(over="ignore"):
            found = np.array(value, np.float64).astype(np.float32) / np.float32(way.divide)
        if found.shape != way.shape and found.shape != (width,):
            raise CerebroError(f'column "{name}" has the shape {list(found.shape)}, not {list(way.shape)}')
        return found.reshape(-1).tolist()

    return encode_array


def _image(name: str, way: Image) -> Encode:
    def encode_image(value: Any) -> Values:
        if value is None:
            raise _is_null(name)
        out = np.empty(math.prod(way.shape), np.float32)
        try:
            images.decode(way, _bytes(value), out)
        except images.NoImageError as error:
            raise CerebroError(f'column "{name}" is no image: it {error}') from None
        return out.tolist()

    return encode_image
