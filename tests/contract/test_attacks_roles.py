"""A role cannot use what another role has read, trained or opened in the same session or function."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import psycopg2
import pytest

from fixtures import Connection, execute
from stage import FITTED, SGD, Stage, connect, stage

pytestmark = pytest.mark.slow

FIT = f"SELECT cerebro.madlib_fit('lab.packed', '{{0}}', '{{1}}.arch', 1, $${SGD}$$, '{FITTED}', 1)"
PREDICT = "SELECT cerebro.predict('lab.m', 1, ARRAY[1, 2, 3, 4]::float8[])"
EVALUATE = "SELECT cerebro.madlib_evaluate('lab.m', 'lab.packed_val', '{0}', FALSE, 1)"
VIEWS = ("runs", "visits", "metrics", "leaderboard", "progress", "sizes", "costs")


@dataclass(frozen=True)
class Scene:
    stage: Stage
    owner: str
    other: str
    run: int


@pytest.fixture(scope="module")
def scene(database: str) -> Iterator[Scene]:
    with stage(database) as made:
        owner, other = made.role("owner"), made.role("other")
        made.lab(owner, "lab")
        made.lab(other, "own")
        made.sql("GRANT USAGE ON SCHEMA lab TO PUBLIC; GRANT SELECT ON lab.packed_summary TO PUBLIC")
        with made.acting(owner):
            run = made.fit()
        yield Scene(made, owner, other, run)


@pytest.fixture(scope="module", params=["SET ROLE", "SET SESSION AUTHORIZATION"])
def shared(scene: Scene, request: pytest.FixtureRequest) -> Iterator[Connection]:
    """A session as of a connection pool: `owner` has trained and predicted in it, now it acts as `other`."""
    with closing(connect(scene.stage.connection.info.dbname)) as session:
        execute(session, f"{request.param} {scene.owner}")
        execute(session, FIT.format(f"lab.s_{len(request.param)}", "lab"))
        execute(session, PREDICT)
        execute(session, EVALUATE.format(f"lab.e_{len(request.param)}"))
        execute(session, "RESET ROLE; RESET SESSION AUTHORIZATION")
        execute(session, f"{request.param} {scene.other}")
        yield session


@pytest.mark.parametrize("call", [
    FIT.format("own.s", "own"), PREDICT, EVALUATE.format("own.e"), "TABLE lab.packed",
    f"BEGIN ISOLATION LEVEL REPEATABLE READ; {FIT.format('own.s', 'own')}",
])  # fmt: skip
def test_nothing_that_another_role_has_read_is_used(shared: Connection, call: str) -> None:
    """The rows are still in the memory of segment sessions, and the model in the memory of this session."""
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        execute(shared, call)
    if call.startswith("BEGIN"):
        execute(shared, "ROLLBACK")


def test_each_role_has_its_own_sessions(shared: Connection, scene: Scene) -> None:
    execute(shared, "DROP TABLE IF EXISTS own.mine, own.mine_summary")
    execute(shared, FIT.format("own.mine", "own").replace("lab.packed", "own.packed"))
    shares = scene.stage.sql(
        "SELECT pid, count(DISTINCT owner) FROM cerebro.visits JOIN cerebro.runs USING (run_id) GROUP BY 1"
    )
    assert len(shares) >= 2
    assert {roles for _, roles in shares} == {1}


def test_a_right_that_is_taken_away_is_gone_at_once(scene: Scene) -> None:
    """A second fit is refused after a REVOKE, although its rows are still in memory and unchanged."""
    grants = ("SELECT (y) ON lab.packed", "SELECT (x) ON lab.packed", "SELECT ON lab.packed_summary")
    scene.stage.named(
        "GRANT SELECT (__dist_key__, x, x_shape, y, y_shape, buffer_id) ON lab.packed TO {0}", scene.other
    )
    with closing(connect(scene.stage.connection.info.dbname, scene.other)) as session:
        for number, right in enumerate(grants):
            execute(session, FIT.format(f"own.before_{number}", "own"))
            whom = "PUBLIC" if "summary" in right else scene.other
            scene.stage.sql(f"REVOKE {right} FROM {whom}")
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                execute(session, FIT.format(f"own.after_{number}", "own"))
            scene.stage.sql(f"GRANT {right} TO {whom}")
    scene.stage.named("REVOKE ALL ON lab.packed FROM {0}", scene.other)


def test_through_a_function_of_its_owner(scene: Scene) -> None:
    """A SECURITY DEFINER function has its owner's rights; after the call, its caller has none of them."""
    with scene.stage.acting(scene.owner):
        scene.stage.sql(
            "CREATE FUNCTION lab.train(name text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER"
            " SET search_path = pg_catalog AS $f$ BEGIN PERFORM cerebro.madlib_fit('lab.packed',"
            f" 'lab.' || name, 'lab.arch', 1, $${SGD}$$, '{FITTED}', 1); END $f$"
        )
    with closing(connect(scene.stage.connection.info.dbname, scene.other)) as session:
        execute(session, "SELECT lab.train('lent')")
        assert scene.stage.sql("SELECT owner FROM cerebro.runs WHERE model_table = 'lab.lent'") == [
            (scene.owner,)
        ]
        assert execute(session, "SELECT count(*) FROM cerebro.runs WHERE model_table = 'lab.lent'") == [(0,)]
        for statement in ("SELECT * FROM lab.lent", FIT.format("own.lent", "own"), PREDICT):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                execute(session, statement)


