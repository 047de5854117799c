"""How segment sessions log in, on a server of the tests' own with Debian's pg_hba.conf."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg2
import pytest

from fixtures import Connection, execute
from programs import program
from stage import ARCHITECTURE, FITTED, SGD

pytestmark = pytest.mark.slow

SECRET = "geheimes-Wort"
CALLERS = "callers-Wort"
# postgresql-common writes these lines; {user} is postgres there, the user of the server.
DEBIAN = """\
local   all             {user}                                  peer
local   all             all                                     peer
host    all             all             127.0.0.1/32            scram-sha-256
host    all             all             ::1/128                 scram-sha-256
local   replication     all                                     peer
host    replication     all             127.0.0.1/32            scram-sha-256
host    replication     all             ::1/128                 scram-sha-256
"""
PASSWORDS_EVERYWHERE = DEBIAN.replace("peer", "scram-sha-256").replace("{user}", "all")
# All that is said and done is logged, so that a password that travels in SQL is found.
CONFIGURATION = """
listen_addresses = '127.0.0.1'
log_statement = all
log_min_duration_statement = 0
log_connections = on
fsync = off
"""
RELOADING = "reloading configuration files"
FIT = f"SELECT cerebro.madlib_fit('packed', '{{0}}', 'arch', 1, $${SGD}$$, '{FITTED}', 1)"


def as_server(*command: str, given: str = "") -> str:
    """Run a command as the user postgres if this process is root, since PostgreSQL refuses to run as root."""
    drop = "setpriv --reuid=postgres --regid=postgres --init-groups --reset-env".split()
    full = [*(drop if os.geteuid() == 0 else []), *command]
    done = subprocess.run(full, input=given, capture_output=True, text=True, cwd="/", check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr}")
    return done.stdout


@dataclass(frozen=True)
class Cluster:
    """A PostgreSQL server that only these tests use."""

    folder: Path
    binaries: Path
    user: str
    port: int

    @property
    def log(self) -> str:
        return as_server("cat", f"{self.folder}/log")

    def control(self, *arguments: str) -> None:
        as_server(
            f"{self.binaries}/pg_ctl", "-D", f"{self.folder}/data", "-l", f"{self.folder}/log", "-s", "-w",
            *arguments,
        )  # fmt: skip

    def administer(self, statements: str) -> str:
        """Run SQL as the superuser with psql, and do not log the statements: they contain passwords."""
        quietly = "SET log_statement = none; SET log_min_duration_statement = -1;"
        place = ["-h", f"{self.folder}", "-p", f"{self.port}", "-U", self.user, "-d", "postgres"]
        psql = [f"{self.binaries}/psql", "-XAtq", "-v", "ON_ERROR_STOP=1", *place]
        return as_server(*psql, given=quietly + statements)

    def admit(self, rules: str) -> None:
        """Replace pg_hba.conf, and wait until the server has loaded it."""
        as_server("tee", f"{self.folder}/data/pg_hba.conf", given=rules.format(user=self.user))
        seen = self.log.count(RELOADING)
        self.control("reload")
        while self.log.count(RELOADING) == seen:
            time.sleep(0.05)

    def connection_setting(self, value: str | None) -> None:
        self.administer("DELETE FROM cerebro.settings WHERE name = 'connection';")
        if value is not None:
            literal = value.replace("'", "''")
            self.administer(f"INSERT INTO cerebro.settings VALUES ('connection', '{literal}');")

    def caller(self) -> Connection:
        """Open a session as an application does: over TCP, with a password."""
        connection = psycopg2.connect(
            host="127.0.0.1", port=self.port, dbname="postgres", user="caller", password=CALLERS
        )
        connection.autocommit = True
        connection.notices = []
        return connection


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    binaries = Path(program("postgres")).parent
    folder = Path(tempfile.mkdtemp(prefix="cerebro-login-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    made = Cluster(folder, binaries, user, _free_port())
    try:
        _start(made)
        yield made
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            made.control("stop", "-m", "immediate")
        shutil.rmtree(folder)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _start(cluster: Cluster) -> None:
    data = f"{cluster.folder}/data"
    as_server(
        f"{cluster.binaries}/initdb", "-D", data, "-U", cluster.user, "-A", "trust", "-E", "UTF8", "--no-sync"
    )
    places = f"unix_socket_directories = '{cluster.folder}'\nport = {cluster.port}\n"
    as_server("tee", "-a", f"{data}/postgresql.conf", given=CONFIGURATION + places)
    as_server("tee", f"{data}/pg_hba.conf", given=DEBIAN.format(user=cluster.user))
    cluster.control("start")
    cluster.administer(
        f"ALTER ROLE CURRENT_USER PASSWORD '{SECRET}'; CREATE ROLE caller LOGIN PASSWORD '{CALLERS}';"
        f"CREATE ROLE weak LOGIN PASSWORD '{SECRET}'; GRANT CREATE ON SCHEMA public TO caller;"
        "CREATE EXTENSION cerebro CASCADE; SELECT cerebro.grant_usage('caller');"
        "INSERT INTO cerebro.settings VALUES ('backend', 'jax'), ('segments', '1'), ('threads', '1');"
    )
    with closing(cluster.caller()) as session:
        execute(
            session,
            "CREATE TABLE rows AS SELECT array[g, 1, 2, 3]::real[] AS x, g % 2 AS y"
            " FROM generate_series(1, 8) AS g",
        )
        execute(session, "SELECT cerebro.training_preprocessor_dl('rows', 'packed', 'y', 'x')")
        execute(
            session,
            "CREATE TABLE arch (model_id integer, model_arch json, model_weights bytea, name text,"
            " description text)",
        )
        execute(session, "INSERT INTO arch VALUES (1, %s)", ARCHITECTURE)


def train(session: Connection, name: str) -> tuple[str, str]:
    """Train a config in a session, and return the topology of the run and the notices of the server."""
    session.notices.clear()
    execute(session, FIT.format(name))
    query = "SELECT topology FROM cerebro.runs WHERE model_table = %s"
    return execute(session, query, f"public.{name}")[0][0], "".join(session.notices)


@pytest.fixture(scope="module")
def refused(cluster: Cluster) -> Iterator[Connection]:
    """A caller's session for the tests in which segment sessions cannot log in."""
    with closing(cluster.caller()) as session:
        yield session


