"""A database that was dumped and restored has the same models and runs, and its runs can be resumed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg2
import pytest
from psycopg2 import sql as syntax

from fixtures import Connection, Rows, execute
from programs import program
from stage import connect, stage, unique

pytestmark = pytest.mark.slow

FIT = (
    "SELECT cerebro.madlib_fit_multiple_model('lab.packed', 'lab.{0}', 'lab.mst', {1}, FALSE,"
    " 'lab.packed_val', options => '{{\"seed\": 5}}')"
)
WARM = (
    "SELECT cerebro.madlib_fit_multiple_model('lab.packed', 'lab.m', 'lab.mst', 1, warm_start => TRUE,"
    " options => '{\"seed\": 6}')"
)
# The run ends in its second epoch, with whatever was committed until then.
FAILING = """
CREATE FUNCTION lab.fail() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
IF current_setting('application_name') LIKE 'cerebro visit%epoch=2%' THEN RAISE 'the power is gone'; END IF;
RETURN TRUE; END $$;
ALTER TABLE lab.packed ENABLE ROW LEVEL SECURITY;
ALTER TABLE lab.packed FORCE ROW LEVEL SECURITY;
CREATE POLICY fail ON lab.packed USING (lab.fail());
"""
MENDED = """
ALTER TABLE lab.packed DISABLE ROW LEVEL SECURITY; ALTER TABLE lab.packed NO FORCE ROW LEVEL SECURITY;
DROP POLICY fail ON lab.packed; DROP FUNCTION lab.fail();
"""
REGISTERED = (
    "SELECT cerebro.register_function('my_crossentropy', $$from keras.losses import categorical_crossentropy"
    " as my_crossentropy$$, 'loss')",
    "SELECT cerebro.grant_function('my_crossentropy', '{0}')",
    # A grant to a dropped role: another role may have its number on the server that restores the dump.
    "CREATE ROLE {0}_gone",
    "SELECT cerebro.grant_function('my_crossentropy', '{0}_gone')",
    "DROP ROLE {0}_gone",
)
VERSIONED = (
    "SELECT cerebro.register('lab.m', 'kept', 1, 'before the dump', '{{}}')",
    "SELECT cerebro.register('lab.m', 'kept')",
    "SELECT cerebro.set_alias('kept', 'champion', 2)",
    "SELECT cerebro.check('kept@2', 'lab.held')",
    "SELECT cerebro.grant_model('kept', 'public', 'predict')",
    "SELECT cerebro.grant_model('kept', '{0}_left', 'predict')",
)
GROUPED = (
    "CREATE TABLE lab.many AS SELECT r.*, s AS shop FROM lab.rows AS r, generate_series(1, 2) AS s",
    "SELECT cerebro.training_preprocessor_dl('lab.many', 'lab.shops', 'y', 'x',"
    ' options => \'{{"group_by": ["shop"], "segments": 1}}\')',
    "SELECT cerebro.madlib_fit_multiple_model('lab.shops', 'lab.each', 'lab.mst', 1)",
    "SELECT cerebro.register('lab.each', 'shops')",
    "SELECT cerebro.set_alias('shops', 'champion', 1)",
)
# As cerebro.schedule leaves them, where there is a pg_cron.
SCHEDULED = (
    "INSERT INTO cerebro._schedule (name, alias, schedule, job_id, role, source, promote, options)"
    " VALUES ('kept', 'champion', '0 3 * * 1', 7, '{0}', 'lab.rows', 'never', '{{\"seed\": 2}}')",
    "INSERT INTO cerebro._schedule_run (name, alias, role, pid, outcome, version, promoted, reason, ended_at)"
    " VALUES ('kept', 'champion', '{0}', 1, 'done', 2, FALSE, 'it is not better', now())",
    "INSERT INTO cerebro._schedule_run (name, alias, role, pid) VALUES ('kept', 'champion', '{0}', 1)",
)
PREDICTIONS = (
    "SELECT id, p.class, p.probability FROM lab.held, cerebro.predict('lab.m', 1, x::float8[]) AS p"
    " ORDER BY id"
)
BY_VERSION = PREDICTIONS.replace("'lab.m', 1", "'kept@champion', NULL")
BY_GROUPS = (
    "SELECT id, shop, p.class, p.probability FROM lab.many AS m, cerebro.predict('shops@champion', m) AS p"
    " ORDER BY id, shop"
)
RIGHTS = """
SELECT relname::text, relacl::text, relrowsecurity FROM pg_class WHERE relnamespace = 'cerebro'::regnamespace
UNION ALL SELECT oid::regprocedure::text, proacl::text, prosecdef FROM pg_proc
    WHERE pronamespace = 'cerebro'::regnamespace
