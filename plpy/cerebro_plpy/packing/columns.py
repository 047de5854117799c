"""The grammar of `dependent_varname` and `independent_varname`: column names, never expressions."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import NULL_NOT_ALLOWED, CerebroError
from ..store.names import tokens

Token = tuple[str, str]


@dataclass(frozen=True)
class Item:
    """One input or output: a column, or ARRAY[…] of columns."""

    columns: tuple[str, ...]
    bundled: bool


def parse_items(text: str | None, parameter: str) -> list[Item]:
    """Read a comma-separated list of columns and ARRAY[column, …]."""
    if text is None or not text.strip():
        raise CerebroError(f"{parameter} is NULL or empty", sqlstate=NULL_NOT_ALLOWED)
    items = []
    rest = tokens(text)
    while True:
        item, rest = _item(rest, text, parameter)
        items.append(item)
        if not rest:
            return items
        if rest[0] != ("mark", ","):
            raise _refused(text, parameter)
        rest = rest[1:]


def _item(rest: list[Token], text: str, parameter: str) -> tuple[Item, list[Token]]:
    match rest:
        case [("name", "array"), ("mark", "["), *inner] if ("mark", "]") in inner:
            end = inner.index(("mark", "]"))
            return Item(_names(inner[:end], text, parameter), bundled=True), inner[end + 1 :]
        case [("name", name), *after]:
            return Item((name,), bundled=False), after
    raise _refused(text, parameter)


def _names(inner: list[Token], text: str, parameter: str) -> tuple[str, ...]:
    names, commas = inner[::2], inner[1::2]
    if len(inner) % 2 == 0 or any(kind != "name" for kind, _ in names):
        raise _refused(text, parameter)
    if any(comma != ("mark", ",") for comma in commas):
        raise _refused(text, parameter)
    return tuple(name for _, name in names)


def _refused(text: str, parameter: str) -> CerebroError:
    return CerebroError(
        f"{parameter} {text} is not a list of columns",
        detail="It may list columns and ARRAY[column, …], comma-separated. Expressions are not evaluated.",
        hint="Name a view's column that computes the expression. Names with capitals need double quotes.",
    )
