"""The history of an alias, and what lies before where it points. Pure."""

from __future__ import annotations

from collections.abc import Iterable

SET, ROLLED_BACK, ALIAS_DROPPED, VERSION_DROPPED = "set", "rolled back", "alias dropped", "version dropped"
REGISTERED = "registered"


def walk(events: Iterable[tuple[str, int | None]]) -> list[int]:
    """Return the versions that an alias can go back through; the last is where it points.

    What it was rolled back from is not among them, so going back twice goes back two steps.
    """
    path: list[int] = []
    for event, version in events:
        match event, version:
            case "set", int() if path[-1:] != [version]:
                path.append(version)
            case "rolled back", int():
                path = path[:-1]
                while path and path[-1] != version:
                    path.pop()
            case "alias dropped", _:
                path = []
            case "version dropped", int():
                path = _without(path, version)
    return path


def _without(path: Iterable[int], version: int) -> list[int]:
    """Return a path without a version, and without the steps from a version to itself that this leaves."""
    kept: list[int] = []
    for one in path:
        if one != version and kept[-1:] != [one]:
            kept.append(one)
    return kept