UNION ALL SELECT nspname::text, nspacl::text, NULL FROM pg_namespace WHERE nspname = 'cerebro'
UNION ALL SELECT polrelid::regclass::text, pg_get_expr(polqual, polrelid), NULL FROM pg_policy ORDER BY 1, 2
"""
SAME = {
    "settings": "SELECT * FROM cerebro.settings ORDER BY 1",
    "rights": RIGHTS,
    "models": "SELECT m::text FROM cerebro.models AS m WHERE name <> 'orphan' ORDER BY 1",
    **{
        view: f"SELECT v::text FROM cerebro.{view} AS v ORDER BY 1"
        for view in (
            "runs",
            "visits",
            "metrics",
            "leaderboard",
            "progress",
            "sizes",
            "costs",
            "functions",
            "model_versions",
            "model_history",
            "model_health",
            "schedules",
            "schedule_runs",
        )
    },
}


@dataclass(frozen=True)
class Copies:
    """A database, the database restored from its dump, the owner of their tables, and an interrupted run."""

    original: Connection
    restored: Connection
    owner: str
    broken: int


def _as(connection: Connection, role: str, *statements: str) -> Rows:
    """Run statements as a role, and return the rows of the last statement."""
    execute(connection, syntax.SQL("SET SESSION AUTHORIZATION {}").format(syntax.Identifier(role)))
    try:
        return [execute(connection, statement) for statement in statements][-1]
    finally:
        execute(connection, "RESET SESSION AUTHORIZATION")


@pytest.fixture(scope="module")
def copies(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copies]:
    restored = unique("restored")
    with stage(database) as made:
        owner = made.role("owner")
        made.lab(owner, "lab")
        for statement in REGISTERED:
            made.sql(statement.format(owner))
        with made.acting(owner):
            made.sql("UPDATE lab.mst SET compile_params = replace(compile_params, 'categorical_', 'my_')")
            made.sql(FIT.format("m", 1))
        made.sql(f"CREATE ROLE {owner}_left; SELECT cerebro.grant_usage('{owner}_left')")
        with made.acting(owner):
            for statement in (*VERSIONED, *GROUPED):
                made.sql(statement.format(owner))
        made.sql("SELECT cerebro.register('kept@1', 'orphan')")
        made.sql(f"SELECT cerebro.set_model_owner('orphan', '{owner}_left')")
        for statement in SCHEDULED:
            made.sql(statement.format(owner))
        made.sql(f"DROP OWNED BY {owner}_left; DROP ROLE {owner}_left")
        with made.acting(owner):
            made.sql(FAILING)
            with pytest.raises(Exception, match="the power is gone"):
                made.sql(FIT.format("broken", 3))
            made.sql(MENDED)
        ((broken,),) = made.sql("SELECT run_id FROM cerebro.runs WHERE model_table = 'lab.broken'")
        made.sql(f"CREATE DATABASE {restored} TEMPLATE template0")
        try:
            _copy(database, restored, tmp_path_factory.mktemp("dump") / "dump")
            with closing(connect(restored)) as other:
                yield Copies(made.connection, other, owner, broken)
        finally:
            made.sql(f"DROP DATABASE {restored} WITH (FORCE)")


def _copy(source: str, target: str, file: Path) -> None:
    subprocess.run([program("pg_dump"), "-Fc", "-f", str(file), source], check=True)
    subprocess.run([program("pg_restore"), "--exit-on-error", "-d", target, str(file)], check=True)


@pytest.mark.parametrize("what", SAME)
def test_all_is_as_it_was(copies: Copies, what: str) -> None:
    before = execute(copies.original, SAME[what])
    assert before
    assert execute(copies.restored, SAME[what]) == before


def test_a_grant_to_a_dropped_role_is_not_restored(copies: Copies) -> None:
    grants = "SELECT role::text FROM cerebro._function_grant ORDER BY role::text"
    assert len(execute(copies.original, grants)) == 2
    assert execute(copies.restored, grants) == [(copies.owner,)]


def test_a_registered_model_is_restored_whole(copies: Copies) -> None:
    before = _as(copies.original, copies.owner, BY_VERSION)
    assert len(before) == 4
    assert _as(copies.restored, copies.owner, BY_VERSION) == before
    grants = "SELECT role::oid FROM cerebro._model_grant"
    assert len(execute(copies.original, grants)) == 2
    assert execute(copies.restored, grants) == [(0,)]
    assert _as(copies.restored, copies.owner, "SELECT cerebro.register('lab.m', 'kept', 1)") == [(3,)]
    ids = "SELECT count(DISTINCT version_id), count(*) FROM cerebro._model_version"
    assert execute(copies.restored, ids) == [(5, 5)]
    numbers = "SELECT max(event_id) FROM cerebro._model_event"
    ((last,),) = execute(copies.restored, numbers)
    change = "SELECT cerebro.set_alias('kept', 'champion', 1)"
    assert _as(copies.restored, copies.owner, change)
    assert execute(copies.restored, numbers) == [(last + 1,)]


def test_a_registered_model_of_groups_is_restored_whole(copies: Copies) -> None:
    before = _as(copies.original, copies.owner, BY_GROUPS)
    assert len(before) == 24
    assert _as(copies.restored, copies.owner, BY_GROUPS) == before


def test_a_model_whose_owner_is_gone_is_nobodys(copies: Copies) -> None:
    """A restored model of a dropped role has no owner, even if another role has the number of this role."""
    asked = "SELECT owner FROM cerebro.models WHERE name = 'orphan'"
    assert execute(copies.original, asked)[0][0].isdecimal()
    assert execute(copies.restored, asked) == [(None,)]
    assert _as(copies.restored, copies.owner, asked) == []
    given = "SELECT cerebro.set_model_owner('orphan', %s)"
    with pytest.raises(psycopg2.Error, match="no registered model 'orphan'"):
        _as(copies.restored, copies.owner, given.replace("%s", f"'{copies.owner}'"))
    execute(copies.restored, given, copies.owner)
    assert _as(copies.restored, copies.owner, asked) == [(copies.owner,)]
    execute(copies.restored, "SELECT cerebro.unregister('orphan')")


def test_a_run_of_a_schedule_that_was_dumped_is_interrupted(copies: Copies) -> None:
    asked = "SELECT outcome FROM cerebro.schedule_runs ORDER BY schedule_run_id"
    assert execute(copies.restored, asked) == [("done",), ("interrupted",)]
    assert _as(copies.restored, copies.owner, "SELECT cerebro.unschedule('kept', 'champion')",
               "SELECT count(*) FROM cerebro.schedules") == [(0,)]  # fmt: skip


def test_predictions_are_equal(copies: Copies) -> None:
    before = _as(copies.original, copies.owner, PREDICTIONS)
    assert len(before) == 4
    assert _as(copies.restored, copies.owner, PREDICTIONS) == before


def test_the_broken_run_goes_on_to_the_same_bits(copies: Copies) -> None:
    """The interrupted run, resumed in the restored database, ends like a whole run in the original."""
    query = "SELECT mst_key, model_weights FROM lab.{0}"
    _as(copies.restored, copies.owner, f"SELECT cerebro.resume({copies.broken})")
    _as(copies.original, copies.owner, FIT.format("whole", 3))
    resumed, whole = (
        [(key, bytes(data)) for key, data in execute(connection, query.format(name))]
        for connection, name in ((copies.restored, "broken"), (copies.original, "whole"))
    )
    assert resumed == whole


def test_new_runs_get_new_numbers(copies: Copies) -> None:
    ((last,),) = execute(copies.restored, "SELECT max(run_id) FROM cerebro._run")
    _as(copies.restored, copies.owner, FIT.format("later", 1))
    ((number,),) = execute(copies.restored, "SELECT run_id FROM lab.later_summary")
    assert number > last


def test_a_warm_start_goes_on_from_the_same_state(copies: Copies) -> None:
    found = []
    for connection in (copies.original, copies.restored):
        connection.notices.clear()
        _as(connection, copies.owner, WARM)
        assert "from their weights alone" not in "".join(connection.notices)
        found.append(bytes(execute(connection, "SELECT model_weights FROM lab.m")[0][0]))
    assert found[0] == found[1]
