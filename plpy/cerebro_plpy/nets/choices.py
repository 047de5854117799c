"""Expands a line of layers with choices, such as `Dense({32, 64}, 'relu') * {1..3}`, into all its lines."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.literal import MAX_LENGTH, MAX_NESTING, count_nesting, shorten

# The most nets of a line, and the most copies of a layer.
MOST_NETS, MOST_COPIES = 1000, 1000
_RANGE = re.compile(r"\s*(\d{1,9})\s*\.\.\s*(\d{1,9})\s*")
_COPIES = re.compile(r"(.*\))\s*\*\s*(\d{1,9})\s*", re.DOTALL)
_OPEN, _CLOSE, _QUOTES = "([{", ")]}", "'\""


def find_lines(text: str) -> list[tuple[str, str]]:
    """Return a title and a line of layers for each net that a line with choices stands for.

    A title has one value in place of each choice, for example `Dense(32, 'relu') * 2`; the line also has the
    copies written out.
    """
    if len(text) > MAX_LENGTH or count_nesting(text) > MAX_NESTING:
        raise CerebroError(
            f"malformed line of layers: {shorten(text)}",
            detail=f"It is longer than {MAX_LENGTH} characters, or nested more than {MAX_NESTING} times.",
        )
    titles = dict.fromkeys(" ".join(line.split()) for line in _each(text))
    return [(title, _with_copies(title)) for title in titles]


def _each(text: str) -> list[str]:
    """Return one text for each combination of the choices in `text`."""
    parts = list(_parts(text))
    count = math.prod(map(len, parts))
    if not 0 < count <= MOST_NETS:
        raise CerebroError(f"the line gives {count} nets, which must be from 1 to {MOST_NETS}")
    return ["".join(made) for made in itertools.product(*parts)]


def _parts(text: str) -> Iterator[list[str]]:
    """Split a line at its choices, and yield for each piece a list of the texts that can stand there."""
    done = 0
    for start, end in _sets(text):
        choices = _choices(text[start + 1 : end])
        if choices is not None:
            yield [text[done:start]]
            yield choices
            done = end + 1
    yield [text[done:]]


def _sets(text: str) -> Iterator[tuple[int, int]]:
    """Yield the positions of each opening brace and its closing brace, leaving out braces within braces."""
    depth, start = 0, 0
    for place, sign in _signs(text):
        if sign == "{":
            start, depth = (place if depth == 0 else start), depth + 1
        elif sign == "}":
            depth -= 1
            if depth == 0:
                yield start, place


def _choices(inside: str) -> list[str] | None:
    """Return the choices that the text between two braces lists; None if it is the text of a dictionary."""
    if any(sign == ":" for _, sign in _signs(inside)):
        return None
    bounds = _RANGE.fullmatch(inside)
    if bounds is None:
        return [made for one in _split(inside) for made in _each(one.strip())]
    first, last = int(bounds[1]), int(bounds[2])
    # At most one more than is allowed: enough to say that there are too many.
    return [str(number) for number in range(first, min(last, first + MOST_NETS) + 1)]


def _with_copies(line: str) -> str:
    """Return the line with copies such as `Dense(8) * 3` written out as three layers."""
    found: list[str] = []
    for layer in _split(line):
        copies = _COPIES.fullmatch(layer)
        if copies is None:
            found.append(layer)
            continue
        count = int(copies[2])
        if count > MOST_COPIES:
            raise CerebroError(
                f"a layer is there {count} times: {shorten(layer.strip(), 100)}",
                detail=f"It may be there {MOST_COPIES} times.",
            )
        found += [copies[1]] * count
    return ",".join(found)


def _split(text: str) -> list[str]:
    """Split a text at its commas, except at commas within brackets or quotes."""
    depth, ends = 0, [-1]
    for place, sign in _signs(text):
        depth += (sign in _OPEN) - (sign in _CLOSE)
        if sign == "," and depth == 0:
            ends.append(place)
    return [text[a + 1 : b] for a, b in itertools.pairwise([*ends, len(text)])]


def _signs(text: str) -> Iterator[tuple[int, str]]:
    """Yield the position of each character that is not within quotes, and the character."""
    quote, escaped = "", False
    for place, sign in enumerate(text):
        if quote:
            quote, escaped = ("" if sign == quote and not escaped else quote), sign == "\\" and not escaped
        elif sign in _QUOTES:
            quote = sign
        else:
            yield place, sign
