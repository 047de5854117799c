"""The command `cerebro` as a shell runs it: its help, exit codes, spec files, outputs and steering."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest
from cerebro_db.cli.main import Cerebro
from cerebro_db.cli.spec import SCHEMA
from click.testing import CliRunner

import nets
from cerebro_plpy.executor.calls.automl import OPTIONS as SEARCH_OPTIONS
from cerebro_plpy.logical.options import FIT_OPTIONS
from fixtures import Connect, MakeRole, Sql, execute
from shell import CLIENT, cerebro, environment
from trial import SGD, Trial, blobs, rows_of

FEATURES = 6
COMMANDS = (
    "init", "doctor", "train", "pack", "fit", "watch", "runs", "leaderboard", "metrics", "report", "predict",
    "export", "models", "check", "explain", "worst-rows", "advise", "stop", "resume", "forget", "dashboard",
)  # fmt: skip
COMPLETION = {"_CEREBRO_COMPLETE": "bash_complete", "COMP_WORDS": "cerebro lead", "COMP_CWORD": "1"}
END_DRIVER = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'cerebro drive%'"""
SPEC = """\
table = "packed"
validation = "held"
architectures = "arch"
out = "models"
epochs = 2
seed = 3
name = "from a file"

[grid]
loss = "categorical_crossentropy"
metrics = ["accuracy"]
optimizer = ["SGD"]
learning_rate = [0.1, 0.01]
batch_size = 10
"""


@pytest.fixture(scope="module")
def trial(database: str) -> Iterator[Trial]:
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        trial = Trial(connection)
        trial.sql(
            "INSERT INTO cerebro.settings VALUES ('backend', 'jax'), ('threads', '1'), ('segments', '2')"
        )
        rows = rows_of(*blobs(90, features=FEATURES))
        trial.table("blobs", "id integer, x real[], y integer", [(i, *row) for i, row in enumerate(rows)])
        trial.pack("blobs", "packed")
        trial.pack_validation("blobs", "held", "packed")
        trial.model(nets.mlp(FEATURES))
        yield trial


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("spec") / "run.toml"
    file.write_text(SPEC)
    return file


@pytest.fixture(scope="module")
def run(database: str, trial: Trial, spec: Path) -> int:
    """Train by a spec file, watch the run to its end, and return its number."""
    done = cerebro("fit", "--spec", spec, "--watch", "--format", "json", database=database)
    assert done.code == 0, done.err
    (begun,) = json.loads(done.out[: done.out.index("\n]") + 2])
    return begun["run_id"]


# Without a server


def test_help_names_every_command_with_an_example() -> None:
    text = cerebro("--help").out
    for command in COMMANDS:
        assert f"\n  {command} " in text
        assert "Example" in cerebro(command, "--help").out, command
    assert "Exit codes" in text


def test_a_file_takes_the_options_of_the_server() -> None:
    """A file has keys of its own for the seed, and a run that it begins is always in the background."""
    options = json.loads(SCHEMA.read_text())["$defs"]["options"]["properties"]
    assert {*options, "seed", "background"} == {*FIT_OPTIONS, *SEARCH_OPTIONS}
    assert options["cross_validate"]["oneOf"][1]["properties"].keys() == {"final", "models"}


def test_help_loads_nothing_heavy() -> None:
    """Importing one of these modules at the start would make every command slow."""
    code = "import sys, cerebro_db.cli.main; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment("")
    ).stdout.split()
    heavy = {
        "sqlalchemy",
        "psycopg2",
        "pandas",
        "numpy",
        "keras",
        "jsonschema",
        "tomlkit",
        "starlette",
        "rich",
    }
    assert heavy.isdisjoint(loaded)


def test_the_version_is_that_of_the_extension() -> None:
    control = (Path(__file__).resolve().parents[3] / "cerebro.control").read_text()
    assert f"default_version = '{cerebro('--version').out.split()[-1]}'" in control


def test_shells_can_complete() -> None:
    done = subprocess.run(
        [sys.executable, CLIENT / "bin" / "cerebro"], capture_output=True, text=True, check=False,
        env={**environment(""), **COMPLETION},
    )  # fmt: skip
    assert done.stdout.strip() == "plain,leaderboard"


@pytest.mark.parametrize(
    "arguments",
    [["leaderbord"], ["runs", "--format", "xml"], ["stop"], ["fit"], ["pack", "t", "--shape", "a"]],
)
def test_a_wrong_command_line_is_told_from_a_refusal(arguments: list[str]) -> None:
    assert cerebro(*arguments).code == 2


