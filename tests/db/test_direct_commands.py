"""Commands that Greenplum's coordinator sends to a segment's process unchanged, tested on PostgreSQL.

One session stands for the coordinator and for the segment's process; it gets commands as from a run.
"""

from __future__ import annotations

import select
from collections.abc import Iterator
from typing import Any

import pytest
from psycopg2.extras import wait_select

import nets
import reference
from cerebro_plpy.cluster.sessions import ClusterSession
from cerebro_plpy.commands import Sent
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.store import session
from trial import ADAM, Trial, like_a_cluster

pytestmark = [pytest.mark.postgresql, pytest.mark.like_greenplum, pytest.mark.fresh_caller]
FEATURES = 12
DIRECT, STEPWISE = "SELECT cerebro._work", "CALL cerebro._command"
ENGINE = {"backend": reference.BACKEND, "threads": 1, "use_gpus": False}


@pytest.fixture(scope="module")
def run_id(trial: Trial) -> int:
    like_a_cluster(trial, FEATURES)
    trial.model(nets.mlp(FEATURES))
    trial.select("mst", [1], [ADAM], [f"batch_size={size},epochs=1" for size in (8, 16, 32)])
    return trial.fit("packed", "models", "mst", 2)


@pytest.fixture(scope="module")
def other_run(trial: Trial, run_id: int) -> int:
    return trial.fit("packed", "other_models", "mst", 1)


@pytest.fixture(scope="module")
def there(trial: Trial, other_run: int) -> Iterator[ClusterSession]:
    """A session that has its engine and its compiled models, so that each command is carried out at once."""
    info = trial.connection.info
    place = info.host, str(info.port), info.dbname, info.user
    opened = ClusterSession(session.LoginTarget(None, *place, info.server_version, {}), session.SETTINGS)
    finish(opened)
    for key in (1, 3):
        visit(trial, opened, other_run, key, 1)
    look_holds(opened, 3600)
    yield opened
    opened.stop()


def look_holds(opened: ClusterSession, seconds: int) -> None:
    """Set for how many seconds the session trusts its list of the packed table's buffers."""
    told = f"from cerebro_plpy.cluster import told; told._LOOK_SECONDS = {seconds}"
    with opened.connection.cursor() as cursor:
        cursor.execute(f"DO LANGUAGE plpython3u $$ {told} $$")
        wait_select(opened.connection)


def finish(opened: ClusterSession) -> None:
    while not opened.ready():
        select.select([opened.connection], [], [], 0.02)


def do(opened: ClusterSession, name: str, run_id: int, mst_key: int = 1, **more: Any) -> dict[str, Any]:
    request = {"run_id": run_id, "mst_key": mst_key, "engine": ENGINE, **more}
    opened.begin(Sent.from_request(name, request))
    finish(opened)
    return dict(opened.result())


def statement(trial: Trial, opened: ClusterSession) -> str:
    """Return the statement that was last sent to the session."""
    pid = opened.connection.info.backend_pid
    query = trial.value("SELECT query FROM pg_stat_activity WHERE pid = %s", pid)
    return " ".join(query.split("(")[0].split())


def visit(trial: Trial, opened: ClusterSession, run_id: int, mst_key: int, step: int) -> str:
    """Repeat a visit of the run, and return the statement that was last sent to the session."""
    at = "SELECT epoch, segment FROM cerebro.visits WHERE run_id = %s AND mst_key = %s AND step = %s"
    ((epoch, segment),) = trial.sql(at, run_id, mst_key, step)
    trial.sql("DELETE FROM cerebro._visit WHERE run_id = %s AND mst_key = %s AND step = %s",
              run_id, mst_key, step)  # fmt: skip
    found = do(opened, "visit", run_id, mst_key, epoch=epoch, stop=(step - 1) % 2, segment=segment)
    assert found["state_bytes"] > 0
    return statement(trial, opened)


LOGGED = (
    'SELECT mst_key, step, segment, "rows", loss, logs::text FROM cerebro._visit WHERE run_id = %s'
    " ORDER BY 1, 2"
)


