"""The live page in a real browser, while a run trains."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest
from playwright.sync_api import Browser, expect, sync_playwright
from playwright.sync_api import Page as Tab

import nets
from fixtures import execute
from shell import Page, dashboard, fake_browser
from tab import ARGUMENTS, CHROMIUM, NEEDS_BROWSER, confirm, one_axis, picture, row, shoot, sorted_by
from trial import SGD, Trial, blobs, rows_of

pytestmark = [
    pytest.mark.slow,
    NEEDS_BROWSER,
]

FEATURES = 8
RATES = (0.3, 0.1, 0.03, 0.01, 0.003)
# So many that a run does not end before a test stops it.
EPOCHS = 400
PATIENCE = 180_000
TOKEN = "for-the-test-alone"
LOSS = "'loss': ['categorical_crossentropy'], 'metrics': ['accuracy']"
WIDTHS = (360, 390, 820, 1150, 1440, 1900, 2560)

END_SESSIONS = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = 'cerebro dashboard'"""


def sgd(rate: float) -> str:
    return SGD.replace("lr=0.1", f"lr={rate}")


@pytest.fixture(scope="module")
def trial(database: str) -> Iterator[Trial]:
    """Make tables for runs, with settings by which segment sessions start fast."""
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        trial = Trial(connection)
        trial.sql(
            "INSERT INTO cerebro.settings VALUES ('backend', 'jax'), ('threads', '1'), ('segments', '2')"
        )
        trial.table("blobs", "x real[], y integer", rows_of(*blobs(600, features=FEATURES)))
        trial.pack("blobs", "packed")
        trial.model(nets.mlp(FEATURES))
        trial.select("configs", [1], [sgd(rate) for rate in RATES], ["batch_size=4,epochs=4"])
        trial.select("more", [1], [sgd(0.02)], ["batch_size=4,epochs=4"])
        yield trial


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page(database: str, trial: Trial) -> Iterator[Page]:
    with dashboard(database, token=TOKEN) as served:
        yield served


@pytest.fixture(scope="module")
def tab(browser: Browser, page: Page) -> Iterator[Tab]:
    """One tab that stays open for all tests; in the end, the page's script must have raised no error."""
    tab = browser.new_page(viewport={"width": 1440, "height": 1000}, color_scheme="light")
    tab.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    faults: list[str] = []
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.goto(page.address)
    yield tab
    assert faults == []
    tab.close()


def begin(trial: Trial, out: str, selection: str, epochs: int, **more: object) -> int:
    trial.call(
        "madlib_fit_multiple_model", "packed", out, selection, epochs, metrics_compute_frequency=1,
        options={"background": True, "seed": 1}, **more,
    )  # fmt: skip
    return trial.value("SELECT cerebro.last_run()")


@pytest.mark.doors("page", "watch steer")
def test_a_run_is_watched_and_steered_while_it_trains(tab: Tab, page: Page, trial: Trial) -> None:
    assert tab.url == f"http://127.0.0.1:{page.port}/"
    expect(tab.get_by_role("heading", name="No run yet")).to_be_visible()
    # The statements that the page shows for a first run can be run as they are.
    assert_first_run_works(tab, trial)

    run = begin(trial, "models", "configs", EPOCHS, name="first try")
    expect(tab.locator("#title")).to_have_text(f"Run {run} · first try")
    expect(tab.locator("#status")).to_have_text("running")
    expect(tab.locator("#board tbody tr")).to_have_count(len(RATES))
    expect(tab.locator("#board thead")).to_contain_text("lr")
    expect(tab.locator("#now")).to_contain_text("config")
    expect(tab.locator("#standing")).to_contain_text("best accuracy")
    assert picture(tab, "timeline") > 0

    # The curves grow.
    tab.locator("#measure").select_option("visits")
    before, painted = visits_done(tab), picture(tab, "curves")
    tab.wait_for_function(
        "before => parseInt(document.getElementById('standing').textContent) > before + 20", arg=before
    )
    assert picture(tab, "curves") != painted

    row(tab, 2).click()
    expect(tab.locator("#config")).to_contain_text("SGD(lr=0.1)")
    shoot(tab, "dashboard-light")
    stop_and_resume(tab, run)
    clone_with_changes(tab, run)
    epochs_and_delete(tab, run)
    add(tab, run)
    add_a_grid(tab, run)
    pause_and_resume(tab, run)

    tab.get_by_role("button", name="Stop", exact=True).first.click()
    confirm(tab, "ends well", f"SELECT cerebro.stop({run})")
    expect(tab.locator("#status")).to_have_text("finished")
    expect(tab.locator("#standing")).to_contain_text(" of cores · ")
    decisions = [
        (key, what)
        for key, what in trial.sql(
            "SELECT mst_key, decision FROM cerebro.decisions WHERE run_id = %s ORDER BY number", run
        )
    ]
    assert decisions[:2] == [(2, "stop"), (2, "resume")]
    assert (None, "stop") in decisions
    expect(tab.locator("#decisions li")).to_have_count(len(decisions))
    keys = {key for (key,) in trial.sql("SELECT mst_key FROM models_info")}
    assert keys == {1, 2, 4, 5, 6, 7, 8, 9}


