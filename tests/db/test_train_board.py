"""The leaderboard of cerebro.train: configs with their metrics, and the best constant answer beside them."""

from __future__ import annotations

import json

import pytest

from trial import Trial

pytestmark = pytest.mark.fresh_caller

OPTIONS = {"configs": 2, "epochs": 4, "segments": 1, "single": True, "exclude": ["id"]}
BOARD = "SELECT * FROM cerebro.train('shops', %s, %s, '30 s', %s)"


@pytest.fixture(scope="module", autouse=True)
def shops(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE shops AS SELECT i AS id, i % 11 AS size, i * 7 % 60 AS age,"
        " (ARRAY['a', 'a', 'b'])[1 + i % 3] AS kind, 100.0 * (i % 11) + i * 7 % 60 AS sales"
        " FROM generate_series(1, 900) AS i"
    )


def test_a_quantity_has_its_metrics_beside_those_of_the_mean(trial: Trial) -> None:
    options = json.dumps({**OPTIONS, "metric": "rmse", "nets": ["linear", "Dense(8, 'relu')"]})
    *board, mean = trial.sql(BOARD, "sales", "by_rmse", options)
    key, net, parameters, metric, value, loss, best, rmse, mae, r2 = mean
    assert (key, net, parameters, loss, best) == (None, "always the mean of sales", None, None, False)
    assert metric == "rmse" and value == rmse > mae > 0 and r2 == pytest.approx(0, abs=1e-9)
    assert len(board) == 2 and board[0][6]
    for row in board:
        assert row[4] == row[7] and row[8] > 0
        # Both are measured on the held-out rows, one by Keras and one by NumPy.
        assert row[9] == pytest.approx(1 - (row[7] / rmse) ** 2, abs=1e-4)
    # An ensemble is not made, since a single model is asked for.
    assert trial.value("SELECT to_regclass('by_rmse_ensemble')") is None
    said = trial.notices()
    assert f"one answer for all rows {rmse:.4g}, 0" in said


@pytest.mark.parametrize(("target", "is_told"), [("slope", True), ("hinge", False)])
def test_a_linear_net_that_is_the_best_is_told(trial: Trial, target: str, is_told: bool) -> None:
    """A net with one unit bends once: it learns a hinge, but a slope no better than a linear net."""
    trial.sql(
        "CREATE TABLE IF NOT EXISTS lines AS SELECT x, 3.5 * x AS slope, abs(x) AS hinge"
        " FROM (SELECT sin(i * 1.7)::float8 AS x FROM generate_series(1, 900) AS i) AS s"
    )
    other = "hinge" if target == "slope" else "slope"
    nets = ["linear", "Dense(2, 'relu')" if target == "hinge" else "Dense(1, 'sigmoid')"]
    options = json.dumps({**OPTIONS, "configs": 6, "epochs": 25, "nets": nets, "exclude": [other]})
    trial.notices()
    trial.sql("SELECT FROM cerebro.train('lines', %s, %s, '60 s', %s)", target, f"by_{target}", options)
    assert ("a linear net is the best config" in trial.notices()) is is_told


def test_r2_of_values_that_vary_little_is_that_of_the_errors(trial: Trial) -> None:
    """A latitude varies by thousandths around 52: sums of its squares in 32 bits lose the variance."""
    trial.sql(
        "CREATE TABLE drops AS SELECT sin(i * 1.7) AS x, 52.52 + 0.01 * sin(i * 1.7) + 0.002 * cos(i) AS lat"
        " FROM generate_series(1, 900) AS i"
    )
    options = json.dumps({**OPTIONS, "metric": "r2", "exclude": [], "configs": 4, "nets": "linear"})
    ask = "SELECT metric, value, rmse, r2 FROM cerebro.train('drops', 'lat', 'by_r2', '30 s', %s)"
    *board, mean = trial.sql(ask, options)
    assert mean[1] == pytest.approx(0, abs=1e-6)
    assert [value for _, value, _, _ in board] == sorted([value for _, value, _, _ in board], reverse=True)
    for metric, value, rmse, r2 in board:
        assert metric == "r2" and value == r2 == pytest.approx(1 - (rmse / mean[2]) ** 2, abs=1e-6)


def test_classes_have_the_most_frequent_one_beside_them(trial: Trial) -> None:
    options = json.dumps({**OPTIONS, "exclude": ["id", "sales"], "nets": "linear", "configs": 1})
    (config, constant) = trial.sql(BOARD, "kind", "kinds", options)
    ((frequent, rare),) = trial.sql("SELECT kind_class_counts FROM kinds_packed_validation_summary")[0]
    assert config[3] == constant[3] == "accuracy" and config[7:] == constant[7:] == (None, None, None)
    assert constant[1] == "always 'a'" and constant[4] == pytest.approx(frequent / (frequent + rare))
    assert 0.6 < constant[5] < 0.7


def test_a_class_without_held_out_rows_counts_in_the_baseline_as_it_does_in_the_nets(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE rare AS SELECT i * 7 % 60 AS age, CASE WHEN i > 398 THEN 'rare' WHEN i * 7 % 60 > 30"
        " THEN 'old' ELSE 'young' END AS kind FROM generate_series(1, 400) AS i"
    )
    options = json.dumps({**OPTIONS, "exclude": [], "nets": "linear", "metric": "balanced_accuracy"})
    *board, constant = trial.sql(BOARD.replace("shops", "rare"), "kind", "overlooked", options)
    counts = trial.value("SELECT kind_class_counts FROM overlooked_packed_validation_summary")
    assert 0 in counts and len(counts) == 3
    assert constant[4] == pytest.approx(1 / 3) and board[0][4] > 0.6


def test_weights_of_rows_count_in_the_loss_of_the_constant_answer(trial: Trial) -> None:
    """The input says nothing of the class, so that the net can be no better than the constant answer."""
    trial.sql(
        "CREATE TABLE weighed AS SELECT x, (ARRAY['a', 'b'])[1 + (hashint4(i) & 1)] AS kind,"
        " CASE WHEN hashint4(i) & 1 = 0 THEN 9.0 ELSE 1.0 END AS w"
        " FROM (SELECT i, sin(i * 1.7)::float8 AS x FROM generate_series(1, 900) AS i) AS s"
    )
    given = {"exclude": [], "nets": "linear", "configs": 1, "weight": "w", "epochs": 40}
    options = json.dumps({**OPTIONS, **given})
    config, constant = trial.sql(BOARD.replace("shops", "weighed"), "kind", "by_weight", options)
    # Without the weights it would be 0.69, and with them 1.6.
    assert constant[5] == pytest.approx(config[5], rel=0.15) and 1.2 < constant[5] < 2
