"""Loads rows from the client, such as a data frame, into tables on the server, and predicts them there."""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_db import frames, link, stored
from cerebro_db.errors import CerebroError, needs, other_file
from cerebro_db.statements import Columns, call, identifier, is_missing, table_name

if TYPE_CHECKING:
    import pandas

    from cerebro_db.protocols import Predictor, Server

NUMBER = "__row__"
_KINDS = {
    "i": "bigint",
    "u": "bigint",
    "f": "double precision",
    "b": "boolean",
    "M": "timestamp",
    "m": "interval",
}
# The SQL type of a column of objects that all are of one of these types. A bool is an int as well.
_OBJECTS: Mapping[type, str] = {
    bool: "boolean",
    int: "bigint",
    float: "double precision",
    decimal.Decimal: "numeric",
    datetime.datetime: "timestamp",
    datetime.date: "date",
    datetime.timedelta: "interval",
    bytes: "bytea",
    str: "text",
}
_NUMBERS = (int, float, decimal.Decimal)
_LARGEST = 2**63 - 1


class _Nothing(int):
    """NULL in a CSV file: csv writes it without quotes, since it is a number, and each text with them."""

    def __str__(self) -> str:
        return r"\N"


_NOTHING = _Nothing()


def load(db: Server, table: str, source: Any) -> int:
    """Create a table from a data frame, dict of arrays, Parquet or NPZ file; return the number of rows."""
    columns = read(source)
    number = _length(columns)
    with db.session() as connection:
        link.execute(connection, f"CREATE TABLE {table_name(table)} ({_definition(columns)})")
        copy(connection, table, columns)
    return number


def is_table(source: Any) -> bool:
    """Return whether `source` is the name of a table; otherwise it has rows or is the name of a file."""
    return isinstance(source, str) and not source.endswith((".npz", ".parquet"))


def chosen(source: Any, x: Columns | None, y: Columns | None) -> tuple[dict[str, Any], Columns, Columns]:
    """Return the columns that `x` and `y` name, then `x` and `y`; raise an error if values are missing.

    Without `x`, all columns except those of `y` are features.
    """
    found = read(source)
    if not y:
        raise CerebroError("y names the column of labels", hint=f"There are {', '.join(found)}.")
    labels = _flat(y)
    x = x or [name for name in found if name not in labels]
    wanted = [*_flat(x), *labels]
    missing = [name for name in wanted if name not in found]
    if missing:
        raise CerebroError(f"there is no column {', '.join(missing)}", hint=f"There are {', '.join(found)}.")
    for name in wanted:
        _refuse_nothing(name, found[name], is_feature=name not in labels)
    return {name: found[name] for name in wanted}, x, y


def _flat(columns: Columns) -> list[str]:
    if isinstance(columns, str):
        return [columns]
    return [name for item in columns for name in ([item] if isinstance(item, str) else item)]


def _refuse_nothing(name: str, values: Any, *, is_feature: bool) -> None:
    """Raise CerebroError if a column has NaN or infinity, or if a feature has None; a label may have None."""
    import numpy as np

    if values.dtype.kind == "f":
        lacks = ~np.isfinite(values)
    elif is_feature and values.dtype.kind == "O":
        lacks = np.array([is_missing(value) for value in values if np.ndim(value) == 0])
    else:
        return
    lacks = lacks.reshape(len(lacks), -1).any(axis=1) if len(lacks) else lacks
    if lacks.any():
        raise CerebroError(
            f"the column {name} holds NaN, infinity or nothing in {lacks.sum()} of {len(values)} rows",
            detail=f"The first is row {lacks.argmax()}, counted from 0.",
            hint="Leave such rows out with dropna(), or fill them with fillna().",
        )


def read(source: Any) -> dict[str, Any]:
    """Return the columns of a data frame, a dict of arrays or a file as NumPy arrays, by name."""
    import numpy as np

    if isinstance(source, str | Path):
        return _read_file(Path(source))
    if isinstance(source, Mapping):
        return {str(name): np.asarray(values) for name, values in source.items()}
    if not hasattr(source, "columns"):
        raise CerebroError(
            f"a {type(source).__name__} is no table of columns",
            hint="Give a data frame, such as series.to_frame(), a dict of arrays, or a file.",
        )
    return {str(name): _of_series(source[name]) for name in source.columns}


