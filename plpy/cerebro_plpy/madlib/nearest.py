"""Errors for names that do not exist, with the name that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from cerebro_plpy.errors import CerebroError

LONGEST_NAME = 60
# Names that are less alike were not meant.
LEAST_LIKENESS = 0.6


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that looks most like this one, whatever its case; None if none is like it."""
    wanted = name[:LONGEST_NAME]
    best = max(known, key=lambda item: _likeness(wanted, item), default=None)
    return best if best is not None and _likeness(wanted, best) >= (False, LEAST_LIKENESS) else None


def _likeness(wanted: str, item: str) -> tuple[bool, float, float]:
    """Return how alike two names are.

    Swapped letters rank first: they are the commonest slip, and difflib underrates them.
    """
    folded = difflib.SequenceMatcher(None, wanted.lower(), item.lower()).ratio()
    exact = difflib.SequenceMatcher(None, wanted, item).ratio()
    return sorted(wanted.lower()) == sorted(item.lower()), folded, exact


def fold(name: str) -> str:
    """Bring the spellings of one name (BinaryIoU, binary_io_u, binaryiou) together."""
    return name.replace("_", "").lower()


def unknown(message: str, name: str, known: Iterable[str]) -> CerebroError:
    """Make the error for a name that is not among the known ones."""
    options = sorted(known, key=str.lower)
    match = nearest(name, options)
    return CerebroError(
        message,
        detail=f"Possible are: {', '.join(options)}." if options else "None is possible here.",
        hint=f'Did you mean "{match}"?' if match else None,
    )
