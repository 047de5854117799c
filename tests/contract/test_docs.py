"""The SQL examples of the documentation print the output shown below them, and the reference is complete."""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import psycopg2
import pytest

import corpus
from fixtures import Sql, execute
from pages import missing, without_numbers

ROOT = Path(__file__).resolve().parents[2]
README = Path("README.md")
GUIDE = (
    "getting-started",
    "packing",
    "columns",
    "append",
    "relations",
    "sensors",
    "forecasting",
    "nets",
    "train",
    "configs",
    "custom-functions",
    "training",
    "cross-validation",
    "many-small-configs",
    "large-nets",
    "groups",
    "transfer",
    "steering",
    "bi",
    "search",
    "predicting",
    "explaining",
    "registry",
    "retraining",
    "coming-from-madlib",
)
PAGES = [
    Path("README.md"),
    *(Path("docs/guide") / f"{name}.md" for name in GUIDE),
    Path("docs/operations.md"),
]
# The other pages take long.
QUICK = {README, *(Path("docs/guide") / f"{name}.md" for name in ("getting-started", "train"))}
EVERY_PAGE = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
IRIS = "CREATE TABLE iris (id serial PRIMARY KEY, attributes numeric[], species text);"
PROGRESS = re.compile(
    r"NOTICE: (starting (\d+ session|\w+ in this session)|epoch \d+ of|\d+ (of \d+ )?visits?|done in)"
)
MARK = "-- example "
# The examples of all pages run as one script, which needs a long timeout.
pytestmark = pytest.mark.timeout(900)


class Example(NamedTuple):
    """A block of SQL in a page of the documentation, and the output that the page shows for it, if any."""

    page: Path
    line: int
    sql: str
    output: str | None

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def examples(page: Path) -> list[Example]:
    """Return the SQL blocks of a page; a block of text directly after an SQL block is its expected output."""
    text = (ROOT / page).read_text()
    blocks = re.finditer(r"^```sql\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", text, re.S | re.M)
    return [Example(page, text[: b.start()].count("\n") + 1, b.group(1), b.group(2)) for b in blocks]


def readable(output: str) -> list[str]:
    """Return the lines of an output to compare, without times, run numbers, progress and column widths."""
    lines = [_without_widths(line) for line in _without_void_results(output).splitlines()]
    return [line for line in lines if line and not PROGRESS.match(line)]


def _without_widths(line: str) -> str:
    line = re.sub(r"doc_\d+\.", "public.", line)
    line = re.sub(r"(?<=\brun )\d+|(?<=cerebro\.wait\()\d+", "N", line)
    return without_numbers(line)


def _without_void_results(output: str) -> str:
    """Remove the results of functions that return void: psql prints the name, a line and an empty row."""
    return re.sub(r"^ *[a-z_]+ *\n-+\n *\n", "", output, flags=re.M)


