"""Option `experience`: a search begins with the best configs of earlier searches on similar tables."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import psycopg2
import pytest

import nets
from fixtures import Connect, MakeRole
from trial import Trial, blobs, rows_of

GRID = """{'loss': ['categorical_crossentropy'], 'metrics': ['accuracy'],
    'optimizer_params_list': [{'optimizer': ['SGD'], 'lr': [0.0001, 0.5, 'log']}]}"""
CONFIGS = "SELECT model_id, compile_params, fit_params FROM"


@pytest.fixture(scope="module")
def data(trial: Trial) -> Trial:
    """Pack two similar tables and one with more features, load nets, and search on the first table."""
    for name, rows, seed, features in (("one", 90, 0, 16), ("two", 120, 1, 16), ("large", 90, 0, 700)):
        trial.table(f"{name}_rows", "x real[], y integer", rows_of(*blobs(rows, seed, features)))
        trial.pack(f"{name}_rows", name)
    for units in (8, 16):
        net = nets.mlp(features=16, units=units)
        trial.sql("SELECT cerebro.load_keras_model('arch', %s, NULL, %s)", net, f"net of {units}")
    trial.sql("SELECT cerebro.load_keras_model('wide', %s, NULL, 'net of 8')", nets.mlp(features=700))
    search(trial, "one", "begun", 1)
    return trial


def search(
    trial: Trial,
    source: str,
    out: str,
    random_state: int,
    arch: str = "arch",
    configs: int = 6,
    **options: Any,
) -> str:
    """Search with so many configs, and return the server's notices."""
    trial.notices()
    models = [1, 2] if arch == "arch" else [1]
    trial.call(
        "madlib_keras_automl", source, out, arch, f"{out}_best", models, GRID, "{'batch_size': [8, 16]}",
        "asha", f"num_configs={configs}, num_iterations=2", random_state=random_state,
        options={"threads": 1, **options},
    )  # fmt: skip
    return trial.notices()


def rank(trial: Trial, out: str, losses: str = "training_loss") -> list[tuple[Any, ...]]:
    """Return the configs of a search, ordered by the least loss that each had after any epoch."""
    return trial.sql(
        f"{CONFIGS} {out}_info ORDER BY (SELECT min(loss) FROM unnest({losses}) AS loss), mst_key"
    )


def test_a_search_begins_with_the_best_of_an_earlier_one_and_loses_none_of_its_own(data: Trial) -> None:
    run = data.value("SELECT run_id FROM begun_summary")
    said = search(data, "two", "next", 2, experience=True)
    assert f"experience: the search begins with 2 configs of run {run}\n" in said
    configs = data.sql(f"{CONFIGS} next_info ORDER BY mst_key")
    assert configs[:2] == rank(data, "begun")[:2]
    search(data, "two", "without", 2)
    assert configs[2:] == data.sql(f"{CONFIGS} without_info ORDER BY mst_key")
    search(data, "two", "limited", 2, experience=True, max_configs=6)
    assert data.value("SELECT count(*) FROM limited_info") == 6


def test_a_space_without_other_configs_is_searched_whole(data: Trial) -> None:
    """A search of a small space trains all of its configs, although earlier configs come first."""
    grid = GRID.replace("[0.0001, 0.5, 'log']", "[0.001, 0.1]")
    for out, source, options in (("few", "one", {}), ("few_again", "two", {"experience": True})):
        data.call(
            "madlib_keras_automl", source, out, "arch", f"{out}_best", [1], grid, "{'batch_size': [8, 16]}",
            "asha", "num_configs=4, num_iterations=2", random_state=1, options={"threads": 1, **options},
        )  # fmt: skip
    own, again = (data.sql(f"{CONFIGS} {out}_info") for out in ("few", "few_again"))
    assert len(own) == 4 and {*own} < {*again} and len(again) <= 6


def test_a_replay_begins_as_its_run_did_whatever_has_ended_since(data: Trial) -> None:
    search(data, "two", "early", 3, experience=True, seed=4)
    run = data.value("SELECT run_id FROM early_summary")
    # Its best configs would now come first.
    search(data, "two", "between", 5)
    search(data, "two", "replayed", 3, experience=True, replay=run)
    assert data.sql(f"{CONFIGS} replayed_info ORDER BY mst_key") == data.sql(
        f"{CONFIGS} early_info ORDER BY mst_key"
    )
    assert data.weights("replayed") == data.weights("early")
    with pytest.raises(psycopg2.Error, match=f"run {run} cannot be replayed by this call"):
        search(data, "two", "none", 3, experience=True, replay=run, configs=5)


def test_a_table_that_is_unlike_gets_no_configs(data: Trial) -> None:
    said = search(data, "large", "apart", 1, arch="wide", experience=True)
    assert "experience: no earlier search of yours has trained these nets on a table like this one" in said


@pytest.mark.slow
def test_searches_of_others_do_not_count(data: Trial, connect: Connect, role: MakeRole) -> None:
    user = role()
    # No owner is set: Greenplum would check whether the owner may create schemas.
    data.sql(f"CREATE SCHEMA own; GRANT ALL ON SCHEMA own TO {user}")
    data.sql(f"GRANT SELECT ON one, one_summary, arch TO {user}")
    with closing(connect(user=user)) as connection:
        connection.notices = []
        said = search(Trial(connection), "one", "own.found", 1, experience=True)
    assert "experience: no earlier search of yours" in said
    data.sql(f"DROP OWNED BY {user} CASCADE; DROP SCHEMA own CASCADE")


def test_methods_and_tables_that_take_none_refuse(data: Trial) -> None:
    with pytest.raises(psycopg2.errors.FeatureNotSupported, match="tpe proposes .* option experience"):
        data.sql(
            "SELECT cerebro.madlib_keras_automl('one', 'no', 'arch', 'no_best', ARRAY[1], %s, %s, 'tpe',"
            " 'num_configs=3, num_iterations=2', 1, options => '{\"experience\": true}')",
            GRID, "{'batch_size': [8]}",
        )  # fmt: skip
    data.sql("CREATE TABLE sorted AS SELECT x, y, y % 2 AS kind FROM one_rows")
    data.pack("sorted", "grouped", options={"group_by": "kind"})
    with pytest.raises(psycopg2.errors.FeatureNotSupported, match="not packed in groups"):
        search(data, "grouped", "no", 1, experience=True)
    with pytest.raises(psycopg2.Error, match="option experience is 1"):
        search(data, "one", "no", 1, experience=1)


def test_train_begins_with_the_best_of_an_earlier_call(data: Trial) -> None:
    data.sql("CREATE TABLE sales AS SELECT x[1] AS a, x[2] AS b, x[3] AS c, 'k' || y AS kind FROM two_rows")
    given = {"nets": ["linear"], "configs": 3, "epochs": 2, "single": True, "folds": False}
    for name, more in (("first", {}), ("second", {"experience": True})):
        data.notices()
        data.sql("SELECT cerebro.train('sales', 'kind', %s, '30 s', %s)", name, json.dumps({**given, **more}))
    run = data.value("SELECT run_id FROM first_summary")
    assert f"experience: the search begins with 1 config of run {run}\n" in data.notices()
    ranked = rank(data, "first", "validation_loss")
    assert data.sql(f"{CONFIGS} second_info WHERE mst_key = 1") == ranked[:1]
