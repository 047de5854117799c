"""All SQL about packed tables: reading rows to pack, writing and reading buffers and the summary."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cerebro_plpy.database import Database, Row
from cerebro_plpy.errors import UNDEFINED_TABLE, WRONG_STATE, CerebroError
from cerebro_plpy.features.specification import Specification
from cerebro_plpy.features.specification import read as read_specification
from cerebro_plpy.store import citus, plain, user_code
from cerebro_plpy.store.dialect import HEAP, distributed
from cerebro_plpy.store.names import LONGEST, Table, TargetTable, literal, quote, resolve_table
from cerebro_plpy.store.packed import append, stored_features
from cerebro_plpy.store.packed.append import VERSIONS, PackedVersion
from cerebro_plpy.store.packed.stored_features import StoredFeatures

if TYPE_CHECKING:
    import numpy as np

SUMMARY = "_summary"
SHAPE = "_shape"
CLASS_VALUES, CLASS_COUNTS = "_class_values", "_class_counts"
KEY = "__dist_key__"
# The number of distribution keys, from 0: cerebro._segment_key has them.
KEYS = 16384
BUFFER = "buffer_id"
# The weight of each row.
WEIGHT = "__weight__"
# The fold that a buffer's rows are in, from 1.
FOLD = "__fold__"
# The groups of a buffer's rows in their order, each with its number, from 1, and how many rows it has.
GROUPS = "__groups__"
# The number of a group in the table of groups.
GROUP = "__group__"
_HINT = "Make it with cerebro.training_preprocessor_dl() or cerebro.validation_preprocessor_dl()."


@dataclass(frozen=True)
class SourceColumn:
    """A column of the user's table, with domains resolved to their base types."""

    name: str
    element: str  # catalog name of the type, or of an array's elements
    is_array: bool
    base_type: str
    shown_type: str
    sortable: bool
    is_enum: bool = False

    @property
    def value(self) -> str:
        """The SQL expression for this column of a row s."""
        return f"s.{quote(self.name)}"


TEXT, BYTES, ARRAY, VECTOR = "text", "bytes", "array", "vector"
# NUMBERS is VECTOR with NaN for NULL; PLAIN is TEXT that does not depend on the session's settings.
NUMBERS, PLAIN = "numbers", "plain"
# All columns of the expression together, as the JSON text of a row.
ROW = "row"
DATES = ("date", "timestamp", "timestamptz", "time", "timetz", "interval")


@dataclass(frozen=True)
class Expression:
    """An SQL expression over columns of the rows to be packed; `how` says in which form it returns values."""

    how: str
    columns: tuple[SourceColumn, ...]

    @property
    def is_text(self) -> bool:
        return self.how in (TEXT, PLAIN, ROW)

    @property
    def text(self) -> str:
        """The expression in SQL."""
        return _text(self)


def columns_of(db: Database, table: Table) -> dict[str, SourceColumn]:
    """Return the columns of a table or view by name, with domains resolved to their base types."""
    rows = db.query(
        f"""WITH RECURSIVE base AS (
               SELECT attname, attnum, atttypid AS shown, atttypid AS type
                 FROM pg_catalog.pg_attribute
                WHERE attrelid = $1::oid AND attnum > 0 AND NOT attisdropped
               UNION ALL
               SELECT b.attname, b.attnum, b.shown, t.typbasetype
                 FROM base b JOIN pg_catalog.pg_type t ON t.oid = b.type WHERE t.typtype = 'd')
           SELECT b.attname AS name, pg_catalog.format_type(b.shown, NULL) AS shown_type,
                  pg_catalog.format_type(b.type, -1) AS base_type,
                  CASE WHEN t.typtype = 'c' THEN 'record' WHEN e.oid IS NULL THEN {plain.element_name("t")}
                  ELSE {plain.element_name("e")} END AS element,
                  e.oid IS NOT NULL AS is_array,
                  t.typcategory IN ('S', 'E') OR EXISTS (
                      SELECT FROM pg_catalog.pg_opclass o JOIN pg_catalog.pg_am m ON m.oid = o.opcmethod
                       WHERE m.amname = 'btree' AND o.opcdefault AND o.opcintype = t.oid) AS sortable,
                  t.typtype = 'e' AS is_enum
             FROM base b JOIN pg_catalog.pg_type t ON t.oid = b.type
             LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
            WHERE t.typtype <> 'd' ORDER BY b.attnum""",
        ("oid",),
        (table.oid,),
    )
    return {row["name"]: SourceColumn(**row) for row in rows}


