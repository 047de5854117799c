"""A segment without a mirror is down: sessions report it, and the coordinator does not restart.

The segment must be on the coordinator's host. The tests start it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

import nets
from fixtures import execute
from segments import answered
from stage import connect
from trial import SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.greenplum

# A superuser's function that starts and stops a segment's server.
_CONTROL = """
CREATE FUNCTION control(folder text, arguments text) RETURNS integer LANGUAGE plpython3u AS $$
import os, shlex, subprocess
command = [os.environ["GPHOME"] + "/bin/pg_ctl", "-D", folder, "-w", "-l", folder + ".log"]
return subprocess.run(
    [*command, *shlex.split(arguments)], cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL, start_new_session=True,
).returncode
$$
"""
_START = "-o '-c gp_role=execute' start"


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(300, features=4)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.pack("blobs", "packed")
    trial.model(nets.mlp(4))
    trial.select("mst", [1], [SGD], ["batch_size=8,epochs=1"])
    trial.sql(_CONTROL)


@pytest.fixture
def down(trial: Trial) -> Iterator[None]:
    folder = trial.value("SELECT datadir FROM gp_segment_configuration WHERE content = 1 AND role = 'p'")
    # Calls the function while all segments are up, so that this session can later call it without them.
    trial.sql("SELECT control(%s, 'status')", folder)
    assert trial.value("SELECT control(%s, '-m immediate stop')", folder) == 0
    try:
        yield
    finally:
        started = trial.value("SELECT control(%s, %s)", folder, _START)
        answered(trial)
    assert started == 0


FIT = "SELECT cerebro.madlib_fit_multiple_model('packed', '{}', 'mst', 1)"
CALLS = [FIT.format("never"), "SELECT * FROM cerebro.diagnose()", "SELECT * FROM cerebro.segments_ready()"]


def test_whoever_calls_is_told_of_the_segment_and_not_of_logins(
    trial: Trial, database: str, request: pytest.FixtureRequest
) -> None:
    """Three sessions call: one has trained before, one has called no function yet, one is new."""
    started = trial.value("SELECT pg_postmaster_start_time()")
    with closing(connect(database)) as warm, closing(connect(database)) as idle:
        execute(warm, FIT.format("before"))
        execute(idle, "SELECT 1")
        request.getfixturevalue("down")
        with closing(connect(database)) as fresh:
            for session in (warm, idle, fresh):
                for call in CALLS:
                    with pytest.raises(psycopg2.Error) as caught:
                        execute(session, call)
                    said = f"{caught.value} {caught.value.diag.message_hint}"
                    assert caught.value.pgcode == "58M01", said
                    assert "segment" in said
                    assert "pg_hba" not in said
            assert execute(fresh, "SELECT pg_postmaster_start_time()") == [(started,)]


def test_all_goes_on_when_it_is_there_again(trial: Trial) -> None:
    answered(trial)
    assert trial.fit("packed", "after", "mst", 1) > 0
