"""Evaluations: a config's metrics are of all segments, or there are none."""

from __future__ import annotations

import psycopg2
import pytest

import nets
from trial import ADAM, Trial, blobs, rows_of

pytestmark = pytest.mark.postgresql
METRICS = "SELECT epoch, dataset, metric, value FROM cerebro.metrics WHERE run_id = %s ORDER BY 1, 2, 3"
# A server that crashes may lose commits that did not wait for the disk.
LOSES = """
    CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    CREATE TRIGGER loses BEFORE INSERT ON cerebro._evaluation FOR EACH ROW
        WHEN (new.segment = 1) EXECUTE FUNCTION lose()"""


def test_an_evaluation_that_is_lost_ends_the_run_and_is_made_again(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(200)))
    trial.pack("blobs", "packed")
    trial.model(nets.mlp())
    trial.select("mst", [1], [ADAM], ["batch_size=16,epochs=1"])
    whole = trial.fit("packed", "whole", "mst", 3)
    trial.sql(LOSES)
    try:
        with pytest.raises(psycopg2.errors.DataCorrupted, match="epoch 3 on training rows") as caught:
            trial.fit("packed", "lost", "mst", 3)
        with pytest.raises(psycopg2.errors.DataCorrupted):
            trial.sql("SELECT cerebro.madlib_evaluate('whole', 'packed', 'judged', FALSE, 1)")
    finally:
        trial.sql("DROP FUNCTION lose() CASCADE")
    # Nobody could resume or forget an evaluation, so nothing of it stays.
    assert trial.value("SELECT count(*) FROM cerebro._run WHERE kind = 'evaluation'") == 0
    run = trial.value("SELECT max(run_id) FROM cerebro.runs")
    assert f"cerebro.resume({run})" in str(caught.value.diag.message_hint)
    trial.sql("SELECT cerebro.resume(%s)", run)
    assert trial.sql(METRICS, run) == trial.sql(METRICS, whole) != []
    assert trial.weights("lost") == trial.weights("whole")
