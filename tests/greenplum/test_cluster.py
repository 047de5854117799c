"""A cluster: where packed rows, states and processes are, and what becomes of a run that loses processes."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg2
import pytest

import nets
from fixtures import Connection, execute
from segments import answered, first_visit, interrupted
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.greenplum
FEATURES, EPOCHS = 12, 3
CONTENTS = "SELECT content FROM gp_segment_configuration WHERE content >= 0 AND role = 'p' ORDER BY 1"
# The processes of this database on each segment, except those of one session.
PROCESSES = (
    "SELECT s.content, (s.a).pid FROM (SELECT gp_segment_id AS content, pg_stat_get_activity(NULL) AS a"
    " FROM gp_dist_random('gp_id')) AS s JOIN pg_database AS d ON d.oid = (s.a).datid"
    " WHERE d.datname = current_database() AND (s.a).sess_id <> %s"
)
# A superuser's function that kills a process of a segment as an operating system would.
_KILL = """
CREATE FUNCTION kill(pid integer) RETURNS integer LANGUAGE plpython3u AS $$
import os
os.kill(pid, 9)
return 1
$$
"""


@pytest.fixture(scope="module")
def contents(trial: Trial) -> list[int]:
    return [content for (content,) in trial.sql(CONTENTS)]


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial, contents: list[int]) -> None:
    x, y = blobs(3000, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.pack("blobs", "packed", options={"segments": len(contents)})
    trial.model(nets.mlp(FEATURES))
    trial.select("mst", [1], [ADAM, SGD], ["batch_size=8,epochs=1", "batch_size=16,epochs=1"])
    trial.sql(_KILL)


@pytest.fixture(scope="module")
def base(trial: Trial, tables: None) -> int:
    return trial.fit("packed", "base", "mst", EPOCHS)


@pytest.fixture
def other(database: str) -> Iterator[Connection]:
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        yield connection


def test_every_table_of_the_extension_says_where_its_rows_lie(trial: Trial) -> None:
    found = trial.sql(
        "SELECT c.relname, p.policytype, p.distkey::text FROM pg_class AS c LEFT JOIN gp_distribution_policy"
        " AS p ON p.localoid = c.oid WHERE c.relnamespace = 'cerebro'::regnamespace AND c.relkind = 'r'"
    )
    assert {name for name, kind, key in found if kind != "r" and not key} == set()
    # A user's code on a segment can read replicated tables.
    replicated = {name for name, kind, _ in found if kind == "r"}
    assert replicated == {"_run", "_run_event", "_config", "_request", "_decision"}


def test_packed_rows_lie_evenly_one_key_on_each_segment(trial: Trial, contents: list[int]) -> None:
    found = trial.sql(
        "SELECT gp_segment_id, sum(x_shape[1]), count(DISTINCT __dist_key__) FROM packed GROUP BY 1"
    )
    assert sorted(content for content, *_ in found) == contents
    assert {keys for *_, keys in found} == {1}
    rows = [number for _, number, _ in found]
    assert max(rows) - min(rows) <= 1
    stored = trial.value("SELECT __dist_keys__ FROM packed_summary")
    assert stored == [
        key for (key,) in trial.sql("SELECT __dist_key__ FROM packed GROUP BY 1 ORDER BY min(buffer_id)")
    ]


def test_rules_of_distribution_choose_segments(trial: Trial, contents: list[int]) -> None:
    trial.sql(
        "CREATE TABLE chosen AS SELECT dbid FROM gp_segment_configuration WHERE content = 0 AND role = 'p'"
    )
    trial.call("training_preprocessor_dl", "blobs", "on_one", "y", "x", distribution_rules="chosen")
    assert trial.sql("SELECT DISTINCT gp_segment_id FROM on_one") == [(0,)]
    dbid = trial.value("SELECT dbid FROM chosen")
    assert trial.sql("SELECT distribution_rules, __internal_gpu_config__, segments FROM on_one_summary") == [
        (f"{{{dbid}}}", "{0}", 1)
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("VALUES (2), (2)", "more than once"),
        ("VALUES (1)", "no primary segment"),
        ("SELECT 1 WHERE FALSE", "no dbid"),
    ],
)
def test_wrong_rules_of_distribution_are_refused(trial: Trial, rows: str, message: str) -> None:
    trial.sql(f"DROP TABLE IF EXISTS wrong; CREATE TABLE wrong (dbid) AS {rows}")
    with pytest.raises(psycopg2.Error, match=message):
        trial.call("training_preprocessor_dl", "blobs", "never", "y", "x", distribution_rules="wrong")


@pytest.mark.parametrize(
    "body",
    [
        "SELECT * FROM blobs WHERE y < 2",
        "SELECT a.x, b.y FROM blobs AS a JOIN blobs AS b USING (x)",
        "SELECT array_fill(g::real, ARRAY[3]) AS x, g % 2 AS y FROM generate_series(1, 50) AS g",
        "SELECT * FROM blobs ORDER BY x LIMIT 40",
    ],
)
def test_views_are_packed_wherever_their_rows_come_into_being(trial: Trial, body: str) -> None:
    trial.sql(f"DROP VIEW IF EXISTS seen; CREATE VIEW seen AS {body}")
    trial.sql("DROP TABLE IF EXISTS from_view, from_view_summary")
    trial.pack("seen", "from_view")
    assert trial.value("SELECT sum(x_shape[1]) FROM from_view") == trial.value("SELECT count(*) FROM seen")


def test_a_segments_visits_are_all_made_by_one_process_of_its_own(trial: Trial, base: int) -> None:
    again = trial.fit("packed", "base_again", "mst", EPOCHS)
    query = (
        "SELECT segment, array_agg(DISTINCT pid) FROM cerebro.visits WHERE run_id = %s GROUP BY 1 ORDER BY 1"
    )
    first, second = dict(trial.sql(query, base)), dict(trial.sql(query, again))
    assert {len(pids) for pids in first.values()} == {1}
    assert second == first, "rows and models are warm in the run after"
    pids = [pid for (pid,) in first.values()]
    assert len(set(pids)) == len(pids)
    assert trial.value("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY (%s)", pids) == 0


def test_what_has_hopped_is_counted(trial: Trial, base: int) -> None:
    """Each visit of a config is counted as one hop of its state; no other bytes hop between segments."""
    states = dict(
        trial.sql(
            "SELECT mst_key, sum(octet_length(data)) FROM cerebro._state AS s WHERE run_id = %s AND step ="
            " (SELECT max(step) FROM cerebro._state WHERE run_id = s.run_id AND mst_key = s.mst_key)"
            " GROUP BY 1",
            base,
        )
    )
    segments = trial.value("SELECT segments FROM cerebro.runs WHERE run_id = %s", base)
    visits = trial.sql("SELECT mst_key, state_bytes FROM cerebro.visits WHERE run_id = %s", base)
    assert Counter(key for key, _ in visits) == dict.fromkeys(range(1, 5), EPOCHS * segments)
    # Numbers in a state's header get more digits as it goes on.
    assert [size / states[key] for key, size in visits] == pytest.approx([1.0] * len(visits), rel=0.03)
    hopped = trial.value("SELECT hopped_bytes FROM cerebro.sizes WHERE run_id = %s", base)
    assert hopped == sum(size for _, size in visits)


def test_what_a_run_takes_is_kept_for_each_host(trial: Trial, base: int) -> None:
    kept = trial.sql("SELECT DISTINCT host FROM cerebro._rate WHERE run_id = %s ORDER BY 1", base)
    hosts = (
        "SELECT DISTINCT hostname FROM gp_segment_configuration WHERE content >= 0 AND role = 'p' ORDER BY 1"
    )
    assert kept == trial.sql(hosts)


def test_predict_for_single_rows_is_refused(trial: Trial, base: int) -> None:
    with pytest.raises(psycopg2.errors.FeatureNotSupported, match="do not work on Greenplum") as caught:
        trial.sql("SELECT cerebro.predict('base', 1, x) FROM blobs")
    assert "cerebro.madlib_predict" in (caught.value.diag.message_hint or "")


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
def test_names_are_found_on_the_segments_after_a_transaction_of_ours(
    trial: Trial, database: str, ending: str
) -> None:
    """A session's processes on the segments start in its first call, and must have its search_path.

    Otherwise they would not find a table to drop, which would be dropped on the coordinator alone.
    """
    trial.sql("CREATE TABLE to_drop AS SELECT 1 AS a")
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        new = Trial(connection)
        new.sql("BEGIN")
        new.pack("blobs", "in_block")
        new.sql(ending)
        new.sql("DROP TABLE IF EXISTS in_block, in_block_summary, to_drop")
    left = "SELECT count(*) FROM gp_dist_random('pg_class') WHERE relname IN ('in_block', 'to_drop')"
    assert trial.value(left) == 0


@pytest.mark.parametrize("moment", ["start", "visit"])
def test_a_cancel_leaves_no_process_on_any_segment(
    trial: Trial, other: Connection, database: str, moment: str
) -> None:
    trial.select(f"long_{moment}", [1], [ADAM, SGD], ["batch_size=1,epochs=10"])
    with closing(psycopg2.connect(dbname=database)) as connection, ThreadPoolExecutor(1) as pool:
        connection.autocommit = True
        caller = Trial(connection)
        session = int(caller.value("SHOW gp_session_id"))
        before = set(trial.sql(PROCESSES, session))
        run = pool.submit(caller.fit, "packed", f"never_{moment}", f"long_{moment}", 50)
        going_on = "SELECT 1 FROM pg_stat_activity WHERE datname = %s AND application_name LIKE %s"
        while not execute(other, going_on, database, f"cerebro {moment}%"):
            assert not run.done()
            time.sleep(0.02)
        time.sleep(0.3)
        during = set(trial.sql(PROCESSES, session))
        execute(other, "SELECT pg_cancel_backend(%s)", connection.info.backend_pid)
        with pytest.raises(psycopg2.errors.QueryCanceled):
            run.result(timeout=60)
        assert during - before, "there was nothing to leave behind"
        deadline = time.monotonic() + 5
        while left := set(trial.sql(PROCESSES, session)) - before:
            assert time.monotonic() < deadline, left
            time.sleep(0.1)


def test_predictions_lie_where_their_rows_do(trial: Trial, base: int) -> None:
    trial.sql("CREATE TABLE fresh AS SELECT row_number() OVER () AS id, x FROM blobs DISTRIBUTED BY (id)")
    trial.call("madlib_predict", "base", "fresh", "id", "x", "predicted", "response", False, 1)
    where = "SELECT gp_segment_id, count(*), sum(id) FROM {} GROUP BY 1 ORDER BY 1"
    assert trial.sql(where.format("predicted")) == trial.sql(where.format("fresh"))


def test_every_segment_says_what_it_has(trial: Trial, contents: list[int]) -> None:
    found = trial.sql(
        "SELECT segment, ok, missing, engines ?& '{keras,tensorflow,jax}', cerebro"
        " FROM cerebro.segments_ready()"
    )
    version = trial.value("SELECT extversion FROM pg_extension WHERE extname = 'cerebro'")
    assert found == [(content, True, None, True, version) for content in [-1, *contents]]


def test_a_lost_process_of_a_segment_costs_its_visit_alone(
    trial: Trial, base: int, other: Connection
) -> None:
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(trial.fit, "packed", "hurt", "mst", EPOCHS)
        segment, pid = first_visit(other, run, "hurt")
        assert terminated(other, pid) == [True]
        run_id = run.result(timeout=300)
    assert trial.weights("hurt") == trial.weights("base")
    pids = dict(
        trial.sql(
            "SELECT segment, count(DISTINCT pid) FROM cerebro.visits WHERE run_id = %s GROUP BY 1", run_id
        )
    )
    assert pids.pop(segment) == 2
    assert set(pids.values()) == {1}


def test_the_coordinator_passes_visits_on_and_no_more(trial: Trial, base: int, other: Connection) -> None:
    """The coordinator gets most visits as a single statement, which calls cerebro._work on the segment."""
    visits = (
        "SELECT pid, query_start, query LIKE 'SELECT cerebro._work%' FROM pg_stat_activity"
        " WHERE application_name LIKE 'cerebro visit%' AND state = 'active' AND datname = current_database()"
    )
    seen: set[tuple[object, ...]] = set()
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(trial.fit, "packed", "passed_on", "mst", EPOCHS)
        while not run.done():
            seen |= set(execute(other, visits))
    assert trial.weights("passed_on") == trial.weights("base")
    direct = Counter(is_direct for _, _, is_direct in seen)
    assert direct[True] > 2 * direct[False]


_LINKS = (
    "SELECT (s.a).pid FROM (SELECT pg_stat_get_activity(NULL) AS a FROM gp_dist_random('gp_id')) AS s"
    " JOIN pg_database AS d ON d.oid = (s.a).datid WHERE d.datname = current_database()"
    " AND (s.a).application_name = 'cerebro link'"
)


def test_lost_connections_of_segments_processes_cost_nothing(
    trial: Trial, base: int, other: Connection
) -> None:
    """The processes commit visits and fetch states over these connections, and open them again."""
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(trial.fit, "packed", "unlinked", "mst", EPOCHS)
        first_visit(other, run, "unlinked")
        lost = [pid for (pid,) in execute(other, _LINKS)]
        assert [terminated(other, pid) for pid in lost] == [[True]] * len(lost)
        run_id = run.result(timeout=300)
    assert len(lost) >= 3
    assert trial.weights("unlinked") == trial.weights("base")
    pids = "SELECT count(DISTINCT pid) FROM cerebro.visits WHERE run_id = %s GROUP BY segment"
    assert set(trial.sql(pids, run_id)) == {(1,)}


def test_it_is_said_whether_segments_let_one_another_in(trial: Trial) -> None:
    found = trial.sql("SELECT status, found FROM cerebro.diagnose() WHERE item = 'servers of segments'")
    assert found == [("ok", "each lets the processes of all segments in")]


def test_the_segments_of_the_cluster_are_counted(trial: Trial) -> None:
    segments = "SELECT count(*) FROM gp_segment_configuration WHERE content >= 0 AND role = 'p'"
    said = "SELECT found FROM cerebro.diagnose() WHERE item = 'processors'"
    assert trial.value(said).endswith(f" for {trial.value(segments)} segments")


def terminated(connection: Connection, pid: int) -> list[bool]:
    """Terminate a process by a call on its segment; return [True], or [] if no segment has the process."""
    found = execute(
        connection,
        "SELECT ended FROM (SELECT CASE (s.a).pid WHEN %s THEN pg_terminate_backend((s.a).pid) END AS ended"
        " FROM (SELECT pg_stat_get_activity(NULL) AS a FROM gp_dist_random('gp_id')) AS s) AS e"
        " WHERE ended IS NOT NULL",
        pid,
    )
    return [ended for (ended,) in found]


def kill(connection: Connection, pid: int) -> None:
    """Kill a segment's process, which must be on the coordinator's host, with signal 9."""
    execute(connection, "SELECT kill(%s)", pid)


_EVIL = """
CREATE FUNCTION evil() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    attempt text;
BEGIN
    FOREACH attempt IN ARRAY ARRAY[
        'RESET SESSION AUTHORIZATION', 'RESET ROLE', 'SELECT set_config(''role'', ''{0}'', false)',
        'SELECT set_config(''session_authorization'', ''{0}'', false)'
    ] LOOP
        BEGIN
            EXECUTE attempt;
        EXCEPTION WHEN OTHERS THEN
            NULL;
        END;
        IF current_setting('is_superuser') = 'on' AND pg_has_role(current_user, '{0}', 'USAGE') THEN
            RAISE EXCEPTION 'gained % as %', attempt, current_user;
        END IF;
    END LOOP;
    IF current_user <> '{1}' THEN
        RAISE EXCEPTION 'it runs as %', current_user;
    END IF;
    RETURN TRUE;
