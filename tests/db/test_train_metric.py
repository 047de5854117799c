"""cerebro.train decides by a metric that equals scikit-learn's on the held-out rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import numpy as np
import psycopg2
import pytest
from sklearn import metrics

from trial import Trial

CLASSES, FIRST_HELD = ["a", "b", "c"], 301
Measure = Callable[[np.ndarray, np.ndarray], float]


@pytest.fixture(scope="module", autouse=True)
def rows(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE clients AS SELECT i AS id, sin(i) AS x, cos(i * 0.7) AS z,"
        " CASE WHEN sin(i) + 0.5 * sin(i * i) > 0.6 THEN 'a' WHEN cos(i * 0.7) > 0.3 THEN 'b' ELSE 'c' END"
        " AS kind, 3 * sin(i) + cos(i * i) AS bill FROM generate_series(1, 400) AS i"
    )


def answered(f: Measure) -> Measure:
    return lambda labels, shares: f(labels, np.array(CLASSES)[shares.argmax(axis=1)])


METRICS: dict[str, tuple[str, Measure]] = {
    "logloss": ("kind", metrics.log_loss),
    "auc": ("kind", lambda labels, shares: metrics.roc_auc_score(labels, shares, multi_class="ovr")),
    "f1": ("kind", answered(lambda labels, said: metrics.f1_score(labels, said, average="macro"))),
    "balanced_accuracy": ("kind", answered(metrics.balanced_accuracy_score)),
    "rmse": ("bill", metrics.root_mean_squared_error),
    "r2": ("bill", metrics.r2_score),
}


def held_out(trial: Trial, model: str, target: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the true values of the held-out rows, and the model's answers for these rows."""
    told = f"{model}_told"
    how = "prob" if target == "kind" else "response"
    trial.sql("SELECT cerebro.madlib_predict(%s, 'clients', 'id', '*', %s, %s)", model, told, how)
    value, last = ("prob", ", class_value") if target == "kind" else ("prediction", "")
    found = trial.sql(
        f"SELECT {target}, {value} FROM clients JOIN {told} USING (id)"
        f" WHERE id >= {FIRST_HELD} ORDER BY id{last}"
    )
    width = len(CLASSES) if target == "kind" else 1
    truth = np.array([row[0] for row in found[::width]])
    answers = np.array([row[1] for row in found], float).reshape(-1, width)
    return truth, answers / answers.sum(axis=1, keepdims=True) if width > 1 else answers[:, 0]


@pytest.mark.parametrize(
    "metric", [pytest.param(one, marks=pytest.mark.slow if one == "logloss" else ()) for one in METRICS]
)
def test_the_metric_that_is_named_decides(trial: Trial, metric: str) -> None:
    target, measure = METRICS[metric]
    options = {
        "metric": metric,
        "validation": {"after": str(FIRST_HELD), "on": "id"},
        "exclude": ["id", "bill" if target == "kind" else "kind"],
        "nets": "linear",
        "configs": 3,
        "epochs": 3,
    }
    trial.notices()
    *board, constant = trial.sql(
        "SELECT metric, value FROM cerebro.train('clients', %s, %s, options => %s)",
        target,
        metric,
        json.dumps(options),
    )
    said = trial.notices()
    assert f"{metric}_ensemble is the mean of " in said and f": {metric} " in said
    assert '"compare_by": "metric"' in said
    values = [value for _, value in board]
    assert {name for name, _ in [*board, constant]} == {metric}
    assert values == sorted(values, reverse=metric not in ("logloss", "rmse"))
    # Each config keeps the epoch that is best by the metric.
    kept = trial.sql(
        "SELECT metric, value, best_value FROM cerebro.leaderboard"
        f" WHERE value IS NOT NULL AND run_id = (SELECT run_id FROM {metric}_summary) ORDER BY rank"
    )
    if metric == "r2":
        # Configs are ranked by their RMSE, from which R² follows.
        assert [name for name, *_ in kept] == ["rmse"] * len(board)
        assert [value for _, value, _ in kept] == [best for *_, best in kept] == sorted(v for _, v, _ in kept)
    else:
        assert kept == [(metric, value, value) for value in values]
    truth, answers = held_out(trial, metric, target)
    near = 1e-3 if metric == "auc" else 1e-5
    assert values[0] == pytest.approx(measure(truth, answers), abs=near)
    trial.sql(f"SELECT cerebro.ensemble('{metric}', '{metric}_alone', 1, '{metric}')")
    assert trial.value(f"SELECT count(*) FROM {metric}_alone") == 1
    # The importance of columns is measured by the metric as well.
    for model in (metric, f"{metric}@1"):
        if "@" in model:
            trial.sql("SELECT cerebro.register(%s, %s)", metric, metric)
        trial.notices()
        trial.sql("SELECT * FROM cerebro.importance(%s, 'clients', options => '{\"repeats\": 1}')", model)
        assert re.search(rf"\b{metric} -?\d", trial.notices())


