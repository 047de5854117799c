"""SQL of related tables: what the catalogs know of them, and the tables into which features are written.

All of it runs with the caller's rights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from cerebro_plpy.database import Database
from cerebro_plpy.errors import UNDEFINED_FUNCTION, CerebroError
from cerebro_plpy.relations.labels import LabelTerm
from cerebro_plpy.relations.paths import CATEGORY, ForeignKey, RelatedColumn, TableName
from cerebro_plpy.relations.planning import MEAN, SUM, RelatedFeature
from cerebro_plpy.relations.recipe import AUTHOR
from cerebro_plpy.store import session, user_code
from cerebro_plpy.store.dialect import HEAP, distributed
from cerebro_plpy.store.names import Table, TargetTable, find_missing_columns, literal, quote, temporary
from cerebro_plpy.store.packed.packed import SUMMARY
from cerebro_plpy.store.related.features_sql import NUMBER_NAME, finite

# The column of a table of labels that holds the cut-off.
CUTOFF = "at"
# The column of the recipe in the summary of a table of related features.
RELATED = "related_recipe"


def foreign_keys(db: Database) -> list[ForeignKey]:
    """Return all foreign keys of the database, without the copies that partitions inherit."""
    rows = db.query(
        "SELECT cn.nspname::text AS child_schema, c.relname::text AS child,"
        " pn.nspname::text AS parent_schema, p.relname::text AS parent,"
        " ARRAY(SELECT a.attname::text FROM pg_catalog.unnest(k.conkey) WITH ORDINALITY AS u (number, place)"
        "  JOIN pg_catalog.pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = u.number"
        "  ORDER BY u.place) AS columns,"
        " ARRAY(SELECT a.attname::text FROM pg_catalog.unnest(k.confkey) WITH ORDINALITY AS u (number, place)"
        "  JOIN pg_catalog.pg_attribute AS a ON a.attrelid = k.confrelid AND a.attnum = u.number"
        "  ORDER BY u.place) AS of"
        " FROM pg_catalog.pg_constraint AS k"
        " JOIN pg_catalog.pg_class AS c ON c.oid = k.conrelid"
        " JOIN pg_catalog.pg_namespace AS cn ON cn.oid = c.relnamespace"
        " JOIN pg_catalog.pg_class AS p ON p.oid = k.confrelid"
        " JOIN pg_catalog.pg_namespace AS pn ON pn.oid = p.relnamespace"
        " WHERE k.contype = 'f' AND k.conparentid = 0"
        " ORDER BY cn.nspname, c.relname, k.conname"
    )
    return [
        ForeignKey(
            child=(row["child_schema"], row["child"]),
            columns=tuple(row["columns"]),
            parent=(row["parent_schema"], row["parent"]),
            of=tuple(row["of"]),
        )
        for row in rows
    ]


def primary_key(db: Database, table: Table) -> tuple[str, ...]:
    """Return the columns of a table's primary key, in order; empty if it has none."""
    rows = db.query(
        "SELECT a.attname::text AS name FROM pg_catalog.pg_index AS i"
        " CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS u (number, place)"
        " JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = u.number"
        " WHERE i.indrelid = $1::oid AND i.indisprimary ORDER BY u.place",
        ["oid"],
        [table.oid],
    )
    return tuple(row["name"] for row in rows)


def readable_columns(db: Database, table: Table) -> set[str]:
    """Return the columns of a table that the caller may read."""
    rows = db.query(
        "SELECT a.attname::text AS name FROM pg_catalog.pg_attribute AS a"
        " JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid"
        " WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped"
        " AND pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'SELECT')"
        " AND pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE')",
        ["oid"],
        [table.oid],
    )
    return {row["name"] for row in rows}


def repeats(db: Database, table: Table, columns: Sequence[str]) -> bool:
    """Return whether two rows of a table have the same values in all these columns, without a NULL."""
    listed = ", ".join(f"s.{quote(name)}" for name in columns)
    present = " AND ".join(f"s.{quote(name)} IS NOT NULL" for name in columns)
    return bool(
        db.query(f"SELECT FROM {table.rows} WHERE {present} GROUP BY {listed} HAVING count(*) > 1 LIMIT 1")
    )


def can_compare(db: Database, one: Table, name: str, other: Table, of: str) -> bool:
    """Return whether the server can compare the column `name` of one table with the column `of` of
    another."""
    on = f"s.{quote(name)} = t.{quote(of)}"
    try:
        db.query(f"SELECT FROM {one.quoted} AS s JOIN {other.quoted} AS t ON {on} LIMIT 0")
    except CerebroError as error:
        if error.sqlstate == UNDEFINED_FUNCTION:
            return False
        raise
    return True


