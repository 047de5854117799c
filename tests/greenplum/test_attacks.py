"""Code of a user's behind a policy of the packed table, on a cluster: it runs on the segments, or, where the
policy asks for it beforehand, on the coordinator; in both, in the sessions that belong to a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import psycopg2
import pytest

from fixtures import Connection, execute
from stage import FITTED, SGD, Stage, connect, stage

pytestmark = pytest.mark.greenplum

# What each must be answered on the coordinator and on a segment; the function that tries puts {owner} in.
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
    "CALL cerebro._errand('visit', '{}')": (FORBIDDEN, NOT_HERE),
    "SELECT cerebro._on_segment('give', '')": (FORBIDDEN, FORBIDDEN),
    "SELECT cerebro._begin_errand('visit', '{}')": (FORBIDDEN, FORBIDDEN),
    "SELECT cerebro._work('{}')": (FORBIDDEN, FORBIDDEN),
    "SELECT cerebro._show('me')": (FORBIDDEN, FORBIDDEN),
    "SELECT set_config('gp_role', 'utility', FALSE)": ("55P02", "55P02"),
    # The caller's own scan calls it, with the ticket of a load.
    "SELECT cerebro._take_buffer('', 0, '[]', ARRAY[]::bytea[])": (WRONG_STATE, WRONG_STATE),
}
WORLD = """
CREATE SCHEMA attack;
CREATE TABLE attack.attempts (number integer, statement text) DISTRIBUTED REPLICATED;
CREATE TABLE attack.written (who text) DISTRIBUTED BY (who);
-- The coordinator's processes know the command that came to them, a segment's the statement it was sent.
CREATE FUNCTION attack.place() RETURNS text LANGUAGE sql AS $$
SELECT CASE
    WHEN current_query() ~ '^(CALL cerebro._errand[(]''visit|SELECT json_agg)' THEN 'visiting'
    WHEN current_query() ~ '^(CALL cerebro._errand|SELECT __dist_key__)' THEN 'control'
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
ALTER TABLE lab.packed ENABLE ROW LEVEL SECURITY;
ALTER TABLE lab.packed FORCE ROW LEVEL SECURITY;
CREATE POLICY attack ON lab.packed USING (TRUE);
"""
FIT = f"SELECT cerebro.madlib_fit('lab.packed', 'lab.m', 'lab.arch', 1, $${SGD}$$, '{FITTED}', 1)"
# On a segment it is called for the rows; for the coordinator to call it, it must not depend on any.
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
