"""A user's code that is called in the driving session of a background run gets no rights of its superuser.

The driving session has logged in as a superuser. It calls the user's code by a row security policy on the
summary of the packed table, by the type of the class values, and by triggers, defaults and checks of result
tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import psycopg2
import pytest

from fixtures import Connection, Rows, execute
from stage import FITTED, SGD, Stage, connect, stage

pytestmark = pytest.mark.slow

# {me}, {owner}, {reads} and {writes} are put in by the function that tries them; what each must be answered.
ATTEMPTS = {
    "RESET SESSION AUTHORIZATION": "42501",
    "SET SESSION AUTHORIZATION {owner}": "42501",
    "SELECT set_config('session_authorization', '{owner}', FALSE)": "42501",
    "SET ROLE {owner}": "42501",
    "ALTER ROLE {me} SUPERUSER": "25006",
    "SELECT cerebro._as_owner()": "42501",
    """SELECT cerebro._segment('drive', '{"run_id": 1, "role": "postgres"}')""": "42501",
    """CALL cerebro._command('visit', '{"run_id": 1}')""": "42501",
    """SELECT cerebro._begin_command('visit', '{"run_id": 1}')""": "42501",
    "SELECT cerebro._go_on(NULL)": "42501",
    "SELECT cerebro._work('{}')": "42501",
    "SELECT cerebro._show('me')": "42501",
    "SELECT {writes}": "42501",
    "SELECT {reads}": "42501",
    "ALTER FUNCTION {writes} SECURITY INVOKER": "25006",
    "CREATE OR REPLACE FUNCTION {writes} RETURNS void LANGUAGE sql AS 'SELECT'": "25006",
    "SET TRANSACTION READ WRITE": "25001",
    "INSERT INTO attack.written VALUES ('in the middle')": "25006",
    "INSERT INTO attack.put_off VALUES (1)": "25006",
    "SELECT * FROM cerebro.settings": "42501",
    "COMMIT": "0A000",
    # This is done, and undone: it would run at the commit, with the rights of whoever has logged in.
    "DECLARE attack CURSOR WITH HOLD FOR SELECT attack.write_late()": "ok",
}
WORLD = """
CREATE SCHEMA attack;
CREATE TABLE attack.mode (loud boolean);
INSERT INTO attack.mode VALUES (FALSE);
CREATE TABLE attack.attempts (number integer, statement text);
CREATE TABLE attack.written (who text);
CREATE TABLE attack.put_off (x integer);
CREATE FUNCTION attack.driving() RETURNS boolean LANGUAGE sql AS
$$SELECT current_setting('application_name') LIKE 'cerebro drive%'$$;
CREATE FUNCTION attack.write_late() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN INSERT INTO attack.written VALUES (session_user || ' as ' || current_user); RETURN 1; END $$;
CREATE FUNCTION attack.fire() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM attack.write_late(); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON attack.put_off DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION attack.fire();
CREATE FUNCTION attack.of_class(class anyelement) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF attack.driving() THEN INSERT INTO attack.put_off VALUES (1); END IF;
    RETURN TRUE;
END $$;
CREATE FUNCTION attack.policy() RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE
    one record;
    report jsonb := '{}';
    reads text := (SELECT min(oid::regprocedure::text) FROM pg_proc
        WHERE pronamespace = pg_my_temp_schema() AND proname LIKE '\\_cerebro\\_guard%');
    writes text := (SELECT min(oid::regprocedure::text) FROM pg_proc
        WHERE pronamespace = pg_my_temp_schema() AND proname LIKE '\\_cerebro\\_driver%');
    owner text := (SELECT extowner::regrole::text FROM pg_extension WHERE extname = 'cerebro');
BEGIN
    IF NOT attack.driving() THEN RETURN TRUE; END IF;
    FOR one IN SELECT * FROM attack.attempts ORDER BY number LOOP
        BEGIN
            EXECUTE replace(replace(replace(replace(one.statement, '{me}', current_user), '{owner}', owner),
                '{reads}', reads), '{writes}', writes);
            report := report || jsonb_build_object(one.number::text, 'ok');
        EXCEPTION WHEN OTHERS THEN
            report := report || jsonb_build_object(one.number::text, SQLSTATE);
        END;
    END LOOP;
    IF (SELECT loud FROM attack.mode) THEN
        RAISE '%', report || jsonb_build_object('user', current_user, 'session', session_user);
    END IF;
    RETURN TRUE;
