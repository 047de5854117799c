"""Requests to a Greenplum segment's process, and its replies, tested on PostgreSQL: the bits are the same.

The session's own process takes the place of the segment's process, and runs the statements for it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
import pytest

import nets
import reference
from fixtures import execute
from trial import ADAM, Trial, like_a_cluster

pytestmark = [pytest.mark.postgresql, pytest.mark.fresh_caller]
FEATURES = 12
_VISIT = """
CREATE FUNCTION again(command text, request text) RETURNS text LANGUAGE plpython3u AS $$
import json
from cerebro_plpy import entry
from cerebro_plpy.cluster import coordinator
from cerebro_plpy.commands import Sent
from cerebro_plpy.store.cluster import messages
before = messages.PIECE_BYTES
try:
    messages.PIECE_BYTES = 1000
    sent = Sent.from_request(command, json.loads(request))
    return json.dumps(coordinator.carry_out(entry.SegmentSession(), sent))
finally:
    messages.PIECE_BYTES = before
$$
"""

_COUNT = """
CREATE FUNCTION counted(command text, request text, alone boolean DEFAULT FALSE) RETURNS integer[]
LANGUAGE plpython3u AS $$
import json
from cerebro_plpy import entry, memory
from cerebro_plpy.engine.models.model import CompiledModel
from cerebro_plpy.cluster import coordinator, process
from cerebro_plpy.commands import Sent
from cerebro_plpy.store.cluster import servers
calls = {"measured": 0, "asked": 0}
def counting(function, name):
    def call(*arguments, **named):
        calls[name] += 1
        return function(*arguments, **named)
    return call
before = CompiledModel.evaluate, process.work, servers.where
try:
    if alone:
        # Port 1 of this host: nobody answers there.
        memory.get_instance(coordinator.Known).told.clear()
        servers.where = lambda db, key, keys: [('127.0.0.1', 1, True)] * len(keys)
    CompiledModel.evaluate = counting(CompiledModel.evaluate, "measured")
    process.work = counting(process.work, "asked")
    db = entry.SegmentSession()
    steps, reply = coordinator.steps_of(db, Sent.from_request(command, json.loads(request))), None
    while True:
        reply = coordinator._do(db, steps.send(reply))
except StopIteration:
    pass
finally:
    CompiledModel.evaluate, process.work, servers.where = before
    memory.get_instance(coordinator.Known).told.clear()
return [calls["measured"], calls["asked"]]
$$
"""


@pytest.fixture(scope="module")
def run_id(trial: Trial) -> int:
    like_a_cluster(trial, FEATURES)
    trial.model(nets.mlp(FEATURES))
    trial.select("mst", [1], [ADAM], ["batch_size=16,epochs=1"])
    trial.sql("SELECT cerebro._boot()")
    trial.sql(_VISIT)
    trial.sql(_COUNT)
    return trial.fit("packed", "models", "mst", 2)


WAYS = {
    "in a transaction of its caller's, in pieces": "SELECT again(%s, %s)",
    "as segment sessions do": "CALL cerebro._command(%s, %s)",
}


stepwise = pytest.mark.like_greenplum
BOTH = [
    pytest.param(statement, id=name, marks=stepwise if "CALL" in statement else ())
    for name, statement in WAYS.items()
]


@pytest.fixture(params=BOTH)
def way(request: pytest.FixtureRequest) -> str:
    return request.param


ENGINE = {"backend": reference.BACKEND, "threads": 1, "use_gpus": False}


def again(trial: Trial, way: str, command: str, run_id: int, **more: object) -> Any:
    request = {"run_id": run_id, "mst_key": 1, **more, "engine": ENGINE}
    return trial.value(way, command, json.dumps(request))


def test_a_visit_by_way_of_the_segments_process_gives_the_same_bits(
    trial: Trial, run_id: int, way: str
) -> None:
    """All visits of a run are deleted and made again by the segment's process, with the same results."""
    state = "SELECT part, data FROM cerebro._state WHERE run_id = %s AND mst_key = 1 AND step = %s ORDER BY 1"
    logged = (
        'SELECT epoch, segment, "rows", loss, logs, state_bytes FROM cerebro._visit'
        " WHERE run_id = %s AND step = %s"
    )
    before = {4: (trial.sql(state, run_id, 4), trial.sql(logged, run_id, 4))}
    segments = dict(trial.sql("SELECT step, segment FROM cerebro._visit WHERE run_id = %s", run_id))
    trial.sql("DELETE FROM cerebro._visit WHERE run_id = %s", run_id)
    trial.sql("DELETE FROM cerebro._state WHERE run_id = %s", run_id)
    for step in range(1, 5):
        epoch, stop = divmod(step - 1, 2)
        again(trial, way, "visit", run_id, epoch=epoch + 1, stop=stop, segment=segments[step])
    assert (trial.sql(state, run_id, 4), trial.sql(logged, run_id, 4)) == before[4]