def _text(expression: Expression) -> str:
    """Return an expression in SQL, with qualified names, since it may run with the caller's search_path."""
    first = expression.columns[0]
    match expression.how:
        case "text":
            return plain.as_text(first.value, first.element)
        case "plain":
            return as_text(first)
        case "bytes":
            return first.value
        case "vector":
            return f"cerebro._array_bytes(ARRAY[{', '.join(map(as_double, expression.columns))}])"
        case "numbers":
            filled = (f"coalesce({as_double(column)}, 'NaN')" for column in expression.columns)
            return f"cerebro._array_bytes(ARRAY[{', '.join(filled)}])"
        case "row":
            values = ", ".join(column.value for column in expression.columns)
            return f"(SELECT {plain.as_json('r.*')} FROM (SELECT {values}) AS r)"
    # numeric has no fixed width that could be read from its bytes; vectors are no arrays.
    bases = {"numeric": "double precision[]", "vector": "real[]", "halfvec": "real[]"}
    return f"cerebro._array_bytes({first.value}::{bases.get(first.element, first.base_type)})"


def as_double(column: SourceColumn) -> str:
    """Return the SQL for a column's value as a number; a date or time becomes seconds since 1970."""
    if column.element in DATES:
        # extract() would make a numeric of it first, which takes ten times as long.
        return f"pg_catalog.date_part('epoch', {column.value})"
    through = "::integer" if column.element == "bool" else ""
    return f"{column.value}{through}::double precision"


def as_text(column: SourceColumn) -> str:
    """Return the SQL for a column's value as text, in the form that it has in the JSON of its row."""
    return plain.as_json_text(column.value, column.element)


def select_rows(source: Table, expressions: Sequence[Expression]) -> str:
    """Return the statement that reads the expressions from each row of a table, as columns c0, c1 …"""
    columns = ", ".join(f"{_text(expression)} AS c{number}" for number, expression in enumerate(expressions))
    return f"SELECT {columns} FROM {source.rows}"


def first_row(db: Database, statement: str) -> Row | None:
    """Return the first row of a statement, which shows the shapes of its arrays; None if it has no rows."""
    rows = db.query(f"{statement} LIMIT 1")
    return rows[0] if rows else None


@dataclass(frozen=True)
class PackedOutput:
    """A packed table that is to be created."""

    table: TargetTable
    dependents: Sequence[str]
    independents: Sequence[str]
    segments: int
    # On Greenplum, the distribution key of each segment.
    dist_keys: Sequence[int] | None = None
    weighted: bool = False
    folded: bool = False
    grouped: bool = False

    @property
    def part_columns(self) -> list[tuple[str, str]]:
        """The column for a buffer's fold or groups, with its type; none if the rows have neither."""
        fold = [(FOLD, "integer")] if self.folded else []
        return [*fold, *([(GROUPS, "integer[]")] if self.grouped else [])]

    @property
    def columns(self) -> list[str]:
        return [*self.dependents, *self.independents, *([WEIGHT] if self.weighted else [])]

    @property
    def partitions(self) -> list[str]:
        """The names of the partitions, shortened if too long; none if rows are distributed by keys."""
        if self.dist_keys is not None:
            return []
        return [_cut(self.table.name, f"_{key}") + f"_{key}" for key in range(self.segments)]


def _cut(name: str, suffix: str) -> str:
    return name.encode()[: LONGEST - len(suffix)].decode(errors="ignore")


def create(db: Database, output: PackedOutput, comment: str) -> None:
    """Create the empty packed table and its partitions."""
    columns = "".join(f", {quote(name)} bytea, {quote(name + SHAPE)} integer[]" for name in output.columns)
    table = output.table.quoted
    parted = (
        f" PARTITION BY LIST ({KEY})" if output.dist_keys is None else HEAP + distributed(db, f"BY ({KEY})")
    )
    parts = "".join(f", {name} {kind}" for name, kind in output.part_columns)
    db.query(f"CREATE TABLE {table} ({KEY} integer{columns}, {BUFFER} integer{parts}){parted}")
    # Floats do not compress; one-hot labels do.
    external = ", ".join(f"ALTER COLUMN {quote(name)} SET STORAGE EXTERNAL" for name in output.independents)
    db.query(f"ALTER TABLE {table} {external}")
    if output.dist_keys is not None:
        citus.lay_out(db, table, KEY)
    for key, partition in enumerate(output.partitions):
        db.query(
            f"CREATE TABLE {quote(output.table.schema, partition)} PARTITION OF {table}"
            f" FOR VALUES IN ({key}){HEAP}"
        )
    _comment(db, table, comment)


