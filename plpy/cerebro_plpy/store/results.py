"""SQL on the tables that a run leaves to its caller: MADlib's tables and columns, ours after them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import UNDEFINED_TABLE, CerebroError
from cerebro_plpy.store.names import TargetTable

_Columns = Sequence[tuple[str, str]]

_MODEL: _Columns = (
    ("mst_key", "integer"),
    ("model_weights", "bytea"),
    ("model_arch", "json"),
    ("__dist_key__", "integer"),
)
_HISTORY: _Columns = (
    ("model_size", "double precision"),
    ("metrics_elapsed_time", "double precision[]"),
    ("metrics_type", "text[]"),
    ("loss_type", "text"),
    ("training_metrics_final", "double precision"),
    ("training_loss_final", "double precision"),
    ("training_metrics", "double precision[]"),
    ("training_loss", "double precision[]"),
    ("validation_metrics_final", "double precision"),
    ("validation_loss_final", "double precision"),
    ("validation_metrics", "double precision[]"),
    ("validation_loss", "double precision[]"),
)
_INFO: _Columns = (
    ("mst_key", "integer PRIMARY KEY"),
    ("model_id", "integer"),
    ("compile_params", "text"),
    ("fit_params", "text"),
    ("model_type", "text"),
    *_HISTORY,
    ("status", "text"),
    ("reason", "text"),
    ("backend", "text"),
)
_SUMMARY: _Columns = (
    ("source_table", "text"),
    ("validation_table", "text"),
    ("model", "text"),
    ("model_info", "text"),
    ("dependent_varname", "text[]"),
    ("independent_varname", "text[]"),
    ("model_arch_table", "text"),
    ("model_selection_table", "text"),
    ("object_table", "text"),
    ("num_iterations", "integer"),
    ("metrics_compute_frequency", "integer"),
    ("warm_start", "boolean"),
    ("name", "text"),
    ("description", "text"),
    ("start_training_time", "timestamp"),
    ("end_training_time", "timestamp"),
    ("madlib_version", "text"),
    ("num_classes", "integer[]"),
    ("dependent_vartype", "text[]"),
    ("normalizing_const", "real"),
    ("metrics_iters", "integer[]"),
    ("run_id", "bigint"),
    ("seed", "bigint"),
    ("segments", "integer"),
)


def create(
    db: Database, model: TargetTable, info: TargetTable, summary: TargetTable, classes: Mapping[str, str]
) -> None:
    """Make the three tables; `classes` names the class_values columns with their types."""
    _create(db, model, _MODEL)
    db.query(f"ALTER TABLE {model.quoted} ALTER COLUMN model_weights SET STORAGE EXTERNAL")
    _create(db, info, _INFO)
    place = [name for name, _ in _SUMMARY].index("dependent_vartype")
    _create(db, summary, [*_SUMMARY[:place], *classes.items(), *_SUMMARY[place:]])


def _create(db: Database, target: TargetTable, columns: _Columns) -> None:
    listed = ", ".join(f"{_quote(name)} {type_}" for name, type_ in columns)
    db.query(f"CREATE TABLE {target.quoted} ({listed})")


def drop(db: Database, quoted: Sequence[str]) -> None:
    db.query(f"DROP TABLE {', '.join(quoted)}")


def add_model(
    db: Database, quoted: str, mst_key: int, weights: bytes | None, model_arch: str, key: int
) -> None:
    db.query(
        f"INSERT INTO {quoted} (mst_key, model_weights, model_arch, __dist_key__) VALUES ($1, $2, $3, $4)",
        ["integer", "bytea", "json", "integer"],
        [mst_key, weights, model_arch, key],
    )


def add_row(db: Database, quoted: str, row: Mapping[str, Any]) -> None:
    """Insert one row given by column names; arrays and numbers travel as JSON."""
    names = ", ".join(_quote(name) for name in row)
    db.query(
        f"INSERT INTO {quoted} ({names}) SELECT {names}"
        f" FROM jsonb_populate_record(NULL::{quoted}, $1)",
        ["jsonb"],
        [json.dumps(_without_nan(row))],
    )


def _without_nan(value: Any) -> Any:
    """JSON has no NaN and no infinity, PostgreSQL reads them from text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    return [_without_nan(item) for item in value] if isinstance(value, list) else value


def set_class_values(db: Database, summary: str, column: str, packed_summary: str) -> None:
    """Copy a class_values column as it is, in its own type."""
    db.query(
        f"UPDATE {summary} SET {_quote(column)} = (SELECT {_quote(column)} FROM {packed_summary})"
    )


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def weights_from(db: Database, table: str, column: str, key_column: str | None, key: int | None) -> bytes:
    """Read weights from a user's table; runs with the caller's rights."""
    condition = f" WHERE {key_column} = $1" if key_column else " WHERE $1::integer IS NULL"
    rows = db.query(f"SELECT {column} AS weights FROM {table}{condition}", ["integer"], [key])
    if not rows or rows[0]["weights"] is None:
        raise CerebroError(f"there are no weights to start from in {table}", sqlstate=UNDEFINED_TABLE)
    return rows[0]["weights"]


def earlier(db: Database, info: str, summary: str) -> tuple[list[Mapping[str, Any]], Mapping[str, Any]]:
    """What an earlier run left: its info rows and its summary row as plain values."""
    infos = db.query(f"SELECT i.mst_key, i.model_id FROM {info} AS i ORDER BY i.mst_key")
    row = db.query(f"SELECT row_to_json(s)::text AS row FROM {summary} AS s")
    if not row:
        raise CerebroError(f"table {summary} is empty")
    return infos, json.loads(row[0]["row"])
