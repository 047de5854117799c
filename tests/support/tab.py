"""Actions in a browser tab that shows the dashboard."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect, sync_playwright
from playwright.sync_api import Page as Tab

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NEEDS_BROWSER = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: run tools/setup drivers")
# Tests may run as root in a container, where Chromium has no sandbox.
ARGUMENTS = ["--no-sandbox"]


@contextmanager
def open_tab(address: str, *, height: int = 1000, patience: int = 60_000) -> Iterator[Tab]:
    """Open a page in Chromium; at the end of the block, fail if its script reported an error."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        tab = browser.new_page(viewport={"width": 1440, "height": height}, color_scheme="light")
        tab.set_default_timeout(patience)
        faults: list[str] = []
        tab.on("pageerror", lambda error: faults.append(str(error)))
        tab.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        tab.goto(address)
        yield tab
        assert faults == []
        browser.close()


def confirm(tab: Tab, says: str, sql: str) -> None:
    """Check the text and the SQL in the confirmation dialog, then confirm."""
    dialog = tab.locator("#ask")
    expect(dialog).to_contain_text(says)
    expect(dialog.locator("pre")).to_contain_text(sql)
    dialog.locator("button.primary").click()
    expect(dialog).to_be_hidden()


def row(tab: Tab, key: int) -> Locator:
    return tab.locator(f'#board tbody tr[data-key="{key}"]')


def picture(tab: Tab, canvas: str) -> int:
    """Return the number of pixels of a canvas that are not transparent."""
    return tab.evaluate(
        """id => { const c = document.getElementById(id);
        const data = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
        let painted = 0;
        for (let i = 3; i < data.length; i += 4) if (data[i]) painted++;
        return painted; }""",
        canvas,
    )


def one_axis(tab: Tab) -> None:
    """Check that selecting a range of an axis leaves only the configs whose lines cross this range."""
    tab.locator("#relation").select_option("all")
    rows = tab.locator("#board tbody tr")
    whole = rows.count()
    tab.locator("#relations").scroll_into_view_if_needed()
    tab.wait_for_timeout(200)
    box = tab.locator("#relations").bounding_box()
    assert box is not None and whole > 1
    # The first axis, its upper half: the largest of the numbers.
    left, top = box["x"] + 58, box["y"]
    tab.mouse.move(left, top + 12)
    tab.mouse.down()
    tab.mouse.move(left, top + box["height"] / 3)
    tab.mouse.up()
    expect(tab.get_by_role("button", name="All configs")).to_be_visible()
    assert 0 < rows.count() < whole
    tab.get_by_role("button", name="All configs").click()
    expect(rows).to_have_count(whole)
    expect(tab.get_by_role("button", name="All configs")).to_be_hidden()


def sorted_by(tab: Tab) -> None:
    """Check that the table of configs sorts by a column both ways, and has the metric as second column."""
    heads = tab.locator("#board thead th")
    assert heads.nth(1).inner_text() == "accuracy"
    column = heads.all_inner_texts().index("learning_rate")
    for way in ("ascending", "descending"):
        heads.nth(column).get_by_role("button").click()
        expect(heads.nth(column)).to_have_attribute("aria-sort", way)
        cells = tab.locator(f"#board tbody td:nth-child({column + 1})")
        rates = [float(text) for text in cells.all_inner_texts()]
        assert rates == sorted(rates, reverse=way == "descending")
    heads.nth(0).get_by_role("button").click()


def shoot(tab: Tab, name: str) -> None:
    """Save a screenshot of the page in the folder that CEREBRO_PICTURES names, if it is set.

    The guide shows the screenshots whose names begin with dashboard-.
    """
    folder = os.environ.get("CEREBRO_PICTURES")
    if folder:
        tab.evaluate("scrollTo(0, 0)")
        tab.screenshot(path=Path(folder) / f"{name}.png")
