"""Checks, explanations and importance by the client and the command `cerebro` equal those of the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cerebro_db import CerebroError, Database, Run
from cerebro_db.judged import IMPORTANCE

from cars import GRID
from shell import cerebro

# Greenplum refuses cerebro.explain_predict and cerebro.predict.
explains = pytest.mark.postgresql


@pytest.fixture(scope="module")
def judged(client: Database) -> Iterator[Run]:
    """A run that predicts the kind of a car from its columns; its best model is registered as `kinds`."""
    packed = client.pack(
        "cars", x="*", y="kind", into="judged_cars", exclude=["id"], columns="auto", segments=2
    )
    client.rows("SELECT cerebro.load_net('judged_nets', 'judged_cars', 'linear')")
    grid = {**GRID, "loss": "categorical_crossentropy", "learning_rate": 0.01}
    run = client.with_architectures("judged_nets").fit(packed, grid, epochs=1, out="judged_models", wait=True)
    client.models.register(run.models(), "kinds")
    yield run
    client.models.drop("kinds")


def test_a_check_has_a_finding_for_each_column(client: Database, judged: Run) -> None:
    found = client.models.check("kinds@1", "cars", thresholds={"stability": 0.3})
    asked = "SELECT * FROM cerebro.check('kinds@1', 'cars', NULL, '{\"stability\": 0.3}')"
    expected = client.rows(asked)
    pd.testing.assert_frame_equal(found, pd.DataFrame(expected))
    assert set(found[found["measure"] == "stability"]["threshold"]) == {0.3}


@explains
def test_rows_are_explained_in_the_order_of_their_ids(client: Database, judged: Run) -> None:
    found = client.models.explain("kinds", "cars", "id", [12, 7], top=2)
    assert list(found["id"]) == [12, 12, 7, 7]
    asked = "SELECT e.* FROM cars c, cerebro.explain_predict('kinds', c, 2) AS e WHERE c.id = 12"
    (first, _) = client.rows(asked)
    assert found.iloc[0].drop("id").to_dict() == pytest.approx(first)
    whole = client.models.explain("kinds", "cars", "id", [7], top=None)
    assert len(whole) > 2 and list(whole["contribution"].abs()) == sorted(whole["contribution"].abs())[::-1]
    assert client.models.explain("kinds", "cars", "id", [-1]).empty
    # A column may have the alias that the client's statement gives to the row.
    client.rows("CREATE VIEW lettered AS SELECT *, 0.5 AS r, 'w' AS w, id AS e FROM cars")
    pd.testing.assert_frame_equal(client.models.explain("kinds", "lettered", "id", [7], top=None), whole)


def test_the_worst_rows_the_parts_and_the_worth_of_columns(client: Database, judged: Run) -> None:
    worst = client.models.worst_rows("kinds", "cars", limit=3)
    assert len(worst) == 3 and worst["loss"].is_monotonic_decreasing
    parts = client.models.evaluate_by("kinds", "cars", ["kind"])
    assert None in list(parts["part"]) and len(set(parts["metric"])) > 1
    worth = client.models.importance("kinds", "cars", repeats=2, metric="accuracy")
    assert list(worth.columns) == list(IMPORTANCE) and len(worth) > 1
    assert set(judged.advise().columns) == {"mst_key", "finding", "epoch", "advice"}


def test_importance_is_drawn_as_bars(client: Database, judged: Run, tmp_path: Path) -> None:
    worth = client.models.importance("kinds", "cars", repeats=1)
    (axes,) = client.models.plot_importance("kinds", "cars", repeats=1).figure.axes
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(list(worth["importance"]))
    assert [label.get_text() for label in axes.get_yticklabels()] == list(worth["column_name"])
    text = judged.report(tmp_path / "run.html", rows="cars").read_text()
    assert "What the best config goes by" in text and "On the rows of cars" in text


@explains
def test_contributions_are_drawn_as_bars(client: Database, judged: Run) -> None:
    parts = client.models.explain("kinds", "cars", "id", [7], top=None)
    (axes,) = client.models.plot_explanation("kinds", "cars", "id", 7).figure.axes
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(list(parts["contribution"]))
    assert f"kinds says {parts.loc[0, 'class']} of id 7" in axes.get_title()
    with pytest.raises(CerebroError, match="cars has no row whose id is -1"):
        client.models.plot_explanation("kinds", "cars", "id", -1)


def shown(database: str, *words: str) -> Any:
    """Run a command with --format json, and return its rows."""
    done = cerebro(*words, "--format", "json", database=database)
    assert done.code == 0, done.err
    return done.rows


def test_the_commands_show_the_same(client: Database, client_database: str, judged: Run) -> None:
    found = shown(client_database, "check", "kinds@1", "cars")
    assert len(found) == len(client.models.check("kinds@1", "cars"))
    found = shown(client_database, "worst-rows", "kinds", "cars", "--limit", "2")
    worst = client.models.worst_rows("kinds", "cars", 2)
    assert [row["loss"] for row in found] == pytest.approx(list(worst["loss"]))
    assert len(shown(client_database, "advise", str(judged.run_id))) == len(judged.advise())


@pytest.mark.slow
@explains
def test_the_command_explains_rows(client: Database, client_database: str, judged: Run) -> None:
    found = shown(client_database, "explain", "kinds", "cars", "7", "--id", "id", "--top", "1")
    assert [row["id"] for row in found] == [7]
    text = cerebro("explain", "kinds", "cars", "7", "--id", "id", database=client_database).out
    assert text.split()[:3] == ["id", "class", "score"]


def test_what_is_wrong_is_told(client: Database, client_database: str, judged: Run) -> None:
    done = cerebro("explain", "kinds", "cars", "nobody", "--id", "id", database=client_database)
    assert done.code == 1 and "cars has no row whose id is nobody" in done.err
    done = cerebro("check", "kinds", "cars", "--thresholds", "[1]", database=client_database)
    assert done.code == 2 and "it is a JSON object" in done.err
    with pytest.raises(CerebroError, match="is not the name of a table"):
        client.models.explain("kinds", "cars; DROP TABLE cars", "id", [1])
