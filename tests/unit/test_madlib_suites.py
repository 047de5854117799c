"""tools/madlib_suites.py, which runs MADlib's own tests, splits scripts into statements as psql does."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "madlib_suites.py"


@pytest.fixture(scope="module")
def suites() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("madlib_suites", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Data classes look their module up.
    sys.modules["madlib_suites"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["madlib_suites"]


def test_statements_end_where_psql_ends_them(suites: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "set_up.sql").write_text("CREATE TABLE t (a text) DISTRIBUTED BY (a);\n")
    script = (
        f"-- one; two\n\\i {tmp_path}/set_up.sql\n"
        "COPY t FROM STDIN;\na;b\n\\.\n"
        "/* ; */ SELECT 'it''s; ', \"a;\", $x$ ; $$ ; $x$;\n"
        "CREATE FUNCTION f() RETURNS text AS $$ return ';' $$ LANGUAGE plpythonu;"
    )
    made, copied, asked, function = suites.statements(script)
    assert made.text == "CREATE TABLE t (a text) ;"
    assert (copied.text, copied.rows, copied.line) == ("COPY t FROM STDIN;", "a;b\n", 3)
    assert asked.text == "SELECT 'it''s; ', \"a;\", $x$ ; $$ ; $x$;" and asked.rows is None
    assert function.makes == "f" and function.text.endswith("LANGUAGE plpython3u;")
