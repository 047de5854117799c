"""SQL of predictions: reads what describes a model, and writes tables of predictions.

All of it runs with the caller's rights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATATYPE_MISMATCH, NOT_SUPPORTED, WRONG_STATE, CerebroError
from cerebro_plpy.store import citus
from cerebro_plpy.store.dialect import HEAP, distributed
from cerebro_plpy.store.names import Table, TargetTable, literal, quote
from cerebro_plpy.store.packed.packed import CLASS_VALUES, Expression, SourceColumn
from cerebro_plpy.store.plain import BINARY_FLOATS, as_texts, element_name

PROBABILITY = (("class_value", "text"), ("prob", "double precision"))
RANK = (("rank", "integer"),)


def class_values(db: Database, summary: Table, dependents: Sequence[str]) -> list[list[str | None] | None]:
    """Return the class values of each dependent variable as texts; None for a variable without classes.

    Floats are written as Python writes them, 1.0 for 1, as MADlib does.
    """
    columns = [name + CLASS_VALUES for name in dependents]
    elements = _elements(db, summary)
    listed = ", ".join(
        f"{as_texts(f's.{quote(name)}', elements[name]) if name in elements else 'NULL::text[]'} AS c{number}"
        for number, name in enumerate(columns)
    )
    row = db.query(f"SELECT {listed} FROM {summary.quoted} AS s")[0]
    return [
        [value and repr(float(value)) for value in row[f"c{number}"] or ()]
        if elements.get(name) in BINARY_FLOATS and row[f"c{number}"] is not None
        else row[f"c{number}"]
        for number, name in enumerate(columns)
    ]


def _elements(db: Database, table: Table) -> dict[str, str]:
    """Return the element type of each column of arrays in a table, by column name."""
    rows = db.query(
        f"SELECT a.attname::text AS name, {element_name('e')} AS element FROM pg_catalog.pg_attribute AS a"
        " JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid"
        " JOIN pg_catalog.pg_type AS e ON e.oid = t.typelem AND t.typcategory = 'A'"
        " WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped",
        ["oid"],
        [table.oid],
    )
    return {row["name"]: row["element"] for row in rows}


def column_type(db: Database, table: Table, column: SourceColumn) -> str:
    """Return a column's type as it is declared, with its length or precision."""
    return db.query(
        "SELECT pg_catalog.format_type(atttypid, atttypmod) AS kind FROM pg_catalog.pg_attribute"
        " WHERE attrelid = $1 AND attname = $2 AND NOT attisdropped",
        ["oid", "name"],
        [table.oid, column.name],
    )[0]["kind"]


@dataclass(frozen=True)
class PredictionOutput:
    """A table of predictions that is to be created."""

    table: TargetTable
    id_name: str
    id_type: str
    has_classes: bool
    has_rank: bool
    prediction_type: str | None

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The columns that follow the id, with their types."""
        columns = [("class_name", "text")]
        if self.has_classes:
            columns += [*PROBABILITY, *(RANK if self.has_rank else ())]
        if self.prediction_type:
            columns.append(("prediction", self.prediction_type))
        return columns


def create(db: Database, output: PredictionOutput, source: Table, comment: str) -> None:
    """Create the empty table of predictions; its id has the type, domain and collation of the source's id."""
    columns = ", ".join(f"NULL::{kind} AS {name}" for name, kind in output.columns)
    db.query(
        f"CREATE TABLE {output.table.quoted}{HEAP} AS SELECT s.{quote(output.id_name)}, {columns}"
        f" FROM {source.quoted} AS s WITH NO DATA{distributed(db, 'RANDOMLY')}"
    )
    db.query(f"COMMENT ON TABLE {output.table.quoted} IS {literal(comment)}")


class PredictionWriter:
    """A writer that inserts batches of predictions. Ids are texts; classes are positions in a list of class
    values."""

    def __init__(self, db: Database, output: PredictionOutput) -> None:
        self._db = db
        self._ranked = output.has_rank
        self._rank = ", rank" if self._ranked else ""
        self._head = f"INSERT INTO {output.table.quoted} ({quote(output.id_name)}, class_name"
        self._id = f"u.id::{output.id_type}"
        self._vector = output.prediction_type == "double precision[]"

    def write_classes(
        self,
        class_name: str,
        values: Sequence[str | None],
        ids: Sequence[str | None],
        places: Sequence[int],
        probabilities: Sequence[float],
        ranks: Sequence[int],
    ) -> None:
        """Insert predictions of one dependent variable with classes; `places` are positions in `values`, from
        0."""
        ranked = ", pg_catalog.unnest($6)" if self._ranked else ""
        self._db.query(
            f"{self._head}, class_value, prob{self._rank})"
            f" SELECT {self._id}, $1, ($2)[u.place + 1], u.prob{self._rank}"
            f" FROM ROWS FROM (pg_catalog.unnest($3), pg_catalog.unnest($4), pg_catalog.unnest($5){ranked})"
            f" AS u (id, place, prob{self._rank})",
            ["text", "text[]", "text[]", "integer[]", "float8[]", *(["integer[]"] if self._ranked else [])],
            [class_name, list(values), ids, places, probabilities, *([ranks] if self._ranked else [])],
        )

    def write_values(
        self, class_name: str, ids: Sequence[str | None], values: Sequence[float], width: int
    ) -> None:
        """Insert predictions of one dependent variable without classes; each row has `width` values."""
        into = f"{self._head}, prediction) SELECT {self._id}, $1,"
        types: list[str] = ["text", "text[]", "float8[]"]
        if self._vector:
            self._db.query(
                f"{into} ($3)[(u.n::integer - 1) * $4 + 1 : u.n::integer * $4]"
                " FROM pg_catalog.unnest($2) WITH ORDINALITY AS u (id, n)",
                [*types, "integer"],
                [class_name, ids, values, width],
            )
            return
        self._db.query(
            f"{into} u.value FROM ROWS FROM (pg_catalog.unnest($2), pg_catalog.unnest($3)) AS u (id, value)",
            types,
            [class_name, ids, values],
        )


