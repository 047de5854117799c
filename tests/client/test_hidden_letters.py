"""Control characters, also those for the direction of text, are shown as escapes in every output."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from cerebro_db import markup, plots, watch
from cerebro_db.database import Database

EVIL = "evil\u202egnp.exe\x1b[2J\u2066\x07"
SHOWN = r"evil\u202egnp.exe\x1b[2J\u2066\x07"
HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
GRID = {
    "loss": "categorical_crossentropy", "metrics": ["accuracy"], "optimizer": ["SGD"], "batch_size": [10, 20],
}  # fmt: skip


@pytest.fixture(scope="module")
def shown(client: Database, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the HTML of reports and notebook views about a run with control characters in its names."""
    client.rows(
        f'CREATE TABLE "{EVIL}" AS SELECT i % 9 AS "{EVIL}", i % 7 AS b, i % 2 AS y, i % 2 AS s'
        " FROM generate_series(1, 80) AS i"
    )
    name = f'"{EVIL}"'
    client.rows(
        "SELECT cerebro.training_preprocessor_dl(%s, 'odd', 'y', '*', options => %s)",
        name, '{"columns": "auto", "exclude": ["s"]}',
    )  # fmt: skip
    client.rows("SELECT cerebro.load_net('odd_nets', 'odd', 'Dense(4)')")
    named = client.with_architectures("odd_nets")
    more: Any = {"name": EVIL, "description": f"{EVIL} of ours", "epochs": 1, "backend": "jax"}
    run = named.fit("odd", GRID, wait=True, **more)
    plan = named.fit("odd", GRID, explain=True, **more)
    path = run.report(tmp_path_factory.mktemp("report") / "run.html")
    return {
        "report": Path(path).read_text(encoding="utf-8"),
        "run": run._repr_html_(),
        "database": client._repr_html_(),
        "packed": run.packed._repr_html_(),
        "plan": plan._repr_html_(),
    }


@pytest.mark.parametrize("what", ["report", "run", "database", "packed", "plan"])
def test_no_page_has_hidden_letters(shown: dict[str, str], what: str) -> None:
    assert not HIDDEN.search(shown[what]), HIDDEN.findall(shown[what])


def test_they_are_spelled_out(shown: dict[str, str]) -> None:
    assert SHOWN in shown["report"] and SHOWN in shown["run"]


@pytest.mark.parametrize(
    "made",
    [
        markup.titled(EVIL, markup.pairs([(EVIL, EVIL)]), markup.table([EVIL], [[EVIL]])),
        watch._bar(0.5, EVIL),
    ],
)
def test_pieces_of_html_have_none(made: str) -> None:
    assert SHOWN in made and not HIDDEN.search(made)


def test_pictures_have_none_and_dollars_are_no_formula() -> None:
    figure = plots._figure(4, 2)
    axes = figure.subplots()
    axes.set(xlabel=plots._shown(rf"{EVIL} $\wrong{{$ a$b$"))
    drawn = plots.Picture(figure).svg()
    assert not HIDDEN.search(drawn)
    assert SHOWN in drawn and r"$\wrong{$ a$b$" in drawn
