"""What the database's catalog must say about every object of the extension."""

from __future__ import annotations

import re
from pathlib import Path

from fixtures import Sql

API = Path(__file__).resolve().parents[2] / "sql" / "api"
MEMBERS = "SELECT member FROM cerebro._members(%s) AS member"


def test_every_function_says_what_it_does(sql: Sql) -> None:
    assert not sql(
        f"SELECT f::regprocedure FROM ({MEMBERS}) AS m (f) WHERE obj_description(f, 'pg_proc') IS NULL",
        "pg_proc",
    )


def test_every_function_has_a_fixed_search_path(sql: Sql) -> None:
    """But a procedure that ends transactions, which can have none, and what it calls: only segment sessions
    may call it, whose path is this one from their beginning."""
    found = sql(
        f"""SELECT proname FROM pg_proc WHERE oid IN ({MEMBERS})
        AND NOT 'search_path=pg_catalog, pg_temp' = ANY (coalesce(proconfig, '{{}}')) ORDER BY 1""",
        "pg_proc",
    )
    assert found == [("_begin_command",), ("_command",), ("_go_on",), ("_show",)]


def test_no_function_is_open_to_everybody_but_one_that_does_nothing(sql: Sql) -> None:
    found = sql(
        f"""SELECT f::regprocedure::text FROM ({MEMBERS}) AS m (f)
        WHERE has_function_privilege('public', f, 'EXECUTE')""",
        "pg_proc",
    )
    assert found == [("cerebro._reach_segments(text)",)]


def test_no_table_or_view_is_open_to_everybody(sql: Sql) -> None:
    assert not sql(
        f"""SELECT oid::regclass FROM pg_class, aclexplode(relacl) AS a
        WHERE a.grantee = 0 AND oid IN ({MEMBERS})""",
        "pg_class",
    )


def test_every_table_and_view_says_what_it_holds(sql: Sql) -> None:
    assert not sql(
        f"""SELECT oid::regclass FROM pg_class WHERE relkind IN ('r', 'v', 'p') AND oid IN ({MEMBERS})
        AND obj_description(oid, 'pg_class') IS NULL""",
        "pg_class",
    )


def test_every_column_of_a_public_relation_says_what_it_holds(sql: Sql) -> None:
    assert not sql(
        f"""SELECT c.oid::regclass, a.attname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
        WHERE c.relkind IN ('r', 'v', 'p') AND c.relname NOT LIKE '\\_%%' AND c.oid IN ({MEMBERS})
        AND a.attnum > 0 AND NOT a.attisdropped AND col_description(c.oid, a.attnum) IS NULL""",
        "pg_class",
    )


def test_each_api_file_holds_the_function_that_it_is_named_after() -> None:
    for file in API.glob("*.sql"):
        created = re.findall(
            r"CREATE OR REPLACE (?:FUNCTION|PROCEDURE|AGGREGATE) cerebro\.(\w+)", file.read_text()
        )
        assert set(created) == {file.stem}


def test_the_public_functions_are_the_api_files_and_the_door(sql: Sql) -> None:
    rows = sql(
        f"SELECT DISTINCT proname FROM pg_proc WHERE proname NOT LIKE '\\_%%' AND oid IN ({MEMBERS})",
        "pg_proc",
    )
    files = {file.stem for file in API.glob("*.sql")}
    assert {name for (name,) in rows} == files | {"grant_usage", "revoke_usage"}
