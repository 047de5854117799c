"""Finds what a server lacks to run cerebro, for `cerebro init` and `cerebro doctor`."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_db.cli.exits import Refused

if TYPE_CHECKING:
    from cerebro_db.database import Database

# The extension's source as the wheel carries it: what `make install` needs.
SOURCE = Path(__file__).resolve().parents[1] / "server"
SUPPORTED = range(13, 19)

# The schemas of the user's search_path. This runs with that search_path, unlike LOOK.
PATH = "SELECT pg_catalog.current_schemas(FALSE)::pg_catalog.text[] AS path"
LOOK = """
SELECT current_database()::text AS database, current_user::text AS role, r.rolsuper AS super,
    current_setting('server_version') AS version, current_setting('server_version_num')::int / 10000 AS major,
    current_setting('gp_role', TRUE) IS NOT NULL AS cluster,
    (SELECT default_version FROM pg_available_extensions WHERE name = 'cerebro') AS available,
    (SELECT default_version FROM pg_available_extensions WHERE name = 'plpython3u') AS python,
    e.extversion AS installed, coalesce(pg_has_role(e.extowner, 'USAGE'), FALSE) AS owns,
    coalesce(has_schema_privilege(to_regnamespace('cerebro'), 'USAGE'), FALSE) AS usage,
    EXISTS (SELECT FROM pg_proc WHERE pronamespace = to_regnamespace('cerebro') AND proname = 'diagnose')
        AS diagnoses,
    (SELECT string_agg(quote_ident(s), ', ') FROM unnest(%s::text[]) AS s
        WHERE has_schema_privilege(s, 'CREATE')) AS schemas
FROM pg_roles AS r LEFT JOIN pg_extension AS e ON e.extname = 'cerebro'
WHERE r.rolname = current_user
"""
DIAGNOSE = "SELECT item, status, found, advice FROM cerebro.diagnose()"

Row = Mapping[str, Any]


@dataclass
class Plan:
    """A plan for `init`: SQL that it can run (`steps`), and commands for an administrator (`others`)."""

    problem: str
    steps: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


def plan(db: Database, grants: Sequence[str]) -> Plan:
    """Return the plan that installs or updates the extension, and grants the right to use it."""
    from cerebro_db.statements import literal

    found = _look(db)
    granting = [f"SELECT cerebro.grant_usage({literal(role)})" for role in grants]
    if found["installed"] is None and found["available"] is None:
        return Plan("the server has no files of the extension cerebro", others=list(_by_hand(found)))
    steps = [*_statements(found), *granting]
    if not found["super"] and not found["usage"] and found["role"] not in grants:
        steps.append(f"SELECT cerebro.grant_usage({literal(found['role'])})")
    if not steps:
        return Plan(f"cerebro {found['installed']} is in {found['database']}, and {found['role']} may use it")
    if found["super"] or (found["owns"] and not _statements(found)):
        return Plan("", steps=steps)
    problem = f"{found['role']} may not do this: it takes a superuser"
    return Plan(problem, others=[f"psql -d {_database(found)} -c {_quoted(one)}" for one in steps])


def _look(db: Database) -> Row:
    return db.look(LOOK, db.rows(PATH)[0]["path"])[0]


def _statements(found: Row) -> list[str]:
    if found["installed"] is None:
        return ["CREATE EXTENSION IF NOT EXISTS cerebro CASCADE"]
    if found["available"] not in (None, found["installed"]):
        return ["ALTER EXTENSION cerebro UPDATE"]
    return []


def _quoted(text: str) -> str:
    """Return a text in quotes for a shell: in double quotes if no character in it is special."""
    return f'"{text}"' if re.fullmatch(r"[\w .,;'()-]*", text) else shlex.quote(text)


def _database(found: Row) -> str:
    """Return the database's name for `psql -d`, which takes a name with `=` in it as a connection string."""
    name: str = found["database"]
    if re.fullmatch(r"\w+", name):
        return name
    return shlex.quote("dbname='" + name.replace("\\", "\\\\").replace("'", "\\'") + "'")


def _by_hand(found: Row) -> Iterator[str]:
    """Yield the commands that install the extension on the server's machine, for a Debian system."""
    major, folder = found["major"], f"cerebro-{version('cerebro-db')}"
    if found["python"] is None:
        yield f"  sudo apt-get install postgresql-plpython3-{major}"
    yield f"  sudo apt-get install make python3-venv postgresql-server-dev-{major}"
    yield f"  cerebro init --unpack {folder}"
    yield "  sudo python3 -m venv /opt/cerebro"
    yield f"  sudo /opt/cerebro/bin/pip install --require-hashes -r {folder}/requirements.lock"
    yield (
        f"  sudo make -C {folder} install PG_CONFIG=/usr/lib/postgresql/{major}/bin/pg_config"
        ' SITE_PACKAGES="$(echo /opt/cerebro/lib/python3*/site-packages)"'
    )
    name = _database(found)
    database = name if "dbname=" in name else f"dbname={name}"
    yield f"  sudo -u postgres cerebro init --dsn {database} --grant={shlex.quote(found['role'])}"
    yield "(on the server's machine; python3 is the one that PL/Python is linked to)"