def test_an_evaluation_by_way_of_the_segments_process_measures_the_same(
    trial: Trial, run_id: int, way: str
) -> None:
    measured = "SELECT metric, value FROM cerebro._metric WHERE run_id = %s ORDER BY 1"
    before = trial.sql(measured, run_id)
    for table in ("_metric", "_evaluation"):
        trial.sql(f"DELETE FROM cerebro.{table} WHERE run_id = %s", run_id)
    for segment in (0, 1):
        again(trial, way, "evaluate", run_id, epoch=2, segment=segment)
    again(trial, way, "merge", run_id, epoch=2, segment=0)
    assert trial.sql(measured, run_id) == before


def test_rows_are_given_back_where_they_were_read(trial: Trial, run_id: int) -> None:
    trial.sql("CREATE FUNCTION partitions() RETURNS integer LANGUAGE plpython3u AS $$"
              "from cerebro_plpy import memory\nfrom cerebro_plpy.segment import rows\n"
              "return len(memory.get_instance(rows.Partitions)) $$")  # fmt: skip
    way = WAYS["in a transaction of its caller's, in pieces"]
    again(trial, way, "evaluate", run_id, epoch=2, segment=0)
    assert trial.value("SELECT partitions()") > 0
    trial.value(way, "give_back", json.dumps({"segment": 1, "engine": ENGINE}))
    assert trial.value("SELECT partitions()") == 0


COUNTED = "SELECT counted(%s, %s)"


def test_work_that_lacks_rows_begins_when_they_are_there(trial: Trial, run_id: int) -> None:
    """An evaluation begins only when the process has all rows, so that no table is measured twice."""
    trial.pack_validation("blobs", "unseen", "packed")
    both = trial.fit("packed", "measured_on_both", "mst", 1, validation_table="unseen")
    trial.sql("UPDATE cerebro._state AS s SET place = v.segment FROM cerebro._visit AS v"
              " WHERE (s.run_id, s.mst_key, s.step) = (v.run_id, v.mst_key, v.step)")  # fmt: skip
    measured, asked = again(trial, COUNTED, "evaluate", both, epoch=1, segment=0)
    assert (measured, asked > 1) == (2, True)
    assert again(trial, COUNTED, "evaluate", both, epoch=1, segment=0) == [2, 1]


def test_a_process_that_has_the_rows_is_told_at_once_what_a_config_is(trial: Trial, run_id: int) -> None:
    """A config that is new to the process is sent with the visit itself, in one request."""
    trial.select("three", [1], [ADAM], [f"batch_size={size},epochs=1" for size in (8, 16, 32)])
    several = trial.fit("packed", "three_models", "three", 1)
    first = "SELECT mst_key, segment FROM cerebro._visit WHERE run_id = %s AND step = 1"
    starts = dict(trial.sql(first, several))
    trial.sql("DELETE FROM cerebro._visit WHERE run_id = %s", several)
    assert starts[1] == starts[3]
    where = {"epoch": 1, "stop": 0, "segment": starts[1]}
    again(trial, COUNTED, "visit", several, mst_key=1, **where)
    assert again(trial, COUNTED, "visit", several, mst_key=3, **where) == [0, 1]


def test_a_state_is_read_where_it_lies(trial: Trial, run_id: int) -> None:
    """The process reads a state from the server that has it, so one request is enough."""
    step = "SELECT epoch, segment FROM cerebro._visit WHERE run_id = %s AND mst_key = 1 AND step = 2"
    ((epoch, segment),) = trial.sql(step, run_id)
    where = {"epoch": epoch, "stop": 1, "segment": segment}
    again(trial, COUNTED, "evaluate", run_id, epoch=2, segment=segment)
    assert again(trial, COUNTED, "visit", run_id, **where) == [0, 1]


