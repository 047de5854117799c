"""A user's code in a policy of the packed table runs in the sessions of a run, and must gain no rights there.

On a cluster, the policy's code runs on the segments, or, as a subquery of its own, on the coordinator.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import psycopg2
import pytest

from fixtures import Connection, execute, setting
from stage import FITTED, SGD, Stage, connect, stage

pytestmark = pytest.mark.greenplum

# The SQLSTATE that each statement must get on the coordinator, and on a segment. attack.policy replaces
# {owner} and {me}.
FORBIDDEN, READ_ONLY, NOT_HERE, WRONG_STATE = "42501", "25006", "0A000", "55000"
ATTEMPTS = {
    "RESET SESSION AUTHORIZATION": (FORBIDDEN, NOT_HERE),
    "SET SESSION AUTHORIZATION {owner}": (FORBIDDEN, NOT_HERE),
    "SELECT set_config('session_authorization', '{owner}', FALSE)": (FORBIDDEN, FORBIDDEN),
    "SET ROLE {owner}": (FORBIDDEN, NOT_HERE),
    "SELECT set_config('role', '{owner}', FALSE)": (FORBIDDEN, FORBIDDEN),
    "SELECT set_config('role', 'none', FALSE)": (FORBIDDEN, FORBIDDEN),
    "SELECT set_config('is_superuser', 'on', FALSE)": ("55P02", "55P02"),
    "ALTER ROLE {me} SUPERUSER": (READ_ONLY, NOT_HERE),
    "SELECT pg_read_file('/etc/passwd')": (FORBIDDEN, FORBIDDEN),
    "COPY attack.written TO PROGRAM 'cat'": (FORBIDDEN, NOT_HERE),
    "INSERT INTO attack.written VALUES ('in the middle')": (READ_ONLY, NOT_HERE),
    "CREATE TEMP TABLE _state (x integer)": (READ_ONLY, NOT_HERE),
    "COMMIT": (NOT_HERE, NOT_HERE),
    "SELECT * FROM cerebro.settings": (FORBIDDEN, NOT_HERE),
    "SELECT * FROM cerebro._architecture": (FORBIDDEN, NOT_HERE),
    "SELECT * FROM cerebro._weights": (FORBIDDEN, NOT_HERE),
    "SELECT * FROM cerebro._state": (FORBIDDEN, NOT_HERE),
    "SELECT * FROM cerebro._metric": (FORBIDDEN, NOT_HERE),
    "SELECT cerebro._as_owner()": (FORBIDDEN, FORBIDDEN),
    "SELECT cerebro._segment('visit', '{}')": (FORBIDDEN, FORBIDDEN),
    "CALL cerebro._command('visit', '{}')": (FORBIDDEN, NOT_HERE),
    "SELECT cerebro._on_segment('give', '')": (FORBIDDEN, FORBIDDEN),
    "SELECT cerebro._begin_command('visit', '{}')": (FORBIDDEN, FORBIDDEN),
    "SELECT cerebro._work('{}')": (FORBIDDEN, FORBIDDEN),
    "SELECT cerebro._show('me')": (FORBIDDEN, FORBIDDEN),
    "SELECT set_config('gp_role', 'utility', FALSE)": ("55P02", "55P02"),
    # Only the scan of a load may call it, with the load's ticket.
    "SELECT cerebro._take_buffer('', 0, '[]', ARRAY[]::bytea[])": (WRONG_STATE, WRONG_STATE),
}
WORLD = """
CREATE SCHEMA attack;
CREATE TABLE attack.attempts (number integer, statement text) DISTRIBUTED REPLICATED;
CREATE TABLE attack.written (who text) DISTRIBUTED BY (who);
-- The coordinator's processes know the command that came to them, a segment's the statement it was sent.
CREATE FUNCTION attack.place() RETURNS text LANGUAGE sql AS $$
SELECT CASE
    WHEN current_query() ~ '^(CALL cerebro._command[(]''visit|SELECT json_agg)' THEN 'visiting'
    WHEN current_query() ~ '^(CALL cerebro._command|SELECT __dist_key__)' THEN 'control'
    ELSE 'caller' END || ' ' || current_setting('gp_role') $$;
CREATE FUNCTION attack.policy(place text) RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
    one record;
    report jsonb := '{}';
    me text := current_user;
    owner text := (SELECT extowner::regrole::text FROM pg_extension WHERE extname = 'cerebro');
