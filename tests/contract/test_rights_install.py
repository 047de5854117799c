"""Default privileges of the role that installs the extension grant nothing on the extension's objects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest
from psycopg2 import sql as syntax

from fixtures import Connection, execute
from stage import connect, unique

DEFAULTS = """
ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO {0};
ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO {0};
ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO {0};
ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO {0};
CREATE EXTENSION cerebro CASCADE;
INSERT INTO cerebro.settings VALUES ('connection', 'password=geheim');
"""
# Everybody else whom an access list of the extension names.
HOLDERS = """
SELECT DISTINCT coalesce(nullif(a.grantee, 0)::regrole::text, 'PUBLIC') FROM (
    SELECT coalesce(proacl, acldefault('f', proowner)), proowner FROM pg_proc
        WHERE pronamespace = 'cerebro'::regnamespace
    UNION ALL SELECT relacl, relowner FROM pg_class WHERE relnamespace = 'cerebro'::regnamespace
    UNION ALL SELECT nspacl, nspowner FROM pg_namespace WHERE nspname = 'cerebro'
) AS o (acl, owner), aclexplode(o.acl) AS a WHERE a.grantee <> o.owner
"""


@pytest.fixture
def installed(empty_database: str) -> Iterator[tuple[Connection, str]]:
    role = unique("app")
    name = syntax.Identifier(role)
    with closing(connect(empty_database)) as connection:
        execute(connection, syntax.SQL("CREATE ROLE {}").format(name))
        execute(connection, syntax.SQL(DEFAULTS).format(name))
        yield connection, role
        execute(connection, "RESET SESSION AUTHORIZATION; DROP EXTENSION cerebro CASCADE")
        execute(connection, "ALTER DEFAULT PRIVILEGES REVOKE SELECT ON TABLES FROM PUBLIC")
        execute(connection, syntax.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(name))


def test_default_privileges_open_nothing(installed: tuple[Connection, str]) -> None:
    connection, role = installed
    assert execute(connection, HOLDERS) == [("pg_monitor",)]
    execute(connection, syntax.SQL("SET SESSION AUTHORIZATION {}").format(syntax.Identifier(role)))
    for statement in ("SELECT * FROM cerebro.settings", "SELECT cerebro._boot()", "TABLE cerebro.runs"):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            execute(connection, statement)


def test_usage_can_be_granted_all_the_same(installed: tuple[Connection, str]) -> None:
    connection, role = installed
    execute(connection, "SELECT cerebro.grant_usage(%s)", role)
    assert sorted(execute(connection, HOLDERS)) == sorted([("pg_monitor",), (role,)])
    execute(connection, syntax.SQL("SET SESSION AUTHORIZATION {}").format(syntax.Identifier(role)))
    assert execute(connection, "TABLE cerebro.runs") == []
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        execute(connection, "SELECT * FROM cerebro.settings")