def test_what_follows_goes_directly_to_the_same_bits(
    trial: Trial, run_id: int, there: ClusterSession
) -> None:
    """Configs 1 and 3 have one route: on each segment, config 1 goes step by step, config 3 directly."""
    before = trial.sql(LOGGED, run_id)
    sent = {(key, step): visit(trial, there, run_id, key, step) for step in (1, 2) for key in (1, 3)}
    assert sent == {(1, 1): STEPWISE, (3, 1): DIRECT, (1, 2): STEPWISE, (3, 2): DIRECT}
    assert trial.sql(LOGGED, run_id) == before


def test_evaluations_go_directly_as_well(trial: Trial, run_id: int, there: ClusterSession) -> None:
    rows = "SELECT segment, data FROM cerebro._evaluation WHERE run_id = %s AND mst_key = 3 ORDER BY 1"
    before = trial.sql(rows, run_id)
    trial.sql("DELETE FROM cerebro._evaluation WHERE run_id = %s AND mst_key = 3", run_id)
    for segment in (0, 1):
        for mst_key in (1, 3):
            do(there, "evaluate", run_id, mst_key, epoch=2, segment=segment)
        assert statement(trial, there) == DIRECT
    assert trial.sql(rows, run_id) == before


def test_the_caller_looks_again_when_the_last_look_is_old(
    trial: Trial, run_id: int, there: ClusterSession
) -> None:
    before = trial.sql(LOGGED, run_id)
    visit(trial, there, run_id, 1, 1)
    assert visit(trial, there, run_id, 3, 1) == DIRECT
    look_holds(there, 0)
    assert [visit(trial, there, run_id, key, 1) for key in (1, 3)] == [STEPWISE, STEPWISE]
    look_holds(there, 3600)
    assert visit(trial, there, run_id, 3, 1) == DIRECT
    assert trial.sql(LOGGED, run_id) == before


def test_a_process_that_knows_another_run_is_told_of_this_one(
    trial: Trial, run_id: int, other_run: int, there: ClusterSession
) -> None:
    """After a change of runs, the first command goes step by step, and the next command directly."""
    before = trial.sql(LOGGED, run_id), trial.sql(LOGGED, other_run)
    visit(trial, there, run_id, 1, 1)
    sent = [visit(trial, there, run, key, 1) for run in (other_run, run_id) for key in (1, 3)]
    assert sent == [STEPWISE, DIRECT] * 2
    assert (trial.sql(LOGGED, run_id), trial.sql(LOGGED, other_run)) == before


@pytest.mark.tensorflow
def test_an_error_comes_back_as_it_is(trial: Trial, run_id: int, there: ClusterSession) -> None:
    visit(trial, there, run_id, 1, 1)
    segment = trial.value("SELECT segment FROM cerebro.visits WHERE run_id = %s AND step = 1", run_id)
    other = {"backend": "jax", "threads": 1, "use_gpus": False}
    where = {"epoch": 1, "stop": 0, "segment": segment}
    with pytest.raises(CerebroError, match="already runs Keras") as raised:
        do(there, "visit", run_id, 3, **where, engine=other)
    assert statement(trial, there) == DIRECT
    assert (raised.value.sqlstate, there.busy) == (WRONG_STATE, False)
    assert visit(trial, there, run_id, 3, 1) == DIRECT


def test_a_session_that_rests_is_not_at_work_whatever_it_is_called(
    trial: Trial, run_id: int, there: ClusterSession
) -> None:
    """An idle session keeps the name of its last command, but does not count as a running run."""
    for key in (1, 3):
        do(there, "evaluate", run_id, key, epoch=2, segment=0)
    assert statement(trial, there) == DIRECT
    pid = there.connection.info.backend_pid
    name, state = trial.sql("SELECT application_name, state FROM pg_stat_activity WHERE pid = %s", pid)[0]
    assert (name, state) == (f"cerebro evaluate run={run_id} config=3 epoch=2 segment=0", "idle")
    progress = "SELECT DISTINCT status, segment FROM cerebro.progress WHERE run_id = %s"
    assert trial.sql(progress, run_id) == [("finished", None)]
    trial.sql("SELECT cerebro.forget(%s)", run_id)
