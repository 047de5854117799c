"""Columns that are worth something to a model are told, and parts of the rows that it answers worse."""

from __future__ import annotations

import json

import psycopg2
import pytest

from trial import Trial

ROWS = 1200
SELECT = "SELECT cerebro.load_model_selection_table(%s, %s, ARRAY[1], ARRAY[%s], ARRAY['batch_size=16'])"


@pytest.fixture(scope="module", autouse=True)
def model(trial: Trial) -> None:
    """A class that follows from two columns, and a third that is noise; in the east labels are noise, too."""
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
    return {name: (worth, spread) for name, worth, spread in found}


def test_a_column_that_decides_comes_first_and_noise_is_worth_nothing(trial: Trial) -> None:
    found = importance(trial, metric="accuracy")
    assert list(found)[0] == "first"
    assert found["first"][0] > 0.15 > found["kind"][0] > 0.005
    worth, spread = found["noise"]
    assert abs(worth) < max(2 * spread, 0.01)
    assert "accuracy 0." in trial.notices()
    assert importance(trial, metric="accuracy") == found


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
    if trial.topology == "local":
        assert east[2] == pytest.approx(float(trial.value(wanted)))


def test_rows_without_a_known_label_are_left_out(trial: Trial) -> None:
    trial.sql(
        "CREATE VIEW few AS SELECT c.*, c.region AS place FROM calls c WHERE i <= 40"
        " UNION ALL SELECT 0, 0, 'a', 0, 'west', 'perhaps', 0, 'north'"
        " UNION ALL SELECT 0, 0, 'a', 0, 'west', NULL, 0, 'north'"
    )
    found = trial.sql(
        "SELECT rows FROM cerebro.evaluate_by('models', 'few', ARRAY['place']) WHERE part IS NULL"
    )
    assert found == [(40,)] * 2
    assert '1 of 41 rows are left out: the model does not know their "answer"' in trial.notices()


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
    assert [name for name, _ in metrics] == ["rmse", "mae"]
    assert all(0 < value < 1 for _, value in metrics)
