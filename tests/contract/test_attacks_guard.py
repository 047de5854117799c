"""A user's code in a row security policy cannot become another role, read secrets or leave changes.

The policies are on the packed table, the table of rows and the table of architectures, so the code runs in
segment sessions, the control session and the caller's session. matrix/attacks.txt has the results.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from fixtures import Connection, Rows, execute
from stage import FITTED, SGD, Stage, compare, connect, stage, table

pytestmark = pytest.mark.slow

MATRIX = Path(__file__).with_name("matrix")
CALLER, CONTROL, SEGMENT, NOWHERE = "caller", "control", "segment", "nowhere"

# {me}, {owner} and {guard} are put in by the function that tries them.
ATTEMPTS = {
    "become the owner of the session again": "RESET SESSION AUTHORIZATION",
    "become its default": "SET SESSION AUTHORIZATION DEFAULT",
    "become the extension's owner": "SET SESSION AUTHORIZATION {owner}",
    "become the extension's owner, locally": "SET LOCAL SESSION AUTHORIZATION {owner}",
    "become the owner, by set_config": "SELECT set_config('session_authorization', '{owner}', FALSE)",
    "take on the owner's role": "SET ROLE {owner}",
    "take on the owner's role, by set_config": "SELECT set_config('role', '{owner}', false)",
    "let go of the role": "RESET ROLE",
    "no role": "SET ROLE NONE",
    "say that it is superuser": "SELECT set_config('is_superuser', 'on', false)",
    "make itself superuser": "ALTER ROLE {me} SUPERUSER",
    "become a member of the owner": "GRANT {owner} TO {me}",
    "reset all settings": "RESET ALL",
    "discard all": "DISCARD ALL",
    "commit": "COMMIT",
    "write again": "SET TRANSACTION READ WRITE",
    "write again, by set_config": "SELECT set_config('transaction_read_only', 'off', true)",
    "go through the owner's door": "SELECT cerebro._as_owner()",
    "do a visit": """SELECT cerebro._segment('visit', '{"run_id": 1}')""",
    "call the guard": "SELECT {guard}",
    "take the guard away": "DROP FUNCTION {guard}",
    "open the guard": "ALTER FUNCTION {guard} SECURITY INVOKER",
    "put another guard in its place": (
        "CREATE OR REPLACE FUNCTION {guard} RETURNS void LANGUAGE sql AS 'SELECT'"
    ),
    "drop all that is its own": "DROP OWNED BY {me} CASCADE",
    "let itself in": "SELECT cerebro.grant_usage('{me}')",
    "read the settings": "SELECT * FROM cerebro.settings",
    "read states": "SELECT * FROM cerebro._state",
    "read runs": "SELECT * FROM cerebro._run",
    "read passwords": "SELECT * FROM pg_authid",
    "read what others do": "DO $$ BEGIN IF EXISTS (SELECT FROM pg_stat_activity WHERE usename = '{owner}'"
    " AND query NOT LIKE '<insufficient%') THEN RAISE 'seen'; END IF; RAISE insufficient_privilege; END $$",
    "read a file": "SELECT pg_read_file('/etc/passwd')",
    "list a folder": "SELECT pg_ls_dir('.')",
    "import a file": "SELECT lo_import('/etc/passwd')",
    "read a file by COPY": "COPY attack.written FROM '/etc/passwd'",
    "run a program": "COPY attack.written TO PROGRAM 'cat'",
    "load a library": "LOAD 'dblink'",
    "write Python": "CREATE FUNCTION attack.p() RETURNS void LANGUAGE plpython3u AS 'pass'",
    "make a table in cerebro": "CREATE TABLE cerebro.mine (x integer)",
    "make a temporary table": "CREATE TEMP TABLE _state (x integer)",
    "make a temporary function": "CREATE FUNCTION pg_temp._members() RETURNS void LANGUAGE sql AS ''",
    "write to its own table": "INSERT INTO attack.written VALUES ('in the middle')",
    "write to it when all is over": "INSERT INTO attack.put_off VALUES (1)",
    "run code when all is over": "DECLARE attack CURSOR WITH HOLD FOR SELECT attack.write_late()",
    "advance its own sequence": "SELECT nextval('attack.numbers')",
    "turn row security off": "SET row_security = off",
    "turn triggers off": "SET session_replication_role = replica",
    "change the search path": "SET search_path = attack, public",
    "end statements soon": "SET statement_timeout = '1ms'",
    "hide what is said": "SET client_min_messages = 'error'",
    "call itself another run": "SET application_name = 'cerebro visit run=1 config=1 epoch=1 segment=0'",
    "train, with row security off": (
        f"SELECT cerebro.madlib_fit('lab.packed', 'attack.m', 'lab.arch', 1, $${SGD}$$, '{FITTED}', 1)"
    ),
    "forget another's run": "SELECT cerebro.forget(1)",
    "listen": "LISTEN attack",
    "change the server's settings": "ALTER SYSTEM SET log_connections = on",
    "fail": "SELECT 1 / 0",
}  # fmt: skip

WORLD = """
CREATE SCHEMA attack;
CREATE TABLE attack.mode (place text, loud boolean);
INSERT INTO attack.mode VALUES ('nowhere', FALSE);
CREATE TABLE attack.attempts (number integer, statement text);
CREATE TABLE attack.written (who text);
CREATE TABLE attack.put_off (x integer);
CREATE SEQUENCE attack.numbers;
CREATE FUNCTION attack.write_late() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN INSERT INTO attack.written VALUES (session_user || ' as ' || current_user); RETURN 1; END $$;
CREATE FUNCTION attack.fire() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM attack.write_late(); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON attack.put_off DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION attack.fire();
CREATE FUNCTION attack.place() RETURNS text LANGUAGE sql AS $$
SELECT CASE WHEN current_setting('application_name') LIKE 'cerebro visit%' THEN 'segment'
    WHEN current_setting('application_name') LIKE 'cerebro create_run%' THEN 'control' ELSE 'caller' END $$;
