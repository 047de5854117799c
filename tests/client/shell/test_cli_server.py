"""`cerebro init` and `cerebro doctor`: they find what a server lacks, and mend it or say what to do."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from cerebro_db.cli import server
from psycopg2 import sql as syntax

from fixtures import Connect, MakeRole, Sql, execute, setting
from programs import program
from shell import cerebro

ROOT = Path(__file__).resolve().parents[3]
PARTS = (
    "plpy", "sql", "migrations", "tools", "Makefile", "cerebro.control", "cerebro_madlib.control.in",
    "META.json.in", "requirements.lock",
)  # fmt: skip


@pytest.fixture
def bare(empty_database: str) -> Iterator[str]:
    """Yield a database without the extension; drop the extension after the test."""
    yield empty_database
    with closing(psycopg2.connect(dbname=empty_database)) as connection:
        connection.autocommit = True
        execute(connection, "DROP EXTENSION IF EXISTS cerebro, plpython3u CASCADE")


def extensions(database: str) -> list[str]:
    with closing(psycopg2.connect(dbname=database)) as connection:
        return [name for (name,) in execute(connection, "SELECT extname FROM pg_extension ORDER BY 1")]


def findings(database: str, user: str | None = None) -> tuple[int, dict[str, dict[str, Any]]]:
    done = cerebro("doctor", "--format", "json", database=database, user=user)
    assert done.out, done.err
    return done.code, {row["item"]: row for row in done.rows}


def test_init_puts_the_extension_into_a_database(role: MakeRole, bare: str) -> None:
    analyst = role(usage=False)
    dry = cerebro("init", "--dry-run", "--grant", analyst, database=bare)
    assert "would run: CREATE EXTENSION" in dry.out and "cerebro" not in extensions(bare)
    done = cerebro("init", "--grant", analyst, database=bare)
    assert done.code == 0, done.err
    assert "cerebro" in extensions(bare)
    assert cerebro("runs", database=bare, user=analyst).code == 0
    again = cerebro("init", database=bare, user=analyst)
    assert again.code == 0 and "is in" in again.out


def test_init_says_what_an_administrator_must_run(role: MakeRole, bare: str) -> None:
    analyst = role(usage=False)
    done = cerebro("init", database=bare, user=analyst)
    assert done.code == 1
    commands = [line for line in done.err.splitlines() if line.startswith("psql ")]
    assert len(commands) == 2, done.err
    assert "cerebro" not in extensions(bare)
    for command in commands:
        words = shlex.split(command)
        subprocess.run([program(words[0]), "-Xq", *words[1:]], check=True, capture_output=True)
    assert cerebro("runs", database=bare, user=analyst).code == 0


@pytest.fixture
def odd() -> Iterator[tuple[str, str]]:
    """Yield a role and a database, with characters in their names that a shell acts on."""
    role, name = "r`touch x`$(touch x)'\"\\!;&|", "d`touch x`$(touch x)'\"=\\"
    quoted = {"role": syntax.Identifier(role), "name": syntax.Identifier(name)}
    with closing(psycopg2.connect(dbname="postgres")) as connection:
        connection.autocommit = True
        execute(connection, syntax.SQL("CREATE ROLE {role} LOGIN").format(**quoted))
        execute(connection, syntax.SQL("CREATE DATABASE {name} TEMPLATE template0").format(**quoted))
        yield role, name
        execute(connection, syntax.SQL("DROP DATABASE {name} WITH (FORCE)").format(**quoted))
        execute(connection, syntax.SQL("DROP ROLE {role}").format(**quoted))


def test_what_is_to_be_run_is_safe_to_paste(odd: tuple[str, str], tmp_path: Path) -> None:
    role, name = odd
    done = cerebro("init", database=name, user=role)
    commands = [line for line in done.err.splitlines() if line.startswith("psql ")]
    assert len(commands) == 2, done.err
    for command in commands:
        words = shlex.split(command)
        pasted = shlex.quote(program(words[0])) + " -Xq " + command.removeprefix("psql ")
        subprocess.run(["bash", "-c", pasted], check=True, capture_output=True, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert cerebro("runs", database=name, user=role).code == 0
    _, found = findings(name, role)
    assert found["right to use cerebro"]["status"] == "ok"


def test_what_is_to_be_run_by_hand_is_safe_to_paste() -> None:
    facts = {"database": "d`x`$(x)'=", "role": "-r`x`$(x)'", "major": 15, "python": "1.0"}
    *_, command, _note = server._by_hand(facts)
    words = shlex.split(command)
    assert words[words.index("--dsn") + 1] == "dbname='d`x`$(x)\\'='"
    assert words[-1] == "--grant=-r`x`$(x)'"


def test_init_lets_a_role_in_where_only_that_is_missing(database: str, role: MakeRole) -> None:
    analyst = role(usage=False)
    done = cerebro("init", database=database, user=analyst)
    assert done.code == 1
    assert f"cerebro.grant_usage('{analyst}')" in done.err and "CREATE EXTENSION" not in done.err


def test_init_updates_what_is_old(bare: str) -> None:
    assert cerebro("init", database=bare).code == 0
    with closing(psycopg2.connect(dbname=bare)) as connection:
        connection.autocommit = True
        execute(connection, "UPDATE pg_extension SET extversion = '0.1.0' WHERE extname = 'cerebro'")
    _, found = findings(bare)
    assert found["extension"]["status"] == "note" and "cerebro 0.1.0" in found["extension"]["found"]
    assert "would run: ALTER EXTENSION cerebro UPDATE" in cerebro("init", "--dry-run", database=bare).out


def test_the_source_in_the_wheel_is_what_make_installs(tmp_path: Path) -> None:
    source = tmp_path / "source"
    assert cerebro("init", "--unpack", source).code == 0
    assert cerebro("init", "--unpack", source).code == 1
    config = program("pg_config")

    def install(root: Path, to: Path) -> dict[str, bytes]:
        command = [
            "make",
            "-s",
            "-C",
            root,
            "install",
            f"PG_CONFIG={config}",
            f"DESTDIR={to}",
            "SITE_PACKAGES=/packages",
        ]
        subprocess.run(command, check=True, capture_output=True)
        return {str(file.relative_to(to)): file.read_bytes() for file in to.rglob("*") if file.is_file()}

    copy = tmp_path / "checkout"
    copy.mkdir()
    subprocess.run(["cp", "-r", *PARTS, copy], cwd=ROOT, check=True)
    assert install(source, tmp_path / "a") == install(copy, tmp_path / "b")


def test_a_fit_server_has_nothing_wrong(database: str) -> None:
    code, found = findings(database)
    assert code == 0
    assert {row["status"] for row in found.values()} <= {"ok", "note"}
    assert {
        "server",
        "PL/Python",
        "extension",
        "package keras",
        "segment sessions",
        "memory",
        "disk",
        "GPU",
        "pg_hba.conf",
    } <= set(found)


def test_what_is_missing_is_found_with_what_to_do(
    bare: str, database: str, role: MakeRole, connect: Connect
) -> None:
    code, found = findings(bare)
    assert code == 1
    assert found["extension"]["status"] == "wrong" and "cerebro init" in found["extension"]["advice"]

    stranger = role(usage=False)
    execute(
        connect(), syntax.SQL("REVOKE CREATE ON SCHEMA public FROM {}").format(syntax.Identifier(stranger))
    )
    code, found = findings(database, stranger)
    assert code == 1
    assert "grant_usage" in found["right to use cerebro"]["advice"]
    assert "CREATE SCHEMA AUTHORIZATION" in found["right to make tables"]["advice"]
    assert "package keras" not in found


def test_segment_sessions_that_cannot_log_in_are_found(database: str, sql: Sql) -> None:
    with setting(sql, "connection", "host=/nowhere dbname=x user=y"):
        code, found = findings(database)
    assert code == 1
    assert found["segment sessions"]["status"] == "wrong" and "nowhere" not in str(found)


def test_a_backend_that_is_not_there_is_found(database: str, sql: Sql) -> None:
    with setting(sql, "backend", "torch"):
        _, found = findings(database)
    there = find_spec("torch") is not None
    assert found["backend torch"]["status"] == ("ok" if there else "wrong")


def test_too_few_connections_are_found(database: str, sql: Sql) -> None:
    with setting(sql, "segments", "500"):
        code, found = findings(database)
    assert code == 1
    assert "max_connections" in found["connections"]["advice"]


def test_the_advice_stands_below_the_table(database: str, role: MakeRole) -> None:
    done = cerebro("doctor", database=database, user=role(usage=False))
    assert done.code == 1
    assert "wrong" in done.out and "right to use cerebro: An administrator runs" in done.out


def test_a_database_without_the_extension_is_told_of(empty_database: str) -> None:
    done = cerebro("runs", database=empty_database)
    assert done.code == 1
    assert "cerebro init" in done.err