def _comment(db: Database, table: str, comment: str) -> None:
    db.query(f"COMMENT ON TABLE {table} IS {literal(comment)}")


# The bytes of an array and its shape.
Field = tuple[bytes, list[int]]


def as_field(array: np.ndarray) -> Field:
    return array.tobytes(), list(array.shape)


class PackedWriter:
    """A writer that inserts buffers into a packed table."""

    def __init__(self, db: Database, output: PackedOutput) -> None:
        self._db = db
        names = "".join(f", {quote(name)}, {quote(name + SHAPE)}" for name in output.columns)
        count = len(output.columns)
        last = [(BUFFER, "integer"), *output.part_columns]
        places = ", ".join(f"${number}" for number in range(1, 2 * count + 2 + len(last)))
        self._statement = (
            f"INSERT INTO {output.table.quoted} ({KEY}{names},"
            f" {', '.join(name for name, _ in last)}) VALUES ({places})"
        )
        self._types = ("integer", *("bytea", "integer[]") * count, *(kind for _, kind in last))
        self._keys = range(output.segments) if output.dist_keys is None else output.dist_keys

    def write(self, segment: int, fields: Sequence[Field], buffer_id: int, part: object = None) -> None:
        """Insert a buffer into the partition of a segment; `part` is the buffer's fold or groups."""
        pairs = [value for field in fields for value in field]
        last = (buffer_id,) if part is None else (buffer_id, part)
        self._db.query(self._statement, self._types, (self._keys[segment], *pairs, *last))


@dataclass(frozen=True)
class PackedSummary:
    """The one row of a packed table's summary, and the shapes of the table's rows.

    Lists have one element per dependent or independent variable. Class values are texts, or None for a
    variable that has no classes.
    """

    source_table: str
    output_table: str
    dependent_varname: list[str]
    independent_varname: list[str]
    dependent_vartype: list[str]
    class_values: list[list[str | None] | None]
    buffer_size: int
    normalizing_const: float
    num_classes: list[int | None]
    distribution_rules: str
    internal_gpu_config: str
    segments: int
    seed: int
    total_rows: int
    class_value_types: dict[str, str]
    quoted: str = ""
    # On Greenplum and Citus, the distribution key of each segment's rows; on PostgreSQL the segment itself.
    dist_keys: list[int] | None = None
    target_shapes: list[list[int]] = field(default_factory=list)
    input_shapes: list[list[int]] = field(default_factory=list)
    # How many rows each class has, as class values; None where nobody has counted.
    class_counts: Sequence[list[int] | None] = ()
    # The feature specification, if the columns were prepared.
    features: Specification | None = None
    # The column that said what each row counts.
    weight_varname: str | None = None
    # How many folds the rows were packed in; none where they were not.
    folds: int | None = None
    # The columns whose values make groups; none where rows were not packed in groups.
    group_by: list[str] | None = None
    # The rows that each call has packed; tables of earlier releases do not say.
    versions: Sequence[PackedVersion] = ()
    # The origin of a table of features: names and shapes above are then those of the net's inputs.
    stored: StoredFeatures | None = None
    # On Citus, the shapes as they are stored.
    shapes: str | None = None

    @property
    def feature_specification(self) -> str | None:
        """The feature specification as JSON text, the form in which it is stored."""
        return None if self.features is None else self.features.as_json()

    @property
    def features_of(self) -> str | None:
        return None if self.stored is None else self.stored.as_json()

    @property
    def packed_versions(self) -> str | None:
        """The versions of the packed table as JSON text, the form in which they are stored."""
        return append.as_json(self.versions)

    @property
    def version(self) -> int:
        return max(1, len(self.versions))

    @property
    def below(self) -> int | None:
        """The bound of the newest version, whose buffers have lower numbers; None without versions."""
        return self.versions[-1].below if self.versions else None

    @property
    def keys(self) -> Sequence[int]:
        """The value of `__dist_key__` for each segment."""
        return range(self.segments) if self.dist_keys is None else self.dist_keys

    @property
    def one_hot(self) -> list[bool]:
        """For each dependent variable: True if its buffers hold one-hot int16, False for float32."""
        return [width is not None for width in self.num_classes]