END
$$;
ALTER TABLE mine ENABLE ROW LEVEL SECURITY;
ALTER TABLE mine FORCE ROW LEVEL SECURITY;
CREATE POLICY evil ON mine USING (evil());
"""


def test_the_callers_code_on_a_segment_stays_the_callers(trial: Trial, database: str) -> None:
    """A policy of the packed table is the caller's code, and runs in the process that trains there."""
    owner, user = os.environ["PGUSER"], f"cerebro_evil_{os.getpid()}"
    trial.sql(f"CREATE ROLE {user} LOGIN")
    try:
        trial.sql("SELECT cerebro.grant_usage(%s)", user)
        trial.sql(f"GRANT CREATE ON SCHEMA public TO {user}; GRANT SELECT ON blobs TO {user}")
        trial.sql(f"GRANT SELECT ON arch, mst, mst_summary TO {user}")
        with closing(psycopg2.connect(dbname=database, user=user)) as connection:
            connection.autocommit = True
            caller = Trial(connection)
            caller.pack("blobs", "mine")
            caller.sql(_EVIL.replace("{0}", owner).replace("{1}", user))
            caller.fit("mine", "evils", "mst", 1)
            assert len(caller.weights("evils")) == 4
    finally:
        trial.sql(f"DROP OWNED BY {user} CASCADE; DROP ROLE {user}")


