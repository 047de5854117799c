"""The live page of runs that train a config many times: for each group, or without each fold."""

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

import nets
from shell import Page, dashboard
from tab import NEEDS_BROWSER, open_tab, picture, shoot
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.slow


FEATURES, ROWS, GROUPS, FOLDS = 6, 900, 60, 3
PATIENCE = 180_000
TOKEN = "for-the-test-alone"


@pytest.fixture(scope="module")
def runs(database: str) -> Iterator[dict[str, int]]:
    """Yield the numbers of a run of groups, one group of which is too small, and of a cross-validated run."""
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        trial = Trial(connection)
        trial.sql(
            "INSERT INTO cerebro.settings VALUES ('backend', 'jax'), ('threads', '1'), ('segments', '2')"
        )
        trial.table("blobs", "x real[], y integer", rows_of(*blobs(ROWS, features=FEATURES)))
        trial.sql(
            f"CREATE TABLE sales AS SELECT x, y, CASE WHEN number % {GROUPS} < 20 THEN 'NL' ELSE '<b>' END"
            f" AS country, CASE WHEN number = 7 THEN -1 ELSE number % {GROUPS} END AS shop"
            " FROM (SELECT *, row_number() OVER () AS number FROM blobs) AS b"
        )
        trial.pack("sales", "grouped", options={"group_by": ["country", "shop"]})
        trial.pack("blobs", "folded", options={"folds": FOLDS})
        trial.model(nets.mlp(FEATURES))
        trial.select("configs", [1], [ADAM, SGD], ["batch_size=10"])
        more = {"metrics_compute_frequency": 1}
        options, folded = {"min_rows": 5, "fallback": True}, {"cross_validate": True}
        yield {
            "groups": trial.fit("grouped", "grouped_models", "configs", 3, options=options, **more),
            "folds": trial.fit("folded", "folded_models", "configs", 3, options=folded, **more),
        }


@pytest.fixture(scope="module")
def page(database: str, runs: dict[str, int]) -> Iterator[Page]:
    with dashboard(database, token=TOKEN) as served:
        yield served


def ask(page: Page, path: str, **given: object) -> Any:
    status, _, content = page.ask(f"/api/runs/{path}?{urlencode(given)}")
    return json.loads(content) if status == 200 else status


def test_groups_come_a_page_at_a_time(page: Page, runs: dict[str, int]) -> None:
    of_run = f"{runs['groups']}/groups"
    found = ask(page, of_run, order=".shop", limit=10, offset=10)
    # One group, which has only the seventh row, is left out; one more entry is the model of all rows.
    assert (found["total"], found["found"]) == (GROUPS + 1, GROUPS + 2)
    assert found["statuses"] == {"measured": GROUPS, "left out": 1}
    assert found["columns"] == ["country", "shop"]
    assert [row["key"]["shop"] for row in found["rows"]] == list(range(9, 19))
    assert sum(number for _, number in found["bars"]) == found["spread"]["number"] == GROUPS
    (small,) = ask(page, of_run, search="left")["rows"]
    assert small["reason"] == "1 row, fewer than min_rows 5"
    (one,) = ask(page, of_run, search="shop=4")["rows"]
    assert one["key"] == {"country": "NL", "shop": 4}
    values = [row["value"] for row in ask(page, of_run, order="value", down="true", limit=200)["rows"]]
    measured = [value for value in values if value is not None]
    assert measured == sorted(measured, reverse=True) and values[-1] is None
    assert ask(page, of_run, order="value; DROP TABLE sales") == 400
    assert ask(page, of_run, offset="-1") == 400
    assert ask(page, "999/groups") == 404


def test_of_a_run_of_groups_one_group_is_sent(page: Page, runs: dict[str, int]) -> None:
    run = runs["groups"]
    whole = ask(page, str(run))
    assert whole["configs"] == [] == whole["metrics"]["rows"] == whole["visits"]["rows"]
    key = json.dumps({"country": "NL", "shop": 4}, separators=(",", ":"))
    one = ask(page, str(run), group=key)
    assert sorted(config["config_key"] for config in one["configs"]) == [1, 2]
    assert [config["rank"] for config in one["configs"]] == [1, 2]
    units = {config["mst_key"] for config in one["configs"]}
    assert {row[0] for row in one["metrics"]["rows"]} == units and len(one["metrics"]["rows"]) == 2 * 3 * 2
    assert len(ask(page, str(run), group="")["configs"]) == 2


def test_folds_are_one_config(page: Page, runs: dict[str, int]) -> None:
    found = ask(page, str(runs["folds"]))
    assert sorted(config["mst_key"] for config in found["configs"]) == [1, 2]
    for config in found["configs"]:
        folds = [float(value) for value in config["fold_values"].split(", ")]
        assert len(folds) == FOLDS and config["value"] == pytest.approx(sum(folds) / FOLDS)
        assert (config["status"], config["visits_done"]) == ("finished", config["visits_total"])
        columns = found["metrics"]["columns"]
        last = [dict(zip(columns, row, strict=True)) for row in found["metrics"]["rows"]]
        (mean,) = [
            row["value"] for row in last
            if (row["mst_key"], row["epoch"], row["dataset"]) == (config["mst_key"], 3, "validation")
            and row["metric"] == "accuracy"
        ]  # fmt: skip
        assert mean == pytest.approx(config["value"])


@NEEDS_BROWSER
def test_the_page_shows_groups_and_folds(page: Page, runs: dict[str, int]) -> None:
    expect.set_options(timeout=PATIENCE)
    with open_tab(page.address, patience=PATIENCE) as tab:
        folds(tab, runs["folds"])
        groups(tab, runs["groups"])


def folds(tab: Tab, run: int) -> None:
    expect(tab.locator("#title")).to_have_text(f"Run {run}")
    expect(tab.locator("#about")).to_contain_text(f"cross-validated in {FOLDS} folds")
    expect(tab.locator("#board tbody tr")).to_have_count(2)
    expect(tab.locator("#board thead")).to_contain_text("deviation")
    expect(tab.locator("#groups")).to_be_hidden()
    assert picture(tab, "curves") > 0
    shoot(tab, "folds")


def groups(tab: Tab, run: int) -> None:
    tab.locator(f'#runs a[href="#run={run}"]').click()
    rows = tab.locator("#groups-table tbody tr")
    expect(rows).to_have_count(50)
    expect(tab.locator("#groups-place")).to_have_text(f"1 to 50 of {GROUPS + 2}")
    expect(tab.locator("#groups-about")).to_contain_text("1 left out")
    expect(tab.locator("#spread div")).to_have_count(40)
    expect(tab.locator("#spread-said")).to_contain_text("median")
    expect(tab.locator("#board")).to_be_hidden()
    shoot(tab, "groups")
    tab.locator("#groups-after").click()
    expect(rows).to_have_count(GROUPS + 2 - 50)
    tab.locator("#groups-filter").fill("shop=4")
    expect(rows).to_have_count(1)
    rows.first.click()
    expect(tab.locator("#board-title")).to_have_text("Leaderboard of country NL, shop 4")
    expect(tab.locator("#board tbody tr")).to_have_count(2)
    assert picture(tab, "curves") > 0
    shoot(tab, "one-group")
    # The page shows HTML in names of groups as text.
    tab.locator("#groups-filter").fill("shop=21")
    expect(rows.first).to_contain_text("<b>")
    rows.first.click()
    expect(tab.locator("#board-title")).to_have_text("Leaderboard of country <b>, shop 21")
    rows.first.click()
    expect(tab.locator("#board")).to_be_hidden()
