"""Names of tables and columns: read by SQL's rules, looked up in the caller's search_path, and always
quoted. A parameter `what` is always the word for the table in errors, such as `input table`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cerebro_plpy.database import Database
from cerebro_plpy.errors import (
    DUPLICATE_TABLE,
    INSUFFICIENT_PRIVILEGE,
    NULL_NOT_ALLOWED,
    READ_ONLY_TRANSACTION,
    UNDEFINED_SCHEMA,
    UNDEFINED_TABLE,
    CerebroError,
)
from cerebro_plpy.madlib.literal import shorten

LONGEST = 63
_TOKEN = re.compile(r'\s*(?:("(?:[^"]|"")+")|([^\W\d][\w$]*)|(.))', re.DOTALL)
_CAPITALS = re.compile("[A-Z]")
_READABLE = "rpvmf"


@dataclass(frozen=True)
class Table:
    """A table or view that exists."""

    schema: str
    name: str
    oid: int
    quoted: str
    # A query in brackets that replaces the table wherever its rows are read.
    selection: str | None = None
    # Without a selection: the condition, on a row s, that limits which rows are read; None for all rows.
    condition: str | None = None
    # A table with a copy of the rows, which is read in place of this one; messages name this one.
    copy: Table | None = None

    @property
    def stored(self) -> Table:
        """The table from which the rows are read."""
        return self.copy or self

    @property
    def rows(self) -> str:
        """The text after FROM that reads the table's rows, with the alias s."""
        if self.selection is None and self.condition is not None:
            return f"(SELECT s.* FROM {self.stored.quoted} AS s WHERE {self.condition}) AS s"
        return f"{self.selection or self.stored.quoted} AS s"


@dataclass(frozen=True)
class TargetTable:
    """A table that is to be created."""

    schema: str
    name: str
    quoted: str


def quote(*parts: str) -> str:
    """Return a name in double quotes; several parts make a qualified name, such as "mine"."rows"."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def temporary(name: str) -> str:
    """Return the quoted and qualified name of a temporary table, such as "pg_temp"."rows"."""
    return quote("pg_temp", name)


def literal(text: str) -> str:
    """Return a text as an SQL literal that is right whatever the setting standard_conforming_strings is."""
    doubled = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{doubled}'" if "\\" in text else f"'{doubled}'"


def tokens(text: str) -> list[tuple[str, str]]:
    """Split text into pairs: ("name", an identifier, in lower case unless it was quoted) or ("mark", any
    other character)."""
    found = []
    for quoted, plain, mark in _TOKEN.findall(text.rstrip()):
        if quoted:
            found.append(("name", quoted[1:-1].replace('""', '"')))
        elif plain:
            # Only ASCII is folded, as the server does for UTF-8.
            found.append(("name", _CAPITALS.sub(lambda letter: letter[0].lower(), plain)))
        else:
            found.append(("mark", mark))
    return found


def with_suffix(text: str, suffix: str) -> str:
    """Return a table's name, spelled as the user wrote it, with a suffix, which goes inside the closing quote
    if there is one."""
    text = text.strip()
    return text[:-1] + suffix + '"' if text.endswith('"') else text + suffix


def parse_table(text: str | None, what: str, made: bool = False) -> tuple[str | None, str]:
    """Return the schema (None if there is none) and the name in a text such as `table` or `schema.table`.
    With `made`, the call is to create the table, and errors say so."""
    if text is None or not text.strip():
        # MADlib's words, by which scripts know the error.
        raise CerebroError(
            f"NULL/empty {'output' if made else 'input'} table name: {what} is NULL or empty",
            hint=f"Give the name of the {what}.",
            sqlstate=NULL_NOT_ALLOWED,
        )
    match tokens(text):
        case [("name", name)]:
            return None, name
        case [("name", schema), ("mark", "."), ("name", name)]:
            return schema, name
    raise CerebroError(
        f"{what} {text} is not a table name",
        hint='Write table or schema.table, with double quotes where SQL needs them: "My table".',
    )


def resolve_table(db: Database, name: str | None, what: str = "input table") -> Table:
    """Return the existing table or view that a name means, found as in the caller's own statements."""
    schema, table = parse_table(name, what)
    found = _find(db, _lookup_path(db) if schema is None else [_actual(db, schema)], table)
    if found is None:
        raise CerebroError(
            # In single quotes and as it was given: scripts for MADlib look for it so.
            f"{what} '{shorten(name)}' does not exist",
            detail=None if schema else f"The search_path is {db.search_path}.",
            hint="Give schema.table if it is in another schema; names with capitals need double quotes.",
            sqlstate=UNDEFINED_TABLE,
        )
    return found


