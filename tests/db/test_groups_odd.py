"""Unusual groups: tiny, NULL, by the label or a feature, of unknown values, or of another role's run."""

from __future__ import annotations

from contextlib import closing

import psycopg2
import pytest

import nets
from cerebro_plpy.store.runs import state_rows
from fixtures import Connect, MakeRole
from trial import ADAM, Trial, blobs, rows_of

pytestmark = pytest.mark.fresh_caller

FEATURES, ROWS = 6, 120
JAX = {"backend": "jax"}


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(ROWS, features=FEATURES)))
    trial.sql(
        "CREATE TABLE sales AS SELECT x, y, x[1] AS first, number % 7 AS shop, NULL::text AS nothing,"
        " number AS own FROM (SELECT *, row_number() OVER () AS number FROM blobs) AS b"
    )
    trial.model(nets.mlp(FEATURES))
    trial.select("configs", [1], [ADAM], ["batch_size=64,epochs=1"])


def fresh(trial: Trial, *names: str) -> None:
    tables = [name + suffix for name in names for suffix in ("", "_info", "_summary", "_groups")]
    trial.sql(f"DROP TABLE IF EXISTS {', '.join(tables)}")


@pytest.mark.parametrize(
    ("group_by", "groups"),
    [
        pytest.param("nothing", 1, marks=pytest.mark.slow),
        pytest.param("own", ROWS, marks=pytest.mark.slow),
        ("shop", 7),
        (["nothing", "shop"], 7),
    ],
)
def test_groups_of_any_size_are_trained_and_predicted(trial: Trial, group_by: object, groups: int) -> None:
    """Groups with a NULL value, or with a single row each, are trained, and their rows are predicted."""
    fresh(trial, "packed", "models", "told")
    trial.pack("sales", "packed", options={"group_by": group_by})
    trial.fit("packed", "models", "configs", 2, options=JAX)
    assert trial.value("SELECT count(*) FROM models_info WHERE status = 'finished'") == groups
    trial.call("madlib_predict", "models", "sales", "own", "x", "told", "response")
    assert trial.value("SELECT count(*) FROM told") == ROWS


@pytest.mark.slow
def test_the_label_and_a_feature_may_name_groups(trial: Trial) -> None:
    fresh(trial, "packed", "models")
    trial.pack("sales", "packed", options={"group_by": "y"})
    trial.fit("packed", "models", "configs", 1, options=JAX)
    assert trial.sql("SELECT y, training_metrics_final IS NOT NULL FROM models_info ORDER BY 1") == [
        (label, True) for (label,) in trial.sql("SELECT DISTINCT y FROM sales ORDER BY 1")
    ]
    fresh(trial, "packed")
    trial.sql("DROP TABLE IF EXISTS named, named_summary")
    trial.pack("sales", "packed", x="shop, first", options={"group_by": "shop", "columns": "auto"})
    assert trial.value("SELECT count(*) FROM packed_groups") == 7


def test_added_rows_must_have_the_columns_of_groups(trial: Trial) -> None:
    fresh(trial, "packed")
    trial.pack("sales", "packed", options={"group_by": "shop"})
    trial.sql("CREATE VIEW without AS SELECT x, y FROM sales")
    with pytest.raises(psycopg2.Error, match='column "shop" does not exist'):
        trial.call("append_rows", "packed", "without")
    trial.sql("CREATE VIEW other AS SELECT x, y, 'north'::text AS shop FROM sales")
    with pytest.raises(psycopg2.Error, match="invalid input syntax for type"):
        trial.call("append_rows", "packed", "other")
    assert trial.value("SELECT count(*) FROM packed_groups") == 7
    assert trial.value("SELECT jsonb_array_length(packed_versions) FROM packed_summary") == 1
    trial.sql("DROP TABLE packed_groups")
    with pytest.raises(psycopg2.Error, match="packed_groups"):
        trial.call("append_rows", "packed", "sales")


