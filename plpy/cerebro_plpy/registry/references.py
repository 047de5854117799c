"""Model references: name, name@alias and name@version. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cerebro_plpy.errors import NULL_NOT_ALLOWED, CerebroError
from cerebro_plpy.madlib.literal import shorten

# The alias that a name alone means.
DEFAULT = "default"
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)
_LARGEST_VERSION = 2**31 - 1


@dataclass(frozen=True)
class Reference:
    """A reference to a version of a registered model: the model's name, with an alias or a version number."""

    name: str
    alias: str | None = DEFAULT
    version: int | None = None

    def __str__(self) -> str:
        return f"{self.name}@{self.alias if self.version is None else self.version}"


def is_marked(text: str) -> bool:
    """Return whether a text must mean a registered model: it has an @, and no double quotes.

    The name of a table has an @ only in double quotes.
    """
    return "@" in text and '"' not in text


def parse(text: str) -> Reference | None:
    """Return the reference that a text means, with names in lower case; None if the text is no reference."""
    name, at, rest = text.strip().lower().partition("@")
    if not _NAME.fullmatch(name):
        return None
    if not at:
        return Reference(name)
    if rest.isascii() and rest.isdigit() and len(rest) <= 10 and 1 <= int(rest) <= _LARGEST_VERSION:
        return Reference(name, None, int(rest))
    return Reference(name, rest) if _NAME.fullmatch(rest) else None


def check_name(text: str | None, what: str) -> str:
    """Return the name of a model or an alias in lower case. Raise an error if it is not a valid name."""
    if text is None:
        raise CerebroError(f"{what} is NULL", sqlstate=NULL_NOT_ALLOWED)
    name = text.strip().lower()
    if not _NAME.fullmatch(name):
        is_reference = "@" in name and parse(name) is not None
        raise CerebroError(
            f"{shorten(text, 80)!r} cannot be {what}",
            hint="Leave out the @ and what follows: aliases and versions are arguments of their own."
            if is_reference
            else "Take a letter or _, then at most 62 letters, digits and _.",
        )
    return name
