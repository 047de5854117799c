"""A database of each released version, once updated or restored, is as if the present version had made it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest
from psycopg2 import sql as syntax

from fixtures import Connection, Rows, execute
from programs import program, shared_folder
from scratch import Server, shell
from scratch import server as private_server
from stage import connect, unique

# The databases of released versions are dumps that PostgreSQL made, and are moved with its tools.
pytestmark = pytest.mark.postgresql

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MIGRATIONS = ROOT / "migrations"
OPERATIONS = ROOT / "docs" / "operations.md"
VERSIONS = sorted(file.stem for file in (HERE / "released").glob("*.*.*.sql"))
EXTENSIONS = ("cerebro", "cerebro_madlib")
RUNNER, READER = "cerebro_old_runner", "cerebro_old_reader"
PREDICTED = (
    "SELECT r.id, p.class, p.probability FROM lab.rows AS r, cerebro.predict('lab.m', 1, r.x) AS p ORDER BY 1"
)
# Calls that register the old models with the present version.
REGISTERED = (
    "SELECT cerebro.register('lab.m', 'kept', 1, 'of an earlier release')",
    "SELECT cerebro.register('lab.m', 'kept', 2)",
    "SELECT cerebro.set_alias('kept', 'champion', 1)",
    "SELECT cerebro.check('kept@champion', 'lab.rows')",
    "SELECT cerebro.grant_model('kept', 'cerebro_old_reader', 'predict')",
)
SCHEDULED = (
    "INSERT INTO cerebro._schedule (name, alias, schedule, job_id, role, promote)"
    " VALUES ('kept', 'champion', '0 3 * * 1', 7, %s, 'never')",
    "INSERT INTO cerebro._schedule_run (name, alias, role, pid, ended_at, outcome, version, promoted, reason)"
    " VALUES ('kept', 'champion', %s, 1, now(), 'done', 2, false, 'it is not better')",
)
BY_ALIAS = PREDICTED.replace("'lab.m', 1", "'kept@champion', NULL")
# The tables of the extension whose rows pg_dump dumps.
DUMPED = (
    "SELECT c::regclass::text FROM pg_extension, unnest(extconfig) AS c WHERE extname = 'cerebro' ORDER BY 1"
)
# Lines of a dump for pg_upgrade that are comments or differ between any two databases.
NUMBERS = re.compile(r"^--|binary_upgrade_set_next|relfrozenxid|^\\(un)?restrict ")


@pytest.fixture(scope="module")
def old_scripts(server: None) -> Iterator[None]:
    """Add the install scripts of all released versions to the server's folder; remove them afterwards."""
    folder = shared_folder() / "extension"
    present = (folder / f"cerebro--{_present_version(folder)}.sql").read_text()
    found = re.search(r'packages, site = "(.*?)", "(.*?)"', present)
    assert found
    added: list[Path] = []
    for script in (MIGRATIONS / "released").glob("*.sql"):
        place = folder / script.name
        if not place.exists():
            text = script.read_text().replace("@PYTHON_DIR@", found[1]).replace("@SITE_PACKAGES@", found[2])
            _write(place, text)
            added.append(place)
    yield
    for place in added:
        subprocess.run([*_sudo(folder), "rm", place], check=True)


def _present_version(folder: Path) -> str:
    found = re.search(r"default_version = '(.*)'", (folder / "cerebro.control").read_text())
    assert found
    return found[1]


def _sudo(folder: Path) -> list[str]:
    return [] if os.access(folder, os.W_OK) else ["sudo"]


def _write(place: Path, text: str) -> None:
    subprocess.run(
        [*_sudo(place.parent), "tee", place], input=text, text=True, stdout=subprocess.DEVNULL, check=True
    )


@pytest.fixture(scope="module")
def roles(server: None) -> Iterator[None]:
    """Create the roles that own and use the tables of the old databases; drop them afterwards."""
    with closing(connect("postgres")) as connection:
        _make_roles(connection)
        yield
        for role in (RUNNER, READER):
            execute(connection, f"DROP ROLE {role}")


def _make_roles(connection: Connection) -> None:
    for role in (RUNNER, READER):
        execute(connection, f"CREATE ROLE {role} LOGIN")


@pytest.fixture(scope="module")
def fresh(roles: None) -> Iterator[str]:
    """The name of a database in which the present version was installed directly."""
    with closing(connect("postgres")) as connection:
        name = unique("fresh")
        execute(connection, f"CREATE DATABASE {name} TEMPLATE template0")
        try:
            with closing(connect(name)) as inside:
                execute(inside, "CREATE EXTENSION cerebro_madlib CASCADE")
                for role in (RUNNER, READER):
                    execute(inside, "SELECT cerebro.grant_usage(%s)", role)
            yield name
        finally:
            execute(connection, f"DROP DATABASE {name} WITH (FORCE)")


