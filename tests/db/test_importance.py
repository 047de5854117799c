"""The importance of columns for all rows and for one row, and the rows that a model answers worse."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable

import numpy as np
import psycopg2
import pytest

from trial import Trial

ROWS = 1200
SELECT = "SELECT cerebro.load_model_selection_table(%s, %s, ARRAY[1], ARRAY[%s], ARRAY['batch_size=16'])"


@pytest.fixture(scope="module", autouse=True)
def model(trial: Trial) -> None:
    """Train on a class that two of three columns decide; in the east the class is random."""
    trial.sql(
        "CREATE TABLE calls AS SELECT i, sin(i * 1.7)::real AS first,"
        "  (ARRAY['a','b','c'])[1 + i * 7 %% 3] AS kind,"
        "  cos(i * 2.9)::real AS noise, CASE WHEN i %% 4 = 0 THEN 'east' ELSE 'west' END AS region,"
        "  CASE WHEN (CASE WHEN i %% 4 = 0 THEN cos(i * 0.37)"
        "       ELSE sin(i * 1.7) + CASE i * 7 %% 3 WHEN 0 THEN 0.4 ELSE -0.3 END END) > 0 "
        "  THEN 'yes' ELSE 'no' END AS answer,"
        " 2 * sin(i * 1.7) + 5 AS size"
        " FROM generate_series(1, %s) i",
        ROWS,
    )
    trial.sql("CREATE VIEW few AS SELECT * FROM calls WHERE i <= 40")
    options = {"columns": "auto", "exclude": ["i", "region", "size"]}
    trial.pack("calls", "packed", "answer", "*", options=options)
    trial.value("SELECT cerebro.load_net('nets', 'packed', 'Dense(16, \"relu\")')")
    trial.sql(
        SELECT,
        "nets",
        "mst",
        "loss='categorical_crossentropy',optimizer='Adam(lr=0.02)',metrics=['accuracy']",
    )
    trial.fit("packed", "models", "mst", 6)


def importance(trial: Trial, **options: object) -> dict[str, tuple[float, float]]:
    found = trial.sql(
        "SELECT * FROM cerebro.importance('models', 'calls', options => %s)", json.dumps(options)
    )
    return {name: (worth, spread) for name, worth, spread, *_ in found}


def test_a_column_that_decides_comes_first_and_noise_is_worth_nothing(trial: Trial) -> None:
    found = importance(trial, metric="accuracy")
    assert list(found)[0] == "first"
    assert found["first"][0] > 0.15 > found["kind"][0] > 0.005
    worth, spread = found["noise"]
    assert abs(worth) < max(2 * spread, 0.01)
    options = json.dumps({"metric": "accuracy"})
    within = {
        name: (low, high)
        for name, low, high in trial.sql(
            "SELECT column_name, low, high FROM cerebro.importance('models', 'calls', options => %s)", options
        )
    }
    assert within["noise"][0] < 0 < within["noise"][1]
    assert 0 < within["first"][0] < found["first"][0] < within["first"][1]
    assert "accuracy 0." in trial.notices()
    assert importance(trial, metric="accuracy") == found


def test_threads_change_no_importance_and_end_with_a_cancel(trial: Trial) -> None:
    beside = importance(trial, repeats=3)
    trial.sql("INSERT INTO cerebro.settings VALUES ('segments', '1')")
    try:
        assert importance(trial, repeats=3) == beside
    finally:
        trial.sql("DELETE FROM cerebro.settings WHERE name = 'segments'")
    trial.sql("SET statement_timeout = '1s'")
    begun = time.monotonic()
    try:
        with pytest.raises(psycopg2.errors.QueryCanceled):
            importance(trial, repeats=1000)
    finally:
        trial.sql("SET statement_timeout = 0")
    assert time.monotonic() - begun < 5
    assert importance(trial, repeats=3) == beside


def test_a_registered_model_is_named_by_its_reference(trial: Trial) -> None:
    trial.sql("SELECT cerebro.register('models', 'answering')")
    ask = "SELECT * FROM cerebro.importance(%s, 'calls')"
    assert trial.sql(ask, "answering@1") == trial.sql(ask, "models")


def test_columns_are_mixed_together(trial: Trial) -> None:
    found = importance(trial, together=[["first", "kind"]], repeats=2, rows=600)
    assert set(found) == {"first, kind", "noise"}
    assert "on 600 rows" in trial.notices()


def test_a_part_that_the_model_answers_worse_is_named(trial: Trial) -> None:
    found = trial.sql(
        "SELECT part->>'region', rows, value, low, high, worse"
        " FROM cerebro.evaluate_by('models', 'calls', ARRAY['region']) WHERE metric = 'accuracy'"
    )
    everything, west, east = found
    assert [row[:2] for row in found] == [(None, ROWS), ("west", 900), ("east", 300)]
    assert [row[5] for row in found] == [False, False, True]
    assert all(low < value < high for _, _, value, low, high, _ in found)
    assert west[2] > everything[2] > east[2] + 0.1
    assert everything[2] == pytest.approx((900 * west[2] + 300 * east[2]) / ROWS)
    wanted = (
        "SELECT avg((p.class = c.answer)::int) FROM calls c, cerebro.predict('models'::regclass, c) p"
        " WHERE c.region = 'east'"
    )
    if trial.topology != "greenplum":
        assert east[2] == pytest.approx(float(trial.value(wanted)))


def test_parts_have_every_metric(trial: Trial) -> None:
    ask = "SELECT part->>'region', metric, value, low, high, worse FROM cerebro.evaluate_by('models', %s, %s)"
    found = trial.sql(ask, "calls", ["region"])
    metrics = ["logloss", "accuracy", "auc", "f1", "balanced_accuracy"]
    assert [row[:2] for row in found] == [
        (part, metric) for part in (None, "west", "east") for metric in metrics
    ]
    known = {(part, metric): rest for part, metric, *rest in found}
    for metric in metrics[2:]:
        assert known["east", metric][3] and not known["west", metric][3]
        value, low, high, _ = known[None, metric]
        assert low < value < high and known["west", metric][0] > value > known["east", metric][0]
    # No AUC is computed for rows that all have one class.
    trial.sql("CREATE VIEW agreed AS SELECT * FROM calls WHERE region = 'west' OR answer = 'yes'")
    parts = {part for part, metric, *_ in trial.sql(ask, "agreed", ["region"]) if metric == "auc"}
    assert parts == {None, "west"}


@pytest.mark.postgresql
def test_answers_that_are_no_numbers_are_shown_as_such(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE lost AS SELECT mst_key, model_arch,"
        " decode(repeat('0000c07f', length(model_weights) / 4), 'hex') AS model_weights FROM models"
    )
    for beside in ("info", "summary"):
        trial.sql(f"CREATE TABLE lost_{beside} AS TABLE models_{beside}")
    ask = "SELECT p.probability, p.probabilities FROM calls c, cerebro.predict('lost', c) p WHERE i = 1"
    ((probability, probabilities),) = trial.sql(ask)
    assert math.isnan(probability) and probabilities == {"no": "NaN", "yes": "NaN"}
    found = trial.sql("SELECT * FROM cerebro.evaluate_by('lost', 'calls', ARRAY['region'])")
    losses = [row for row in found if row[2] == "logloss"]
    assert len(losses) == 3 and all(math.isnan(number) for row in losses for number in row[3:6])
    ask = "SELECT e.contribution, e.approximation_error FROM calls c, cerebro.explain_predict('lost', c) e"
    assert all(math.isnan(number) for row in trial.sql(f"{ask} WHERE i = 1") for number in row)


def test_rows_without_a_known_label_are_left_out(trial: Trial) -> None:
    trial.sql(
        "CREATE VIEW placed AS SELECT c.*, c.region AS place FROM calls c WHERE i <= 40"
        " UNION ALL SELECT 0, 0, 'a', 0, 'west', 'perhaps', 0, 'north'"
        " UNION ALL SELECT 0, 0, 'a', 0, 'west', NULL, 0, 'north'"
    )
    found = trial.sql(
        "SELECT rows FROM cerebro.evaluate_by('models', 'placed', ARRAY['place']) WHERE part IS NULL"
    )
    assert found == [(40,)] * 5
    assert '1 of 41 rows are left out: the model does not know their "answer"' in trial.notices()


def test_the_rows_with_the_greatest_loss_come_first(trial: Trial) -> None:
    trial.sql(
        "CREATE VIEW mislabeled AS SELECT i, first, kind, noise, CASE WHEN i = 77"
        "  THEN CASE answer WHEN 'yes' THEN 'no' ELSE 'yes' END ELSE answer END AS answer,"
        " '\\x00'::bytea AS raw"
        " FROM calls WHERE region = 'west' AND abs(first) > 0.8 OR i = 77"
    )
    found = trial.sql("SELECT * FROM cerebro.worst_rows('models', 'mislabeled', \"limit\" => 3)")
    row, truth, prediction, probability, loss = found[0]
    assert len(found) == 3
    assert (row["i"], row["answer"]) == (77, truth)
    assert "raw" not in row
    assert prediction in {"yes", "no"} - {truth}
    assert loss == pytest.approx(-math.log(probability), rel=1e-6)
    assert [one[4] for one in found] == sorted((one[4] for one in found), reverse=True)
    trial.sql("SELECT cerebro.register('models', 'judged')")
    named = trial.sql("SELECT * FROM cerebro.worst_rows('judged@1', 'mislabeled', \"limit\" => 3)")
    assert named == found


EXPLAINED = (
    "SELECT c.i, e.probability, e.score, e.baseline, e.column_name, e.value, e.contribution,"
    " e.approximation_error, e.class"
    " FROM calls AS c, cerebro.explain_predict(%s, c, top => NULL) AS e WHERE c.i <= 20 ORDER BY c.i"
)


@pytest.mark.postgresql
def test_what_columns_add_makes_the_prediction(trial: Trial) -> None:
    found = trial.sql(EXPLAINED, "models")
    assert len(found) == 20 * 3
    sizes: dict[str, float] = {}
    for _, rows in itertools.groupby(found, key=lambda row: row[0]):
        parts = list(rows)
        _, probability, score, baseline, *_, error, _ = parts[0]
        assert score == pytest.approx(math.log(probability / (1 - probability)), abs=1e-3)
        assert error <= 0.01
        assert sum(row[6] for row in parts) == pytest.approx(score - baseline, rel=0.0101, abs=1e-5)
        assert [abs(row[6]) for row in parts] == sorted((abs(row[6]) for row in parts), reverse=True)
        for row in parts:
            sizes[row[4]] = sizes.get(row[4], 0.0) + abs(row[6])
    assert max(sizes, key=lambda name: sizes[name]) == "first"
    assert sizes["noise"] < sizes["kind"] < sizes["first"]
    trial.sql("SELECT cerebro.register('models', 'explained')")
    assert trial.sql(EXPLAINED, "explained@1") == found
    trial.pack_validation("few", "judging", "packed", "answer", "*")
    trial.sql("SELECT cerebro.ensemble('models', 'alone', packed_table => 'judging')")
    for one, other in zip(found, trial.sql(EXPLAINED, "alone"), strict=True):
        assert (other[0], other[4]) == (one[0], one[4])
        assert other[6] == pytest.approx(one[6], abs=1e-4)


def cut_into_steps(at: Callable[[float], tuple[float, np.ndarray]], move: np.ndarray) -> list[float]:
    """Return points from 0 to 1, so dense that the slopes at them add up to the change of the score."""
    shares = [place / 31 for place in range(32)]
    while True:
        found = [(value, slopes @ move) for value, slopes in map(at, shares)]
        gaps = [
            (right - left) * (found[place + 1][1] + found[place][1]) / 2
            - (found[place + 1][0] - found[place][0])
            for place, (left, right) in enumerate(itertools.pairwise(shares))
        ]
        allowed, missed = abs(found[-1][0] - found[0][0]) / 100, sum(map(abs, gaps))
        if abs(sum(gaps)) <= allowed and missed <= 4 * allowed:
            return shares
        for place in sorted(range(len(gaps)), key=lambda place: -abs(gaps[place])):
            if missed > allowed / 2:
                left, right = shares[place], shares[place + 1]
                shares = [*shares, *(left + (right - left) * piece / 8 for piece in range(1, 8))]
            missed -= abs(gaps[place])
        shares = sorted(shares)


@pytest.mark.postgresql
def test_contributions_are_those_of_a_plain_calculation(trial: Trial) -> None:
    """Contributions equal a calculation in double precision with the weights of the trained net."""
    data = np.frombuffer(trial.weights("models")[1], "<f4").astype(float)
    kernel, bias, last, end = np.split(data, np.cumsum([5 * 16, 16, 16 * 2]))
    first, second = kernel.reshape(5, 16), last.reshape(16, 2)
    specification = trial.value("SELECT feature_specification FROM models_summary")
    ways = {column["name"]: column for column in specification["columns"]}
    shares = [trial.value("SELECT avg((kind = %s)::int)::float FROM calls", kind) for kind in "abc"]
    assert ways["kind"]["statistics"]["counts"] == pytest.approx([share * ROWS for share in shares])
    start = np.array([0, *shares, 0])
    row = trial.read_row("SELECT first, kind, noise FROM calls WHERE i = 9")
    scaled = {name: (row[name] - ways[name]["center"]) / ways[name]["spread"] for name in ("first", "noise")}
    stop = np.array([scaled["first"], *(row["kind"] == kind for kind in "abc"), scaled["noise"]], float)
    found = trial.sql(
        "SELECT e.column_name, e.contribution, e.class"
        " FROM calls AS c, cerebro.explain_predict('models', c) AS e WHERE c.i = 9"
    )
    sign = 1 if found[0][2] == "yes" else -1

    def score(point: np.ndarray) -> tuple[float, np.ndarray]:
        inside = point @ first + bias
        apart = sign * (second[:, 1] - second[:, 0])
        return np.maximum(inside, 0) @ apart + sign * (end[1] - end[0]), first @ ((inside > 0) * apart)

    places = cut_into_steps(lambda share: score(start + share * (stop - start)), stop - start)
    slopes = np.array([score(start + share * (stop - start))[1] for share in places])
    steps = np.diff(places)[:, np.newaxis]
    parts = (stop - start) * (steps * (slopes[1:] + slopes[:-1]) / 2).sum(axis=0)
    expected = {"first": parts[0], "kind": parts[1:4].sum(), "noise": parts[4]}
    assert {name: part for name, part, _ in found} == pytest.approx(expected, abs=1e-4)


CANNOT = {
    "no columns": ("'models', c, top => 0", "22023", "top must be at least 1"),
    "no row": ("'models', NULL::calls", "22004", "the row is NULL"),
    "no such model": ("'nobody@1', c", "42704", "no registered model"),
    "no column": ("'models', (SELECT r FROM (SELECT 1 AS i) AS r)", "42703", '"first"'),
}


@pytest.mark.postgresql
@pytest.mark.parametrize(("given", "code", "text"), CANNOT.values(), ids=CANNOT)
def test_what_cannot_be_explained_is_named(trial: Trial, given: str, code: str, text: str) -> None:
    with pytest.raises(psycopg2.Error) as caught:
        trial.sql(f"SELECT e.* FROM calls AS c, cerebro.explain_predict({given}) AS e WHERE c.i = 1")
    assert caught.value.pgcode == code
    assert text in str(caught.value)


WRONG = {
    "no such input": (
        "importance('models', 'calls', options => '{\"together\": [[\"first\", \"kin\"]]}')",
        "42703",
        '"kin"',
    ),
    "a metric of quantities": (
        "importance('models', 'calls', options => '{\"metric\": \"rmse\"}')",
        "22023",
        "rmse",
    ),
    "no such option": (
        "importance('models', 'calls', options => '{\"repeat\": 1}')",
        "22023",
        "unknown option repeat",
    ),
    "no label": ("importance('models', 'packed')", "42703", "lacks"),
    "no such column": ("evaluate_by('models', 'calls', ARRAY['regio'])", "42703", '"regio"'),
    "too many rows": ("worst_rows('models', 'calls', 10001)", "22023", "not 10001"),
    "no number of rows": ("worst_rows('models', 'calls', NULL)", "22004", "limit is NULL"),
    "no columns": ("evaluate_by('models', 'calls', NULL)", "22004", "by is NULL"),
}


@pytest.mark.parametrize(("call", "code", "text"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(trial: Trial, call: str, code: str, text: str) -> None:
    with pytest.raises(psycopg2.Error) as caught:
        trial.sql(f"SELECT * FROM cerebro.{call}")
    assert caught.value.pgcode == code
    assert text in str(caught.value)


def test_a_quantity_is_judged_in_its_own_unit(trial: Trial) -> None:
    options = {"columns": "auto", "exclude": ["i", "region", "answer"]}
    trial.pack("calls", "sizes", "size", "*", options=options)
    trial.value("SELECT cerebro.load_net('size_nets', 'sizes', 'linear')")
    trial.sql(
        SELECT,
        "size_nets",
        "size_mst",
        "loss='mse',optimizer='Adam(lr=0.02)',metrics=['mae']",
    )
    trial.fit("sizes", "size_models", "size_mst", 6)
    found = trial.sql("SELECT column_name, importance FROM cerebro.importance('size_models', 'calls')")
    assert found[0][0] == "first"
    assert found[0][1] > 1
    metrics = trial.sql(
        "SELECT metric, value FROM cerebro.evaluate_by('size_models', 'calls', ARRAY['kind'])"
        " WHERE part IS NULL"
    )
    assert [name for name, _ in metrics] == ["rmse", "mae", "r2"]
    wanted = "SELECT 1 - %s ^ 2 / var_pop(size) FROM calls"
    assert dict(metrics)["r2"] == pytest.approx(trial.value(wanted, dict(metrics)["rmse"]), abs=1e-4)
    trial.sql(
        "CREATE VIEW misread AS SELECT i, first, kind, noise,"
        " size + CASE i WHEN 5 THEN 3 WHEN 6 THEN -4 ELSE 0 END AS size FROM calls"
    )
    worst = trial.sql(
        "SELECT (w.\"row\"->>'i')::int, truth::float, prediction::float, probability, loss"
        " FROM cerebro.worst_rows('size_models', 'misread', 2) AS w"
    )
    assert [(one[0], one[3]) for one in worst] == [(6, None), (5, None)]
    assert [one[4] for one in worst] == pytest.approx([4, 3], abs=0.1)
    assert [abs(one[1] - one[2]) for one in worst] == pytest.approx([one[4] for one in worst], abs=1e-5)
    if trial.topology != "greenplum":
        explained = trial.sql(
            "SELECT e.prediction, e.score, e.baseline, e.column_name, e.contribution"
            " FROM calls AS c, cerebro.explain_predict('size_models', c) AS e WHERE c.i = 4"
        )
        prediction, score, baseline, column, _ = explained[0]
        assert column == "first"
        assert prediction == pytest.approx(score, rel=1e-5)
        # A linear net: nothing is approximate.
        assert sum(row[4] for row in explained) == pytest.approx(score - baseline, abs=1e-5)
        assert baseline == pytest.approx(5, abs=0.2)
    assert all(0 < value < 1 for _, value in metrics)


def test_without_columns_all_rows_are_measured(trial: Trial) -> None:
    ask = "SELECT part, rows, metric, value FROM cerebro.evaluate_by('models', 'calls', {})"
    whole = trial.sql(ask.format("'{}'"))
    assert {part for part, *_ in whole} == {None} and {rows for _, rows, *_ in whole} == {ROWS}
    beside = [row for row in trial.sql(ask.format("ARRAY['region']")) if row[0] is None]
    assert [row[:3] for row in whole] == [row[:3] for row in beside]
    assert [row[3] for row in whole] == pytest.approx([row[3] for row in beside])
