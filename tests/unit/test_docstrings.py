"""No docstring begins with a word that only refers to something else, for example "Those" or "Of"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("plpy", "cerebro_db", "tests", "tools", "bench")
POINTING = re.compile(r"\s*(What|The same|Of|Whoever|Whether it|That|Those|Whose|Where)\b")

files = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))


def openings(source: str) -> Iterator[str]:
    """Yield the first line of every docstring in a source text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield (ast.get_docstring(node) or "").partition("\n")[0]


@pytest.mark.parametrize("file", files, ids=[str(file.relative_to(ROOT)) for file in files])
def test_no_docstring_opens_with_a_word_that_only_points(file: Path) -> None:
    assert [line for line in openings(file.read_text()) if POINTING.match(line)] == []


def test_such_docstrings_are_seen_wherever_they_stand() -> None:
    text = '''"""What."""
class A:
    """Those of."""
    async def f(self):
        """
        The same.
        """
'''
    seen = [line for line in openings(text) if line]
    assert seen == ["What.", "Those of.", "The same."]
    assert all(POINTING.match(line) for line in seen)
    assert not POINTING.match("Whatever is kept.") and not POINTING.match("Offer rows.")
