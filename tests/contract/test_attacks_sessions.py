"""A user's code cannot keep others from their runs, neither by locks nor by names nor by waiting.

The code is called by a row security policy on the user's own packed table, and waits until a test lets it go
on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass

import psycopg2
import pytest

from fixtures import Connection, execute, setting
from stage import FITTED, SGD, Stage, connect, stage

pytestmark = pytest.mark.slow

# The upper half of the second key of the extension's own advisory locks.
MARK = 0x0CE4 << 16
WORLD = f"""
CREATE SCHEMA attack;
CREATE TABLE attack.mode (place text, does text, waits boolean);
INSERT INTO attack.mode VALUES ('nowhere', '', FALSE);
CREATE SEQUENCE attack.begun;
CREATE SEQUENCE attack.numbers;
CREATE TABLE attack.written (x integer);
CREATE FUNCTION attack.locks() RETURNS void LANGUAGE sql AS
$$SELECT pg_try_advisory_lock_shared(n, {MARK} + m)
    FROM generate_series(1, 300) AS n, generate_series(0, 2) AS m$$;
CREATE FUNCTION attack.policy() RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog AS $f$
DECLARE
    mode attack.mode;
BEGIN
    SELECT * INTO mode FROM attack.mode;
    IF current_setting('application_name') LIKE mode.place THEN
        IF mode.does <> '' THEN EXECUTE mode.does; END IF;
        WHILE (SELECT m.waits FROM attack.mode AS m) LOOP
            PERFORM pg_sleep(0.05);
        END LOOP;
    END IF;
    RETURN TRUE;
