"""Commands about forecasts."""

from __future__ import annotations

from typing import Any

import click

from cerebro_db.cli.connection import connected, open_database
from cerebro_db.cli.output import formatted, say, show
from cerebro_db.cli.values import read_list, read_object

STANDING_COLUMNS = ("answer", "mst_key", "mase", "mae", "coverage", "best")
FORECAST_COLUMNS = ("series", "forecast_time", "value", "lower", "upper", "status")


@click.command("train-forecast", short_help="Train nets that forecast a number over time.")
@click.argument("table")
@click.argument("time")
@click.argument("value")
@click.option(
    "--series", metavar="COLUMNS", callback=read_list, help="Columns that name a series, with commas."
)
@click.option("--horizon", type=click.IntRange(1), default=1, show_default=True, help="So many steps.")
@click.option("--columns", metavar="COLUMNS", callback=read_list, help="Columns that nets see, with commas.")
@click.option("--name", help="The name of the forecast; by default TABLE_forecast.")
@click.option("--budget", default="1 minute", show_default=True, help="When training ends, from the call on.")
@click.option("--configs", type=click.IntRange(1), help="How many configs to try.")
@click.option("--epochs", type=click.IntRange(1), help="The most epochs of one config.")
@click.option("--seed", type=click.IntRange(0), help="Seed of weights and search.")
@formatted
@connected
def train_forecast(table: str, time: str, value: str, form: str, dsn: str, **given: Any) -> None:
    """Train nets that forecast the column VALUE of TABLE over the column TIME, beside baselines.

    \b
    Example:
      cerebro train-forecast sales day sold --series shop,item --horizon 14
    """
    from cerebro_db import related

    named = {name: given.pop(name) for name in ("series", "horizon", "columns", "name", "budget")}
    options = {name: found for name, found in given.items() if found is not None}
    with open_database(dsn) as db:
        say(f"cutting {table} into windows and training nets", err=True)
        found = related.train_forecast(db, table, time, value, **named, options=options)
    show(found, form, STANDING_COLUMNS, related.STANDINGS)


@click.command(short_help="Forecast the series of a table from their newest rows.")
@click.argument("name")
@click.option(
    "--horizon", type=click.IntRange(1), help="So many steps; by default all that it was trained for."
)
@click.option(
    "--level", type=click.FloatRange(0.5, 0.99), default=0.9, show_default=True, help="Of intervals."
)
@click.option("--history", type=click.IntRange(0), default=0, help="So many known values before.")
@formatted
@connected
def forecast(name: str, horizon: int | None, level: float, history: int, form: str, dsn: str) -> None:
    """Forecast all series of the forecast NAME, or of a registered one: name, name@alias or name@version.

    \b
    Example:
      cerebro forecast sales_f --horizon 7 --format csv > next_week.csv
    """
    from cerebro_db import related

    with open_database(dsn) as db:
        found = related.forecast(db, name, horizon, level, history)
    show(found, form, FORECAST_COLUMNS, related.FORECAST)


@click.command("explain-forecast", short_help="Say what a forecast consists of.")
@click.argument("name")
@click.option("--which", metavar="JSON", callback=read_object, help="Columns that name the series.")
@click.option("--horizon", type=click.IntRange(1), help="So many steps; by default all.")
@click.option("--top", type=click.IntRange(1), default=5, show_default=True, help="So many parts a step.")
@formatted
@connected
def explain_forecast(
    name: str, which: dict[str, Any] | None, horizon: int | None, top: int, form: str, dsn: str
) -> None:
    """Show the values and columns that add most to each step of the forecast NAME.

    \b
    Example:
      cerebro explain-forecast sales_f --which '{"shop": "shop 1"}' --horizon 1
    """
    from cerebro_db import judged

    with open_database(dsn) as db:
        found = judged.explain_forecast(db, name, which, horizon, top=top)
    columns = ("series", "forecast_time", "value", "baseline", "column_name", "column_value", "contribution")
    show(found, form, columns, judged.STEPS)