def test_a_right_that_is_taken_away_is_missed_at_the_next_visit(
    trial: Trial, database: str, contents: list[int]
) -> None:
    """After the REVOKE, only visits that had been sent begin: at most one on each segment."""
    user = f"cerebro_poor_{os.getpid()}"
    trial.sql(f"CREATE ROLE {user} LOGIN")
    try:
        trial.sql("SELECT cerebro.grant_usage(%s)", user)
        trial.sql(f"GRANT CREATE ON SCHEMA public TO {user}")
        trial.sql(f"GRANT SELECT ON packed, packed_summary, arch, mst, mst_summary TO {user}")
        with (
            closing(psycopg2.connect(dbname=database, user=user)) as connection,
            ThreadPoolExecutor(1) as pool,
        ):
            connection.autocommit = True
            run = pool.submit(Trial(connection).fit, "packed", "poor", "mst", 500)
            # By then the run's processes are warm, and a visit is short.
            while not trial.sql(
                "SELECT 1 FROM cerebro.runs WHERE model_table LIKE %s AND visits_done > 20", "%poor%"
            ):
                assert not run.done()
                time.sleep(0.02)
            trial.sql(f"REVOKE SELECT ON packed FROM {user}")
            at = trial.value("SELECT clock_timestamp()")
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                run.result(timeout=300)
        begun = trial.value(
            "SELECT count(*) FROM cerebro.visits JOIN cerebro.runs USING (run_id)"
            " WHERE model_table LIKE %s AND visits.started_at > %s",
            "%poor%", at,
        )  # fmt: skip
        assert begun <= len(contents)
    finally:
        trial.sql(f"DROP OWNED BY {user} CASCADE; DROP ROLE {user}")


