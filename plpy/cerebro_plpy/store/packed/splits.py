"""SQL that splits a table's rows by chance. All of it runs with the caller's rights."""

from __future__ import annotations

import secrets
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cerebro_plpy.database import Database
from cerebro_plpy.store import citus, session
from cerebro_plpy.store.dialect import distributed, is_greenplum
from cerebro_plpy.store.names import Table, TargetTable, literal, quote, target
from cerebro_plpy.store.packed import source_rows
from cerebro_plpy.store.packed.packed import FOLD, SourceColumn
from cerebro_plpy.store.plain import as_json, as_text

COLUMN = "split"


@dataclass(frozen=True)
class Split:
    """The rows that are to be split into rows to train on and rows to test on, and how to split them."""

    source: Table
    columns: Sequence[str]
    groups: Sequence[str]
    train: float
    test: float
    seed: int
    # Whether the seed decides about each row; if not, chance does, which does not read the whole row.
    repeatable: bool

    @property
    def listed(self) -> str:
        """The select list that gives columns their own names back, over a query that calls them c0, c1 … to
        avoid clashes."""
        return ", ".join(f"c{number} AS {quote(name)}" for number, name in enumerate(self.columns))


def has_rows(db: Database, source: Table) -> bool:
    return bool(db.query(f"SELECT FROM {source.rows} LIMIT 1"))


def write(db: Database, split: Split, targets: Sequence[TargetTable], *, replacement: bool) -> None:
    """Create one table in which a column marks the rows to train on and those to test on, or, with two
    targets, a table for each."""
    statement = (_drawn if replacement else _dealt)(split)
    if len(targets) == 1:
        _create(db, targets[0], f"SELECT {split.listed}, {COLUMN} FROM ({statement}) AS k")
        return
    # Chance and the source may be otherwise for the next statement: the rows are chosen once.
    chosen = target(db, targets[0].schema, f"_{secrets.token_hex(16)}")
    _create(db, chosen, statement)
    for table, which in zip(targets, (1, 0), strict=True):
        _create(db, table, f"SELECT {split.listed} FROM {chosen.quoted} AS k WHERE {COLUMN} = {which}")
    db.query(f"DROP TABLE {chosen.quoted}")


def _create(db: Database, table: TargetTable, statement: str) -> None:
    db.query(f"CREATE TABLE {table.quoted} AS {statement}{distributed(db, 'RANDOMLY')}")


def _count(share: float, of: str) -> str:
    """Return the SQL for a share of the number `of`, rounded to the nearest whole number, with halves rounded
    down."""
    return f"pg_catalog.ceil({of} * {share!r}::numeric - 0.5)"


def _numbered(split: Split) -> str:
    """Return a query that gives each row a random position in its group, from 1, and the size of the
    group."""
    listed = ", ".join(f"s.{quote(name)} AS c{number}" for number, name in enumerate(split.columns))
    groups = ", ".join(f"s.{quote(name)}" for name in split.groups)
    within = f"PARTITION BY {groups}" if groups else ""
    order = "pg_catalog.random()"
    if split.repeatable:
        # Equal rows may change places: it makes no difference.
        order = f'pg_catalog.hashtextextended(cerebro._text(s.*) COLLATE "C", {split.seed})'
    number = f"pg_catalog.dense_rank() OVER (ORDER BY {groups})" if groups else "1::bigint"
    return (
        f"SELECT {listed}, {number} AS grp, pg_catalog.count(*) OVER ({within}) AS total,"
        f" pg_catalog.row_number() OVER ({within} ORDER BY {order}) AS place FROM {split.source.quoted} AS s"
    )


def _dealt(split: Split) -> str:
    """Return a query that draws without replacement: the first rows of each group to train on, the next ones
    to test on."""
    train, last = _count(split.train, "total"), _count(split.train + split.test, "total")
    columns = ", ".join(f"c{number}" for number in range(len(split.columns)))
    return (
        f"SELECT {columns}, CASE WHEN place <= {train} THEN 1 ELSE 0 END AS {COLUMN}"
        f" FROM ({_numbered(split)}) AS n WHERE place <= {last}"
    )


