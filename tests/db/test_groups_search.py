"""Searches on a packed table in groups: one search for each group, or one search for all groups."""

# ruff: noqa: E501

from __future__ import annotations

from typing import Any

import psycopg2
import pytest

import nets
from trial import Trial, blobs, cancelled, rows_of

pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]

FEATURES, ROWS = 6, 160
JAX = {"backend": "jax", "threads": 1, "fuse": "off"}
ALONE = {"backend": "jax", "threads": 1}
GRID = """{'loss': ['categorical_crossentropy'], 'metrics': ['accuracy'],
    'optimizer_params_list': [
        {'optimizer': ['Adam'], 'lr': [0.001, 0.1, 'log']},
        {'optimizer': ['SGD'], 'lr': [0.001, 0.5, 'log'], 'momentum': [0.5, 0.95, 'linear']}]}"""
COUNTRIES = ["BE", "NL", None]
OF = "country IS NOT DISTINCT FROM %s"


def search(trial: Trial, out: str, method: str, params: str, packed: str = "packed", **options: Any) -> int:
    tables = [name + suffix for name in (out, f"{out}_best") for suffix in ("", "_info", "_summary")]
    trial.sql(f"DROP TABLE IF EXISTS {', '.join(tables)}")
    validation = options.pop("validation", None)
    trial.call(
        "madlib_keras_automl", packed, out, "arch", f"{out}_best", [1], GRID, "{'batch_size': [10]}",
        method, params, 5, validation_table=validation, options={**(JAX if packed == "packed" else ALONE), **options},
    )  # fmt: skip
    return trial.value(f"SELECT run_id FROM {out}_summary")


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(ROWS, features=FEATURES)))
    trial.sql(
        "CREATE TABLE sales AS SELECT x, CASE WHEN number % 4 = 1 THEN number % 3 ELSE y END AS y,"
        " (ARRAY['NL', 'BE', NULL, 'NL'])[1 + number % 4] AS country"
        " FROM (SELECT *, row_number() OVER () AS number FROM blobs) AS b"
    )
    trial.pack("sales", "packed", options={"group_by": "country"})
    trial.model(nets.mlp(FEATURES))


@pytest.mark.parametrize("method, params", [("hyperband", "R=3, eta=3"), ("median", "num_configs=4,"
    " num_iterations=3, min_iterations=1, min_configs=1"), ("asha", "num_configs=5, num_iterations=3, eta=2")])  # fmt: skip
def test_each_group_is_searched_as_in_a_search_of_its_own(trial: Trial, method: str, params: str) -> None:
    run = search(trial, "found", method, params)
    for country in COUNTRIES:
        trial.sql("DROP TABLE IF EXISTS own, own_packed, own_packed_summary")
        trial.sql(f"CREATE TABLE own AS SELECT * FROM sales WHERE {OF}", country)
        trial.pack("own", "own_packed", options={"segments": 2 if method == "hyperband" else 1})
        ours = trial.sql(f"SELECT mst_key, compile_params FROM found_info WHERE {OF} ORDER BY 1", country)
        if method == "hyperband":
            trial.sql("DROP TABLE own_packed, own_packed_summary")
            trial.pack("own", "own_packed", options={"segments": 1})
        alone = search(trial, "alone", method, params, packed="own_packed")
        assert ours == trial.sql("SELECT mst_key, compile_params FROM alone_info ORDER BY 1")
        if method == "hyperband":
            kept = trial.sql(f"SELECT mst_key, model_weights FROM found WHERE {OF}", country)
            assert {key: bytes(data) for key, data in kept} == trial.weights("alone")
            said = "SELECT status, reason, metrics_iters, s, i FROM {} ORDER BY mst_key"
            assert trial.sql(said.format(f"found_info WHERE {OF}"), country) == trial.sql(
                said.format("alone_info")
            )
            assert trial.sql("SELECT mst_key FROM alone_best")[0] in trial.sql(
                "SELECT mst_key FROM found_best"
            )
        assert alone != run
    ranks = "SELECT group_key, array_agg(rank ORDER BY rank) FROM cerebro.leaderboard WHERE run_id = %s GROUP BY 1"
    ranked = trial.sql(ranks, run)
    assert len(ranked) == 3 and all(found == list(range(1, len(found) + 1)) for _, found in ranked)


@pytest.mark.parametrize("method, params", [("asha", "num_configs=5, num_iterations=3, eta=2"),
    ("median", "num_configs=5, num_iterations=3, min_iterations=1, min_configs=1")])  # fmt: skip
def test_groups_stop_and_promote_their_own_configs(trial: Trial, method: str, params: str) -> None:
    run = search(trial, "found", method, params)
    epochs = trial.sql(
        "SELECT country, array_agg(cardinality(training_loss) ORDER BY mst_key) FROM found_info GROUP BY 1"
    )
    assert all(len(found) == 5 and len({*found}) > 1 for _, found in epochs)
    # Each config is compared only with configs on the same group.
    compared = trial.value(
        "SELECT max(substring(reason from '(?:of|place \\d+ of) (\\d+)')::int) FROM cerebro.decisions"
        " WHERE run_id = %s AND reason ~ 'the median of|place'", run
    )  # fmt: skip
    assert 1 < compared <= 5
    assert trial.value("SELECT count(*) FROM found_info WHERE status = 'stopped'") > 0
    weights = "SELECT country, mst_key, md5(model_weights) FROM {} ORDER BY 1, 2"
    first = trial.sql(weights.format("found"))
    search(trial, "again", method, params, replay=run)
    assert trial.sql(weights.format("again")) == first


