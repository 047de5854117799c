"""Validation rows of a table in groups: each model is measured on the validation rows of its group."""

from __future__ import annotations

import numpy as np
import psycopg2
import pytest

import nets
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.fresh_caller

FEATURES, ROWS, EPOCHS = 6, 400, 2
OF = "country IS NOT DISTINCT FROM %s"
MEASURED = "training_loss_final, training_metrics_final, validation_loss_final, validation_metrics_final"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(ROWS, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.sql(
        "CREATE TABLE numbered AS SELECT x, y, number, (ARRAY['NL', 'BE', 'FR', NULL])[1 + number % 4]"
        " AS country FROM (SELECT *, row_number() OVER () AS number FROM blobs) AS b;"
        " CREATE TABLE sales AS SELECT * FROM numbered WHERE number <= 300;"
        # FR has no validation rows, and DE has no training rows.
        " CREATE TABLE held AS SELECT x, y,"
        " CASE country WHEN 'FR' THEN 'DE' ELSE country END::varchar AS country"
        " FROM numbered WHERE number > 300"
    )
    trial.pack("sales", "packed", options={"group_by": "country"})
    trial.notices()
    trial.pack_validation("held", "packed_v", "packed")
    assert "of groups without training rows are left out: 25" in trial.notices()
    trial.model(nets.mlp(FEATURES))
    trial.select("configs", [1], [ADAM, SGD], ["batch_size=10,epochs=1"])
    trial.fit("packed", "models", "configs", EPOCHS, validation_table="packed_v")
    assert "1 of 4 groups have no validation rows: training rows rank them" in trial.notices()


def test_validation_rows_lie_with_the_training_rows_of_their_group(trial: Trial) -> None:
    where = "SELECT country, __group__, __segments__ FROM {} ORDER BY 1"
    training = trial.sql(where.format("packed_groups"))
    validation = trial.sql(where.format("packed_v_groups"))
    assert validation == [row for row in training if row[0] != "FR"]
    assert trial.sql("SELECT country, __rows__ FROM packed_v_groups ORDER BY 1") == trial.sql(
        "SELECT country, count(*) FROM held WHERE country IS DISTINCT FROM 'DE' GROUP BY 1 ORDER BY 1"
    )


@pytest.mark.parametrize("country", ["NL", None])
def test_a_group_is_measured_as_in_a_run_of_its_own(trial: Trial, country: str | None) -> None:
    names = ["own_packed", "own_v"]
    tables = [name + suffix for name in names for suffix in ("", "_summary")]
    tables += ["own", "own_held", "alone", "alone_info", "alone_summary"]
    trial.sql(f"DROP TABLE IF EXISTS {', '.join(tables)}")
    for own, source in (("own", "sales"), ("own_held", "held")):
        trial.sql(f"CREATE TABLE {own} AS SELECT * FROM {source} WHERE {OF}", country)
    trial.pack("own", "own_packed", options={"segments": 1})
    trial.pack_validation("own_held", "own_v", "own_packed")
    trial.fit("own_packed", "alone", "configs", EPOCHS, validation_table="own_v")
    ours = trial.sql(f"SELECT mst_key, {MEASURED} FROM models_info WHERE {OF} ORDER BY 1", country)
    assert ours == trial.sql(f"SELECT mst_key, {MEASURED} FROM alone_info ORDER BY 1")
    kept = trial.sql(f"SELECT mst_key, model_weights FROM models WHERE {OF}", country)
    assert {key: bytes(data) for key, data in kept} == trial.weights("alone")


def test_a_group_without_validation_rows_is_ranked_by_its_training_rows(trial: Trial) -> None:
    ranked = trial.sql(
        "SELECT DISTINCT group_key::json ->> 'country', dataset FROM cerebro.leaderboard"
        " JOIN models_summary USING (run_id) ORDER BY 1"
    )
    assert ranked == [("BE", "validation"), ("FR", "training"), ("NL", "validation"), (None, "validation")]
    assert trial.sql(
        "SELECT DISTINCT validation_loss_final, training_loss_final > 0 FROM models_info WHERE country = 'FR'"
    ) == [(None, True)]


@pytest.mark.slow
def test_groups_trained_as_one_program_are_measured_alike(trial: Trial) -> None:
    for out, fuse in (("fused", "exact"), ("apart", "off")):
        trial.fit(
            "packed", out, "configs", 3, validation_table="packed_v", metrics_compute_frequency=2,
            options={"backend": "jax", "fuse": fuse},
        )  # fmt: skip
    measured = f"SELECT {MEASURED} FROM {{}}_info WHERE country <> 'FR' ORDER BY country, mst_key"
    ours, theirs = (np.array(trial.sql(measured.format(name))) for name in ("fused", "apart"))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert trial.value("SELECT count(validation_loss_final) FROM fused_info WHERE country = 'FR'") == 0


def test_rows_are_held_back_while_packing(trial: Trial) -> None:
    trial.pack("numbered", "apart_packed", options={"group_by": "country", "validation": 0.25})
    rows = trial.sql(
        "SELECT t.country, t.__rows__ + v.__rows__ FROM apart_packed_groups AS t"
        " JOIN apart_packed_validation_groups AS v USING (__group__) ORDER BY 1"
    )
    assert rows == trial.sql("SELECT country, count(*) FROM numbered GROUP BY 1 ORDER BY 1")
    trial.fit("apart_packed", "held_back", "configs", 1, validation_table="apart_packed_validation")
    assert trial.value("SELECT count(validation_loss_final) FROM held_back_info") == 8


def test_a_group_that_is_cut_is_measured_on_all_segments(trial: Trial) -> None:
    x, y = blobs(6000, features=FEATURES)
    trial.table("many", "x real[], y integer", rows_of(x, y))
    trial.sql(
        "CREATE TABLE uneven AS SELECT x, y, n, CASE WHEN n % 12 > 0 THEN 'large' ELSE 'small' END AS size"
        " FROM (SELECT *, row_number() OVER () AS n FROM many) AS m;"
        # The only validation row is of the large group, so one segment has no validation rows.
        " CREATE TABLE one_row AS SELECT * FROM uneven WHERE n = 1"
    )
    trial.pack("uneven", "uneven_packed", options={"group_by": "size"})
    assert trial.value("SELECT cardinality(__segments__) FROM uneven_packed_groups WHERE size = 'large'") == 2
    trial.pack_validation("one_row", "one_packed", "uneven_packed")
    trial.fit("uneven_packed", "uneven_models", "configs", 1, validation_table="one_packed")
    assert trial.sql(
        "SELECT size, count(validation_loss_final), count(training_loss_final) FROM uneven_models_info"
        " GROUP BY 1 ORDER BY 1"
    ) == [("large", 2, 2), ("small", 0, 2)]
    trial.sql("SELECT cerebro.madlib_evaluate('uneven_models', 'uneven_packed', 'uneven_measured', FALSE, 1)")
    assert trial.sql("SELECT size, loss FROM uneven_measured ORDER BY 1") == trial.sql(
        "SELECT size, training_loss_final FROM uneven_models_info WHERE mst_key = 1 ORDER BY 1"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        ("plain", "was not packed in groups"),
        ("repacked", "has a group that the source table has not: country FR"),
    ],
)
def test_validation_rows_of_other_groups_are_refused(trial: Trial, make: str, message: str) -> None:
    if make == "plain":
        trial.pack("sales", "plain")
        trial.pack_validation("held", "plain_v", "plain")
        validation = "plain_v"
    else:
        # The same table packed in fewer groups has other numbers for them.
        trial.sql("CREATE TABLE fewer AS SELECT * FROM sales WHERE country <> 'BE'")
        trial.pack("fewer", "fewer_packed", options={"group_by": "country"})
        trial.pack_validation("fewer", "fewer_v", "fewer_packed")
        validation = "fewer_v"
    with pytest.raises(psycopg2.Error, match=message):
        trial.fit("packed", "none", "configs", 1, validation_table=validation)


def test_rows_without_the_columns_of_groups_are_refused(trial: Trial) -> None:
    trial.sql("CREATE VIEW bare AS SELECT x, y FROM held")
    with pytest.raises(psycopg2.Error, match='column "country" does not exist'):
        trial.pack_validation("bare", "bare_v", "packed")
    assert trial.value("SELECT to_regclass('bare_v_groups')") is None