def _drawn(split: Split) -> str:
    """Return a query that draws with replacement: it draws as many rows from each group as `_dealt` returns,
    and may draw a row several times."""
    train, last = _count(split.train, "total"), _count(split.train + split.test, "total")
    columns = ", ".join(f"n.c{number}" for number in range(len(split.columns)))
    drawn = (
        f"pg_catalog.hashtextextended(pg_catalog.concat_ws(' ', g.grp, d.draw), {split.seed})"
        " & 9223372036854775807"
    )
    return (
        f"WITH n AS ({_numbered(split)}),"
        f" g AS (SELECT grp, total, {train} AS train, {last} AS last FROM n WHERE place = 1),"
        f" d AS (SELECT g.grp, pg_catalog.generate_series(1, g.last::bigint) AS draw FROM g)"
        f" SELECT {columns}, CASE WHEN d.draw <= g.train THEN 1 ELSE 0 END AS {COLUMN}"
        f" FROM d JOIN g ON g.grp = d.grp JOIN n ON n.grp = g.grp AND n.place = 1 + ({drawn}) % g.total"
    )


@dataclass(frozen=True)
class Holdout:
    """The rows to hold out: a share of the rows, chosen by the hash of their content or of the column `by`,
    or all rows in which a column has at least the value in `after`."""

    share: float
    seed: int
    by: SourceColumn | None = None
    strata: SourceColumn | None = None
    after: tuple[SourceColumn, str] | None = None


# Hashes are distributed evenly over this many numbers.
_HASHES = 2**53


# The places of more rows than this make a statement too long.
_MOST_PLACES = 100_000


def hold_out(
    db: Database, source: Table, known: Mapping[str, SourceColumn], holdout: Holdout
) -> tuple[Table, Table]:
    """Return two selections from a table: the rows that stay, and the rows that are held out."""
    names = list(known)
    if holdout.after is None and source.selection is None and not is_greenplum(db):
        elements = [one.element for one in ([holdout.by] if holdout.by else known.values())]
        number = _number(holdout, elements, shortest=session.writes_floats_in_full(db))
        places = _find_places(db, source, holdout, number) if _has_places(db, source) else []
        # Of none, the query says so when it is asked for rows.
        if 0 < len(places) <= _MOST_PLACES:
            return _by_place(source, names, places)
    return _by_content(db, source, names, holdout)


def _has_places(db: Database, source: Table) -> bool:
    """Return whether a table's rows can be named by their places (ctid).

    Only a role that may read the whole table may read places. Before PostgreSQL 14 places are not used
    either, since the server would search the whole list of them for each row.
    """
    rows = db.query(
        "SELECT c.relkind IN ('r', 'm') AND NOT c.relhassubclass"
        " AND pg_catalog.has_table_privilege(c.oid, 'SELECT')"
        " AND pg_catalog.current_setting('server_version_num')::integer >= 140000 AS found"
        " FROM pg_catalog.pg_class AS c WHERE c.oid = $1::oid",
        ["oid"],
        [source.stored.oid],
    )
    return bool(rows[0]["found"]) and not citus.has_shards(db, source.stored)


def _find_places(db: Database, source: Table, holdout: Holdout, number: str) -> list[str]:
    """Return the places (ctid) of the rows that are held out, at most one more than a statement may list.

    `number` is the SQL expression for a row's hash. Once the places are known, statements that read the rows
    need not convert each row to JSON to compute it.
    """
    stored = f"{source.stored.quoted} AS s WHERE ({source.condition or 'TRUE'})"
    chosen = f"{stored} AND {_chosen(holdout, number)}"
    if holdout.strata is not None:
        value = holdout.strata.value
        chosen = (
            f"(SELECT s.ctid, row_number() OVER (PARTITION BY {value} ORDER BY {number}) AS place,"
            f" count(*) OVER (PARTITION BY {value}) AS total FROM {stored}) AS s"
            f" WHERE s.place <= round(s.total * {holdout.share!r}::numeric)"
        )
    place = as_text("s.ctid", "tid")
    found = db.query_once(f"SELECT {place} AS place FROM {chosen} LIMIT {_MOST_PLACES + 1}")
    return [row["place"] for row in found]


def _by_place(source: Table, columns: Sequence[str], places: Sequence[str]) -> tuple[Table, Table]:
    """Return two selections from a table: the rows that are not at the given places (ctid), and the rows that
    are."""
    listed = ", ".join(f"s.{quote(column)}" for column in columns)
    array = ",".join(f'"{place}"' for place in places)
    at_places = f"s.ctid = ANY ('{{{array}}}'::pg_catalog.tid[])"
    start = f"SELECT {listed} FROM {source.stored.quoted} AS s WHERE ({source.condition or 'TRUE'})"
    kept, held = (
        replace(source, selection=f"({start} AND {test})", condition=None)
        for test in (f"({at_places}) IS NOT TRUE", at_places)
    )
    return kept, held