@dataclass(frozen=True)
class ModelVersion:
    """The facts by which `unchanged` sees whether a model has changed since it was read.

    They are the place of the model's row, the role that read it, and the places of all rows in the tables
    that describe the model. The place (ctid, xmin and more) of a row differs after any change of the row.
    """

    table: Table
    role: str
    place: tuple[Any, ...]
    # The tables that describe it, and where their rows stood.
    beside: Sequence[str] = ()
    standing: str = ""


_PLACE = ("tid", "xid", "cid", "oid")


def version(db: Database, table: Table, mst_key: int | None) -> ModelVersion:
    """Return the version of a model, by which a later call sees whether the model has changed.

    Raise an error unless exactly one row has this `mst_key` or, if `mst_key` is None, the table has exactly
    one row.
    """
    condition = "m.mst_key = $1" if mst_key is not None else "$1::integer IS NULL"
    try:
        rows = db.query(
            "SELECT current_user::text AS role, m.ctid AS c0, m.xmin AS c1, m.cmin AS c2, m.tableoid AS c3"
            f" FROM {table.quoted} AS m WHERE {condition}",
            ["integer"],
            [mst_key],
        )
    except CerebroError as error:
        raise _no_plain_table(table, error) from None
    if len(rows) != 1:
        raise CerebroError(f"{table.quoted} has {len(rows)} models instead of one", sqlstate=WRONG_STATE)
    place = tuple(rows[0][f"c{number}"] for number in range(len(_PLACE)))
    beside = [
        quoted
        for quoted in (quote(table.schema, table.name + suffix) for suffix in ("_summary", "_info"))
        if db.query("SELECT to_regclass($1) IS NOT NULL AS found", ["text"], [quoted])[0]["found"]
    ]
    return ModelVersion(table, rows[0]["role"], place, beside, _places(db, beside))


def _places(db: Database, tables: Sequence[str]) -> str:
    """Return a text that differs after a change to any row of some tables."""
    each = [standing(table) for table in tables]
    return db.query(f"SELECT concat_ws('/', {', '.join(each) or 'NULL'}) AS found")[0]["found"]


def standing(table: str, *read: str) -> str:
    """Return an SQL expression whose value, a text, differs after any change to the rows of a table.

    The server refuses to compute it unless the current role may read the columns `read`.
    """
    readable = " AND ".join(f"(m.{column} IS NULL) IS NOT NULL" for column in read) or "TRUE"
    return (
        "(SELECT concat(count(*), ' ', sum(hashtextextended("
        "concat_ws(' ', m.tableoid::text, m.ctid::text, m.xmin::text, m.cmin::text), 0)))"
        f" FROM {table} AS m WHERE {readable})"
    )


def _no_plain_table(table: Table, error: CerebroError) -> CerebroError:
    if error.sqlstate not in ("42703", NOT_SUPPORTED):
        return error
    return CerebroError(
        f"{table.quoted} is not a table, so that changes of the model could not be noticed",
        detail=error.message,
        hint="Name the table itself, not a view of it.",
        sqlstate=NOT_SUPPORTED,
    )


def unchanged(db: Database, known: ModelVersion) -> bool:
    """Return whether a model's row, the tables that describe it, and the current role are still as in
    `known`; the caller must have the right to read all of them."""
    rows = db.query(
        f"SELECT current_user::text AS role FROM {known.table.quoted} AS m"
        " WHERE m.ctid = $1 AND m.xmin = $2 AND m.cmin = $3 AND m.tableoid = $4"
        " AND (m.model_weights IS NULL) IS NOT NULL AND (m.model_arch IS NULL) IS NOT NULL",
        _PLACE,
        known.place,
    )
    same = bool(rows) and rows[0]["role"] == known.role
    return same and _places(db, known.beside) == known.standing


