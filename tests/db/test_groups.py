"""Option `group_by` of packing: each config is trained separately on the rows of each group."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg2
import pytest

import nets
from fixtures import Connect, execute
from predicting import has_keras
from trial import ADAM, SGD, Trial, blobs, cancelled, rows_of

pytestmark = pytest.mark.fresh_caller

FEATURES, ROWS, EPOCHS = 6, 301, 3


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(ROWS, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.sql(
        "CREATE TABLE sales AS SELECT x, y, (ARRAY['NL', 'BE', NULL])[1 + number % 3] AS country,"
        " (number * number / 7 % 4)::smallint AS shop"
        " FROM (SELECT *, row_number() OVER () AS number FROM blobs) AS b"
    )
    trial.pack("sales", "packed", options={"group_by": ["country", "shop"]})
    trial.model(nets.mlp(FEATURES))
    trial.select("configs", [1], [ADAM, SGD], ["batch_size=10,epochs=1"])
    trial.fit("packed", "models", "configs", EPOCHS)


def test_each_group_has_its_rows_on_one_segment(trial: Trial) -> None:
    counted = "SELECT country, shop, count(*) FROM sales GROUP BY 1, 2 ORDER BY 1, 2"
    assert trial.sql("SELECT country, shop, __rows__ FROM packed_groups ORDER BY 1, 2") == trial.sql(counted)
    assert trial.value("SELECT max(cardinality(__segments__)) FROM packed_groups") == 1
    per_segment = trial.sql("SELECT sum(x_shape[1]) FROM packed GROUP BY __dist_key__")
    assert max(per_segment)[0] / min(per_segment)[0] < 1.05


def test_each_config_of_each_group_equals_a_run_of_its_own(trial: Trial) -> None:
    groups = trial.sql("SELECT country, shop FROM packed_groups ORDER BY __group__")
    assert len(groups) == 12
    for country, shop in groups:
        trial.sql(
            "DROP TABLE IF EXISTS own, own_packed, own_packed_summary, alone, alone_info, alone_summary"
        )
        trial.sql(
            "CREATE TABLE own AS SELECT * FROM sales WHERE country IS NOT DISTINCT FROM %s AND shop = %s",
            country, shop,
        )  # fmt: skip
        trial.pack("own", "own_packed", options={"segments": 1})
        trial.fit("own_packed", "alone", "configs", EPOCHS)
        ours = trial.sql(
            "SELECT mst_key, model_weights FROM models WHERE country IS NOT DISTINCT FROM %s AND shop = %s",
            country, shop,
        )  # fmt: skip
        assert {key: bytes(data) for key, data in ours} == trial.weights("alone")
        metrics = "SELECT mst_key, training_loss_final, training_metrics_final FROM {} {} ORDER BY 1"
        where = "WHERE country IS NOT DISTINCT FROM %s AND shop = %s"
        assert trial.sql(metrics.format("models_info", where), country, shop) == trial.sql(
            metrics.format("alone_info", "")
        )


MOMENTUM = "loss='categorical_crossentropy',optimizer='SGD(lr=0.1,momentum=0.9)',metrics=['accuracy']"


@pytest.mark.parametrize(
    ("net", "compiled"),
    [
        ("Dense(8, activation='relu')", ADAM),
        pytest.param("Dense(8, activation='relu'), Dropout(0.3)", MOMENTUM, marks=pytest.mark.slow),
    ],
)
def test_groups_trained_as_one_program_equal_those_trained_one_by_one(
    trial: Trial, net: str, compiled: str
) -> None:
    results = [name + suffix for name in ("fused", "apart") for suffix in ("", "_info", "_summary")]
    trial.sql(f"DROP TABLE IF EXISTS nets, few, few_summary, {', '.join(results)}")
    trial.call("load_net", "nets", "packed", net)
    trial.select("few", [1], [compiled], ["batch_size=7,epochs=2"], arch="nets")
    for out, fuse in (("fused", "exact"), ("apart", "off")):
        trial.fit(
            "packed", out, "few", 4, metrics_compute_frequency=2,
            options={"backend": "jax", "fuse": fuse, "checkpoint_every": 3},
        )  # fmt: skip
    kept = "SELECT country, shop, model_weights FROM {} ORDER BY 1, 2"
    assert trial.sql(kept.format("fused")) == trial.sql(kept.format("apart"))
    # Metrics may differ in the last digit, because they are summed in another order.
    measured = "SELECT training_loss, training_metrics FROM {}_info ORDER BY country, shop"
    ours, theirs = (np.array(trial.sql(measured.format(name))) for name in ("fused", "apart"))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.slow
def test_the_batched_form_is_close_and_has_the_same_bits_whichever_groups_there_are(trial: Trial) -> None:
    trial.select("one_net", [1], [ADAM], ["batch_size=7"])
    kept = "SELECT country, shop, model_weights FROM {} ORDER BY 1, 2"
    found = {}
    for out, more in (
        ("alone", {"fuse": "off"}),
        ("fast", {"fuse": "fast", "checkpoint_every": 4}),
        ("in_steps", {"fuse": "fast", "checkpoint_every": 1}),
        ("fewer", {"fuse": "fast", "min_rows": 26}),
    ):
        trial.sql(f"DROP TABLE IF EXISTS {out}, {out}_info, {out}_summary")
        trial.fit("packed", out, "one_net", 4, options={"backend": "jax", **more})
        rows = trial.sql(kept.format(out))
        found[out] = {(country, shop): bytes(data) for country, shop, data in rows}
    assert found["fast"] == found["in_steps"]
    assert 0 < len(found["fewer"]) < len(found["fast"])
    assert found["fewer"].items() <= found["fast"].items()
    assert found["fast"] != found["alone"]
    for group, data in found["fast"].items():
        ours, theirs = (np.frombuffer(one, "<f4") for one in (data, found["alone"][group]))
        np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_the_leaderboard_ranks_within_each_group(trial: Trial) -> None:
    rows = trial.sql(
        "SELECT l.group_key::json ->> 'country', (l.group_key::json ->> 'shop')::int,"
        " array_agg(l.rank ORDER BY l.rank),"
        " array_agg(l.mst_key ORDER BY l.mst_key) FROM cerebro.leaderboard l"
        " JOIN models_summary USING (run_id) GROUP BY 1, 2"
    )
    assert len(rows) == 12
    assert all(ranks == [1, 2] and keys == [1, 2] for _, _, ranks, keys in rows)
    best = "SELECT country, shop, max(training_metrics_final) FROM models_info GROUP BY 1, 2 ORDER BY 1, 2"
    ranked = (
        "SELECT group_key::json ->> 'country', (group_key::json ->> 'shop')::int, value"
        " FROM cerebro.leaderboard JOIN models_summary USING (run_id) WHERE rank = 1 ORDER BY 1, 2"
    )
    assert trial.sql(best) == trial.sql(ranked)


@pytest.mark.slow
def test_it_is_interrupted_and_goes_on_with_the_same_bits(trial: Trial) -> None:
    options = {"fuse": "off", "checkpoint_every": 2}
    with cancelled(trial, 8):
        trial.fit("packed", "again", "configs", 60, options=options)
    run_id = trial.value("SELECT max(run_id) FROM cerebro.runs")
    trial.sql("SELECT cerebro.resume(%s)", run_id)
    trial.fit("packed", "at_once", "configs", 60, options=options)
    kept = "SELECT country, shop, mst_key, model_weights FROM {} ORDER BY 1, 2, 3"
    assert trial.sql(kept.format("again")) == trial.sql(kept.format("at_once"))


@pytest.mark.parametrize("backend", ["tensorflow", pytest.param("jax", marks=pytest.mark.slow)])
def test_a_group_that_fails_leaves_the_others_as_they_are(trial: Trial, backend: str) -> None:
    results = [name + suffix for name in ("torn", "whole") for suffix in ("", "_info", "_summary")]
    packed = [name + suffix for name in ("torn_packed",) for suffix in ("", "_groups", "_summary")]
    trial.sql(f"DROP TABLE IF EXISTS {', '.join(results + packed)}; DROP TABLE IF EXISTS torn_sales")
    trial.sql(
        "CREATE TABLE torn_sales AS SELECT CASE WHEN country = 'BE' AND shop = 1"
        " THEN ARRAY(SELECT sign(v) * 3e38 FROM unnest(x) AS v)::real[] ELSE x END AS x, y, country, shop"
        " FROM sales"
    )
    trial.pack("torn_sales", "torn_packed", options={"group_by": ["country", "shop"]})
    trial.fit("packed", "whole", "configs", 2, options={"backend": backend})
    trial.fit("torn_packed", "torn", "configs", 2, options={"backend": backend})
    failed = trial.sql("SELECT DISTINCT country, shop, reason FROM torn_info WHERE status = 'failed'")
    assert [row[:2] for row in failed] == [("BE", 1)]
    assert "the loss became nan" in failed[0][2]
    kept = (
        "SELECT country, shop, mst_key, model_weights FROM {} WHERE (country, shop) <> ('BE', 1)"
        " ORDER BY 1, 2, 3"
    )
    assert trial.sql(kept.format("torn")) == trial.sql(kept.format("whole"))


def test_a_large_group_is_cut_over_all_segments(trial: Trial) -> None:
    x, y = blobs(6000, features=FEATURES)
    trial.table("many", "x real[], y integer", rows_of(x, y))
    trial.sql("CREATE TABLE uneven AS SELECT x, y, CASE WHEN n <= 5500 THEN 'large' ELSE 'small' END AS size"
              " FROM (SELECT *, row_number() OVER () AS n FROM many) AS m")  # fmt: skip
    trial.pack("uneven", "uneven_packed", options={"group_by": "size"})
    where = dict(trial.sql("SELECT size, __segments__ FROM uneven_packed_groups"))
    assert where["large"] == [0, 1]
    assert len(where["small"]) == 1
    trial.fit("uneven_packed", "uneven_models", "configs", 1)
    trial.sql("CREATE TABLE large AS SELECT * FROM uneven WHERE size = 'large'")
    trial.pack("large", "large_packed")
    trial.fit("large_packed", "large_models", "configs", 1)
    ours = trial.sql("SELECT mst_key, model_weights FROM uneven_models WHERE size = 'large'")
    assert {key: bytes(data) for key, data in ours} == trial.weights("large_models")


@pytest.mark.parametrize(
    ("group_by", "message"),
    [
        ("nothing", 'column "nothing" does not exist'),
        ([], "not names of columns"),
        (7, "not names of columns"),
        ("x", "cannot name groups"),
        (["shop", "shop"], 'names "shop" twice'),
        ("mst_key", "a column of the result tables"),
    ],
)
def test_wrong_groups_are_refused(trial: Trial, group_by: Any, message: str) -> None:
    trial.sql("DROP VIEW IF EXISTS odd; CREATE VIEW odd AS SELECT *, 1 AS mst_key FROM sales")
    with pytest.raises(psycopg2.Error, match=message):
        trial.pack("odd", "none", options={"group_by": group_by})
    assert trial.value("SELECT to_regclass('none_groups')") is None


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"options": {"order": "even"}}, "takes no option order yet"),
        ({"options": {"hybrid": {"average_from_epoch": 2}}}, "takes no option hybrid yet"),
        ({"options": {"groups": "changed"}}, "nothing says since when"),
        (
            {"options": {"fuse": "fast", "backend": "tensorflow"}},
            "option fuse is fast, and tensorflow has no",
        ),
        ({"options": {"checkpoint_every": 0}}, "option checkpoint_every is 0"),
    ],
)
def test_what_is_not_there_yet_is_refused(trial: Trial, more: dict[str, Any], message: str) -> None:
    with pytest.raises(psycopg2.Error, match=message):
        trial.fit("packed", "none", "configs", 1, **more)


def test_options_of_groups_are_for_groups(trial: Trial) -> None:
    with pytest.raises(psycopg2.Error, match="option checkpoint_every is for runs of groups"):
        trial.pack("sales", "plain")
        trial.fit("plain", "none", "configs", 1, options={"checkpoint_every": 2})


def test_each_row_is_predicted_by_the_best_model_of_its_group(trial: Trial) -> None:
    trial.sql("CREATE TABLE numbered AS SELECT row_number() OVER () AS id, s.* FROM sales AS s")
    trial.sql("INSERT INTO numbered SELECT 0, x, y, 'none', shop FROM sales LIMIT 1")
    trial.notices()
    trial.call("madlib_predict", "models", "numbered", "id", "x", "predicted", pred_type="response")
    assert "1 of 302 rows are of groups that have no model" in trial.notices()
    right = trial.sql(
        "SELECT country, shop, avg((p.class_value = y::text)::int)::float FROM numbered JOIN predicted p"
        " USING (id) GROUP BY 1, 2 ORDER BY 1, 2"
    )
    best = trial.sql(
        "SELECT country, shop, max(training_metrics_final) FROM models_info GROUP BY 1, 2 ORDER BY 1, 2"
    )
    assert [row[:2] for row in right] == [row[:2] for row in best]
    np.testing.assert_allclose([row[2] for row in right], [row[2] for row in best], atol=1e-6)
    with pytest.raises(psycopg2.Error, match='has no column "country"'):
        trial.sql("CREATE VIEW plain_rows AS SELECT id, x FROM numbered")
        trial.call("madlib_predict", "models", "plain_rows", "id", "x", "none", pred_type="response")


def test_a_table_is_predicted_without_an_engine(trial: Trial, connect: Connect) -> None:
    trial.sql("CREATE TABLE sales_rows AS SELECT row_number() OVER () AS id, s.* FROM sales AS s")
    session = connect()
    predict = "SELECT cerebro.madlib_predict('models', 'sales_rows', 'id', 'x', 'by_numpy', 'response')"
    execute(session, predict)
    assert not has_keras(session)


# Greenplum has no predictions in queries.
@pytest.mark.postgresql
def test_a_row_in_a_query_is_predicted_by_the_model_of_its_group(trial: Trial) -> None:
    trial.sql("DROP TABLE IF EXISTS asked, asked_predicted")
    trial.sql("CREATE TABLE asked AS SELECT row_number() OVER () AS id, s.* FROM sales AS s")
    trial.call("madlib_predict", "models", "asked", "id", "x", "asked_predicted", pred_type="prob")
    differing = (
        "SELECT count(*), max(abs((a.probabilities ->> p.class_value)::float - p.prob)) FROM"
        " (SELECT s.id, p.* FROM asked s, cerebro.predict('models', s) p) AS a"
        " JOIN asked_predicted p USING (id)"
    )
    ((rows, most),) = trial.sql(differing)
    assert rows == ROWS * trial.value("SELECT count(DISTINCT y) FROM sales")
    assert most < 1e-6
    queried = (
        "SELECT count(*) FROM (SELECT s.id, p.class FROM asked s, cerebro.predict('models', s) p) AS a JOIN"
        " cerebro.predict_query('models', 'SELECT * FROM asked', NULL::asked) AS q ON (q.source).id = a.id"
        " WHERE q.class = a.class"
    )
    assert trial.value(queried) == ROWS
    nobody = (
        "SELECT count(*), count(class) FROM cerebro.predict_query('models',"
        " $$SELECT id, x, y, 'none'::text AS country, shop FROM asked LIMIT 10$$, NULL::asked)"
    )
    assert trial.sql(nobody) == [(10, 0)]
    one = (
        "SELECT p.class FROM (SELECT x, {} AS country, shop FROM sales LIMIT 1) AS s,"
        " cerebro.predict('models', s) p"
    )
    assert trial.value(one.format("'none'")) is None
    assert trial.value(one.format("NULL::text")) is not None
    as_text = (
        "SELECT count(*) FROM (SELECT s.id, p.class FROM (SELECT id, x, country, shop::text FROM asked)"
        " AS s, cerebro.predict('models', s) p) AS a JOIN asked_predicted t USING (id)"
        " WHERE t.rank = 1 AND t.class_value = a.class"
    )
    assert trial.value(as_text) == ROWS
    with pytest.raises(psycopg2.Error, match='the row has no column "country"'):
        trial.sql("SELECT cerebro.predict('models', s) FROM (SELECT x FROM sales LIMIT 1) AS s")
    with pytest.raises(psycopg2.Error, match="an array says no group"):
        trial.sql("SELECT cerebro.predict('models', 1, x) FROM sales LIMIT 1")


# Greenplum has no predictions in queries.
@pytest.mark.postgresql
def test_a_kept_model_of_a_group_is_used_while_it_is_the_same(trial: Trial) -> None:
    trial.sql("DROP TABLE IF EXISTS shifting, shifting_info, shifting_summary")
    trial.fit("packed", "shifting", "configs", 1)
    asked = (
        "SELECT p.probability FROM (SELECT * FROM sales WHERE country = 'NL' AND shop = 1 LIMIT 1) AS s,"
        " cerebro.predict('shifting', s, 1) p"
    )
    before = trial.value(asked)
    trial.sql(
        "UPDATE shifting SET model_weights = (SELECT model_weights FROM shifting WHERE country = 'BE'"
        " AND shop = 1 AND mst_key = 1) WHERE country = 'NL' AND shop = 1 AND mst_key = 1"
    )
    assert trial.value(asked) != before
    classes = trial.value("SELECT y_class_values FROM shifting_summary")
    trial.sql("UPDATE shifting_summary SET y_class_values = %s", [9] * len(classes))
    assert trial.value(asked.replace("p.probability", "p.class")) == "9"


# Greenplum has no predictions in queries.
@pytest.mark.postgresql
def test_numbers_of_all_kinds_name_groups_in_queries(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE priced AS SELECT x, y, (number % 3 + 1.50)::numeric AS price,"
        " ((number % 2) * 0.1)::real AS share FROM (SELECT *, row_number() OVER () AS number FROM blobs) AS b"
    )
    trial.pack("priced", "priced_packed", options={"group_by": ["price", "share"]})
    trial.fit("priced_packed", "priced_models", "configs", 1)
    without = "SELECT count(*) FROM priced s, cerebro.predict('priced_models', s) p WHERE p.class IS NULL"
    assert trial.value(without) == 0


@pytest.mark.slow
@pytest.mark.parametrize("layers", ["Reshape((3, 2)), LSTM(4)", "Reshape((3, 2)), Conv1D(4, 2), Flatten()"])
def test_groups_are_predicted_by_an_engine_where_it_is_faster(trial: Trial, layers: str) -> None:
    trial.sql(
        "DROP TABLE IF EXISTS deep, few, few_summary, deep_models, deep_models_info, deep_models_summary"
    )
    trial.sql("DROP TABLE IF EXISTS numbered_rows, deep_predicted")
    trial.call("load_net", "deep", "packed", layers)
    trial.select("few", [1], [ADAM], ["batch_size=10"], arch="deep")
    trial.fit("packed", "deep_models", "few", 1)
    trial.sql("CREATE TABLE numbered_rows AS SELECT row_number() OVER () AS id, s.* FROM sales AS s")
    trial.call(
        "madlib_predict", "deep_models", "numbered_rows", "id", "x", "deep_predicted", pred_type="response"
    )
    right = trial.value(
        "SELECT avg((p.class_value = y::text)::int)::float FROM numbered_rows"
        " JOIN deep_predicted p USING (id) WHERE country = 'NL' AND shop = 1"
    )
    kept = trial.value(
        "SELECT training_metrics_final FROM deep_models_info WHERE country = 'NL' AND shop = 1"
    )
    assert right == pytest.approx(kept, abs=1e-6)