def assert_first_run_works(tab: Tab, trial: Trial) -> None:
    shoot(tab, "first-run-light")
    statements = tab.locator("#nothing pre").inner_text()
    trial.sql("CREATE SCHEMA first; SET search_path = first")
    for statement in statements.split(";\n"):
        trial.sql(statement.replace("%", "%%"))
    expect(tab.locator("#status")).to_have_text("finished")
    expect(tab.locator("#board tbody tr")).to_have_count(6)
    assert tab.evaluate("document.getElementById('bar').style.width") == "100%"
    relations(tab)
    sorted_by(tab)
    phone(tab)
    used(tab)
    model(tab)
    as_csv(tab)
    with tab.expect_download() as begun:
        tab.get_by_role("link", name="Report").click()
    assert "<h1>Run " in begun.value.path().read_text()
    run = trial.value("SELECT max(run_id) FROM cerebro.runs")
    trial.sql("RESET search_path; DROP SCHEMA first CASCADE")
    trial.sql("SELECT cerebro.forget(%s)", run)
    expect(tab.get_by_role("heading", name="No run yet")).to_be_visible()


def relations(tab: Tab) -> None:
    """Check that the pictures of parameters are drawn and differ, and that settings change the curves."""
    select = tab.locator("#relation")
    parameters = {"batch_size", "learning_rate"}
    expect(select.locator("option")).to_have_count(3 + len(parameters))
    assert parameters <= {one.get_attribute("value") for one in select.locator("option").all()}
    seen = set()
    for kind in ("all", "importance", "history", "learning_rate"):
        select.select_option(kind)
        tab.wait_for_timeout(200)
        seen.add(picture(tab, "relations"))
        shoot(tab, f"relation-{kind}-light")
    one_axis(tab)
    select.select_option("learning_rate")
    expect(tab.locator("#against-label")).to_be_visible()
    tab.locator("#against").select_option("batch_size")
    tab.wait_for_timeout(200)
    seen.add(picture(tab, "relations"))
    shoot(tab, "relation-pair-light")
    tab.locator("#against").select_option("")
    assert len(seen) == 5 and 0 not in seen
    before = picture(tab, "curves")
    tab.locator("#log").check()
    tab.locator("#smooth").select_option("0.9")
    tab.wait_for_timeout(200)
    assert picture(tab, "curves") not in (0, before)
    tab.locator("#log").uncheck()
    tab.locator("#smooth").select_option("0")
    tab.locator("#across").select_option("time")
    tab.wait_for_timeout(200)
    assert picture(tab, "curves") not in (0, before)
    tab.locator("#across").select_option("epochs")


def phone(tab: Tab) -> None:
    """Check that a phone shows a metric's value beside its rank, without scrolling."""
    tab.set_viewport_size({"width": 390, "height": 844})
    tab.locator("#board").scroll_into_view_if_needed()
    tab.wait_for_timeout(200)
    box = tab.locator("#board tbody tr").first.locator("td").nth(1).bounding_box()
    assert box is not None and box["x"] + box["width"] < 390
    shoot(tab, "phone-light")
    tab.set_viewport_size({"width": 1440, "height": 1000})


def used(tab: Tab) -> None:
    """Check the picture of what the segments' sessions use of the machine."""
    expect(tab.locator("#sessions")).to_contain_text("% of a core")
    seen = set()
    for kind in ("configs", "cpu", "memory"):
        tab.locator("#used").select_option(kind)
        tab.wait_for_timeout(200)
        seen.add(picture(tab, "timeline"))
        shoot(tab, f"used-{kind}-light")
    assert len(seen) == 3 and 0 not in seen
    tab.locator("#used").select_option("configs")


