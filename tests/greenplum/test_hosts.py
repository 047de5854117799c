"""A cluster of several hosts: what it trains, also if a host is slow to reach, cut off or has a wrong clock.

`tools/hosts` makes the hosts and the cluster. All hosts use the same ports, and share no socket.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg2
import pytest

import nets
from fixtures import Connection, execute
from segments import answered, first_visit, interrupted
from stage import connect
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = [
    pytest.mark.greenplum,
    pytest.mark.skipif(
        "CEREBRO_HOSTS" not in os.environ,
        reason='needs the cluster of tools/hosts: up, greenplum, eval "$(tools/hosts env)"',
    ),
]
FEATURES, EPOCHS, SEGMENTS = 12, 6, 3
FAR, WRONG = 2, 90
_HOSTS = Path(__file__).resolve().parents[2] / "tools" / "hosts"


def hosts(*arguments: object) -> str:
    """Run a command of tools/hosts, and return its output."""
    done = subprocess.run([_HOSTS, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def cut(host: int) -> Iterator[None]:
    hosts("cut", host)
    try:
        yield
    finally:
        hosts("mend", host)


def make_tables(trial: Trial) -> None:
    x, y = blobs(3000, features=FEATURES)
    trial.table("blobs", "x real[], y integer", rows_of(x, y))
    trial.pack("blobs", "packed", options={"segments": SEGMENTS})
    trial.model(nets.mlp(FEATURES))
    trial.select("mst", [1], [ADAM, SGD], ["batch_size=8,epochs=1", "batch_size=16,epochs=1"])


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    make_tables(trial)


@pytest.fixture(scope="module")
def base(trial: Trial, tables: None) -> dict[int, bytes]:
    trial.fit("packed", "base", "mst", EPOCHS)
    return trial.weights("base")


@pytest.fixture
def caller(database: str, base: object) -> Iterator[Trial]:
    """Open a session for one test, which may end the session's processes."""
    with closing(connect(database)) as connection:
        yield Trial(connection)


@pytest.fixture
def watching(database: str) -> Iterator[Connection]:
    with closing(connect(database)) as connection:
        yield connection


def resumes_to(database: str, table: str, weights: dict[int, bytes]) -> None:
    """Resume the interrupted run of a model table in a new session, and compare its weights."""
    with closing(connect(database)) as connection:
        after = Trial(connection)
        answered(after)
        run_id = interrupted(after, table)
        assert after.value("SELECT visits_done FROM cerebro.runs WHERE run_id = %s", run_id) > 0
        after.sql("SELECT cerebro.resume(%s)", run_id)
        assert after.weights(table) == weights


def test_all_hosts_have_the_same_ports_and_none_has_the_others_sockets(trial: Trial) -> None:
    found = trial.sql("SELECT hostname, port FROM gp_segment_configuration WHERE content >= 0 ORDER BY 1")
    assert [host for host, _ in found] == ["h1", "h2", "h3"]
    assert len({port for _, port in found}) == 1
    sockets = {host: hosts("exec", host, "find", "/tmp", "-maxdepth", 1, "-type", "s") for host in (1, 2)}
    own = f"/tmp/.s.PGSQL.{os.environ['PGPORT']}"
    assert own in sockets[1].split()
    assert own not in sockets[2].split()
    inodes = {
        hosts("exec", host, "stat", "-c", "%d %i", f"/tmp/.s.PGSQL.{found[0][1]}") for host in (1, 2, 3)
    }
    assert len(inodes) == 3


def test_processes_read_states_from_other_hosts_over_the_network(
    trial: Trial, base: object, watching: Connection
) -> None:
    links = (
        "SELECT DISTINCT s.content, host((s.a).client_addr) FROM (SELECT gp_segment_id AS content,"
        " pg_stat_get_activity(NULL) AS a FROM gp_dist_random('gp_id')) AS s"
        " JOIN pg_database AS d ON d.oid = (s.a).datid"
        " WHERE d.datname = current_database() AND (s.a).application_name = 'cerebro link'"
    )
    found: dict[int, set[str]] = {}
    for content, client in execute(watching, links):
        found.setdefault(content, set()).add(client)
    assert {content: len(clients) for content, clients in found.items()} == dict.fromkeys(range(3), 3)
    # A segment's own process connects over the socket, so it has no address.
    assert all(None in clients for clients in found.values())


@pytest.mark.skipif("CEREBRO_BESIDE" not in os.environ, reason="needs another server, as CEREBRO_BESIDE says")
def test_the_bits_are_those_of_another_server_with_as_many_segments(base: dict[int, bytes]) -> None:
    schema = f"beside_{os.getpid()}"
    with closing(psycopg2.connect(os.environ["CEREBRO_BESIDE"])) as connection:
        connection.autocommit = True
        beside = Trial(connection)
        beside.sql(f"CREATE SCHEMA {schema}; SET search_path = {schema}")
        try:
            make_tables(beside)
            beside.fit("packed", "base", "mst", EPOCHS)
            assert beside.weights("base") == base
        finally:
            beside.sql(f"DROP SCHEMA {schema} CASCADE")


