"""Run the SQL tests of MADlib's deep-learning module against the extension, and count their asserts.

Usage: tools/madlib_suites.py SOURCE [SUITE ...], on the server that PGHOST and the like name. SOURCE is a
checkout of MADlib; a SUITE is the beginning of a file's name. The scripts run one statement after the other,
those for Greenplum too, and no line is added to them. An assert counts once for each row that it looks at,
and once if its statement fails before.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg2

MODULES: Final = "src/ports/postgres/modules"
SCHEMA: Final = "madlib_installcheck_deep_learning"
DATABASE: Final = "madlib_suites"
# What Python 3 and PostgreSQL write otherwise, in the scripts and in MADlib's helpers below.
SPELLINGS: Final = (
    (re.compile(r"\bplpythonu\b"), "plpython3u"),
    (re.compile(r"DISTRIBUTED\s+(BY\s*\([^)]*\)|RANDOMLY)"), ""),
    (re.compile(r"\bgp_segment_id\b"), "__dist_key__"),
)
# A sequence counts the asserts, whatever is rolled back. As in MADlib, a condition that is NULL holds. Then
# come MADlib's other helpers; the last two leave alone settings that only Greenplum has.
HELPERS: Final = """
CREATE SEQUENCE madlib.held;
CREATE SEQUENCE madlib.held_by_null;
CREATE FUNCTION madlib.assert(condition boolean, msg varchar) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT condition THEN
        RAISE EXCEPTION 'Failed assertion: %', msg;
    END IF;
    PERFORM nextval('madlib.held'), CASE WHEN condition IS NULL THEN nextval('madlib.held_by_null') END;
END
$$;
CREATE FUNCTION madlib.relative_error(approx float8, value float8) RETURNS float8 LANGUAGE sql AS
    'SELECT abs(($1 - $2) / $2)';
CREATE FUNCTION madlib.array_square(x numeric[]) RETURNS numeric[] LANGUAGE sql AS
    'SELECT array_agg(e * e ORDER BY place) FROM unnest($1) WITH ORDINALITY AS u (e, place)';
CREATE FUNCTION madlib.__to_char(val anyelement) RETURNS text LANGUAGE sql AS 'SELECT left($1::text, 3000)';
CREATE FUNCTION madlib.trap_error(stmt text) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE stmt;
    RETURN 0;
EXCEPTION WHEN OTHERS THEN
    RETURN 1;
END
$$;
CREATE FUNCTION madlib.test_error_msg(stmt text, msg text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE stmt;
    RETURN true;
EXCEPTION WHEN OTHERS THEN
    RETURN position(msg IN sqlerrm) > 0;
END
$$;
CREATE FUNCTION madlib.test_input_table(stmt text) RETURNS boolean LANGUAGE sql AS
    $$SELECT madlib.test_error_msg($1, 'NULL/empty input table name')$$;
CREATE FUNCTION madlib.test_output_table(stmt text) RETURNS boolean LANGUAGE sql AS
    $$SELECT madlib.test_error_msg($1, 'NULL/empty output table name')$$;
CREATE FUNCTION madlib.is_table_unlogged(tbl_name text) RETURNS boolean LANGUAGE sql AS
    $$SELECT relpersistence = 'u' FROM pg_class WHERE relname = $1$$;
CREATE FUNCTION madlib.is_ver_greater_than_gp_640_or_pg_11() RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE FUNCTION madlib.assert_guc_value(guc_name text, expected_guc_value text) RETURNS void LANGUAGE sql AS
    'SELECT madlib.assert(current_setting($1) = $2, $1)';
"""
GREENPLUM: Final = """
CREATE TABLE madlib.gp_segment_configuration AS
SELECT 'p' AS role, n - 1 AS content, 'u' AS status, n + 1 AS dbid FROM generate_series(0, {segments}) AS n;
CREATE FUNCTION madlib.gp_dist_random(name text) RETURNS SETOF integer LANGUAGE sql AS
    'SELECT n FROM generate_series(1, {segments}) AS n';
"""


@dataclass
class Suite:
    """The results of one test script: the number of asserted rows that held, and the failed statements."""

    name: str
    held: int = 0
    by_null: int = 0
    failed: list[tuple[int, str, str]] = field(default_factory=list)
    rows: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Statement:
    """A statement of a test script, its line in the script, and the input rows if it is a COPY."""

    line: int
    text: str
    rows: str | None = None

    @property
    def makes(self) -> str | None:
        """The name of the function that the statement creates, or None."""
        found = re.match(r"CREATE\s+(OR\s+REPLACE\s+)?FUNCTION\s+([\w.]+)", self.text, re.IGNORECASE)
        return found[2] if found else None


TOKEN: Final = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|"(?:[^"]|"")*"|(?P<tag>\$\w*\$).*?(?P=tag)|;"""
    r"""|^[ \t]*\\i[ ]+(?P<file>\S+)""",
    re.DOTALL | re.MULTILINE,
)
COMMENT: Final = re.compile(r"\s+|--[^\n]*|/\*.*?\*/", re.DOTALL)
COPY: Final = re.compile(r"copy\b.*\bfrom\s+stdin\b", re.IGNORECASE | re.DOTALL)