@pytest.mark.slow
def test_a_config_keeps_the_epoch_that_is_best_by_the_metric(trial: Trial) -> None:
    """With random labels, the loss soon grows; the epoch that is kept is the best by the metric."""
    trial.sql(
        "CREATE TABLE coins AS SELECT sin(i) AS x, cos(i * i) AS z,"
        " CASE WHEN hashint4(i) % 2 = 0 THEN 'heads' ELSE 'tails' END AS side"
        " FROM generate_series(1, 200) AS i"
    )
    usual = {"nets": "Dense(32, 'relu')", "configs": 9, "epochs": 27, "single": True}
    for name, more in (("by_loss", {}), ("by_accuracy", {"metric": "accuracy"})):
        trial.sql(
            "SELECT cerebro.train('coins', 'side', %s, options => %s)", name, json.dumps({**usual, **more})
        )
        kept = (
            "SELECT bool_and(value = best_value) FROM cerebro.leaderboard"
            f" WHERE value IS NOT NULL AND run_id = (SELECT run_id FROM {name}_summary)"
        )
        assert trial.value(kept) is (name == "by_accuracy")


def test_rare_classes_may_count_as_much_as_others(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE seldom AS SELECT i AS id, sin(i) AS x,"
        " CASE WHEN sin(i) + 2 * cos(i * i) > 2.4 THEN 'rare' ELSE 'usual' END AS kind"
        " FROM generate_series(1, 600) AS i"
    )
    found = {}
    for name, more in (("plain", {}), ("weighted", {"class_weight": "balanced"})):
        options = {"nets": "Dense(16, 'relu')", "configs": 3, "epochs": 27, "single": True, **more}
        trial.sql("SELECT cerebro.train('seldom', 'kind', %s, options => %s)", name, json.dumps(options))
        told = f"{name}_answers"
        trial.sql("SELECT cerebro.madlib_predict(%s, 'seldom', 'id', '*', %s, 'response')", name, told)
        found[name] = trial.value(
            "SELECT avg((class_value = kind)::integer)::float8 FROM seldom"
            f" JOIN {told} USING (id) WHERE kind = 'rare'"
        )
    assert found["plain"] < 0.6 < 0.7 < found["weighted"]
    assert "class_weight='balanced'" in trial.value("SELECT fit_params FROM weighted_info")
    # The metric that then decides is also that of the importance of columns.
    trial.notices()
    trial.sql("SELECT * FROM cerebro.importance('weighted', 'seldom', options => '{\"repeats\": 1}')")
    assert "balanced_accuracy" in trial.notices()


@pytest.mark.parametrize(
    ("target", "more", "said"),
    [
        ("bill", {}, "option class_weight is given, and bill is a quantity"),
        ("kind", {"nets": ["linear", "tabm"]}, "option class_weight is given, and nets has tabm"),
        ("kind", {"class_weight": "heavy"}, "option class_weight is heavy"),
    ],
)
def test_weights_of_classes_are_refused_where_they_do_nothing(
    trial: Trial, target: str, more: dict[str, object], said: str
) -> None:
    options = json.dumps({"class_weight": "balanced", **more})
    with pytest.raises(psycopg2.Error, match=said):
        trial.sql("SELECT cerebro.train('clients', %s, 'refused', options => %s)", target, options)
