"""Writings: pairs of a statement, which changes rows or notifies, and the JSON value that it takes as $1.

On Greenplum, an SQL procedure may run them instead of Python (`cluster/coordinator.py`). Statements that
insert rows are made from dataclasses: each field is a column.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, get_type_hints

from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.store.names import quote

Writing = tuple[str, Any]
TELL = (
    "SELECT pg_catalog.pg_notify('cerebro_run', told)"
    " FROM pg_catalog.json_array_elements_text($1::json) AS told"
)

_TELL_OF_MODELS = "SELECT pg_catalog.pg_notify('cerebro_model', $1)"


@dataclass(frozen=True)
class ColumnKind:
    """How a column is written and read: the SQL type of its value in JSON (`given`), the SQL expression that
    is stored (`made`), and the one that reads it back (`read`). In both, `{}` stands for the value."""

    given: str
    made: str = "{}"
    read: str = "{}"


BigInt = Annotated[int, ColumnKind("bigint")]
Json = Annotated[str, ColumnKind("text", "{}::jsonb")]
# In seconds since 1970.
Moment = Annotated[float, ColumnKind("float8", "pg_catalog.to_timestamp({})")]
# When a visit is about to commit, by the clock that dated its beginning; None leaves that to the server.
MomentOfEnd = Annotated[
    float | None,
    ColumnKind(
        "float8",
        "COALESCE(pg_catalog.to_timestamp({}),"
        " GREATEST(pg_catalog.clock_timestamp(), pg_catalog.to_timestamp(g.started_at)))",
    ),
]
# A role by its name as it is: the text of a regrole may have quotes around it. None where it is gone.
Role = Annotated[
    str,
    ColumnKind(
        "text",
        "(SELECT r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname = {})",
        "pg_catalog.pg_get_userbyid({})::text",
    ),
]
_KINDS: Mapping[Any, ColumnKind] = {
    int: ColumnKind("integer"),
    float: ColumnKind("float8"),
    str: ColumnKind("text"),
    bool: ColumnKind("boolean"),
    bytes: ColumnKind("text", "pg_catalog.decode({}, 'base64')"),
}


def columns(row: type) -> dict[str, ColumnKind]:
    """Return the columns that the fields of a dataclass stand for, by name."""
    hints = get_type_hints(row, include_extras=True)
    return {name: _kind(hint) for name, hint in hints.items()}


def _kind(hint: Any) -> ColumnKind:
    # The type of a nullable field is a union, which holds the mark.
    for each in (hint, *getattr(hint, "__args__", ())):
        marks = [mark for mark in getattr(each, "__metadata__", ()) if isinstance(mark, ColumnKind)]
        if marks:
            return marks[0]
        if each in _KINDS:
            return _KINDS[each]
    raise TypeError(hint)


def insertion(table: str, row: type, more: Mapping[str, str] | None = None) -> str:
    """Return the statement that inserts rows, given as a JSON array in $1, unless they are there already.

    Its columns are the fields of the dataclass `row`, and the columns `more`, each with the SQL expression of
    its value.
    """
    kinds, more = columns(row), more or {}
    given = ", ".join(f"{quote(name)} {kind.given}" for name, kind in kinds.items())
    made = [kind.made.format(f"g.{quote(name)}") for name, kind in kinds.items()]
    return (
        f"INSERT INTO {table} ({', '.join(map(quote, [*kinds, *more]))})"
        f" SELECT {', '.join([*made, *more.values()])}"
        f" FROM pg_catalog.json_to_recordset($1::json) AS g ({given}) ON CONFLICT DO NOTHING"
    )


def selection(row: type, table: str) -> str:
    """Return the list of SQL expressions that read from `table` the fields of the dataclass `row`."""
    kinds = {quote(name): kind for name, kind in columns(row).items()}
    return ", ".join(f"{kind.read.format(f'{table}.{name}')} AS {name}" for name, kind in kinds.items())


def as_given(row: Any) -> dict[str, Any]:
    """Return a dataclass row as a JSON object for a writing: bytes as base64, NaN and infinity as text."""
    return {name: _as_json(value) for name, value in asdict(row).items()}


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def cast_value(name: str, kind: str) -> str:
    """Return the SQL expression for the value `name` of the JSON object in $1, cast to the type `kind`."""
    return f"($1::json->>'{name}')::{kind}"


def tell_of_model(db: Database, event: str, **numbers: int) -> None:
    """Notify sessions that listen on `cerebro_model` of an event, once this transaction is committed.

    Since any role may listen, the message names rows only by their numbers. A view shows these rows to the
    roles that may see them.
    """
    db.query(_TELL_OF_MODELS, ["text"], [json.dumps({"event": event, **numbers})])


@as_owner
def write(db: Database, writings: Sequence[Writing]) -> None:
    for statement, about in writings:
        db.query(statement, ["text"], [json.dumps(about)])
