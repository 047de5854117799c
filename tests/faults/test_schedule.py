"""Models that pg_cron trains again on a schedule, on a private server that may be killed meanwhile."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from fixtures import Connection, Rows, execute
from programs import program
from scratch import PORT, Server, as_server, server, shell, wait_until
from trial import Trial

# One net and few steps suffice, because the label follows from one column.
OPTIONS = {
    "nets": ["Dense(8, activation='relu')"], "configs": 1, "epochs": 3, "exclude": ["id"], "single": True,
}  # fmt: skip
RUNS = "SELECT outcome FROM cerebro.schedule_runs WHERE name = 'leaves' ORDER BY schedule_run_id"


def has_cron() -> bool:
    return Path(shell('echo "$(own_folder)$("$(find_pg_config)" --pkglibdir)/pg_cron.so"')).exists()


pytestmark = [
    pytest.mark.slow,
    pytest.mark.postgresql,
    pytest.mark.skipif(not has_cron(), reason="pg_cron is not installed"),
]


@contextmanager
def cron_server(host: Path | None = None) -> Iterator[Server]:
    """Yield a server that is not started yet and will load pg_cron."""
    with server(empty=True) as made:
        settings = ["shared_preload_libraries = 'pg_cron'", f"cron.host = '{host or made.folder}'"]
        lines = "\n".join([*settings, "cron.max_running_jobs = 4"])
        as_server("bash", "-c", f'cat >> {made.data}/postgresql.conf <<"END"\n{lines}\nEND')
        yield made


@pytest.fixture(scope="module")
def host() -> Iterator[Path]:
    """A path for a symbolic link to a server's folder; a test may point it at another server."""
    name = Path(tempfile.mktemp(prefix="cerebro-cron-"))
    yield name
    name.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def scratch(host: Path) -> Iterator[Server]:
    with cron_server(host) as made:
        host.symlink_to(made.folder)
        made.start()
        made.sql("CREATE EXTENSION cerebro CASCADE")
        yield made


@pytest.fixture(scope="module", autouse=True)
def registered(scratch: Server) -> None:
    """Register version 1 of a model, trained on `january`; the view `march` has the opposite labels."""
    scratch.sql(
        "CREATE TABLE january AS SELECT i AS id, ((i * 7919) % 1000) / 1000.0::float8 AS a,"
        " CASE WHEN (i * 7919) % 1000 > 500 THEN 'yes' ELSE 'no' END AS gone"
        " FROM generate_series(1, 600) AS i"
    )
    other = "CASE gone WHEN 'yes' THEN 'no' ELSE 'yes' END"
    scratch.sql(f"CREATE VIEW march AS SELECT a, {other} AS gone FROM january")
    options = json.dumps(OPTIONS)
    scratch.sql("SELECT * FROM cerebro.train('january', 'gone', 'churn', '1 minute', %s)", options)
    scratch.sql("SELECT cerebro.register('churn', 'leaves')")
    scratch.sql("CREATE EXTENSION pg_cron")


def outcomes(scratch: Server) -> list[str]:
    return [outcome for (outcome,) in scratch.sql(RUNS)]


def newest(scratch: Server) -> dict[str, Any]:
    query = "SELECT to_jsonb(r) FROM cerebro.schedule_runs AS r ORDER BY schedule_run_id DESC LIMIT 1"
    return scratch.sql(query)[0][0]


def heard(listener: Connection) -> list[dict[str, Any]]:
    """Return the notifications about runs of schedules that a listening connection has received."""
    execute(listener, "SELECT")
    said = [json.loads(one.payload) for one in listener.notifies]
    return [one for one in said if "schedule_run_id" in one]


def call(scratch: Server, failures: list[BaseException]) -> threading.Thread:
    """Begin a run of the schedule in a session of its own; return its thread once the run is under way."""

    def work() -> None:
        try:
            scratch.sql("CALL cerebro.run_schedule('leaves')")
        except psycopg2.Error as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: "running" in outcomes(scratch), "a run of the schedule")
    return thread


def test_pg_cron_trains_and_what_came_of_it_is_kept(scratch: Server) -> None:
    job = scratch.sql("SELECT cerebro.schedule('leaves', '0 3 * * 1', 'march', promote => 'always')")[0][0]
    again = scratch.sql("SELECT cerebro.schedule('leaves', '* * * * *', 'march', promote => 'always')")[0][0]
    assert scratch.sql("SELECT jobid, schedule, username FROM cron.job") == [(again, "* * * * *", "postgres")]
    shown = scratch.sql("SELECT name, alias, schedule, source, promote, role, job_id FROM cerebro.schedules")
    assert shown == [("leaves", "default", "* * * * *", "public.march", "always", "postgres", again)]
    assert job == again
    wait_until(lambda: outcomes(scratch)[:1] == ["done"], "the first run", patience=150)
    scratch.sql("SELECT cerebro.unschedule('leaves')")
    assert scratch.sql("SELECT count(*) FROM cron.job") == [(0,)]
    wait_until(lambda: "running" not in outcomes(scratch), "the last run")
    version, promoted, reason, role = scratch.sql(
        "SELECT version, promoted, reason, role FROM cerebro.schedule_runs ORDER BY schedule_run_id LIMIT 1"
    )[0]
    assert (version, promoted, role) == (2, True, "postgres")
    assert reason.startswith('promote is "always"')
    assert scratch.sql("SELECT default_version > 1 FROM cerebro.models") == [(True,)]