def find_table(db: Database, name: str | None, what: str = "input table") -> Table | None:
    """Return the table or view that `resolve_table` finds, or None if it does not exist."""
    try:
        return resolve_table(db, name, what)
    except CerebroError as error:
        if error.sqlstate == UNDEFINED_TABLE:
            return None
        raise


def name_of(db: Database, oid: int, what: str) -> str:
    """Return the quoted and qualified name of the table with this oid; raise an error if there is none."""
    rows = db.query(
        "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS name FROM pg_catalog.pg_class AS c"
        " JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = $1",
        ("oid",),
        (oid,),
    )
    if not rows:
        raise CerebroError(f"{what} {oid} does not exist", sqlstate=UNDEFINED_TABLE)
    return rows[0]["name"]


def target_table(
    db: Database, name: str | None, what: str = "output table", suffixes: Sequence[str] = ()
) -> TargetTable:
    """Return a table that the call is to create; raise an error if it exists, or if a table exists that has
    its name with one of the suffixes."""
    schema, table = parse_table(name, what, made=True)
    check_writable(db, f"{what} {name}")
    place = _creation_schema(db) if schema is None else schema
    tables = [table + suffix for suffix in ("", *suffixes)]
    for name in tables:
        if len(name.encode()) > LONGEST:
            raise CerebroError(f"{what} {quote(name)} has a name longer than {LONGEST} bytes")
    _check_schema(db, place)
    check_free(db, place, tables, what)
    return target(db, place, table)


def is_read_only(db: Database) -> bool:
    """Return whether the transaction is read-only."""
    return db.query("SELECT pg_catalog.current_setting('transaction_read_only') AS mode")[0]["mode"] == "on"


def check_writable(db: Database, what: str) -> None:
    """Raise an error, before any work is done, if the transaction is read-only."""
    if is_read_only(db):
        raise CerebroError(
            f"{what} cannot be made in a read-only transaction", sqlstate=READ_ONLY_TRANSACTION
        )


def is_temporary(name: str) -> bool:
    """Return whether a schema, or the schema of a qualified table name, has the temporary tables of one
    session."""
    return name.split(".")[0] == "pg_temp" or name.startswith("pg_temp_")


def _check_schema(db: Database, schema: str) -> None:
    """Raise an error, before any work is done, if CREATE TABLE would fail in this schema."""
    if is_temporary(schema) and schema not in ("pg_temp", _temporary_schema(db)):
        raise CerebroError(f"schema {quote(schema)} is another session's", sqlstate=INSUFFICIENT_PRIVILEGE)
    # A session's own schema for temporary tables comes into being with the first of them.
    rows = db.query(
        "SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMP') AS may"
        " WHERE $1 = 'pg_temp' UNION ALL"
        " SELECT pg_catalog.has_schema_privilege(oid, 'CREATE') FROM pg_catalog.pg_namespace"
        " WHERE nspname = $1 AND $1 <> 'pg_temp'",
        ("text",),
        (schema,),
    )
    if not rows:
        raise CerebroError(f"schema {quote(schema)} does not exist", sqlstate=UNDEFINED_SCHEMA)
    if not rows[0]["may"]:
        raise CerebroError(
            f"permission denied for schema {quote(schema)}",
            detail="The call makes its tables there, and you may not.",
            hint="Name a schema in which you may create tables, as in 'mine.name', or have its owner"
            f" GRANT CREATE ON SCHEMA {quote(schema)}.",
            sqlstate=INSUFFICIENT_PRIVILEGE,
        )


def built_in_types(db: Database, types: Sequence[str]) -> list[str]:
    """Return the names in `types` that are built-in arrays of a built-in base type.

    No user can attach code to such a type, as they can to a domain.
    """
    rows = db.query(
        "SELECT k.name FROM pg_catalog.unnest($1::text[]) AS k (name)"
        " JOIN pg_catalog.pg_type AS t ON t.oid = pg_catalog.to_regtype(k.name)"
        " JOIN pg_catalog.pg_type AS e ON e.oid = t.typelem"
        " WHERE t.typtype = 'b' AND e.typtype = 'b' AND t.typnamespace = 'pg_catalog'::regnamespace"
        " AND e.typnamespace = 'pg_catalog'::regnamespace",
        ("text[]",),
        (list(types),),
    )
    return [row["name"] for row in rows]


