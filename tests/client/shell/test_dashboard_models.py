"""Registered models on the live page: checks as a time line, importance and contributions as bars."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlencode

import numpy as np
import psycopg2
import pytest
from PIL import Image
from playwright.sync_api import Page as Tab
from playwright.sync_api import expect

from fixtures import MakeRole
from shell import Page, dashboard
from tab import NEEDS_BROWSER, open_tab, shoot
from trial import Trial

pytestmark = pytest.mark.slow
OPTIONS = {"nets": "tabular", "configs": 1, "epochs": 9, "exclude": ["id"], "single": True}


@pytest.fixture(scope="module")
def trial(database: str) -> Iterator[Trial]:
    """A registered model that depends on age, with a check that finds nothing and one with an alarm."""
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        trial = Trial(connection)
        trial.sql(
            "CREATE TABLE customers AS SELECT i AS id, 18 + i * 7 % 60 AS age, i % 50 AS noise,"
            " CASE WHEN i * 7 % 60 > 30 THEN 'yes' ELSE 'no' END AS gone FROM generate_series(1, 600) AS i"
        )
        trial.sql("CREATE VIEW younger AS SELECT id, 18 + age % 20 AS age, noise, gone FROM customers")
        train = "SELECT * FROM cerebro.train('customers', 'gone', 'leaving', '1 minute', %s)"
        trial.sql(train, json.dumps(OPTIONS))
        trial.sql("SELECT cerebro.register('leaving', 'churn', comment => '<b>first</b>')")
        for table in ("customers", "younger"):
            trial.sql("SELECT count(*) FROM cerebro.check('churn', %s)", table)
        yield trial


@pytest.fixture(scope="module")
def page(database: str, trial: Trial) -> Iterator[Page]:
    with dashboard(database, token="for-the-test-alone") as served:
        yield served


def content(answer: tuple[int, dict[str, str], str]) -> Any:
    assert answer[0] == 200, answer
    return json.loads(answer[2])


def test_a_model_has_its_versions_and_checks(page: Page) -> None:
    (listed,) = content(page.ask("/api/overview"))["models"]
    assert listed == {"name": "churn", "versions": 1, "default_version": 1, "verdict": "alarm"}
    found = content(page.ask("/api/models/churn"))
    assert [(one["version"], one["aliases"]) for one in found["versions"]] == [(1, ["default"])]
    alarm, ok = found["checks"]
    assert (ok["verdict"], ok["findings"], ok["rows"]) == ("ok", None, 600)
    assert alarm["verdict"] == "alarm" and {one["column"] for one in alarm["findings"]} >= {"age"}
    assert page.ask("/api/models/nobody")[0] == 404


def test_columns_are_worth_and_add(page: Page) -> None:
    asked = {"model": "churn@default", "table": "public.customers"}
    worth = content(page.ask(f"/api/importance?{urlencode(asked)}"))["columns"]
    assert worth[0]["column_name"] == "age" and worth[0]["importance"] > worth[1]["importance"]
    row = {**asked, "column": "id", "row": "7"}
    parts = content(page.ask(f"/api/explanation?{urlencode(row)}"))["columns"]
    assert [part["column_name"] for part in parts] == ["age", "noise"]
    assert parts[0]["id"] == 7 and parts[0]["class"] in ("yes", "no")


def test_what_cannot_be_asked_is_refused(page: Page, trial: Trial, role: MakeRole) -> None:
    trial.sql(f"CREATE VIEW trap AS SELECT * FROM customers; ALTER VIEW trap OWNER TO {role()}")
    asked = {"model": "churn@1", "table": "public.customers", "column": "id", "row": "7"}
    for wrong, said in (
        ({"table": "nowhere"}, "no table nowhere"),
        ({"table": "public.trap"}, "somebody else owns it"),
        ({"table": "customers; DROP TABLE customers"}, "is not the name of a table"),
        ({"model": "nobody@1"}, "no registered model"),
        ({"column": 'id"; DROP TABLE customers; --%s'}, "does not exist"),
        ({"row": "\0"}, "no such text"),
    ):
        for path in ("importance", "explanation"):
            status, _, text = page.ask(f"/api/{path}?{urlencode({**asked, **wrong})}")
            if path == "explanation" or not wrong.keys() & {"column", "row"}:
                assert status in (400, 409) and said in text, (path, wrong, text)
    trial.sql("DROP VIEW trap")


def picture(number: int) -> bytes:
    """Return a PNG of dark noise with a white square: on the left for an even number, else on the right."""
    pixels = np.random.default_rng(number).integers(0, 90, (12, 12, 3)).astype(np.uint8)
    pixels[4:8, 1 + 6 * (number % 2) :][:, :4] = 255
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


@pytest.fixture
def shots(trial: Trial) -> None:
    """Train a model of pictures, and register it as `shots`."""
    trial.sql("CREATE TABLE shots (id int, shot bytea, kind text)")
    for number in range(60):
        trial.sql("INSERT INTO shots VALUES (%s, %s, %s)", number, picture(number), "ab"[number % 2])
    options = {"columns": {"shot": {"decode": [12, 12, 3]}}, "exclude": ["id"], "segments": 1}
    trial.pack("shots", "shots_packed", "kind", "*", options=options)
    trial.sql("SELECT cerebro.load_net('shot_nets', 'shots_packed', 'image')")
    compiled = "loss='categorical_crossentropy',optimizer='Adam(lr=0.01)',metrics=['accuracy']"
    trial.select("shot_configs", [1], [compiled], ["batch_size=10"], arch="shot_nets")
    trial.fit("shots_packed", "shot_models", "shot_configs", 6)
    trial.sql("SELECT cerebro.register('shot_models', 'shots')")


@NEEDS_BROWSER
@pytest.mark.usefixtures("shots")
def test_the_page_draws_what_the_pixels_of_a_picture_add(page: Page) -> None:
    with open_tab(page.address) as tab:
        tab.locator("#models a", has_text="shots").click()
        for name, value in (("table", "public.shots"), ("column", "id"), ("row", "7")):
            tab.locator(f'#parts-form input[name="{name}"]').fill(value)
        tab.locator("#parts-form button").click()
        drawn = tab.locator("#parts img.map")
        expect(drawn).to_be_visible(timeout=60_000)
        assert drawn.evaluate("map => [map.naturalWidth, map.naturalHeight]") == [12, 12]
        tab.locator("#parts").scroll_into_view_if_needed()
        shoot(tab, "map")


@NEEDS_BROWSER
def test_the_page_shows_a_model(page: Page) -> None:
    with open_tab(page.address) as tab:
        look(tab)


def look(tab: Tab) -> None:
    link = tab.locator("#models a", has_text="churn")
    link.click()
    expect(tab.locator("#registered-title")).to_have_text("churn")
    expect(tab.locator("#run")).to_be_hidden()
    marks = tab.locator("#health li")
    expect(marks).to_have_count(2)
    assert [mark.get_attribute("data-verdict") for mark in marks.all()] == ["ok", "alarm"]
    lefts = [mark.bounding_box() for mark in marks.all()]
    assert lefts[0] and lefts[1] and lefts[0]["x"] < lefts[1]["x"]
    expect(tab.locator("#health-said")).to_contain_text("alarm (age stability")
    expect(tab.locator("#versions-table tbody")).to_contain_text("<b>first</b>")
    tab.locator('#worth-form input[name="table"]').fill("public.customers")
    tab.locator("#worth-form button").click()
    expect(tab.locator("#worth div").first).to_be_visible(timeout=60_000)
    widths = [bar.bounding_box() for bar in tab.locator("#worth div").all()]
    assert widths[0] and widths[1] and widths[0]["width"] > 3 * widths[1]["width"]
    reach = tab.locator("#worth i").first.bounding_box()
    # The bar of the most important column ends within its interval.
    assert reach and reach["x"] < widths[0]["x"] + widths[0]["width"] < reach["x"] + reach["width"]
    assert tab.locator("#worth span").first.inner_text() == "age"
    for name, value in (("table", "public.customers"), ("column", "id"), ("row", "7")):
        tab.locator(f'#parts-form input[name="{name}"]').fill(value)
    tab.locator("#parts-form button").click()
    expect(tab.locator("#parts span").first).to_contain_text("age =", timeout=60_000)
    expect(tab.locator("#parts-about")).to_contain_text("of the mean row")
    shoot(tab, "dashboard-registered")
    tab.locator('#parts-form input[name="row"]').fill("nobody")
    tab.locator("#parts-form button").click()
    expect(tab.locator("#parts-problem")).to_contain_text("no such row")
    for width in (390, 1440):
        tab.set_viewport_size({"width": width, "height": 1000})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        track = tab.locator("#worth .track").first.bounding_box()
        assert track and track["width"] >= 75
    # The window is wide again, so no part of the table of versions is cut off.
    assert tab.locator("#versions-table").evaluate("one => one.offsetWidth <= one.parentNode.clientWidth")
    tab.evaluate("location.hash = ''")
    expect(tab.locator("#registered")).to_be_hidden()
