"""Scales for a numeric target: mean and deviation, those of its logarithm, or the value as it is."""

from __future__ import annotations

import json
from typing import Any

import psycopg2
import pytest

from trial import Trial

pytestmark = pytest.mark.fresh_caller

SMALL: dict[str, Any] = {"configs": 2, "epochs": 27, "nets": ["linear"], "single": True, "exclude": ["id"]}


@pytest.fixture(scope="module", autouse=True)
def prices(trial: Trial) -> None:
    """Make prices from 0 to some 100,000, whose logarithm depends on two columns."""
    trial.sql(
        "CREATE TABLE prices AS SELECT i AS id, sin(i)::float8 AS a, cos(i * 1.7)::float8 AS b,"
        " exp(6 + 3 * sin(i) + 2 * cos(i * 1.7)) - 1 AS price, sin(i) > 0 AS sold"
        " FROM generate_series(1, 900) AS i"
    )


def train(trial: Trial, name: str, **more: Any) -> float:
    """Train a model of prices, and return the R² of its predictions for all rows."""
    trial.notices()
    ask = "SELECT * FROM cerebro.train('prices', 'price', %s, options => %s)"
    trial.sql(ask, name, json.dumps({**SMALL, **more}))
    trial.sql("DROP TABLE IF EXISTS answered")
    trial.call("madlib_predict", name, "prices", "id", "*", "answered")
    found = trial.sql(
        "SELECT 1 - sum((prediction - price)^2) / sum((mean - price)^2) FROM answered JOIN prices USING (id)"
        " CROSS JOIN (SELECT avg(price) AS mean FROM prices) AS m"
    )
    return float(found[0][0])


def test_a_logarithm_is_learned_and_the_answer_is_the_value(trial: Trial) -> None:
    assert train(trial, "logs", target_scale="log") > 0.99
    assert '"target_scale": "log"' in trial.notices()
    layers = [row[0] for row in trial.sql("SELECT layer FROM cerebro.show_net('logs_nets', 1)")]
    assert sum("rescaling" in name or "price" in name for name in layers) == 2
    assert train(trial, "usual") < 0.9


def test_a_quantity_is_learned_as_it_is_if_that_is_wanted(trial: Trial) -> None:
    train(trial, "plain", target_scale="none", epochs=1)
    kinds = [row[0] for row in trial.sql("SELECT layer FROM cerebro.show_net('plain_nets', 1)")]
    assert not any("rescaling" in kind for kind in kinds)


@pytest.mark.parametrize("way", [pytest.param("standard", marks=pytest.mark.slow), "log"])
def test_answers_stay_within_the_values_seen_if_that_is_wanted(trial: Trial, way: str) -> None:
    trial.sql("CREATE TABLE IF NOT EXISTS far AS SELECT id, a * 30 AS a, b * 30 AS b, sold FROM prices")
    ends: list[list[float]] = []
    for name, more in ((f"held_{way}", {"clamp": True}), (f"free_{way}", {})):
        train(trial, name, target_scale=way, **more)
        trial.sql("DROP TABLE answered")
        trial.call("madlib_predict", name, "far", "id", "*", "answered")
        ends.append(
            [float(end) for end in trial.sql("SELECT min(prediction), max(prediction) FROM answered")[0]]
        )
    (low, high), (free_low, free_high) = ends
    most = trial.value("SELECT max(price) FROM prices")
    assert -1e-3 * most < low and high < most * 1.001 < free_high
    assert way == "log" or free_low < -most


def test_statistics_come_from_the_training_rows_alone(trial: Trial) -> None:
    """Held-out rows, however odd, change neither the feature specification nor what a net is made with."""
    trial.sql("CREATE TABLE early AS SELECT * FROM prices WHERE id <= 700")
    trial.sql(
        "CREATE TABLE odd_later AS SELECT * FROM early UNION ALL"
        " SELECT id, 1e3 * a, b - 50, 1e6 + price, sold FROM prices WHERE id > 700"
    )
    found: list[list[Any]] = []
    for rows, more in (("early", {}), ("odd_later", {"validation": {"after": "701", "on": "id"}})):
        options = {"columns": "auto", "exclude": ["id", "sold"], **more}
        trial.pack(rows, f"{rows}_packed", "price", "*", options=options)
        for net in ("linear", "tabm", "realmlp"):
            trial.sql("SELECT cerebro.load_net(%s, %s, %s)", f"{rows}_nets", f"{rows}_packed", net)
        found.append(
            [
                trial.value(f"SELECT feature_specification::text FROM {rows}_packed_summary"),
                *trial.sql(f"SELECT model_arch::text FROM {rows}_nets ORDER BY model_id"),
            ]
        )
    assert found[0] == found[1]
    assert trial.value("SELECT total_rows FROM odd_later_packed_validation_summary") == 200


