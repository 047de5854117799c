"""Encodes values of columns as features, a batch at a time."""

from __future__ import annotations

import string
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cerebro_plpy.features.specification import EMBED, HASH, ONE_HOT, PERIODS, Category, Date, Number, Text

DAY = 86400
YEAR = 365.2425 * DAY
FLOATS = ("float4", "float8", "numeric")
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
# No text of a server has it in it.
_END = "\0"
# The characters of texts that are cut at a time: a word takes far more memory than its letters.
_CUT_CHARACTERS = 1 << 20
# Other words whose codes are kept.
_KEPT_WORDS = 100_000


class Noted(Protocol):
    """A counter of faults in rows, which are numbered from 1 in the order of the scan."""

    def add(self, column: str, problem: str, rows: Sequence[int], example: str = "") -> None: ...


@dataclass(frozen=True)
class Notes:
    """A recorder of faults in a column's rows, of which the first has the number `first_row`."""

    name: str
    first_row: int
    seen: Noted

    def add(self, problem: str, rows: np.ndarray, example: str = "") -> None:
        self.seen.add(self.name, problem, (rows + self.first_row).tolist(), example)


def number(way: Number, values: np.ndarray, out: np.ndarray, notes: Notes) -> None:
    """Scale a column of doubles, in which NaN stands for NULL."""
    values, missing = _filled(values, way.fill, notes)
    with np.errstate(all="ignore"):
        if way.scale == "log":
            values = np.sign(values) * np.log1p(np.abs(values))
        out[:, 0] = (values - way.center) / way.spread
    _check(values, out[:, :1], notes)
    if way.indicator:
        out[:, 1] = missing


def date(way: Date, values: np.ndarray, out: np.ndarray, notes: Notes) -> None:
    """Make parts of seconds since 1970, in which NaN stands for NULL."""
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
    """Compute one part of dates: one column, or sine and cosine."""
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


# No text of a server is this value.
UNSEEN = "\0"


class CategoryCodes(dict[str | None, int]):
    """The code of each value; unseen values have one too."""

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
            # As for numbers and in data frames, it is no value.
            self.setdefault(NAN, null)

    def __missing__(self, value: str | None) -> int:
        return self._unseen


def category(way: Category, codes: CategoryCodes, values: Sequence[str | None], out: np.ndarray) -> None:
    """Look up a column of texts."""
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
    """The code of each word in UTF-8, and of what stands between words and between texts."""

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
    """Cut a column of texts into words, of which the first are kept."""
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
    # Where each text begins, one behind the end of that before.
    begins = np.concatenate(([0], np.flatnonzero(ends) + 1))
    places = np.arange(len(codes)) - begins[rows]
    kept = ~ends & (places < way.tokens)
    out[...] = 0
    out[rows[kept], places[kept]] = codes[kept]


def split(value: str) -> list[bytes]:
    """Return the words of a text, some of them empty."""
    return value.encode().translate(_PLAIN, PUNCTUATION).split(b" ")