@contextmanager
def rows_of_query(
    db: Database, query: str, name: str, *, empty: bool = False, search_path: str = ""
) -> Iterator[Table]:
    """Yield a temporary table with the rows of a caller's query; drop it after the block.

    The query runs with the given search_path, or else with the caller's. With `empty`, the table has the
    columns only.
    """
    made = temporary(name)
    data = "WITH NO DATA" if empty else "WITH DATA"
    own = session.names_in(db)
    session.take_names(db, session.NamesIn(search_path or db.search_path, own.quoting))
    db.query_once(f"CREATE TEMPORARY TABLE {quote(name)}{HEAP} AS SELECT q.* FROM (\n{query}\n) AS q {data}")
    session.take_names(db, own)
    if not empty:
        db.query(f"ANALYZE {made}")
    yield _temporary(db, name)
    db.query(f"DROP TABLE {made}")


def write_temporary(db: Database, name: str, statement: str) -> Table:
    """Create a temporary table with the rows of a statement, and return it."""
    with _planned(db):
        db.query_once(
            f"CREATE TEMPORARY TABLE {quote(name)}{HEAP} AS {statement}{distributed(db, 'RANDOMLY')}"
        )
    return _temporary(db, name)


def _temporary(db: Database, name: str) -> Table:
    made = temporary(name)
    oid = db.query("SELECT pg_catalog.to_regclass($1)::oid::bigint AS oid", ["text"], [made])[0]["oid"]
    return Table("pg_temp", name, oid, made)


def row_type(db: Database, table: Table) -> int:
    statement = "SELECT reltype::bigint AS type FROM pg_catalog.pg_class WHERE oid = $1"
    return db.query(statement, ["oid"], [table.oid])[0]["type"]


def rows_text(table: Table) -> str:
    return f"SELECT * FROM {table.quoted}"


def dropping(table: Table) -> str:
    return f"DROP TABLE {table.quoted}"


def named_rows(statement: str, columns: Sequence[str]) -> str:
    """Return a statement that returns the predictions of `statement`, with a JSON object of the given columns
    in place of each row that was predicted."""
    listed = ", ".join(f"(p.source).{quote(name)}" for name in columns)
    return (
        f"SELECT (SELECT pg_catalog.to_jsonb(r) FROM (SELECT {listed}) AS r), p.class, p.probability,"
        f" p.prediction FROM ({statement}) AS p (source, class, probability, prediction)"
    )


def count_rows(db: Database, table: str) -> int:
    return db.query(f"SELECT pg_catalog.count(*) AS found FROM {table}")[0]["found"]


def count_strangers(db: Database, rows: Table, entity: Table, key: Sequence[str]) -> int:
    """Return how many rows of `rows` have a key that no row of the table `entity` has."""
    same = " AND ".join(f"e.{quote(name)} = s.{quote(name)}" for name in key)
    known = f"SELECT FROM {entity.quoted} AS e WHERE {same}"
    return count_rows(db, f"{rows.quoted} AS s WHERE NOT EXISTS ({known})")


def count_pairs(db: Database, statement: str) -> float:
    with _planned(db):
        return db.query_once(statement)[0]["found"]


def write(db: Database, target: TargetTable, statement: str) -> None:
    """Create a table with the rows of a statement."""
    with _planned(db):
        db.query_once(f"CREATE TABLE {target.quoted}{HEAP} AS {statement}{distributed(db, 'RANDOMLY')}")


# To compile hundreds of aggregates takes longer than to compute them of most tables. The limits are
# PostgreSQL's own: with Greenplum's, 20, the planner tries orders of joins for minutes, and in gigabytes.
_PLANNING = {
    "jit": "off",
    "enable_hashagg": "on",
    "join_collapse_limit": "8",
    "from_collapse_limit": "8",
}


@contextmanager
def _planned(db: Database) -> Iterator[None]:
    """During the block, set the planner's settings to values that suit statements which compute features."""
    shown = ", ".join(f"pg_catalog.current_setting('{name}') AS {name}" for name in _PLANNING)
    before = db.query(f"SELECT {shown}")[0]
    _set(db, _PLANNING)
    yield
    _set(db, before)


