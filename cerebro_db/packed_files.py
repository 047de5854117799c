"""Writes packed tables to files, a row for each example, and loads them again with the same bits."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg2

from cerebro_db import link
from cerebro_db.errors import CerebroError, needs, other_file
from cerebro_db.statements import call, identifier, table_name

if TYPE_CHECKING:
    from cerebro_db.protocols import Server

SEGMENT, BUFFER, SUMMARY = "__dist_key__", "buffer_id", "cerebro"
_SUMMARY_KEYS = (
    "source_table dependent_varname independent_varname dependent_vartype buffer_size normalizing_const"
    " num_classes segments seed total_rows"
).split()

# Keys that only some packed tables have.
_OPTIONAL_KEYS = ("feature_specification", "weight_varname", "packed_versions")
# Keys of packed tables whose buffers have more than a file does.
_NOT_WRITTEN = {"group_by": "groups", "folds": "folds", "features_of": "features of a net"}
WEIGHT = "__weight__"

_HERE = f"WHERE {SEGMENT} OPERATOR(pg_catalog.=) %s AND {BUFFER} OPERATOR(pg_catalog.=) %s"


@dataclass(frozen=True)
class Buffer:
    """A buffer: one row of a packed table, with its columns as arrays. `segment` counts from 0."""

    segment: int
    buffer_id: int
    columns: Mapping[str, Any]


def save(db: Server, table: str, path: Path) -> Path:
    """Write a packed table to a `.npz` or `.parquet` file, and return its path."""
    row = _row_of(db, table)
    what = next((what for key, what in _NOT_WRITTEN.items() if row.get(key) is not None), None)
    if what is not None:
        raise CerebroError(
            f"{table} cannot be written to a file: it has {what}, which the file would lose",
            hint="Write its source table, and pack the rows where they are needed.",
        )
    summary = _summary(db, table, row)
    buffers = _buffers(db, table, summary, _keys(row))
    if path.suffix == ".npz":
        _save_npz(path, summary, list(buffers))
    elif path.suffix == ".parquet":
        _save_parquet(path, summary, buffers)
    else:
        raise other_file(path, ".parquet", ".npz")
    return path


def load(db: Server, path: Path, into: str) -> None:
    """Create a packed table from a `.npz` or `.parquet` file that `save` has written."""
    if path.suffix not in (".npz", ".parquet"):
        raise other_file(path, ".parquet", ".npz")
    summary, buffers = _load_npz(path) if path.suffix == ".npz" else _load_parquet(path)
    with db.session() as connection:
        link.execute(connection, call("create_packed_table", into, summary))
        keys = _keys(link.execute(connection, f"SELECT * FROM {table_name(into, '_summary')}")[0])
        for buffer in buffers:
            _insert(connection, into, keys[buffer.segment], buffer)


def _keys(summary: Mapping[str, Any]) -> Sequence[int]:
    """Return the key of each segment in the table: its number, or on Greenplum its distribution key."""
    return summary.get("__dist_keys__") or range(summary["segments"])


def _row_of(db: Server, table: str) -> Mapping[str, Any]:
    found = db.rows(f"SELECT * FROM {table_name(table, '_summary')}")
    if not found:
        raise CerebroError(f"the summary of {table} is empty", hint="Is it a packed table?")
    return found[0]


def _summary(db: Server, table: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summary of a packed table, with its values converted to ones that JSON has."""
    where = f"FROM {table_name(table, '_summary')}"
    columns = [f"{name}_class_values" for name in found["dependent_varname"]]
    counts = [f"{name}_class_counts" for name in found["dependent_varname"]]
    quoted = list(enumerate(map(identifier, columns)))
    wanted = ", ".join(
        f"{c}::pg_catalog.text[], pg_catalog.pg_typeof({c})::pg_catalog.text AS t{i}" for i, c in quoted
    )
    classes = db.rows(f"SELECT {wanted} {where}")[0]
    return {
        **{key: found[key] for key in _SUMMARY_KEYS},
        **{key: found[key] for key in _OPTIONAL_KEYS if found.get(key) is not None},
        **{column: classes[column] for column in columns},
        **{column: found[column] for column in counts if found.get(column) is not None},
        "class_value_types": {column: classes[f"t{i}"] for i, column in enumerate(columns)},
    }


def _buffers(db: Server, table: str, summary: Mapping[str, Any], keys: Sequence[int]) -> Iterator[Buffer]:
    """Yield the buffers of a packed table in the order of their numbers, one at a time."""
    kinds = _kinds(summary)
    wanted = ", ".join(f"{identifier(name)}, {identifier(name + '_shape')}" for name in kinds)
    where = f"FROM {table_name(table)}"
    for found in db.rows(f"SELECT {SEGMENT}, {BUFFER} {where} ORDER BY {BUFFER}"):
        key, number = found[SEGMENT], found[BUFFER]
        row = db.rows(f"SELECT {wanted} {where} {_HERE}", key, number)[0]
        yield Buffer(keys.index(key), number, {n: _array(row, n, kind) for n, kind in kinds.items()})


