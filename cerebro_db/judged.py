"""Calls the server's functions that examine a model, such as `cerebro.check` and `cerebro.importance`.

The argument `model` is a reference to a registered model, such as `churn@champion`, or a model table.
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
    """Compare the rows of `source` with the training rows of a model, and return a row for each finding."""
    return db.rows(call_rows("check", model, source, thresholds=thresholds))


def worst_rows(db: Server, model: str, source: str, limit: int) -> list[Row]:
    """Return the rows of `source` on which a model has the greatest loss, the worst first."""
    return db.rows(call_rows("worst_rows", model, source, limit))


def explain(
    db: Server, model: str, source: str, id_column: str, ids: Sequence[Any], top: int | None
) -> list[Row]:
    """Return how much each column adds to the prediction of each row in `ids`, in the order of `ids`."""
    return db.rows(explanation(source, id_column), [str(one) for one in ids], model, top)


def explanation(source: str, id_column: str) -> str:
    """Return the statement for `explain`; its parameters are the ids as texts, the model and `top`."""
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
    """Return how much each earlier value and each column adds to each step of a forecast."""
    given = None if which is None else dict(which)
    return db.rows(call_rows("explain_forecast", name, which=given, horizon=horizon, top=top))


def importance(db: Server, model: str, source: str, options: Mapping[str, Any]) -> list[Row]:
    """Return how much each column is worth to a model, measured on `source`, the greatest first."""
    return db.rows(call_rows("importance", model, source, options=options or None))


def evaluate_by(db: Server, model: str, source: str, by: Sequence[str]) -> list[Row]:
    """Return a model's metrics on all rows of `source`, and on each part with equal values in `by`."""
    return db.rows(call_rows("evaluate_by", model, source, list(by)))


def advise(db: Server, run_id: int) -> list[Row]:
    """Return what is wrong with the losses of a run's configs, and what to try next."""
    return db.rows(call_rows("advise", run_id))