def _set(db: Database, settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        db.query("SELECT pg_catalog.set_config($1, $2, true)", ["text", "text"], [name, value])


# Three columns of a result for each feature; a result has 1664 at most.
_LOOKED = 400


@dataclass(frozen=True)
class WrittenColumn:
    """A feature's values in brief: how many are not NULL, whether they differ, and a digest of all of
    them."""

    present: int
    varies: bool
    digest: str


def look_at(db: Database, target: TargetTable, features: Sequence[RelatedFeature]) -> list[WrittenColumn]:
    """Return a `WrittenColumn` for each feature in a table."""
    parts = [features[first : first + _LOOKED] for first in range(0, len(features), _LOOKED)]
    return [one for part in parts for one in _look_at(db, target, part)]


def _look_at(db: Database, target: TargetTable, features: Sequence[RelatedFeature]) -> list[WrittenColumn]:
    listed = []
    for number, feature in enumerate(features):
        column = f"s.{quote(feature.name)}"
        is_text = feature.column is not None and feature.column.kind == CATEGORY and _keeps_kind(feature)
        function = "hashtextextended({}, {})" if is_text else "hashfloat8extended({}::double precision, {})"
        digest = function.format(column, f"s.{NUMBER_NAME}")
        listed.append(f"pg_catalog.count({column}) AS p{number}")
        listed.append(f"coalesce(pg_catalog.min({column}) <> pg_catalog.max({column}), FALSE) AS v{number}")
        listed.append(f"pg_catalog.sum(pg_catalog.{digest})::text AS d{number}")
    numbered = f"SELECT pg_catalog.row_number() OVER () AS {NUMBER_NAME}, t.* FROM {target.quoted} AS t"
    with _planned(db):
        row = db.query_once(f"SELECT {', '.join(listed)} FROM ({numbered}) AS s")[0]
    return [
        WrittenColumn(row[f"p{number}"], row[f"v{number}"], f"{row[f'p{number}']} {row[f'd{number}']}")
        for number in range(len(features))
    ]


def _keeps_kind(feature: RelatedFeature) -> bool:
    return feature.aggregate in (None, "last")


def drop_columns(db: Database, target: TargetTable, columns: Sequence[str]) -> None:
    if columns:
        db.query(f"ALTER TABLE {target.quoted} {', '.join(f'DROP COLUMN {quote(name)}' for name in columns)}")


def describe(db: Database, target: TargetTable, words: Mapping[str, str], comment: str) -> None:
    """Comment on a table of features: `comment` says what the table is, and `words` what each column is."""
    db.query(f"COMMENT ON TABLE {target.quoted} IS {literal(comment)}")
    for name, text in words.items():
        db.query(f"COMMENT ON COLUMN {target.quoted}.{quote(name)} IS {literal(text)}")


def write_summary(
    db: Database,
    target: TargetTable,
    recipe: str,
    statement: str | None = None,
    left_out: Mapping[str, str] | None = None,
) -> None:
    """Create the summary of a table of features: the recipe, the statement as a user can run it, and the
    features that were left out, each with the reason."""
    table = quote(target.schema, target.name + SUMMARY)
    db.query(
        f"CREATE TABLE {table} ({RELATED} jsonb, statement text, left_out jsonb){HEAP}"
        f"{distributed(db, 'REPLICATED')}"
    )
    db.query(
        f"INSERT INTO {table} SELECT $1::jsonb, $2, $3::jsonb",
        ["text", "text", "text"],
        [recipe, statement, json.dumps(left_out or {})],
    )
    db.query(f"COMMENT ON TABLE {table} IS {literal(f'How {target.quoted} was made by cerebro.relate.')}")


def recipe_beside(db: Database, table: Table) -> str | None:
    """Return the JSON from which a table's features of related tables can be computed again.

    It is read from the table's summary, and has the owner of both as the author of its query, since nobody
    else can have written it. Return None if there is none, or if table and summary have different owners.
    """
    rows = db.query(
        "SELECT s.oid::bigint AS oid, pg_catalog.pg_get_userbyid(s.relowner)::text AS owner"
        " FROM pg_catalog.pg_class AS t JOIN pg_catalog.pg_class AS s"
        " ON s.relnamespace = t.relnamespace AND s.relowner = t.relowner AND s.relkind = 'r'"
        " WHERE t.oid = $1::oid AND s.relname = $2",
        ["oid", "name"],
        [table.oid, table.name + SUMMARY],
    )
    summary = Table(table.schema, table.name + SUMMARY, rows[0]["oid"], "") if rows else None
    if summary is None or find_missing_columns(db, summary, [RELATED]):
        return None
    if user_code.find_casts(db, summary, [RELATED]):
        return None
    quoted, signed = quote(summary.schema, summary.name), json.dumps({AUTHOR: rows[0]["owner"]})
    rows = db.query(
        f"SELECT ({RELATED}::jsonb OPERATOR(pg_catalog.||) $1::jsonb)::text AS found FROM {quoted}"
        f" WHERE pg_catalog.jsonb_typeof({RELATED}::jsonb) OPERATOR(pg_catalog.=) 'object'",
        ["text"],
        [signed],
    )
    return rows[0]["found"] if rows else None


@dataclass(frozen=True)
class LabelSource:
    """The tables from which labels are computed: an entity and its children, with the time column of each,
    and the label's term, such as `count(orders) = 0`."""

    entity: TableName
    key: tuple[str, ...]
    entity_time: RelatedColumn | None
    child_key: ForeignKey
    child_time: RelatedColumn
    column: RelatedColumn | None
    term: LabelTerm
    over: str
    every: str

    @property
    def moment(self) -> str:
        """The SQL expression for the time of a child c, as a value of the cut-offs' type."""
        return f"c.{quote(self.child_time.name)}::{self.moment_type}"

    @property
    def moment_type(self) -> str:
        return "timestamptz" if self.child_time.element == "timestamptz" else "timestamp"

    @property
    def label(self) -> str:
        """The SQL expression for the label of an entity, over its children c."""
        if self.column is None:
            text = "count(c.__at__)"
        else:
            text = f"{'avg' if self.term.aggregate == MEAN else self.term.aggregate}(c.__value__)"
            text = f"coalesce({text}, 0)" if self.term.aggregate == SUM else text
        return text if self.term.comparison is None else f"{text} {self.term.comparison} {self.term.number}"


def span_of_labels(
    db: Database, about: LabelSource, starts: str | None, ends: str | None
) -> tuple[str | None, str | None]:
    """Return the first and the last cut-off, as texts that sort like times.

    A cut-off is a time for which labels are computed: a label covers the interval `about.over` after it. So
    the last cut-off is that long before `ends`, which is by default the time of the latest child. The first
    one is `starts`, by default that long after the earliest child.
    """
    kind = about.moment_type
    row = db.query(
        f"SELECT m.first::text AS first, m.last::text AS last FROM (SELECT"
        f" coalesce($1::timestamptz::{kind}, min({about.moment}) + $3::interval) AS first,"
        f" coalesce($2::timestamptz::{kind}, max({about.moment})) - $3::interval AS last"
        f" FROM {quote(*about.child_key.child)} AS c WHERE isfinite({about.moment})) AS m",
        ["text", "text", "text"],
        [starts, ends, about.over],
    )[0]
    return row["first"], row["last"]


def count_cutoffs(db: Database, about: LabelSource, span: tuple[str, str]) -> float:
    """Return about how many cut-offs there are in a span, one in each interval `about.every`; infinity if an
    end is infinite."""
    kind = about.moment_type
    return db.query(
        f"SELECT 1 + (date_part('epoch', $2::{kind}) - date_part('epoch', $1::{kind}))"
        " / date_part('epoch', $3::interval) AS count",
        ["text", "text", "text"],
        [*span, about.every],
    )[0]["count"]


def write_labels(
    db: Database, target: TargetTable, about: LabelSource, label: str, span: tuple[str, str]
) -> None:
    """Create the table of labels, with a row for each entity at each cut-off; cut-offs are counted back from
    the last one."""
    first, last = (f"{literal(moment)}::{about.moment_type}" for moment in span)
    over, every = (f"interval {literal(length)}" for length in (about.over, about.every))
    key = about.child_key
    pairs = zip(key.columns, key.of, strict=True)
    on = " AND ".join(f"c.{quote(own)} = e.{quote(of)}" for own, of in pairs)
    listed = ", ".join(f"e.{quote(name)}" for name in about.key)
    value = "" if about.column is None else f", {finite('c', about.column)} AS __value__"
    known = ""
    if about.entity_time is not None:
        known = f" WHERE e.{quote(about.entity_time.name)} < t.at"
    children = ", ".join(f"c.{quote(name)}" for name in dict.fromkeys(key.columns))
    with _planned(db):
        db.query_once(
            f"CREATE TABLE {target.quoted}{HEAP} AS"
            f" SELECT {listed}, t.at, {about.label} AS {quote(label)} FROM {quote(*about.entity)} AS e"
            f" CROSS JOIN generate_series({last}, {first}, -{every}) AS t (at)"
            f" LEFT JOIN (SELECT {children}, {about.moment} AS __at__{value}"
            f" FROM {quote(*key.child)} AS c) AS c"
            f" ON {on} AND c.__at__ >= t.at AND c.__at__ < t.at + {over}{known}"
            f" GROUP BY {listed}, t.at{distributed(db, 'RANDOMLY')}"
        )
    db.query(f"COMMENT ON TABLE {target.quoted} IS {literal('Labels by cerebro.labels.')}")