def test_no_server_has_a_code_of_its_own() -> None:
    done = cerebro("runs", "--dsn", "host=/nowhere dbname=x")
    assert done.code == 3
    assert "PGHOST" in done.err and "Traceback" not in done.err


@pytest.mark.parametrize("dsn", ["postgresql://me:secret@db/x", "host=db password=secret"])
def test_a_password_does_not_belong_on_a_command_line(dsn: str) -> None:
    done = cerebro("runs", "--dsn", dsn)
    assert done.code == 2
    assert ".pgpass" in done.err and "secret" not in done.err


@pytest.mark.parametrize(
    "words",
    [
        ["runs", "--dsn", "postgresql:/me:secret@db/x"],
        ["runs", "--dsn", "secret"],
        ["export", "--mlflow", "http://me:secret@db/"],
        ["export", "--mlflow", "postgresql://db/x?user=me&password=secret"],
        ["import", "churn", "--mlflow", "http://me:secret@db/"],
    ],
)
def test_what_may_be_a_password_is_not_repeated(words: list[str]) -> None:
    done = cerebro(*words)
    assert done.code == 2
    assert "secret" not in done.err and "Traceback" not in done.err


def test_a_fault_of_ours_is_told_without_acting_on_the_terminal() -> None:
    group = Cerebro("cerebro")

    @group.command()
    def broken() -> None:
        raise RuntimeError("\x1b]0;PWNED\x07\x1b[31mRED")

    done = CliRunner().invoke(group, ["broken"])
    assert done.exit_code == 1
    assert "Traceback" in done.output and "\\x1b]0;PWNED" in done.output
    assert "\x1b" not in done.output and "\x07" not in done.output


# Spec files


