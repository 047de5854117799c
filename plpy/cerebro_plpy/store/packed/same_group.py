"""The SQL condition that a row belongs to a group: its values equal the group's, in the group's types.

The same condition serves for rows of a table, rows of a query, and a row in JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cerebro_plpy.store.names import quote
from cerebro_plpy.store.packed.packed import SourceColumn
from cerebro_plpy.store.plain import as_json_text

_LENGTH = re.compile(r"(?<=[a-z])\(\d+(?:,-?\d+)?\)")
_WITH_LENGTH = ("numeric", "character", "bit", "time", "interval")
_INTEGERS = ("smallint", "integer", "bigint")
_TEXTS = ("text", "character varying")


def same_group(types: Mapping[str, str], known: Mapping[str, SourceColumn] | None, group: str = "g") -> str:
    """Return the condition that a row s belongs to a group, whose row has the alias `group`; `known` has the
    columns of s, and is None if s holds texts of JSON."""
    # Arrays of one element are equal also where both are NULL, and a join can hash them.
    pairs = (
        _sides(name, kind, None if known is None else known[name], group) for name, kind in types.items()
    )
    return " AND ".join(f"ARRAY[{mine}] OPERATOR(pg_catalog.=) ARRAY[{theirs}]" for mine, theirs in pairs)


def _sides(name: str, kind: str, column: SourceColumn | None, group: str) -> tuple[str, str]:
    mine, theirs = f"s.{quote(name)}", f"{group}.{quote(name)}"
    bare = _without_length(kind)
    if bare in _TEXTS:
        # Groups are not made by collations that take different texts for equal.
        theirs = f'{theirs}::pg_catalog.text COLLATE pg_catalog."C"'
    if column is not None and bare in _TEXTS and column.base_type in _TEXTS:
        return f'{mine}::pg_catalog.text COLLATE pg_catalog."C"', theirs
    if column is not None and kind in _INTEGERS and column.base_type in _INTEGERS:
        return f"{mine}::bigint", f"{theirs}::bigint"
    if column is not None and column.base_type == bare:
        return mine, theirs
    if column is not None:
        mine = as_json_text(mine, column.element)
    compared = _compared(bare)
    return f"{mine}::{compared}", theirs if compared == bare or bare in _TEXTS else f"{theirs}::{compared}"


def _compared(bare: str) -> str:
    """Return the type in which to compare values with those of a group, whose type is `bare`. A cast to the
    group's own type could change a value that does not fit it."""
    if bare in _INTEGERS:
        return "numeric"
    if bare in _TEXTS:
        return "text"
    return "timestamp without time zone" if bare == "date" else bare


def _without_length(kind: str) -> str:
    """Return the catalog's name of a type, without the length or precision that a column may have."""
    bare = _LENGTH.sub("", kind) if kind.startswith(_WITH_LENGTH) else kind
    return {"character": "bpchar", "bit": '"bit"'}.get(bare, bare)
