"""Fit, watch in a second session, compare and predict by each driver, in its default transaction mode."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg2
import pytest
import sqlalchemy
from sqlalchemy.engine import URL

import drivers
import two_nets
from drivers import Session
from fixtures import execute

pytestmark = pytest.mark.slow

NAMES = ["psycopg2", "psycopg", "sqlalchemy", "odbc", "jdbc"]
# JAX and one segment, because their sessions start fastest: the tests are about drivers alone.
PREPARE = two_nets.statements("('backend', 'jax'), ('segments', '1'), ('threads', '1')", 100)
FIT = """SELECT cerebro.madlib_fit_multiple_model('packed', '{0}', 'configs', {1},
    options => '{{"seed": 42{2}}}')"""
WATCH = "SELECT status, visits_done FROM cerebro.runs WHERE model_table = 'public.{0}' AND status = 'running'"
LEADERBOARD = """SELECT rank, mst_key, metric, value, loss, compile_params, started_at
    FROM cerebro.leaderboard JOIN cerebro.runs USING (run_id)
    WHERE run_id = (SELECT run_id FROM {0}_summary) ORDER BY rank"""
PREDICT = "SELECT class, probability FROM rows, cerebro.predict('{0}', 1, x) WHERE id = 1"
Open = Callable[[], Session]


@pytest.fixture(scope="module")
def prepared(database: str) -> str:
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        for statement in PREPARE:
            execute(connection, statement)
    return database


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with drivers.tcp_port() as number:
        yield number


@pytest.fixture(params=NAMES)
def driver(request: pytest.FixtureRequest) -> str:
    """The name of a driver; its tests are skipped if it is not installed."""
    if request.param == "odbc":
        drivers.need_odbc()
    if request.param == "jdbc":
        drivers.need_jdbc()
    return request.param


@pytest.fixture
def opened(driver: str, prepared: str, port: int) -> Iterator[Open]:
    """Yield a function that opens a session of the driver; close all these sessions after the test."""
    sessions: list[Session] = []

    def open_one() -> Session:
        sessions.append(drivers.opener(driver, prepared, port))
        return sessions[-1]

    yield open_one
    for session in sessions:
        session.close()


def watch(session: Session, name: str, until: Callable[[], bool]) -> bool:
    """Wait until a visit of the run is committed or `until` is true; return whether a visit was seen."""
    while not until():
        if [row for row in session.rows(WATCH.format(name)) if row[1] > 0]:
            return True
        session.commit()
        time.sleep(0.02)
    return False


@pytest.mark.doors("psycopg2 psycopg sqlalchemy odbc jdbc", "fit watch compare predict")
def test_fit_watch_compare_and_predict(opened: Open, driver: str) -> None:
    name = f"models_{driver}"
    session, other = opened(), opened()
    call = threading.Thread(target=session.rows, args=[FIT.format(name, 60, "")])
    call.start()
    seen = watch(other, name, lambda: not call.is_alive())
    call.join()
    assert seen
    ranked = session.rows(LEADERBOARD.format(name))
    session.commit()
    assert [row[0] for row in ranked] == [1, 2]
    assert sorted(row[1] for row in ranked) == [1, 2]
    first = ranked[0]
    assert first[2] == "accuracy"
    assert isinstance(first[3], float)
    assert isinstance(first[4], float)
    assert "learning_rate" in first[5]
    # A moment in time, by whatever class the driver has for it.
    assert "2026" in str(first[6]) or int(str(first[6])[:4]) > 2025
    ((kind, probability),) = session.rows(PREDICT.format(name))
    assert kind in {"0", "1"}
    assert 0.5 <= probability <= 1
    # What was written is there for everybody once the driver's transaction is over.
    session.commit()
    assert other.rows(f"SELECT count(*) FROM {name}") == [(2,)]


@pytest.mark.doors("psycopg2 psycopg sqlalchemy odbc jdbc", "background steer")
def test_a_long_call_can_be_left_to_the_server_and_ended(opened: Open, driver: str) -> None:
    name = f"later_{driver}"
    session = opened()
    session.rows(FIT.format(name, 2000, ', "background": true'))
    session.rows("SELECT cerebro.stop(cerebro.last_run())")
    session.commit()
    assert session.rows("SELECT cerebro.wait(cerebro.last_run())") == [("finished",)]
    session.commit()
    assert session.rows(f"SELECT count(*) FROM {name}_info") == [(2,)]
    ((visits,),) = session.rows("SELECT visits_done FROM cerebro.runs WHERE run_id = cerebro.last_run()")
    assert visits < 2 * 2000


@pytest.mark.slow
@pytest.mark.doors("psycopg2 psycopg sqlalchemy odbc jdbc", "pack")
def test_packing_and_training_in_one_transaction(opened: Open, driver: str) -> None:
    """A driver that begins transactions by itself commits none of these steps before the last one."""
    session = opened()
    session.rows(f"CREATE TABLE rows_{driver} AS SELECT * FROM rows")
    session.rows(f"SELECT cerebro.training_preprocessor_dl('rows_{driver}', 'packed_{driver}', 'y', 'x')")
    session.rows(FIT.format(f"once_{driver}", 2, "").replace("'packed'", f"'packed_{driver}'"))
    session.commit()
    assert opened().rows(f"SELECT count(*) FROM once_{driver}") == [(2,)]


def test_psql_runs_a_script_as_one_transaction(
    prepared: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    script = tmp_path_factory.mktemp("psql") / "job.sql"
    script.write_text(
        "SELECT cerebro.training_preprocessor_dl('rows', 'packed_psql', 'y', 'x');\n"
        + FIT.format("models_psql", 2, "").replace("'packed'", "'packed_psql'")
        + ";\nCOPY (SELECT rank, mst_key, metric FROM cerebro.leaderboard WHERE run_id = cerebro.last_run()"
        " ORDER BY rank) TO STDOUT WITH (FORMAT csv, HEADER);\n"
    )
    command = ["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", prepared, "-1", "-f", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["rank,mst_key,metric", *done.stdout.split()[1:]]
    assert [line.split(",")[0] for line in done.stdout.split()[1:]] == ["1", "2"]
    assert "slower: this transaction has made or changed its tables" in done.stderr
    assert "done in" in done.stderr


def test_progress_is_told_to_who_waits(prepared: str) -> None:
    """Notices arrive while the call runs, not with its end."""
    command = ["psql", "-Xq", "-d", prepared, "-c", FIT.format("told", 5, "")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as told:
        assert told.stderr
        lines = [line for line in iter(told.stderr.readline, "") if "NOTICE" in line]
    assert "starting" in lines[0] and "run" in lines[1]
    assert "done in" in lines[-1]


def columns(dbname: str, name: str) -> dict[str, str]:
    """Return the column types of a view as SQLAlchemy reads them; each column must have a comment."""
    engine = sqlalchemy.create_engine(URL.create("postgresql+psycopg2", database=dbname))
    found = sqlalchemy.inspect(engine).get_columns(name, schema="cerebro")
    engine.dispose()
    assert all(column.get("comment") for column in found)
    # Names of roles sort as the server sorts them; a tool shows them as any text.
    return {column["name"]: str(column["type"]).removesuffix(' COLLATE "C"') for column in found}


PLAIN = {"BIGINT", "INTEGER", "TEXT", "DOUBLE PRECISION", "TIMESTAMP", "BOOLEAN"}


@pytest.mark.parametrize(
    "view", ["runs", "progress", "visits", "metrics", "leaderboard", "decisions", "sizes"]
)
def test_columns_of_views_are_what_tools_can_show(prepared: str, view: str) -> None:
    assert set(columns(prepared, view).values()) <= PLAIN


def test_jdbc_sees_names_types_and_comments(prepared: str, port: int) -> None:
    drivers.need_jdbc()
    with closing(drivers.Jdbc(port, prepared)) as session:
        found = session.connection.getMetaData().getColumns(None, "cerebro", "leaderboard", None)
        seen = {}
        while found.next():
            seen[str(found.getString("COLUMN_NAME"))] = (
                str(found.getString("TYPE_NAME")), str(found.getString("REMARKS")),
            )  # fmt: skip
        ((said,),) = session.rows(
            "SELECT col_description(attrelid, attnum) FROM pg_attribute"
            " WHERE attrelid = 'cerebro.leaderboard'::regclass AND attname = 'rank'"
        )
    assert str(said).startswith("Place within the run")
    assert seen["rank"] == ("int8", str(said))
    assert seen["value"][0] == "float8"
    assert seen["compile_params"][0] == "text"


def test_odbc_sees_names_and_types(prepared: str) -> None:
    drivers.need_odbc()
    with closing(drivers.odbc(prepared)) as connection:
        found = connection.cursor().columns(table="leaderboard", schema="cerebro").fetchall()
    seen = {row.column_name: row.type_name for row in found}
    assert (seen["rank"], seen["value"], seen["compile_params"]) == ("int8", "float8", "text")
