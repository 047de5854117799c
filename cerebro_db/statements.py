"""Writes SQL as a person would: statements with their values in them, to be sent and to be shown."""

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


# All columns that are no label, for tables that are packed as they are.
ALL = "*"


class Raw(str):
    """A piece of SQL that stands in a statement as it is."""

    __slots__ = ()


# A column; several of them; and among these, a list for columns that together are one vector.
Columns = str | Sequence[str | Sequence[str]]


def identifier(name: str) -> str:
    """Write a name, in quotes where it needs them."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def select_list(columns: Mapping[str, str]) -> str:
    """Write expressions by the names that they get."""
    return ", ".join(f"{value} AS {identifier(name)}" for name, value in columns.items())


def names(columns: Columns) -> str:
    """Write columns as the preprocessors read them; a list inside the list is one vector of its columns."""
    if isinstance(columns, str):
        return columns if columns == ALL else identifier(columns)
    written = [
        identifier(item) if isinstance(item, str) else f"ARRAY[{', '.join(map(identifier, item))}]"
        for item in columns
    ]
    return ", ".join(written)


def table_name(table: str, suffix: str = "") -> str:
    """Give a table's name as it is written in SQL, `schema.table` or `"Odd Name"`, with a suffix to it."""
    if not _TABLE.fullmatch(table):
        raise CerebroError(
            f"{table!r} is not the name of a table",
            hint='Write table or schema.table, with double quotes where SQL needs them: "My table".',
        )
    return f'{table[:-1]}{suffix}"' if table.endswith('"') else f"{table}{suffix}"


def plain(value: Any) -> Any:
    """Return a scalar of NumPy's as Python's own, and all else as it is."""
    return value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value


def literal(value: object) -> str:
    """Write a value as a literal that means the same under every setting of the server."""
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
    """Write the call of one of cerebro's functions; what is None among the named is left out."""
    given = [*map(literal, values), *(f"{k} => {literal(v)}" for k, v in named.items() if v is not None)]
    line = f"cerebro.{function}({', '.join(given)})"
    if len(line) > _FOLDED:
        line = f"cerebro.{function}(\n    " + ",\n    ".join(given) + ")"
    return f"SELECT {line}"


def call_rows(function: str, *values: object, **named: object) -> str:
    """Write the call of one of cerebro's functions that returns rows of several columns."""
    return call(function, *values, **named).replace("SELECT ", "SELECT * FROM ", 1)


def parameters(values: Mapping[str, Any]) -> str:
    """Write `name=value` pairs, as a search method takes them."""
    return ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)