def unpack(folder: Path) -> None:
    """Copy the extension's source to a new folder; raise Refused if the folder exists."""
    if not SOURCE.is_dir():
        raise Refused("this installation of cerebro-db carries no source of the extension")
    try:
        shutil.copytree(SOURCE, folder)
    except FileExistsError:
        raise Refused(f"{folder} is there already", hint="Name another folder, or remove it.") from None


def examine(db: Database) -> list[dict[str, Any]]:
    """Return a row for each thing that `cerebro doctor` checks: item, status, found and advice."""
    found = _look(db)
    rows = [_row(*one) for one in (_server(found), _python(found), _files(found), _extension(found))]
    rows += [_row(*one) for one in _rights(found)]
    if found["installed"] and found["usage"]:
        rows += _server_side(db, found)
    if found["super"]:
        rows.append(_row(*_access_rules(db)))
    return rows


Finding = tuple[str, str, str, str | None]


def _row(item: str, status: str, found: str, advice: str | None) -> dict[str, Any]:
    return {"item": item, "status": status, "found": found, "advice": advice}


def _server(found: Row) -> Finding:
    text = f"PostgreSQL {found['version'].split()[0]}, {found['database']} as {found['role']}"
    # Greenplum 7 calls itself PostgreSQL 12.
    if found["major"] in SUPPORTED or found["cluster"]:
        return "server", "ok", text, None
    advice = f"Versions {SUPPORTED.start} to {SUPPORTED.stop - 1} are supported."
    return "server", "wrong", text, advice


def _python(found: Row) -> Finding:
    if found["python"]:
        return "PL/Python", "ok", f"plpython3u {found['python']}", None
    advice = f"On the server's machine: apt-get install postgresql-plpython3-{found['major']}"
    return "PL/Python", "wrong", "missing", advice


def _files(found: Row) -> Finding:
    if found["available"]:
        return "extension's files", "ok", f"cerebro {found['available']}", None
    return "extension's files", "wrong", "missing", "cerebro init says what to run on the server's machine."


def _extension(found: Row) -> Finding:
    installed, client = found["installed"], version("cerebro-db")
    if installed is None:
        return "extension", "wrong", f"not in database {found['database']}", "Run cerebro init."
    if found["available"] not in (None, installed):
        advice = "Run cerebro init: it updates the extension."
        return "extension", "note", f"cerebro {installed}, and {found['available']} is there", advice
    if installed != client:
        advice = f"pip install cerebro-db=={installed}"
        return "extension", "note", f"cerebro {installed}, and this client is {client}", advice
    return "extension", "ok", f"cerebro {installed}, as this client", None


def _rights(found: Row) -> Iterator[Finding]:
    from cerebro_db.statements import identifier, literal

    role = found["role"]
    if found["installed"] and not found["usage"]:
        advice = f"An administrator runs: SELECT cerebro.grant_usage({literal(role)})"
        yield "right to use cerebro", "wrong", f"{role} has none", advice
    elif found["installed"]:
        yield "right to use cerebro", "ok", f"{role} has it", None
    if found["schemas"]:
        yield "right to make tables", "ok", f"in {found['schemas']}", None
    else:
        # A schema that all may write to lets each put functions in the way of the others.
        advice = f"An administrator runs: CREATE SCHEMA AUTHORIZATION {identifier(role)}"
        yield "right to make tables", "wrong", f"{role} has none in its search_path", advice


def _server_side(db: Database, found: Row) -> list[dict[str, Any]]:
    from cerebro_db.errors import CerebroError

    if not found["diagnoses"]:
        return [
            _row("Python packages", "note", f"cerebro {found['installed']} cannot tell", "Run cerebro init.")
        ]
    try:
        return db.look(DIAGNOSE)
    except CerebroError as error:
        advice = " ".join(filter(None, [error.detail, error.shell]))
        return [_row("Python packages", "wrong", error.message, advice)]


def _access_rules(db: Database) -> Finding:
    broken = db.look("SELECT line_number, error FROM pg_hba_file_rules WHERE error IS NOT NULL")
    if not broken:
        return "pg_hba.conf", "ok", "every line can be read", None
    lines = "; ".join(f"line {row['line_number']}: {row['error']}" for row in broken)
    return "pg_hba.conf", "wrong", lines, "Mend the lines, then SELECT pg_reload_conf()."