def test_rows_are_added_by_those_who_may(trial: Trial, connect: Connect, role: MakeRole) -> None:
    fresh(trial, "packed")
    trial.pack("sales", "packed", options={"group_by": "shop"})
    user = role()
    trial.sql(
        f"GRANT SELECT ON sales, packed_groups TO {user};"
        f" GRANT SELECT, INSERT ON packed TO {user}; GRANT SELECT, UPDATE ON packed_summary TO {user}"
    )
    with closing(connect(user=user)) as connection:
        connection.notices = []
        theirs = Trial(connection)
        with pytest.raises(psycopg2.Error, match="permission denied for table .*packed_groups"):
            theirs.call("append_rows", "packed", "sales")
        trial.sql(f"GRANT INSERT, UPDATE ON packed_groups TO {user}")
        theirs.call("append_rows", "packed", "sales")
    assert trial.value("SELECT sum(__rows__)::int FROM packed_groups") == 2 * ROWS


@pytest.mark.slow
def test_a_run_of_another_role_is_no_beginning(trial: Trial, connect: Connect, role: MakeRole) -> None:
    fresh(trial, "packed", "models")
    trial.pack("sales", "packed", options={"group_by": "shop"})
    trial.fit("packed", "models", "configs", 1, options=JAX)
    user = role()
    trial.sql(f"CREATE SCHEMA theirs; GRANT ALL ON SCHEMA theirs TO {user}")
    for suffix in ("", "_info", "_summary"):
        trial.sql(f"CREATE TABLE theirs.models{suffix} AS TABLE models{suffix}")
        trial.sql(f"ALTER TABLE theirs.models{suffix} OWNER TO {user}")
    trial.sql(
        f"GRANT SELECT ON packed, packed_groups, packed_summary, arch, configs, configs_summary TO {user}"
    )
    with closing(connect(user=user)) as connection:
        connection.notices = []
        own = Trial(connection)
        options = {"threads": 1, "seed": 7, **JAX}
        with pytest.raises(psycopg2.Error, match="what has changed is not known: you have no run"):
            own.call(
                "madlib_fit_multiple_model", "packed", "theirs.models", "configs", 1, warm_start=True,
                options={**options, "groups": "changed"},
            )  # fmt: skip
        own.notices()
        own.call(
            "madlib_fit_multiple_model", "packed", "theirs.models", "configs", 1, warm_start=True,
            options=options,
        )  # fmt: skip
        assert "7 of 7 models go on from their weights alone" in own.notices()


def test_models_of_groups_are_no_net_of_ones_own(trial: Trial) -> None:
    fresh(trial, "packed", "models")
    trial.pack("sales", "packed", options={"group_by": "shop"})
    trial.fit("packed", "models", "configs", 1, options=JAX)
    with pytest.raises(psycopg2.Error, match="holds models of groups, and this call takes a net") as caught:
        trial.call("madlib_keras_predict_byom", "models", 1, "sales", "own", "x", "told_none")
    assert "madlib_predict" in str(caught.value)


@pytest.mark.slow
def test_more_than_a_million_groups_are_refused_and_a_million_packed(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE millions AS SELECT ARRAY[i, 1, 2, 3, 4, 5]::real[] AS x, i % 3 AS y, i AS one"
        " FROM generate_series(1, 1000001) AS i"
    )
    with pytest.raises(psycopg2.Error, match="there are 1000001 groups, more than 1000000"):
        trial.pack("millions", "millions_packed", options={"group_by": "one"})
    trial.sql("DELETE FROM millions WHERE one = 1000001")
    trial.pack("millions", "millions_packed", options={"group_by": "one"})
    assert trial.value("SELECT count(*) FROM millions_packed_groups WHERE __rows__ = 1") == 1000000
    trial.sql("CREATE TABLE extra AS SELECT x, y, 1000001 AS one FROM millions LIMIT 1")
    with pytest.raises(psycopg2.Error, match="there are 1000001 groups, more than 1000000"):
        trial.call("append_rows", "millions_packed", "extra")


@pytest.mark.postgresql
def test_what_is_said_of_all_configs_is_read_once(trial: Trial) -> None:
    """The statement that drops states parses its JSON argument once, also with a generic plan."""
    statement, _ = state_rows.dropping(1, {1: [1]})
    trial.sql("SET plan_cache_mode = force_generic_plan")
    try:
        trial.sql(f"PREPARE dropping (text) AS {statement}")
        plan = [line for (line,) in trial.sql("EXPLAIN EXECUTE dropping('{}')")]
    finally:
        trial.sql("RESET plan_cache_mode")
    assert sum("InitPlan" in line for line in plan) == 3
    assert not any("json" in line for line in plan if "Cond" in line)
    (looked_at,) = (line for line in plan if "Filter" in line)
    assert "($1)::json" not in looked_at
