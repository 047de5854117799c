"""Asks the server what a model goes by, which rows it gets wrong and whether it still fits.

A model is a registered one, by its reference, or a table of models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cerebro_db.link import Row
from cerebro_db.statements import call_rows, identifier, table_name

if TYPE_CHECKING:
    from cerebro_db.protocols import Server

CHECKED = ("column_name", "measure", "value", "before", "threshold", "verdict")
WORST = ("row", "truth", "prediction", "probability", "loss")
EXPLAINED = (
    "id", "class", "probability", "prediction", "score", "baseline", "column_name", "value", "contribution",
    "approximation_error", "map",
)  # fmt: skip
STEPS = (
    "series", "forecast_time", "value", "baseline", "column_name", "column_value", "contribution",
    "approximation_error", "forecast_number",
)  # fmt: skip
ADVICE = ("mst_key", "finding", "epoch", "advice")
IMPORTANCE = ("column_name", "importance", "stddev", "low", "high")
PARTS = ("part", "rows", "metric", "value", "low", "high", "worse")


def check(db: Server, model: str, source: str, thresholds: Mapping[str, Any] | None = None) -> list[Row]:
    """Return the findings of `cerebro.check`."""
    return db.rows(call_rows("check", model, source, thresholds=thresholds))


def worst_rows(db: Server, model: str, source: str, limit: int) -> list[Row]:
    """Return the rows with the greatest loss, the worst first."""
    return db.rows(call_rows("worst_rows", model, source, limit))


def explain(
    db: Server, model: str, source: str, id_column: str, ids: Sequence[Any], top: int | None
) -> list[Row]:
    """Return what columns add to the predictions of the rows with these ids, in their order."""
    return db.rows(explanation(source, id_column), [str(one) for one in ids], model, top)


def explanation(source: str, id_column: str) -> str:
    """Write a statement that explains rows: it takes their ids as text, the model and how many columns."""
    key = f"r.{identifier(id_column)}".replace("%", "%%")
    # As text, so that 7 and '7' find the same row. The table may have a column r, so r alone is not the row.
    return (
        f"SELECT {key} AS id, e.* FROM pg_catalog.unnest(%s::text[]) WITH ORDINALITY AS w (id, place)"
        f" JOIN {table_name(source).replace('%', '%%')} AS r ON {key}::text = w.id,"
        " cerebro.explain_predict(%s, r.*, %s) AS e ORDER BY w.place, pg_catalog.abs(e.contribution) DESC"
    )


def explain_forecast(
    db: Server, name: str, which: Mapping[str, Any] | None, horizon: int | None, top: int | None
) -> list[Row]:
    """Return what the steps of a forecast consist of, series by series."""
    given = None if which is None else dict(which)
    return db.rows(call_rows("explain_forecast", name, which=given, horizon=horizon, top=top))


def importance(db: Server, model: str, source: str, options: Mapping[str, Any]) -> list[Row]:
    """Return what each column is worth, the greatest first."""
    return db.rows(call_rows("importance", model, source, options=options or None))


def evaluate_by(db: Server, model: str, source: str, by: Sequence[str]) -> list[Row]:
    """Return the metrics of all rows and of their parts."""
    return db.rows(call_rows("evaluate_by", model, source, list(by)))


def advise(db: Server, run_id: int) -> list[Row]:
    """Return what the losses of a run tell, and what to try next."""
    return db.rows(call_rows("advise", run_id))