@pytest.fixture
def scheduled(scratch: Server) -> None:
    """Make a schedule whose job runs on 1 January alone, so not during the tests."""
    scratch.sql("SELECT cerebro.schedule('leaves', '0 3 1 1 *', 'march')")


@pytest.mark.usefixtures("scheduled")
def test_a_run_is_skipped_while_another_goes_on(scratch: Server) -> None:
    failures: list[BaseException] = []
    with closing(scratch.connect()) as listener:
        execute(listener, "LISTEN cerebro_model")
        thread = call(scratch, failures)
        scratch.sql("CALL cerebro.run_schedule('leaves')")
        thread.join()
        assert failures == []
        last = "SELECT schedule_run_id, outcome FROM cerebro.schedule_runs ORDER BY 1 DESC LIMIT 2"
        runs = scratch.sql(last)
        assert heard(listener) == [
            {"event": f"schedule {outcome}", "schedule_run_id": number} for number, outcome in runs
        ]
    assert outcomes(scratch)[-2:] == ["done", "skipped"]
    (reason,) = scratch.sql("SELECT reason FROM cerebro.schedule_runs WHERE outcome = 'skipped'")[0]
    assert reason.endswith("of this schedule went on")
    assert scratch.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]


@pytest.mark.usefixtures("scheduled")
def test_a_manual_retraining_meanwhile_is_another_version(scratch: Server) -> None:
    (before,) = scratch.sql("SELECT newest_version FROM cerebro.models")[0]
    failures: list[BaseException] = []
    thread = call(scratch, failures)
    ((by_hand,),) = scratch.sql("SELECT version FROM cerebro.retrain('leaves', 'march', promote => 'always')")
    thread.join()
    assert failures == []
    assert {by_hand, newest(scratch)["version"]} == {before + 1, before + 2}
    assert scratch.sql("SELECT default_version FROM cerebro.models") == [(by_hand,)]


@pytest.mark.usefixtures("scheduled")
def test_a_failure_is_kept_and_changes_nothing(scratch: Server) -> None:
    (before,) = scratch.sql("SELECT default_version FROM cerebro.models")[0]
    with closing(scratch.connect()) as listener:
        execute(listener, "LISTEN cerebro_model")
        scratch.sql("ALTER VIEW march RENAME TO april")
        try:
            with pytest.raises(psycopg2.Error, match=r"march.* does not exist"):
                scratch.sql("CALL cerebro.run_schedule('leaves')")
        finally:
            scratch.sql("ALTER VIEW april RENAME TO march")
        number = newest(scratch)["schedule_run_id"]
        assert heard(listener) == [{"event": "schedule failed", "schedule_run_id": number}]
    found = newest(scratch)
    assert (found["outcome"], found["version"]) == ("failed", None)
    assert "does not exist" in found["reason"]
    assert scratch.sql("SELECT default_version FROM cerebro.models") == [(before,)]


@pytest.mark.usefixtures("scheduled")
def test_a_server_that_is_killed_interrupts_a_run_and_the_next_one_is_done(scratch: Server) -> None:
    versions = scratch.sql("SELECT count(*) FROM cerebro.model_versions")
    failures: list[BaseException] = []
    thread = call(scratch, failures)
    scratch.kill_all()
    thread.join()
    assert len(failures) == 1
    scratch.ensure_up()
    assert outcomes(scratch)[-1] == "interrupted"
    assert scratch.sql("SELECT count(*) FROM cerebro.model_versions") == versions
    scratch.sql("CALL cerebro.run_schedule('leaves')")
    assert outcomes(scratch)[-2:] == ["interrupted", "done"]


JOBS = (
    "SELECT s.name, s.alias, s.job_id, j.jobname, j.command, j.database, j.username"
    " FROM cerebro.schedules AS s JOIN cron.job AS j ON j.jobid = s.job_id"
)


def check_next_run(moved: Server) -> None:
    """Wait until pg_cron has run the schedule on the server `moved`, and check its removal there."""
    done = "SELECT count(*) FROM cerebro.schedule_runs WHERE outcome = 'done' AND reason LIKE 'promote is %'"
    wait_until(lambda: moved.sql(done) == [(1,)], "a run on the other server", patience=150)
    moved.sql("SELECT cerebro.unschedule('leaves')")
    assert moved.sql("SELECT count(*) FROM cron.job") == [(0,)]


