"""Code of users that runs when a table is read: that of its columns' types, its policies and its indexes."""

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


# The tables $1 and their partitions, each with the policies, indexes, constraints and statistics of somebody
# else's that call a function of a user's: the server calls it as whoever reads the table.
_ATTACHED = """
WITH RECURSIVE family AS (
    SELECT t AS oid FROM pg_catalog.unnest($1::oid[]) AS t
    UNION SELECT i.inhrelid FROM family AS f JOIN pg_catalog.pg_inherits AS i ON i.inhparent = f.oid)
SELECT DISTINCT f.oid::regclass::text AS of, pg_describe_object(a.classid, a.objid, 0) AS name
  FROM family AS f JOIN pg_class AS c ON c.oid = f.oid JOIN pg_roles AS o ON o.oid = c.relowner
  JOIN pg_depend AS a ON a.refclassid = 'pg_class'::regclass AND a.refobjid = f.oid
   AND a.classid IN ('pg_policy'::regclass, 'pg_class'::regclass, 'pg_constraint'::regclass,
                     'pg_statistic_ext'::regclass)
  JOIN pg_depend AS d ON d.classid = a.classid AND d.objid = a.objid
  LEFT JOIN pg_proc AS p ON d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid
  LEFT JOIN pg_operator AS q ON d.refclassid = 'pg_operator'::regclass AND q.oid = d.refobjid
  LEFT JOIN pg_roles AS m ON m.oid = coalesce(p.proowner, q.oprowner)
 WHERE NOT o.rolsuper AND o.rolname <> current_user
   AND (NOT m.rolsuper OR a.classid = 'pg_policy'::regclass AND d.refclassid = 'pg_class'::regclass
        AND d.refobjid <> f.oid)
 ORDER BY 1, 2 LIMIT 1"""


def refuse_code(db: Database, tables: Sequence[Table]) -> None:
    """Raise an error if somebody else's table runs code of a user's when it is read: by the types of its
    columns, or by what belongs to it, such as policies.

    A superuser's tables and functions, such as those of extensions, are trusted.
    """
    oids = [table.oid for table in tables]
    for row in db.query(_ATTACHED, ["oid[]"], [oids]):
        raise CerebroError(
            f"{row['name']} runs code of its own, and somebody else owns {row['of']}",
            detail="To read the table would run that code with your rights.",
            hint="Copy the table.",
            sqlstate=NOT_SUPPORTED,
        )
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
        [oids],
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