@pytest.mark.parametrize("view", VIEWS)
def test_a_leaky_function_sees_no_row_of_others(scene: Scene, view: str) -> None:
    """The function prints its argument, and costs so little that the planner would call it first."""
    with closing(connect(scene.stage.connection.info.dbname, scene.other)) as session:
        execute(
            session,
            "CREATE FUNCTION pg_temp.leak(bigint) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS"
            " $$ BEGIN RAISE NOTICE 'run %', $1; RETURN TRUE; END $$",
        )
        execute(session, f"SELECT * FROM cerebro.{view} WHERE pg_temp.leak(run_id)")
        assert f"run {scene.run}\n" not in "".join(session.notices)
        # The owner of the run does see it, so its absence above means something.
    with scene.stage.acting(scene.owner):
        assert scene.run in {number for (number,) in scene.stage.sql(f"SELECT run_id FROM cerebro.{view}")}


def test_views_are_barriers_and_tables_have_policies(scene: Scene) -> None:
    views = scene.stage.sql(
        "SELECT relname FROM pg_class WHERE relnamespace = 'cerebro'::regnamespace AND relkind = 'v'"
        " AND NOT 'security_barrier=true' = ANY (coalesce(reloptions, '{}'))"
    )
    assert views == []
    tables = scene.stage.sql(
        "SELECT c.relname, c.relrowsecurity, array_agg(p.polname::text) FROM pg_class AS c"
        " LEFT JOIN pg_policy AS p ON p.polrelid = c.oid"
        " WHERE c.relnamespace = 'cerebro'::regnamespace AND c.relkind IN ('r', 'p') GROUP BY 1, 2 ORDER BY 1"
    )
    assert all(secured for _, secured, _ in tables)
    # With row security and no policy nobody sees a row.
    without = [name for name, _, policies in tables if policies == [None]]
    registry = [name for name in without if name.startswith(("_model", "_schedule"))]
    assert len(registry) == 10
    assert sorted({*without} - {*registry}) == ["_drift", "_function", "_function_grant", "_rate", "settings"]
    assert all(policies == ["owner"] for name, _, policies in tables if name not in without)


def test_granted_tables_show_own_rows_alone(scene: Scene) -> None:
    """Even if SELECT on the extension's tables is granted, a role sees only the rows of its own runs."""
    scene.stage.named("GRANT SELECT ON ALL TABLES IN SCHEMA cerebro TO {0}", scene.other)
    try:
        with scene.stage.acting(scene.other):
            for (name,) in scene.stage.sql(
                "SELECT attrelid::regclass::text FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid"
                " WHERE relnamespace = 'cerebro'::regnamespace AND relkind = 'r' AND attname = 'run_id'"
            ):
                assert scene.stage.sql(f"SELECT 1 FROM {name} WHERE run_id = {scene.run}") == [], name
    finally:
        scene.stage.named("REVOKE SELECT ON ALL TABLES IN SCHEMA cerebro FROM {0}", scene.other)
        scene.stage.sql("SELECT cerebro.grant_usage(%s)", scene.other)


def test_names_and_locks_that_anybody_may_take_count_for_nothing(scene: Scene) -> None:
    """A session with the application_name of a visit and the lock of a run does not count as the run's."""
    with closing(connect(scene.stage.connection.info.dbname, scene.other)) as session:
        execute(session, f"SET application_name = 'cerebro visit run={scene.run} config=1 epoch=1 segment=0'")
        execute(
            session,
            "SELECT pg_advisory_lock(%s, n) FROM generate_series(216268800, 216269800) AS n",
            scene.run,
        )
        assert scene.stage.sql("SELECT status FROM cerebro.runs WHERE run_id = %s", scene.run) == [
            ("finished",)
        ]
        progress = scene.stage.sql("SELECT status FROM cerebro.progress WHERE run_id = %s", scene.run)
        assert progress == [("finished",)]


def test_another_runs_state_cannot_be_named_in_a_summary(scene: Scene) -> None:
    """A user who writes another user's run_id into a summary table cannot use the states of that run."""
    with scene.stage.acting(scene.other):
        scene.stage.fit("own", "thief")
        scene.stage.sql(f"UPDATE own.thief_summary SET run_id = {scene.run}")
        scene.stage.sql("UPDATE own.thief SET model_weights = NULL")
        with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState):
            scene.stage.sql(
                "SELECT cerebro.madlib_evaluate('own.thief', 'own.packed', 'own.stolen', FALSE, 1)"
            )
        with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState):
            scene.stage.sql("SELECT cerebro.predict('own.thief', 1, ARRAY[1, 2, 3, 4]::float8[])")
