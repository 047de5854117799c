"""Steering: while a run goes on, another session stops, clones, adds and deletes its configs."""

from __future__ import annotations

import json
import select
import time
from contextlib import closing

import psycopg2
import pytest

from fixtures import Connect, MakeRole, execute
from steering import QUICK, SLOWER, Run, left, make_tables, script
from trial import SGD, Trial

pytestmark = pytest.mark.fresh_caller

HERE = ("host", "port", "dbname", "user")
GRID = """{'loss': ['categorical_crossentropy'], 'metrics': ['accuracy'],
 'optimizer_params_list': [{'optimizer': ['SGD'], 'learning_rate': [0.05, 0.02]}]}"""


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    make_tables(trial)


@pytest.mark.doors("psycopg2", "steer")
def test_the_end_state_row_by_row(run: Run, trial: Trial) -> None:
    run.start("steered")
    script(run)
    run.steer("resume")
    run.end()
    found = left(run.person, "steered")
    assert [key for key, _ in found["model"]] == [2, 3, 4, 7]
    assert [(key, status) for key, _, _, status, *_ in found["info"]] == [
        (2, "finished"), (3, "finished"), (4, "finished"), (6, "stopped"), (7, "finished"),
    ]  # fmt: skip
    assert found["info"][2][1:3] == (SLOWER, QUICK)
    assert found["progress"] == [
        (1, "deleted", 1000, None, 4000, None),
        (2, "finished", 1, None, 4, None),
        (3, "finished", 3, None, 12, None),
        (4, "finished", 2, 2, 4, None),
        (5, "deleted", 1, 4, 4, None),
        (6, "stopped", 1, 2, 4, None),
        (7, "finished", 1, None, 4, None),
    ]
    visits = "SELECT mst_key, epoch, count(*) FROM cerebro.visits WHERE run_id = %s AND mst_key > 1"
    assert trial.sql(f"{visits} GROUP BY 1, 2 ORDER BY 1, 2", run.run_id) == [
        (2, 1, 4), (3, 1, 4), (3, 2, 4), (3, 3, 4), (4, 2, 4), (7, 1, 4),
    ]  # fmt: skip
    me = trial.value("SELECT current_user")
    decided = trial.sql(
        "SELECT mst_key, decision, epochs, decided_by FROM cerebro.decisions WHERE run_id = %s"
        " ORDER BY number",
        run.run_id,
    )
    assert decided == [
        (1, "set_epochs", 1000, me), (None, "pause", None, me), (4, "clone", 2, me), (5, "clone", 1, me),
        (6, "clone", 1, me), (7, "start", 1, me), (3, "set_epochs", 3, me), (5, "delete", None, me),
        (6, "stop", None, me), (1, "delete", None, me), (None, "resume", None, me),
    ]  # fmt: skip
    # Config 2, which nobody steered, and config 3, with more epochs, get the bits of runs of their own.
    trial.keep("alone", "long", [2])
    trial.fit("packed", "plain", "alone", 1, options={"backend": "jax"})
    assert trial.weights("plain")[2] == trial.weights("steered")[2]
    trial.keep("third", "long", [3])
    trial.fit("packed", "longer", "third", 3, options={"backend": "jax"})
    assert trial.weights("longer")[3] == trial.weights("steered")[3]
    assert trial.weights("steered")[4] != trial.weights("steered")[2]


def test_the_configs_of_a_grid_come_in(run: Run) -> None:
    run.start("grid")
    run.steer("pause")
    batches = "{'batch_size': [50]}"
    assert run.steer("add_configs", [1], GRID, batches) == [4, 5]
    assert run.steer("add_configs", [1], GRID, batches, "random", 1, 7) == [6]
    assert run.refused("add_configs", [9], GRID, batches).startswith("22023 One or more model_id of (9) not")
    assert run.refused("add_configs", [1], GRID, "{'batch': [32]}").startswith("22023 ")
    run.steer("delete_config", 1)
    run.steer("resume")
    run.end()
    found = execute(run.person, "SELECT mst_key, status, compile_params FROM grid_info ORDER BY 1")
    assert [row[:2] for row in found] == [(key, "finished") for key in (2, 3, 4, 5, 6)]
    assert ["0.05" in row[2] for row in found[2:4]] == [True, False]


