"""No command, page or client call uses objects that other users have put on a superuser's search_path."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest
import yaml
from cerebro_db import connect

import nets
from shell import cerebro, dashboard
from trial import SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
FEATURES = 6
TYPES = (
    "text", "name", "varchar", "bpchar", '"char"', "smallint", "integer", "bigint", "numeric", "real",
    "float8", "oid", "regclass", "regnamespace", "regrole", "regtype", "boolean", "timestamptz", "interval",
    "json", "bytea", "text[]", "name[]", "integer[]",
)  # fmt: skip
OPERATORS = {"=": "boolean", "<>": "boolean", "<": "boolean", ">": "boolean", ">=": "boolean", "||": "text",
             "+": "integer", "-": "integer", "/": "integer"}  # fmt: skip
FUNCTIONS = {
    "to_timestamp": "timestamptz", "date_part": "float8", "extract": "numeric", "max": "integer",
    "sum": "bigint", "count": "bigint", "coalesce": "text", "left": "text", "quote_ident": "text",
    "has_schema_privilege": "boolean", "pg_has_role": "boolean", "to_regnamespace": "regnamespace",
    "to_regclass": "regclass", "current_setting": "text", "string_agg": "text", "unnest": "text",
    "pg_size_pretty": "text", "current_schemas": "name[]", "decode": "bytea", "parse_ident": "text[]",
    "cardinality": "integer", "set_config": "text", "pg_typeof": "regtype", "array_cat": "text[]",
}  # fmt: skip
MISSING = """SELECT NOT EXISTS (SELECT FROM pg_operator WHERE oprname = %s AND oprleft = %s::regtype
    AND oprright = %s::regtype)"""


@pytest.fixture(scope="module")
def run(database: str) -> int:
    """The number of a finished run."""
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        trial = Trial(connection)
        trial.sql("INSERT INTO cerebro.settings VALUES ('backend', 'jax'), ('threads', '1')")
        rows = rows_of(*blobs(60, features=FEATURES))
        trial.table("blobs", "id integer, x real[], y integer", [(i, *row) for i, row in enumerate(rows)])
        trial.pack("blobs", "packed")
        trial.model(nets.mlp(FEATURES))
        trial.select("configs", [1], [SGD], ["batch_size=10", "batch_size=20"])
        return trial.fit("packed", "models", "configs", 2, metrics_compute_frequency=1)


@pytest.fixture(scope="module")
def traps(database: str, run: int) -> Iterator[Trial]:
    """Make functions and operators in `public`, for types that the server's own do not fit, as traps."""
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        trial = Trial(connection)
        trial.sql("CREATE SEQUENCE steps; GRANT ALL ON steps TO PUBLIC; CREATE TABLE stepped (what text)")
        trial.sql("CREATE TABLE there AS SELECT proname, proargtypes::text AS arguments FROM pg_proc")
        for (operator, returns), (left, right) in itertools.product(
            OPERATORS.items(), itertools.product(TYPES, TYPES)
        ):
            if trial.value(MISSING, operator, left, right):
                name = _trap(trial, f"operator {operator}", f"{left}, {right}", returns)
                sides = f"LEFTARG = {left}, RIGHTARG = {right}"
                trial.sql(f"CREATE OPERATOR public.{operator} ({sides}, FUNCTION = public.{name})")
        two = [", ".join(pair) for pair in itertools.product(TYPES[:13], TYPES[:13])]
        for (function, returns), arguments in itertools.product(FUNCTIONS.items(), [*TYPES, *two]):
            _trap(trial, function, arguments, returns)
        yield trial


def _trap(trial: Trial, name: str, arguments: str, returns: str) -> str:
    """Make a function that returns NULL and counts its calls, which no rollback undoes; return its name."""
    own = f'"{name}"'
    trial.sql(
        f"CREATE FUNCTION public.{own} ({arguments}) RETURNS {returns} LANGUAGE plpgsql AS $trap$ BEGIN"
        f" PERFORM pg_catalog.nextval('public.steps'); RAISE WARNING 'stepped on {name} ({arguments})';"
        " RETURN NULL; END $trap$"
    )
    return own


def stepped(traps: Trial) -> bool:
    found = traps.value("SELECT is_called FROM public.steps")
    traps.sql("ALTER SEQUENCE public.steps RESTART")
    return found


def test_the_traps_work(traps: Trial) -> None:
    """Plain SQL calls some of the traps, so it means something if a command calls none."""
    traps.sql("BEGIN")
    assert traps.value("SELECT to_timestamp(0.0)") is None
    assert traps.value("SELECT oid = 'pg_class'::regclass FROM pg_class LIMIT 1") is None
    traps.sql("ROLLBACK")
    assert stepped(traps)


COMMANDS = (
    "doctor", "init", "runs", "leaderboard RUN", "metrics RUN --config 1", "watch RUN",
    "report RUN -o FILE.html", "export RUN --tensorboard FILE", "export RUN --model FILE.keras",
    "predict blobs --x x --id id --run RUN", "predict blobs --x x --id id --run RUN --into told",
    "stop RUN", "resume RUN",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_calls_nothing_that_others_have_made(
    database: str, run: int, traps: Trial, tmp_path: Path, command: str
) -> None:
    words = command.replace("RUN", str(run)).replace("FILE", str(tmp_path / "made")).split()
    done = cerebro(*words, database=database)
    assert not stepped(traps), done.err
    assert done.code == 0 or words[0] in ("stop", "resume"), done.err


def test_the_page_calls_nothing_that_others_have_made(database: str, run: int, traps: Trial) -> None:
    with dashboard(database) as page:
        answers = [page.ask("/api/overview"), page.ask(f"/api/runs/{run}?metrics=0.5&decisions=1.5")]
        body = {"preview": True, "with": {"config": 1}}
        answers.append(page.ask(f"/api/runs/{run}/stop_config", method="POST", body=body))
        assert [status for status, _, _ in answers] == [200, 200, 200], answers
        page.ask(f"/api/runs/{run}/set_epochs", method="POST", body={"with": {"config": 1, "epochs": 5}})
    assert not stepped(traps)


def test_the_dashboard_for_superset_calls_nothing_that_others_have_made(traps: Trial) -> None:
    files = sorted((ROOT / "docs" / "guide" / "superset" / "datasets").rglob("*.yaml"))
    for file in files:
        traps.sql(yaml.safe_load(file.read_text())["sql"])
    assert len(files) == 4 and not stepped(traps)


def test_the_client_calls_nothing_that_others_have_made(
    database: str, run: int, traps: Trial, tmp_path: Path
) -> None:
    with connect(f"postgresql:///{database}", architectures="arch") as db:
        found = db.run(run)
        found.plot().save(tmp_path / "run.png")
        frames = (found.timeline(), found.progress(), found.decisions(), db.runs(), db.functions.list())
        assert len(frames[0]) == len(db.look("SELECT FROM cerebro.visits"))
        best = found.best()
        assert best.params["batch_size"] in (10, 20)
        best.probabilities([[0.0] * FEATURES])
        db.packed("packed").export(tmp_path / "packed.npz")
        db.import_packed(tmp_path / "packed.npz", "packed_again")
        grid = {"model": 1, **json.loads('{"loss": "categorical_crossentropy", "optimizer": "SGD"}')}
        db.fit("packed_again", {**grid, "learning_rate": [0.1, 0.2]}, epochs=1, wait=True)
        db.load("loaded", {"x": [1.0, None], "y": [b"\x00", b"\x01"]})
    assert not stepped(traps)
