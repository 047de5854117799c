"""Forecasts on the live page: their points, their explanations, and curves with bands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlencode

import psycopg2
import pytest
from playwright.sync_api import Page as Tab
from playwright.sync_api import expect

from shell import Page, dashboard
from tab import NEEDS_BROWSER, open_tab, picture, shoot
from trial import Trial

pytestmark = pytest.mark.slow
QUICK = {"configs": 2, "epochs": 9, "nets": ["nlinear"], "backend": "jax", "seed": 3}


@pytest.fixture(scope="module")
def page(database: str) -> Iterator[Page]:
    """Serve a page with a forecast of four series, with HTML in their names, and of one without values."""
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        trial = Trial(connection)
        trial.sql(
            "CREATE TABLE sales AS SELECT '<b>shop</b> ' || s AS shop, '2025-01-01'::date + d AS day,"
            " 20 * s + (ARRAY[0, 1, 3, 2, 4, 9, 7, 1, 2, 4, 3, 9, 2, 1])[(d + s) % 14 + 1] * (1 + s / 4.0)"
            " + (hashint4extended(d, s) & 1023) / 500.0 AS sold"
            " FROM generate_series(1, 4) AS s, generate_series(0, 139) AS d"
        )
        trial.sql("INSERT INTO sales VALUES ('empty', '2025-01-01', NULL)")
        trial.sql(
            "SELECT * FROM cerebro.train_forecast('sales', 'day', 'sold', ARRAY['shop'], 14, 'sales_f',"
            " options => %s)",
            json.dumps(QUICK),
        )
        trial.sql("SELECT cerebro.register('sales_f', 'sold')")
    with dashboard(database, token="for-the-test-alone") as served:
        yield served


def content(answer: tuple[int, dict[str, str], str]) -> Any:
    assert answer[0] == 200, answer
    return json.loads(answer[2])


def test_forecasts_are_listed_and_have_points(page: Page) -> None:
    assert content(page.ask("/api/overview"))["forecasts"] == ["public.sales_f", "sold@1"]
    for name in ("public.sales_f", "sold@1"):
        found = content(page.ask(f"/api/forecast?{urlencode({'name': name})}"))
        assert found["total"] == 5 and [status for _, status in found["series"]].count("ok") == 4
        points = [point for point in found["points"] if not point["known"]]
        assert len(found["points"]) == 74 and len(points) == 14
        assert all(point["lower"] < point["value"] < point["upper"] for point in points)
    chosen = {"name": "public.sales_f", "series": json.dumps({"shop": "empty"})}
    assert content(page.ask(f"/api/forecast?{urlencode(chosen)}"))["points"] is None
    chosen["series"] = json.dumps({"shop": "<b>shop</b> 2"})
    parts = content(page.ask(f"/api/forecast/reasons?{urlencode(chosen)}"))["parts"]
    assert len(parts) == 12 and parts[0]["column_name"].startswith("sold[-")
    status, _, text = page.ask(f"/api/forecast?{urlencode({'name': 'nobody'})}")
    assert status == 409 and "forecast nobody does not exist" in text


@NEEDS_BROWSER
def test_the_page_draws_curves_with_bands(page: Page) -> None:
    with open_tab(page.address, height=800) as tab:
        look(tab)


def look(tab: Tab) -> None:
    tab.locator("#forecasts a").first.click()
    expect(tab.locator("#forecast-title")).to_have_text("sales_f")
    expect(tab.locator("#forecast-said")).to_contain_text("with a probability of 90 % from", timeout=60_000)
    expect(tab.locator("#forecast-about")).to_have_text("5 series")
    tab.locator("#forecast-series").select_option(label="shop <b>shop</b> 2")
    expect(tab.locator("#forecast-said")).to_contain_text("ok · next")
    tab.locator("#forecast-explain").click()
    expect(tab.locator("#reasons-about")).to_contain_text("of a series that stands still", timeout=60_000)
    assert tab.locator("#reasons .track").count() == 12
    tab.wait_for_timeout(200)
    assert picture(tab, "bands") > 10_000
    shoot(tab, "dashboard-forecast")
    tab.locator("#forecast-series").select_option(label="shop empty")
    expect(tab.locator("#forecast-said")).to_have_text("")
    for width in (390, 1440):
        tab.set_viewport_size({"width": width, "height": 800})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.evaluate("location.hash = ''")
    expect(tab.locator("#forecast")).to_be_hidden()
