"""Shows the predictions of a config's model: a confusion matrix, or predictions for some rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, Engine

from cerebro_db import stored
from cerebro_db.dashboard import views
from cerebro_db.dashboard.actions import UnknownAction
from cerebro_db.dashboard.views import Row
from cerebro_db.run import GOING
from cerebro_db.statements import ALL, identifier, names, table_name

MOST_ROWS = 50
# Fields are cut to this many characters, as a field may be an image.
MOST_TEXT = 60

_COLUMNS = """
SELECT attname::text AS name FROM pg_attribute
WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_KIND = """
SELECT relkind::text AS kind, pg_get_userbyid(relowner) = current_user AS own
FROM pg_class WHERE oid = to_regclass(%(table)s)
"""
_CONFUSION = "SELECT * FROM cerebro.confusion_matrix(%(model)s, %(packed)s, %(key)s)"
_SHOWN, _PREDICTED, _NUMBER = "pg_temp.cerebro_shown", "pg_temp.cerebro_predicted", "__row__"
_SHOW = (
    f"CREATE TEMPORARY TABLE cerebro_shown ON COMMIT DROP AS"
    f" SELECT row_number() OVER () AS {_NUMBER}, t.* FROM {{table}} AS t LIMIT {{rows}}"
)
_PREDICT = (
    f"SELECT cerebro.madlib_predict(%(model)s, '{_SHOWN}', '{_NUMBER}', %(columns)s, '{_PREDICTED}',"
    " 'response', mst_key => %(key)s)"
)
# Columns of the predictions that are not shown beside the rows.
_HIDDEN = (_NUMBER, "rank", "class_name")


@dataclass(frozen=True)
class Rows:
    """A request for predictions: for how many rows of which table, from which feature columns."""

    table: str
    columns: str
    rows: int


def confusion(engine: Engine, run_id: int, mst_key: int) -> Row | None:
    """Return the confusion matrix of a model on the validation rows, if any, else on the training rows."""
    with reading(engine) as connection:
        run = _run(connection, run_id)
        if run is None:
            return None
        model, key = _model(connection, run, mst_key)
        packed = still(connection, run["validation_table"] or run["source_table"])
        cells = views.rows(connection, _CONFUSION, model=model, packed=packed, key=key)
        which = "validation" if run["validation_table"] else "training"
        return {"of": which, "table": packed, "cells": cells}


def suggestion(engine: Engine, run_id: int) -> Row | None:
    """Suggest what to predict: the table that the run's rows were packed from, and its feature columns.

    Return None if there is no such run."""
    with reading(engine) as connection:
        run = _run(connection, run_id)
        if run is None:
            return None
        summary = still(connection, table_name(run["source_table"], "_summary"))
        (found,) = _rows_of(connection, "to_jsonb(t) AS row", summary)
        row: Row = found["row"]
        listed: Sequence[str] = row["independent_varname"]
        # The summary does not name columns that were packed as one vector.
        known = "" if listed == ["independent_var"] else names(list(listed))
        prepared = row.get("feature_specification") is not None
        schema = run["source_table"].rpartition(".")[0]
        source: str = row["source_table"]
        table = source if "." in source or not schema else f"{schema}.{source}"
        return {"table": table, "columns": ALL if prepared else known}


def predict(engine: Engine, run_id: int, mst_key: int, asked: Rows) -> Row | None:
    """Return the first rows of a table with a model's predictions; leave nothing in the database."""
    with reading(engine) as connection:
        run = _run(connection, run_id)
        if run is None:
            return None
        model, key = _model(connection, run, mst_key)
        source = still(connection, asked.table).replace("%", "%%")
        show = _SHOW.format(table=source, rows=min(MOST_ROWS, asked.rows))
        connection.exec_driver_sql(show)
        views.rows(connection, _PREDICT, model=model, columns=asked.columns, key=key)
        shown = [*_texts(connection, _SHOWN, "s"), *_texts(connection, _PREDICTED, "p")]
        texts = ", ".join(text for _, text in shown)
        join = f"FROM {_SHOWN} AS s JOIN {_PREDICTED} AS p USING ({_NUMBER}) ORDER BY {_NUMBER}"
        found = views.table(connection, f"SELECT {texts} {join}")
        return {"columns": [name for name, _ in shown], "rows": found["rows"]}


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that is rolled back; table policies, which are other people's code, do not run."""
    with engine.connect() as connection:
        connection.exec_driver_sql("SET LOCAL row_security = off")
        yield connection
        connection.rollback()


def _run(connection: Connection, run_id: int) -> Row | None:
    found = views.rows(connection, views.RUN, run=run_id)
    return found[0] if found else None


def _texts(connection: Connection, table: str, alias: str) -> list[tuple[str, str]]:
    """Return the columns of a table, each with the SQL expression that shows it as short text."""
    found = [row["name"] for row in views.rows(connection, _COLUMNS, table=table)]
    return [
        (name, f"left({alias}.{identifier(name).replace('%', '%%')}::text, {MOST_TEXT})")
        for name in found
        if name not in _HIDDEN
    ]


def _model(connection: Connection, run: Row, mst_key: int) -> tuple[str, int | None]:
    """Return the name of the run's model table, and the config's key in it; None if it holds one model."""
    if run["status"] in GOING:
        raise UnknownAction(f"run {run['run_id']} is {run['status']}: its models are there when it is over")
    if not run["model_table"]:
        raise UnknownAction(f"run {run['run_id']} has left no models")
    model = still(connection, run["model_table"])
    summary = still(connection, table_name(model, "_summary"))
    if _rows_of(connection, "run_id", summary) != [{"run_id": run["run_id"]}]:
        raise UnknownAction(f"{model} has the models of another run")
    keyed = any(row["name"] == "mst_key" for row in views.rows(connection, _COLUMNS, table=model))
    return model, mst_key if keyed else None


def still(connection: Connection, name: str) -> str:
    """Return a table's name as SQL; raise an error if it names another role's object that is no table."""
    written = table_name(name)
    found = views.rows(connection, _KIND, table=written)
    if not found:
        raise UnknownAction(f"there is no table {name}: write schema.table")
    stored.check_kind(found[0], written)
    return written


def _rows_of(connection: Connection, what: str, table: str) -> list[Row]:
    return views.rows(connection, f"SELECT {what} FROM {table.replace('%', '%%')} AS t")
