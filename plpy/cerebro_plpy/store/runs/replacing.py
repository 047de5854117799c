"""SQL on the result tables of an earlier run that a warm start replaces.

A table that still has the form in which a run makes it is kept, with its views and grants; only its rows are
replaced. Any other table is dropped and created again, so nothing may depend on it. Triggers, rules,
policies, checks, defaults and expressions in indexes are code of the table's owner: no row is written to a
table that has one, since the session behind a run in the background is a superuser's.
"""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DEPENDENT_OBJECTS, WRONG_STATE, CerebroError
from cerebro_plpy.store.names import TargetTable
from cerebro_plpy.store.runs import results

_KEY = " PRIMARY KEY"
_AS_MADE = (
    "SELECT c.relkind = 'r' AND NOT (c.relhasrules OR c.relhastriggers OR c.relrowsecurity)"
    " AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits AS i WHERE c.oid IN (i.inhrelid, i.inhparent))"
    " AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint AS k WHERE k.conrelid = c.oid"
    "   AND k.contype NOT IN ('p', 'n'))"
    " AND NOT EXISTS (SELECT FROM pg_catalog.pg_index AS x WHERE x.indrelid = c.oid"
    "   AND (x.indexprs IS NOT NULL OR x.indpred IS NOT NULL))"
    " AND (SELECT pg_catalog.array_agg("
    "   ROW(a.attname::text, a.atttypid, a.atthasdef, a.attidentity <> '')::text ORDER BY a.attnum)"
    "   FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)"
    " = (SELECT pg_catalog.array_agg(ROW(w.name, pg_catalog.to_regtype(w.type)::oid, FALSE, FALSE)::text"
    "   ORDER BY w.place) FROM ROWS FROM (pg_catalog.unnest($2::text[]), pg_catalog.unnest($3::text[]))"
    "   WITH ORDINALITY AS w (name, type, place)) AS found"
    " FROM pg_catalog.pg_class AS c WHERE c.oid = pg_catalog.to_regclass($1)"
)
# What DROP would name; rules stand for the views that they are of. What belongs to the table goes with it.
_DEPENDENT = (
    "SELECT pg_catalog.min(CASE WHEN w.oid IS NULL"
    "   THEN pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid)"
    "   ELSE pg_catalog.pg_describe_object('pg_catalog.pg_class'::regclass, w.ev_class, 0) END) AS found"
    " FROM pg_catalog.pg_class AS c"
    " JOIN pg_catalog.pg_type AS t ON t.oid = c.reltype"
    " JOIN pg_catalog.pg_depend AS d ON d.deptype = 'n' AND (d.refclassid, d.refobjid) IN ("
    "   ('pg_catalog.pg_class'::regclass, c.oid), ('pg_catalog.pg_type'::regclass, t.oid),"
    "   ('pg_catalog.pg_type'::regclass, t.typarray))"
    " LEFT JOIN pg_catalog.pg_rewrite AS w"
    "   ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND w.oid = d.objid"
    " WHERE c.oid = pg_catalog.to_regclass($1) AND w.ev_class IS DISTINCT FROM c.oid"
    " AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend AS o WHERE (o.classid, o.objid) = (d.classid, d.objid)"
    "   AND (o.refclassid, o.refobjid) = ('pg_catalog.pg_class'::regclass, c.oid) AND o.deptype <> 'n')"
)
# Views of a table, and views that predict with it, which name it in a text or by its number.
_READERS = (
    "SELECT DISTINCT pg_catalog.pg_describe_object('pg_catalog.pg_class'::regclass, w.ev_class, 0) AS found"
    " FROM pg_catalog.pg_rewrite AS w JOIN pg_catalog.pg_depend AS d"
    "   ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = w.oid"
    " LEFT JOIN pg_catalog.pg_proc AS p ON d.refclassid = 'pg_catalog.pg_proc'::regclass"
    "   AND p.oid = d.refobjid AND p.pronamespace = 'cerebro'::regnamespace"
    " WHERE (d.refclassid, d.refobjid) = ('pg_catalog.pg_class'::regclass, pg_catalog.to_regclass($1)::oid)"
    " OR p.oid IS NOT NULL AND EXISTS (SELECT FROM pg_catalog.unnest($2::text[]) AS t (name) WHERE"
    "   pg_catalog.strpos(pg_catalog.pg_get_viewdef(w.ev_class), pg_catalog.quote_literal(t.name)) > 0)"
    " ORDER BY 1"
)


def tell_readers(db: Database, table: TargetTable) -> None:
    """Tell the caller which views use the models in a table, since this run replaces these models."""
    names = [table.name, f"{table.schema}.{table.name}", table.quoted]
    found = [row["found"] for row in db.query(_READERS, ["text", "text[]"], [table.quoted, names])]
    if found:
        verb = "goes" if len(found) == 1 else "go"
        db.notice(
            f"{', '.join(found)} {verb} by {table.quoted}, whose models this run replaces."
            " cerebro.register keeps a model as it is"
        )


def check(
    db: Database,
    tables: Sequence[TargetTable],
    columns: Sequence[results.ResultColumns],
    *,
    keeps: bool = False,
) -> None:
    """Raise an error if a table must be dropped although something depends on it. With `keeps`, the tables
    are to keep some of their rows: raise an error if any of them must be dropped."""
    for table, wanted in zip(tables, columns, strict=True):
        if _as_made(db, table, wanted):
            continue
        if keeps:
            raise CerebroError(
                f"table {table.quoted} cannot keep the models that are not trained",
                detail="It is not as this run makes it: other columns, or triggers, rules, policies,"
                " constraints.",
                hint="Train all groups, or give the table back the form that a run leaves.",
                sqlstate=WRONG_STATE,
            )
        found = db.query(_DEPENDENT, ["text"], [table.quoted])[0]["found"]
        if found is not None:
            raise CerebroError(
                f"{found} depends on table {table.quoted}, which a warm start has to make anew",
                detail="The table is not as this run makes it: other columns, or triggers, rules, policies,"
                " constraints.",
                hint="Drop what depends on it and create it again after the run, or give another name.",
                sqlstate=DEPENDENT_OBJECTS,
            )


def lock(db: Database, tables: Sequence[TargetTable]) -> None:
    """Lock the tables until this transaction ends, so that no other session can change them."""
    db.query(f"LOCK TABLE {', '.join(table.quoted for table in tables)} IN ACCESS EXCLUSIVE MODE")


def clear(db: Database, tables: Sequence[TargetTable], columns: Sequence[results.ResultColumns]) -> None:
    """Empty the tables that have the form in which a run makes them; drop the other tables and create them
    again."""
    lock(db, tables)
    for table, wanted in zip(tables, columns, strict=True):
        if _as_made(db, table, wanted):
            db.query(f"TRUNCATE TABLE {table.quoted}")
        else:
            db.query(f"DROP TABLE {table.quoted}")
            results.create(db, table, wanted)


def _as_made(db: Database, table: TargetTable, columns: results.ResultColumns) -> bool:
    """Return whether a table is as `results.create` makes it, with nothing added to it."""
    names, types = [name for name, _ in columns], [type_.removesuffix(_KEY) for _, type_ in columns]
    rows = db.query(_AS_MADE, ["text", "text[]", "text[]"], [table.quoted, names, types])
    return bool(rows and rows[0]["found"])