def test_the_scale_is_kept_when_rows_are_added(trial: Trial) -> None:
    """Rows in another unit are told of as drift; a net that trains on answers in its own scale."""
    trial.sql("CREATE TABLE growing AS SELECT * FROM prices WHERE id <= 600")
    trial.pack("growing", "grown", "price", "*", options={"columns": "auto", "exclude": ["id", "sold"]})
    trial.sql("SELECT cerebro.load_net('grown_nets', 'grown', 'linear')")
    scale = (
        "SELECT l->'config'->>'scale', l->'config'->>'offset' FROM {},"
        " json_array_elements(model_arch->'config'->'layers') AS l WHERE l->>'class_name' = 'Rescaling'"
    )
    before = trial.sql(scale.format("grown_nets"))
    trial.sql("CREATE TABLE added AS SELECT id, a, b, 1000 * price AS price, sold FROM prices WHERE id > 600")
    trial.call("append_rows", "grown", "added")
    drift = "SELECT mean_before, mean, stability FROM cerebro.drift WHERE packed_table = 'public.grown'"
    ((mean_before, mean, stability),) = trial.sql(f"{drift} AND column_name = 'price'")
    assert mean > 100 * mean_before and stability > 0.25
    compiled = ["loss='mse',optimizer='Adam(lr=0.01)'"]
    trial.select("grown_mst", [1], compiled, ["batch_size=32"], arch="grown_nets")
    trial.fit("grown", "grown_model", "grown_mst", 1)
    assert len(before) == 1 and trial.sql(scale.format("grown_model")) == before


@pytest.mark.postgresql
def test_contributions_add_up_behind_a_logarithm(trial: Trial) -> None:
    found = trial.sql(
        "SELECT e.contribution, e.score - e.baseline, e.approximation_error"
        " FROM prices r, cerebro.explain_predict('logs', r, NULL) e WHERE r.id = 3"
    )
    assert sum(added for added, *_ in found) == pytest.approx(found[0][1], rel=0.02)
    assert found[0][2] < 0.01


def test_a_net_of_classes_has_no_scale(trial: Trial) -> None:
    trial.pack("prices", "sold_rows", "sold", "a, b")
    with pytest.raises(psycopg2.Error, match="sold is learned as classes"):
        trial.sql("SELECT cerebro.load_net('none', 'sold_rows', 'linear', '{\"target_scale\": \"log\"}')")


@pytest.mark.parametrize(
    ("target", "more", "error"),
    [
        ("a", {"target_scale": "log"}, '"a" has the value -0.99.*takes no value below 0'),
        ("sold", {"target_scale": "log"}, "sold is learned as classes"),
        ("price", {"target_scale": "logarithm"}, "target_scale is logarithm"),
        ("sold", {"clamp": True}, "sold is learned as classes, and clamp is for quantities"),
        ("price", {"clamp": True, "target_scale": "none"}, "clamp is given, and target_scale is none"),
        ("price", {"clamp": 1}, "option clamp is 1"),
    ],
)
def test_what_cannot_be_is_refused(trial: Trial, target: str, more: dict[str, Any], error: str) -> None:
    with pytest.raises(psycopg2.Error, match=error):
        trial.sql(
            "SELECT * FROM cerebro.train('prices', %s, 'wrong', options => %s)",
            target,
            json.dumps({**SMALL, **more}),
        )


def test_groups_of_other_sizes_are_told(trial: Trial) -> None:
    """The net of a group with small values would answer in steps of all groups."""
    trial.sql(
        "CREATE TABLE shops AS SELECT i % 4 AS shop, sin(i) AS x, CASE i % 4 WHEN 3 THEN 1234.567"
        " ELSE (ARRAY[10, 5000, 10000])[1 + i % 4] * (2 + sin(i)) END AS sales"
        " FROM generate_series(1, 800) AS i"
    )
    trial.pack("shops", "by_shop", "sales", "x", options={"columns": "auto", "group_by": ["shop"]})
    small = trial.value("SELECT stddev_pop(sales) FROM shops WHERE shop = 0")
    of_all = trial.value("SELECT stddev_pop(sales) FROM shops")
    trial.notices()
    trial.call("load_net", "shop_nets", "by_shop", "linear")
    told = trial.notices()
    assert f"sales deviates by {of_all:.4g} in all rows, and in 1 of 4 groups by less than" in told
    assert f"such as {small:.4g}: a net with one scale for all groups answers coarsely" in told
    trial.call("load_net", "shop_nets", "by_shop", "linear", '{"target_scale": "log"}')
    assert "coarsely" not in trial.notices()
