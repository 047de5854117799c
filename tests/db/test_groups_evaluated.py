"""madlib_evaluate measures each model of a group on the rows of its group."""

from __future__ import annotations

import psycopg2
import pytest

import nets
from trial import ADAM, SGD, Trial, blobs, rows_of

FEATURES, ROWS, EPOCHS = 6, 400, 2
EVALUATE = "SELECT cerebro.madlib_evaluate('models', %s, 'measured', FALSE, %s)"
MEASURED = "SELECT country, is_fallback, mst_key, loss, metric FROM measured ORDER BY 1, 3"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(ROWS, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.sql(
        # FR has one row too few, DE comes later.
        "CREATE TABLE sales AS SELECT x, y, CASE WHEN number <= 9 THEN 'FR'"
        " ELSE (ARRAY['NL', 'BE', NULL])[1 + number % 3] END AS country"
        " FROM (SELECT *, row_number() OVER () AS number FROM blobs) AS b;"
        " CREATE TABLE later AS SELECT x, y, CASE country WHEN 'BE' THEN 'DE' ELSE country END AS country"
        " FROM sales"
    )
    trial.pack("sales", "packed", options={"group_by": "country"})
    trial.pack("later", "packed_later", options={"group_by": "country"})
    trial.model(nets.mlp(FEATURES))
    trial.select("configs", [1], [ADAM, SGD], ["batch_size=10,epochs=1"])
    trial.fit("packed", "models", "configs", EPOCHS, options={"min_rows": 10, "fallback": True})


@pytest.fixture(autouse=True)
def dropped(trial: Trial) -> None:
    trial.sql("DROP TABLE IF EXISTS measured")


def evaluate(trial: Trial, table: str, mst_key: int | None = None) -> list[tuple[object, ...]]:
    trial.sql(EVALUATE, table, mst_key)
    return trial.sql(MEASURED)


@pytest.mark.parametrize("key", [1, 2])
def test_a_config_is_measured_as_at_the_end_of_its_run(trial: Trial, key: int) -> None:
    found = evaluate(trial, "packed", key)
    assert [(row[0], row[1]) for row in found] == [("BE", False), ("FR", True), ("NL", False), (None, False)]
    of_groups = [(*row[:1], *row[3:]) for row in found if not row[1]]
    at_end = trial.sql(
        "SELECT country, training_loss_final, training_metrics_final FROM models_info"
        " WHERE mst_key = %s AND NOT is_fallback AND country IS DISTINCT FROM 'FR' ORDER BY 1",
        key,
    )
    assert len(at_end) == 3
    for (ours, *values), (theirs, *expected) in zip(of_groups, at_end, strict=True):
        assert ours == theirs
        assert values == pytest.approx(expected, rel=1e-6)


def test_each_group_is_measured_with_its_best_config(trial: Trial) -> None:
    best = trial.sql(
        "SELECT DISTINCT ON (country) country, mst_key FROM models_info WHERE model_size IS NOT NULL"
        " AND NOT is_fallback ORDER BY country, training_metrics_final DESC, training_loss_final, mst_key"
    )
    assert [(row[0], row[2]) for row in evaluate(trial, "packed") if not row[1]] == best


def test_the_model_of_all_rows_measures_groups_without_one(trial: Trial) -> None:
    found = {row[0]: row[1:] for row in evaluate(trial, "packed_later", 1)}
    assert {country for country, (is_fallback, *_) in found.items() if is_fallback} == {"DE", "FR"}
    # The same model in tables that know of no groups, on these rows packed for themselves.
    trial.sql("CREATE TABLE one AS SELECT x, y FROM later WHERE country = 'DE'")
    trial.pack("one", "packed_one")
    for table in ("models", "models_info"):
        trial.sql(f"CREATE TABLE all_{table} AS SELECT * FROM {table} WHERE is_fallback")
        trial.sql(f"ALTER TABLE all_{table} DROP country, DROP is_fallback")
    trial.sql("CREATE TABLE all_models_summary AS TABLE models_summary")
    trial.sql("ALTER TABLE all_models_summary DROP group_by")
    trial.sql("SELECT cerebro.madlib_evaluate('all_models', 'packed_one', 'alone', FALSE, 1)")
    (alone,) = trial.sql("SELECT loss, metric FROM alone")
    assert found["DE"][2:] == pytest.approx(alone, rel=1e-6)


def test_groups_without_a_model_are_left_out_with_a_notice(trial: Trial) -> None:
    trial.sql("CREATE TABLE others AS TABLE models; CREATE TABLE others_info AS TABLE models_info")
    trial.sql("CREATE TABLE others_summary AS TABLE models_summary")
    trial.sql("DELETE FROM others WHERE is_fallback; DELETE FROM others_info WHERE is_fallback")
    trial.notices()
    trial.sql("SELECT cerebro.madlib_evaluate('others', 'packed_later', 'measured')")
    assert "2 of 4 groups have no model and are left out" in trial.notices()
    assert [row[0] for row in trial.sql(MEASURED)] == ["NL", None]


def test_a_model_without_weights_is_an_error(trial: Trial) -> None:
    for table in ("models", "models_info", "models_summary"):
        trial.sql(f"CREATE TABLE broken_{table} AS TABLE {table}")
    trial.sql("DELETE FROM broken_models WHERE country = 'BE'")
    trial.sql("UPDATE broken_models SET model_weights = NULL WHERE country IS NULL AND NOT is_fallback")
    with pytest.raises(psycopg2.Error, match="has no weights for 2 of 4 groups"):
        trial.sql("SELECT cerebro.madlib_evaluate('broken_models', 'packed', 'measured', FALSE, 1)")
    assert trial.value("SELECT to_regclass('measured')") is None


def test_rows_packed_otherwise_are_refused(trial: Trial) -> None:
    trial.pack("sales", "packed_plain")
    with pytest.raises(psycopg2.Error) as caught:
        evaluate(trial, "packed_plain")
    assert "was not packed in the groups of public.models, those of country" in str(caught.value)
    assert "validation_preprocessor_dl" in (caught.value.diag.message_hint or "")
