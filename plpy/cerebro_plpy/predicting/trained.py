"""Which trained model a call means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import UNDEFINED_COLUMN, UNDEFINED_TABLE, WRONG_STATE, CerebroError
from cerebro_plpy.store import models, results
from cerebro_plpy.store.names import Table, has_columns, quote, resolve_table

# The key of the only config of madlib_fit: what it becomes equals config 1 of a run of many.
ONLY = 1


@dataclass(frozen=True)
class TrainedModel:
    """A trained model as the result tables of a run have it."""

    table: Table
    mst_key: int | None
    selected: models.Selected
    stored: results.Stored
    run_id: int | None
    backend: str | None


def find_model(db: Database, name: str | None, mst_key: int | None, search_path: str) -> TrainedModel:
    """Find a model: by its key among many, or the only one of its table."""
    table = resolve_table(db, name, search_path, "model table")
    summary = _beside(db, table, "_summary", search_path)
    if summary is None:
        raise CerebroError(
            f"table {quote(table.schema, table.name + '_summary')} does not exist",
            detail=f"{table.quoted} is no model table without it.",
            sqlstate=UNDEFINED_TABLE,
        )
    row = results.summary_row(db, summary.quoted)
    info = _beside(db, table, "_info", search_path)
    if info is None:
        _check_single(db, table)
        return _single(db, table, row, mst_key)
    return _one_of_many(db, table, info, row, mst_key)


def _beside(db: Database, table: Table, suffix: str, search_path: str) -> Table | None:
    try:
        return resolve_table(db, quote(table.schema, table.name + suffix), search_path)
    except CerebroError as error:
        if error.sqlstate == UNDEFINED_TABLE:
            return None
        raise


def _check_single(db: Database, table: Table) -> None:
    """A table of many models whose _info is gone must not be taken for one that holds a single model."""
    missing = has_columns(db, table, ["model_weights", "model_arch", "mst_key"])
    if missing and missing != ["mst_key"]:
        raise CerebroError(
            f"table {table.quoted} is not a model table: it has no column {missing[0]}",
            sqlstate=UNDEFINED_COLUMN,
        )
    if not missing:
        raise CerebroError(
            f"table {quote(table.schema, table.name + '_info')} does not exist",
            detail=f"{table.quoted} holds models of madlib_fit_multiple_model, which are described there.",
            sqlstate=UNDEFINED_TABLE,
        )


def _single(db: Database, table: Table, row: Any, mst_key: int | None) -> TrainedModel:
    if mst_key is not None:
        raise CerebroError(
            f"mst_key {mst_key} was given, but {table.quoted} holds a single model",
            hint="Leave mst_key out, or name a table of madlib_fit_multiple_model.",
        )
    stored = results.stored_model(db, table.quoted, None)
    if stored is None:
        raise CerebroError(f"model table {table.quoted} is empty", sqlstate=WRONG_STATE)
    selected = models.Selected(ONLY, row["model_id"], row["compile_params"], row["fit_params"])
    return TrainedModel(
        table=table,
        mst_key=None,
        selected=selected,
        stored=stored,
        run_id=row.get("run_id"),
        backend=row.get("backend"),
    )


def _one_of_many(db: Database, table: Table, info: Table, row: Any, mst_key: int | None) -> TrainedModel:
    if mst_key is None:
        raise CerebroError(
            f"mst_key is missing: {table.quoted} holds several models",
            hint=f"Give one of {', '.join(map(str, results.trained_models(db, info.quoted)))}.",
        )
    config = results.trained_config(db, info.quoted, mst_key)
    if config is None:
        raise CerebroError(
            f"mst_key {mst_key} is not in {info.quoted}",
            hint=f"Give one of {', '.join(map(str, results.trained_models(db, info.quoted)))}.",
        )
    stored = results.stored_model(db, table.quoted, mst_key)
    if stored is None:
        raise CerebroError(
            f"config {mst_key} of {table.quoted} has no model: it {config['status']}", sqlstate=WRONG_STATE
        )
    selected = models.Selected(mst_key, config["model_id"], config["compile_params"], config["fit_params"])
    return TrainedModel(
        table=table,
        mst_key=mst_key,
        selected=selected,
        stored=stored,
        run_id=row.get("run_id"),
        backend=config["backend"],
    )
