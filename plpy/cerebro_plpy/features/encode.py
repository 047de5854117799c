"""Encodes values of columns as features, one batch at a time."""

from __future__ import annotations

import string
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Protocol

import numpy as np

from cerebro_plpy.features.specification import (
    EMBED,
    HASH,
    LOG,
    ONE_HOT,
    PERIODS,
    QUANTILE,
    Category,
    Date,
    Number,
    Text,
)

DAY = 86400
YEAR = 365.2425 * DAY
FLOATS = ("float4", "float8", "numeric")
INTEGERS = ("int2", "int4", "int8")
NUMBERS = (*INTEGERS, *FLOATS)
NAN = "NaN"
IS_NULL = "is NULL"
NOT_FINITE = "holds NaN or infinity"
TOO_LARGE = "holds values beyond the range of a 32-bit float"
# As Keras' TextVectorization: ASCII letters in lower case, without this punctuation, cut at white space. All
# that is done to UTF-8, in which no part of another letter looks like these.
PUNCTUATION = b"!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'"
SPACES = b"\t\n\v\f\r"
_PLAIN = bytes.maketrans(
    string.ascii_uppercase.encode() + SPACES, string.ascii_lowercase.encode() + b" " * len(SPACES)
)
# No text from the server contains this character.
_END = "\0"
# The characters of texts that are divided into words at a time: a word takes more memory than its letters.
_CUT_CHARACTERS = 1 << 20
# The most words whose codes are kept, words outside the vocabulary included.
_KEPT_WORDS = 100_000