@pytest.mark.parametrize(
    ("right", "wrong", "line", "said"),
    [
        ("epochs = 2", "epochs = 0", 5, "epochs is 0; it is at least 1"),
        ('table = "packed"', "table = 3", 1, "table is 3, not a text"),
        ('loss = "categorical_crossentropy"', "", 9, "loss is missing in [grid]"),
        ("seed = 3", "sead = 3", 6, "did you mean 'seed'?"),
        ("learning_rate = [0.1, 0.01]", "learning_rate = {between = [1, 2]}", 13, "a range such as"),
        ('optimizer = ["SGD"]', "momentum = {float = [0.5]}", 12, "lower and an upper bound"),
        ('metrics = ["accuracy"]', "metrics == 3", 11, "Unexpected"),
        (
            "batch_size = 10",
            'batch_size = [\n  10,\n]\n\n[search]\nmethod = "asa"',
            19,
            "did you mean 'asha'?",
        ),
        ('name = "from a file"', 'name = """\na\nb"""\noptions.patienc = 3', 10, "did you mean 'patience'?"),
    ],
)
def test_what_is_wrong_with_a_spec_is_told_with_its_line(
    tmp_path: Path, right: str, wrong: str, line: int, said: str
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(SPEC.replace(right, wrong))
    done = cerebro("fit", "--spec", file, "--check")
    assert done.code == 2
    assert f"{file}:{line}: " in done.err and said in done.err, done.err


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("epochs = 0\nseed = -1\n")
    assert cerebro("fit", "--spec", file).err.count(f"{file}:") == 3


def test_a_right_spec_is_right_without_a_server(spec: Path) -> None:
    assert cerebro("fit", "--spec", spec, "--check", "--dsn", "host=/nowhere").code == 0


# With a server


@pytest.mark.doors("shell", "pack")
def test_a_table_is_packed(database: str, trial: Trial) -> None:
    done = cerebro(
        "pack",
        "blobs",
        "--x",
        "x",
        "--y",
        "y",
        "--into",
        "again",
        "--segments",
        "3",
        "--format",
        "json",
        database=database,
    )
    assert done.code == 0, done.err
    assert (done.rows[0]["table"], done.rows[0]["segments"], done.rows[0]["total_rows"]) == ("again", 3, 90)
    done = cerebro("pack", "blobs", "--x", "nothing", "--y", "y", "--into", "never", database=database)
    assert done.code == 1
    assert "nothing" in done.err


def test_inputs_are_told_apart_by_semicolons(database: str, sql: Sql) -> None:
    sql("CREATE TABLE plain AS SELECT i * 0.5 AS a, i % 7 AS b, i % 2 AS y FROM generate_series(1, 20) AS i")
    for x, inputs in (("a,b", 1), ("a;b", 2)):
        packed = f"plain_{inputs}"
        done = cerebro("pack", "plain", "--x", x, "--y", "y", "--into", packed, database=database)
        assert done.code == 0, done.err
        assert sql(f"SELECT cardinality(independent_varname) FROM {packed}_summary") == [(inputs,)]


@pytest.mark.doors("shell", "fit")
def test_a_spec_trains_what_it_says(database: str, run: int, sql: Sql) -> None:
    (found,) = cerebro("runs", "--format", "json", database=database).rows
    assert (found["run_id"], found["name"], found["seed"], found["configs"]) == (run, "from a file", 3, 2)
    assert (found["status"], found["validation_table"]) == ("finished", "public.held")
    rates = [row[0] for row in sql("SELECT compile_params FROM models_info ORDER BY 1")]
    assert ["0.01" in rates[0], "0.1" in rates[1]] == [True, True]


@pytest.mark.doors("shell", "explain")
def test_a_spec_is_explained_and_nothing_begun(database: str, run: int, spec: Path, sql: Sql) -> None:
    before = sql("SELECT max(run_id) FROM cerebro.runs")
    done = cerebro("fit", "--spec", spec, "--explain", database=database)
    assert done.code == 0, done.err
    assert done.out.startswith("Fit 2 configs  (time=")
    (plan,) = cerebro("fit", "--spec", spec, "--explain", "--format", "json", database=database).rows
    assert plan["Visits"] > 0
    assert sql("SELECT max(run_id) FROM cerebro.runs") == before


@pytest.mark.doors("shell", "compare")
def test_rows_come_as_a_person_or_a_program_wants_them(database: str, run: int, sql: Sql) -> None:
    expected = sql("SELECT mst_key, value FROM cerebro.leaderboard WHERE run_id = %s ORDER BY rank", run)
    as_json = cerebro("leaderboard", str(run), "--format", "json", database=database).rows
    assert [(row["mst_key"], row["value"]) for row in as_json] == expected
    text = cerebro("leaderboard", str(run), "--format", "csv", database=database).out
    as_csv = list(csv.DictReader(io.StringIO(text)))
    assert [(int(row["mst_key"]), float(row["value"])) for row in as_csv] == expected
    table = cerebro("leaderboard", "--limit", "1", database=database).out.splitlines()
    assert len(table) == 2 and table[0].split()[:2] == ["rank", "mst_key"]
    metrics = cerebro("metrics", "--config", "1", "--format", "json", database=database).rows
    assert {row["mst_key"] for row in metrics} == {1} and {row["dataset"] for row in metrics} == {
        "training",
        "validation",
    }


def test_nothing_to_show_has_its_columns_all_the_same(database: str, role: MakeRole) -> None:
    nobody = role()
    assert cerebro("runs", "--format", "json", database=database, user=nobody).rows == []
    assert cerebro("runs", "--format", "csv", database=database, user=nobody).out.startswith("run_id,")
    done = cerebro("leaderboard", database=database, user=nobody)
    assert done.code == 1 and "you have no run yet" in done.err


def shown(database: str, *arguments: str) -> str:
    """Run a command in a terminal and return its output."""
    command = [sys.executable, str(CLIENT / "bin" / "cerebro"), *arguments]
    ours, theirs = pty.openpty()
    env = {**environment(database), "TERM": "xterm"}
    env.pop("NO_COLOR", None)
    subprocess.run(command, stdout=theirs, stderr=theirs, env=env, check=False)
    os.close(theirs)
    text = os.read(ours, 10_000).decode()
    os.close(ours)
    return text


@pytest.mark.slow
def test_names_do_not_command_a_terminal(database: str, run: int, trial: Trial) -> None:
    evil = "\x1b]0;mine\x07\x1b[2Jgone\x9b31mred\u202eback\rover"
    trial.select("failing", [1], [SGD.replace("0.1", "1e30")], ["batch_size=30"])
    number = trial.fit("packed", "failing_models", "failing", 2, name=evil)
    try:
        for form in ("table", "csv", "json"):
            text = shown(database, "runs", "--limit", "1", "--format", form)
            text = re.sub(r"\x1b\[\d*m", "", text).replace("\r\n", "\n")
            assert "gone" in text and not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text), form
        (found,) = cerebro("runs", "--limit", "1", "--format", "json", database=database).rows
        assert (found["name"], found["status"], found["failed_configs"]) == (evil, "failed", 1)
        text = cerebro("runs", "--limit", "1", "--format", "csv", database=database).out
        assert evil.partition("\r")[0] in text
        head, line = cerebro("runs", "--limit", "1", database=database).out.splitlines()
        assert head.split()[4] == "failed_configs"
        done = cerebro("watch", str(number), database=database)
        assert done.code == 4 and "its only config failed" in done.err
    finally:
        trial.sql("SELECT cerebro.forget(%s)", number)


