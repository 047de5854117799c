"""Compares the output that a page of the documentation shows for an example with the real output."""

from __future__ import annotations

import re

# Stands for output that is left out: alone in a line for any lines, at the end of a line for its rest.
GAP = "…"


def without_numbers(line: str) -> str:
    """Return a line without measured numbers and column widths, which differ between machines."""
    line = re.sub(r"\d+\.\d+(e-?\d+)?|\b\d+(?= s\b)", "N", line)
    return " ".join(re.sub(r"-{3,}", "---", line).split())


def _same(expected: str, shown: str) -> bool:
    if expected.endswith(GAP):
        return shown.startswith(expected.removesuffix(GAP).rstrip())
    return shown == expected


def missing(expected: list[str], shown: list[str]) -> str | None:
    """Return a message on the first difference between expected and shown lines, or None if they match.

    An expected line "…" matches any number of shown lines."""
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
