"""Parses `dependent_varname` and `independent_varname`: lists of column names, never expressions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cerebro_plpy.errors import NULL_NOT_ALLOWED, CerebroError
from cerebro_plpy.store.names import quote, tokens

Token = tuple[str, str]


@dataclass(frozen=True)
class Item:
    """One input or output in a list of columns: a single column, or ARRAY[…] of columns."""

    columns: tuple[str, ...]
    bundled: bool


def parse_items(text: str | None, parameter: str, known: Collection[str] = ()) -> list[Item]:
    """Return the items of a comma-separated list of columns and ARRAY[column, …].

    A text that is no such list, or that SQL would fold to lower case, may be the exact name of a `known`
    column.
    """
    if text is None or not text.strip():
        raise CerebroError(f"{parameter} is NULL or empty", sqlstate=NULL_NOT_ALLOWED)
    as_it_stands = [Item((text.strip(),), bundled=False)] if text.strip() in known else None
    try:
        items = _items(text, parameter)
    except CerebroError:
        if as_it_stands is None:
            raise
        return as_it_stands
    is_no_column = len(items) == 1 and items[0].columns[0] not in known
    return as_it_stands if as_it_stands is not None and is_no_column else items


def _items(text: str, parameter: str) -> list[Item]:
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
        hint=f"Quote a name that is no plain word: {quote(text)[:100]}. For an expression, name a view's"
        " column that computes it.",
    )
