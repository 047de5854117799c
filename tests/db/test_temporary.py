"""Calls accept temporary tables as arguments; only the caller's own session reads and writes these."""

from __future__ import annotations

import psycopg2
import pytest

import nets
from trial import ADAM, Trial, blobs, rows_of

pytestmark = pytest.mark.fresh_caller

FEATURES, UNITS = 6, 8
FIT = "batch_size=16,epochs=1"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(60, features=FEATURES)
    trial.table("rows", "x real[], y integer", rows_of(x, y))
    trial.sql("CREATE TEMP TABLE passing AS SELECT row_number() OVER ()::integer AS id, x, y FROM rows")
    trial.pack("rows", "packed")
    trial.model(nets.mlp(FEATURES, UNITS))
    trial.select("mst", [1], [ADAM], [FIT])
    trial.fit("packed", "lasting", "mst", 2)


def test_a_whole_job_on_temporary_tables(trial: Trial) -> None:
    trial.pack("passing", "pg_temp.t_packed")
    trial.pack_validation("passing", "pg_temp.t_val", "t_packed")
    trial.model(nets.mlp(FEATURES, UNITS), "pg_temp.t_arch")
    trial.select("pg_temp.t_mst", [1], [ADAM], [FIT], "t_arch")
    trial.notices()
    trial.fit("t_packed", "pg_temp.t_out", "t_mst", 2, validation_table="t_val")
    assert "some of its tables are temporary" in trial.notices()
    assert trial.weights("t_out") == trial.weights("lasting")
    summary = trial.read_row("SELECT * FROM t_out_summary")
    assert (summary["model"], summary["model_arch_table"]) == ("pg_temp.t_out", "t_arch")
    trial.fit("t_packed", "t_out", "t_mst", 1, validation_table="t_val", warm_start=True)
    trial.call("madlib_evaluate", "t_out", "t_val", "pg_temp.t_measured", False, 1, options={"threads": 1})
    assert trial.value("SELECT loss FROM t_measured") == pytest.approx(
        trial.value("SELECT validation_loss_final FROM t_out_info")
    )
    trial.sql(
        "SELECT cerebro.madlib_predict('t_out', 'passing', 'id', 'x', 'pg_temp.t_told', 'response', FALSE, 1)"
    )
    assert trial.value("SELECT count(*) FROM t_told") == 60
    trial.sql("SELECT cerebro.train_test_split('passing', 'pg_temp.t', 0.8, separate_output_tables => TRUE)")
    assert trial.value("SELECT count(*) FROM t_test") == 12
    left = "SELECT count(*) FROM pg_class WHERE relname LIKE 't\\_%%' AND relpersistence <> 't'"
    assert trial.value(left) == 0


def test_tables_for_a_run_on_lasting_rows_may_be_temporary(trial: Trial) -> None:
    trial.notices()
    trial.fit("packed", "pg_temp.brief", "mst", 2)
    assert "uses only this session" not in trial.notices()
    assert trial.weights("brief") == trial.weights("lasting")
    with pytest.raises(psycopg2.errors.DuplicateTable):
        trial.fit("packed", "pg_temp.brief", "mst", 2)


def test_a_run_in_the_background_leaves_none(trial: Trial) -> None:
    with pytest.raises(psycopg2.errors.FeatureNotSupported, match="cannot leave temporary tables"):
        trial.call(
            "madlib_fit_multiple_model", "packed", "pg_temp.later", "mst", 1, options={"background": True}
        )