# No share is nearer to 0 or 1: the ends of the distribution are infinitely far.
_LEAST_SHARE = 1e-7
# Between these shares the deviate follows from the share itself, outside from the root of its logarithm.
_MIDDLE, _SPLIT = 0.425, 1.6
# The coefficients of numerator and denominator, from the highest power down.
_INNER = (
    (2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
     13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
    (5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
     5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0),
)  # fmt: skip
_OUTER = (
    (7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
     3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
     0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0),
)  # fmt: skip


class Noted(Protocol):
    """A counter of the rows in which a column has a fault. Rows are numbered from 1, as they are read."""

    def add(self, column: str, problem: str, rows: Sequence[int], example: str = "") -> None: ...


@dataclass(frozen=True)
class Notes:
    """A recorder of faults in a batch of one column; the number of the batch's first row is `first_row`."""

    name: str
    first_row: int
    seen: Noted

    def add(self, problem: str, rows: np.ndarray, example: str = "") -> None:
        self.seen.add(self.name, problem, (rows + self.first_row).tolist(), example)


def number(way: Number, values: np.ndarray, out: np.ndarray, notes: Notes) -> None:
    """Write a batch of scaled numbers into `out`; NaN in `values` means NULL."""
    values, missing = _filled(values, way.fill, notes)
    out[:, 0] = scale(way, values)
    _check(values, out[:, :1], notes)
    if way.indicator:
        out[:, 1] = missing


def scale(way: Number, values: np.ndarray) -> np.ndarray:
    """Return numbers scaled as the feature `way` says."""
    return scaler(way)(values)


def scaler(way: Number) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that scales numbers as the feature `way` says."""
    if way.scale == QUANTILE:
        return partial(_find_places, np.array(way.quantiles))

    def move(values: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            if way.scale == LOG:
                values = np.sign(values) * np.log1p(np.abs(values))
            return (values - way.center) / way.spread

    return move


def _find_places(quantiles: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the normal deviate of each value's place among the quantiles.

    If several quantiles are equal to a value, its place is in their middle. The lowest and highest
    quantiles, and values beyond them, become ±5.2.
    """
    shares = np.linspace(0, 1, len(quantiles))
    low = np.interp(values, quantiles, shares)
    high = -np.interp(-values, -quantiles[::-1], -shares[::-1])
    found = np.where(values <= quantiles[0], 0.0, np.where(values >= quantiles[-1], 1.0, (low + high) / 2))
    return np.where(np.isfinite(values), _find_deviates(found), np.nan)


def _find_deviates(shares: np.ndarray) -> np.ndarray:
    """Return the numbers below which these shares of a standard normal distribution lie.

    This is algorithm AS 241 of Wichura (1988), without the far tails.
    """
    shares = np.clip(shares, _LEAST_SHARE, 1 - _LEAST_SHARE)
    apart = shares - 0.5
    squared = _MIDDLE**2 - apart**2
    inner = apart * np.polyval(_INNER[0], squared) / np.polyval(_INNER[1], squared)
    root = np.sqrt(-np.log(np.minimum(shares, 1 - shares))) - _SPLIT
    outer = np.sign(apart) * np.polyval(_OUTER[0], root) / np.polyval(_OUTER[1], root)
    return np.where(np.abs(apart) <= _MIDDLE, inner, outer)


def date(way: Date, values: np.ndarray, out: np.ndarray, notes: Notes) -> None:
    """Write the parts of times, such as the month, into `out`; times are seconds since 1970, NaN is NULL."""
    values, missing = _filled(values, way.fill, notes)
    _check(values, values[:, np.newaxis], notes)
    times = np.where(np.isfinite(values), np.floor(values), 0).astype(np.int64).astype("datetime64[s]")
    place = 0
    for part in way.parts:
        made = _part(part, way, values, times)
        out[:, place : place + made.shape[1]] = made
        place += made.shape[1]
    if way.indicator:
        out[:, place] = missing


def _part(part: str, way: Date, values: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return one part of dates, such as the month: as one column, or as two with its sine and cosine."""
    raw = way.scale == "none"
    if part == "days":
        with np.errstate(all="ignore"):
            return (values / DAY if raw else (values - way.center) / way.spread)[:, np.newaxis]
    found = calendar(part, times)
    if part == "year":
        middle = calendar("year", np.array([int(way.center)], "datetime64[s]"))
        return (found if raw else (found - middle) / max(1.0, way.spread / YEAR))[:, np.newaxis]
    first, period = PERIODS[part]
    if way.cyclic:
        angle = 2 * np.pi * (found - first) / period
        return np.stack([np.sin(angle), np.cos(angle)], axis=1)
    return (found if raw else (found - first) / (period - 1))[:, np.newaxis]


def calendar(part: str, times: np.ndarray) -> np.ndarray:
    seconds, days = times.astype(np.int64), times.astype("datetime64[D]")
    months, years = days.astype("datetime64[M]"), days.astype("datetime64[Y]")
    match part:
        case "year":
            return years.astype(np.int64) + 1970
        case "quarter":
            return months.astype(np.int64) % 12 // 3 + 1
        case "month":
            return months.astype(np.int64) % 12 + 1
        case "day":
            return (days - months).astype(np.int64) + 1
        case "day_of_year":
            return (days - years).astype(np.int64) + 1
        case "weekday":  # Monday is 0; 1970 began on a Thursday.
            return (days.astype(np.int64) + 3) % 7
        case "hour":
            return seconds // 3600 % 24
        case "minute":
            return seconds // 60 % 60
    return seconds % 60


def _filled(values: np.ndarray, fill: float | None, notes: Notes) -> tuple[np.ndarray, np.ndarray]:
    missing = np.isnan(values)
    if missing.any():
        if fill is None:
            notes.add(IS_NULL, np.flatnonzero(missing))
        values = np.where(missing, 0.0 if fill is None else fill, values)
    return values, missing


def _check(values: np.ndarray, out: np.ndarray, notes: Notes) -> None:
    bad = ~np.isfinite(out[:, 0])
    if bad.any():
        beyond = bad & np.isfinite(values)
        for problem, rows in ((NOT_FINITE, bad & ~beyond), (TOO_LARGE, beyond)):
            if rows.any():
                found = np.flatnonzero(rows)
                notes.add(problem, found, f", with {values[found[0]]}")


# No text from the server is equal to this one, which stands for all unseen values.
UNSEEN = "\0"


class CategoryCodes(dict[str | None, int]):
    """The code of each value of a category, of NULL, and of all unseen values together."""

    def __init__(self, way: Category, element: str = "") -> None:
        # An embedding has unseen and NULL before the values, a one-hot vector NULL and others behind them.
        places = (2, 1, 0) if way.encode == EMBED else (0, -2, -1)
        if way.encode == ONE_HOT:
            end = len(way.values)
            places = (0, end if way.null else -1, end + way.null if way.other else -1)
        first, null, self._unseen = places
        super().__init__({value: first + place for place, value in enumerate(way.values)})
        if way.fill is not None:
            null = self.get(way.fill, self._unseen)
        elif way.encode == ONE_HOT and not way.null:
            null = self._unseen
        self[None] = null
        if element in FLOATS:
            # NaN is treated as NULL, as for numbers and in data frames.
            self.setdefault(NAN, null)
        # A number may come in another spelling than in training, such as 1.5 or 1.50.
        self._numbers: dict[Decimal, int] = {}
        if element in NUMBERS:
            for place, one in enumerate(way.values):
                if (number := read_decimal(one)) is not None:
                    self._numbers.setdefault(number, first + place)

    def __missing__(self, value: str | None) -> int:
        # char(n) fills a value up with blanks, which it has in the JSON of its row but not as text.
        if value is not None and value.endswith(" "):
            return self[value.rstrip(" ")]
        number = read_decimal(value) if self._numbers and value is not None else None
        return self._unseen if number is None else self._numbers.get(number, self._unseen)


def read_decimal(text: str) -> Decimal | None:
    """Return the finite number that a text is; None if it is none."""
    try:
        found = Decimal(text)
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def category(way: Category, codes: CategoryCodes, values: Sequence[str | None], out: np.ndarray) -> None:
    """Write a batch of texts into `out`, encoded as hashes, codes or one-hot vectors."""
    if way.encode == HASH:
        out[:, 0] = [0 if value is None else 1 + hashed(value) % way.buckets for value in values]
        return
    found = np.fromiter(map(codes.__getitem__, values), np.int64, len(values))
    if way.encode != ONE_HOT:
        out[:, 0] = found
        return
    out[...] = 0
    known = np.flatnonzero(found >= 0)
    out[known, found[known]] = 1


def hashed(value: str) -> int:
    return zlib.crc32(value.encode())


class Words(dict[bytes, int]):
    """The code of each word in UTF-8, of the empty word, and of the end of a text."""

    def __init__(self, way: Text) -> None:
        super().__init__({word.encode(): 2 + place for place, word in enumerate(way.vocabulary)})
        self[b""], self[_END.encode()] = NO_WORD, TEXT_END
        self._buckets = way.buckets

    def __missing__(self, word: bytes) -> int:
        code = 1 + (zlib.crc32(word) % self._buckets if self._buckets else 0)
        if len(self) < _KEPT_WORDS:
            self[word] = code
        return code


NO_WORD, TEXT_END = -1, -2


def text(way: Text, words: Words, values: Sequence[str | None], out: np.ndarray) -> None:
    """Write the codes of the first words of each text into `out`."""
    half = len(values) // 2
    if half and sum(map(len, filter(None, values))) > _CUT_CHARACTERS:
        text(way, words, values[:half], out[:half])
        text(way, words, values[half:], out[half:])
        return
    end = f" {_END} "
    found = split(end.join([value or "" for value in values]))
    codes = np.fromiter(map(words.__getitem__, found), np.int64, len(found))
    codes = codes[codes != NO_WORD]
    ends = codes == TEXT_END
    rows = np.cumsum(ends)
    # The index of the first code of each text, one after the end of the text before it.
    begins = np.concatenate(([0], np.flatnonzero(ends) + 1))
    places = np.arange(len(codes)) - begins[rows]
    kept = ~ends & (places < way.tokens)
    out[...] = 0
    out[rows[kept], places[kept]] = codes[kept]


def split(value: str) -> list[bytes]:
    """Return the words of a text, without punctuation and in lower case; some of them are empty."""
    return value.encode().translate(_PLAIN, PUNCTUATION).split(b" ")