def target(db: Database, schema: str, table: str) -> TargetTable:
    """Return a table that is to be created; its name has quotes only if SQL needs them, since users read
    it."""
    rows = db.query(
        "SELECT pg_catalog.format('%I.%I', $1::text, $2::text) AS quoted", ("text", "text"), (schema, table)
    )
    return TargetTable(schema, table, rows[0]["quoted"])


def find_missing_columns(db: Database, table: Table, columns: Sequence[str]) -> list[str]:
    """Return the names in `columns` that the table lacks; an empty list if it has all of them."""
    rows = db.query(
        """SELECT attname::text FROM pg_catalog.pg_attribute
            WHERE attrelid = $1::oid AND attnum > 0 AND NOT attisdropped""",
        ("oid",),
        (table.oid,),
    )
    present = {row["attname"] for row in rows}
    return [column for column in columns if column not in present]


def check_free(db: Database, schema: str, tables: Sequence[str], what: str) -> None:
    """Raise an error if one of the tables that the call is to create exists already."""
    rows = db.query(
        """SELECT c.relname::text FROM pg_catalog.pg_class c
             JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = $1 AND c.relname = ANY ($2::text[]) ORDER BY c.relname LIMIT 1""",
        ("text", "text[]"),
        (_actual(db, schema), list(tables)),
    )
    if rows:
        raise CerebroError(
            f"{what} {quote(rows[0]['relname'])} already exists",
            hint="Drop it before the call, or choose another name.",
            sqlstate=DUPLICATE_TABLE,
        )


def _find(db: Database, path: Sequence[str], table: str) -> Table | None:
    rows = db.query(
        """SELECT n.nspname, c.relname, c.oid,
                  pg_catalog.format('%I.%I', n.nspname, c.relname) AS quoted
             FROM unnest($1::text[]) WITH ORDINALITY AS p(schema, place)
             JOIN pg_catalog.pg_namespace n ON n.nspname = p.schema
             JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid
            WHERE c.relname = $2 AND position(c.relkind::text IN $3) > 0
            ORDER BY p.place LIMIT 1""",
        ("text[]", "text", "text"),
        (list(path), table, _READABLE),
    )
    if not rows:
        return None
    found = rows[0]
    return Table(found["nspname"], found["relname"], int(found["oid"]), found["quoted"])


def _temporary_schema(db: Database) -> str | None:
    rows = db.query("SELECT nspname FROM pg_catalog.pg_namespace WHERE oid = pg_catalog.pg_my_temp_schema()")
    return rows[0]["nspname"] if rows else None


def _actual(db: Database, schema: str) -> str:
    return (_temporary_schema(db) or schema) if schema == "pg_temp" else schema


def _listed(db: Database) -> list[str]:
    """Return the schemas of the search_path that the caller may use, in order."""
    names = [name for kind, name in tokens(db.search_path) if kind == "name"]
    rows = db.query(
        """SELECT s.name FROM (
               SELECT CASE WHEN p.name = '$user' THEN current_user::text ELSE p.name END AS name, p.place
                 FROM unnest($1::text[]) WITH ORDINALITY AS p(name, place)) s
           LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = s.name
           WHERE s.name = 'pg_temp' OR pg_catalog.has_schema_privilege(n.oid, 'USAGE')
           ORDER BY s.place""",
        ("text[]",),
        (names,),
    )
    return [row["name"] for row in rows]


def _lookup_path(db: Database) -> list[str]:
    listed = _listed(db)
    implicit = [name for name in ("pg_temp", "pg_catalog") if name not in listed]
    return [_actual(db, name) for name in implicit + listed]


def _creation_schema(db: Database) -> str:
    listed = [name for name in _listed(db) if name != "pg_catalog"]
    if not listed:
        raise CerebroError(
            "no schema has been selected to create the output table in",
            detail=f"The search_path is {db.search_path}.",
            hint="Give schema.table, or set search_path.",
            sqlstate=UNDEFINED_SCHEMA,
        )
    return listed[0]