def model(tab: Tab) -> None:
    """Check a config's confusion matrix, and its predictions for a few rows."""
    row(tab, 1).click()
    tab.locator('#config [data-action="confusion"]').click()
    expect(tab.locator("#model")).to_contain_text("of 2000 training rows right")
    cells = tab.locator("#model tbody td[data-right]").all_inner_texts()
    assert len(cells) == 4 and sum(int(text) for text in cells if text != "·") == 2000
    shoot(tab, "dashboard-confusion")
    tab.get_by_role("button", name="Close").click()
    tab.locator('#config [data-action="predict"]').click()
    expect(tab.locator("#model input").nth(0)).to_have_value("first.points")
    expect(tab.locator("#model input").nth(1)).to_have_value("xy")
    tab.locator("#model").get_by_role("button", name="Predict").click()
    expect(tab.locator("#model tbody tr")).to_have_count(10)
    expect(tab.locator("#model thead")).to_contain_text("class_value")
    shoot(tab, "dashboard-predict")
    tab.locator("#model input").nth(1).fill("nothing")
    tab.locator("#model").get_by_role("button", name="Predict").click()
    expect(tab.locator("#model .problem")).to_contain_text("nothing")
    tab.get_by_role("button", name="Close").click()
    tab.locator("body").press("Escape")


def as_csv(tab: Tab) -> None:
    with tab.expect_download() as begun:
        tab.get_by_role("button", name="CSV").click()
    rows = list(csv.DictReader(begun.value.path().read_text().splitlines()))
    assert [int(one["rank"]) for one in rows] == [1, 2, 3, 4, 5, 6]
    assert {one["batch_size"] for one in rows} == {"16", "64"}


def visits_done(tab: Tab) -> int:
    return tab.evaluate("parseInt(document.getElementById('standing').textContent)")


def stop_and_resume(tab: Tab, run: int) -> None:
    tab.locator('#config [data-action="stop_config"]').click()
    confirm(tab, "gets no further visits", f"SELECT cerebro.stop_config({run}, 2)")
    expect(row(tab, 2)).to_contain_text("stopped")
    tab.locator('#config [data-action="resume_config"]').click()
    confirm(tab, "goes on", f"SELECT cerebro.resume_config({run}, 2)")
    expect(row(tab, 2)).not_to_contain_text("stopped")


def clone_with_changes(tab: Tab, run: int) -> None:
    tab.locator('#config [data-action="clone_config"]').click()
    text = tab.locator("#ask textarea").first
    # A parameter that is none is refused in the server's own words, and the dialog stays.
    text.fill("optimizer='Nonsense()'")
    expect(tab.locator("#ask pre")).to_contain_text("Nonsense")
    tab.locator("#ask button.primary").click()
    expect(tab.locator("#ask .problem")).to_contain_text("Nonsense")
    text.fill(sgd(0.5))
    expect(tab.locator("#ask pre")).to_contain_text("lr=0.5")
    shoot(tab, "dashboard-clone")
    confirm(tab, "architecture of config 2", f"SELECT cerebro.clone_config({run}, 2,")
    expect(row(tab, 6)).to_be_visible()
    row(tab, 6).click()
    expect(tab.locator("#config")).to_contain_text("cloned from config 2")


def epochs_and_delete(tab: Tab, run: int) -> None:
    """Set the epochs of a config and delete the config, by keys alone."""
    tab.locator("body").press("Escape")
    row(tab, 3).click()
    tab.locator("body").press("e")
    tab.locator("#ask input").fill("450")
    confirm(tab, "450 epochs in all", f"SELECT cerebro.set_epochs({run}, 3, 450)")
    expect(row(tab, 3)).to_contain_text("/450")
    tab.locator("body").press("d")
    expect(tab.locator("#ask")).to_contain_text("cannot be undone")
    tab.keyboard.press("Escape")
    expect(tab.locator("#ask")).to_be_hidden()
    expect(row(tab, 3)).not_to_contain_text("deleted")
    tab.locator("body").press("d")
    confirm(tab, "left out of public.models", f"SELECT cerebro.delete_config({run}, 3)")
    expect(row(tab, 3)).to_contain_text("deleted")


def add(tab: Tab, run: int) -> None:
    tab.get_by_role("button", name="Add configs").click()
    tab.locator("#ask input").fill("more")
    confirm(tab, "comes into run", f"SELECT * FROM cerebro.add_configs({run}, 'more')")
    expect(tab.locator("#told")).to_contain_text("new: config 7")
    expect(row(tab, 7)).to_be_visible()


