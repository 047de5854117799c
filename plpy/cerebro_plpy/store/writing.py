"""Writings: statements that write something down, each with what it is given as JSON.

On Greenplum it is not always Python that runs them (cluster/coordinator.py). The columns of a log's row are
the fields of a dataclass, from which the statement is made.
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
    """The type in which a column is given, its form in the table, and the way it is read again."""

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
    """Return the columns that a dataclass has as fields."""
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
    """Return the statement that adds new rows, given as $1; `more` are columns with their expressions."""
    kinds, more = columns(row), more or {}
    given = ", ".join(f"{quote(name)} {kind.given}" for name, kind in kinds.items())
    made = [kind.made.format(f"g.{quote(name)}") for name, kind in kinds.items()]
    return (
        f"INSERT INTO {table} ({', '.join(map(quote, [*kinds, *more]))})"
        f" SELECT {', '.join([*made, *more.values()])}"
        f" FROM pg_catalog.json_to_recordset($1::json) AS g ({given}) ON CONFLICT DO NOTHING"
    )


def selection(row: type, table: str) -> str:
    """Return the columns of a table that make such a row."""
    kinds = {quote(name): kind for name, kind in columns(row).items()}
    return ", ".join(f"{kind.read.format(f'{table}.{name}')} AS {name}" for name, kind in kinds.items())


def as_given(row: Any) -> dict[str, Any]:
    """Return a row in the form that a statement is given: JSON has no bytes and no NaN."""
    return {name: _as_json(value) for name, value in asdict(row).items()}


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def cast_value(name: str, kind: str) -> str:
    """Return the expression for a value of the JSON object that a statement is given."""
    return f"($1::json->>'{name}')::{kind}"


def tell_of_model(db: Database, event: str, **numbers: int) -> None:
    """Tell listeners that something became of a model, once this transaction is committed.

    Any role may listen. So they learn the number of a row, and a view shows that to those who may see it.
    """
    db.query(_TELL_OF_MODELS, ["text"], [json.dumps({"event": event, **numbers})])


@as_owner
def write(db: Database, writings: Sequence[Writing]) -> None:
    for statement, about in writings:
        db.query(statement, ["text"], [json.dumps(about)])