END $f$;
"""
POLICY = """
ALTER TABLE lab.packed ENABLE ROW LEVEL SECURITY;
ALTER TABLE lab.packed FORCE ROW LEVEL SECURITY;
CREATE POLICY attack ON lab.packed USING (attack.policy());
"""
VISITS, CREATES, DRIVES, NOWHERE = "cerebro visit%", "cerebro create_run%", "cerebro drive%", "nowhere"
WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND application_name LIKE 'cerebro%'"
    " AND datname = current_database()"
)


@dataclass(frozen=True)
class Scene:
    stage: Stage
    mallory: str
    victim: str
    login: Connection
    pool: ThreadPoolExecutor

    @contextmanager
    def attack(self, place: str, does: str = "", *, waits: bool = False) -> Iterator[None]:
        self.stage.sql("UPDATE attack.mode SET place = %s, does = %s, waits = %s", place, does, waits)
        try:
            yield
        finally:
            self.stage.sql("UPDATE attack.mode SET place = 'nowhere', does = '', waits = FALSE")

    def fit(self, out: str, **options: object) -> int:
        """Train a config as the attacker, and return the run_id."""
        call = (
            f"SELECT cerebro.madlib_fit('lab.packed', 'lab.{out}', 'lab.arch', 1, %s, %s, 1, options => %s)"
        )
        execute(self.login, call, SGD, FITTED, json.dumps({"seed": 3, **options}))
        return int(execute(self.login, "SELECT cerebro.last_run()")[0][0])

    def begin(self, out: str) -> Future[int]:
        return self.pool.submit(self.fit, out)

    def waiting(self) -> None:
        """Wait until the code of the attacker's policy is waiting."""
        until(lambda: bool(self.stage.value(WAITING)))

    def status(self, run_id: int) -> object:
        return self.stage.value("SELECT status FROM cerebro.runs WHERE run_id = %s", run_id)

    def locks(self) -> object:
        """Return the number of advisory locks in this database with keys that the extension uses."""
        return self.stage.value(
            f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid::bigint >= {MARK}"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def scene(database: str) -> Iterator[Scene]:
    with stage(database) as made, ThreadPoolExecutor(1) as pool:
        mallory, victim = made.role("mallory"), made.role("victim")
        made.lab(victim, "others")
        made.lab(mallory, "lab")
        made.sql(WORLD)
        made.arm(mallory, [])
        for name in ("packed", "packed_summary"):
            made.sql(POLICY.replace("packed", name))
        with closing(connect(database, mallory)) as login:
            yield Scene(made, mallory, victim, login, pool)


@pytest.fixture
def interrupted(scene: Scene) -> int:
    """The run_id of an interrupted run of the victim."""
    stage = scene.stage
    with stage.acting(scene.victim):
        stage.sql("DROP TABLE IF EXISTS others.m, others.m_info, others.m_summary")
        stage.sql("BEGIN")
        run_id = stage.fit("others")
        stage.sql("ROLLBACK")
    stage.sql("DELETE FROM cerebro._run_event WHERE run_id = %s AND event <> 'running'", run_id)
    return run_id


def test_locks_that_a_policy_takes_keep_nobody_from_a_run(scene: Scene, interrupted: int) -> None:
    """The attacker's policy takes all locks that the victim's run needs.

    The victim can resume the run nevertheless, and later no lock is left.
    """
    stage = scene.stage
    with scene.attack(VISITS, "SELECT attack.locks()", waits=True):
        call = scene.begin("locks")
        scene.waiting()
        assert scene.status(interrupted) == "interrupted"
        with stage.acting(scene.victim):
            stage.sql("SELECT cerebro.resume(%s)", interrupted)
            stage.sql("SELECT cerebro.forget(%s)", interrupted)
    assert scene.status(call.result()) == "finished"
    until(lambda: scene.locks() == 0)
    with stage.acting(scene.victim):
        assert scene.status(stage.fit("others", "again")) == "finished"
        stage.sql("DROP TABLE others.again, others.again_info, others.again_summary")


def test_a_name_that_a_policy_gives_its_session_keeps_nobody_from_a_run(
    scene: Scene, interrupted: int
) -> None:
    name = f"cerebro visit run={interrupted} config=1 epoch=1 segment=0"
    with scene.attack(VISITS, f"SET application_name = '{name}'", waits=True):
        call = scene.begin("name")
        scene.waiting()
        with scene.stage.acting(scene.victim):
            scene.stage.sql("SELECT cerebro.forget(%s)", interrupted)
    assert scene.status(call.result()) == "finished"


@pytest.mark.parametrize("place", [VISITS, CREATES, "%"])
def test_a_policy_cannot_take_a_run_its_lock(scene: Scene, place: str) -> None:
    """A policy that releases all locks of its session does not make the run count as interrupted."""
    out = {VISITS: "visits", CREATES: "creates", "%": "all"}[place]
    with scene.attack(place, "SELECT pg_advisory_unlock_all()"):
        assert scene.status(scene.fit(f"unlocked_{out}")) == "finished"


def test_what_a_policy_writes_is_undone(scene: Scene) -> None:
    """Before PostgreSQL 16, RESET can make a guard's transaction writable, but its changes are undone."""
    stage = scene.stage
    for number, way in enumerate(
        (
            "RESET transaction_read_only",
            "SET transaction_read_only TO DEFAULT",
            "SELECT set_config('transaction_read_only', NULL, FALSE)",
        )
    ):
        with scene.attack(VISITS, f"{way}; INSERT INTO attack.written VALUES (1)"):
            try:
                scene.fit(f"written_{number}")
            except psycopg2.Error as error:
                assert stage.connection.server_version >= 160000
                assert error.pgcode in ("25006", "0A000", "22023", "55P02", "42501"), error
        assert stage.value("SELECT count(*) FROM attack.written") == 0
    with scene.attack(VISITS, "SET transaction_read_only = off"), pytest.raises(psycopg2.Error) as caught:
        scene.fit("off")
    assert caught.value.pgcode == "25001"


@pytest.mark.parametrize("place", [VISITS, CREATES])
@pytest.mark.parametrize(
    "call",
    [
        f"cerebro.madlib_fit('others.packed', 'lab.x', 'others.arch', 1, $${SGD}$$, '{FITTED}', 1,"
        " options => '{\"background\": true}')",
        "cerebro.forget(1)",
        "cerebro.resume(1)",
        "cerebro.stop(1)",
        "cerebro.load_keras_model('lab.more', '{}')",
        "cerebro.training_preprocessor_dl('lab.rows', 'lab.again', 'y', 'x')",
    ],
)
def test_no_call_that_begins_something_answers_within_a_guard(scene: Scene, place: str, call: str) -> None:
    before = scene.stage.value("SELECT max(run_id) FROM cerebro._run")
    way = "" if scene.stage.connection.server_version >= 160000 else "RESET transaction_read_only; "
    with scene.attack(place, f"{way}SELECT {call}"), pytest.raises(psycopg2.Error) as caught:
        scene.fit("within")
    assert caught.value.pgcode == "25006"
    assert "code behind a table that a run reads" in str(caught.value)
    after = scene.stage.sql("SELECT owner, model_table FROM cerebro.runs WHERE run_id > %s", before)
    assert {table for _, table in after} <= {'"lab"."within"', "lab.within"}


def test_a_guard_that_was_changed_is_made_anew(scene: Scene) -> None:
    """If the settings of a guard were changed, the next run creates it again."""
    stage = scene.stage
    scene.fit("guarded")
    guard = (
        "SELECT format('%%I.%%I()', n.nspname, p.proname), p.proconfig FROM pg_proc AS p"
        " JOIN pg_namespace AS n ON n.oid = p.pronamespace"
        " WHERE p.proname LIKE '\\_cerebro\\_guard%%' AND p.proowner = %s::regrole"
    )
    as_made = stage.sql(guard, scene.mallory)
    assert as_made
    for name, _ in as_made:
        stage.sql(f"ALTER FUNCTION {name} SET work_mem = '1MB'")
    scene.fit("guarded_again")
    assert stage.sql(guard, scene.mallory) == as_made


@pytest.mark.parametrize("way", ["ROLE {0} CONNECTION LIMIT", "DATABASE {1} CONNECTION LIMIT"])
def test_a_run_that_finds_no_room_says_so_before_any_work(scene: Scene, way: str, database: str) -> None:
    """Segment sessions count against the connection limits of the database and of the caller's role."""
    stage = scene.stage
    before = stage.value("SELECT max(run_id) FROM cerebro._run")
    way = way.format(scene.mallory, database)
    call = "SELECT cerebro.madlib_fit('lab.packed', 'lab.crowded', 'lab.arch', 1, %s, %s, 1)"
    with closing(connect(database, scene.mallory)) as fresh:
        stage.sql(f"ALTER {way} 2")
        try:
            with pytest.raises(psycopg2.Error) as caught:
                execute(fresh, call, SGD, FITTED)
        finally:
            stage.sql(f"ALTER {way} -1")
    assert caught.value.pgcode == "53300"
    assert "there is no room for the sessions of a run" in str(caught.value)
    assert stage.value("SELECT max(run_id) FROM cerebro._run") == before


@pytest.mark.parametrize("place", [VISITS, DRIVES])
def test_a_run_in_the_background_can_be_ended_by_force(scene: Scene, place: str) -> None:
    """A run whose sessions wait in a policy can be stopped by force, and resumed later."""
    stage = scene.stage
    with scene.attack(place, waits=True):
        run_id = scene.fit("forced_visit" if place == VISITS else "forced_drive", background=True)
        scene.waiting()
        execute(scene.login, "SELECT cerebro.stop(%s, force => TRUE)", run_id)
        assert scene.status(run_id) == "interrupted"
        until(lambda: stage.value(WAITING) == 0)
    execute(scene.login, "SELECT cerebro.resume(%s)", run_id)
    assert scene.status(run_id) == "finished"


def test_another_users_run_cannot_be_ended_by_force(scene: Scene) -> None:
    with scene.attack(VISITS, waits=True):
        run_id = scene.fit("spared", background=True)
        scene.waiting()
        with scene.stage.acting(scene.victim), pytest.raises(psycopg2.errors.InsufficientPrivilege):
            scene.stage.sql("SELECT cerebro.stop(%s, force => TRUE)", run_id)
    assert execute(scene.login, "SELECT cerebro.wait(%s)", run_id) == [("finished",)]


@pytest.mark.parametrize("own", [False, True], ids=["the setting", "the caller's statement_timeout"])
def test_code_that_takes_its_time_is_ended(scene: Scene, own: bool) -> None:
    out = f"slow_{own}"
    with scene.attack(VISITS, waits=True), setting(scene.stage.sql, "look_seconds", "600" if own else "1"):
        if own:
            execute(scene.login, "SET statement_timeout = '20s'")
        run_id = scene.fit(out, background=True)
        execute(scene.login, "RESET statement_timeout")
        assert execute(scene.login, "SELECT cerebro.wait(%s, '90 s')", run_id) == [("interrupted",)]
        ((detail,),) = execute(scene.login, "SELECT detail FROM cerebro.runs WHERE run_id = %s", run_id)
    assert f"took longer than {20 if own else 1} seconds" in detail
    execute(scene.login, "SELECT cerebro.resume(%s)", run_id)


@pytest.mark.parametrize("place", [VISITS, DRIVES])
def test_code_that_catches_its_end_is_ended(scene: Scene, place: str) -> None:
    """The policy's code catches every cancel and goes on; its session is terminated instead."""
    out = "caught_visit" if place == VISITS else "caught_drive"
    catches = (
        "DO $$BEGIN LOOP BEGIN PERFORM pg_sleep(99); EXCEPTION WHEN query_canceled THEN END; END LOOP; END$$"
    )
    settings = setting(scene.stage.sql, "look_seconds", "1"), setting(scene.stage.sql, "retries", "0")
    with scene.attack(place, catches), settings[0], settings[1]:
        run_id = scene.fit(out, background=True)
        ((status,),) = execute(scene.login, "SELECT cerebro.wait(%s, '100 s')", run_id)
        assert status in ("failed", "interrupted")
        assert scene.stage.value(WAITING) == 0


def test_an_error_of_a_users_own_code_comes_out_as_it_is(scene: Scene) -> None:
    raises = "DO $$BEGIN RAISE 'no entry' USING ERRCODE = 'XY123', DETAIL = 'today', HINT = 'ask'; END$$"
    for place in (VISITS, CREATES, "%"):
        with scene.attack(place, raises), pytest.raises(psycopg2.Error) as caught:
            scene.fit("own_code")
        said = caught.value.diag
        assert (caught.value.pgcode, said.message_detail, said.message_hint) == ("XY123", "today", "ask")
        assert "no entry" in str(said.message_primary)


def test_what_a_policy_says_is_not_kept_at_any_length(scene: Scene) -> None:
    raises = "DO $$BEGIN RAISE '%', repeat('x', 1000000); END$$"
    with scene.attack(VISITS, raises), pytest.raises(psycopg2.Error):
        scene.fit("long")
    detail = scene.stage.value("SELECT detail FROM cerebro.runs ORDER BY run_id DESC LIMIT 1")
    assert isinstance(detail, str)
    assert len(detail) == 10_000, detail[:500]


def test_a_run_in_the_background_keeps_its_tables(scene: Scene) -> None:
    with scene.attack(VISITS, waits=True):
        run_id = scene.fit("kept", background=True)
        scene.waiting()
        for statement in (
            "DROP TABLE lab.packed", "ALTER TABLE lab.packed ADD COLUMN more integer", "TRUNCATE lab.packed",
            "DROP TABLE lab.packed_summary",
        ):  # fmt: skip
            with pytest.raises(psycopg2.errors.LockNotAvailable):
                execute(scene.login, f"SET lock_timeout = '200ms'; {statement}")
        # No run begins whose model table another run is going to create.
        with pytest.raises(psycopg2.errors.DuplicateTable) as caught:
            scene.fit("kept", background=True)
        assert f"run {run_id} will write its models to" in str(caught.value)
        execute(scene.login, "RESET lock_timeout")
    assert execute(scene.login, "SELECT cerebro.wait(%s)", run_id) == [("finished",)]


def test_force_ends_nobody_who_has_got_the_number_of_a_session_that_is_gone(
    scene: Scene, database: str
) -> None:
    stage = scene.stage
    execute(scene.login, "DROP TABLE IF EXISTS lab.forced, lab.forced_summary")
    with scene.attack(VISITS, waits=True), closing(connect(database, scene.victim)) as other:
        run_id = scene.fit("forced", background=True)
        scene.waiting()
        pid = other.info.backend_pid
        stage.sql(
            "UPDATE cerebro._driver SET driver = %s, at = at - interval '1 hour' WHERE run_id = %s",
            pid,
            run_id,
        )
        with ThreadPoolExecutor(1) as pool:
            sleeps = pool.submit(execute, other, "SELECT pg_sleep(3)")
            at_it = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
            until(lambda: bool(stage.value(at_it, pid)))
            execute(scene.login, "SELECT cerebro.stop(%s, force => TRUE)", run_id)
            assert sleeps.result() is not None
    until(lambda: not stage.value(WAITING))


def test_a_lock_of_its_owners_makes_no_dead_run_live(scene: Scene, interrupted: int, database: str) -> None:
    stage = scene.stage
    lock, pid = stage.sql("SELECT lock, pid FROM cerebro._driver WHERE run_id = %s", interrupted)[0]
    with closing(connect(database, scene.victim)) as own:
        execute(own, "SELECT pg_advisory_lock(%s, %s)", interrupted, lock)
        assert own.info.backend_pid != pid
        assert scene.status(interrupted) == "interrupted"
