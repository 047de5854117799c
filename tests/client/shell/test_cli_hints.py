"""A user of the command `cerebro` can follow its hints in the shell or in SQL; none is for Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest

import nets
from fixtures import Sql
from shell import CLIENT, cerebro
from trial import SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.slow

FEATURES = 6
# Modules whose hints no command shows.
OF_PYTHON = (
    "estimators.py", "frames.py", "functions.py", "link.py", "packed_files.py", "plots.py", "pretrained.py",
    "rows.py", "training.py",
)  # fmt: skip
# Text that makes sense in Python alone: calls of objects, and arguments by name.
PYTHON = re.compile(r"\b(db|run|keras|space)\.\w+\(|\b\w+=[\[\"'{(\d]|custom_objects|to_keras\(|\bdict\b")


@pytest.fixture(scope="module")
def run(database: str) -> Iterator[int]:
    """Yield the number of a run of groups."""
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        trial = Trial(connection)
        trial.sql(
            "INSERT INTO cerebro.settings VALUES ('backend', 'jax'), ('threads', '1'), ('segments', '2')"
        )
        rows = rows_of(*blobs(90, features=FEATURES))
        trial.table("blobs", "id integer, x real[], y integer", [(i, *row) for i, row in enumerate(rows)])
        trial.sql("CREATE TABLE sales AS SELECT *, id % 3 AS shop FROM blobs")
        trial.pack("sales", "packed", options={"group_by": "shop"})
        trial.model(nets.mlp(FEATURES))
        trial.select("configs", [1], [SGD], ["batch_size=10"])
        yield trial.fit("packed", "models", "configs", 1)


def test_a_leaderboard_of_groups_has_as_many_rows_as_are_asked_for(database: str, run: int) -> None:
    done = cerebro("leaderboard", str(run), "--limit", "2", database=database)
    assert len(done.out.splitlines()) == 3 and "--limit shows more" not in done.err


def test_rows_of_groups_are_predicted_in_sql(database: str, run: int, sql: Sql) -> None:
    for more in ((), ("--config", "1"), ("--into", "found")):
        done = cerebro("predict", "sales", "--x", "x", "--id", "id", *more, database=database)
        assert done.code == 1, done
        assert f"run {run} has a model for each group" in done.err
        assert not PYTHON.search(done.err), done.err
    statement = done.err.partition("the model of its group: ")[2]
    given = "'public.models', 'sales', 'id', 'x', 'sales_predictions', 'response')"
    assert statement.split() == ["SELECT", "cerebro.madlib_predict(", *given.split()]
    sql(statement)
    assert sql("SELECT count(*) FROM sales_predictions") == [(90,)]
    sql("DROP TABLE sales_predictions")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["export", "--model", "best.keras"], "Name the group, by --group; cerebro groups"),
        (["export", "--model", "x.keras", "--group", '{"shop": 77}'], "; cerebro groups"),
        (["export", "--model", "x.keras", "--config", "77"], "cerebro leaderboard"),
        (["pack", "sales"], "For example --x a,b --y c."),
        (["predict", "sales", "--id", "id", "--run", "99999"], "cerebro runs"),
        (["metrics", "99999"], "cerebro runs"),
    ],
)
def test_the_shell_is_told_what_the_shell_can_do(
    database: str, run: int, tmp_path: Path, arguments: list[str], said: str
) -> None:
    arguments = [str(tmp_path / one) if one.endswith(".keras") else one for one in arguments]
    done = cerebro(*arguments, database=database)
    assert done.code and said in done.err, done
    assert not PYTHON.search(done.err), done.err


def hints(module: Path) -> Iterator[tuple[str, bool]]:
    """Yield the text of each hint in a module, and whether the shell shows another text instead."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Call):
            given = {one.arg: one.value for one in node.keywords}
            if "hint" in given:
                texts = [
                    one.value
                    for one in ast.walk(given["hint"])
                    if isinstance(one, ast.Constant) and isinstance(one.value, str)
                ]
                yield " ".join(texts), "shell" in given


def test_no_command_shows_a_hint_for_python() -> None:
    own = (*(CLIENT / "cerebro_db").glob("*.py"), *(CLIENT / "cerebro_db" / "cli").glob("*.py"))
    modules = [one for one in own if one.name not in OF_PYTHON]
    found = [(module.name, *hint) for module in modules for hint in hints(module)]
    assert len(found) > 20
    wrong = [(name, hint) for name, hint, has_other in found if PYTHON.search(hint) and not has_other]
    # This hint is about rows in Python's memory, which no command has.
    assert wrong == [("database.py", 'For example into="cars".')]