def test_a_run_over_a_slow_network_that_loses_packets_has_the_same_bits(
    caller: Trial, base: dict[int, bytes]
) -> None:
    hosts("delay", 10)
    hosts("loss", 1)
    try:
        caller.fit("packed", "slow", "mst", EPOCHS)
    finally:
        hosts("delay", 0)
        hosts("loss", 0)
    assert caller.weights("slow") == base


def test_a_run_waits_for_a_host_that_is_cut_off_for_some_seconds(
    caller: Trial, base: dict[int, bytes], watching: Connection
) -> None:
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(caller.fit, "packed", "waits", "mst", EPOCHS)
        first_visit(watching, run, "waits")
        with cut(FAR):
            time.sleep(5)
            assert not run.done()
        run.result(timeout=300)
    assert caller.weights("waits") == base


def test_a_process_that_is_killed_on_another_host_interrupts_and_the_run_is_resumed(
    caller: Trial, base: dict[int, bytes], watching: Connection, database: str
) -> None:
    on_far = (
        "SELECT v.pid FROM cerebro.visits AS v JOIN cerebro.runs AS r USING (run_id)"
        " WHERE r.model_table LIKE '%killed%' AND v.segment = (SELECT segment FROM at_far) LIMIT 1"
    )
    execute(
        watching,
        "CREATE TABLE at_far AS SELECT min(s.number) - 1 AS segment FROM packed_summary,"
        " unnest(__dist_keys__) WITH ORDINALITY AS s (key, number)"
        " WHERE s.key IN (SELECT __dist_key__ FROM packed WHERE gp_segment_id = 1)",
    )
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(caller.fit, "packed", "killed", "mst", EPOCHS)
        while not (found := execute(watching, on_far)):
            assert not run.done()
            time.sleep(0.02)
        hosts("exec", FAR, "kill", "-9", found[0][0])
        with pytest.raises(psycopg2.Error) as caught:
            run.result(timeout=300)
    assert caught.value.pgcode == "58M01"
    resumes_to(database, "killed", base)


def test_processors_that_differ_are_told(caller: Trial, tmp_path: Path) -> None:
    asked = "SELECT segment, host, cpu FROM cerebro.segments_ready()"
    here = caller.sql(asked)
    assert [host for _, host, _ in here] == ["h1", "h1", "h2", "h3"]
    assert len({cpu for *_, cpu in here}) == 1
    assert "processors" not in caller.notices()
    other = _HOSTS.parent.parent / ".local" / "cpuinfo"
    other.write_text("processor\t: 0\nmodel name\t: Another One\nflags\t\t: fpu avx avx2\n")
    hosts("exec", FAR, "mount", "--bind", other, "/proc/cpuinfo")
    try:
        found = [cpu for *_, cpu in caller.sql(asked)]
    finally:
        hosts("exec", FAR, "umount", "/proc/cpuinfo")
        other.unlink()
    assert found[2] == "Another One with avx2"
    assert f"the segments have different processors: {here[0][2]}; Another One with avx2" in caller.notices()


@pytest.fixture
def late(database: str) -> Iterator[None]:
    """Set the clock of the last host ahead, which restarts the segment there; set it back at the end."""
    if not list(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")) or "GPHOME" not in os.environ:
        pytest.skip("needs Debian's libfaketime, and GPHOME to start a segment again")
    hosts("clock", SEGMENTS, WRONG)
    try:
        yield
    finally:
        hosts("clock", SEGMENTS, 0)


def test_visits_are_dated_by_the_clock_of_the_coordinators_host(
    base: dict[int, bytes], late: None, database: str
) -> None:
    """This test is the last: it restarts a segment, so open sessions have lost their processes."""
    with closing(connect(database)) as connection:
        after = Trial(connection)
        answered(after)
        clocks = "SELECT extract(epoch FROM clock_timestamp()) FROM gp_dist_random('gp_id')"
        times = [float(at) for (at,) in after.sql(clocks)]
        assert max(times) - min(times) > WRONG - 5
        run_id = after.fit("packed", "late", "mst", EPOCHS)
        assert after.weights("late") == base
        off = after.sql(
            "SELECT count(*) FROM cerebro.visits AS v JOIN cerebro.runs AS r USING (run_id)"
            " WHERE run_id = %s AND NOT (r.started_at <= v.started_at AND v.started_at <= v.ended_at"
            " AND v.ended_at <= r.ended_at)",
            run_id,
        )
        assert off == [(0,)]
        seconds = "SELECT seconds FROM cerebro.runs WHERE run_id = %s"
        assert 0 < after.value(seconds, run_id) < WRONG
        measured = (
            "SELECT bool_and(at BETWEEN started_at AND ended_at) FROM cerebro._metric"
            " JOIN cerebro.runs USING (run_id) WHERE run_id = %s"
        )
        assert after.value(measured, run_id)
