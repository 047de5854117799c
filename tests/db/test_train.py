"""cerebro.train: one statement from a table to predictions."""

from __future__ import annotations

import json

import psycopg2
import pytest

from mixed import CUSTOMERS
from trial import Trial


@pytest.fixture(scope="module", autouse=True)
def customers(trial: Trial) -> None:
    trial.sql(CUSTOMERS, 1200)
    # What is to be learned: whom age and plan make go.
    trial.sql("UPDATE customers SET gone = CASE WHEN age > 45 OR plan = 'pro' THEN 'yes' ELSE 'no' END")
    trial.sql("CREATE TABLE small AS SELECT age, plan, income, gone, age * 2.5 + 3 AS bill FROM customers")


def test_one_statement_leads_from_a_table_to_predictions(trial: Trial) -> None:
    trial.notices()
    board = trial.sql(
        "SELECT * FROM cerebro.train('small', target => 'gone', name => 'churn', options => %s)",
        json.dumps({"configs": 4, "epochs": 6, "exclude": ["bill"]}),
    )
    assert board[0][5] and not any(row[5] for row in board[1:])
    assert board[0][3] > 0.9
    said = trial.notices()
    for function in ("training_preprocessor_dl", "load_net", "madlib_automl"):
        assert f"SELECT cerebro.{function}(" in said
    reached = trial.value(
        "SELECT max(value) FROM cerebro.metrics WHERE run_id = (SELECT run_id FROM churn_summary)"
        " AND mst_key = %s AND dataset = 'validation' AND metric = 'accuracy'",
        board[0][0],
    )
    assert board[0][3] == pytest.approx(reached)
    if trial.topology == "local":
        right = trial.value(
            "SELECT avg((p.class = c.gone)::int) FROM small c, cerebro.predict('churn', c) p"
            " WHERE c.age IS NOT NULL"
        )
        assert right > 0.9
    made = "SELECT count(*) FROM unnest(%s::text[]) t WHERE to_regclass(t) IS NOT NULL"
    tables = ["churn", "churn_info", "churn_summary", "churn_packed", "churn_packed_validation", "churn_nets"]
    assert trial.value(made, [*tables, "churn_best"]) == 7


def test_a_quantity_is_learned_as_such(trial: Trial) -> None:
    options = {"configs": 2, "epochs": 2, "nets": ["linear", "Dense(8, 'relu')"], "exclude": ["gone"]}
    board = trial.sql(
        "SELECT net, loss FROM cerebro.train('small', 'bill', 'bills', '20 s', %s)", json.dumps(options)
    )
    assert {net for net, _ in board} <= {"linear", "Dense(8, 'relu')"}
    if trial.topology == "local":
        assert trial.value("SELECT count(p.prediction) FROM small c, cerebro.predict('bills', c) p") == 1200


WRONG = {
    "no such target": ("'small', 'gone_'", "42703", 'column "gone_" does not exist'),
    "an unknown option": ("'small', 'gone', options => '{\"net\": 1}'", "22023", "unknown option net"),
    "no such net": ("'small', 'gone', options => '{\"nets\": [\"deep\"]}'", "22023", "no net is called deep"),
    "no budget": ("'small', 'gone', budget => '0 s'", "22023", "budget is"),
    "a name that is taken": ("'small', 'gone', 'customers'", "42P07", "already exists"),
}


@pytest.mark.parametrize("said, code, text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused_and_leaves_nothing(trial: Trial, said: str, code: str, text: str) -> None:
    before = trial.value("SELECT count(*) FROM pg_class")
    with pytest.raises(psycopg2.Error) as caught:
        trial.sql(f"SELECT cerebro.train({said})")
    assert (caught.value.pgcode, text in str(caught.value)) == (code, True), caught.value
    assert trial.value("SELECT count(*) FROM pg_class") == before


def test_a_budget_in_which_nothing_is_measured_says_so(trial: Trial) -> None:
    """A net whose first visit takes longer than the budget."""
    before = trial.value("SELECT count(*) FROM pg_class")
    slow = "Dense(3000, 'relu'), Dense(3000, 'relu')"
    with pytest.raises(psycopg2.Error, match="no config was measured within the budget of 1 s") as caught:
        trial.sql(
            "SELECT * FROM cerebro.train('small', 'gone', 'slow', '1 s', %s)", json.dumps({"nets": [slow]})
        )
    assert "Give a longer budget" in str(caught.value)
    assert trial.value("SELECT count(*) FROM pg_class") == before
