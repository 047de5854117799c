"""Citus: rows, visits and states are on the workers, and the bits are those of a single session."""

from __future__ import annotations

from contextlib import closing

import psycopg2
import pytest

import nets
from fixtures import CITUS_WORKERS, MakeRole, Rows, execute
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.citus
FEATURES, SEGMENTS = 12, 3
VIEWS = ("runs", "visits", "progress", "sizes", "costs", "metrics", "leaderboard")


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(600, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x[:500], y[:500]))
    trial.table("held_out", "x real[], y integer", rows_of(x[500:], y[500:]))
    trial.pack("blobs", "packed", buffer_size=50, options={"segments": SEGMENTS})
    trial.pack_validation("held_out", "packed_val", "packed")
    trial.model(nets.mlp(FEATURES))
    trial.select("mst", [1], [ADAM, SGD], ["batch_size=16,epochs=1", "batch_size=32,epochs=2"])


@pytest.fixture(scope="module")
def base(trial: Trial) -> int:
    """Train on the workers, and return the number of the run."""
    return trial.fit("packed", "base", "mst", 3, validation_table="packed_val")


def on_worker(number: int, query: str, database: str) -> Rows:
    with closing(psycopg2.connect(dbname=database, port=CITUS_WORKERS[number])) as connection:
        connection.autocommit = True
        return execute(connection, query)


def test_what_lies_where(trial: Trial, base: int) -> None:
    """Each segment's rows, visits and states are on one worker, and each worker has a segment."""
    nodes = """SELECT count(DISTINCT p.groupid) FROM pg_dist_placement AS p
        WHERE p.shardid = ANY (SELECT get_shard_id_for_distribution_column(%s, k.key)
                               FROM (SELECT DISTINCT {key} AS key FROM {table}) AS k)"""
    packed = trial.value(nodes.format(key="__dist_key__", table="packed"), "packed")
    assert packed == len(CITUS_WORKERS)
    assert trial.value(nodes.format(key="place", table="cerebro._visit"), "cerebro._visit") == packed
    by_segment = trial.sql("SELECT DISTINCT segment, place FROM cerebro._visit WHERE run_id = %s", base)
    keys = trial.value("SELECT __dist_keys__ FROM packed_summary")
    assert sorted(by_segment) == list(enumerate(keys))
    # A state is stored on the worker that made its visit.
    strayed = """SELECT count(*) FROM cerebro._state AS s WHERE s.run_id = %s AND s.step > 0 AND NOT EXISTS
        (SELECT FROM cerebro._visit AS v WHERE v.run_id = s.run_id AND v.mst_key = s.mst_key
            AND v.step = s.step AND v.place = s.place)"""
    assert trial.value(strayed, base) == 0


def test_bits_are_those_of_one_session(trial: Trial, base: int) -> None:
    """If its transaction does not see others' commits, the caller's session trains all segments itself."""
    trial.sql("BEGIN ISOLATION LEVEL REPEATABLE READ")
    alone = trial.fit("packed", "alone", "mst", 3, validation_table="packed_val")
    trial.sql("COMMIT")
    topologies = trial.sql(
        "SELECT topology FROM cerebro.runs WHERE run_id IN (%s, %s) ORDER BY run_id", base, alone
    )
    assert topologies == [("citus",), ("inline",)]
    assert trial.weights("alone") == trial.weights("base")
    measured = (
        "SELECT mst_key, epoch, dataset, metric, value FROM cerebro.metrics WHERE run_id = %s"
        " ORDER BY 1, 2, 3, 4"
    )
    assert trial.sql(measured, alone) == trial.sql(measured, base) != []


def test_a_role_trains_on_what_it_has_packed_and_sees_its_own_runs(
    trial: Trial, role: MakeRole, base: int
) -> None:
    """Citus checks the rights of a view's reader, who has none on the extension's distributed tables."""
    user = role()
    trial.sql(f"GRANT SELECT ON blobs, arch, mst, mst_summary TO {user}")
    with closing(psycopg2.connect(trial.connection.dsn, user=user)) as connection:
        connection.autocommit = True
        there = Trial(connection)
        there.pack("blobs", "own_packed", buffer_size=50, options={"segments": SEGMENTS})
        run_id = there.fit("own_packed", "own", "mst", 1)
        assert there.value("SELECT count(*) FROM cerebro.metrics WHERE run_id = %s", run_id) > 0
        for view in VIEWS:
            assert there.sql(f"SELECT DISTINCT run_id FROM cerebro.{view}") == [(run_id,)], view
            rows = f"SELECT v::text FROM cerebro.{view} AS v WHERE run_id = %s ORDER BY 1"
            assert there.sql(rows, run_id) == trial.sql(rows, run_id), view
            assert trial.sql(rows, base), view
    found = trial.sql("SELECT owner, topology, visits_done FROM cerebro.runs WHERE run_id = %s", run_id)
    assert found == [(user, "citus", 4 * SEGMENTS)]