def test_it_is_interrupted_and_goes_on(trial: Trial) -> None:
    params = "num_configs=4, num_iterations=40, min_iterations=39, min_configs=1"
    with cancelled(trial, 40):
        search(trial, "torn", "median", params)
    run = trial.value("SELECT max(run_id) FROM cerebro.runs")
    trial.sql("SELECT cerebro.resume(%s)", run)
    search(trial, "whole", "median", params, replay=run)
    weights = "SELECT country, mst_key, md5(model_weights) FROM {} ORDER BY 1, 2"
    assert trial.sql(weights.format("torn")) == trial.sql(weights.format("whole"))
    assert trial.value("SELECT count(*) FROM torn") == 12


@pytest.mark.parametrize("method, params", [
    ("tpe", "num_configs=5, num_iterations=2, min_iterations=1, min_configs=1"),
    ("pbt", "population=4, num_iterations=3, replaced=1"),
    ("hyperopt", "num_configs=4, num_iterations=2"),
])  # fmt: skip
def test_what_proposes_configs_searches_for_all_groups_at_once(
    trial: Trial, method: str, params: str
) -> None:
    run = search(trial, "found", method, params)
    by_group = trial.sql(
        "SELECT country, array_agg(mst_key ORDER BY mst_key), array_agg(compile_params ORDER BY mst_key),"
        " array_agg(status ORDER BY mst_key), array_agg(reason ORDER BY mst_key) FROM found_info GROUP BY 1"
    )
    assert len(by_group) == 3
    assert all(found[1:] == by_group[0][1:] for found in by_group)
    assert len(by_group[0][1]) >= 4
    weights = "SELECT country, mst_key, md5(model_weights) FROM {} ORDER BY 1, 2"
    first = trial.sql(weights.format("found"))
    search(trial, "again", method, params, replay=run)
    assert trial.sql(weights.format("again")) == first
    with pytest.raises(psycopg2.Error, match=f"{method} proposes configs by what it has measured"):
        search(trial, "none", method, params, search="per_group")


def test_one_search_goes_by_the_mean_of_all_groups_weighted_by_rows(trial: Trial) -> None:
    run = search(trial, "found", "hyperband", "R=3, eta=3, skip_last=0", search="all_groups")
    decided = trial.sql(
        "SELECT d.mst_key, d.decision FROM cerebro.decisions AS d WHERE run_id = %s"
        " AND d.decision IN ('stop', 'go_on') AND d.reason LIKE 'bracket 1, rung 0%%'", run
    )  # fmt: skip
    assert decided
    first = trial.sql(
        "SELECT i.mst_key, sum(i.training_loss[1] * g.__rows__) / sum(g.__rows__), bool_or(i.status = 'finished')"
        " FROM found_info AS i JOIN packed_groups AS g ON g.country IS NOT DISTINCT FROM i.country"
        " WHERE s = 1 GROUP BY 1 ORDER BY 2"
    )
    assert [finished for *_, finished in first] == [True, False, False]


def test_a_search_of_groups_obeys_the_options(trial: Trial) -> None:
    search(trial, "few", "median", "num_configs=2, num_iterations=2, min_iterations=1", min_rows=50)
    left = "SELECT country, count(*) FROM few_info WHERE status = 'left out' GROUP BY 1 ORDER BY 1"
    assert trial.sql(left) == [("BE", 2), (None, 2)]
    assert trial.sql("SELECT DISTINCT country FROM few") == [("NL",)]
    run = search(trial, "brief", "median", "num_configs=4, num_iterations=9, min_iterations=1", max_visits=20)
    assert trial.value("SELECT count(DISTINCT reason) FROM brief_info WHERE reason LIKE '%%visits are spent'")
    assert run
    search(trial, "one", "median", "num_configs=4, num_iterations=1, min_iterations=1", max_configs=1)
    assert trial.value("SELECT count(*) FROM one_info") == 3
    bad: list[tuple[dict[str, Any], str]] = [
        ({"search": "some"}, "option search is some"),
        ({"fallback": True}, "option fallback is for fits"),
        ({"min_rows": 1000}, "none of 3 groups"),
    ]
    for options, said in bad:
        with pytest.raises(psycopg2.Error, match=said):
            search(trial, "bad", "median", "num_configs=2, num_iterations=2, min_iterations=1", **options)
    trial.pack("sales", "plain")
    with pytest.raises(psycopg2.Error, match="option search is for tables that were packed in groups"):
        search(trial, "bad", "asha", "", packed="plain", search="per_group")


def test_models_of_a_search_predict_each_row_by_its_group(trial: Trial) -> None:
    trial.pack_validation("sales", "checked", "packed")
    search(trial, "found", "hyperband", "R=3, eta=3", validation="checked")
    trial.sql("CREATE TABLE asked AS SELECT row_number() OVER () AS id, * FROM sales")
    trial.call("madlib_keras_predict", "found", "asked", "id", "x", "told", "response")
    assert trial.value("SELECT count(*) FROM told") == ROWS
    assert (
        trial.value("SELECT count(*) FROM found_info WHERE validation_loss_final IS NULL AND model_size > 0")
        == 0
    )


def test_equal_configs_that_are_best_for_several_groups_are_listed_once(trial: Trial) -> None:
    """TPE goes on with configs that it had before, once the space has no others."""
    grid = "{'loss': ['categorical_crossentropy'], 'optimizer_params_list': [{'optimizer': ['SGD'], 'lr': [0.1]}]}"
    trial.call(
        "madlib_keras_automl", "packed", "narrow", "arch", "narrow_best", [1], grid, "{'batch_size': [10]}",
        "tpe", "num_configs=6, num_iterations=2", 5, options={**JAX, "search": "all_groups"},
    )  # fmt: skip
    assert trial.value("SELECT count(*) FROM narrow_info") == 18
    assert trial.sql("SELECT model_id, fit_params FROM narrow_best") == [(1, "batch_size=10")]
