"""Checks of all functions, tables, views and sequences of the extension in the system catalogs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from cerebro_plpy.calls import CALLS
from fixtures import Sql

ROOT = Path(__file__).resolve().parents[2]
API = ROOT / "sql" / "api"
# The body of a function that loads the package, and calls one function of it with its own arguments.
# Before the call it must name every object with its schema.
PYTHON_BODY = re.compile(
    r'\nimport sys\nif "cerebro_plpy\.session" not in sys\.modules:\n(?:    .*\n)*'
    r'    plpy\.execute\("SELECT cerebro\._boot\(\)"\)\n'
    r'(?:return )?sys\.modules\["cerebro_plpy\.session"\]\.(\w+)\((?:[\s\w,()"*]*)\)\n'
)
MEMBERS = "SELECT member FROM cerebro._members(%s) AS member"


def test_every_function_says_what_it_does(sql: Sql) -> None:
    assert not sql(
        f"SELECT f::regprocedure FROM ({MEMBERS}) AS m (f) WHERE obj_description(f, 'pg_proc') IS NULL",
        "pg_proc",
    )


def test_every_function_has_a_fixed_search_path_or_takes_it(sql: Sql) -> None:
    """Every function sets search_path by a SET clause or in Python, with two exceptions.

    A procedure that ends transactions cannot have a SET clause. Only segment sessions, which start with the
    right search_path, may call it and the functions that it calls. For a function that predicts one row,
    the clause would take as much time as the net.
    """
    found = sql(
        f"""SELECT proname, prosrc FROM pg_proc WHERE oid IN ({MEMBERS})
        AND NOT 'search_path=pg_catalog, pg_temp' = ANY (coalesce(proconfig, '{{}}'))""",
        "pg_proc",
    )
    bodies = [(name, body) for name, body in found if not name.startswith("_")]
    internal = {name for name, _ in found} - {name for name, _ in bodies}
    assert internal == {
        "_begin_command",
        "_command",
        "_explain_row",
        "_fetch_rows",
        "_go_on",
        "_predict_row",
        "_predict_statement",
        "_related_statement",
        "_show",
    }
    assert {"_model_of_rows", "call"} <= public_entries()
    called = [(name, PYTHON_BODY.fullmatch(body)) for name, body in bodies]
    # These are written in SQL, run their caller's query or end transactions: their bodies qualify each name.
    assert {name for name, body in called if body is None} == {
        "explain_predict",
        "predict",
        "predict_query",
        "predict_related",
        "run_schedule",
    }
    entries = {body[1] for _, body in called if body is not None}
    assert entries <= public_entries() | {"predict_one"}


def test_each_call_has_its_function_and_each_function_its_call() -> None:
    bodies = "".join(file.read_text() for file in (ROOT / "sql").rglob("*.sql"))
    called = set(re.findall(r'\.call\(\s*"(\w+)"', bodies))
    # entry.py makes the call explain_predict for the first row of a statement; no SQL function names it.
    assert called | {"explain_predict"} == CALLS.keys()


def public_entries() -> set[str]:
    """Return the names of the functions of entry.py with the decorator `public`, which sets search_path."""
    tree = ast.parse((ROOT / "plpy" / "cerebro_plpy" / "entry.py").read_text())
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and [ast.unparse(d) for d in node.decorator_list] == ["public"]
    }


def test_no_function_is_open_to_everybody(sql: Sql) -> None:
    found = sql(
        f"""SELECT f::regprocedure::text FROM ({MEMBERS}) AS m (f)
        WHERE has_function_privilege('public', f, 'EXECUTE')""",
        "pg_proc",
    )
    assert found == []


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
        same = re.fullmatch(r"-- The same as (\w+)\.\n", file.read_text())
        assert same or set(created) == {file.stem}


def test_the_public_functions_are_the_api_files_and_the_door(sql: Sql) -> None:
    rows = sql(
        f"SELECT DISTINCT proname FROM pg_proc WHERE proname NOT LIKE '\\_%%' AND oid IN ({MEMBERS})",
        "pg_proc",
    )
    files = {file.stem for file in API.glob("*.sql")}
    assert {name for (name,) in rows} == files | {"grant_usage", "revoke_usage"}


def test_no_sequence_keeps_numbers_back() -> None:
    """Every sequence has CACHE 1: on Greenplum 7, a process would otherwise reserve 20 numbers.

    A later row could then get a smaller number.
    """
    made = "".join(file.read_text() for file in sorted((ROOT / "migrations").glob("0*.sql")))
    # The sequences of the first releases are altered later, or no number is taken from them.
    known = {"_run_id_seq", "_request_id_seq", "_last_ending"}
    found = re.findall(r"CREATE SEQUENCE cerebro\.(\w+)( CACHE 1)?;", made)
    assert known < {name for name, _ in found}
    assert [name for name, cache in found if not cache and name not in known] == []