@dataclass(frozen=True)
class QueryRows:
    """A caller's query, and the table whose row type the query's rows are converted to."""

    query: str
    columns: Table
    # The columns of that table with their types, lengths included.
    types: Mapping[str, str]
    # Whether a function fetches the rows, so that the statement around it is not Citus'.
    are_fetched: bool

    @property
    def rows(self) -> str:
        """The SQL for the query's rows, with the columns of the table, which are found by name.

        If a column is missing, the server's error has the alias `the_query`, which says where the column was
        looked for.
        """
        each = ((quote(name), kind) for name, kind in self.types.items())
        named = ", ".join(f"the_query.{name}::{kind} AS {name}" for name, kind in each)
        statement = f"SELECT {named} FROM ({self.query}\n) AS the_query"
        if self.are_fetched:
            kind = f"NULL::{self.columns.quoted}"
            return f"cerebro._fetch_rows({literal(statement)}, {kind})"
        return f"({statement})"


def query_rows(db: Database, query: str, row_type: int) -> QueryRows:
    rows = db.query(
        "SELECT c.oid::bigint AS oid, n.nspname::text AS schema, c.relname::text AS name"
        " FROM pg_catalog.pg_type AS t JOIN pg_catalog.pg_class AS c ON c.oid = t.typrelid"
        " JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE t.oid = $1::bigint::oid",
        ["bigint"],
        [row_type],
    )
    if not rows:
        raise CerebroError(
            "row_type is of no table's type",
            hint="Write NULL::customers, where the query gives rows of customers.",
            sqlstate=DATATYPE_MISMATCH,
        )
    found = rows[0]
    table = Table(found["schema"], found["name"], found["oid"], quote(found["schema"], found["name"]))
    # Citus cannot carry out what is made of rows of a table's type.
    return QueryRows(query, table, types_in_full(db, table), are_fetched=citus.is_installed(db))


def types_in_full(db: Database, table: Table) -> dict[str, str]:
    """Return the types of a table's columns by name, with lengths, in a form that is valid in any
    search_path."""
    rows = db.query(
        "SELECT a.attname::text AS name, CASE WHEN a.atttypmod < 0"
        " THEN pg_catalog.format('%I.%I', n.nspname, t.typname)"
        " ELSE pg_catalog.format_type(a.atttypid, a.atttypmod) END AS kind FROM pg_catalog.pg_attribute AS a"
        " JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid"
        " JOIN pg_catalog.pg_namespace AS n ON n.oid = t.typnamespace"
        " WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        ["oid"],
        [table.oid],
    )
    return {row["name"]: row["kind"] for row in rows}


def query_statement(
    rows: QueryRows,
    fields: Sequence[Expression],
    ticket: str,
    most: tuple[int, int],
    key: str | None = None,
    joined: str = "",
) -> str:
    """Return the statement that predicts the rows of a query by `cerebro._predict_batch`, batch by batch.

    `ticket` names the loaded model in this session. `most` is the most rows of a batch, and about the most
    bytes of its rows and their fields. `key` is an SQL expression for the key of a row's group, and `joined`
    a join that the expression needs, if any. `_predict_batch` gets the key as the last of a row's texts.
    """
    named = [(f"c{number}", field.text, field.is_text) for number, field in enumerate(fields)]
    named += [] if key is None else [("key", key, True)]
    each = "".join(f", {text} AS {name}" for name, text, _ in named)
    data, texts = (
        " OPERATOR(pg_catalog.||) ".join(
            f"pg_catalog.array_agg(q.{name})" for name, _, is_one in named if is_one == is_text
        )
        or f"NULL::pg_catalog.{kind}"
        for is_text, kind in ((False, "bytea[]"), (True, "text[]"))
    )
    own = ", ".join(f"s.{quote(name)}" for name in rows.types)
    batch, nbytes = most
    size = " OPERATOR(pg_catalog.+) ".join(
        ["pg_catalog.pg_column_size(r.own)::pg_catalog.float8"]
        + [f"coalesce(pg_catalog.octet_length(r.{name}), 0)::pg_catalog.float8" for name, _, _ in named]
    )
    return (
        "SELECT pg_catalog.unnest(x.own) AS source, pg_catalog.unnest((x.found).classes),"
        " pg_catalog.unnest((x.found).probabilities), pg_catalog.unnest((x.found).predictions) FROM ("
        f" SELECT b.own, cerebro._predict_batch('{ticket}', b.data, b.texts, b.number) AS found FROM ("
        "  SELECT pg_catalog.array_agg(q.own) AS own, pg_catalog.count(*)::integer AS number,"
        f"  {data} AS data, {texts} AS texts FROM ("
        "   SELECT r.*, (pg_catalog.row_number() OVER w OPERATOR(pg_catalog.-) 1)"
        f"   OPERATOR(pg_catalog./) {batch} OPERATOR(pg_catalog.+)"
        f"   pg_catalog.floor(pg_catalog.sum({size}) OVER w"
        f"   OPERATOR(pg_catalog./) {nbytes})::pg_catalog.int8 AS turn FROM ("
        f"    SELECT ROW({own})::{rows.columns.quoted} AS own{each}"
        f"    FROM {rows.rows} AS s {joined} OFFSET 0) AS r"
        "   WINDOW w AS (ROWS UNBOUNDED PRECEDING)) AS q GROUP BY q.turn) AS b OFFSET 0) AS x"
    )