def add_a_grid(tab: Tab, run: int) -> None:
    tab.get_by_role("button", name="Add a grid").click()
    text = tab.locator("#ask textarea").first
    # A refusal stays on the page, even if the click came before the answer to the preview.
    text.fill(f"{{{LOSS}, 'optimizer': ['SGD']}}")
    tab.locator("#ask button.primary").click()
    expect(tab.locator("#ask .problem")).to_contain_text("stands outside")
    tab.wait_for_timeout(1000)
    expect(tab.locator("#ask .problem")).to_be_visible()
    text.fill(f"{{{LOSS}, 'optimizer_params_list': [{{'optimizer': ['SGD'], 'lr': [0.2, 0.4]}}]}}")
    confirm(tab, "All combinations of the grid come into", f"SELECT * FROM cerebro.add_configs({run}, ")
    expect(tab.locator("#told")).to_contain_text("new: config 8, 9")
    expect(row(tab, 9)).to_be_visible()


def pause_and_resume(tab: Tab, run: int) -> None:
    tab.get_by_role("button", name="Pause").click()
    confirm(tab, "begins nothing more", f"SELECT cerebro.pause({run})")
    expect(tab.locator("#status")).to_have_text("paused")
    tab.get_by_role("button", name="Resume").first.click()
    confirm(tab, "goes on", f"SELECT cerebro.resume({run})")
    expect(tab.locator("#status")).to_have_text("running")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_every_width(tab: Tab, theme: str, trial: Trial) -> None:
    tab.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 900})
        tab.wait_for_timeout(200)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert picture(tab, "curves") > 0
        shoot(tab, "dashboard-dark" if (width, theme) == (1440, "dark") else f"width-{width}-{theme}")
    tab.set_viewport_size({"width": 1440, "height": 1000})
    tab.emulate_media(color_scheme="light")


def test_the_keys_lead_through_the_configs(tab: Tab) -> None:
    tab.locator("body").press("Escape")
    tab.locator("body").press("j")
    first = tab.locator('#board tr[aria-selected="true"]')
    expect(first).to_be_focused()
    key = first.get_attribute("data-key")
    first.press("ArrowDown")
    assert tab.locator('#board tr[aria-selected="true"]').get_attribute("data-key") != key
    tab.locator("body").press("Escape")
    expect(tab.locator('#board tr[aria-selected="true"]')).to_have_count(0)
    tab.locator("body").press("/")
    tab.keyboard.type("deleted")
    expect(tab.locator("#board tbody tr")).to_have_count(1)
    tab.locator("#filter").fill("")
    tab.keyboard.press("Escape")
    tab.locator("body").press("?")
    expect(tab.locator("#help")).to_be_visible()
    tab.keyboard.press("Escape")
    tab.locator("body").press("t")
    assert tab.evaluate("getComputedStyle(document.body).colorScheme") == "dark"
    tab.locator("body").press("t")


def test_runs_are_compared(tab: Tab, trial: Trial) -> None:
    second = begin(trial, "second", "more", 3)
    expect(tab.locator("#title")).to_have_text(f"Run {second}")
    expect(tab.locator("#status")).to_have_text("finished")
    button = tab.locator("#compare-button")
    expect(button).to_be_disabled()
    for mark in tab.locator("#runs .mark").all()[:2]:
        mark.check()
    button.click()
    expect(tab.locator("#compare-table thead th")).to_have_count(3)
    expect(tab.locator("#compare-table")).to_contain_text("first try")
    assert "lr" in tab.locator("#compare-table tbody th").all_inner_texts()
    expect(tab.locator("#run")).to_be_hidden()
    tab.wait_for_timeout(300)
    assert picture(tab, "compare-curves") > 0
    shoot(tab, "dashboard-compare")
    for width in (390, 1440):
        tab.set_viewport_size({"width": width, "height": 1000})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.locator("#compare-table a").nth(1).click()
    expect(tab.locator("#title")).to_contain_text("first try")
    expect(tab.locator("#compare")).to_be_hidden()
    trial.sql("SELECT cerebro.forget(%s)", second)
    tab.evaluate("location.hash = ''")


