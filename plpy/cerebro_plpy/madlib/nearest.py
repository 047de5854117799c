"""Errors for names that do not exist, with the name that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ..errors import CerebroError

LONGEST_NAME = 60


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Give the known name that looks most like this one, whatever its case."""
    folded = {item.lower(): item for item in known}
    close = difflib.get_close_matches(name[:LONGEST_NAME].lower(), folded, n=1, cutoff=0.5)
    return folded[close[0]] if close else None


def unknown(message: str, name: str, known: Iterable[str]) -> CerebroError:
    """Make the error for a name that is not among the known ones."""
    options = sorted(known, key=str.lower)
    match = nearest(name, options)
    return CerebroError(
        message,
        detail=f"Possible are: {', '.join(options)}." if options else "None is possible here.",
        hint=f'Did you mean "{match}"?' if match else None,
    )
