"""Decides what each named column of a table becomes: an input, classes, one-hot vectors or numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cerebro_plpy.errors import DATATYPE_MISMATCH, UNDEFINED_COLUMN, CerebroError
from cerebro_plpy.features.encode import FLOATS, INTEGERS, NUMBERS
from cerebro_plpy.madlib.nearest import nearest
from cerebro_plpy.packing.columns.grammar import Item, parse_items
from cerebro_plpy.store.packed.packed import ARRAY, BYTES, TEXT, VECTOR, Expression, SourceColumn

CLASSES, ONE_HOT, VALUES = "classes", "one-hot vectors", "numbers"
# numeric travels as double precision: its own format has no fixed width.
NUMPY = {
    "bool": "=u1",
    "int2": "=i2",
    "int4": "=i4",
    "int8": "=i8",
    "float4": "=f4",
    "float8": "=f8",
    "numeric": "=f8",
}


@dataclass(frozen=True)
class SourcePart:
    """One column of the packed table, with the source columns that it is made of."""

    name: str
    columns: tuple[SourceColumn, ...]
    kind: str  # CLASSES, ONE_HOT or VALUES

    @property
    def is_vector_of_columns(self) -> bool:
        """Whether the packed column is a vector of plain source columns."""
        return not self.first.is_array and not self.is_bytea and self.kind != CLASSES

    @property
    def is_bytea(self) -> bool:
        return self.first.element == "bytea" and self.kind != CLASSES

    @property
    def first(self) -> SourceColumn:
        return self.columns[0]

    @property
    def expression(self) -> Expression:
        """The SQL expression that reads the values of the packed column from its source."""
        if self.kind == CLASSES:
            return Expression(TEXT, self.columns)
        if self.is_bytea:
            return Expression(BYTES, self.columns)
        return Expression(VECTOR if self.is_vector_of_columns else ARRAY, self.columns)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The SQL expressions that read the packed column: here only one (`FeaturePart` has several)."""
        return (self.expression,)

    @property
    def numpy_source(self) -> str:
        """NumPy's name of the element type of the values that the server sends."""
        if self.is_bytea:
            return "=u1"
        return "=f8" if self.is_vector_of_columns else NUMPY[self.first.element]

    @property
    def shown_type(self) -> str:
        if len(self.columns) == 1:
            return self.first.shown_type
        return "double precision[]" if self.kind == VALUES else "smallint[]"

    @property
    def base_type(self) -> str:
        """The SQL type of the packed column's class values."""
        if self.is_vector_of_columns and len(self.columns) > 1:
            return "double precision"
        return self.first.base_type.removesuffix("[]")


def inputs(items: Sequence[Item], known: Mapping[str, SourceColumn], table: str) -> list[SourcePart]:
    """Return the inputs: plain columns form one vector; each array, bytea or ARRAY[…] is an input itself."""
    found = [(item, tuple(find_column(name, known, table) for name in item.columns)) for item in items]
    for item, columns in found:
        for column in columns:
            _check_input(column, item)
    plain = [column for item, (column, *_) in found if not item.bundled and _is_plain(column)]
    if len(plain) == len(found):
        name = plain[0].name if len(plain) == 1 else "independent_var"
        return [SourcePart(name, tuple(plain), VALUES)]
    if plain:
        raise CerebroError(
            f'independent_varname mixes plain columns ("{plain[0].name}") with arrays or bytea',
            hint="Write ARRAY[…] around plain columns that are one input.",
            sqlstate=DATATYPE_MISMATCH,
        )
    names = _names([item for item, _ in found], "independent_var")
    return [SourcePart(name, columns, VALUES) for name, (_, columns) in zip(names, found, strict=True)]


def outputs(
    items: Sequence[Item], known: Mapping[str, SourceColumn], table: str, tasks: Sequence[str | None]
) -> list[SourcePart]:
    """Return the label columns of the packed table; `tasks` overrides what the columns' types suggest."""
    names = _names(items, "dependent_var")
    parts = []
    for item, name, task in zip(items, names, tasks, strict=True):
        columns = tuple(find_column(column, known, table) for column in item.columns)
        parts.append(SourcePart(name, columns, _output_kind(item, columns, task)))
    return parts


def _output_kind(item: Item, columns: tuple[SourceColumn, ...], task: str | None) -> str:
    for column in columns:
        _check_output(column, item, task)
    integral = all(column.element in (*INTEGERS, "bool") for column in columns)
    if item.bundled or columns[0].is_array:
        classify = task == "classification" if task else integral
        return ONE_HOT if classify else VALUES
    if task:
        return CLASSES if task == "classification" else VALUES
    return VALUES if columns[0].element in FLOATS else CLASSES


def _check_output(column: SourceColumn, item: Item, task: str | None) -> None:
    numeric = column.element in (*NUMBERS, "bool")
    if not numeric and task == "regression":
        raise _type_error(
            column, "cannot be a regression target", "Regression needs numbers or arrays of numbers."
        )
    if not numeric and (column.is_array or item.bundled):
        raise _type_error(column, "cannot be a label", "Arrays as labels must be one-hot vectors or numbers.")
    if item.bundled and column.is_array:
        raise _type_error(column, "cannot stand in ARRAY[…]", "Only plain columns can.")
    if not numeric and not column.sortable:
        raise _type_error(column, "cannot be a label", "Its type has no order. Cast it to text in a view.")


def _check_input(column: SourceColumn, item: Item) -> None:
    if item.bundled and (column.is_array or column.element not in NUMBERS):
        raise _type_error(column, "cannot stand in ARRAY[…]", "Only plain numeric columns can.")
    if column.element not in NUMBERS and (column.element != "bytea" or column.is_array):
        raise _type_error(
            column,
            "cannot be an input",
            "Inputs are numeric arrays, bytea images or plain numeric columns."
            ' The option columns prepares text, dates and others: options => \'{"columns": "auto"}\'.',
        )


def _type_error(column: SourceColumn, problem: str, hint: str) -> CerebroError:
    return CerebroError(
        f'column "{column.name}" of type {column.shown_type} {problem}', hint=hint, sqlstate=DATATYPE_MISMATCH
    )


def _is_plain(column: SourceColumn) -> bool:
    return not column.is_array and column.element != "bytea"


def find_named(
    text: str | None, parameter: str, known: Mapping[str, SourceColumn], table: str
) -> SourceColumn:
    """Return the single column that a parameter names; raise an error if it names several or none."""
    (item, *more) = parse_items(text, parameter, known)
    if more or item.bundled:
        raise CerebroError(f"{parameter} {text} is not one column")
    return find_column(item.columns[0], known, table)


def find_column(name: str, known: Mapping[str, SourceColumn], table: str) -> SourceColumn:
    if name in known:
        return known[name]
    match = nearest(name, known)
    raise CerebroError(
        f'column "{name}" does not exist in {table}',
        hint=f'Did you mean "{match}"? Names with capitals need double quotes.' if match else None,
        sqlstate=UNDEFINED_COLUMN,
    )


def _names(items: Sequence[Item], bundle: str) -> list[str]:
    """Return a name for each item: the column's, or, for ARRAY[…], `bundle`, then `bundle`2, and so on."""
    names = []
    bundles = 0
    for item in items:
        bundles += item.bundled
        names.append(item.columns[0] if not item.bundled else bundle + (str(bundles) if bundles > 1 else ""))
    return names