def _kinds(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return the element type of each packed column: int16 for labels that are classes, else float32."""
    dependents = zip(summary["dependent_varname"], summary["num_classes"], strict=True)
    labels = {name: "<f4" if width is None else "<i2" for name, width in dependents}
    weights = [WEIGHT] if summary.get("weight_varname") else []
    return {**labels, **dict.fromkeys([*summary["independent_varname"], *weights], "<f4")}


def _array(row: Mapping[str, Any], name: str, kind: str) -> Any:
    import numpy as np

    return np.frombuffer(row[name], kind).reshape(row[f"{name}_shape"])


def _insert(connection: link.Connection, table: str, key: int, buffer: Buffer) -> None:
    names = ", ".join(f"{identifier(n)}, {identifier(n + '_shape')}" for n in buffer.columns)
    places = ", ".join(["%s"] * (2 * len(buffer.columns) + 2))
    values = [v for a in buffer.columns.values() for v in (psycopg2.Binary(a.tobytes()), list(a.shape))]
    link.execute(
        connection,
        f"INSERT INTO {table_name(table)} ({SEGMENT}, {BUFFER}, {names}) VALUES ({places})",
        (key, buffer.buffer_id, *values),
    )


def _save_npz(path: Path, summary: Mapping[str, Any], buffers: list[Buffer]) -> None:
    """Write one array for each column, and two arrays with the segment and the buffer of each row."""
    import numpy as np

    names = list(buffers[0].columns)
    sizes = [len(buffer.columns[names[0]]) for buffer in buffers]
    arrays = {name: np.concatenate([buffer.columns[name] for buffer in buffers]) for name in names}
    arrays[SEGMENT] = np.repeat([buffer.segment for buffer in buffers], sizes)
    arrays[BUFFER] = np.repeat([buffer.buffer_id for buffer in buffers], sizes)
    arrays[SUMMARY] = np.array(json.dumps(summary))
    # Does what np.savez does, which does not allow columns with the names of its parameters.
    with zipfile.ZipFile(path, "w") as file:
        for name, array in arrays.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _load_npz(path: Path) -> tuple[dict[str, Any], Iterator[Buffer]]:
    import numpy as np

    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    if SUMMARY not in arrays:
        raise _foreign(path)
    summary = json.loads(str(arrays[SUMMARY]))

    def buffers() -> Iterator[Buffer]:
        for number in np.unique(arrays[BUFFER]):
            chosen = arrays[BUFFER] == number
            columns = {n: np.ascontiguousarray(arrays[n][chosen], k) for n, k in _kinds(summary).items()}
            yield Buffer(int(arrays[SEGMENT][chosen][0]), int(number), columns)

    return summary, buffers()


def _parquet() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise needs("parquet", "pyarrow, which Parquet is read and written with,") from None
    return pyarrow, parquet


def _save_parquet(path: Path, summary: dict[str, Any], buffers: Iterator[Buffer]) -> None:
    """Write a row group for each buffer; a row's values are a flat list, and the metadata has the shapes."""
    arrow, parquet = _parquet()
    first = next(buffers)
    shapes = {name: list(array.shape[1:]) for name, array in first.columns.items()}
    metadata = {SUMMARY: json.dumps({**summary, "shapes": shapes})}
    writer = None
    for buffer in chain([first], buffers):
        rows = len(next(iter(buffer.columns.values())))
        columns = {
            SEGMENT: arrow.array([buffer.segment] * rows, arrow.int32()),
            BUFFER: arrow.array([buffer.buffer_id] * rows, arrow.int32()),
            **{name: _flat_column(arrow, array) for name, array in buffer.columns.items()},
        }
        table = arrow.table(columns).replace_schema_metadata(metadata)
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=rows)
    if writer is not None:
        writer.close()


def _flat_column(arrow: Any, array: Any) -> Any:
    return arrow.FixedSizeListArray.from_arrays(arrow.array(array.reshape(-1)), math.prod(array.shape[1:]))


def _load_parquet(path: Path) -> tuple[dict[str, Any], Iterator[Buffer]]:
    _, parquet = _parquet()
    file = parquet.ParquetFile(path)
    metadata = file.schema_arrow.metadata or {}
    if SUMMARY.encode() not in metadata:
        raise _foreign(path)
    summary = json.loads(metadata[SUMMARY.encode()])
    shapes = summary.pop("shapes")

    def buffers() -> Iterator[Buffer]:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group).combine_chunks()
            rows = table.num_rows
            columns = {
                name: table[name].chunk(0).flatten().to_numpy().astype(kind).reshape([rows, *shapes[name]])
                for name, kind in _kinds(summary).items()
            }
            yield Buffer(table[SEGMENT][0].as_py(), table[BUFFER][0].as_py(), columns)

    return summary, buffers()


def _foreign(path: Path) -> CerebroError:
    return CerebroError(
        f"{path.name} was not written by Packed.export",
        hint="Rows of any other kind come in with db.load, and are packed then.",
    )
