"""Runs of groups with a budget, with balanced classes, and with a single config."""

from __future__ import annotations

import psycopg2
import pytest

import nets
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]

FEATURES, ROWS = 6, 240
JAX = {"backend": "jax"}
MODELS = "SELECT country, mst_key, md5(model_weights) FROM {} ORDER BY 1, 2"
OF = "country IS NOT DISTINCT FROM %s"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(ROWS, features=FEATURES)))
    trial.sql(
        "CREATE TABLE sales AS SELECT x, CASE WHEN number % 5 = 0 THEN 0 ELSE y END AS y,"
        " (ARRAY['NL', 'BE', NULL, 'FR'])[1 + number % 4] AS country"
        " FROM (SELECT *, row_number() OVER () AS number FROM blobs) AS b"
    )
    trial.pack("sales", "packed", options={"group_by": "country"})
    trial.model(nets.mlp(FEATURES))
    trial.select("configs", [1], [ADAM, SGD], ["batch_size=10,epochs=1"])
    trial.select("balanced", [1], [ADAM, SGD], ["batch_size=10,class_weight='balanced'"])


def fresh(trial: Trial, *names: str) -> None:
    tables = [name + suffix for name in names for suffix in ("", "_info", "_summary", "_groups")]
    trial.sql(f"DROP TABLE IF EXISTS {', '.join(tables)}")


@pytest.mark.parametrize("backend", ["jax", "tensorflow"])
def test_classes_are_balanced_within_each_group(trial: Trial, backend: str) -> None:
    fresh(trial, "even", "uneven")
    options = {"backend": backend}
    run = trial.fit("packed", "even", "balanced", 2, options=options)
    trial.fit("packed", "uneven", "configs", 2, options=options)
    assert trial.sql(MODELS.format("even")) != trial.sql(MODELS.format("uneven"))
    for country in ("BE", None):
        fresh(trial, "own_packed", "alone")
        trial.sql("DROP TABLE IF EXISTS own")
        trial.sql(f"CREATE TABLE own AS SELECT * FROM sales WHERE {OF}", country)
        trial.pack("own", "own_packed", options={"segments": 1})
        trial.fit("own_packed", "alone", "balanced", 2, options=options)
        ours = trial.sql(f"SELECT mst_key, model_weights FROM even WHERE {OF}", country)
        assert {key: bytes(data) for key, data in ours} == trial.weights("alone")
    written = (
        "SELECT DISTINCT g.key::json ->> 'country', c.class_counts::json ->> 'y' FROM cerebro._config AS c"
        " JOIN cerebro._group AS g USING (run_id, group_id) WHERE run_id = %s ORDER BY 1"
    )
    counted = (
        "SELECT country, json_agg(n ORDER BY y)::text FROM"
        " (SELECT country, y, count(*) AS n FROM sales GROUP BY 1, 2) AS c GROUP BY 1 ORDER BY 1"
    )
    assert trial.sql(written, run) == trial.sql(counted)


def test_a_large_group_is_balanced_by_all_of_its_rows(trial: Trial) -> None:
    x, y = blobs(6000, features=FEATURES)
    trial.table("many", "x real[], y integer", rows_of(x, y))
    trial.sql(
        "CREATE TABLE wide AS SELECT x, y, CASE WHEN n <= 5500 THEN 'large' ELSE 'small' END AS size"
        " FROM (SELECT *, row_number() OVER () AS n FROM many WHERE y > 0 OR x[1] > 0) AS m;"
        " CREATE TABLE large AS SELECT * FROM wide WHERE size = 'large'"
    )
    trial.pack("wide", "wide_packed", options={"group_by": "size"})
    trial.pack("large", "large_packed")
    trial.fit("wide_packed", "wide_models", "balanced", 1, options=JAX)
    trial.fit("large_packed", "large_models", "balanced", 1, options=JAX)
    ours = trial.sql("SELECT mst_key, model_weights FROM wide_models WHERE size = 'large'")
    assert {key: bytes(data) for key, data in ours} == trial.weights("large_models")