@pytest.fixture
def soon(scratch: Server) -> Rows:
    """Make a schedule without any earlier run, and return its row together with its pg_cron job."""
    scratch.sql("DELETE FROM cerebro._schedule_run")
    scratch.sql("SELECT cerebro.schedule('leaves', '0 3 1 1 *', 'march', promote => 'never')")
    return scratch.sql(JOBS)


def test_a_schedule_that_is_restored_elsewhere_is_made_again(
    scratch: Server, soon: Rows, tmp_path: Path
) -> None:
    """Until the schedule is made again, its restored job would run on the server that was dumped."""
    file, names = tmp_path / "dump", ["-U", "postgres", "-p", str(PORT)]
    dump = [program("pg_dump"), "-h", str(scratch.folder), *names, "-Fc", "-f", str(file), "postgres"]
    subprocess.run(dump, check=True)
    with cron_server() as restored:
        restored.start()
        into = [program("pg_restore"), "-h", str(restored.folder), *names, "--exit-on-error"]
        subprocess.run([*into, "-d", "postgres", str(file)], check=True)
        assert restored.sql(JOBS) == soon and len(soon) == 1
        restored.sql("SELECT cerebro.schedule('leaves', '* * * * *', 'march', promote => 'never')")
        assert restored.sql("SELECT nodename FROM cron.job") == [(str(restored.folder),)]
        check_next_run(restored)
    assert outcomes(scratch) == []


def test_a_schedule_goes_on_after_pg_upgrade(scratch: Server, host: Path, soon: Rows) -> None:
    scratch.sql("SELECT cron.alter_job(jobid, '* * * * *') FROM cron.job")
    with cron_server(host) as moved:
        scratch.stop("fast")
        host.unlink()
        host.symlink_to(moved.folder)
        try:
            shell(
                """as_server bash -c 'cd "$0" && exec "$@"' "$@" </dev/null""", moved.folder,
                program("pg_upgrade"), "--username=postgres", f"--socketdir={moved.folder}",
                "-b", scratch.bin, "-B", moved.bin, "-d", scratch.data, "-D", moved.data,
            )  # fmt: skip
            moved.start()
            assert moved.sql(JOBS) == soon and len(soon) == 1
            check_next_run(moved)
        finally:
            host.unlink()
            host.symlink_to(scratch.folder)
            scratch.ensure_up()
            scratch.sql("SELECT cerebro.unschedule('leaves')")


@pytest.mark.usefixtures("scheduled")
def test_a_job_that_only_has_the_number_of_a_schedule_stays(scratch: Server) -> None:
    """In a database that was restored without the jobs of pg_cron, job numbers begin at 1 again."""
    ((job,),) = scratch.sql("SELECT job_id FROM cerebro.schedules")
    scratch.sql("UPDATE cron.job SET jobname = 'of somebody' WHERE jobid = %s", job)
    scratch.sql("SELECT cerebro.unschedule('leaves')")
    assert scratch.sql("SELECT jobid, jobname FROM cron.job") == [(job, "of somebody")]
    scratch.sql("SELECT cron.unschedule(%s::bigint)", job)


@pytest.mark.usefixtures("scheduled")
def test_a_schedule_is_the_business_of_who_made_it(scratch: Server) -> None:
    scratch.sql("CREATE ROLE helper LOGIN")
    scratch.sql("SELECT cerebro.set_alias('leaves', 'other', 1)")
    scratch.sql("SELECT cerebro.grant_model('leaves', 'helper', 'manage')")
    scratch.sql("GRANT SELECT ON march TO helper")
    with closing(scratch.connect(user="helper")) as connection:
        theirs = Trial(connection)
        replace = "schedule('leaves', '* * * * *', 'march')"
        for asked in (replace, "unschedule('leaves')", "unregister('leaves')"):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="was made by role postgres"):
                theirs.sql(f"SELECT cerebro.{asked}")
        before = outcomes(scratch)
        with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="with whose rights alone it runs"):
            theirs.sql("CALL cerebro.run_schedule('leaves')")
        assert outcomes(scratch) == before
        with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="to create jobs of pg_cron"):
            theirs.sql("SELECT cerebro.schedule('leaves', '* * * * *', 'march', alias => 'other')")
    with pytest.raises(psycopg2.Error, match="invalid schedule"):
        scratch.sql("SELECT cerebro.schedule('leaves', 'monday', 'march')")
    with pytest.raises(psycopg2.Error, match="leaves@other has no schedule"):
        scratch.sql("SELECT cerebro.unschedule('leaves', 'other')")
    scratch.sql("SELECT cerebro.unregister('leaves')")
    for table in ("cron.job", "cerebro._schedule", "cerebro._schedule_run"):
        assert scratch.sql(f"SELECT count(*) FROM {table}") == [(0,)]