def _by_content(db: Database, source: Table, columns: Sequence[str], holdout: Holdout) -> tuple[Table, Table]:
    """Return the rows that stay and the rows that are held out, as queries that decide about each row
    whenever they are run."""
    listed, rows = ", ".join(f"s.{quote(column)}" for column in columns), source.rows
    ends = None if holdout.strata is None else _class_ends(db, source, holdout, holdout.strata)
    if holdout.strata is None:
        chosen = _chosen(holdout, _number(holdout))
    elif ends is not None:
        whens = " ".join(f"WHEN {of_class} THEN {end}" for of_class, end in ends)
        chosen = f"{_number(holdout)} <= CASE {whens} END"
    else:
        value, number = holdout.strata.value, _number(holdout)
        # The columns go by numbers, so that no name of theirs meets one of ours.
        named = ", ".join(f"s.{quote(column)} AS c{place}" for place, column in enumerate(columns))
        listed = ", ".join(f"s.c{place} AS {quote(column)}" for place, column in enumerate(columns))
        rows = (
            f"(SELECT {named}, row_number() OVER (PARTITION BY {value} ORDER BY {number}) AS place,"
            f" count(*) OVER (PARTITION BY {value}) AS total FROM {source.rows}) AS s"
        )
        chosen = f"s.place <= round(s.total * {holdout.share!r}::numeric)"
    kept, held = (
        replace(source, selection=f"(SELECT {listed} FROM {rows} WHERE ({chosen}) {test} TRUE)")
        for test in ("IS NOT", "IS")
    )
    return kept, held


# A row is compared with the ends of all classes.
_MOST_CLASSES = 100


def _class_ends(
    db: Database, source: Table, holdout: Holdout, strata: SourceColumn
) -> list[tuple[str, int]] | None:
    """Return, for each class, its SQL condition and the greatest hash (`_number`) of rows that are held out.

    Rows with the same hash, which are usually equal, are held out together or not at all. Return None if
    too few rows of a class would then be held out, or if there are very many classes. In both cases each row
    needs a position in its class instead, for which the server sorts all rows whenever they are read.
    """
    wanted = f"round(c.total * {holdout.share!r}::numeric)"
    fits = f"FILTER (WHERE c.until <= {wanted})"
    found = db.query_once(
        f"SELECT {as_text('k.value', strata.element)} AS value, k.number, k.held < k.wanted AS has_too_few"
        f" FROM (SELECT c.value, max({wanted}) AS wanted, max(c.number) {fits} AS number,"
        f" coalesce(max(c.until) {fits}, 0) AS held"
        " FROM (SELECT n.value, n.number, count(*) OVER (PARTITION BY n.value ORDER BY n.number) AS until,"
        " count(*) OVER (PARTITION BY n.value) AS total"
        f" FROM (SELECT {strata.value} AS value, {_number(holdout)} AS number FROM {source.rows}) AS n) AS c"
        f" GROUP BY c.value) AS k LIMIT {_MOST_CLASSES + 1}"
    )
    # A class so small that none of its rows is held out has no number.
    numbers = {row["value"]: row["number"] for row in found if row["number"] is not None}
    if not numbers or len(found) > _MOST_CLASSES or any(row["has_too_few"] for row in found):
        return None
    name, kind = strata.value, strata.base_type
    return [
        (f"{name} IS NULL" if value is None else f"{name} = {literal(value)}::{kind}", number)
        for value, number in numbers.items()
    ]


# Types for which every server with the function that hashes whole rows has a hash.
_HASHED = frozenset(
    {"bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar", "bpchar", "uuid"}
    | {"date", "timestamp", "timestamptz"}
)


def draw_share(
    db: Database,
    source: Table,
    known: Mapping[str, SourceColumn],
    label: SourceColumn,
    *,
    share: float | None,
    seed: int,
) -> Table:
    """Return the table, limited to about a share of the rows that have a label; None means all rows.

    The hash of their content chooses them. Servers from PostgreSQL 14 hash rows without making text of them,
    which takes much longer.
    """
    if share is None:
        return source
    source = source_rows.with_values(source, label)
    if share >= 1:
        return source
    hashed = [column.value for column in known.values() if column.element in _HASHED]
    # Held-out rows are chosen by the same hash of text with another seed.
    number = _number(Holdout(share, seed + 1))
    hashes = "SELECT pg_catalog.to_regproc('pg_catalog.hash_record_extended') IS NOT NULL AS found"
    if hashed and db.query(hashes)[0]["found"]:
        row = f"ROW({', '.join(hashed)})"
        number = f"(pg_catalog.hash_record_extended({row}, {int(seed)}::bigint) & {_HASHES - 1})"
    return source_rows.limit(source, f"{number} < {int(share * _HASHES)}")