CREATE FUNCTION attack.strike() RETURNS jsonb LANGUAGE plpgsql AS $f$
DECLARE
    one record;
    report jsonb := '{}';
    me text := current_user;
    guard text := coalesce((SELECT min(oid::regprocedure::text) FROM pg_proc
        WHERE pronamespace = pg_my_temp_schema() AND proname LIKE '\\_cerebro\\_guard%'), 'pg_temp.none()');
    owner text := (SELECT extowner::regrole::text FROM pg_extension WHERE extname = 'cerebro');
BEGIN
    FOR one IN SELECT * FROM attack.attempts ORDER BY number LOOP
        BEGIN
            EXECUTE replace(replace(replace(one.statement, '{me}', me), '{owner}', owner), '{guard}', guard);
            report := report || jsonb_build_object(one.number::text, 'ok');
        EXCEPTION WHEN OTHERS THEN
            report := report || jsonb_build_object(one.number::text, SQLSTATE);
        END;
        IF current_user <> me THEN
            RAISE EXCEPTION 'became % by %', current_user, one.statement;
        END IF;
    END LOOP;
    RETURN report || jsonb_build_object('user', current_user, 'session', session_user);
END $f$;
CREATE FUNCTION attack.probe() RETURNS jsonb LANGUAGE sql AS $f$
SELECT jsonb_build_object(
    'pid', pg_backend_pid(), 'user', current_user, 'session', session_user,
    'settings', (SELECT jsonb_object_agg(name, setting) FROM pg_settings
        WHERE source IN ('session', 'client', 'override') OR name LIKE 'transaction%'),
    'cursors', (SELECT count(*) FROM pg_cursors WHERE name = 'attack'),
    'temporary', (SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()),
    'functions', (SELECT array_agg(proname) FROM pg_proc WHERE pronamespace = pg_my_temp_schema())) $f$;
