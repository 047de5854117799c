"""SQL that computes statistics of a table's columns, with the caller's rights.

One pass over the rows is made for all numbers, one for all categories, and one for the words of each column
of text. Parallel workers and segments share the work.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import OUT_OF_RANGE, TIME_OUT_OF_RANGE, CerebroError
from cerebro_plpy.features.encode import FLOATS
from cerebro_plpy.features.facts import LabelByValue
from cerebro_plpy.store import citus, plain
from cerebro_plpy.store.dialect import is_greenplum
from cerebro_plpy.store.names import Table, quote
from cerebro_plpy.store.packed.packed import Expression, SourceColumn, as_double, as_text

INTEGERS = ("int2", "int4", "int8")
NUMBERS = (*INTEGERS, *FLOATS)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Counted:
    """A column of numbers or dates, and which statistics to compute beside count, mean, deviation, least and
    greatest value."""

    column: SourceColumn
    quartiles: bool = False
    quantiles: bool = False
    mode: bool = False
    logarithms: bool = False


def keys(db: Database, table: Table) -> set[str]:
    """Return the columns that are keys by a table's definition: unique, identity, or filled by a sequence."""
    rows = db.query(
        "SELECT a.attname::text AS name FROM pg_catalog.pg_attribute AS a"
        " WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped AND (a.attidentity <> ''"
        " OR EXISTS (SELECT FROM pg_catalog.pg_index AS i WHERE i.indrelid = a.attrelid"
        "  AND a.attnum = i.indkey[0] AND i.indisunique AND i.indnkeyatts = 1 AND i.indpred IS NULL)"
        " OR EXISTS (SELECT FROM pg_catalog.pg_attrdef AS d WHERE d.adrelid = a.attrelid"
        "  AND d.adnum = a.attnum AND pg_catalog.pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%'))",
        ["oid"],
        [table.oid],
    )
    return {row["name"] for row in rows}


@dataclass(frozen=True)
class DistinctValues:
    """How many values and how many different values a column has; for integers, also the least and the
    greatest."""

    rows: int
    present: int
    distinct: int
    minimum: int | float | None
    maximum: int | float | None
    are_whole: bool

    @property
    def all_different(self) -> bool:
        return self.distinct == self.present


def distinct(db: Database, table: Table, columns: Sequence[SourceColumn]) -> list[DistinctValues]:
    """Return, for each column of a table, how many values and how many different values it has."""
    found = []
    for column in columns:
        name = quote(column.name)
        number = f"{name}::numeric" if column.element in NUMBERS else "NULL::numeric"
        end = number if column.element in INTEGERS else "NULL::numeric"
        row = db.query_once(
            f"SELECT count(*) AS rows, count({name}) AS present, count(DISTINCT {name}) AS distinct,"
            f" min({end})::double precision AS minimum, max({end})::double precision AS maximum,"
            f" coalesce(bool_and({number} = trunc({number})), FALSE) AS are_whole FROM {table.rows}"
        )[0]
        found.append(DistinctValues(**row))
    return found


@dataclass(frozen=True)
class Spread:
    """The least value, the greatest value and the standard deviation of a column of numbers."""

    least: float
    greatest: float
    deviation: float


def spread(db: Database, table: Table, column: SourceColumn) -> Spread:
    """Return the least, the greatest and the deviation of a column's values; at least one value must not be
    NULL."""
    value = as_double(column)
    try:
        row = db.query_once(
            f"SELECT min({value}) AS least, max({value}) AS greatest, stddev_pop({value}) AS deviation"
            f" FROM {table.rows}"
        )[0]
    except CerebroError as error:
        raise _too_large(db, table, [Counted(column)], error) from None
    return Spread(**{name: float(row[name]) for name in ("least", "greatest", "deviation")})


def count_elements(db: Database, table: Table, columns: Sequence[SourceColumn]) -> int:
    """Return the most elements that one of the first rows has in these columns of arrays."""
    if not columns:
        return 0
    counted = " + ".join(f"coalesce(pg_catalog.cardinality({one.value}), 0)" for one in columns)
    first = f"SELECT s.* FROM {table.rows} LIMIT 100"
    found = db.query_once(f"SELECT max({counted}) AS most FROM ({first}) AS s")
    return found[0]["most"] or 0


