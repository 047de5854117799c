"""SQL expressions that convert values to text and JSON in a form that no setting of the session changes.

Types whose output no setting changes are converted by the server's casts. All others go through the SQL
functions `cerebro._json` and `cerebro._text`, which fix the settings during the conversion.
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


def element_name(alias: str) -> str:
    """Return the SQL expression for the name by which this module knows a type; `alias` is its pg_type row.

    Types that any role may make, such as enums, get their schema in front: a role could call its own "text".
    """
    is_servers = f"{alias}.typnamespace = 'pg_catalog'::pg_catalog.regnamespace"
    return (
        f"CASE WHEN {alias}.typtype = 'b' OR {is_servers} THEN {alias}.typname::pg_catalog.text"
        f" ELSE pg_catalog.concat({alias}.typnamespace::pg_catalog.regnamespace, '.', {alias}.typname) END"
    )


def as_text(value: str, element: str) -> str:
    """Return the SQL expression that converts the expression `value`, of the type `element`, to text."""
    return f"{value}::pg_catalog.text" if element in _SETTLED else f"cerebro._text({value})"


def as_texts(values: str, element: str) -> str:
    """Return the SQL expression that converts the one-dimensional array `values` to an array of texts."""
    return (
        f"CASE WHEN {values} IS NOT NULL THEN ARRAY(SELECT {as_text('u.v', element)}"
        f" FROM pg_catalog.unnest({values}) WITH ORDINALITY AS u (v, n) ORDER BY u.n) END"
    )


def as_json_text(value: str, element: str) -> str:
    """Return the SQL expression for a value's text in the JSON of its row, without the quotes around it."""
    if element in _SETTLED:
        return f"{value}::pg_catalog.text"
    made = "pg_catalog.to_json" if element in _SETTLED_JSON else "cerebro._json"
    return f"({made}({value}) OPERATOR(pg_catalog.#>>) '{{}}')"


def as_json(value: str, elements: Sequence[str] | None = None, *, shortest: bool = False) -> str:
    """Return the SQL expression that converts `value`, a value or a row, to the text of its JSON.

    `elements` are the types of the values in it, if known. With `shortest`, the session already writes floats
    in full. Settings are fixed only if one of the types needs it, since this takes as long as to convert a
    row.
    """
    settled = _SETTLED.union(_SETTLED_JSON, BINARY_FLOATS if shortest else ())
    made = "cerebro._json" if elements is None or not settled.issuperset(elements) else "pg_catalog.to_json"
    return f"{made}({value})::pg_catalog.text"
