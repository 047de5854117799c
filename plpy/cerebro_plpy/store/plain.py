"""Convert values to text and JSON alike, whatever the settings of the session.

Types whose output no setting changes are converted by the server's casts. All others go through
`cerebro._json` and `cerebro._text`, which fix the settings for the one conversion.
"""

from __future__ import annotations

from collections.abc import Sequence

# Types whose text no setting changes, by the names of the catalog and those of format_type.
_SETTLED = frozenset(
    {"int2", "int4", "int8", "bool", "numeric", "text", "varchar", "bpchar", "name", "citext", "uuid"}
    | {"json", "jsonb"}
    | {"smallint", "integer", "bigint", "boolean", "character varying"}
)
# Types whose JSON no setting changes; their text does.
BINARY_FLOATS = ("float4", "float8")
_SETTLED_JSON = ("date", "timestamp", "time", "timetz", "inet")


def as_text(value: str, element: str) -> str:
    """Return a value in the text form of its type."""
    return f"{value}::pg_catalog.text" if element in _SETTLED else f"cerebro._text({value})"


def as_texts(values: str, element: str) -> str:
    """Return an array of one dimension as texts."""
    return (
        f"CASE WHEN {values} IS NOT NULL THEN ARRAY(SELECT {as_text('u.v', element)}"
        f" FROM pg_catalog.unnest({values}) WITH ORDINALITY AS u (v, n) ORDER BY u.n) END"
    )


def as_json_text(value: str, element: str) -> str:
    """Return a value as in the JSON of its row, but without quotes."""
    if element in _SETTLED:
        return f"{value}::pg_catalog.text"
    made = "pg_catalog.to_json" if element in _SETTLED_JSON else "cerebro._json"
    return f"({made}({value}) OPERATOR(pg_catalog.#>>) '{{}}')"


def as_json(value: str, elements: Sequence[str] | None = None, *, shortest: bool = False) -> str:
    """Return a value, or a row, as the text of its JSON.

    `elements` are the types in it, if they are known; `shortest` says that the session writes floats in full.
    To fix the settings takes as long as to convert a row, and is left out where no type needs it.
    """
    settled = _SETTLED.union(_SETTLED_JSON, BINARY_FLOATS if shortest else ())
    made = "cerebro._json" if elements is None or not settled.issuperset(elements) else "pg_catalog.to_json"
    return f"{made}({value})::pg_catalog.text"
