"""Code of a user in views, rules, defaults, indexes, casts or triggers gets no rights but the user's own.

The user calls functions of cerebro on tables whose use runs this code. The code tries to become another role
and to read tables of others. The tests check that it ran and that each attempt failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from fixtures import Connection, execute
from stage import ARCHITECTURE, FITTED, SGD, connect, stage

pytestmark = pytest.mark.slow

WORLD = """
CREATE SCHEMA attack;
CREATE SEQUENCE attack.ran;
CREATE FUNCTION attack.tried(statement text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        EXECUTE statement;
    EXCEPTION WHEN OTHERS THEN RETURN;
    END;
    IF current_setting('is_superuser') = 'on' OR statement LIKE '%cerebro.\\_%' THEN
        RAISE EXCEPTION 'got in as % by %', current_user, statement;
    END IF;
END $$;
CREATE FUNCTION attack.strike() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    PERFORM nextval('attack.ran');
    PERFORM attack.tried(s) FROM unnest(ARRAY[
        'RESET SESSION AUTHORIZATION', 'SET SESSION AUTHORIZATION DEFAULT', 'RESET ROLE', 'SET ROLE postgres',
        $s$SELECT set_config('role', 'postgres', false)$s$,
        $s$SELECT set_config('session_authorization', 'postgres', false)$s$,
        'SELECT cerebro._as_owner()', 'SELECT * FROM cerebro._state', 'SELECT * FROM cerebro._run',
        $s$SELECT cerebro._segment('visit', '{}')$s$]) AS s;
    RETURN 1;
END $$;
CREATE FUNCTION attack.fired() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM attack.strike(); RETURN NEW; END $$;
-- Said to be immutable, as an index wants it.
CREATE FUNCTION attack.same(n integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN PERFORM attack.strike(); RETURN n; END $$;
CREATE FUNCTION attack.good(n integer) RETURNS boolean LANGUAGE sql AS 'SELECT attack.strike() = 1';
CREATE TYPE attack.mood AS ENUM ('0', '1');
CREATE FUNCTION attack.as_text(attack.mood) RETURNS text LANGUAGE plpgsql AS $$
BEGIN PERFORM attack.strike(); RETURN 'a mood'; END $$;
"""
PACK = "SELECT cerebro.training_preprocessor_dl('attack.{0}', 'attack.packed_{0}', 'y', 'x')"
LOAD = f"SELECT cerebro.load_keras_model('attack.{{0}}', '{ARCHITECTURE}')"
MADE = f"SELECT cerebro.load_keras_model('attack.{{0}}', '{ARCHITECTURE}');"
FIT = (
    f"SELECT cerebro.madlib_fit('lab.packed', 'attack.m_{{0}}', 'attack.{{0}}', 1, $${SGD}$$, '{FITTED}', 1)"
)
# Statements that make the server run the user's code, and a call that leads to this code.
CARRIERS = {
    "a view": ("CREATE VIEW attack.{0} AS SELECT x, y + 0 * attack.strike() AS y FROM lab.rows", PACK),
    "a rule on a view": (
        "CREATE TABLE attack.{0} (x real[], y integer);"
        'CREATE RULE "_RETURN" AS ON SELECT TO attack.{0} DO INSTEAD'
        " SELECT x, y + 0 * attack.strike() AS y FROM lab.rows",
        PACK,
    ),
    "a domain": (
        "CREATE DOMAIN attack.number AS integer CHECK (attack.good(VALUE));"
        "CREATE VIEW attack.{0} AS SELECT x, y::attack.number AS y FROM lab.rows",
        PACK,
    ),
    "a cast": (
        "CREATE CAST (attack.mood AS text) WITH FUNCTION attack.as_text(attack.mood);"
        "CREATE VIEW attack.{0} AS SELECT x, y::text::attack.mood::text AS y FROM lab.rows",
        PACK,
    ),
    "a policy": (
        "CREATE TABLE attack.{0} AS TABLE lab.rows; ALTER TABLE attack.{0} ENABLE ROW LEVEL SECURITY;"
        "ALTER TABLE attack.{0} FORCE ROW LEVEL SECURITY;"
        "CREATE POLICY p ON attack.{0} USING (attack.good(y))",
        PACK,
    ),
    "a column default": (MADE + "ALTER TABLE attack.{0} ADD more integer DEFAULT attack.strike()", LOAD),
    "an index": (MADE + "CREATE INDEX ON attack.{0} (attack.same(model_id))", LOAD),
    "a condition of an index": (
        MADE + "CREATE INDEX ON attack.{0} (name) WHERE attack.same(model_id) > 0",
        LOAD,
    ),
    "a check": (MADE + "ALTER TABLE attack.{0} ADD CHECK (attack.good(model_id))", LOAD),
    "a trigger": (
        MADE + "CREATE TRIGGER t BEFORE INSERT ON attack.{0} FOR EACH ROW EXECUTE FUNCTION attack.fired()",
        LOAD,
    ),
    "a rule that does more": (
        MADE + "CREATE RULE r AS ON INSERT TO attack.{0} DO ALSO SELECT attack.strike()",
        LOAD,
    ),
    "a policy of the architectures": (
        MADE
        + "ALTER TABLE attack.{0} ENABLE ROW LEVEL SECURITY; ALTER TABLE attack.{0} FORCE ROW LEVEL SECURITY;"
        "CREATE POLICY p ON attack.{0} USING (attack.good(model_id))",
        FIT,
    ),
}


@pytest.fixture(scope="module")
def mallory(database: str) -> Iterator[Connection]:
    """A connection as the user mallory, who has logged in directly and not by SET SESSION AUTHORIZATION."""
    with stage(database) as made:
        role = made.role("mallory")
        made.lab(role, "lab")
        made.named(f"GRANT CREATE ON DATABASE {database} TO {{0}}", role)
        with closing(connect(database, role)) as connection:
            execute(connection, WORLD)
            yield connection


@pytest.mark.parametrize("carrier", CARRIERS)
def test_code_on_the_way_gets_nothing(mallory: Connection, carrier: str) -> None:
    if carrier == "a rule on a view" and mallory.server_version >= 160000:
        pytest.skip("from PostgreSQL 16 on a table cannot be made a view by a rule")
    setup, call = (text.replace("{0}", f"t{list(CARRIERS).index(carrier)}") for text in CARRIERS[carrier])
    execute(mallory, setup)
    before = execute(mallory, "SELECT last_value FROM attack.ran")
    execute(mallory, call)
    assert execute(mallory, "SELECT last_value FROM attack.ran") > before, "the code did not run"
    assert execute(mallory, "SELECT session_user = current_user, current_setting('is_superuser')") == [
        (True, "off")
    ]
