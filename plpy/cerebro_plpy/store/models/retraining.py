"""SQL of retraining: the call that made a packed table, and the rows that are kept apart to judge models
by."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATATYPE_MISMATCH, CerebroError
from cerebro_plpy.relations.recipe import AUTHOR
from cerebro_plpy.store import session, user_code
from cerebro_plpy.store.models import models
from cerebro_plpy.store.names import Table, TargetTable, find_missing_columns, find_table, quote, temporary
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.plain import as_json
from cerebro_plpy.store.runs import results

# The column of the recipe in the summary of a packed table.
RECIPE = "recipe"
# The key in a recipe of the recipe by which related features were made.
RELATIONS = "relations"
# The key in a recipe of the tables whose rows are trained on besides the rows of its source.
APPENDED = "appended"
# The key in a recipe of the columns that say which rows are set apart, if these are not all of its inputs.
JUDGED_BY = "judged_by"
# The key in a recipe of how long packing took.
PACKING_SECONDS = "packing_seconds"
# What a retraining makes and removes again, in the session's own schema.
PREFIX = "cerebro_retrain"
LEARNED, JUDGED, MODELS = f"{PREFIX}_rows", f"{PREFIX}_judged", f"{PREFIX}ed"
RELATED = f"{PREFIX}_related"
NUMBER = "__row__"
_PARTS = 1_000_000


def learned_rows() -> TargetTable:
    return TargetTable("pg_temp", LEARNED, temporary(LEARNED))


def keep_recipe(db: Database, summary: str, recipe: str) -> None:
    """Store the call that made a packed table, as its recipe, in the table's summary."""
    db.query(f"ALTER TABLE {summary} ADD COLUMN {RECIPE} jsonb")
    db.query(f"UPDATE {summary} SET {RECIPE} = $1::text::jsonb", ["text"], [recipe])


def recipe(db: Database, summary: Table) -> str | None:
    """Return the recipe in the summary of a packed table, as JSON; None if no call of cerebro.train packed
    it."""
    if find_missing_columns(db, summary, [RECIPE]):
        return None
    user_code.refuse_code(db, [summary])
    rows = db.query(f"SELECT {RECIPE}::text AS found FROM {summary.quoted}")
    return rows[0]["found"] if rows else None


def find_recipe(db: Database, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recipe of the packed table that a model's summary names as its source; empty if it has none.

    The name may come from a stranger's table, so nothing is read that would run a stranger's code.
    """
    named = results.named_table(summary, "source_table")
    table = find_table(db, named) if named else None
    beside = table and find_table(db, quote(table.schema, table.name + packed.SUMMARY))
    if beside is None or models.unreadable(db, [beside]) or models.strange_views(db, [beside]):
        return {}
    if user_code.find_casts(db, beside, [RECIPE]):
        return {}
    found = json.loads(recipe(db, beside) or "{}")
    return found if models.is_own(db, beside) else sign(found, models.owner(db, beside))


def sign(found: Any, author: str) -> Any:
    """Return a recipe in which a role is the author of the query of related rows, if the recipe has one.

    It may be any JSON document, since any role may have written it.
    """
    related = found.get(RELATIONS) if isinstance(found, dict) else None
    return {**found, RELATIONS: {**related, AUTHOR: author}} if isinstance(related, dict) else found


def check_alike(db: Database, tables: Sequence[Table], columns: Sequence[str]) -> None:
    """Raise an error for the first of some columns whose types in the tables have no type in common."""
    error = _try_together(db, tables, columns)
    if error is None:
        return
    column = next(name for name in columns if _try_together(db, tables, [name]) is not None)
    raise CerebroError(
        f'column "{column}" has another type in {tables[0].quoted} than in the earlier rows',
        detail=error.message,
        hint="Give a view that casts it, or leave option append out.",
        sqlstate=DATATYPE_MISMATCH,
    )


def _try_together(db: Database, tables: Sequence[Table], columns: Sequence[str]) -> CerebroError | None:
    """Return the server's error if the rows of the tables cannot be put together, for reasons of type."""
    listed = ", ".join(f"s.{quote(name)}" for name in columns)
    try:
        db.query(" UNION ALL ".join(f"SELECT {listed} FROM {table.rows} WHERE false" for table in tables))
    except CerebroError as error:
        if error.sqlstate != DATATYPE_MISMATCH:
            raise
        return error
    return None


def split(
    db: Database,
    source: Table,
    columns: Mapping[str, str],
    share: float,
    judging: float,
    *,
    before: Sequence[Table],
    listed: Sequence[str],
) -> int:
    """Set a share of the rows apart; create a table of some of these, to judge models by, and a view of the
    other rows.

    Return the number of rows in the table: the part `judging` of all rows. The values of `columns`, which are
    given with their types, decide whether a row is set apart, so every later call decides the same. The view
    has the columns `listed`. It also has the rows of the tables `before`, except rows that the same rule sets
    apart.
    """
    decide = ", ".join(f"s.{quote(name)}" for name in columns)
    # Settings of the session must not change the text of a row.
    shortest = session.writes_floats_in_full(db)
    text = as_json(f"ROW({decide})", list(columns.values()), shortest=shortest)
    place = f"pg_catalog.abs(pg_catalog.hashtextextended({text}, 0) % {_PARTS})"
    limit, judged = round(share * _PARTS), round(judging * _PARTS)
    named = ", ".join(f"s.{quote(name)}" for name in listed)
    parts = [f"SELECT {named} FROM {one.rows} WHERE {place} >= {limit}" for one in (source, *before)]
    db.query(f"CREATE TEMPORARY VIEW {quote(LEARNED)} AS {' UNION ALL '.join(parts)}")
    db.query(
        f"CREATE TEMPORARY TABLE {quote(JUDGED)} AS"
        f" SELECT s.*, (pg_catalog.row_number() OVER ())::integer AS {quote(NUMBER)}"
        f" FROM {source.rows} WHERE {place} < {judged}"
    )
    return db.query(f"SELECT pg_catalog.count(*) AS found FROM {temporary(JUDGED)}")[0]["found"]


def drop_temporary(db: Database) -> None:
    """Drop the temporary view and tables that a retraining has made."""
    found = db.query(
        "SELECT relname::text AS name, relkind = 'v' AS is_view FROM pg_catalog.pg_class"
        " WHERE relnamespace = pg_catalog.pg_my_temp_schema() AND relkind IN ('r', 'p', 'v')"
        " AND NOT relispartition AND pg_catalog.starts_with(relname::text, $1)"
        " ORDER BY is_view DESC",
        ["text"],
        [PREFIX],
    )
    for row in found:
        db.query(f"DROP {'VIEW' if row['is_view'] else 'TABLE'} {temporary(row['name'])}")