END $f$;
"""
POLICY = """
ALTER TABLE lab.packed_summary ENABLE ROW LEVEL SECURITY;
ALTER TABLE lab.packed_summary FORCE ROW LEVEL SECURITY;
CREATE POLICY attack ON lab.packed_summary USING (attack.policy());
"""


@dataclass(frozen=True)
class Scene:
    stage: Stage
    mallory: str
    login: Connection

    def fit(self, out: str, epochs: int = 1, fitted: str = FITTED, *, warm: bool = False) -> int:
        """Start a run in the background as the user, and return its run_id."""
        options = json.dumps({"seed": 5, "background": True})
        execute(
            self.login,
            f"SELECT cerebro.madlib_fit('lab.packed', 'lab.{out}', 'lab.arch', 1, %s, %s, %s, options => %s,"
            " warm_start => %s)",
            SGD, fitted, epochs, options, warm,
        )  # fmt: skip
        return int(execute(self.login, "SELECT cerebro.last_run()")[0][0])

    def ended(self, run_id: int) -> Rows:
        execute(self.login, "SELECT cerebro.wait(%s, '60 s')", run_id)
        return execute(self.login, "SELECT status, detail FROM cerebro.runs WHERE run_id = %s", run_id)

    def loud(self, loud: bool) -> None:
        self.stage.sql("UPDATE attack.mode SET loud = %s", loud)


@pytest.fixture(scope="module")
def scene(database: str) -> Iterator[Scene]:
    with stage(database) as made:
        mallory = made.role("mallory")
        made.lab(mallory, "lab")
        made.sql(WORLD)
        made.arm(mallory, ATTEMPTS)
        made.sql(POLICY)
        with closing(connect(database, mallory)) as login:
            yield Scene(made, mallory, login)


def test_what_code_behind_the_summary_may_do(scene: Scene) -> None:
    scene.loud(True)
    ((status, detail),) = scene.ended(scene.fit("loud"))
    scene.loud(False)
    assert status == "failed"
    report = json.loads(detail[detail.index("{") :])
    assert (report.pop("user"), report.pop("session")) == (scene.mallory, scene.mallory)
    labels = list(ATTEMPTS)
    assert {labels[int(number)]: found for number, found in report.items()} == ATTEMPTS
    assert scene.stage.value("SELECT to_regclass('lab.loud') IS NULL")


def test_nothing_stays(scene: Scene) -> None:
    assert scene.ended(scene.fit("silent")) == [("finished", None)]
    assert scene.stage.sql("SELECT * FROM attack.written") == []
    assert scene.stage.sql("SELECT * FROM attack.put_off") == []
    assert scene.stage.value("SELECT rolsuper FROM pg_roles WHERE rolname = %s", scene.mallory) is False
    owners = scene.stage.sql(
        "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relname LIKE 'silent%%'"
    )
    assert owners == [(scene.mallory,)]


def test_no_code_behind_a_type_runs(scene: Scene) -> None:
    """The class values have a domain as type, whose check must not run when the run writes its summary."""
    scene.stage.sql(
        "CREATE DOMAIN attack.class AS integer CHECK (attack.of_class(VALUE));"
        "ALTER TABLE lab.packed_summary ALTER COLUMN y_class_values TYPE attack.class[]"
    )
    assert scene.ended(scene.fit("typed")) == [("finished", None)]
    assert scene.stage.sql("SELECT * FROM attack.written") == []
    assert scene.stage.sql("SELECT * FROM attack.put_off") == []
    kinds = "SELECT pg_typeof(y_class_values)::text, y_class_values FROM lab.typed_summary"
    assert scene.stage.sql(kinds) == [("text[]", ["0", "1"])]


def test_no_code_on_the_tables_that_a_warm_start_replaces_runs(scene: Scene) -> None:
    """The tables that a warm start replaces have triggers, a default and a check; none of them may run."""
    stage, written = scene.stage, "attack.write_late()"
    stage.sql("GRANT ALL ON attack.written, attack.put_off TO PUBLIC; GRANT USAGE ON SCHEMA attack TO PUBLIC")
    assert scene.ended(scene.fit("hung")) == [("finished", None)]
    before = stage.value("SELECT model_weights FROM lab.hung")
    stage.sql(
        "CREATE TRIGGER t AFTER INSERT ON lab.hung FOR EACH ROW EXECUTE FUNCTION attack.fire();"
        "CREATE TRIGGER u AFTER TRUNCATE ON lab.hung EXECUTE FUNCTION attack.fire();"
        f"ALTER TABLE lab.hung_summary ALTER name SET DEFAULT {written}::text;"
        f"ALTER TABLE lab.hung_summary ADD CHECK ({written} = 1) NOT VALID"
    )
    stage.sql("TRUNCATE attack.written")
    assert scene.ended(scene.fit("hung", warm=True)) == [("finished", None)]
    assert stage.value("SELECT model_weights FROM lab.hung") != before
    assert stage.sql("SELECT * FROM attack.written") == []


def test_rights_are_those_of_the_moment(scene: Scene) -> None:
    """If SELECT on the packed table is revoked during a run, its next visit fails and no table is left."""
    scene.stage.sql("DROP POLICY attack ON lab.packed_summary")
    scene.stage.sql("ALTER TABLE lab.packed_summary NO FORCE ROW LEVEL SECURITY")
    run_id = scene.fit("revoked", 100_000)
    visited = "SELECT count(*) > 3 FROM cerebro.visits WHERE run_id = %s"
    while not scene.stage.value(visited, run_id):
        pass
    # The table's owner may lose this right too.
    scene.stage.named("REVOKE ALL ON lab.packed FROM {0}", scene.mallory)
    ((status, detail),) = scene.ended(run_id)
    assert status == "failed"
    assert "permission denied for table packed" in detail
    assert scene.stage.value("SELECT to_regclass('lab.revoked') IS NULL")


def test_a_stranger_is_refused_by_the_driver(scene: Scene) -> None:
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        execute(scene.login, """SELECT cerebro._segment('drive', '{"run_id": 1, "role": "postgres"}')""")
