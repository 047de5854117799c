"""Numeric columns are also encoded as categories if the target jumps from one value to the next."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import psycopg2
import pytest

from packing import column
from trial import Trial

pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]

ROWS, ROUTES = 1800, 150
SMALL: dict[str, Any] = {"configs": 2, "epochs": 27, "nets": ["tabular"], "single": True, "exclude": ["id"]}


@pytest.fixture(scope="module", autouse=True)
def fares(trial: Trial) -> None:
    """Train on fares that jump from one distance to the next, because each distance is one route."""
    trial.sql(
        "CREATE TABLE fares AS SELECT i AS id,"
        " CASE WHEN i %% 90 = 0 THEN NULL ELSE 100.5 + (i * 37 %% %s) END::float8 AS dist,"
        " sin(i * 1.3)::float8 AS load, (i * 37 %% %s * 7919 %% 101)::float8 + sin(i * 1.3) AS fare"
        " FROM generate_series(1, %s) AS i",
        ROUTES,
        ROUTES,
        ROWS,
    )
    trial.sql("SELECT * FROM cerebro.train('fares', 'fare', 'routes', options => %s)", json.dumps(SMALL))


def pack(trial: Trial, listed: str, options: dict[str, Any], source: str = "fares") -> dict[str, Any]:
    trial.sql("DROP TABLE IF EXISTS packed, packed_summary")
    trial.pack(source, "packed", "fare", listed, options={"segments": 1, "task": "regression", **options})
    return trial.value("SELECT feature_specification FROM packed_summary")


def test_values_have_codes_in_an_input_of_their_own(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE codes AS SELECT unnest("
        " ARRAY[2.5, 2.5, 10, 10, 7, NULL, 'NaN', 'NaN']::float8[]) AS dist,"
        " generate_series(1, 8)::float8 AS fare"
    )
    found = pack(trial, "dist, fare", {"columns": {"dist": {"also_category": True}}}, source="codes")
    assert [(one["name"], one["shape"]) for one in found["inputs"]] == [
        ("independent_var", [3]),
        ("dist", [1]),
    ]
    order = np.argsort(column(trial.sql, "fare", "<f4", "packed")[:, 0])
    codes = column(trial.sql, "dist", "<f4", "packed")[order, 0]
    # Codes follow the values' order; a single value has the code 0 of unseen ones, NaN the code 1 of NULL.
    assert codes.tolist() == [2, 2, 3, 3, 0, 1, 1, 1]


def test_only_numbers_from_whose_values_the_label_jumps_are_categories(trial: Trial) -> None:
    options: dict[str, Any] = {"columns": "auto", "also_categories": True}
    trial.notices()
    found = pack(trial, "*", options)
    alone = '"dist"; as numbers alone: {"columns": {"dist": {"also_category": false}}}'
    assert f"jumps from value to value: {alone}" in trial.notices()
    assert [one["name"] for one in found["inputs"]] == ["independent_var", "dist"]
    said = {"dist": {"also_category": False}, "load": {"also_category": True}}
    found = pack(trial, "*", {**options, "columns": said})
    assert [one["name"] for one in found["inputs"]] == ["independent_var", "load"]
    described = dict(
        trial.sql(
            "SELECT column_name, becomes FROM cerebro.describe_columns('fares', %s)",
            json.dumps({"columns": said}),
        )
    )
    assert "also_category" in described["load"] and "also_category" not in described["dist"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"columns": {"dist": {"also_category": 1}}}, "also_category is 1"),
        (
            {"columns": {"dist": {"encode": "embed", "also_category": True}}},
            "has no key also_category",
        ),
        ({"also_categories": True}, "option also_categories needs the option columns"),
    ],
)
def test_what_cannot_be_is_refused(trial: Trial, options: dict[str, Any], error: str) -> None:
    with pytest.raises(psycopg2.Error, match=error):
        pack(trial, "dist", options)


def value(trial: Trial, query: str) -> float:
    return float(trial.value(query))


def test_a_net_learns_each_value_by_itself(trial: Trial) -> None:
    trial.sql(
        "SELECT * FROM cerebro.train('fares', 'fare', 'plain', options => %s)",
        json.dumps({**SMALL, "also_categories": False}),
    )
    loss = "SELECT validation_loss_final FROM {}_info ORDER BY 1 LIMIT 1"
    assert value(trial, loss.format("routes")) < 0.2 < 0.5 < value(trial, loss.format("plain"))


@pytest.mark.postgresql
def test_rows_and_tables_are_answered_alike(trial: Trial) -> None:
    trial.sql("SELECT cerebro.register('routes', 'routes')")
    rows = trial.sql(
        "SELECT f.id, p.prediction FROM fares f, cerebro.predict('routes@1', f) p"
        " WHERE f.id % 50 = 0 ORDER BY 1"
    )
    table = trial.sql(
        "SELECT (p.source).id, p.prediction"
        " FROM cerebro.predict_query('routes', 'TABLE fares', NULL::fares) p"
        " WHERE (p.source).id % 50 = 0 ORDER BY 1"
    )
    assert len(rows) == ROWS // 50 and [key for key, _ in rows] == [key for key, _ in table]
    # The net learns fares up to 102 on one scale, so rounding errors are as large for small fares.
    rounding = 1e-6 * 102
    assert [answer for _, answer in rows] == pytest.approx([answer for _, answer in table], abs=rounding)


@pytest.mark.postgresql
def test_a_column_is_explained_once(trial: Trial) -> None:
    found = trial.sql(
        "SELECT e.column_name, e.contribution, e.score - e.baseline"
        " FROM fares f, cerebro.explain_predict('routes', f, NULL) e WHERE f.id = 7"
    )
    assert sorted(name for name, *_ in found) == ["dist", "load"]
    assert sum(added for _, added, _ in found) == pytest.approx(found[0][2], rel=0.02)
    worth = trial.sql("SELECT column_name, importance FROM cerebro.importance('routes', 'fares')")
    assert [name for name, _ in worth] == ["dist", "load"] and worth[0][1] > 10 * abs(worth[1][1])


def test_a_column_is_watched_once(trial: Trial) -> None:
    found = trial.sql("SELECT column_name, measure, verdict FROM cerebro.check('routes', 'fares')")
    lines = [(name, measure) for name, measure, _ in found]
    assert len(set(lines)) == len(lines) and {verdict for *_, verdict in found} == {"ok"}