BEGIN
    IF attack.place() <> place THEN RETURN TRUE; END IF;
    FOR one IN SELECT * FROM attack.attempts ORDER BY number LOOP
        BEGIN
            EXECUTE replace(replace(one.statement, '{me}', me), '{owner}', owner);
            report := report || jsonb_build_object(one.number::text, 'ok');
        EXCEPTION WHEN OTHERS THEN
            report := report || jsonb_build_object(one.number::text, SQLSTATE);
        END;
        IF current_user <> me OR current_setting('is_superuser') = 'on' THEN
            RAISE EXCEPTION 'became % by %', current_user, one.statement;
        END IF;
    END LOOP;
    RAISE EXCEPTION '%', report || jsonb_build_object('user', current_user, 'session', session_user);
END $f$;
CREATE FUNCTION attack.catches() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOOP
        BEGIN PERFORM pg_sleep(99); EXCEPTION WHEN query_canceled OR others THEN END;
    END LOOP;
END $$;
CREATE FUNCTION attack.locks() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_try_advisory_lock_shared(4711, n) FROM generate_series(1, 50) AS n;
    RAISE LOG 'attack: locked by %', pg_backend_pid();
END $$;
CREATE FUNCTION attack.deed(place text, does text) RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
    IF attack.place() = place THEN EXECUTE does; END IF;
    RETURN TRUE;
END $f$;
ALTER TABLE lab.packed ENABLE ROW LEVEL SECURITY;
ALTER TABLE lab.packed FORCE ROW LEVEL SECURITY;
CREATE POLICY attack ON lab.packed USING (TRUE);
"""
FIT = f"SELECT cerebro.madlib_fit('lab.packed', 'lab.m', 'lab.arch', 1, $${SGD}$$, '{FITTED}', 1)"
# A call in the policy runs on a segment, for its rows; a subquery that needs no row runs on the coordinator.
WAYS = {"execute": "attack.policy({0})", "dispatch": "(SELECT attack.policy({0}))"}


@dataclass(frozen=True)
class Scene:
    stage: Stage
    mallory: str
    login: Connection


@pytest.fixture(scope="module")
def scene(database: str) -> Iterator[Scene]:
    with stage(database) as made:
        mallory = made.role("mallory")
        made.lab(mallory, "lab")
        made.sql(WORLD)
        made.arm(mallory, ATTEMPTS)
        with closing(connect(database, mallory)) as login:
            yield Scene(made, mallory, login)


@pytest.mark.parametrize("session", ["control", "visiting"])
@pytest.mark.parametrize("role", WAYS)
def test_what_code_behind_a_policy_may_do(scene: Scene, session: str, role: str) -> None:
    way = WAYS[role].replace("{0}", f"'{session} {role}'")
    scene.stage.sql(f"ALTER POLICY attack ON lab.packed USING ({way})")
    with pytest.raises(psycopg2.Error) as caught:
        execute(scene.login, FIT)
    said = str(caught.value.diag.message_primary)
    report = json.loads(said[said.index("{") : said.rindex("}") + 1])
    assert (report.pop("user"), report.pop("session")) == (scene.mallory, scene.mallory)
    wanted = {s: there if role == "execute" else here for s, (here, there) in ATTEMPTS.items()}
    assert {s: report[str(n)] for n, s in enumerate(ATTEMPTS)} == wanted


def test_nothing_stays(scene: Scene) -> None:
    assert scene.stage.sql("SELECT * FROM attack.written") == []
    assert scene.stage.sql("SELECT rolsuper FROM pg_roles WHERE rolname = %s", scene.mallory) == [(False,)]


# A call of a function, because a segment runs no other statement of a user's function.
CATCHES = "SELECT attack.catches()"
PLACES = ["visiting execute", "visiting dispatch", "control execute", "control dispatch"]
# The sleeping processes of this database on segments and on the coordinator, and the advisory locks anywhere.
AT_WORK = (
    "SELECT count(*) FROM (SELECT pg_stat_get_activity(NULL) AS a FROM gp_dist_random('gp_id')) AS s"
    " JOIN pg_database AS d ON d.oid = (s.a).datid"
    " WHERE d.datname = current_database() AND (s.a).wait_event = 'PgSleep'"
)
HERE = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
    " AND application_name LIKE 'cerebro%'"
)
LOCKS = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 4711"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@contextmanager
def deed(scene: Scene, place: str, does: str) -> Iterator[None]:
    """Let the policy run a statement in one place, such as 'visiting execute', until the end of the block."""
    call = f"attack.deed('{place}', $deed${does}$deed$)"
    way = call if place.endswith("execute") else f"(SELECT {call})"
    scene.stage.sql(f"ALTER POLICY attack ON lab.packed USING ({way.replace('%', '%%')})")
    try:
        yield
    finally:
        scene.stage.sql("ALTER POLICY attack ON lab.packed USING (TRUE)")


def begin(scene: Scene, out: str) -> int:
    """Begin a run in the background whose model table is lab.{out}, and return the run's number."""
    call = FIT.replace("lab.m", f"lab.{out}")[:-1] + """, options => '{"background": true}')"""
    execute(scene.login, call)
    return int(execute(scene.login, "SELECT cerebro.last_run()")[0][0])


