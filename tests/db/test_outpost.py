"""What a Greenplum segment's process is told and answers, with PostgreSQL in its place: the same bits.

The session's own process stands for the segment's: the statements that go there come back to it.
"""

from __future__ import annotations

import json
import time
from typing import Any

import psycopg2
import pytest

import nets
from trial import ADAM, Trial, blobs, rows_of

pytestmark = pytest.mark.postgresql
FEATURES = 12
_VISIT = """
CREATE FUNCTION again(command text, request text) RETURNS text LANGUAGE plpython3u AS $$
import json
from cerebro_plpy import entry
from cerebro_plpy.segment import courier
from cerebro_plpy.store import links, parcels
before = parcels.PIECE_BYTES, links.where
try:
    # Port 1 of this host: nobody answers there.
    parcels.PIECE_BYTES, links.where = 1000, lambda db, key, keys: [(None, 1)] * len(keys)
    return json.dumps(courier.carry_out(entry.SegmentSession(), command, json.loads(request)))
finally:
    parcels.PIECE_BYTES, links.where = before
$$
"""

_COUNT = """
CREATE FUNCTION counted(command text, request text) RETURNS integer[] LANGUAGE plpython3u AS $$
import json
from cerebro_plpy import entry
from cerebro_plpy.engine.model import CompiledModel
from cerebro_plpy.segment import courier, outpost
calls = {"measured": 0, "asked": 0}
def counting(function, name):
    def call(*arguments):
        calls[name] += 1
        return function(*arguments)
    return call
before = CompiledModel.evaluate, outpost.work
try:
    CompiledModel.evaluate = counting(CompiledModel.evaluate, "measured")
    outpost.work = counting(outpost.work, "asked")
    courier.carry_out(entry.SegmentSession(), command, json.loads(request))
finally:
    CompiledModel.evaluate, outpost.work = before
return [calls["measured"], calls["asked"]]
$$
"""


@pytest.fixture(scope="module")
def run_id(trial: Trial) -> int:
    trial.sql("CREATE TABLE cerebro._segment_key AS SELECT generate_series(0, 9) AS dist_key")
    x, y = blobs(120, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.pack("blobs", "packed", buffer_size=25)
    trial.model(nets.mlp(FEATURES))
    trial.select("mst", [1], [ADAM], ["batch_size=16,epochs=1"])
    trial.sql("SELECT cerebro._boot()")
    trial.sql(_VISIT)
    trial.sql(_COUNT)
    return trial.fit("packed", "models", "mst", 2)


WAYS = {
    "in pieces where no server answers": "SELECT again(%s, %s)",
    "as segment sessions do": "CALL cerebro._errand(%s, %s)",
}


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
def way(request: pytest.FixtureRequest) -> str:
    return request.param


def again(trial: Trial, way: str, command: str, run_id: int, **more: object) -> Any:
    engine = {"backend": "tensorflow", "threads": 1, "use_gpus": False}
    request = {"run_id": run_id, "mst_key": 1, **more, "engine": engine}
    return trial.value(way, command, json.dumps(request))


def test_a_visit_by_way_of_the_segments_process_gives_the_same_bits(
    trial: Trial, run_id: int, way: str
) -> None:
    """The last visits of a run are taken back and made again; rows and state go by way of the process."""
    state = "SELECT part, data FROM cerebro._state WHERE run_id = %s AND mst_key = 1 AND step = %s ORDER BY 1"
    logged = (
        'SELECT epoch, segment, "rows", loss, state_bytes FROM cerebro._visit WHERE run_id = %s AND step = %s'
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
              "from cerebro_plpy.segment import rows; return len(rows._cache) $$")  # fmt: skip
    way = WAYS["in pieces where no server answers"]
    again(trial, way, "evaluate", run_id, epoch=2, segment=0)
    assert trial.value("SELECT partitions()") > 0
    again(trial, way, "give_back", run_id, segment=1)
    assert trial.value("SELECT partitions()") == 0


COUNTED = "SELECT counted(%s, %s)"


def test_work_that_lacks_rows_begins_when_they_are_there(trial: Trial, run_id: int) -> None:
    """Nothing is measured again for each table whose rows the process has still to be given."""
    trial.pack_validation("blobs", "unseen", "packed")
    both = trial.fit("packed", "measured_on_both", "mst", 1, validation_table="unseen")
    trial.sql("UPDATE cerebro._state AS s SET place = v.segment FROM cerebro._visit AS v"
              " WHERE (s.run_id, s.mst_key, s.step) = (v.run_id, v.mst_key, v.step)")  # fmt: skip
    measured, asked = again(trial, COUNTED, "evaluate", both, epoch=1, segment=0)
    assert (measured, asked > 1) == (2, True)
    assert again(trial, COUNTED, "evaluate", both, epoch=1, segment=0) == [2, 1]


def test_a_process_that_has_the_rows_is_told_at_once_what_a_config_is(trial: Trial, run_id: int) -> None:
    """One that is new to it costs no turn of its own."""
    trial.select("three", [1], [ADAM], [f"batch_size={size},epochs=1" for size in (8, 16, 32)])
    several = trial.fit("packed", "three_models", "three", 1)
    first = "SELECT mst_key, segment FROM cerebro._visit WHERE run_id = %s AND step = 1"
    starts = dict(trial.sql(first, several))
    trial.sql("DELETE FROM cerebro._visit WHERE run_id = %s", several)
    assert starts[1] == starts[3]
    where = {"epoch": 1, "stop": 0, "segment": starts[1]}
    again(trial, COUNTED, "visit", several, mst_key=1, **where)
    assert again(trial, COUNTED, "visit", several, mst_key=3, **where) == [0, 1]


def test_rows_that_are_changed_are_noticed_within_a_second(trial: Trial, run_id: int) -> None:
    way = WAYS["in pieces where no server answers"]
    again(trial, way, "evaluate", run_id, epoch=2, segment=0)
    trial.sql("DELETE FROM packed WHERE __dist_key__ = 0 AND buffer_id = 0")
    time.sleep(1)
    with pytest.raises(psycopg2.Error, match="has changed since run"):
        again(trial, way, "evaluate", run_id, epoch=2, segment=0)


def test_rows_are_not_taken_without_the_ticket_of_a_load(trial: Trial, run_id: int) -> None:
    for call in ("_take_buffer('x', 1, '[]', ARRAY[]::bytea[])", "_take_row('x', ARRAY[]::bytea[])"):
        with pytest.raises(Exception, match="(no load is under way|no rows are expected)"):
            trial.sql(f"SELECT cerebro.{call}")