_PLAIN = (
    ("buffer_size", "integer"),
    ("normalizing_const", "real"),
    ("num_classes", "integer[]"),
    ("distribution_rules", "text"),
    ("__internal_gpu_config__", "text"),
    ("segments", "integer"),
    ("seed", "bigint"),
    ("total_rows", "bigint"),
)
_HEAD = (
    ("source_table", "text"),
    ("output_table", "text"),
    ("dependent_varname", "text[]"),
    ("independent_varname", "text[]"),
    ("dependent_vartype", "text[]"),
)


_PLACED = (("__dist_keys__", "integer[]"),)
# The shape of a row in each column: on Citus, looking at a buffer makes the transaction one of its worker.
_SHAPES = ("__shapes__", "jsonb")
# Tables that were packed by earlier versions lack it.
FEATURES = ("feature_specification", "jsonb")
_WEIGHT_NAME = ("weight_varname", "text")
_FOLDS = ("folds", "integer")
_GROUP_BY = ("group_by", "text[]")
_AS_JSON = (FEATURES[0], VERSIONS[0], stored_features.FEATURES_OF[0], _SHAPES[0])


def _field(column: str) -> str:
    return column.strip("_")


def write_summary(db: Database, output: PackedOutput, summary: PackedSummary, comment: str) -> None:
    """Create the summary of a packed table, and insert its row."""
    table = quote(output.table.schema, output.table.name + SUMMARY)
    classes = list(summary.class_value_types.items())
    counts = [(name + CLASS_COUNTS, "bigint[]") for name in summary.dependent_varname]
    plain = (*_PLAIN, FEATURES, _WEIGHT_NAME, VERSIONS, *([_FOLDS] if summary.folds else []))
    plain += (_GROUP_BY,) if summary.group_by else ()
    plain += (stored_features.FEATURES_OF,) if summary.stored else ()
    plain += () if summary.dist_keys is None else _PLACED
    if summary.dist_keys is not None and citus.is_distributed(db):
        names = _list_shaped(summary.dependent_varname, summary.independent_varname, summary.stored)
        summary = replace(summary, shapes=json.dumps(_find_shapes(db, output.table.quoted, names)))
        plain += (_SHAPES,)
    columns = [*_HEAD, *classes, *counts, *plain]
    listed = ", ".join(f"{quote(name)} {kind}" for name, kind in columns)
    db.query(f"CREATE TABLE {table} ({listed}){HEAP}{distributed(db, 'REPLICATED')}")
    if summary.dist_keys is not None:
        citus.lay_out(db, table)
    types = [kind for _, kind in _HEAD] + ["text[]"] * len(classes) + [kind for _, kind in (*counts, *plain)]
    casts = ", ".join(f"${number}::{kind}" for number, (_, kind) in enumerate(columns, 1))
    values = [getattr(summary, _field(name)) for name, _ in _HEAD]
    values += [*summary.class_values, *(summary.class_counts or [None] * len(counts))]
    values += [getattr(summary, _field(name)) for name, _ in plain]
    db.query(f"INSERT INTO {table} SELECT {casts}", types, values)
    _comment(db, table, comment)


