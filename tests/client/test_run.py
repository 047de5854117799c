"""Packing, architectures and runs in the client: begin, show as SQL, wait, steer, close connections."""

from __future__ import annotations

import logging
import signal
import threading
import time
import warnings
from contextlib import closing

import cerebro_db
import psycopg2
import pytest
from cerebro_db import CerebroError, CerebroWarning, Database, Packed, Run, loguniform
from sqlalchemy import create_engine
from sqlalchemy.pool import QueuePool

import nets
from cars import GRID

LONG = {**GRID, "batch_size": 1}


@pytest.mark.doors("client", "pack fit compare")
def test_a_run_is_over_and_ranked(run: Run) -> None:
    assert run.status == "finished"
    board = run.leaderboard()
    assert list(board["rank"]) == [1, 2]
    assert board.loc[0, "mst_key"] == run.best().mst_key
    assert set(run.metrics()["epoch"]) == {1, 2, 3}
    assert len(run.timeline()) == 2 * 2 * 3
    assert set(run.progress()["status"]) == {"finished"}


def test_what_is_shown_is_what_was_sent(
    client: Database, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sending the statements that run.sql() prints trains the same models, to the bit."""
    run.sql()
    table = run.info()["model_table"]
    shown = capsys.readouterr().out.replace(table.removeprefix("public."), "by_hand")
    for statement in shown.split(";\n"):
        if statement:
            client.rows(statement)
    same = client.rows(
        f"SELECT count(*) AS n FROM {table} AS a JOIN by_hand AS b USING (mst_key, model_weights)"
    )
    assert same == [{"n": 2}]


def test_two_runs_in_the_background_need_no_names(client: Database, model: int) -> None:
    packed = client.pack("cars", x=["weight", "power"], y="price", into='"Cars twice"')
    space = {**LONG, "model": model}
    first = client.fit(packed, space, epochs=100, backend="jax")
    second = client.fit(packed, space, epochs=1, backend="jax")
    made = [run.info()["model_table"] for run in (first, second)]
    assert made == ['public."Cars twice_models"', 'public."Cars twice_models_2"']
    first.stop()
    assert [first.wait(), second.wait()] == ["finished", "finished"]


@pytest.mark.doors("client", "background steer")
def test_a_run_in_the_background_is_steered(client: Database, packed: Packed, model: int) -> None:
    run = client.fit(packed, {**LONG, "model": model}, epochs=100, seed=1, backend="jax")
    run.pause()
    assert run.wait(0.1) in ("running", "paused")
    added = run.add({"loss": "mse", "optimizer": "SGD", "learning_rate": [0.01, 0.02], "model": model})
    copy = run.clone(1, with_state=False)
    assert [*added, copy] == [3, 4, 5]
    run.delete(2)
    run.stop(1)
    run.resume(1)
    run.set_epochs(3, 1)
    run.resume()
    run.stop()
    assert run.wait(60) == "finished"
    assert {"pause", "start", "clone", "delete", "stop", "resume"} <= set(run.decisions()["decision"])
    assert client.run(run.run_id).status == "finished"


def test_a_run_is_ended_by_force_and_resumed(client: Database, packed: Packed, model: int) -> None:
    run = client.fit(packed, {**LONG, "model": model}, epochs=20, seed=1, backend="jax")
    run.stop(force=True)
    assert run.wait(60) == "interrupted"
    run.resume()
    assert run.wait(60) == "finished"


@pytest.mark.doors("client", "search")
def test_a_search_takes_its_numbers_from_the_call(client: Database, packed: Packed, model: int) -> None:
    space = {"loss": "mse", "optimizer": "Adam", "learning_rate": loguniform(1e-3, 1e-1), "model": model}
    run = client.fit(packed, space, epochs=3, search="asha", configs=4, seed=1, wait=True, backend="jax")
    assert "num_configs=4, num_iterations=3" in run.statements[0]
    assert len(run.leaderboard()) == 4
    drawn = client.fit(packed, space, epochs=1, search="random", configs=3, wait=True, backend="jax")
    assert drawn.info()["configs"] == 3


def test_a_range_without_a_search_is_refused_before_anything_is_made(client: Database, model: int) -> None:
    with pytest.raises(CerebroError, match="its configs have no end"):
        client.fit(
            "cars_packed", {"loss": "mse", "learning_rate": loguniform(0.1, 1), "model": model}, epochs=1
        )


def test_an_error_of_the_server_keeps_its_fields_and_leaves_no_table(client: Database, model: int) -> None:
    with pytest.raises(CerebroError) as caught:
        client.fit("not_there", {**GRID, "model": model}, epochs=1)
    assert caught.value.message == "source table 'not_there' does not exist"
    assert caught.value.sqlstate == "42P01"
    assert "HINT:" in str(caught.value)
    assert not client.rows("SELECT FROM pg_class WHERE relname LIKE 'not_there%'")


def test_validation_rows_are_packed_as_training_rows_were(client: Database, packed: Packed) -> None:
    validation = client.pack("cars", like=packed, into="cars_validation")
    assert (len(validation), validation.x) == (200, packed.x)
    with pytest.raises(CerebroError, match="normalizing_const: validation rows are packed as cars_packed"):
        client.pack("cars", like=packed, into="other", normalize=2.0)


def test_architectures_are_listed_and_removed(client: Database, model: int) -> None:
    other = client.architectures.add(nets.mlp(2), name="other")
    assert list(client.architectures.list()["name"])[-1] == "other"
    client.architectures.remove(other)
    assert other not in client.architectures.ids()


def test_weights_come_with_a_live_model_alone(client: Database) -> None:
    with pytest.raises(CerebroError, match="JSON has no weights"):
        client.architectures.add(nets.mlp(2), weights=True)


def test_a_connection_of_somebody_elses_stays_open_and_in_its_transaction(client_database: str) -> None:
    with closing(psycopg2.connect(dbname=client_database)) as connection:
        with cerebro_db.connect(connection) as db:
            db.rows("CREATE TABLE committed ()")
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
            db.rows("CREATE TABLE not_committed ()")
        assert not connection.closed
        connection.rollback()
        with connection.cursor() as cursor:
            cursor.execute("SELECT to_regclass('committed') IS NULL, to_regclass('not_committed') IS NULL")
            assert cursor.fetchone() == (False, True)


def test_an_engine_of_somebody_elses_is_not_disposed_of(client_database: str) -> None:
    engine = create_engine(f"postgresql+psycopg2:///{client_database}")
    with cerebro_db.connect(engine) as db:
        assert db.rows("SELECT 1 AS one") == [{"one": 1}]
    assert isinstance(engine.pool, QueuePool) and engine.pool.checkedin() == 1
    engine.dispose()


def test_what_the_client_opened_it_closes(client_database: str, client: Database) -> None:
    with cerebro_db.connect(f"postgresql:///{client_database}?application_name=mine") as db:
        db.rows("SELECT 1")
    deadline = time.monotonic() + 30
    while client.rows("SELECT FROM pg_stat_activity WHERE application_name = 'mine'"):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("target", "said"),
    [("nonsense", "not the address of a database"), ("sqlite://", "sqlite is not a server")],
)
def test_an_address_that_leads_nowhere_says_so(target: str, said: str) -> None:
    with pytest.raises(CerebroError, match=said):
        cerebro_db.connect(target)


def test_an_engine_of_another_server_is_refused() -> None:
    with pytest.raises(CerebroError, match="speaks sqlite through"):
        cerebro_db.connect(create_engine("sqlite://"))


def test_the_client_keeps_its_warnings_and_notices_apart(
    client: Database, caplog: pytest.LogCaptureFixture
) -> None:
    tell = "DO $$ BEGIN RAISE NOTICE 'by the way'; RAISE WARNING 'look out'; END $$"
    with caplog.at_level(logging.INFO, "cerebro_db"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client.rows(tell)
    assert caplog.messages == ["by the way"]
    assert [(w.category, str(w.message)) for w in caught] == [(CerebroWarning, "look out")]


def test_ctrl_c_cancels_what_the_server_does(client: Database) -> None:
    query = (
        "SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'"
        " AND datname = current_database()"
    )

    def interrupt() -> None:
        while not client.rows(query):
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        client.rows("SELECT pg_sleep(60)")
    assert not client.rows(query)