def test_runs_of_estimators_can_be_left_out(tab: Tab, trial: Trial) -> None:
    listed, own = tab.locator("#runs a"), tab.locator("#estimators-label")
    expect(own).to_be_hidden()
    # The page may have yet to see that a run was forgotten.
    before = trial.value("SELECT count(*) FROM cerebro.runs")
    expect(listed).to_have_count(before)
    trial.sql("CREATE SCHEMA estimators_try")
    run = begin(trial, "estimators_try.models", "more", 1)
    expect(tab.locator("#title")).to_have_text(f"Run {run}")
    expect(listed).to_have_count(before + 1)
    own.locator("input").uncheck()
    expect(listed).to_have_count(before)
    own.locator("input").check()
    expect(tab.locator("#status")).to_have_text("finished")
    trial.sql("SELECT cerebro.forget(%s)", run)
    expect(own).to_be_hidden()
    expect(tab.locator("#title")).not_to_have_text(f"Run {run}")


def test_a_run_that_is_over_is_forgotten(tab: Tab, trial: Trial) -> None:
    shown = tab.locator("#title").inner_text()
    run = begin(trial, "forgotten", "more", 1)
    expect(tab.locator("#title")).to_have_text(f"Run {run}")
    expect(tab.locator("#status")).to_have_text("finished")
    tab.get_by_role("button", name="Show").click()
    expect(tab.locator("#plan")).to_contain_text(f"Run {run}, finished 1 config")
    shoot(tab, "plan-light")
    tab.get_by_role("button", name="Forget").click()
    confirm(tab, "this page shows the run no more", f"SELECT cerebro.forget({run})")
    expect(tab.locator("#title")).to_have_text(shown)
    assert trial.sql("SELECT FROM cerebro.runs WHERE run_id = %s", run) == []
    assert trial.value("SELECT count(*) FROM forgotten") == 1


def test_a_database_that_is_lost_is_said_and_found_again(tab: Tab, database: str) -> None:
    with closing(psycopg2.connect(dbname="postgres")) as admin:
        admin.autocommit = True
        execute(admin, f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
        try:
            execute(admin, END_SESSIONS)
            expect(tab.locator("#trouble")).to_contain_text("The database does not answer")
            expect(tab.locator("#link")).to_have_text("no answer")
            shoot(tab, "lost-light")
            expect(tab.locator("#board tbody tr").first).to_be_visible()
        finally:
            execute(admin, f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")
    expect(tab.locator("#trouble")).to_be_hidden()
    expect(tab.locator("#link")).to_have_text("live")


def test_a_page_whose_server_ends_goes_on_with_the_next(
    browser: Browser, database: str, trial: Trial
) -> None:
    with dashboard(database, token=TOKEN) as page:
        tab = browser.new_page()
        tab.set_default_timeout(PATIENCE)
        tab.goto(page.address)
        expect(tab.locator("#link")).to_have_text("live")
    expect(tab.locator("#trouble")).to_contain_text("Cerebro dashboard does not answer")
    with dashboard(database, token=TOKEN, port=page.port):
        expect(tab.locator("#link")).to_have_text("live")
        tab.close()


@pytest.mark.slow
def test_two_hundred_configs(tab: Tab, trial: Trial) -> None:
    trial.select("many", [1], [sgd(round(0.001 * n, 3)) for n in range(1, 201)], ["batch_size=100"])
    run = begin(trial, "many_models", "many", 1)
    expect(tab.locator("#board tbody tr")).to_have_count(200)
    expect(tab.locator("#title")).to_have_text(f"Run {run}")
    expect(tab.locator("#status")).to_have_text("finished")
    shoot(tab, "many-light")
    started = time.perf_counter()
    for _ in range(20):
        tab.locator("body").press("j")
    print(f"20 keys, each with a new choice among 200 configs: {time.perf_counter() - started:.2f} s")
    assert picture(tab, "curves") > 0


def test_the_file_that_the_browser_gets_leads_to_the_page(
    database: str, browser: Browser, tmp_path: Path
) -> None:
    way_in = tmp_path / "way-in.html"
    with dashboard(database, browser=fake_browser(tmp_path)) as page:
        deadline = time.monotonic() + 60
        while not way_in.exists():
            assert time.monotonic() < deadline, "no browser was opened"
            time.sleep(0.05)
        tab = browser.new_page()
        tab.goto(way_in.as_uri())
        tab.wait_for_url(f"http://127.0.0.1:{page.port}/")
        expect(tab.locator("body")).to_contain_text(database)
        expect(tab.get_by_label("Token")).to_have_count(0)
        tab.close()
