"""Types that users have made: which columns have one whose code would run when their values are read."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.store.names import Table

# Numbers of catalog objects from here on are those of users.
FIRST_OF_USERS = 16384
# The columns of the tables $1, each with its type and all types beneath this: of a domain, an array, a
# composite type or a range.
_TYPES_BENEATH = f"""
WITH RECURSIVE held AS (
    SELECT a.attrelid, a.attname, a.attnum, a.atttypid AS type FROM pg_catalog.pg_attribute AS a
     WHERE a.attrelid = ANY ($1::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
       AND a.atttypid >= {FIRST_OF_USERS}
    UNION
    SELECT h.attrelid, h.attname, h.attnum, b.type FROM held AS h
      JOIN pg_catalog.pg_type AS t ON t.oid = h.type
      LEFT JOIN pg_catalog.pg_range AS r ON r.rngtypid = t.oid,
      LATERAL (SELECT t.typbasetype UNION SELECT t.typelem UNION SELECT r.rngsubtype UNION
               SELECT a.atttypid FROM pg_catalog.pg_attribute AS a
                WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped) AS b (type)
     WHERE b.type >= {FIRST_OF_USERS})"""


def refuse_code(db: Database, tables: Sequence[Table]) -> None:
    """Raise an error if somebody else's table has a column whose type runs code of a user's, when a value is
    cast to it or from it.

    A superuser's tables and functions, such as those of extensions, are trusted.
    """
    rows = db.query(
        _TYPES_BENEATH + " SELECT DISTINCT h.attrelid::regclass::text AS of, h.attname::text AS name"
        " FROM held AS h JOIN pg_class AS c ON c.oid = h.attrelid JOIN pg_roles AS o ON o.oid = c.relowner"
        " WHERE NOT o.rolsuper AND o.rolname <> current_user"
        " AND (EXISTS (SELECT FROM pg_cast AS k JOIN pg_proc AS p ON p.oid = k.castfunc"
        " JOIN pg_roles AS m ON m.oid = p.proowner"
        " WHERE h.type IN (k.castsource, k.casttarget) AND NOT m.rolsuper)"
        " OR EXISTS (SELECT FROM pg_constraint AS k"
        # A CHECK of the server's own functions depends on nothing but its type.
        " JOIN pg_depend AS d ON d.classid = 'pg_constraint'::regclass AND d.objid = k.oid"
        " WHERE k.contypid = h.type AND (d.refclassid <> 'pg_type'::regclass OR d.refobjid <> h.type)))"
        " ORDER BY 1, 2 LIMIT 1",
        ["oid[]"],
        [[table.oid for table in tables]],
    )
    for row in rows:
        raise CerebroError(
            f"column {row['name']} of {row['of']} is of a type that runs code of its own, and somebody else"
            " owns the table",
            detail="To read its values would run that code with your rights.",
            hint="Copy the table, with the column as text.",
            sqlstate=NOT_SUPPORTED,
        )


def find_casts(db: Database, table: Table, columns: Sequence[str]) -> list[str]:
    """Return the given columns of a table whose types have a cast to JSON or text that a user made; the
    cast's code would run as the caller. Casts of the types beneath, such as a domain's, count as well."""
    rows = db.query(
        _TYPES_BENEATH + " SELECT h.attname::text AS name FROM held AS h"
        " WHERE h.attname = ANY ($2) AND EXISTS (SELECT FROM pg_cast AS c WHERE c.castsource = h.type"
        f" AND c.castfunc >= {FIRST_OF_USERS}"
        " AND c.casttarget IN ('json'::regtype, 'jsonb'::regtype, 'text'::regtype))"
        " GROUP BY h.attname, h.attnum ORDER BY h.attnum",
        ["oid[]", "text[]"],
        [[table.oid], list(columns)],
    )
    return [row["name"] for row in rows]
