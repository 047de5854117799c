"""The container image: how it starts, whom it lets in, that it trains, and what data a restart keeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest

import two_nets
from containers import PASSWORD, Server, container
from fixtures import Connection, Rows, execute

pytestmark = pytest.mark.docker

PREPARE = two_nets.statements("('segments', '2'), ('threads', '1')", 400)
FIT = """SELECT cerebro.madlib_fit_multiple_model('packed', '{0}', 'configs', {1},
    options => '{{"seed": 42, {2}}}')"""
BITS = "SELECT mst_key, md5(model_weights) FROM {0} ORDER BY mst_key"


def prepare(connection: Connection) -> None:
    for statement in PREPARE:
        execute(connection, statement)


@pytest.fixture(scope="module")
def trained(server: Server) -> Server:
    """A container with tables to train on in its default database."""
    with closing(server.open()) as connection:
        prepare(connection)
    return server


def test_it_starts_with_the_extension_in_every_database(server: Server) -> None:
    version = "SELECT extversion FROM pg_extension WHERE extname = 'cerebro'"
    server.sql("CREATE DATABASE later")
    found = [server.sql(version, dbname=name) for name in ("postgres", "template1", "later")]
    assert found[0] and found[0] == found[1] == found[2]


def test_pg_cron_works_in_the_default_database(server: Server) -> None:
    """A job logs in over the socket, with the rights of the role that made it."""
    server.sql("CREATE TABLE told (role text)")
    server.sql("SELECT cron.schedule('tell', '* * * * *', 'INSERT INTO told SELECT current_user')")
    deadline = time.monotonic() + 90
    while not server.sql("SELECT FROM told") and time.monotonic() < deadline:
        time.sleep(1)
    server.sql("SELECT cron.unschedule('tell')")
    assert server.sql("SELECT DISTINCT role FROM told") == [("postgres",)]


def test_the_server_is_nobody_special(server: Server) -> None:
    assert server.shell("id -un") == "postgres"
    assert int(server.shell("awk '/^CapEff/ {print $2}' /proc/1/status"), 16) == 0


def test_what_it_is_made_of_is_named(server: Server) -> None:
    labels = server.container.image.labels
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    installed = server.sql("SELECT extversion FROM pg_extension WHERE extname = 'cerebro'")
    assert installed == [(labels["org.opencontainers.image.version"],)]
    assert server.shell("command -v pip3 make gcc apt-get-nothing || true") == ""
    assert server.shell("ls -A /var/lib/apt/lists /var/cache | grep -v : || true") == ""


@pytest.mark.doors("container", "pack fit compare")
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_it_trains_to_the_same_bits_as_a_server_outside(
    trained: Server, connect: Callable[..., Connection], backend: str
) -> None:
    """The server outside the container is the private cluster that the other tests use."""
    option = f'"backend": "{backend}"'
    outside = connect()
    if not execute(outside, "SELECT to_regclass('packed')")[0][0]:
        prepare(outside)
    found: list[Rows] = []
    with closing(trained.open()) as inside:
        for connection in (inside, outside):
            execute(connection, FIT.format(backend, 3, option))
            found.append(execute(connection, BITS.format(backend)))
        assert execute(inside, "SELECT DISTINCT topology FROM cerebro.runs") == [("local",)]
    assert len(found[0]) == 2
    assert found[0] == found[1]


@pytest.mark.doors("container", "background watch resume")
def test_a_container_that_is_killed_resumes_to_the_same_bits(image: None) -> None:
    run = "SELECT status, visits_done, visits_total FROM cerebro.runs WHERE model_table = 'public.killed'"
    with container(POSTGRES_PASSWORD=PASSWORD) as server:
        server.wait_until("healthy")
        with closing(server.open()) as connection:
            prepare(connection)
            execute(connection, FIT.format("undisturbed", 150, '"backend": "jax"'))
            expected = execute(connection, BITS.format("undisturbed"))
            execute(connection, FIT.format("killed", 150, '"backend": "jax", "background": true'))
            while execute(connection, run)[0][1] < 30:
                time.sleep(0.02)
        server.container.kill()
        server.exit_code()
        server.container.start()
        server.wait_until("healthy")
        (found,) = server.sql(run)
        assert found[0] == "interrupted"
        assert found[1] < found[2]
        server.sql("SELECT cerebro.resume(run_id) FROM cerebro.runs WHERE status = 'interrupted'")
        assert server.sql(run)[0][0] == "finished"
        assert server.sql(BITS.format("killed")) == expected


@pytest.mark.parametrize("password", ["falsches-Wort", ""], ids=["wrong", "missing"])
def test_who_has_no_password_stays_outside(server: Server, password: str) -> None:
    with pytest.raises(psycopg2.OperationalError, match="password"):
        server.open(password=password)


def test_a_password_is_asked_for_within_the_container_too(server: Server) -> None:
    assert "no password supplied" in server.shell("psql -w -h 127.0.0.1 -U postgres -c '' 2>&1 || true")


def test_without_a_password_nothing_starts(image: None) -> None:
    with container() as server:
        assert server.exit_code() == 1
        assert "POSTGRES_PASSWORD is not set" in server.logs


def test_the_password_does_not_stay_where_functions_can_read_it(server: Server) -> None:
    assert PASSWORD not in server.shell("tr '\\0' ' ' </proc/1/environ")
    read = "DO $$ import os; plpy.notice(os.environ.get('POSTGRES_PASSWORD')) $$ LANGUAGE plpython3u"
    with closing(server.open()) as connection:
        execute(connection, read)
        assert PASSWORD not in "".join(connection.notices)


def test_the_usual_settings_and_scripts(image: None, tmp_path: Path) -> None:
    """A password file, names of user and database, and start scripts, in order of name, are heeded."""
    (tmp_path / "secret").write_text(f"{PASSWORD}\n")
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "1.sql").write_text("CREATE TABLE done (by text);")
    (scripts / "2.sh").write_text("psql -c \"INSERT INTO done VALUES ('a shell')\"")
    (scripts / "3.txt").write_text("not a script")
    for file in (tmp_path / "secret", scripts, *scripts.iterdir()):
        file.chmod(0o755)
    tmp_path.chmod(0o755)
    files = {str(tmp_path / "secret"): "/run/secret", str(scripts): "/docker-entrypoint-initdb.d"}
    names = {"POSTGRES_USER": "chief", "POSTGRES_DB": "sales"}
    with container(files=files, POSTGRES_PASSWORD_FILE="/run/secret", **names) as server:
        server.wait_until("healthy")
        assert server.sql("SELECT by FROM done", dbname="sales", user="chief") == [("a shell",)]
        assert server.sql(
            "SELECT rolname::text FROM pg_roles WHERE rolsuper", dbname="sales", user="chief"
        ) == [("chief",)]


def test_a_start_that_fails_is_begun_again(image: None, tmp_path: Path) -> None:
    script = tmp_path / "fails.sql"
    script.write_text("SELECT 1 / 0;")
    files = {str(script): "/docker-entrypoint-initdb.d/fails.sql"}
    with container(files=files, POSTGRES_PASSWORD=PASSWORD) as server:
        assert server.exit_code() != 0
        assert "division by zero" in server.logs
        script.write_text("CREATE TABLE better ();")
        server.container.start()
        server.wait_until("healthy")
        assert server.sql("SELECT to_regclass('better')::text") == [("better",)]


def test_it_ends_cleanly_and_keeps_its_data(image: None) -> None:
    with container(POSTGRES_PASSWORD=PASSWORD) as server:
        server.wait_until("healthy")
        server.sql("CREATE TABLE kept AS SELECT 42 AS answer")
        idle = server.open()
        server.container.stop(timeout=60)
        assert server.exit_code() == 0
        assert "received fast shutdown request" in server.logs
        assert "database system is shut down" in server.logs.splitlines()[-1]
        idle.close()
        server.container.start()
        server.wait_until("healthy")
        assert server.sql("SELECT answer FROM kept") == [(42,)]
        assert "database system was not properly shut down" not in server.logs


RETRAINED = """
CREATE ROLE keeper LOGIN; SELECT cerebro.grant_usage('keeper');
GRANT USAGE ON SCHEMA cron TO keeper; GRANT CREATE ON SCHEMA public TO keeper; SET ROLE keeper;
CREATE TABLE leavers AS SELECT i AS id, i * 7 % 60 AS age, (i * 7 % 60 > 30)::text AS gone
FROM generate_series(1, 600) AS i;
SELECT FROM cerebro.train('leavers', 'gone', name => 'leaving', budget => '10 seconds',
    options => '{"nets": "Dense(8)", "configs": 1, "epochs": 1, "exclude": ["id"], "single": true}');
SELECT cerebro.register('leaving', 'staying');
SELECT cerebro.schedule('staying', '* * * * *', 'leavers', '10 seconds', 'always');
"""


def test_a_schedule_trains_a_model_again(server: Server) -> None:
    """pg_cron trains the model, in a session of the role that made the schedule."""
    with closing(server.open()) as connection:
        execute(connection, RETRAINED)
    ran = "SELECT outcome, version, promoted, role FROM cerebro.schedule_runs WHERE outcome <> 'running'"
    deadline = time.monotonic() + 240
    while not server.sql(ran) and time.monotonic() < deadline:
        time.sleep(1)
    server.sql("SET ROLE keeper; SELECT cerebro.unschedule('staying')")
    assert server.sql(ran)[0] == ("done", 2, True, "keeper")