def test_a_segment_that_starts_again_interrupts_and_the_run_is_resumed(
    trial: Trial, base: int, database: str, other: Connection
) -> None:
    """A killed process makes its segment restart, which ends the caller's transaction too.

    This test is the last: after it, every session of this module has lost its processes.
    """
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        caller = Trial(connection)
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(caller.fit, "packed", "crashed", "mst", EPOCHS)
            _, pid = first_visit(other, run, "crashed")
            kill(other, pid)
            with pytest.raises(psycopg2.Error):
                run.result(timeout=300)
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        after = Trial(connection)
        answered(after)
        run_id = after.value("SELECT max(run_id) FROM cerebro.runs WHERE model_table LIKE %s", "%crashed%")
        done = after.value("SELECT count(*) FROM cerebro.visits WHERE run_id = %s", run_id)
        assert done > 0
        after.sql("SELECT cerebro.resume(%s)", run_id)
        assert after.weights("crashed") == after.weights("base")


OWN = (
    "SELECT (s.a).pid FROM (SELECT pg_stat_get_activity(NULL) AS a FROM gp_dist_random('gp_id')) AS s"
    " WHERE (s.a).sess_id = (SELECT sess_id FROM pg_stat_activity WHERE pid = %s) LIMIT 1"
)


@pytest.mark.parametrize("whose", ["visit", "caller"])
def test_a_session_that_has_lost_its_processes_ends_its_run_and_goes_on_with_it(
    database: str, whose: str
) -> None:
    """The run is seen as interrupted; the hurt session resumes it, and the coordinator does not restart."""
    with closing(psycopg2.connect(dbname=database)) as hurt, closing(psycopg2.connect(dbname=database)) as by:
        hurt.autocommit = by.autocommit = True
        caller, beside = Trial(hurt), Trial(by)
        answered(beside)
        started = beside.value("SELECT pg_postmaster_start_time()")
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(caller.fit, "packed", f"lost_{whose}", "mst", 12)
            _, pid = first_visit(by, run, f"lost_{whose}")
            kill(by, beside.value(OWN, hurt.info.backend_pid) if whose == "caller" else pid)
            with pytest.raises(psycopg2.Error) as caught:
                run.result(timeout=300)
        assert caught.value.pgcode == "58M01"
        assert "cerebro.resume" in (caught.value.diag.message_hint or "")
        answered(beside)
        run_id = interrupted(beside, f"lost_{whose}")
        answered(caller)
        caller.sql("SELECT cerebro.resume(%s)", run_id)
        assert beside.value("SELECT status FROM cerebro.runs WHERE run_id = %s", run_id) == "finished"
        assert beside.value("SELECT pg_postmaster_start_time()") == started