@contextmanager
def drawn(
    db: Database,
    source: Table,
    known: Mapping[str, SourceColumn],
    label: SourceColumn,
    *,
    share: float | None,
    seed: int,
    schema: str,
) -> Generator[Table]:
    """Yield what `draw_share` returns; if it is fewer rows, a copy of them that exists during the block."""
    found = draw_share(db, source, known, label, share=share, seed=seed)
    if share is None or share >= 1:
        yield found
        return
    with source_rows.copied(db, found, schema) as copy:
        yield copy


@dataclass(frozen=True)
class FoldsOf:
    """The rule for the fold of each row: by the hash of its content or of the column `by`, by turns within
    each class of `strata`, or by the values of `column`."""

    count: int = 0
    seed: int = 0
    by: SourceColumn | None = None
    strata: SourceColumn | None = None
    column: SourceColumn | None = None


def with_fold(source: Table, columns: Sequence[str], folds: FoldsOf) -> Table:
    """Return a selection of the rows with the number of their fold, from 1, in a further column."""
    listed = ", ".join(f"s.{quote(column)}" for column in columns)
    fold = _fold(source, folds)
    return replace(
        source, selection=f"(SELECT {listed}, ({fold})::integer AS {quote(FOLD)} FROM {source.rows})"
    )


def _fold(source: Table, folds: FoldsOf) -> str:
    """Return the SQL expression for the fold of a row s.

    It has no window over all rows, so that on Greenplum rows stay on their segments.
    """
    if folds.column is not None:
        name = folds.column.value
        return f"array_position(ARRAY(SELECT DISTINCT {name} FROM {source.rows} ORDER BY 1), {name})"
    number = _number(folds)
    if folds.strata is None:
        return f"{number} % {folds.count} + 1"
    value = folds.strata.value
    # Each class begins with a fold of its own, so that small ones do not all lie in the first folds. Equal
    # rows have one rank: in two folds, one of them would be judged by a model that has seen the other.
    first = (
        f"(hashtextextended({as_text(value, folds.strata.element)}, {folds.seed}::bigint) & {_HASHES - 1})"
    )
    return (
        f"(coalesce({first}, 0) + dense_rank() OVER (PARTITION BY {value} ORDER BY {number}))"
        f" % {folds.count} + 1"
    )


def count_folds(db: Database, rows: Table) -> int:
    """Return the number of different folds that the rows of `with_fold` are in."""
    return db.query(f"SELECT count(DISTINCT {quote(FOLD)}) AS found FROM {rows.rows}")[0]["found"]


def distinct_up_to(db: Database, source: Table, column: SourceColumn, most: int) -> tuple[int, bool]:
    """Return the number of different values in a column, counted up to `most`, and whether the column has
    NULLs."""
    name = column.value
    row = db.query(
        f"SELECT (SELECT count(*) FROM (SELECT DISTINCT {name} FROM {source.rows}"
        f" WHERE {name} IS NOT NULL LIMIT {most}) AS n) AS found,"
        f" EXISTS (SELECT FROM {source.rows} WHERE {name} IS NULL) AS nulls"
    )[0]
    return row["found"], row["nulls"]


def _chosen(holdout: Holdout, number: str) -> str:
    """Return the SQL condition that a row is held out, given the SQL expression for its hash (`_number`)."""
    if holdout.after is None:
        return f"{number} < {int(holdout.share * _HASHES)}"
    column, value = holdout.after
    return f"{column.value} >= {literal(value)}::{column.base_type}"


def _number(
    holdout: Holdout | FoldsOf, elements: Sequence[str] | None = None, *, shortest: bool = False
) -> str:
    """Return the SQL expression for the hash of a row, which is a number from 0 to below `_HASHES`.

    `elements` and `shortest` describe the hashed values to `plain.as_json`.
    """
    what = "s.*" if holdout.by is None else holdout.by.value
    text = f"coalesce({as_json(what, elements, shortest=shortest)}, 'null')"
    return f"(hashtextextended({text}, {holdout.seed}::bigint) & {_HASHES - 1})"
