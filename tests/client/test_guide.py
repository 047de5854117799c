"""Every Python example of the guides runs, in order, and prints the output that the guide shows below it."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest

from fixtures import execute
from pages import missing, without_numbers

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.S | re.M)


@pytest.fixture
def fresh(template: str) -> Iterator[str]:
    """Yield a new database, in which the numbers of runs begin at 1."""
    with closing(psycopg2.connect(dbname="postgres")) as connection:
        connection.autocommit = True
        execute(connection, f"CREATE DATABASE {template}_guide TEMPLATE {template}")
        yield f"{template}_guide"
        execute(connection, f"DROP DATABASE {template}_guide WITH (FORCE)")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", ["python", "estimators", "transfer"])
def test_the_examples_of_the_guide_run(
    page: str, fresh: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGDATABASE", fresh)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    text = (GUIDE / f"{page}.md").read_text()
    for example in EXAMPLE.finditer(text):
        place = f"{page}.md:{text[: example.start()].count(chr(10)) + 1}"
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(example[1], place, "exec"), names)  # noqa: S102
        expected, shown = (_lines(said) for said in (example[2] or "", output.getvalue()))
        assert missing(expected, shown) is None, f"{place} prints\n{output.getvalue()}"


def _lines(text: str) -> list[str]:
    return [line for line in map(without_numbers, text.splitlines()) if line]