def test_a_state_comes_another_way_where_no_server_answers(trial: Trial, run_id: int) -> None:
    """If no server answers, the state comes with a second request, and the visit has the same result."""
    visited = "SELECT epoch, segment, loss FROM cerebro._visit WHERE run_id = %s AND mst_key = 1 AND step = 2"
    ((epoch, segment, _),) = before = trial.sql(visited, run_id)
    for table in ("_visit", "_state"):
        trial.sql(f"DELETE FROM cerebro.{table} WHERE run_id = %s AND mst_key = 1 AND step = 2", run_id)
    where = {"epoch": epoch, "stop": 1, "segment": segment}
    assert again(trial, "SELECT counted(%s, %s, TRUE)", "visit", run_id, **where) == [0, 2]
    assert trial.sql(visited, run_id) == before


@stepwise
def test_a_visit_that_was_committed_unheard_is_made_again(trial: Trial, run_id: int) -> None:
    """A visit whose state is already stored can be repeated; a missing log row is then written."""
    way = WAYS["as segment sessions do"]
    rows = "SELECT step, segment, loss, state_bytes FROM cerebro._visit WHERE run_id = %s ORDER BY 1"
    before = trial.sql(rows, run_id)
    where = {"epoch": 2, "stop": 1, "segment": before[3][1]}
    again(trial, way, "visit", run_id, **where)
    assert trial.sql(rows, run_id) == before
    trial.sql("DELETE FROM cerebro._visit WHERE run_id = %s AND step = 4", run_id)
    again(trial, way, "visit", run_id, **where)
    assert trial.sql(rows, run_id) == before


@contextmanager
def timeout(trial: Trial) -> Iterator[None]:
    trial.sql("SET statement_timeout = '2500ms'")
    try:
        yield
    finally:
        trial.sql("RESET statement_timeout")


LINKS = "FROM pg_stat_activity WHERE application_name = 'cerebro link' AND datname = current_database()"


@stepwise
def test_a_connection_that_is_lost_is_opened_again(trial: Trial, run_id: int) -> None:
    way = WAYS["as segment sessions do"]
    ((last,),) = trial.sql("SELECT segment FROM cerebro._visit WHERE run_id = %s AND step = 4", run_id)
    where = {"epoch": 2, "stop": 1, "segment": last}
    again(trial, way, "visit", run_id, **where)
    assert trial.sql(f"SELECT pg_terminate_backend(pid) {LINKS}") == [(True,)]
    trial.sql("DELETE FROM cerebro._visit WHERE run_id = %s AND step = 4", run_id)
    again(trial, way, "visit", run_id, **where)
    assert trial.value("SELECT count(*) FROM cerebro._visit WHERE run_id = %s", run_id) == 4


@stepwise
def test_a_visit_waits_for_a_lock_and_looks_for_a_cancel(trial: Trial, run_id: int) -> None:
    way = WAYS["as segment sessions do"]
    ((last,),) = trial.sql("SELECT segment FROM cerebro._visit WHERE run_id = %s AND step = 4", run_id)
    trial.sql("DELETE FROM cerebro._visit WHERE run_id = %s AND step = 4", run_id)
    with closing(psycopg2.connect(dbname=trial.connection.info.dbname)) as other:
        execute(other, "LOCK TABLE cerebro._visit IN SHARE MODE")
        with pytest.raises(psycopg2.errors.QueryCanceled), timeout(trial):
            again(trial, way, "visit", run_id, epoch=2, stop=1, segment=last)
    again(trial, way, "visit", run_id, epoch=2, stop=1, segment=last)
    assert trial.value("SELECT count(*) FROM cerebro._visit WHERE run_id = %s", run_id) == 4


def test_rows_that_are_changed_are_noticed_within_a_second(trial: Trial, run_id: int) -> None:
    way = WAYS["in a transaction of its caller's, in pieces"]
    again(trial, way, "evaluate", run_id, epoch=2, segment=0)
    trial.sql("DELETE FROM packed WHERE __dist_key__ = 0 AND buffer_id = 0")
    time.sleep(1)
    with pytest.raises(psycopg2.Error, match="has changed since run"):
        again(trial, way, "evaluate", run_id, epoch=2, segment=0)


def test_rows_are_not_taken_without_the_ticket_of_a_load(trial: Trial, run_id: int) -> None:
    for call in ("_take_buffer('x', 1, '[]', ARRAY[]::bytea[])", "_take_row('x', ARRAY[]::bytea[])"):
        with pytest.raises(Exception, match="(no load is under way|no rows are expected)"):
            trial.sql(f"SELECT cerebro.{call}")
