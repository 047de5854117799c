"""Calls the server's functions for related tables, for graphs, and for forecasts of series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cerebro_db.link import Row
from cerebro_db.statements import call, call_rows, identifier

if TYPE_CHECKING:
    from cerebro_db.protocols import Server

STANDINGS = ("answer", "mst_key", "parameters", "mase", "mae", "coverage", "best")
FORECAST = ("series", "forecast_time", "value", "lower", "upper", "status", "forecast_number")
SMOOTHED = ("node", "label", "class", "probability")
PREDICTED = ("source", "class", "probability", "prediction")
# Arguments that are names of columns.
_COLUMNS = ("id", "source", "target", "weight", "kind", "labels")


def relate(
    db: Server,
    query: str,
    into: str,
    *,
    entity: str,
    cutoff: str,
    times: Mapping[str, str | None] | None,
    options: Mapping[str, Any],
) -> str:
    """Create the table of features for the rows of a query; return the server's message about the table."""
    given = {"output_table": into, "entity": entity, "cutoff": cutoff, "times": times}
    return db.rows(call("relate", query, **given, **options) + " AS said")[0]["said"]


def labels(
    db: Server, entity: str, target: str, into: str, *, over: str, every: str, options: Mapping[str, Any]
) -> str:
    """Create the table of labels for past cut-offs; return the server's message about the table."""
    given = {"over": over, "every": every, "output_table": into, **options}
    return db.rows(call("labels", entity, target, **given) + " AS said")[0]["said"]


def predict_related(db: Server, model: str, query: str) -> list[Row]:
    """Return the predictions of the rows of a query, whose features are computed from related tables."""
    return db.rows(call_rows("predict_related", model, query))


def propagate(
    db: Server,
    nodes: str,
    edges: str,
    into: str,
    *,
    ends: Mapping[str, str],
    features: Sequence[str],
    options: Mapping[str, Any],
) -> int:
    """Create the table of nodes with features of their neighbours; return the number of nodes."""
    listed = [identifier(column) for column in features]
    given = {"output_table": into, **_with_names({**options, **ends}), "features": listed}
    return db.rows(call("propagate", nodes, edges, **given) + " AS nodes")[0]["nodes"]


def _with_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, with those that name columns written as SQL identifiers."""
    named = {name: identifier(given[name]) for name in _COLUMNS if given.get(name) is not None}
    return {**given, **named}


def refresh_propagation(db: Server, table: str) -> int:
    """Update a table that `propagate` has made; return the number of nodes that were computed again."""
    return db.rows(call("refresh_propagation", table) + " AS nodes")[0]["nodes"]


def smooth(
    db: Server, model: str, nodes: str, edges: str, *, labels: str, options: Mapping[str, Any]
) -> list[Row]:
    """Return the nodes of a graph with the classes that a model predicts, corrected by the known labels."""
    given = _with_names({**options, "labels": labels})
    return db.rows(call_rows("smooth", model, given.pop("mst_key", None), nodes, edges, **given))


def train_forecast(
    db: Server,
    source: str,
    time: str,
    value: str,
    *,
    series: Sequence[str] | None,
    horizon: int,
    name: str | None,
    budget: str | float,
    columns: Sequence[str] | None,
    options: Mapping[str, Any],
) -> list[Row]:
    """Train nets that forecast the column `value`; return nets and baselines, the best first."""
    length = budget if isinstance(budget, str) else f"{budget} seconds"
    return db.rows(
        call_rows(
            "train_forecast", source, time, value,
            series=None if series is None else list(series), horizon=horizon, name=name, budget=length,
            columns=None if columns is None else list(columns), options=dict(options) or None,
        )
    )  # fmt: skip


def forecast(db: Server, name: str, horizon: int | None, level: float, history: int) -> list[Row]:
    """Return the forecasts of all series, after `history` known values of each series."""
    return db.rows(call_rows("forecast", name, horizon=horizon, level=level, history=history))
