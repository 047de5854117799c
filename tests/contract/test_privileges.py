"""grant_usage lets a role use the public functions and views; before, it may use nothing of the extension."""

from __future__ import annotations

from pathlib import Path

import psycopg2.errors
import pytest
from psycopg2 import sql as syntax

from fixtures import Connect, MakeRole, Sql

API = Path(__file__).resolve().parents[2] / "sql" / "api"
# Internal functions that public functions call with the rights of their caller.
INTERNAL = {
    "_boot", "_as_owner", "_array_bytes", "_json", "_text",
    "_explain_row", "_predict_row", "_predict_statement", "_predict_batch", "_host_facts", "_reach_segments",
    "_related_statement",
    "_take_buffer", "_take_row", "_give_pieces", "_join_pieces", "_give_predictions",
    "_begin_scheduled", "_end_scheduled", "_visible_rows", "_fetch_rows",
}  # fmt: skip
# grant_usage grants no functions that only a superuser may call.
SUPERUSERS = {f"{verb}_function" for verb in ("register", "unregister", "grant", "revoke")} | {"distribute"}

FUNCTIONS = """SELECT DISTINCT proname FROM pg_proc, cerebro._members('pg_proc') AS member
    WHERE oid = member AND has_function_privilege(%s, oid, 'EXECUTE')"""
RELATIONS = """SELECT relname FROM pg_class, cerebro._members('pg_class') AS member
    WHERE oid = member AND relkind IN ('r', 'p', 'v')
    AND has_table_privilege(%s, oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')"""
VIEWS = """SELECT relname FROM pg_class, cerebro._members('pg_class') AS member
    WHERE oid = member AND relkind = 'v' AND relname NOT LIKE '\\_%%'"""


def names(rows: list[tuple[str, ...]]) -> set[str]:
    return {row[0] for row in rows}


def test_a_role_can_do_nothing_before_grant_usage(sql: Sql, role: MakeRole, connect: Connect) -> None:
    stranger = role(usage=False)
    assert not sql(FUNCTIONS, stranger)
    assert not sql(RELATIONS, stranger)
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        sql("SELECT cerebro._boot()", on=connect(user=stranger))


def test_grant_usage_opens_the_public_functions_and_views_alone(sql: Sql, role: MakeRole) -> None:
    user = role()
    assert names(sql(FUNCTIONS, user)) == {file.stem for file in API.glob("*.sql")} - SUPERUSERS | INTERNAL
    assert names(sql(RELATIONS, user)) == names(sql(VIEWS))


def test_a_view_is_only_read(sql: Sql, role: MakeRole) -> None:
    user = role()
    for (view,) in sql(VIEWS):
        assert sql(
            "SELECT has_table_privilege(%s, %s, 'INSERT, UPDATE, DELETE')", user, f"cerebro.{view}"
        ) == [(False,)]


def test_revoke_usage_takes_everything_back(sql: Sql, role: MakeRole) -> None:
    user = role()
    sql("SELECT cerebro.revoke_usage(%s)", user)
    assert not sql(FUNCTIONS, user)
    assert not sql(RELATIONS, user)
    assert sql("SELECT has_schema_privilege(%s, 'cerebro', 'USAGE')", user) == [(False,)]


def test_a_user_cannot_let_others_in(sql: Sql, role: MakeRole, connect: Connect) -> None:
    user, friend = role(), role(usage=False)
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        sql("SELECT cerebro.grant_usage(%s)", friend, on=connect(user=user))


def test_the_name_of_a_role_is_never_code(sql: Sql) -> None:
    odd = 'Odd "role"; DROP SCHEMA cerebro CASCADE; --'
    with pytest.raises(psycopg2.errors.UndefinedObject):
        sql("SELECT cerebro.grant_usage(%s)", odd)
    identifier = syntax.Identifier(odd)
    sql(syntax.SQL("CREATE ROLE {}").format(identifier))
    try:
        sql("SELECT cerebro.grant_usage(%s)", odd)
        assert names(sql(FUNCTIONS, odd)) >= INTERNAL
    finally:
        sql(syntax.SQL("DROP OWNED BY {}; DROP ROLE {}").format(identifier, identifier))


def test_monitors_read_the_views(sql: Sql) -> None:
    assert names(sql(RELATIONS, "pg_monitor")) == names(sql(VIEWS))
    assert sql("SELECT has_schema_privilege('pg_monitor', 'cerebro', 'USAGE')") == [(True,)]
    assert not sql(FUNCTIONS, "pg_monitor")


def test_paths_come_from_no_setting(sql: Sql, role: MakeRole, connect: Connect) -> None:
    """A role's own settings and functions do not change where the extension looks for its Python code."""
    session = connect(user=role())
    sql("SET cerebro.python_dir = '/nowhere'; SET cerebro.site_packages = '/nowhere'", on=session)
    sql(
        "CREATE FUNCTION public.to_regclass(text) RETURNS regclass LANGUAGE sql AS 'SELECT 1 / 0'", on=session
    )
    sql("SET search_path = public, pg_catalog; SELECT cerebro._boot()", on=session)
