"""cerebro.train with long names and unusual targets: vectors, keys, values far off, and none."""

from __future__ import annotations

import json

import psycopg2
import pytest

from cerebro_plpy.executor.calls.train import OPTIONS
from trial import Trial


@pytest.fixture(scope="module", autouse=True)
def customers(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE customers AS SELECT i AS id, 18 + i * 7 % 60 AS age, chr(97 + i % 3) AS plan,"
        " CASE WHEN i * 7 % 60 > 30 THEN 'yes' ELSE 'no' END AS gone FROM generate_series(1, 600) AS i;"
        " CREATE TABLE small AS SELECT age, plan, gone FROM customers"
    )


def test_a_name_has_room_for_all_tables(trial: Trial) -> None:
    """37 bytes is the longest name that packing takes, and an ensemble of folds adds more tables."""
    options = json.dumps({"nets": "linear", "configs": 2, "epochs": 2, "folds": 2})
    trial.sql("SELECT cerebro.train('small', 'gone', %s, options => %s)", "n" * 37, options)


def test_one_hot_vectors_that_chance_drew_are_told_from_classes(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE vectors AS SELECT hashint4(i) % 100 AS x,"
        " CASE WHEN hashint4(i * 31) % 2 = 0 THEN ARRAY[1, 0] ELSE ARRAY[0, 1] END AS side,"
        " ARRAY[i % 2 = 0, i % 3 = 0] AS flags FROM generate_series(1, 600) AS i"
    )
    options = {"nets": "linear", "configs": 2, "epochs": 2, "single": True, "metric": "accuracy"}
    asked = "SELECT cerebro.train('vectors', %s, %s, options => %s)"
    trial.notices()
    trial.sql(asked, "side", "sides", json.dumps({**options, "task": "classification", "exclude": ["flags"]}))
    assert "no better than always answering class " in trial.notices()
    # Several values of an array may be true at once: they are quantities.
    with pytest.raises(psycopg2.Error, match="the model predicts a quantity, for which no metric is called"):
        trial.sql(asked, "flags", "flagged", json.dumps(options))


def test_rows_without_a_target_are_left_out_by_hand_as_well(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE half_known AS SELECT age, CASE WHEN id % 2 = 0 THEN gone END AS gone FROM customers"
    )
    trial.notices()
    options = json.dumps({"nets": "linear", "configs": 1, "epochs": 1, "single": True})
    trial.sql("SELECT cerebro.train('half_known', 'gone', 'known', options => %s)", options)
    by_hand = trial.notices().split("the same by hand:\n")[1].split("SELECT cerebro.load_net")[0]
    counted = trial.value("SELECT total_rows FROM known_packed_summary")
    trial.sql("DROP TABLE known_packed, known_packed_summary")
    trial.sql("DROP TABLE known_packed_validation, known_packed_validation_summary")
    trial.sql(by_hand)
    assert trial.value("SELECT total_rows FROM known_packed_summary") == counted


def test_a_target_that_is_a_key_is_told(trial: Trial) -> None:
    trial.notices()
    options = '{"configs": 1, "epochs": 1, "nets": "linear"}'
    trial.sql("SELECT cerebro.train('customers', 'id', 'keyed', options => %s)", options)
    assert 'target "id" is a key: it tells rows apart' in trial.notices()


def test_a_target_with_a_value_far_from_the_rest_is_told(trial: Trial) -> None:
    trial.sql("CREATE TABLE far_off AS SELECT age, (id % 101)::float8 AS paid FROM customers")
    trial.sql("INSERT INTO far_off VALUES (30, 1e12)")
    trial.notices()
    options = '{"configs": 1, "epochs": 1, "nets": "linear"}'
    trial.sql("SELECT cerebro.train('far_off', 'paid', 'from_far', options => %s)", options)
    said = trial.notices()
    assert said.count('target "paid": its value 1e+12 is 3e+10 deviations away from the rest') == 1
    assert "Correct such rows or leave them out, in a view" in said