def test_rows_that_were_packed_before_are_refused(trial: Trial) -> None:
    trial.sql("CREATE TABLE copied AS SELECT * FROM packed")
    trial.sql("CREATE TABLE copied_summary AS SELECT * FROM packed_summary")
    with pytest.raises(psycopg2.errors.WrongObjectType, match="does not lie on the workers") as caught:
        trial.fit("copied", "of_a_copy", "mst", 1)
    assert "Pack the rows again" in str(caught.value.diag.message_hint)


def test_each_node_says_whether_it_is_ready(trial: Trial) -> None:
    assert trial.sql("SELECT segment, ok FROM cerebro.segments_ready()") == [(n, True) for n in range(-1, 3)]


def test_distribute_says_what_is_in_the_way_or_takes_all_along(trial: Trial, empty_database: str) -> None:
    trial.notices()
    trial.sql("SELECT cerebro.distribute()")
    assert "distributed already" in trial.notices()
    with closing(psycopg2.connect(dbname=empty_database)) as connection:
        connection.autocommit = True
        execute(connection, "CREATE EXTENSION cerebro CASCADE")
        there = Trial(connection)
        there.table("blobs", "x real[], y integer", rows_of(*blobs(100, features=FEATURES)))
        there.pack("blobs", "early")
        workers = execute(connection, "SELECT nodename, nodeport FROM pg_dist_node WHERE groupid > 0")
        for worker in workers:
            execute(connection, "SELECT citus_remove_node(%s, %s)", *worker)
        with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState, match="there are no workers"):
            execute(connection, "SELECT cerebro.distribute()")
        for worker in workers:
            execute(connection, "SELECT citus_add_node(%s, %s)", *worker)
        # A restored database has the rows of its runs on the coordinator.
        state = "INSERT INTO cerebro._state (run_id, mst_key, step, part, data) VALUES (1, 1, 0, 0, '')"
        execute(connection, state)
        execute(connection, "SELECT cerebro.distribute()")
        assert execute(connection, "SELECT count(*) FROM cerebro._state") == [(1,)]
        assert execute(connection, "SELECT pg_relation_size('cerebro._state')") == [(0,)]
        assert "on disk" not in "".join(connection.notices)
        # Tables that this session packs from now on are distributed over the workers.
        there.pack("blobs", "packed")
        spread = "SELECT logicalrelid::text FROM pg_dist_partition WHERE logicalrelid = ANY (%s::regclass[])"
        assert there.sql(spread, ["early", "packed"]) == [("packed",)]
    with pytest.raises(psycopg2.errors.FeatureNotSupported, match="this is a worker"):
        on_worker(0, "SELECT cerebro.distribute()", trial.connection.info.dbname)


def test_a_run_is_forgotten(trial: Trial) -> None:
    run_id = trial.fit("packed", "forgotten", "mst", 1)
    trial.sql("SELECT cerebro.forget(%s)", run_id)
    for table in ("_state", "_visit", "_evaluation", "_run"):
        assert trial.value(f"SELECT count(*) FROM cerebro.{table} WHERE run_id = %s", run_id) == 0


def test_a_worker_refuses_what_needs_runs_or_models(trial: Trial, base: int) -> None:
    """A worker has no runs of its own, and its numbers of runs are not the coordinator's."""
    for call in (f"forget({base})", f"resume({base})", "last_run()"):
        with pytest.raises(psycopg2.errors.FeatureNotSupported, match="this is a worker"):
            on_worker(0, f"SELECT cerebro.{call}", trial.connection.info.dbname)
    assert trial.value("SELECT count(*) FROM cerebro._state WHERE run_id = %s", base) > 0