def expand(source: Path, suite: Path) -> str:
    """Return the text of a test script after m4, as MADlib's installer passes it to psql on Greenplum."""
    with tempfile.TemporaryDirectory() as folder:
        common = (source / "src/ports/postgres/madpack/SQLCommon.m4_in").read_text()
        Path(folder, "SQLCommon.m4").write_text(common.replace("@M4_DEFINES_CODE@", ""))
        names = {"MADLIB_SCHEMA": "madlib", "MADLIB_LIBRARY_PATH": f"{source / MODULES}/lib"}
        defined = [f"-D{name}={value}" for name, value in names.items()]
        command = ["m4", "-P", *defined, "-I", folder, str(suite)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a script in order, including those of files that it includes by \\i."""
    for pattern, ours in SPELLINGS:
        text = pattern.sub(ours, text)
    start = position = 0
    while found := TOKEN.search(text, position):
        position = found.end()
        if found["file"]:
            yield from statements(Path(found["file"]).read_text())
            start = position
        elif found[0] == ";":
            while comment := COMMENT.match(text, start):
                start = comment.end()
            statement, line, rows = text[start:position], text.count("\n", 0, start) + 1, None
            if COPY.match(statement):
                begin = text.index("\n", position) + 1
                end = text.index("\n\\.", begin) + 1
                rows, position = text[begin:end], end + 3
            yield Statement(line, statement, rows)
            start = position


def run(suite: Suite, script: Iterator[Statement], cursor: Any) -> None:
    """Run the statements of a script, and add the results of their asserts to `suite`."""
    asserting = {"assert"}
    for statement in script:
        if statement.makes and re.search(r"\bassert\(", statement.text):
            asserting.add(statement.makes)
        before = _counted(cursor)
        error = _execute(statement, cursor)
        held, by_null = (now - then for now, then in zip(_counted(cursor), before, strict=True))
        suite.held += held
        suite.by_null += by_null
        asserts = not statement.makes and any(re.search(rf"\b{name}\(", statement.text) for name in asserting)
        if held:
            suite.rows.append((statement.line, held))
        if error is not None:
            suite.failed.append((statement.line, error, statement.text if asserts else ""))


def _execute(statement: Statement, cursor: Any) -> str | None:
    """Run a statement; return the first line of its error, or None."""
    try:
        if statement.rows is None:
            cursor.execute(statement.text)
        else:
            cursor.copy_expert(statement.text.rstrip(";"), io.StringIO(statement.rows))
    except psycopg2.Error as error:
        return str(error).splitlines()[0]
    return None


def _counted(cursor: Any) -> tuple[int, int]:
    cursor.execute(
        "SELECT h.last_value - 1, n.last_value - 1 FROM madlib.held AS h, madlib.held_by_null AS n"
    )
    held, by_null = cursor.fetchone()
    return held, by_null


def make_database(segments: int) -> None:
    """Create a database with the extension, MADlib's helpers, and replacements of Greenplum's catalog."""
    with closing(psycopg2.connect(dbname="postgres")) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
            cursor.execute(f"CREATE DATABASE {DATABASE}")
    with closing(psycopg2.connect(dbname=DATABASE)) as connection, connection, connection.cursor() as cursor:
        cursor.execute("CREATE EXTENSION cerebro_madlib CASCADE")
        cursor.execute(HELPERS)
        cursor.execute(GREENPLUM.format(segments=segments))


def count(source: Path, path: Path) -> Suite:
    """Run one script in a new session and an empty schema; return its results."""
    suite = Suite(path.name.removesuffix(".sql_in"))
    with closing(psycopg2.connect(dbname=DATABASE)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
            cursor.execute(f"CREATE SCHEMA {SCHEMA}")
            cursor.execute(f"SET search_path = {SCHEMA}, madlib")
            cursor.execute("SELECT setval('madlib.held', 1), setval('madlib.held_by_null', 1)")
            run(suite, statements(expand(source, path)), cursor)
    return suite


def report(suite: Suite, *, rows: bool) -> None:
    """Print how many asserts held, and which statements failed; with `rows`, also row counts."""
    asserts = [failed for failed in suite.failed if failed[2]]
    print(f"{suite.name}: {suite.held} held, {suite.by_null} of them by NULL; {len(asserts)} did not")
    for line, error, statement in suite.failed:
        text = re.sub(r"\s+", " ", statement)[:160] if statement else "(no assert)"
        print(f"    {line}: {error}\n        {text}")
    if rows:
        print("    rows:", *(f"{line}:{held}" for line, held in suite.rows))
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("suites", nargs="*")
    parser.add_argument("--segments", type=int, default=2, help="how many segments the scripts are told of")
    parser.add_argument("--rows", action="store_true", help="print how many rows each assert looked at")
    given = parser.parse_args()
    paths = sorted((given.source / MODULES / "deep_learning/test").glob("*.sql_in"))
    make_database(given.segments)
    suites = []
    for path in paths:
        wanted = not given.suites or any(path.name.startswith(name) for name in given.suites)
        if wanted and not path.name.endswith(".setup.sql_in"):
            suites.append(count(given.source.resolve(), path))
            report(suites[-1], rows=given.rows)
    held = sum(suite.held for suite in suites)
    failed = sum(bool(text) for suite in suites for _, _, text in suite.failed)
    print(f"{held} of {held + failed} asserts held")


if __name__ == "__main__":
    main()
