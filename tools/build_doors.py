"""Write docs/doors.md: what can be done through which door, from the tests that say they show it.

A test says so with `@pytest.mark.doors("doors", "abilities")`, names separated by spaces. A cell of the table
is a link to such a test, so none stands without one.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "doors.md"
DOORS = {
    "psql": "`psql`, scripts",
    "demo": "`make demo`",
    "container": "[container](container.md)",
    "client": "[Python client](guide/python.md)",
    "shell": "[command `cerebro`](guide/shell.md)",
    "page": "[live page](guide/dashboard.md)",
    "notebook": "[notebook](tutorial.ipynb)",
    "psycopg2": "psycopg2",
    "psycopg": "psycopg 3",
    "sqlalchemy": "SQLAlchemy",
    "odbc": "ODBC",
    "jdbc": "JDBC",
    "bi": "[BI tools](guide/bi.md)",
}
ABILITIES = {
    "pack": "pack rows",
    "explain": "explain",
    "fit": "train",
    "background": "train in the background",
    "watch": "watch",
    "compare": "compare",
    "predict": "predict",
    "steer": "steer",
    "search": "search",
    "resume": "resume",
}
HEAD = """# Doors

What can be done through which door. Each mark leads to a test that does it there, and the table is made
from the tests (`make doors`): an empty cell means that no test does it. Every driver can send any SQL.

"""


class Shown(NamedTuple):
    """The doors (ways to use the extension) and abilities that one test shows, by its mark."""

    file: Path
    test: str
    doors: list[str]
    abilities: list[str]


def shown(root: Path) -> Iterator[Shown]:
    for file in sorted((root / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef):
                yield from _marks(file, node)


def _marks(file: Path, test: ast.FunctionDef) -> Iterator[Shown]:
    for mark in test.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.doors":
            doors, abilities = (str(ast.literal_eval(argument)).split() for argument in mark.args)
            unknown = (set(doors) - set(DOORS)) | (set(abilities) - set(ABILITIES))
            if unknown:
                raise SystemExit(f"build_doors: {file}: {test.name}: no such door or ability: {unknown}")
            yield Shown(file, test.name, doors, abilities)


def table(root: Path) -> str:
    """Return the table in Markdown; each cell links to the first test that shows its ability at its door."""
    cells: dict[tuple[str, str], Shown] = {}
    for one in shown(root):
        for door in one.doors:
            for ability in one.abilities:
                cells.setdefault((door, ability), one)
    lines = [["", *ABILITIES.values()], ["---", *(":-:" for _ in ABILITIES)]]
    for door, title in DOORS.items():
        if any(key[0] == door for key in cells):
            lines.append([title, *(_cell(root, cells.get((door, ability))) for ability in ABILITIES)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(root: Path, found: Shown | None) -> str:
    return f"[✓](../{found.file.relative_to(root)}#{found.test})" if found else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the page is not what would be written")
    text = HEAD + table(ROOT)
    if parser.parse_args().check:
        if not PAGE.exists() or PAGE.read_text() != text:
            sys.exit("docs/doors.md is not what the tests show: run make doors")
        return
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