def _restore(text: str, name: str, *where: str) -> None:
    command = [program("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-o", os.devnull, "-d", name, *where]
    subprocess.run(command, input=text, text=True, check=True)


def _restore_later(text: str, name: str, *where: str) -> None:
    """Restore a dump with the present version installed, and grant usage again.

    The only errors allowed are grants on functions whose parameters have changed since.
    """
    command = [program("psql"), "-X", "-q", "-o", os.devnull, "-d", name, *where]
    said = subprocess.run(command, input=text, text=True, check=True, stderr=subprocess.PIPE).stderr
    errors = re.findall(r"ERROR:  (.*)", said)
    known = r"function (cerebro|madlib)\.\w+\(.*\) does not exist"
    assert all(re.fullmatch(known, error) for error in errors), errors
    command[1:1] = ["-v", "ON_ERROR_STOP=1"]
    again = "".join(f"SELECT cerebro.grant_usage('{role}');" for role in (RUNNER, READER))
    subprocess.run(command, input=again, text=True, check=True)


def _database(name: str, dump: str, restore: Callable[[str, str], None] = _restore) -> Iterator[str]:
    with closing(connect("postgres")) as connection:
        execute(connection, f"CREATE DATABASE {name} TEMPLATE template0")
        try:
            restore(dump, name)
            yield name
        finally:
            execute(connection, f"DROP DATABASE {name} WITH (FORCE)")


def _update(name: str) -> None:
    with closing(connect(name)) as connection:
        for extension in EXTENSIONS:
            execute(connection, f"ALTER EXTENSION {extension} UPDATE")


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def dump(version: str) -> str:
    """The dump of a database of an old version, unchanged."""
    return (HERE / "released" / f"{version}.sql").read_text()


@pytest.fixture(scope="module")
def old_dump(version: str, dump: str) -> str:
    """The dump of a database of an old version, changed so that restoring it installs this old version."""
    text = dump
    for extension in EXTENSIONS:
        made = f"CREATE EXTENSION IF NOT EXISTS {extension} WITH SCHEMA pg_catalog"
        assert text.count(made) == 1
        text = text.replace(made, f"{made} VERSION '{version}'")
    return text


@pytest.fixture(scope="module")
def updated(old_dump: str, old_scripts: None, roles: None) -> Iterator[str]:
    """The name of a database of the old version, after ALTER EXTENSION UPDATE."""
    for name in _database(unique("updated"), old_dump):
        _update(name)
        yield name


@pytest.fixture(scope="module")
def restored(dump: str, roles: None) -> Iterator[str]:
    """The name of a database of the present version into which the dump of the old version was restored."""
    yield from _database(unique("restored"), dump, _restore_later)


@pytest.fixture(scope="module")
def moved(dump: str) -> Iterator[Server]:
    """A server made by pg_upgrade from a server with the old dump, whose Python code was in another folder.

    The old server has another version of PostgreSQL if CEREBRO_TEST_OLD_SERVER names the folder of its
    programs.
    """
    before = os.environ.get("CEREBRO_TEST_OLD_SERVER")
    programs = Path(before) if before else None
    with private_server(programs=programs) as old, private_server(empty=True) as new:
        with closing(old.connect()) as connection:
            _make_roles(connection)
            execute(connection, "DROP EXTENSION cerebro")
        _restore_later(dump, "postgres", "-h", str(old.folder))
        with closing(old.connect(user=RUNNER)) as connection:
            for statement in REGISTERED:
                execute(connection, statement)
        with closing(old.connect()) as connection:
            for statement in SCHEDULED:
                execute(connection, statement, RUNNER)
            ((boot,),) = execute(connection, "SELECT pg_get_functiondef('cerebro._boot()'::regprocedure)")
            execute(connection, re.sub(r'packages, site = ".*"', 'packages, site = "/none", "/none"', boot))
        old.stop("fast")
        shell(
            """as_server bash -c 'cd "$0" && exec "$@"' "$@" </dev/null""", new.folder,
            program("pg_upgrade"), "--username=postgres", f"--socketdir={new.folder}",
            "-b", old.bin, "-B", new.bin, "-d", old.data, "-D", new.data,
        )  # fmt: skip
        new.start()
        yield new


@pytest.fixture(scope="module")
def again(updated: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a database restored from a dump of the updated database."""
    yield from _database(unique("again"), _dump(updated))


def _dump(name: str, *options: str) -> str:
    return subprocess.run(
        [program("pg_dump"), *options, name], check=True, capture_output=True, text=True
    ).stdout


def objects(name: str) -> dict[str, list[str]]:
    """Return the definition, comment, privileges and initial privileges of each object of the extensions."""
    text = re.sub(r"\b\d{5,}\b", "N", _dump(name, "--schema-only", "--binary-upgrade"))
    found: dict[str, list[str]] = {}
    for part in re.split(r"^-- Name: ", text, flags=re.M)[1:]:
        head, _, body = part.partition("\n")
        if re.search("Schema: lab;|^lab; Type: SCHEMA;|; Type: SEQUENCE SET;", head):
            continue
        lines = [line for line in body.splitlines() if line and not NUMBERS.search(line)]
        # The order of privileges is that in which they were granted.
        found[head] = sorted(lines) if "; Type: ACL;" in head else lines
    return found


def test_all_objects_are_those_of_a_fresh_install(updated: str, fresh: str) -> None:
    old, new = objects(updated), objects(fresh)
    assert len(new) > 100
    assert old.keys() ^ new.keys() == set()
    assert {name: body for name, body in old.items() if body != new[name]} == {
        name: body for name, body in new.items() if body != old[name]
    }


def test_the_same_rows_are_dumped(updated: str, fresh: str) -> None:
    assert _rows(updated, DUMPED) == _rows(fresh, DUMPED) != []


def test_privileges_survive_a_dump_of_the_updated_database(updated: str, again: str) -> None:
    """A dump of the updated database has all grants.

    PostgreSQL records the grants of an update script as the extension's own, which pg_dump would leave out.
    """
    assert objects(again) == objects(updated)


def _rows(name: str, query: str, role: str | None = None) -> Rows:
    with closing(connect(name)) as connection:
        if role is not None:
            execute(connection, syntax.SQL("SET SESSION AUTHORIZATION {}").format(syntax.Identifier(role)))
        return execute(connection, query)


WAYS = ["updated", "restored", pytest.param("told", marks=pytest.mark.slow, id="moved")]


@pytest.fixture(scope="module", params=WAYS)
def runner(request: pytest.FixtureRequest, version: str) -> Iterator[Connection]:
    """A connection as the owner of the old runs, to an updated, restored or moved database."""
    place = request.getfixturevalue(request.param)
    opened = connect(place, RUNNER) if isinstance(place, str) else place[0].connect(user=RUNNER)
    with closing(opened) as connection:
        yield connection


@pytest.fixture(scope="module")
def told(moved: Server) -> tuple[Server, psycopg2.Error]:
    """The moved server, told the new folder by the manual's command, and the error of a call before that."""
    with closing(moved.connect(user=RUNNER)) as connection, pytest.raises(psycopg2.Error) as caught:
        execute(connection, PREDICTED)
    command = re.search(r"^    (sed .*_boot.*)$", OPERATIONS.read_text(), re.M)
    assert command
    where = {"PGHOST": str(moved.folder), "PGDATABASE": "postgres", "PG_CONFIG": program("pg_config")}
    subprocess.run(
        ["bash", "-c", f'pg_config() {{ "$PG_CONFIG" "$@"; }}; {command[1]}'],
        env=os.environ | where, stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    return moved, caught.value


@pytest.mark.slow
def test_a_database_is_told_where_the_extension_stands_by_now(told: tuple[Server, psycopg2.Error]) -> None:
    _, error = told
    assert error.pgcode == "58P01"
    assert "none of the Python code is in /none" in str(error)


def test_the_old_runs_are_there(runner: Connection) -> None:
    runs = execute(runner, "SELECT run_id, status, visits_done FROM cerebro.runs ORDER BY 1")
    assert runs == [(1, "finished", 8), (2, "failed", 4)]
    for view, count in (("visits", 12), ("leaderboard", 4), ("progress", 4), ("sizes", 2), ("costs", 2)):
        assert execute(runner, f"SELECT count(*) FROM cerebro.{view}") == [(count,)], view


def test_the_old_roles_may_call_what_they_could(runner: Connection) -> None:
    """A call by the owner of the old runs fails only for its argument, a table that does not exist."""
    load = (
        "SELECT cerebro.load_model_selection_table('lab.none', 'lab.mine', ARRAY[1], ARRAY['c'], ARRAY['f'])"
    )
    with pytest.raises(psycopg2.errors.UndefinedTable, match="'lab.none' does not exist"):
        execute(runner, load)


@pytest.mark.slow
def test_the_old_models_predict_what_they_predicted(runner: Connection) -> None:
    expected = execute(runner, "SELECT id, class, probability FROM lab.expected ORDER BY 1")
    found = execute(runner, PREDICTED)
    assert len(found) == 24
    assert [(number, name) for number, name, _ in found] == [(number, name) for number, name, _ in expected]
    # Another machine may round otherwise.
    assert [value for *_, value in found] == pytest.approx([value for *_, value in expected], rel=1e-5)


@pytest.mark.slow
def test_the_old_models_are_registered_and_answer_by_their_alias(runner: Connection) -> None:
    """In the moved server the models were registered before the move; elsewhere the test registers them."""
    if not execute(runner, "SELECT FROM cerebro.models WHERE name = 'kept'"):
        for statement in REGISTERED:
            execute(runner, statement)
    assert execute(runner, BY_ALIAS) == execute(runner, PREDICTED)
    assert execute(runner, "SELECT aliases FROM cerebro.models") == [({"default": 1, "champion": 1},)]
    assert execute(runner, "SELECT event FROM cerebro.model_history ORDER BY event_id") == [
        ("registered",), ("set",), ("registered",), ("set",),
    ]  # fmt: skip
    assert execute(runner, "SELECT version, verdict, findings <> '[]' FROM cerebro.model_health") == [
        (1, "ok", True)
    ]
    assert execute(runner, "SELECT owner, granted_to FROM cerebro.models") == [(RUNNER, {READER: "predict"})]
    # What is added gets numbers that are free.
    execute(runner, "SELECT cerebro.check('kept@2', 'lab.rows')")
    assert execute(runner, "SELECT version FROM cerebro.model_health ORDER BY check_id") == [(1,), (2,)]
    execute(runner, "SELECT cerebro.set_alias('kept', 'champion', 2), cerebro.rollback('kept', 'champion')")
    assert execute(runner, "SELECT cerebro.register('kept@2', 'again')") == [(1,)]
    execute(runner, "SELECT cerebro.unregister('again')")


@pytest.mark.slow
def test_what_a_moved_server_had_scheduled_and_granted_is_there(told: tuple[Server, psycopg2.Error]) -> None:
    with closing(told[0].connect(user=RUNNER)) as connection:
        assert execute(connection, "SELECT name, alias, job_id, role FROM cerebro.schedules") == [
            ("kept", "champion", 7, RUNNER)
        ]
        ran = "SELECT outcome, version, promoted, reason FROM cerebro.schedule_runs"
        assert execute(connection, ran) == [("done", 2, False, "it is not better")]
        ((_, expected, _), *_) = execute(connection, BY_ALIAS)
        ((row,),) = execute(connection, "SELECT x::text FROM lab.rows ORDER BY id LIMIT 1")
    with closing(told[0].connect(user=READER)) as connection:
        asked = "SELECT p.class FROM cerebro.predict('kept@champion', NULL, %s::float8[]) AS p"
        assert execute(connection, asked, row) == [(expected,)]
        with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="you may only predict with it"):
            execute(connection, "SELECT cerebro.read_model('kept@champion')")


@pytest.mark.slow
def test_the_old_run_that_broke_is_resumed(runner: Connection) -> None:
    execute(runner, "SELECT cerebro.resume(2)")
    assert execute(runner, "SELECT status, visits_done FROM cerebro.runs WHERE run_id = 2") == [
        ("finished", 12)
    ]
    assert execute(runner, "SELECT mst_key, status FROM lab.broken_info ORDER BY 1") == [
        (1, "finished"), (2, "finished"),
    ]  # fmt: skip


def test_usage_that_was_granted_is_held(updated: str, fresh: str) -> None:
    """Both roles have the same privileges in the updated database as in a database of the present version."""
    held = (
        "SELECT p.oid::regprocedure::text, has_function_privilege('{0}', p.oid, 'EXECUTE') FROM pg_proc AS p"
        " WHERE pronamespace = 'cerebro'::regnamespace UNION ALL"
        " SELECT c.oid::regclass::text, has_table_privilege('{0}', c.oid, 'SELECT') FROM pg_class AS c"
        " WHERE relnamespace = 'cerebro'::regnamespace AND relkind IN ('r', 'v') ORDER BY 1"
    )
    for role in (RUNNER, READER):
        found = _rows(updated, held.format(role))
        assert found == _rows(fresh, held.format(role))
        assert {granted for _, granted in found} == {True, False}


def test_a_role_without_usage_gets_none(updated: str) -> None:
    with closing(connect(updated)) as connection:
        execute(connection, "CREATE ROLE cerebro_old_stranger")
        try:
            execute(connection, "SET ROLE cerebro_old_stranger")
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                execute(connection, "SELECT * FROM cerebro.runs")
        finally:
            execute(connection, "RESET ROLE")
            execute(connection, "DROP ROLE cerebro_old_stranger")


def test_every_released_version_has_its_database() -> None:
    released = re.findall(r"^version (\S+)", (MIGRATIONS / "released.txt").read_text(), re.M)
    assert sorted(released) == VERSIONS
