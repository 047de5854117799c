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
    UNION ALL
    SELECT h.attrelid, h.attname, h.attnum, b.type FROM held AS h
      JOIN pg_catalog.pg_type AS t ON t.oid = h.type
      -- A server older than 14 has no multiranges.
      LEFT JOIN pg_catalog.pg_range AS r
             ON t.oid IN (r.rngtypid, (pg_catalog.to_jsonb(r) ->> 'rngmultitypid')::pg_catalog.oid),
      LATERAL (SELECT t.typbasetype UNION ALL SELECT t.typelem UNION ALL SELECT r.rngsubtype UNION ALL
               SELECT a.atttypid FROM pg_catalog.pg_attribute AS a
                WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped) AS b (type)
     WHERE b.type >= {FIRST_OF_USERS})"""


def _runs_code(expression: str) -> str:
    """Return the SQL condition that a stored expression may run a user's code.

    It calls a function of a user's, or one of the server's that is not immutable: some of these run a text as
    SQL. A query or another domain in it may do so as well.
    """
    functions = ":(?:funcid|opfuncid|aggfnoid|winfnoid) ([0-9]+)"
    return (
        f"({expression}::text ~ 'SUBLINK|COERCETODOMAIN ' OR EXISTS"
        f" (SELECT FROM regexp_matches({expression}::text, '{functions}', 'g') AS f (found)"
        " JOIN pg_proc AS p ON p.oid = f.found[1]::oid JOIN pg_roles AS m ON m.oid = p.proowner"
        " WHERE p.provolatile <> 'i' OR NOT m.rolsuper))"
    )


# Of the tables $1 and their partitions that are somebody else's: views, the policies that may run a user's
# code, and the indexes, constraints and statistics that call a user's function, which the server does to plan
# a query.
_ATTACHED = f"""
WITH RECURSIVE family AS (
    SELECT t AS oid FROM pg_catalog.unnest($1::oid[]) AS t
    UNION ALL SELECT i.inhrelid FROM family AS f JOIN pg_catalog.pg_inherits AS i ON i.inhparent = f.oid),
strange AS (
    SELECT c.oid, c.relkind, c.relrowsecurity FROM family AS f JOIN pg_class AS c ON c.oid = f.oid
      JOIN pg_roles AS o ON o.oid = c.relowner WHERE NOT o.rolsuper AND o.rolname <> current_user),
found AS (
    SELECT oid, 'pg_class'::regclass AS kind, oid AS object FROM strange WHERE relkind NOT IN ('r', 'p')
    UNION ALL
    SELECT s.oid, 'pg_policy'::regclass, k.oid FROM strange AS s
      JOIN pg_policy AS k ON k.polrelid = s.oid WHERE s.relrowsecurity AND {_runs_code("k.polqual")}
    UNION ALL
    SELECT s.oid, a.classid, a.objid FROM strange AS s
      JOIN pg_depend AS a ON a.refclassid = 'pg_class'::regclass AND a.refobjid = s.oid
       AND a.classid IN ('pg_class'::regclass, 'pg_constraint'::regclass, 'pg_statistic_ext'::regclass)
      JOIN pg_depend AS d ON d.classid = a.classid AND d.objid = a.objid
      LEFT JOIN pg_proc AS p ON d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid
      LEFT JOIN pg_operator AS q ON d.refclassid = 'pg_operator'::regclass AND q.oid = d.refobjid
      JOIN pg_roles AS m ON m.oid = coalesce(p.proowner, q.oprowner) WHERE NOT m.rolsuper)
SELECT oid::regclass::text AS of, pg_describe_object(kind, object, 0) AS name
  FROM found ORDER BY 1, 2 LIMIT 1"""


def refuse_code(db: Database, tables: Sequence[Table]) -> None:
    """Raise an error if somebody else's table may run code of a user's when it is read: as a view, by the
    types of its columns, or by what belongs to it, such as policies.

    A superuser's tables and functions, such as those of extensions, are trusted.
    """
    oids = [table.oid for table in tables]
    for row in db.query(_ATTACHED, ["oid[]"], [oids]):
        raise CerebroError(
            f"{row['name']} may run code of its own, and somebody else owns {row['of']}",
            detail="To read the table would run that code with your rights.",
            hint="Ask the owner for a table without it.",
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
        f" WHERE k.contypid = h.type AND {_runs_code('k.conbin')}))"
        " ORDER BY 1, 2 LIMIT 1",
        ["oid[]"],
        [oids],
    )
    for row in rows:
        raise CerebroError(
            f"column {row['name']} of {row['of']} is of a type that may run code of its own,"
            " and somebody else owns the table",
            detail="To read its values would run that code with your rights.",
            hint="Ask the owner for a table with that column as text.",
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
