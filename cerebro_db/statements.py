"""Builds readable SQL statements with the values written in them, to be sent and shown to the user."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from cerebro_db.errors import CerebroError

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_NAME = r'(?:[^\W\d][\w$]*|"(?:[^"]|"")+")'
_TABLE = re.compile(rf"(?:{_NAME}\.)?{_NAME}")
_FOLDED = 72


# Stands for all columns except labels, in tables that are packed as they are.
ALL = "*"


class Raw(str):
    """A piece of SQL that `literal` returns unchanged."""

    __slots__ = ()


# A column, or several; a list among several columns makes one vector of its columns.
Columns = str | Sequence[str | Sequence[str]]


def identifier(name: str) -> str:
    """Return a name as an SQL identifier, in double quotes if it needs them."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def select_list(columns: Mapping[str, str]) -> str:
    """Return the SELECT list of a dict from names to SQL expressions: `expression AS name, …`."""
    return ", ".join(f"{value} AS {identifier(name)}" for name, value in columns.items())


def names(columns: Columns) -> str:
    """Return columns as the preprocessors take them; a list inside the list becomes a vector, `ARRAY[…]`."""
    if isinstance(columns, str):
        return columns if columns == ALL else identifier(columns)
    written = [
        identifier(item) if isinstance(item, str) else f"ARRAY[{', '.join(map(identifier, item))}]"
        for item in columns
    ]
    return ", ".join(written)


def table_name(table: str, suffix: str = "") -> str:
    """Return the name of a table, such as `schema.table` or `"Odd Name"`, with a suffix added to it."""
    if not _TABLE.fullmatch(table):
        raise CerebroError(
            f"{table!r} is not the name of a table",
            hint='Write table or schema.table, with double quotes where SQL needs them: "My table".',
        )
    return f'{table[:-1]}{suffix}"' if table.endswith('"') else f"{table}{suffix}"


def plain(value: Any) -> Any:
    """Return a NumPy scalar as a Python value, and any other value unchanged."""
    return value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value


def literal(value: object) -> str:
    """Return a value as an SQL literal that means the same under every setting of the server."""
    value = plain(value)
    if value is None:
        return "NULL"
    if isinstance(value, Raw):
        return value
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, bytes):
        return f"pg_catalog.decode('{value.hex()}', 'hex')"
    if isinstance(value, Mapping):
        return _text(json.dumps(value, allow_nan=False, default=plain))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"ARRAY[{', '.join(map(literal, value))}]"
    return _text(str(value))


def _text(text: str) -> str:
    if "\0" in text:
        raise CerebroError(
            f"the text {text[:40]!r} has the character with the code 0, which no text of the server can have"
        )
    quoted = "'" + text.replace("'", "''").replace("\\", "\\\\") + "'"
    return f"E{quoted}" if "\\" in text else quoted


def call(function: str, *values: object, **named: object) -> str:
    """Return a SELECT that calls one of cerebro's functions; named arguments that are None are left out."""
    given = [*map(literal, values), *(f"{k} => {literal(v)}" for k, v in named.items() if v is not None)]
    line = f"cerebro.{function}({', '.join(given)})"
    if len(line) > _FOLDED:
        line = f"cerebro.{function}(\n    " + ",\n    ".join(given) + ")"
    return f"SELECT {line}"


def call_rows(function: str, *values: object, **named: object) -> str:
    """Return a `SELECT * FROM` one of cerebro's functions that return rows of several columns."""
    return call(function, *values, **named).replace("SELECT ", "SELECT * FROM ", 1)


def parameters(values: Mapping[str, Any]) -> str:
    """Return `name=value` pairs with commas, as search methods take them; leave out values that are None."""
    return ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or what pandas has in place of a missing value.

    The last one does not even say whether it equals itself.
    """
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)