@dataclass(frozen=True)
class Rest:
    """The median of a column, and the usual deviation of its values if one suspected outlier is left out."""

    median: float
    deviation: float | None


# For normally distributed values, the deviation is this many times the distance between the quartiles.
_OF_QUARTILES = 0.7413


def rest(db: Database, table: Table, columns: Sequence[tuple[SourceColumn, float]]) -> list[Rest]:
    """Return the median and the usual deviation of each column; `columns` has a suspected outlier for each.

    The deviation is derived from the quartiles, so that the outlier hardly counts. If the quartiles are
    equal, the deviation is that of all values but the outlier.
    """
    found = []
    for column, one in columns:
        value = as_double(column)
        if column.element in FLOATS:
            value = f"nullif({value}, 'NaN')"
        row = db.query_once(
            f"SELECT q[2] AS median,"
            f" coalesce(nullif({_OF_QUARTILES} * (q[3] - q[1]), 0), others) AS deviation"
            f" FROM (SELECT percentile_cont(ARRAY[0.25, 0.5, 0.75]::double precision[])"
            f" WITHIN GROUP (ORDER BY {value}) AS q, stddev_pop({value})"
            f" FILTER (WHERE {value} <> '{one!r}'::double precision) AS others FROM {table.rows}) AS s"
        )[0]
        found.append(Rest(**row))
    return found


def is_constant(db: Database, table: Table, column: SourceColumn) -> bool:
    """Return whether all values of a column that are not NULL are equal."""
    value = column.value
    row = db.query_once(f"SELECT coalesce(min({value}) = max({value}), FALSE) AS found FROM {table.rows}")[0]
    return row["found"]


def rises(db: Database, table: Table, column: SourceColumn) -> bool:
    """Return whether a column's value is greater in each row than in the row stored before it."""
    place = "gp_segment_id, tableoid" if is_greenplum(db) else "tableoid"
    stored = db.query(
        "SELECT c.relkind IN ('r', 'm', 'p') AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits AS i"
        " JOIN pg_catalog.pg_class AS p ON p.oid = i.inhrelid WHERE i.inhparent = c.oid AND p.relkind = 'f')"
        " AS found FROM pg_catalog.pg_class AS c WHERE c.oid = $1::oid",
        ["oid"],
        [table.oid],
    )
    if not stored[0]["found"] or citus.has_shards(db, table):
        return False
    name = quote(column.name)
    row = db.query_once(
        f"SELECT coalesce(bool_and(n.rises), FALSE) AS found FROM (SELECT s.{name} > lag(s.{name})"
        f" OVER (PARTITION BY {place} ORDER BY s.ctid) AS rises FROM {table.rows}) AS n"
    )[0]
    return row["found"]


def numbers(
    db: Database, source: Table, counted: Sequence[Counted], texts: Sequence[SourceColumn]
) -> tuple[int, list[Mapping[str, Any]], list[float]]:
    """Return the number of rows, the statistics of each column of numbers, and the mean number of words in
    each column of text."""
    aggregates = [f"'{name}', {made}" for name, made in (("rows", "count(*)"),)]
    for number, one in enumerate(counted):
        aggregates.append(f"'{number}', json_build_object({_aggregates(one)})")
    for number, column in enumerate(texts):
        text = as_text(column)
        spaces = f"length({text}) - length(replace({text}, ' ', ''))"
        aggregates.append(f"'w{number}', avg(CASE WHEN {text} <> '' THEN 1 + {spaces} END)::double precision")
    try:
        row = db.query_once(f"SELECT {_object(aggregates)}::text AS found FROM {source.rows}")[0]
    except CerebroError as error:
        raise _too_large(db, source, counted, error) from None
    found = json.loads(row["found"])
    return (
        found["rows"],
        [found[str(number)] for number in range(len(counted))],
        [float(found[f"w{number}"] or 0) for number in range(len(texts))],
    )


