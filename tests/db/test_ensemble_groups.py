"""cerebro.ensemble for models of groups: one net for all groups, with joined weights for each group."""

from __future__ import annotations

import json
import math

import psycopg2
import pytest

import nets
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.fresh_caller

FEATURES, ROWS, EPOCHS = 6, 400, 3
PREDICTED = "SELECT id, class_value, prob FROM said"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(ROWS, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.sql(
        "CREATE TABLE sales AS SELECT number AS id, x, y, (1 + number % 2)::numeric AS shop,"
        " (ARRAY['NL', 'BE', NULL])[1 + number % 3] AS country"
        " FROM (SELECT *, row_number() OVER () AS number FROM blobs) AS b"
    )
    trial.pack("sales", "packed", options={"group_by": ["country", "shop"], "validation": 0.3})
    trial.model(nets.mlp(FEATURES))
    trial.model(nets.mlp(FEATURES, units=5))
    trial.select("configs", [1, 2], [ADAM, SGD], ["batch_size=10,epochs=1"])
    trial.fit("packed", "models", "configs", EPOCHS, validation_table="packed_validation")


def probabilities(trial: Trial, model: str, key: int | None = None) -> dict[tuple[int, str], float]:
    """Predict `sales` into a table, and return the probability for each row id and class."""
    trial.sql("DROP TABLE IF EXISTS said")
    asked = "SELECT cerebro.madlib_predict(%s, 'sales', 'id', 'x', 'said', 'prob', mst_key => %s)"
    trial.sql(asked, model, key)
    return {(row, value): prob for row, value, prob in trial.sql(PREDICTED)}


@pytest.fixture(scope="module")
def parts(trial: Trial) -> dict[int, float]:
    """The share of each config in the ensemble `joined`, by `mst_key`."""
    trial.notices()
    return dict(trial.sql("SELECT * FROM cerebro.ensemble('models', 'joined', 8, 'accuracy')"))


def test_each_group_answers_with_the_mean_of_its_own_models(trial: Trial, parts: dict[int, float]) -> None:
    assert len(parts) > 1 and math.isclose(sum(parts.values()), 1)
    assert "joined is the mean of " in trial.notices()
    alone = {key: probabilities(trial, "models", key) for key in parts}
    joined = probabilities(trial, "joined")
    assert len(joined) == len(alone[min(parts)]) > 0
    for place, answer in joined.items():
        mean = sum(share * alone[key][place] for key, share in parts.items())
        assert answer == pytest.approx(mean, abs=2e-6)


def test_its_tables_are_those_of_a_run_of_one_config(trial: Trial, parts: dict[int, float]) -> None:
    assert trial.sql("SELECT mst_key, count(*) FROM joined GROUP BY 1") == [(1, 6)]
    assert trial.value("SELECT group_by FROM joined_summary") == ["country", "shop"]
    trial.sql("SELECT cerebro.madlib_evaluate('joined', 'packed_validation', 'measured')")
    rows = trial.sql(
        "SELECT i.mst_key, m.loss, i.validation_loss_final FROM joined_info AS i JOIN measured AS m"
        " ON m.country IS NOT DISTINCT FROM i.country AND m.shop = i.shop"
    )
    assert len(rows) == 6 and all(loss >= 0 and noted >= 0 for _, loss, noted in rows)


@pytest.mark.postgresql
def test_it_answers_a_row_in_a_query(trial: Trial, parts: dict[int, float]) -> None:
    by_table = probabilities(trial, "joined")
    asked = "SELECT s.id, p.class, p.probability FROM {} AS s, cerebro.predict('joined', s) AS p"
    for row, answer, probability in trial.sql(asked.format("(SELECT * FROM sales LIMIT 30)")):
        assert probability == pytest.approx(by_table[row, answer], abs=2e-6)


def test_a_registered_version_answers_alike(trial: Trial, parts: dict[int, float]) -> None:
    by_table = probabilities(trial, "joined")
    trial.sql("SELECT cerebro.register('joined', 'joined_kept')")
    assert probabilities(trial, "joined_kept@1") == by_table
    with pytest.raises(psycopg2.Error, match="joined_kept@1 holds models of groups, one for each"):
        trial.sql("SELECT cerebro.ensemble('joined_kept@1', 'never')")


def test_a_config_without_a_model_of_some_group_is_left_out(trial: Trial, parts: dict[int, float]) -> None:
    for table in ("", "_info"):
        trial.sql(
            f"CREATE TABLE fewer{table} AS SELECT * FROM models{table}"
            " WHERE NOT (mst_key = 2 AND country IS NOT DISTINCT FROM 'NL' AND shop = 1)"
        )
    trial.sql("CREATE TABLE fewer_summary AS SELECT * FROM models_summary")
    trial.notices()
    chosen = dict(trial.sql("SELECT * FROM cerebro.ensemble('fewer', 'of_fewer', 8)"))
    assert 2 not in chosen
    assert "mst_key 2 is left out: 1 of 6 groups have no model of it" in trial.notices()


def test_rows_that_choose_must_be_in_the_same_groups(trial: Trial) -> None:
    trial.pack("sales", "plain")
    with pytest.raises(psycopg2.Error, match="was not packed in the groups of .*models"):
        trial.sql("SELECT cerebro.ensemble('models', 'never', packed_table => 'plain')")
    with pytest.raises(psycopg2.Error, match="holds models of groups, which are not trained in folds"):
        trial.sql("SELECT cerebro.ensemble('models', 'never', options => %s)", json.dumps({"folds": 3}))
    trial.sql("CREATE TABLE never_info (i integer)")
    with pytest.raises(psycopg2.Error, match="never_info"):
        trial.sql("SELECT cerebro.ensemble('models', 'never')")
    assert trial.value("SELECT to_regclass('never')") is None