CREATE FUNCTION attack.policy() RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog AS $f$
DECLARE
    mode attack.mode;
    report jsonb;
BEGIN
    SELECT * INTO mode FROM attack.mode;
    IF mode.place = 'probe' AND attack.place() = 'segment' THEN
        RAISE EXCEPTION '%', attack.probe();
    ELSIF mode.place = attack.place() THEN
        report := attack.strike();
        IF mode.loud THEN RAISE EXCEPTION '%', report; END IF;
    END IF;
    RETURN TRUE;
END $f$;
"""
POLICIES = """
ALTER TABLE lab.{0} ENABLE ROW LEVEL SECURITY;
ALTER TABLE lab.{0} FORCE ROW LEVEL SECURITY;
CREATE POLICY attack ON lab.{0} USING (attack.policy());
"""
FIT = f"SELECT cerebro.madlib_fit('lab.packed', 'lab.{{0}}', 'lab.arch', 2, $${SGD}$$, '{FITTED}', 1)"
PACK = "SELECT cerebro.training_preprocessor_dl('lab.rows', 'lab.again', 'y', 'x')"

STANDING = (
    "SELECT rolname, rolsuper, rolcreaterole, rolbypassrls FROM pg_roles ORDER BY 1",
    "SELECT roleid::regrole::text, member::regrole::text FROM pg_auth_members ORDER BY 1, 2",
    "SELECT proname, proacl::text, prosrc FROM pg_proc WHERE pronamespace = 'cerebro'::regnamespace"
    " ORDER BY 1, 3",
    "SELECT relname, relacl::text FROM pg_class WHERE relnamespace = 'cerebro'::regnamespace ORDER BY 1",
    "SELECT * FROM cerebro.settings ORDER BY 1",
    "SELECT md5(string_agg(md5(data), '' ORDER BY step, part)) FROM cerebro._state WHERE run_id = 1",
    "SELECT proname FROM pg_proc WHERE pronamespace = 'attack'::regnamespace ORDER BY 1",
    "SELECT last_value FROM attack.numbers",
)


@dataclass(frozen=True)
class Scene:
    stage: Stage
    mallory: str
    login: Connection

    def attack(self, place: str, *, loud: bool) -> None:
        self.stage.sql("UPDATE attack.mode SET place = %s, loud = %s", place, loud)

    def call(self, statement: str) -> None:
        execute(self.login, statement)

    def report(self, statement: str) -> dict[str, Any]:
        """Run a statement whose policy raises an error with a report as JSON, and return the report."""
        with pytest.raises(psycopg2.Error) as caught:
            execute(self.login, statement)
        said = str(caught.value.diag.message_primary)
        return json.loads(said[said.index("{") :])


@pytest.fixture(scope="module")
def scene(database: str) -> Iterator[Scene]:
    with stage(database) as made:
        mallory, victim = made.role("mallory"), made.role("victim")
        made.lab(victim, "others")
        with made.acting(victim):
            made.fit("others")
        made.lab(mallory, "lab")
        made.sql(WORLD)
        made.arm(mallory, ATTEMPTS.values())
        made.sql("".join(POLICIES.replace("{0}", name) for name in ("rows", "packed", "arch")))
        with closing(connect(database, mallory)) as login:
            yield Scene(made, mallory, login)


def test_what_code_behind_a_policy_may_do(scene: Scene) -> None:
    """The results are one column of matrix/attacks.txt for plain SQL and one for each kind of session."""
    scene.attack(CALLER, loud=True)
    found = {"plain SQL": scene.report("SELECT * FROM lab.rows"), "packing": scene.report(PACK)}
    for place in (CONTROL, SEGMENT):
        scene.attack(place, loud=True)
        found[place] = scene.report(FIT.format("m"))
    scene.attack(NOWHERE, loud=False)
    for place, report in found.items():
        assert (report["user"], report["session"]) == (scene.mallory, scene.mallory), place
    cells = {
        label: {place: str(report[str(number)]) for place, report in found.items()}
        for number, label in enumerate(ATTEMPTS)
    }
    head = (
        "What code behind a policy gets that tries each of these: as the server answers plain SQL, while\n"
        "rows are packed, in the control session of a run and in a segment session. In the last two it may\n"
        "only read, and all that it brings about is undone: where it says ok there, nothing stays."
    )
    compare(MATRIX / "attacks.txt", table(head, cells, "attempt"))


def test_nothing_stays(scene: Scene) -> None:
    """After attacks that raise no error, a segment session has the settings and objects of a new session."""
    stage = scene.stage
    before = _standing(stage)
    for place in (CONTROL, SEGMENT):
        scene.attack(place, loud=False)
        scene.call(FIT.format(f"struck_{place}"))
    (pid,) = stage.sql(
        "SELECT DISTINCT pid FROM cerebro.visits JOIN lab.struck_segment_summary USING (run_id)"
    )[0]
    scene.attack("probe", loud=True)
    after, fresh = scene.report(FIT.format("m")), scene.report(FIT.format("m"))
    scene.attack(NOWHERE, loud=False)
    assert after.pop("pid") == pid != fresh.pop("pid")
    for report in (after, fresh):
        report["settings"].pop("application_name")
    assert after == fresh
    assert after["user"] == after["session"] == scene.mallory
    assert after["cursors"] == after["temporary"] == 0
    assert stage.sql("SELECT * FROM attack.written") == []
    assert _standing(stage) == before


def _standing(stage: Stage) -> list[Rows]:
    """Return the roles, functions, privileges, settings and states that a successful attack would change."""
    return [stage.sql(query) for query in STANDING]


def test_the_same_model_comes_out(scene: Scene) -> None:
    """An attack that raises no error changes no bit of the trained weights."""
    for name in ("plain", "struck"):
        scene.attack(SEGMENT if name == "struck" else NOWHERE, loud=False)
        scene.call(
            f"SELECT cerebro.madlib_fit('lab.packed', 'lab.{name}', 'lab.arch', 1, $${SGD}$$, '{FITTED}', 1,"
            " options => '{\"seed\": 5}')"
        )
    scene.attack(NOWHERE, loud=False)
    plain, struck = (
        bytes(scene.stage.sql(f"SELECT model_weights FROM lab.{name}")[0][0]) for name in ("plain", "struck")
    )
    assert plain == struck


def test_the_guard_is_out_of_its_owners_reach(scene: Scene) -> None:
    """The user owns the guard, but cannot change, drop or call it from another session.

    A run also works after an administrator has assigned all objects of the user to another owner.
    """
    stage = scene.stage
    scene.call(FIT.format("warm"))
    guards = stage.sql(
        "SELECT format('%%I.%%I()', n.nspname, p.proname) FROM pg_proc AS p JOIN pg_namespace AS n"
        " ON n.oid = p.pronamespace WHERE p.proname LIKE '\\_cerebro\\_guard%%' AND p.proowner = %s::regrole",
        scene.mallory,
    )
    assert guards
    for (guard,) in guards:
        for change in (
            f"ALTER FUNCTION {guard} SECURITY INVOKER",
            f"DROP FUNCTION {guard}",
            f"SELECT {guard}",
        ):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                scene.call(change)
    stage.named("REASSIGN OWNED BY {0} TO CURRENT_USER", scene.mallory)
    assert stage.sql(
        "SELECT 1 FROM pg_proc WHERE proname LIKE '\\_cerebro\\_guard%'"
        " AND proowner::regrole::text = current_user"
    )
    stage.named("GRANT ALL ON SCHEMA lab TO {0}; GRANT ALL ON ALL TABLES IN SCHEMA lab TO {0}", scene.mallory)
    scene.attack(SEGMENT, loud=True)
    report = scene.report(FIT.format("after"))
    scene.attack(NOWHERE, loud=False)
    assert (report["user"], report["session"]) == (scene.mallory, scene.mallory)