def test_what_is_asked_is_seen_at_once_and_refused_where_it_makes_no_sense(
    run: Run, connect: Connect, role: MakeRole
) -> None:
    run.start("refusals")
    run.steer("set_epochs", 1, 1000)
    run.steer("set_epochs", 3, 1000)
    run.until(lambda: run.status(2) == "finished")
    asked = (
        "SELECT mst_key, status, epochs, asked FROM cerebro.progress WHERE run_id = %s AND mst_key IN (1, 4)"
    )
    with closing(connect(autocommit=False)) as other:
        # What is not committed cannot have been taken up yet.
        execute(other, "SELECT cerebro.set_epochs(%s, 1, 900)", run.run_id)
        execute(other, "SELECT cerebro.clone_config(%s, 2)", run.run_id)
        execute(other, "SELECT cerebro.stop_config(%s, 4)", run.run_id)
        (first, second) = execute(other, f"{asked} ORDER BY 1", run.run_id)
        assert (first[0], *first[2:], second) == (1, 900, "set_epochs", (4, "stopped", 1, "stop"))
        other.rollback()
    run.steer("stop_config", 3)
    run_id = run.run_id
    assert run.refused("stop_config", 3) == f"55000 config 3 of run {run_id} is stopped already"
    assert run.refused("stop_config", 2) == f"55000 config 2 of run {run_id} is finished"
    assert run.refused("stop_config", 9) == f"22023 run {run_id} has no config 9"
    assert run.refused("stop_config", None) == "22004 mst_key is NULL"
    assert run.refused("resume_config", 2) == f"55000 config 2 of run {run_id} is not stopped"
    assert (
        run.refused("set_epochs", 1, 1000) == f"55000 config 1 of run {run_id} trains for 1000 epochs already"
    )
    assert run.refused("set_epochs", 1, 0) == "22023 epochs is 0"
    assert run.refused("clone_config", 2, "optimizer=1").startswith("22023 config 4: ")
    assert run.refused("clone_config", 2, SGD.replace("categorical_crossentropy", "nonsense")).startswith(
        "22023 "
    )
    assert run.refused("add_configs", "nowhere").startswith("42P01 ")
    assert run.refused("resume") == f"55000 run {run_id} is running"
    run.steer("resume_config", 3)
    run.steer("pause")
    assert run.refused("pause") == f"55000 run {run_id} is paused already"
    run.until(lambda: run.status(1) == "paused")
    assert run.ask("SELECT status FROM cerebro.runs WHERE run_id = %s", run_id) == "paused"
    assert run.ask("SELECT cerebro.wait(%s, '10 ms')", run_id) == "paused"
    stranger = connect(user=role())
    for call in (
        "stop(%s)",
        "pause(%s)",
        "resume(%s)",
        "stop_config(%s, 1)",
        "clone_config(%s, 1)",
        "wait(%s)",
    ):
        with pytest.raises(psycopg2.Error, match=f"you have no run {run_id}"):
            execute(stranger, f"SELECT cerebro.{call}", run_id)
    run.steer("delete_config", 2)
    assert run.refused("delete_config", 2) == f"55000 config 2 of run {run_id} was deleted"
    run.steer("stop")
    assert run.refused("stop") == f"55000 run {run_id} is ending: it was asked to stop"
    assert run.ask("SELECT cerebro.wait(%s)", run_id) == "finished"
    run.end()
    assert run.refused("stop") == f"55000 run {run_id} is finished"
    assert execute(run.person, "SELECT mst_key, status FROM refusals_info ORDER BY 1")[-1][0] == 3


# A function for a race: a request is carried out just after the run's configs were read.
_LATE = """
CREATE FUNCTION late(run_id bigint, target text) RETURNS integer[] LANGUAGE plpython3u AS $$
import time
import psycopg2
from cerebro_plpy import entry
from cerebro_plpy.executor.running import steer
from cerebro_plpy.store import session
from cerebro_plpy.store.runs import runs
def configs_then_wait(db, run_id):
    found = before(db, run_id)
    with psycopg2.connect(target) as other, other.cursor() as cursor:
        for _ in range(400):
            cursor.execute("SELECT 1 FROM cerebro._decided WHERE pending")
            if not cursor.fetchall():
                break
            time.sleep(0.05)
    return found
before = runs.configs
try:
    runs.configs = configs_then_wait
    db = entry.SegmentSession()
    return sorted(steer._standing(db, run_id, session.current_user(db)).configs)
finally:
    runs.configs = before
$$
"""


def test_what_is_taken_up_at_this_moment_is_not_missed(run: Run, trial: Trial) -> None:
    run_id = run.start("late")
    run.steer("set_epochs", 1, 1000)
    target = " ".join(f"{k}={v}" for k, v in run.person.get_dsn_parameters().items() if k in HERE)
    execute(run.person, "SELECT cerebro._boot()")
    execute(run.person, _LATE)
    assert run.steer("clone_config", 2, SLOWER) == [4]
    assert run.ask("SELECT late(%s, %s)", run_id, target) == [1, 2, 3, 4]
    run.steer("stop")
    run.end()


def test_others_are_told_of_epochs_and_ends(run: Run, connect: Connect) -> None:
    listener = connect()
    execute(listener, "LISTEN cerebro_run")
    run.start("told", "one", 2)
    run.end()
    deadline = time.monotonic() + 10
    while len(listener.notifies) < 4 and time.monotonic() < deadline:
        select.select([listener], [], [], 1)
        listener.poll()
    me = {"run": run.run_id}
    assert [json.loads(n.payload) for n in listener.notifies] == [
        {**me, "event": "running"},
        {**me, "event": "epoch", "epoch": 1, "config": 1},
        {**me, "event": "epoch", "epoch": 2, "config": 1},
        {**me, "event": "finished"},
    ]


def test_an_interrupted_run_goes_on_without_a_deleted_config(run: Run, trial: Trial) -> None:
    run_id = run.start("without")
    run.until(lambda: run.status(2) == "finished")
    run.steer("pause")
    run.steer("delete_config", 2)
    run.steer("stop_config", 1)
    run.answered()
    trial.connection.cancel()
    with pytest.raises(psycopg2.errors.QueryCanceled):
        run.end()
    # The run does so sooner or later.
    trial.sql("DELETE FROM cerebro._state WHERE run_id = %s AND mst_key = 2", run_id)
    trial.notices()
    trial.value("SELECT cerebro.resume(%s)", run_id)
    assert "WARNING" not in trial.notices()
    assert trial.sql("SELECT mst_key FROM without_info ORDER BY 1") == [(1,), (3,)]
