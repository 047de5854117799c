"""The history of an alias: the versions to which it can go back. Pure."""

from __future__ import annotations

from collections.abc import Iterable

SET, ROLLED_BACK, ALIAS_DROPPED, VERSION_DROPPED = "set", "rolled back", "alias dropped", "version dropped"
REGISTERED = "registered"


def walk(events: Iterable[tuple[str, int | None]]) -> list[int]:
    """Return the versions to which an alias can go back, the oldest first; the last is its current version.

    Versions from which the alias was rolled back are left out, so going back twice goes back two steps.
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
    """Return the path without a version. If two equal versions then follow each other, keep one of them."""
    kept: list[int] = []
    for one in path:
        if one != version and kept[-1:] != [one]:
            kept.append(one)
    return kept
