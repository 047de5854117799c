"""Groups that are too small are not trained, with a reason; a model of all rows predicts their rows."""

from __future__ import annotations

import psycopg2
import pytest

import nets
from trial import ADAM, SGD, Trial, blobs, cancelled, rows_of

FEATURES, ROWS = 6, 300
OPTIONS = {"min_rows": 10, "min_classes": 2, "fallback": True}


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(ROWS, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.sql(
        "CREATE TABLE sales AS SELECT row_number() OVER () AS id, x, y, CASE WHEN y = 0 AND number % 3 = 0"
        " THEN 'one class' WHEN number <= 5 THEN 'few rows' WHEN number % 2 = 0 THEN 'even' END AS shop"
        " FROM (SELECT *, row_number() OVER () AS number FROM blobs) AS b"
    )
    trial.pack("sales", "packed", options={"group_by": "shop"})
    trial.model(nets.mlp(FEATURES))
    trial.select("configs", [1], [ADAM, SGD], ["batch_size=10,epochs=1"])
    trial.notices()
    trial.fit("packed", "models", "configs", 2, options=OPTIONS)
    said = "2 of 4 groups have too few rows or classes: the models of all rows answer for them"
    assert said in trial.notices()


def test_the_table_of_groups_says_of_how_many_classes_each_is(trial: Trial) -> None:
    assert trial.sql("SELECT shop, __rows__, __classes__ FROM packed_groups ORDER BY 1") == trial.sql(
        "SELECT shop, count(*), count(DISTINCT y) FROM sales GROUP BY 1 ORDER BY 1"
    )


def test_a_group_that_is_too_small_is_left_out_with_the_reason(trial: Trial) -> None:
    # The size of this group depends on the order of rows, which differs on a cluster.
    few = trial.value("SELECT count(*) FROM sales WHERE shop = 'few rows'")
    assert trial.sql(
        "SELECT shop, count(*), min(reason), count(model_size) FROM models_info WHERE status = 'left out'"
        " GROUP BY 1 ORDER BY 1"
    ) == [
        ("few rows", 2, f"{few} rows, fewer than min_rows 10", 0),
        ("one class", 2, "1 class, fewer than min_classes 2", 0),
    ]
    assert trial.sql("SELECT shop, is_fallback, count(*) FROM models GROUP BY 1, 2 ORDER BY 1, 2") == [
        ("even", False, 2),
        (None, False, 2),
        (None, True, 2),
    ]


def test_the_model_of_all_rows_is_ranked_apart(trial: Trial) -> None:
    ranked = trial.sql(
        "SELECT group_key, array_agg(rank ORDER BY rank) FROM cerebro.leaderboard"
        " JOIN models_summary USING (run_id) GROUP BY 1 ORDER BY 1"
    )
    assert ranked == [('{"shop":"even"}', [1, 2]), ('{"shop":null}', [1, 2]), (None, [1, 2])]


def test_each_group_has_the_model_that_it_has_without_the_others(trial: Trial) -> None:
    trial.fit("packed", "every", "configs", 2)
    kept = "SELECT shop, mst_key, model_weights FROM {} WHERE {} ORDER BY 1, 2"
    ours = trial.sql(kept.format("models", "NOT is_fallback"))
    assert ours == trial.sql(kept.format("every", "shop = 'even' OR shop IS NULL"))


# Greenplum has no predictions in queries.
@pytest.mark.postgresql
def test_rows_of_other_groups_are_answered_for_by_the_model_of_all_rows(trial: Trial) -> None:
    trial.sql("CREATE TABLE asked AS SELECT * FROM sales")
    trial.sql("INSERT INTO asked SELECT 1000 + id, x, y, 'new' FROM sales WHERE id <= 20")
    trial.call("madlib_predict", "models", "asked", "id", "x", "predicted", pred_type="response")
    assert trial.value("SELECT count(*) FROM predicted") == ROWS + 20
    same = (
        "SELECT count(*), count(*) FILTER (WHERE p.class = t.class_value), count(q.class) FROM"
        " (SELECT s.id, p.class FROM asked s, cerebro.predict('models', s) p) AS p"
        " JOIN predicted t USING (id)"
        " JOIN cerebro.predict_query('models', 'SELECT * FROM asked', NULL::asked) q ON (q.source).id = p.id"
        " AND q.class = p.class"
    )
    assert trial.sql(same) == [(ROWS + 20, ROWS + 20, ROWS + 20)]
    unknown = "SELECT p.class FROM (SELECT x, 'new' AS shop FROM asked) s, cerebro.predict('models', s) p"
    assert trial.value(f"SELECT count(*) FROM ({unknown}) AS u WHERE class IS NULL") == 0


@pytest.mark.slow
def test_it_is_interrupted_and_goes_on(trial: Trial) -> None:
    options = {**OPTIONS, "checkpoint_every": 2}
    with cancelled(trial, 8):
        trial.fit("packed", "again", "configs", 60, options=options)
    trial.sql("SELECT cerebro.resume(%s)", trial.value("SELECT max(run_id) FROM cerebro.runs"))
    trial.fit("packed", "at_once", "configs", 60, options=options)
    kept = "SELECT shop, is_fallback, mst_key, model_weights FROM {} ORDER BY 1, 2, 3"
    assert trial.sql(kept.format("again")) == trial.sql(kept.format("at_once"))
    reasons = "SELECT shop, mst_key, status, reason FROM {}_info ORDER BY 1, 2, 3"
    assert trial.sql(reasons.format("again")) == trial.sql(reasons.format("at_once"))


def test_without_any_group_that_is_large_enough_nothing_is_trained(trial: Trial) -> None:
    with pytest.raises(psycopg2.Error, match="none of 4 groups has the rows and classes"):
        trial.fit("packed", "none", "configs", 1, options={"min_rows": 1000})
    trial.fit("packed", "fallback_only", "configs", 1, options={"min_rows": 1000, "fallback": True})
    assert trial.sql("SELECT DISTINCT shop, is_fallback FROM fallback_only") == [(None, True)]


def test_the_options_are_for_groups(trial: Trial) -> None:
    trial.pack("sales", "plain")
    with pytest.raises(psycopg2.Error, match="option min_rows is for runs of groups"):
        trial.fit("plain", "none", "configs", 1, options={"min_rows": 2})