def test_texts_are_no_quantity(trial: Trial) -> None:
    with pytest.raises(psycopg2.errors.DatatypeMismatch, match='target "gone" of type text is no number'):
        trial.sql("SELECT cerebro.train('small', 'gone', 'no_bill', options => '{\"task\": \"regression\"}')")


def test_nets_may_have_parameters(trial: Trial) -> None:
    """A list of values stands for a net with each of them, and configs draw among all nets."""
    asked = "SELECT net FROM cerebro.train('small', 'gone', %s, '20 s', %s)"
    options = {"nets": ["linear", {"tabular": {"width": [4, 8], "depth": 1}}], "configs": 3, "epochs": 1}
    trial.notices()
    *board, _ = trial.sql(asked, "with_params", json.dumps({**options, "single": True}))
    nets = {" ".join(net.split()[:3]) for (net,) in board}
    assert nets <= {"linear", "tabular width=4 depth=1", "tabular width=8 depth=1"} and len(nets) > 1
    assert """'{"depth": 1, "width": [4, 8]}'""" in trial.notices()
    for wrong, said in (([{"tabular": 3}], "option nets is"), ([{"tabular": {"wide": 3}}], "wide")):
        with pytest.raises(psycopg2.errors.InvalidParameterValue, match=said):
            trial.sql(asked, "refused", json.dumps({"nets": wrong}))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"nets": "tabulr"}, "no net is called tabulr"),
        ({"nets": {"tabular": {"widht": 64}}}, "has no parameter widht"),
        ({"nets": ["linear", "Dens(64)"]}, "Dens"),
        ({"folds": 3, "validation": {"after": "9", "on": "id"}}, "folds and validation.after are both given"),
    ],
)
def test_wrong_options_are_refused_before_rows_are_read(
    trial: Trial, options: dict[str, object], said: str
) -> None:
    trial.sql("CREATE OR REPLACE VIEW unreadable AS SELECT id, age, 1 / (id - id) AS y FROM customers")
    with pytest.raises(psycopg2.Error, match=said):
        trial.sql("SELECT cerebro.prepare_train('unreadable', 'y', options => %s)", json.dumps(options))


def test_an_option_that_is_null_counts_as_not_given(trial: Trial) -> None:
    asked = "SELECT cerebro.prepare_train('small', 'gone', 'asked', '20 s', %s)"
    drop = "DROP TABLE asked_packed, asked_packed_summary, asked_packed_validation,"
    found = []
    for options in ({}, dict.fromkeys(OPTIONS)):
        found.append(trial.value(asked, json.dumps(options)))
        trial.sql(f"{drop} asked_packed_validation_summary, asked_nets")
    without, with_nulls = ([one[key] for key in ("automl_params", "fit_params_grid")] for one in found)
    assert without == with_nulls
    assert found[0]["options"] == {**found[1]["options"], "max_seconds": found[0]["options"]["max_seconds"]}


@pytest.mark.parametrize(
    ("columns", "rows", "said"),
    [
        ("sin(i) AS x, 'a' AS y", 1, "has 1 rows in which .y. is known, too few to learn from"),
        ("NULL::float8 AS x, NULL::text AS z, 'a' || i % 2 AS y", 60, "no column of .* can be an input"),
        ("sin(i) AS x, 'a'::text AS y", 60, "target .y. is 'a' in all 60 rows: there is nothing to tell"),
        ("sin(i) AS x, 5.0::float8 AS y", 60, "target .y. is the same in all 60 rows: there is nothing to"),
    ],
)
def test_tables_of_which_nothing_can_be_learned(trial: Trial, columns: str, rows: int, said: str) -> None:
    trial.sql(f"CREATE TEMP VIEW fruitless AS SELECT {columns} FROM generate_series(1, {rows}) AS i")
    with pytest.raises(psycopg2.Error, match=said):
        trial.sql("SELECT cerebro.prepare_train('fruitless', 'y', 'public.fruitless_m')")
    trial.sql("DROP VIEW fruitless")
    assert trial.value("SELECT to_regclass('public.fruitless_m_packed') IS NULL")