def _of_series(series: Any) -> Any:
    """Return a column of a data frame as an array: missing floats as NaN, times with a zone in UTC.

    Integers and booleans of which some are missing are objects, with None for these.
    """
    kind, types = series.dtype, frames.library().api.types
    if getattr(kind, "tz", None) is not None:
        return series.dt.tz_convert(None).to_numpy()
    if types.is_extension_array_dtype(kind) and types.is_numeric_dtype(kind):
        if types.is_float_dtype(kind):
            return series.to_numpy("float64", na_value=float("nan"))
        if series.isna().any():
            return series.astype(object).where(series.notna(), None).to_numpy()
        return series.to_numpy(kind.numpy_dtype)
    return series.to_numpy()


def _read_file(path: Path) -> dict[str, Any]:
    if path.suffix == ".npz":
        import numpy as np

        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    if path.suffix == ".parquet":
        try:
            return read(frames.library().read_parquet(path))
        except ImportError:
            raise needs("parquet", "pyarrow, which Parquet is read with,") from None
    raise other_file(path, ".parquet", ".npz")


def _length(columns: Mapping[str, Any]) -> int:
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1:
        raise CerebroError(f"the columns have {sorted(lengths)} rows, and must have the same number")
    return lengths.pop()


def _definition(columns: Mapping[str, Any]) -> str:
    return ", ".join(f"{identifier(name)} {_kind(name, values)}" for name, values in columns.items())


def _kind(name: str, values: Any) -> str:
    """Return the SQL type for a column of values: a number type, an array type, bytea, or otherwise text."""
    kind = values.dtype.kind
    if values.ndim > 1 and kind not in "iufb":
        raise CerebroError(
            f"the column {name} has an array of {values.dtype} in each row",
            hint="Give arrays of numbers.",
        )
    if values.ndim > 1:
        return "real[]" if kind == "f" else f"{_KINDS[kind]}[]"
    return _KINDS[kind] if kind in _KINDS else _kind_of_objects(values)


def _kind_of_objects(values: Any) -> str:
    """Return the SQL type for values of any types: text if they have several that no other type has."""
    found = [value.item() if hasattr(value, "item") and not getattr(value, "ndim", 0) else value
             for value in values if getattr(value, "ndim", 0) or not is_missing(value)]  # fmt: skip
    types = {type(value) for value in found}
    if any(hasattr(one, "__len__") and not issubclass(one, str | bytes) for one in types):
        return _kind_of_arrays(found)
    if len(types) > 1 and types <= {*_NUMBERS}:
        return "double precision" if float in types else "numeric"
    if types == {int} and any(abs(value) > _LARGEST for value in found):
        return "numeric"
    if types == {datetime.datetime} and any(value.tzinfo is not None for value in found):
        return "timestamptz"
    one = next(iter(types)) if len(types) == 1 else str
    return next((sql for kind, sql in _OBJECTS.items() if issubclass(one, kind)), "text")


def _kind_of_arrays(values: Sequence[Any]) -> str:
    """Return the SQL type for arrays or lists: floats, unless all have integers, or all have booleans."""
    import numpy as np

    try:
        kinds = {np.asarray(one).dtype.kind for one in values}
    except ValueError:  # Lists of several lengths, which the server refuses.
        return "real[]"
    if kinds <= {"i", "u"}:
        return "bigint[]"
    return "boolean[]" if kinds == {"b"} else "real[]"


