"""How what a page of the documentation says comes out of an example is held against what does."""

from __future__ import annotations

import re

# What depends on the machine or is much: as a line it stands for others, at the end of one for its rest.
GAP = "…"


def without_numbers(line: str) -> str:
    """A line without what depends on time and machine, and how wide columns are."""
    line = re.sub(r"\d+\.\d+(e-?\d+)?|\b\d+(?= s\b)", "N", line)
    return " ".join(re.sub(r"-{3,}", "---", line).split())


def _same(expected: str, shown: str) -> bool:
    if expected.endswith(GAP):
        return shown.startswith(expected.removesuffix(GAP).rstrip())
    return shown == expected


def missing(expected: list[str], shown: list[str]) -> str | None:
    """Give the first expected line that is not where it should be; a gap may be any number of lines."""
    place, free = 0, False
    for line in expected:
        if line == GAP:
            free = True
            continue
        while free and place < len(shown) and not _same(line, shown[place]):
            place += 1
        if place == len(shown) or not _same(line, shown[place]):
            return f"{line!r}, not {shown[place] if place < len(shown) else 'the end'!r}"
        place, free = place + 1, False
    return None if free or place == len(shown) else f"the end, not {shown[place]!r}"