@pytest.fixture(scope="module")
def outputs(database: str, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Run the pages of the selected tests in one psql session, and yield the output by example."""
    chosen = {page for item in request.session.items if (page := _page_of(item))}
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        execute(connection, "INSERT INTO cerebro.settings VALUES ('segments', '2'), ('threads', '1')")
    script = "\n".join(_script(number, page) for number, page in enumerate(PAGES) if page in chosen)
    shown = subprocess.run(
        [
            "stdbuf",
            "-oL",
            "psql",
            "-Xq",
            "-d",
            database,
            "-P",
            "footer=off",
            "-P",
            "pager=off",
            "-v",
            "SHOW_CONTEXT=never",
        ],
        input=script,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PGOPTIONS": "-c client_min_messages=notice"},
        check=False,
    ).stdout
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        for role in re.findall(r"CREATE ROLE (\w+)", script):
            execute(connection, f"DROP OWNED BY {role} CASCADE")
            execute(connection, f"DROP ROLE {role}")
    parts = re.split(rf"^{re.escape(MARK)}(.*)\n", shown, flags=re.M)
    yield dict(zip(parts[1::2], parts[2::2], strict=True))


def _page_of(item: Any) -> Path | None:
    """Return the page of the example that a test checks, or None for any other test."""
    is_example = getattr(item, "originalname", "") == test_an_example_shows_what_it_says.__name__
    return item.callspec.params["example"].page if is_example else None


def _script(number: int, page: Path) -> str:
    schema = f"doc_{number}"
    lines = [f"CREATE SCHEMA {schema}; SET search_path = {schema};"]
    if page == README:
        lines += [IRIS, _iris_rows("iris")]
    for example in examples(page):
        lines += [f"\\echo '{MARK}{example.name}'", example.sql]
        if "CREATE TABLE iris_data" in example.sql:
            lines.append(_iris_rows("iris_data"))
    return "\n".join([*lines, f"\\echo '{MARK}end of {page}'"])


def _iris_rows(table: str) -> str:
    """Return an INSERT of the iris data, which the guide loads by a shell command and the README assumes."""
    from sklearn.datasets import load_iris

    species = ("setosa", "versicolor", "virginica")
    rows = [
        f"(ARRAY[{','.join(map(str, measures))}], 'Iris-{species[number]}')"
        for measures, number in zip(*load_iris(return_X_y=True), strict=True)
    ]
    kind = "species" if table == "iris" else "class_text"
    return f"INSERT INTO {table} (attributes, {kind}) VALUES {', '.join(rows)};"


@pytest.mark.doors("psql", "pack explain fit background watch compare predict steer search resume")
@pytest.mark.parametrize(
    "example",
    [
        pytest.param(one, id=one.name, marks=() if page in QUICK else pytest.mark.slow)
        for page in PAGES
        for one in examples(page)
    ],
)
def test_an_example_shows_what_it_says(example: Example, outputs: dict[str, str]) -> None:
    shown = readable(outputs[example.name])
    if "ERROR:" not in (example.output or ""):
        assert not [line for line in shown if line.startswith("ERROR:")], "\n".join(shown)
    # What is measured with another engine differs.
    if example.output is not None and importlib.util.find_spec("tensorflow") is not None:
        assert missing(readable(example.output), shown) is None, "\n".join(shown)


def bad_inputs() -> list[tuple[str, int]]:
    """Return the name of each group of bad inputs in the tests, and the number of inputs in it."""
    calls = runpy.run_path(str(ROOT / "tests" / "db" / "test_bad_input.py"))
    lists = {
        "PACKING": "packing",
        "ARCHITECTURES": "architectures",
        "SELECTIONS": "configs",
        "FITS": "training",
    }
    kept = [
        (f"{kind}: {group}", len(texts))
        for kind in corpus.KINDS
        for group, texts in corpus.groups(kind).items()
    ]
    return kept + [(f"calls: {name}", len(calls[variable])) for variable, name in lists.items()]


def test_the_bad_inputs_are_counted() -> None:
    text = (ROOT / "docs" / "security.md").read_text()
    rows = re.findall(r"^\| (\w+: [^|]+) \| (\d+) \|$", text, re.M)
    found = [(kind, int(number)) for kind, number in rows]
    assert found == bad_inputs()
    total = re.search(r"(\d+) bad inputs are kept", text)
    assert total and int(total[1]) == sum(number for _, number in found)


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: str(page.relative_to(ROOT)))
def test_tests_that_are_named_exist(page: Path) -> None:
    known = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", page.read_text()):
        assert f"def {name}(" in known, name


def test_the_reference_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "build_reference.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_table_of_doors_is_what_the_tests_show() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "build_doors.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_every_public_function_and_view_is_in_the_reference(sql: Sql) -> None:
    text = (ROOT / "docs" / "reference.md").read_text()
    names = sql(
        r"""SELECT DISTINCT proname FROM pg_proc WHERE proname NOT LIKE '\_%%'
            AND oid IN (SELECT member FROM cerebro._members('pg_proc') AS member)
        UNION SELECT relname FROM pg_class WHERE relname NOT LIKE '\_%%' AND relkind IN ('r', 'v')
            AND oid IN (SELECT member FROM cerebro._members('pg_class') AS member)"""
    )
    assert not [name for (name,) in names if f"### {name}\n" not in text and f"`{name}`" not in text]


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert not [link for link in links if not (page.parent / link).exists()]


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_no_machine_and_no_registry(page: Path) -> None:
    forbidden = r"/work/|/tmp/|/root/|/home/|pypi\.org|pythonhosted|docker\.io|proxy\.golang|index-url"
    assert not re.findall(forbidden, page.read_text())


def test_a_long_page_has_a_reason() -> None:
    """CONTRIBUTING.md lists exactly the pages of docs/ that have more than 2,000 words."""
    pages = (ROOT / "docs").rglob("*.md")
    long = {page.name for page in pages if len(page.read_text().split()) > 2000}
    said = (ROOT / "CONTRIBUTING.md").read_text().split("more than 2,000 words", 1)[1]
    assert set(re.findall(r"`([\w-]+\.md)`", said.split("\n- ")[0])) == long