def test_a_budget_of_visits_is_spent_on_groups_in_turn(trial: Trial) -> None:
    run = trial.fit("packed", "short", "configs", 6, options={**JAX, "max_visits": 32})
    ended = trial.sql("SELECT DISTINCT status, reason FROM short_info")
    assert ended == [("stopped", "the run's 32 visits are spent")]
    # Two configs of four groups on two segments: an epoch is sixteen visits.
    epochs = trial.sql(
        "SELECT segment, mst_key, max(epoch) FROM cerebro.visits WHERE run_id = %s GROUP BY 1, 2", run
    )
    assert sum(epoch for *_, epoch in epochs) == 16
    for segment in (0, 1):
        own = {epoch for where, _, epoch in epochs if where == segment}
        assert not own or max(own) - min(own) <= 1
    reached = trial.sql("SELECT country, mst_key, cardinality(training_loss) FROM short_info ORDER BY 1, 2")
    assert {count for *_, count in reached} <= {None, 1}
    units = "SELECT country, mst_key, md5(model_weights) FROM {} ORDER BY 1, 2"
    trained = dict(
        trial.sql("SELECT mst_key, max(epoch) FROM cerebro.visits WHERE run_id = %s GROUP BY 1", run)
    )
    of_unit = trial.sql(
        "SELECT group_key::json ->> 'country', config_key, mst_key FROM cerebro.progress WHERE run_id = %s",
        run,
    )
    numbers = {(country, config): number for country, config, number in of_unit}
    found = {row[:2]: row[2] for row in trial.sql(units.format("short"))}
    for many in {*trained.values()}:
        fresh(trial, "whole")
        trial.fit("packed", "whole", "configs", many, options=JAX)
        expected = {row[:2]: row[2] for row in trial.sql(units.format("whole"))}
        own = [unit for unit in found if trained[numbers[unit]] == many]
        assert own and all(found[unit] == expected[unit] for unit in own)


def test_a_budget_ends_in_the_middle_of_an_epoch(trial: Trial) -> None:
    run = trial.fit("packed", "shorter", "configs", 6, options={**JAX, "max_visits": 5})
    began = trial.value("SELECT count(*) FROM cerebro.visits WHERE run_id = %s", run)
    assert began == 3
    assert trial.value("SELECT count(*) FROM shorter") == 3
    assert trial.value("SELECT count(*) FROM shorter_info WHERE training_loss_final IS NOT NULL") == 3


def test_a_run_that_may_take_a_second_ends_well(trial: Trial) -> None:
    trial.fit("packed", "brief", "configs", 100000, options={**JAX, "max_seconds": 1})
    assert trial.sql("SELECT DISTINCT status, reason FROM brief_info") == [
        ("stopped", "the run's 1 seconds are spent")
    ]
    assert trial.value("SELECT count(training_loss_final) FROM brief_info") == 8


def test_one_config_on_every_group(trial: Trial) -> None:
    fresh(trial, "several", "single")
    trial.fit("packed", "several", "configs", 2, options=JAX)

    def single(**more: object) -> None:
        trial.call(
            "madlib_fit", "packed", "single", "arch", 1, ADAM, "batch_size=10,epochs=1", 2,
            options={"threads": 1, "seed": 7, **JAX}, **more,
        )  # fmt: skip

    single()
    one = "SELECT country, mst_key, md5(model_weights) FROM {} WHERE mst_key = 1 ORDER BY 1"
    assert trial.sql(one.format("single")) == trial.sql(one.format("several"))
    assert trial.sql("SELECT group_by FROM single_summary") == [(["country"],)]
    trial.sql("CREATE TABLE asked AS SELECT row_number() OVER () AS id, * FROM sales")
    trial.call("madlib_predict", "single", "asked", "id", "x", "told", "response")
    assert trial.value("SELECT count(*) FROM told") == ROWS
    single(warm_start=True)
    fresh(trial, "longer")
    trial.fit("packed", "longer", "configs", 4, options=JAX)
    assert trial.sql(one.format("single")) == trial.sql(one.format("longer"))


def test_one_config_on_every_group_is_checked_as_ever(trial: Trial) -> None:
    for arguments, said in (
        (("packed", "bad", "arch", None, ADAM, "batch_size=10", 1), "model_id and compile_params"),
        (("packed", "bad", "arch", 99, ADAM, "batch_size=10", 1), "99"),
        (("packed", "bad", "nowhere", 1, ADAM, "batch_size=10", 1), "nowhere"),
        (("packed", "bad", "arch", 1, ADAM, "batch_size=0", 1), "batch_size"),
    ):
        with pytest.raises(psycopg2.Error, match=said):
            trial.call("madlib_fit", *arguments)