def test_debians_default_lets_segment_sessions_in_without_a_password(cluster: Cluster) -> None:
    with closing(cluster.caller()) as session:
        topology, said = train(session, "peer")
    assert topology == "local"
    assert "slower" not in said


def test_a_connection_string_lets_them_in_where_passwords_are_asked_for(cluster: Cluster) -> None:
    place = f"host={cluster.folder} port={cluster.port} dbname=postgres user={cluster.user}"
    cluster.connection_setting(f"{place} password={SECRET}")
    cluster.admit(PASSWORDS_EVERYWHERE)
    try:
        with closing(cluster.caller()) as session:
            assert train(session, "scram")[0] == "local"
    finally:
        cluster.admit(DEBIAN)
        cluster.connection_setting(None)


def test_a_refusal_says_what_to_set_and_the_run_goes_on_inline(cluster: Cluster, refused: Connection) -> None:
    cluster.admit(PASSWORDS_EVERYWHERE)
    try:
        topology, said = train(refused, "refused")
    finally:
        cluster.admit(DEBIAN)
    assert topology == "inline"
    assert "pg_hba.conf" in said
    assert "cerebro.settings" in said


BROKEN = {
    "wrong": "host={folder} port={port} dbname=postgres user={user} password=falsches-Wort",
    "nobody": f"host={{folder}} port={{port}} dbname=postgres user=nobody password={SECRET}",
    "no server": f"host=/nowhere user=postgres password={SECRET}",
    "no such option": f"host=/nowhere kennwort={SECRET}",
    "not a string": f"host=/nowhere password={SECRET} {SECRET}",
    "no quote": f"host=/nowhere password='{SECRET}",
    "uri": f"postgresql://postgres:{SECRET}@[nowhere/postgres",
    "no superuser": f"host={{folder}} port={{port}} dbname=postgres user=weak password={SECRET}",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_connection_string_that_does_not_work_is_never_told(
    cluster: Cluster, refused: Connection, kind: str
) -> None:
    """With a connection string that does not work, a run trains inline, and no message quotes the string."""
    place = {"folder": cluster.folder, "port": cluster.port, "user": cluster.user}
    cluster.connection_setting(BROKEN[kind].format(**place))
    cluster.admit(PASSWORDS_EVERYWHERE)
    try:
        topology, said = train(refused, f"broken_{list(BROKEN).index(kind)}")
    finally:
        cluster.admit(DEBIAN)
        cluster.connection_setting(None)
    assert topology == "inline"
    assert "the stored connection string does not work" in said
    for secret in (SECRET, "Wort", "kennwort", "nowhere", str(cluster.folder)):
        assert secret not in said


def test_no_password_is_in_a_log_or_a_view(cluster: Cluster) -> None:
    """The log, which has the statements of all tests before, and the views contain no password."""
    assert "cerebro._segment" in cluster.log
    assert "Wort" not in cluster.log
    with closing(cluster.caller()) as session:
        for view in (
            "pg_stat_activity",
            "pg_settings",
            *(f"cerebro.{v}" for v in ("runs", "visits", "progress")),
        ):
            assert "Wort" not in str(execute(session, f"SELECT v::text FROM {view} AS v"))
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            execute(session, "SELECT * FROM cerebro.settings")