def until(scene: Scene, query: str, number: int) -> None:
    deadline = time.monotonic() + 60
    while scene.stage.value(query) != number:
        assert time.monotonic() < deadline, (query, scene.stage.value(query))
        time.sleep(0.1)


def status(scene: Scene, run_id: int) -> object:
    return scene.stage.value("SELECT status FROM cerebro.runs WHERE run_id = %s", run_id)


@pytest.mark.parametrize("place", PLACES)
def test_code_that_takes_its_time_is_ended(scene: Scene, place: str) -> None:
    with deed(scene, place, "SELECT pg_sleep(1000)"), setting(scene.stage.sql, "look_seconds", "1"):
        with pytest.raises(psycopg2.errors.QueryCanceled, match="took longer than 1 seconds"):
            execute(scene.login, FIT)
        until(scene, AT_WORK, 0)


def test_the_callers_statement_timeout_bounds_it_too(scene: Scene) -> None:
    with deed(scene, "visiting execute", "SELECT pg_sleep(1000)"):
        execute(scene.login, "SET statement_timeout = '15s'")
        run_id = begin(scene, "timed")
        execute(scene.login, "RESET statement_timeout")
        assert execute(scene.login, "SELECT cerebro.wait(%s, '90 s')", run_id) == [("interrupted",)]
    ((detail,),) = execute(scene.login, "SELECT detail FROM cerebro.runs WHERE run_id = %s", run_id)
    assert "took longer than 15 seconds" in detail


@pytest.mark.parametrize("place", PLACES)
def test_code_that_catches_its_end_is_ended(scene: Scene, place: str) -> None:
    """No process of the run keeps working on any server."""
    settings = setting(scene.stage.sql, "look_seconds", "1"), setting(scene.stage.sql, "retries", "0")
    with deed(scene, place, CATCHES), settings[0], settings[1]:
        with pytest.raises(psycopg2.Error):
            execute(scene.login, FIT)
        until(scene, AT_WORK, 0)
        until(scene, HERE, 0)


@pytest.mark.parametrize("place", PLACES)
def test_locks_that_code_takes_are_given_back(scene: Scene, place: str) -> None:
    """Advisory locks that a policy's code takes are released, although its sessions live on."""
    out = place.replace(" ", "_")
    with deed(scene, place, "SELECT attack.locks()"):
        execute(scene.login, FIT.replace("lab.m", f"lab.locks_{out}"))
        assert scene.stage.value(LOCKS) == 0


@pytest.mark.parametrize("does", ["SELECT pg_sleep(100000)", CATCHES], ids=["sleeps", "catches"])
@pytest.mark.parametrize("place", PLACES[:2])
def test_a_run_can_be_ended_by_force(scene: Scene, place: str, does: str) -> None:
    out = f"{place.replace(' ', '_')}_{'catches' if does == CATCHES else 'sleeps'}"
    with deed(scene, place, does):
        run_id = begin(scene, out)
        until(scene, AT_WORK if place.endswith("execute") else HERE, 1)
        execute(scene.login, "SELECT cerebro.stop(%s, force => TRUE)", run_id)
        assert status(scene, run_id) == "interrupted"
        until(scene, AT_WORK, 0)
        until(scene, HERE, 0)
    execute(scene.login, "SELECT cerebro.resume(%s)", run_id)
    assert status(scene, run_id) == "finished"
