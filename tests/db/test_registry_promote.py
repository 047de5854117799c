"""cerebro.promote moves an alias to a version that is better on rows that neither version has seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg2
import pytest

from registered import COLUMNS, train
from trial import Trial


@pytest.fixture(scope="module", autouse=True)
def versions(trial: Trial) -> None:
    """Register version 1, which has hardly learned, and version 2, which has; pack other rows."""
    train(trial)
    for key in (2, 1):
        trial.sql("SELECT cerebro.register('models', 'churn', %s)", key)
    trial.sql("CREATE TABLE march AS SELECT * FROM customers WHERE id % 3 = 0")
    trial.pack_validation("march", "march_packed", "packed", "gone", COLUMNS)


def promote(trial: Trial, arguments: str) -> dict[str, Any]:
    return trial.read_row(f"SELECT * FROM cerebro.promote({arguments})")


def test_the_better_one_is_promoted_and_the_worse_one_is_not(trial: Trial) -> None:
    trial.call("madlib_evaluate", "churn@1", "march_packed", "of_one")
    trial.call("madlib_evaluate", "churn@2", "march_packed", "of_two")
    one, two = (trial.value(f"SELECT loss FROM {table}") for table in ("of_one", "of_two"))
    assert two < one
    found = promote(trial, "'churn', 2, if_better_on => 'march_packed'")
    assert found == {
        "promoted": True,
        "candidate": 2,
        "previous": 1,
        "measured": "logloss",
        "value": pytest.approx(two, rel=1e-4),
        "previous_value": pytest.approx(one, rel=1e-4),
        "gain": pytest.approx(one - two, rel=1e-3),
        "gain_low": found["gain_low"],
        "gain_high": found["gain_high"],
    }
    assert trial.value("SELECT default_version FROM cerebro.models") == 2
    found = promote(trial, "'churn', 1, 'default', 'march_packed', 'accuracy'")
    assert (found["promoted"], found["measured"], found["previous"]) == (False, "accuracy", 2)
    assert trial.value("SELECT default_version FROM cerebro.models") == 2
    assert trial.value("SELECT cerebro.rollback('churn')") == 1


def test_rows_that_are_appended_meanwhile_do_not_judge(trial: Trial) -> None:
    """The call reads the rows that its summary names, though the table has more of them by then."""
    trial.pack_validation("march", "growing", "packed", "gone", COLUMNS)
    before = promote(trial, "'churn', 2, 'apart', 'growing'")
    trial.sql("CREATE TABLE earlier AS TABLE growing_summary")
    trial.sql("SELECT cerebro.append_rows('growing', 'march')")
    trial.sql("DELETE FROM growing_summary; INSERT INTO growing_summary TABLE earlier")
    read = "SELECT sum((gone_shape)[1]) FROM growing"
    assert trial.value(read) == 2 * trial.value("SELECT count(*) FROM march")
    trial.sql("SELECT cerebro.drop_alias('churn', 'apart')")
    assert promote(trial, "'churn', 2, 'apart', 'growing'") == before


def test_a_version_is_not_better_than_itself(trial: Trial) -> None:
    trial.sql("SELECT cerebro.set_alias('churn', 'same', 2)")
    found = promote(trial, "'churn', 2, 'same', 'march_packed'")
    assert (found["promoted"], found["value"]) == (False, found["previous_value"])


@pytest.mark.postgresql
def test_the_interval_is_as_wide_as_chance_allows(trial: Trial) -> None:
    """The gain and its interval equal the mean and the standard error of the rows' differences."""
    rows = trial.sql(
        "SELECT ln((n.probabilities ->> m.gone)::float8) - ln((o.probabilities ->> m.gone)::float8)"
        " FROM march AS m, cerebro.predict('churn@2', m) AS n, cerebro.predict('churn@1', m) AS o"
    )
    gains = np.array(rows).ravel()
    trial.sql("SELECT cerebro.set_alias('churn', 'wide', 1)")
    found = promote(trial, "'churn', 2, 'wide', 'march_packed'")
    half = 1.96 * gains.std(ddof=1) / np.sqrt(len(gains))
    assert found["gain"] == pytest.approx(gains.mean(), rel=1e-3)
    assert found["gain_high"] - found["gain"] == pytest.approx(half, rel=0.35)
    assert found["gain"] - found["gain_low"] == pytest.approx(found["gain_high"] - found["gain"])


def test_without_rows_or_without_a_version_before_it_is_promoted(trial: Trial) -> None:
    assert promote(trial, "'churn', 1, 'fresh', 'march_packed'")["promoted"]
    found = promote(trial, "'churn', 2, 'fresh'")
    assert (found["promoted"], found["previous"], found["value"]) == (True, 1, None)
    assert trial.value("SELECT aliases -> 'fresh' FROM cerebro.models") == 2


def test_rows_that_validated_are_named(trial: Trial) -> None:
    trial.notices()
    promote(trial, "'churn', 2, 'seen', 'packed_validation'")
    assert "churn@2 was validated with the rows of public.packed_validation" in trial.notices()


WRONG = {
    "rows that trained": ("'churn', 2, if_better_on => 'packed'", "55000", "they cannot decide"),
    "no packed rows": ("'churn', 2, if_better_on => 'march'", "42P01", "march"),
    "no rows": ("'churn', 2, if_better_on => 'nowhere'", "42P01", "nowhere"),
    "a metric of quantities": ("'churn', 2, 'x', 'march_packed', 'rmse'", "22023", "no metric is called"),
    "a metric of nothing": ("'churn', 2, metric => 'logloss'", "22023", "if_better_on is not"),
    "no version": ("'churn', 9", "42704", "churn has no version 9"),
    "no model": ("'nobody', 1", "42704", "no registered model 'nobody'"),
    "an alias of NULL": ("'churn', 1, NULL", "22004", "an alias is NULL"),
}


@pytest.mark.parametrize("arguments, code, text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused_and_moves_nothing(
    trial: Trial, arguments: str, code: str, text: str
) -> None:
    before = trial.sql("SELECT aliases FROM cerebro.models")
    with pytest.raises(psycopg2.Error) as caught:
        promote(trial, arguments)
    assert caught.value.pgcode == code and text in str(caught.value)
    assert trial.sql("SELECT aliases FROM cerebro.models") == before
