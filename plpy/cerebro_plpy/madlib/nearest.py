"""Errors for unknown names, with the known name that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from cerebro_plpy.errors import CerebroError

LONGEST_NAME = 60
# The least likeness of a name that is proposed.
LEAST_LIKENESS = 0.6


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like the given name; None if no name is like it.

    Upper and lower case matter only between names that are otherwise equally like it.
    """
    wanted = name[:LONGEST_NAME]
    best = max(known, key=lambda item: _likeness(wanted, item), default=None)
    return best if best is not None and _likeness(wanted, best) >= (False, LEAST_LIKENESS) else None


def _likeness(wanted: str, item: str) -> tuple[bool, float, float]:
    """Return how alike two names are, in a form that can be compared.

    Names of the same letters rank first: swapped letters are the commonest slip, and difflib underrates them.
    """
    folded = difflib.SequenceMatcher(None, wanted.lower(), item.lower()).ratio()
    exact = difflib.SequenceMatcher(None, wanted, item).ratio()
    return sorted(wanted.lower()) == sorted(item.lower()), folded, exact


def fold(name: str) -> str:
    """Return the form that all spellings of a name (BinaryIoU, binary_io_u, binaryiou) have in common."""
    return name.replace("_", "").lower()


def unknown(message: str, name: str, known: Iterable[str]) -> CerebroError:
    """Return the error for a name that is not one of the known names."""
    options = sorted(known, key=str.lower)
    match = nearest(name, options)
    return CerebroError(
        message,
        detail=f"Possible are: {', '.join(options)}." if options else "None is possible here.",
        hint=f'Did you mean "{match}"?' if match else None,
    )