def _too_large(db: Database, source: Table, counted: Sequence[Counted], error: CerebroError) -> CerebroError:
    """Return an error that names the column whose values are out of range, if this is what `error` says.

    They are numbers too large for double precision, or dates after the last timestamp. Return `error` if it
    says something else.
    """
    if error.sqlstate not in (OUT_OF_RANGE, TIME_OUT_OF_RANGE):
        return error
    what = "numbers that a double precision or their sum cannot hold"
    if error.sqlstate == TIME_OUT_OF_RANGE:
        what = "dates that a timestamp cannot hold"
    for one in counted:
        try:
            db.query_once(f"SELECT json_build_object({_aggregates(one)}) FROM {source.rows}")
        except CerebroError:
            return CerebroError(
                f'column "{one.column.name}" has {what}',
                detail=error.message,
                hint=f'Leave it out ({{"exclude": ["{one.column.name}"]}}), or change it in a view.',
                sqlstate=error.sqlstate,
            )
    return error


# Quantiles divide the values into this many parts of equal size.
_PARTS = 200
_SHARES = f"ARRAY(SELECT i / {_PARTS}::double precision FROM pg_catalog.generate_series(0, {_PARTS}) AS i)"
# A function takes at most 100 arguments.
_MOST = 40


def _object(pairs: Sequence[str]) -> str:
    parts = [
        f"jsonb_build_object({', '.join(pairs[first : first + _MOST])})"
        for first in range(0, len(pairs), _MOST)
    ]
    return f"({' || '.join(parts)})"


def _exact(number: str) -> str:
    return plain.as_text(number, "float8")


def _aggregates(one: Counted) -> str:
    value = as_double(one.column)
    if one.column.element in FLOATS:
        # NaN counts as no value, as in data frames.
        value = f"nullif({value}, 'NaN')"
    made = {
        "present": f"count({value})",
        "mean": _exact(f"avg({value})"),
        "deviation": _exact(f"stddev_pop({value})"),
        "minimum": _exact(f"min({value})"),
        "maximum": _exact(f"max({value})"),
    }
    if one.quartiles:
        made["quartiles"] = _percentiles("ARRAY[0.25, 0.5, 0.75]::double precision[]", value)
    if one.quantiles:
        made["quantiles"] = _percentiles(_SHARES, value)
    if one.mode:
        made["mode"] = _exact(f"mode() WITHIN GROUP (ORDER BY {value})")
    if one.logarithms:
        log = f"sign({value}) * ln(1 + abs({value}))"
        made |= {"log_mean": _exact(f"avg({log})"), "log_deviation": _exact(f"stddev_pop({log})")}
    return ", ".join(f"'{name}', {aggregate}" for name, aggregate in made.items())


def _percentiles(shares: str, value: str) -> str:
    return f"cerebro._json(percentile_cont({shares}) WITHIN GROUP (ORDER BY {value}))"


def values(
    db: Database, source: Table, columns: Sequence[SourceColumn], most: int
) -> list[tuple[int, int, list[tuple[str, int]]]]:
    """Return, for each column, how many values it has, how many different ones, and the `most` most frequent
    values, each with its count."""
    found: list[tuple[int, int, list[tuple[str, int]]]] = [(0, 0, []) for _ in columns]
    if not columns:
        return found
    counting = _count_unnested if citus.is_installed(db) else _count_by_sets
    rows = db.scan(
        "SELECT g.place, g.value, g.number, g.present::bigint AS present, g.distinct_values FROM ("
        "  SELECT c.place, c.value, c.number, row_number() OVER by_number AS rank,"
        "         sum(c.number) OVER (PARTITION BY c.place) AS present,"
        "         count(*) OVER (PARTITION BY c.place) AS distinct_values"
        f"   FROM ({counting(source, [as_text(column) for column in columns])}) AS c"
        "   WHERE c.value IS NOT NULL"
        '  WINDOW by_number AS (PARTITION BY c.place ORDER BY c.number DESC, c.value COLLATE "C")) AS g'
        " WHERE g.rank <= $1 ORDER BY g.place, g.rank",
        ["bigint"],
        [most],
    )
    for batch in rows:
        for row in batch:
            place = row["place"]
            known = found[place][2]
            known.append((row["value"], row["number"]))
            found[place] = (row["present"], row["distinct_values"], known)
    return found


