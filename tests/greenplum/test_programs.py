"""Each segment keeps JAX's compiled programs in its data directory; bits are the same with and without."""

from __future__ import annotations

import secrets
from contextlib import closing

import psycopg2
import pytest

import nets
from trial import ADAM, Trial, blobs, rows_of

pytestmark = pytest.mark.greenplum
FOLDER = "cerebro_cache"


def test_each_segment_loads_its_own_programs_in_the_next_session(trial: Trial, database: str) -> None:
    contents = {c for (c,) in trial.sql("SELECT content FROM gp_segment_configuration WHERE content >= 0")}
    # No earlier run has compiled a net of this width.
    features = 50 + secrets.randbelow(2000)
    x, y = blobs(60, features=features)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.pack("blobs", "packed", options={"segments": len(contents)})
    trial.model(nets.mlp(features))
    trial.select("mst", [1], [ADAM], ["batch_size=16,epochs=1"])
    before = _kept(trial)
    _fit_anew(database, "compiled")
    compiled = _kept(trial)
    assert {content for content, *_ in compiled - before} == contents
    _fit_anew(database, "loaded")
    assert _kept(trial) == compiled
    trial.sql("INSERT INTO cerebro.settings VALUES ('cache_folder', '')")
    _fit_anew(database, "alone")
    assert trial.weights("compiled") == trial.weights("loaded") == trial.weights("alone")


def _fit_anew(database: str, out: str) -> None:
    """Fit in a new session, whose processes have compiled nothing yet."""
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        connection.notices = []
        Trial(connection).fit("packed", out, "mst", 2, options={"backend": "jax"})


def _kept(trial: Trial) -> set[tuple[int, str, str]]:
    """Return the segment, subfolder and name of each file in the segments' folders of compiled programs."""
    on_segments = "SELECT gp_segment_id, pg_ls_dir(%s, true, false) FROM gp_dist_random('gp_id')"
    kinds = trial.sql(on_segments, FOLDER)
    return {
        (content, kind, name)
        for kind in {kind for _, kind in kinds}
        for content, name in trial.sql(on_segments, f"{FOLDER}/{kind}")
    }