def copy(connection: link.Connection, table: str, columns: Mapping[str, Any]) -> None:
    """Copy columns into an existing table."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerows(zip(*(_fields(values) for values in columns.values()), strict=True))
    text.seek(0)
    listed = ", ".join(map(identifier, columns))
    options = f"FORMAT csv, NULL '{_NOTHING}'"
    link.copy(connection, f"COPY {table_name(table)} ({listed}) FROM STDIN WITH ({options})", text)


def _fields(values: Any) -> Iterator[Any]:
    if values.dtype.kind == "m":
        values = values.astype("timedelta64[us]")
    # Some versions of NumPy write their own scalars differently.
    return (_field(value) for value in (values if values.dtype.kind in "OM" else values.tolist()))


def _field(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if hasattr(value, "tolist") and getattr(value, "ndim", 0):
        value = value.tolist()
    if isinstance(value, list | tuple):
        items = map(_field, value)
        return "{" + ",".join("NULL" if item is _NOTHING else str(item) for item in items) + "}"
    if is_missing(value):
        return _NOTHING
    if isinstance(value, datetime.timedelta):
        return f"{value.days} days {value.seconds}.{value.microseconds:06d} seconds"
    return value


def predict(config: Predictor, given: Any, x: Columns | None) -> pandas.DataFrame:
    """Predict the rows in `given`: return for each its most probable class and probability, or a number."""
    index, found = _predicted(config, given, x, "response")
    columns = {"class_value": "class", "prob": "probability", "prediction": "prediction"}
    kept = [name for name in columns if name in found.columns]
    named = {columns[name]: found[name].to_numpy() for name in kept}
    return frames.library().DataFrame(named, index=index)


def probabilities(config: Predictor, given: Any, x: Columns | None) -> pandas.DataFrame:
    """Return the probability of every class for the rows in `given`, with a column for each class."""
    index, found = _predicted(config, given, x, "prob")
    if "prob" not in found.columns:
        raise CerebroError(f"config {config.mst_key} predicts numbers, and not classes")
    return found.pivot(index=NUMBER, columns="class_value", values="prob").set_axis(index)


def _predicted(config: Predictor, given: Any, x: Columns | None, kind: str) -> tuple[Any, pandas.DataFrame]:
    """Load rows into a temporary table and predict them; return the index of the rows and the predictions."""
    import numpy as np

    columns, index, written = _features(config, given, x)
    columns = {NUMBER: np.arange(len(index)), **columns}
    source, target = (f"cerebro_{what}_{secrets.token_hex(6)}" for what in ("rows", "predicted"))
    model = config.run.models()
    key = stored.key_in(config.run.db, model, config.mst_key)
    with config.run.db.session() as connection:
        link.execute(connection, f"CREATE TEMPORARY TABLE {source} ({_definition(columns)}) ON COMMIT DROP")
        copy(connection, source, columns)
        link.execute(
            connection,
            call("madlib_predict", model, source, NUMBER, written, target, kind, mst_key=key),
        )
        found = link.execute(connection, f"SELECT * FROM {target} ORDER BY {NUMBER}")
        link.execute(connection, f"DROP TABLE {target}")
    several = len({row.get("class_name") for row in found}) > 1
    if several or (kind == "response" and len(found) > len(index)):
        raise CerebroError(
            f"config {config.mst_key} has several outputs",
            hint="Load the rows into a table, and call cerebro.madlib_predict: it writes a row for each.",
        )
    return index, frames.frame(found)


def _features(config: Predictor, given: Any, x: Columns | None) -> tuple[dict[str, Any], Any, str]:
    """Return the columns to load, the index of the rows, and the columns as SQL text for `madlib_predict`."""
    pandas = frames.library()
    if not isinstance(given, pandas.DataFrame):
        import numpy as np

        values = np.asarray(given)
        flat = values if values.ndim > 1 else values.reshape(-1, 1)
        return {"x": flat.astype("float32")}, pandas.RangeIndex(len(values)), "x"
    wanted = config.features(x)
    missing = [name for name in wanted if name not in given.columns]
    if missing:
        raise CerebroError(
            f"the frame has no column {', '.join(missing)}",
            hint=f"It has {', '.join(map(str, given.columns))}.",
        )
    return _with_types(config, read(given[wanted])), given.index, config.written(x)


def _with_types(config: Predictor, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns; those without any value are of the kind that they were of in training, if known.

    Their values do not say their type, and the server takes no text for a number or a date.
    """
    import numpy as np

    empty = [name for name, values in columns.items() if values.ndim == 1 and all(map(is_missing, values))]
    known = config.run.specification() if empty else None
    if known is None:
        return dict(columns)
    # A number that is a category as well is there twice, first as a number.
    kinds = {column["name"]: column["kind"] for column in reversed(known["columns"])}
    nothing = {"number": np.float64("nan"), "date": np.datetime64("NaT", "us")}
    typed = {
        name: np.full(len(columns[name]), nothing[kinds[name]])
        for name in empty
        if kinds.get(name) in nothing
    }
    return {**columns, **typed}