def _count_by_sets(source: Table, texts: Sequence[str]) -> str:
    """Return a query that counts, in one pass, how often each expression in `texts` has each value. Its
    column `place` has the expression's position in `texts`."""
    made = ", ".join(f"{text} AS t{number}" for number, text in enumerate(texts))
    names = [f"s.t{number}" for number in range(len(texts))]
    place = " ".join(f"WHEN GROUPING({name}) = 0 THEN {number}" for number, name in enumerate(names))
    return (
        f"SELECT CASE {place} END AS place, coalesce({', '.join(names)}) AS value, count(*) AS number"
        f" FROM (SELECT {made} FROM {source.rows}) AS s"
        f" GROUP BY GROUPING SETS ({', '.join(f'({name})' for name in names)})"
    )


def _count_unnested(source: Table, texts: Sequence[str]) -> str:
    """Return the query of `_count_by_sets` for Citus, which has no GROUPING SETS; it is slower, since it
    makes a row of each value."""
    return (
        "SELECT s.place, s.value, count(*) AS number FROM"
        f" (SELECT generate_series(0, {len(texts) - 1}) AS place, unnest(ARRAY[{', '.join(texts)}]) AS value"
        f" FROM {source.rows}) AS s GROUP BY s.place, s.value"
    )


def label_by_value(
    db: Database, source: Table, column: SourceColumn, label: SourceColumn, *, is_quantity: bool, most: int
) -> LabelByValue | None:
    """Return statistics of the label at each value of a column; None if there are too many values.

    `most` limits the values or, for a label with classes, the pairs of a value and a class. Return None also
    if labels are too large for double precision.
    """
    value = as_double(column)
    if is_quantity:
        target = as_double(label)
        made = f"count(*) AS rows, avg({target}) AS mean, var_pop({target}) AS variance"
        keys = "1"
    else:
        made, keys = f"{as_text(label)} AS label, count(*) AS rows", "1, 2"
    try:
        rows = db.query_once(
            f"SELECT {value} AS value, {made} FROM {source.rows} WHERE {column.value} IS NOT NULL"
            f" AND {label.value} IS NOT NULL GROUP BY {keys} LIMIT {most + 1}"
        )
    except CerebroError as error:
        # Packing refuses a label that is too large by its name.
        if error.sqlstate == OUT_OF_RANGE:
            return None
        raise
    if len(rows) > most:
        return None
    found = [tuple(row.values()) for row in rows if not math.isnan(row["value"])]
    return LabelByValue.from_quantities(found) if is_quantity else LabelByValue.from_classes(found)


def words(db: Database, source: Table, column: SourceColumn, most: int) -> list[str]:
    """Return the `most` most frequent words in a column, split as Keras' TextVectorization splits texts.

    Texts are split at spaces first and the pieces counted, so that each different piece is cleaned only once.
    """
    removed = "!\"#$%&()*+,-./:;<=>?@[\\\\]^_`{|}~''"
    # A backslash in a plain literal would be read by standard_conforming_strings. No parameters: a prepared
    # statement would have no parallel workers.
    rows = db.query_once(
        "SELECT w.word FROM"
        " (SELECT p.piece, count(*) AS number FROM"
        f"   (SELECT unnest(string_to_array({as_text(column)} COLLATE \"C\", ' ')) AS piece"
        f"      FROM {source.rows}) AS p GROUP BY p.piece) AS s,"
        " LATERAL unnest(string_to_array(translate(s.piece,"
        f"  '{LETTERS}' || E'\\t\\n\\x0b\\f\\r' || E'{removed}', '{LETTERS.lower()}     '), ' ')) AS w (word)"
        " WHERE w.word <> '' GROUP BY w.word"
        f' ORDER BY sum(s.number) DESC, w.word COLLATE "C" DESC LIMIT {most}'
    )
    return [row["word"] for row in rows]


def firsts(db: Database, source: Table, columns: Sequence[Expression]) -> list[bytes | None]:
    """Return, for each column, a value that is not NULL, or None if it has none. The value shows what is in
    the column: an array is returned whole, but only the first 8 bytes of a bytea."""
    if not columns:
        return []
    listed = ", ".join(
        f"(SELECT {_first(one)} FROM {source.rows} WHERE {one.columns[0].value} IS NOT NULL"
        f" LIMIT 1) AS c{number}"
        for number, one in enumerate(columns)
    )
    row = db.query(f"SELECT {listed}")[0]
    return [row[f"c{number}"] for number in range(len(columns))]


def _first(one: Expression) -> str:
    return f"substr({one.columns[0].value}, 1, 8)" if one.how == "bytes" else one.text