def test_messages_do_not_command_a_terminal(database: str, run: int) -> None:
    text = shown(database, "predict", '"\x1b[2J"', "--x", "x", "--id", "id")
    assert "ERROR" in text and "\x1b[2J" not in text


def test_colours_are_for_terminals(database: str, run: int) -> None:
    assert "\x1b[32m" in shown(database, "runs")
    assert "\x1b" not in cerebro("runs", database=database).out


@pytest.mark.doors("shell", "predict")
def test_rows_are_predicted(database: str, run: int, sql: Sql) -> None:
    done = cerebro("predict", "blobs", "--x", "x", "--id", "id", "--format", "csv", database=database)
    assert done.code == 0, done.err
    predicted = list(csv.DictReader(io.StringIO(done.out)))
    assert len(predicted) == 90
    into = cerebro(
        "predict", "blobs", "--x", "x", "--id", "id", "--into", "kinds", "--top", "2", database=database
    )
    assert "180 rows" in into.out
    best = {int(row["id"]): row["class_value"] for row in predicted}
    assert dict(sql("SELECT id, class_value FROM kinds WHERE rank = 1")) == best
    assert sql("SELECT count(*) FROM pg_class WHERE relname LIKE 'cerebro_predictions%%'") == [(0,)]


def test_a_run_that_is_not_there_is_refused(database: str, run: int) -> None:
    for command in (
        ["stop", "99"],
        ["resume", "99"],
        ["forget", "99", "--yes"],
        ["leaderboard", "99"],
        ["watch", "99"],
    ):
        done = cerebro(*command, database=database)
        assert done.code == 1 and "you have no run 99" in done.err, command


@pytest.fixture(scope="module")
def long(trial: Trial, run: int) -> None:
    """Select configs that train for longer than a test takes."""
    trial.select("long", [1], [SGD, SGD.replace("0.1", "0.2")], ["batch_size=1,epochs=50"])


@pytest.mark.slow
@pytest.mark.doors("shell", "watch steer")
@pytest.mark.usefixtures("long")
def test_a_run_is_stopped_and_resumed(database: str, trial: Trial) -> None:
    trial.call(
        "madlib_fit_multiple_model", "packed", "long_models", "long", 100, options={"background": True}
    )
    number = trial.value("SELECT cerebro.last_run()")

    def status(key: int) -> str:
        return trial.value(
            "SELECT status FROM cerebro.progress WHERE run_id = %s AND mst_key = %s", number, key
        )

    refused = cerebro("predict", "blobs", "--x", "x", "--id", "id", database=database)
    assert refused.code == 1 and "cerebro watch" in refused.err
    assert cerebro("stop", str(number), "--config", "1", database=database).code == 0
    # The visit that is under way ends first.
    deadline = time.monotonic() + 60
    while status(1) == "training" and time.monotonic() < deadline:
        time.sleep(0.1)
    assert status(1) == "stopped"
    assert cerebro("resume", str(number), "--config", "1", database=database).code == 0
    assert cerebro("stop", str(number), database=database).code == 0
    watched = cerebro("watch", str(number), database=database)
    assert watched.code == 0, watched.err
    assert cerebro("stop", str(number), database=database).code == 1


@pytest.mark.usefixtures("long")
def test_a_run_that_ends_badly_ends_its_watch_badly_and_can_be_forgotten(
    database: str, trial: Trial, connect: Connect
) -> None:
    trial.call(
        "madlib_fit_multiple_model", "packed", "lost_models", "long", 100, options={"background": True}
    )
    number = trial.value("SELECT cerebro.last_run()")
    execute(connect(), END_DRIVER)
    done = cerebro("watch", str(number), database=database)
    assert done.code == 4
    assert f"run {number} is interrupted" in done.err
    asked = cerebro("forget", str(number), database=database, typed="n\n")
    assert asked.code == 1 and "Forget it?" in asked.out
    assert cerebro("forget", str(number), "--yes", database=database).code == 0
    assert cerebro("forget", str(number), "--yes", database=database).code == 1