def summary(db: Database, schema: str | None, name: str) -> PackedSummary:
    """Return the summary of a packed table; without a schema, the session's search_path finds it."""
    table = quote(name) if schema is None else quote(schema, name)
    quoted = quote(name + SUMMARY) if schema is None else quote(schema, name + SUMMARY)
    present = _summary_columns(db, table, quoted)
    user_code.refuse_code(db, [resolve_table(db, table), resolve_table(db, quoted)])
    wanted = [column for column, _ in (*_HEAD, *_PLAIN)]
    missing = [column for column in wanted if column not in present]
    if missing:
        raise CerebroError(
            f"{table} was not packed by this extension",
            detail=f"Its summary lacks {', '.join(missing)}.",
            hint=_HINT,
            sqlstate=WRONG_STATE,
        )
    wanted += [column for column, _ in (_WEIGHT_NAME, _FOLDS, _GROUP_BY, *_PLACED) if column in present]
    listed = [quote(column) for column in wanted]
    listed += [f"{name if name in present else 'NULL'}::text AS {name}" for name in _AS_JSON]
    row = dict(_only_row(db, quoted, f"SELECT {', '.join(listed)} FROM {quoted}"))
    features, versions, origin, shapes = (row.pop(name) for name in _AS_JSON)
    if (row["segments"] or 0) < 1:
        raise CerebroError(
            f"{quoted} says that {table} has {row['segments']} segments", hint=_HINT, sqlstate=WRONG_STATE
        )
    dependents, independents = row["dependent_varname"], row["independent_varname"]
    stored = None if origin is None else stored_features.read(json.loads(origin))
    names = _list_shaped(dependents, independents, stored)
    known = json.loads(shapes or "null") or _find_shapes(db, table, names)
    if known is None:
        raise CerebroError(f"packed table {table} is empty", hint=_HINT, sqlstate=WRONG_STATE)
    inputs = known[len(dependents) :] if stored is None else [list(s) for s in stored.input_shapes]
    types = {column: present[column] for column in (d + CLASS_VALUES for d in dependents)}
    values, counts = _classes(db, quoted, types, [d + CLASS_COUNTS for d in dependents], present)
    return PackedSummary(
        **{_field(column): value for column, value in row.items()},
        class_values=values,
        class_counts=counts,
        class_value_types=types,
        quoted=quoted,
        features=None if features is None else read_specification(features),
        versions=() if versions is None else append.read(json.loads(versions)),
        target_shapes=known[: len(dependents)],
        input_shapes=inputs,
        stored=stored,
    )


def _summary_columns(db: Database, table: str, quoted: str) -> dict[str, str]:
    rows = db.query(
        """SELECT attname::text, pg_catalog.format_type(atttypid, -1) AS kind
             FROM pg_catalog.pg_attribute
            WHERE attrelid = pg_catalog.to_regclass($1) AND attnum > 0 AND NOT attisdropped""",
        ("text",),
        (quoted,),
    )
    if not rows:
        raise CerebroError(
            f"{table} is not a packed table: its summary {quoted} does not exist",
            hint=_HINT,
            sqlstate=UNDEFINED_TABLE,
        )
    return {row["attname"]: row["kind"] for row in rows}


def _only_row(db: Database, table: str, statement: str) -> Row:
    rows = db.query(statement)
    if len(rows) != 1:
        raise CerebroError(f"{table} has {len(rows)} rows instead of one", hint=_HINT, sqlstate=WRONG_STATE)
    return rows[0]


def _classes(
    db: Database, quoted: str, types: Mapping[str, str], counts: Sequence[str], present: Mapping[str, str]
) -> tuple[list[list[str | None] | None], list[list[int] | None]]:
    """Return the class values and counts of each dependent variable; old tables have no counts."""
    listed = [
        f"{plain.as_texts(f's.{quote(name)}', kind.removesuffix('[]'))} AS v{i}"
        for i, (name, kind) in enumerate(types.items())
    ]
    listed += [
        f"{f's.{quote(name)}' if name in present else 'NULL'}::bigint[] AS c{i}"
        for i, name in enumerate(counts)
    ]
    row = db.query(f"SELECT {', '.join(listed)} FROM {quoted} AS s")[0]
    return [row[f"v{i}"] for i in range(len(types))], [row[f"c{i}"] for i in range(len(counts))]


def _list_shaped(
    dependents: Sequence[str], independents: Sequence[str], stored: StoredFeatures | None
) -> list[str]:
    """Return the columns whose shapes must be found: all, or only `dependents` if `stored` has the others."""
    return [*dependents, *(independents if stored is None else [])]


def _find_shapes(db: Database, table: str, columns: Sequence[str]) -> list[list[int]] | None:
    """Return the shape of one row in each column, taken from any buffer; None if the table is empty."""
    names = ", ".join(f"{quote(name + SHAPE)} AS s{number}" for number, name in enumerate(columns))
    rows = db.query(f"SELECT {names} FROM {table} LIMIT 1")
    return [list(rows[0][f"s{number}"][1:]) for number in range(len(columns))] if rows else None
