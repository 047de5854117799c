"""Which role may do which operation, as matrices that a person can review (matrix/*.txt).

`CEREBRO_UPDATE=1 make test-chosen ARGS="-k rights"` writes the matrices again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg2
import pytest

from stage import ARCHITECTURE, FITTED, SGD, Stage, compare, stage, table

OWNER = os.environ.get("PGUSER", "postgres")
MATRIX = Path(__file__).with_name("matrix")
LOCAL, INLINE = "READ COMMITTED", "REPEATABLE READ"

READ_PACKED = "SELECT __dist_key__, x, x_shape, y, y_shape, buffer_id FROM lab.{0}"
READ_SUMMARY = "SELECT * FROM lab.{0}_summary"
READ_ARCH = "SELECT model_id, model_arch, model_weights, name, description FROM lab.arch"
CREATE = "CREATE TABLE made.new (x integer)"


def packed(name: str) -> tuple[str, str]:
    return READ_PACKED.format(name), READ_SUMMARY.format(name)


@dataclass(frozen=True)
class Operation:
    """A call of the extension, and plain SQL statements that need the same rights on the same tables."""

    call: str
    plain: tuple[str, ...]
    trains: bool = False


OPERATIONS = {
    "pack": Operation(
        "SELECT cerebro.training_preprocessor_dl('lab.rows', 'made.p', 'y', 'x')",
        ("SELECT y, x FROM lab.rows", CREATE),
    ),
    "pack validation rows": Operation(
        "SELECT cerebro.validation_preprocessor_dl('lab.held', 'made.p', 'y', 'x', 'lab.packed')",
        ("SELECT y, x FROM lab.held", *packed("packed"), CREATE),
    ),
    "load a model": Operation(
        f"SELECT cerebro.load_keras_model('lab.arch', '{ARCHITECTURE}')",
        (READ_ARCH, "INSERT INTO lab.arch (model_id, model_arch) VALUES (99, '{}') RETURNING model_id"),
    ),
    "delete a model": Operation(
        "SELECT cerebro.delete_keras_model('lab.arch', 2)",
        ("DELETE FROM lab.arch WHERE model_id = 2", READ_ARCH),
    ),
    "choose configs": Operation(
        "SELECT cerebro.load_model_selection_table('lab.arch', 'made.mst', ARRAY[1],"
        f" ARRAY[$${SGD}$$], ARRAY['{FITTED}'])",
        (READ_ARCH, CREATE),
    ),
    "fit many": Operation(
        "SELECT cerebro.madlib_fit_multiple_model('lab.packed', 'made.m', 'lab.mst', 1,"
        " validation_table => 'lab.packed_val')",
        (
            *packed("packed"),
            *packed("packed_val"),
            READ_ARCH,
            "SELECT * FROM lab.mst",
            "SELECT * FROM lab.mst_summary",
            CREATE,
        ),
        trains=True,
    ),  # fmt: skip
    "search": Operation(
        "SELECT cerebro.madlib_automl('lab.packed', 'made.m', 'lab.arch', 'made.best', ARRAY[1],"
        " '{\"loss\": \"categorical_crossentropy\"}', '{\"batch_size\": 8}', 'hyperopt',"
        " 'num_configs=1, num_iterations=1, algorithm=rand', validation_table => 'lab.packed_val')",
        (*packed("packed"), *packed("packed_val"), READ_ARCH, CREATE),
        trains=True,
    ),  # fmt: skip
    "fit one": Operation(
        f"SELECT cerebro.madlib_fit('lab.packed', 'made.m', 'lab.arch', 2, $${SGD}$$, '{FITTED}', 1)",
        (*packed("packed"), READ_ARCH, CREATE),
        trains=True,
    ),
    "fit from where lab.m ended": Operation(
        "SELECT cerebro.madlib_fit_multiple_model('lab.packed', 'lab.m', 'lab.mst', 1, warm_start => TRUE)",
        (
            *packed("packed"),
            READ_ARCH,
            "SELECT * FROM lab.mst",
            "SELECT * FROM lab.mst_summary",
            "SELECT * FROM lab.m",
            "SELECT * FROM lab.m_info",
            "SELECT * FROM lab.m_summary",
            "DROP TABLE lab.m, lab.m_info, lab.m_summary",
        ),
        trains=True,
    ),  # fmt: skip
    "evaluate": Operation(
        "SELECT cerebro.madlib_evaluate('lab.m', 'lab.packed_val', 'made.e', FALSE, 1)",
        (
            *packed("packed_val"),
            "SELECT * FROM lab.m",
            "SELECT * FROM lab.m_info",
            "SELECT * FROM lab.m_summary",
            CREATE,
        ),
        trains=True,
    ),  # fmt: skip
    "predict a table": Operation(
        "SELECT cerebro.madlib_predict('lab.m', 'lab.held', 'id', 'x', 'made.out', mst_key => 1)",
        (
            "SELECT id, x FROM lab.held",
            "SELECT * FROM lab.m",
            "SELECT * FROM lab.m_info",
            "SELECT * FROM lab.m_summary",
            CREATE,
        ),
    ),  # fmt: skip
    "predict with own weights": Operation(
        "SELECT cerebro.madlib_keras_predict_byom('lab.arch', 2, 'lab.held', 'id', 'x', 'made.out')",
        ("SELECT id, x FROM lab.held", READ_ARCH, CREATE),
    ),
    "predict one row": Operation(
        "SELECT cerebro.predict('lab.m', 1, ARRAY[1, 2, 3, 4]::float8[])",
        ("SELECT * FROM lab.m", "SELECT * FROM lab.m_info", "SELECT * FROM lab.m_summary"),
    ),
}
RUNS = {
    "resume its run": "SELECT cerebro.resume({0})",
    "wait for its run": "SELECT cerebro.wait({0})",
    "pause its run": "SELECT cerebro.pause({0})",
    "stop its run": "SELECT cerebro.stop({0})",
    "stop its config": "SELECT cerebro.stop_config({0}, 1)",
    "resume its config": "SELECT cerebro.resume_config({0}, 1)",
    "delete its config": "SELECT cerebro.delete_config({0}, 1)",
    "set its epochs": "SELECT cerebro.set_epochs({0}, 1, 2)",
    "clone its config": "SELECT cerebro.clone_config({0}, 1)",
    "read the state of its config": "SELECT cerebro.config_state({0}, 1)",
    "add configs to its run": "SELECT cerebro.add_configs({0}, 'lab.mst')",
    "forget its run": "SELECT cerebro.forget({0})",
    "resume a run that is not there": "SELECT cerebro.resume(999999)",
    "forget a run that is not there": "SELECT cerebro.forget(999999)",
}
INSIDE = {
    "look at the server": "SELECT * FROM cerebro.diagnose()",
    "let itself in": "SELECT cerebro.grant_usage(current_user)",
    "cerebro._as_owner()": "SELECT cerebro._as_owner()",
    "cerebro._segment()": "SELECT cerebro._segment('next_run_id', '{}')",
    "drive a run": f"""SELECT cerebro._segment('drive', '{{"run_id": 999999, "role": "{OWNER}"}}')""",
    "read settings": "SELECT * FROM cerebro.settings",
    "change settings": "INSERT INTO cerebro.settings VALUES ('connection', 'host=elsewhere')",
    "read cerebro._state": "SELECT * FROM cerebro._state",
    "read cerebro._run": "SELECT * FROM cerebro._run",
    "read cerebro._decision": "SELECT * FROM cerebro._decision",
    "ask without a function": "INSERT INTO cerebro._request (run_id, role, decision) VALUES (1, 10, 'stop')",
    "change cerebro._run": "DELETE FROM cerebro._run",
    "read cerebro._visible_run": "SELECT * FROM cerebro._visible_run",
    "advance cerebro._run_id_seq": "SELECT nextval('cerebro._run_id_seq')",
    "make a table in cerebro": "CREATE TABLE cerebro.mine (x integer)",
}
VIEWS = ("runs", "visits", "metrics", "leaderboard", "progress", "sizes", "costs", "decisions", "groups")

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Cast:
    """The names of the roles by their part in the tests, such as "reader", and the run_id of each owner."""

    roles: dict[str, str]
    runs: dict[str, int]


@pytest.fixture(scope="module")
def scene(database: str) -> Iterator[Stage]:
    with stage(database) as made:
        yield made


@pytest.fixture(scope="module")
def cast(scene: Stage) -> Cast:
    runner = scene.role("runner")
    roles = {
        "superuser": scene.role("superuser", "SUPERUSER", usage=False),
        "owner": str(scene.value("SELECT current_user")),
        "runner": runner,
        "member": scene.role("member", f"IN ROLE {runner}", usage=False),
        "reader": scene.role("reader"),
        "user": scene.role("user"),
        "monitor": scene.role("monitor", "IN ROLE pg_monitor", usage=False),
        "stranger": scene.role("stranger", usage=False),
    }
    scene.sql("CREATE SCHEMA made; GRANT ALL ON SCHEMA made TO PUBLIC")
    scene.lab(runner, "lab")
    with scene.acting(runner):
        theirs = scene.fit()
    scene.sql("GRANT USAGE ON SCHEMA lab TO PUBLIC")
    scene.named("GRANT SELECT ON ALL TABLES IN SCHEMA lab TO {0}", roles["reader"])
    scene.lab(roles["reader"], "own")
    with scene.acting(roles["reader"]):
        readers = scene.fit("own")
    return Cast(roles, {"runner": theirs, "reader": readers})


@pytest.fixture
def without(greenplum: bool) -> list[str]:
    """The names of the operations that Greenplum refuses to every role."""
    return ["predict one row"] if greenplum else []


@pytest.fixture
def operations(without: list[str]) -> dict[str, Operation]:
    return {name: operation for name, operation in OPERATIONS.items() if name not in without}


def test_who_may_do_what(
    scene: Stage, cast: Cast, operations: dict[str, Operation], without: list[str]
) -> None:
    calls = {name: operation.call for name, operation in operations.items()}
    calls |= {name: call.format(cast.runs["runner"]) for name, call in RUNS.items()} | INSIDE
    cells = {
        name: {role: scene.attempt(full, call) for role, full in cast.roles.items()}
        for name, call in calls.items()
    }
    views = {
        f"read cerebro.{view}": {role: _seen(scene, cast, role, view) for role in cast.roles}
        for view in VIEWS
    }
    head = (
        "Who may do what with the tables of lab, which belong to runner, and with runner's run.\n"
        "superuser, owner (of the extension), runner and member (of runner) need no grant on the tables;\n"
        "reader has grant_usage and SELECT on each of them; user has grant_usage alone;\n"
        "monitor is in pg_monitor and stranger in nothing. Of views: whose runs are seen."
    )
    compare(MATRIX / "who.txt", table(head, cells | views, "operation"), without)


def _seen(scene: Stage, cast: Cast, role: str, view: str) -> str:
    query = f"SELECT DISTINCT run_id FROM cerebro.{view}"
    answer = scene.attempt(cast.roles[role], query)
    if answer != "ok":
        return answer
    with scene.acting(cast.roles[role]):
        found = {number for (number,) in scene.sql(query)}
    return "+".join(whose for whose, number in cast.runs.items() if number in found) or "none"


@pytest.mark.parametrize("level", [LOCAL, INLINE])
@pytest.mark.parametrize("role", ["superuser", "owner", "runner", "member", "reader", "user"])
def test_a_call_needs_what_plain_sql_needs(
    scene: Stage, cast: Cast, operations: dict[str, Operation], role: str, level: str
) -> None:
    full = cast.roles[role]
    for name, operation in operations.items():
        if level == LOCAL or operation.trains:
            called = scene.attempt(full, operation.call, level=level)
            assert called == scene.attempt(full, *operation.plain), name


def test_no_right_is_asked_for_without_need_and_none_is_missed(
    scene: Stage, cast: Cast, operations: dict[str, Operation], without: list[str]
) -> None:
    """The role `reader` lacks SELECT on one table at a time; a call fails just as plain SQL on its tables."""
    reader = cast.roles["reader"]
    tables = scene.sql(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'lab'::regnamespace"
        " AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY 1"
    )
    asked = [name for name in operations if scene.attempt(reader, operations[name].call) == "ok"]
    cells: dict[str, dict[str, str]] = {name: {} for name in asked}
    for (relation,) in tables:
        scene.named("REVOKE SELECT ON lab.{1} FROM {0}", reader, relation)
        # After this change, a model that the session keeps is read again.
        scene.sql("UPDATE lab.m SET mst_key = mst_key")
        for name in asked:
            operation = operations[name]
            plain = scene.attempt(reader, *operation.plain)
            for level in (LOCAL, INLINE) if operation.trains else (LOCAL,):
                assert scene.attempt(reader, operation.call, level=level) == plain, (name, relation, level)
            cells[name][relation] = "-" if plain == "ok" else plain
        scene.named("GRANT SELECT ON lab.{1} TO {0}", reader, relation)
    head = (
        "What each operation needs: the answer to a role with grant_usage and SELECT on all tables but one.\n"
        "local and inline give the same, and so does plain SQL on the same tables. - is ok."
    )
    compare(MATRIX / "needs.txt", table(head, cells, "operation"), without)


def test_a_run_of_somebody_else_is_as_one_that_is_not_there(scene: Stage, cast: Cast) -> None:
    for function in ("resume", "forget", "wait", "pause", "stop"):
        answers = {
            _message(scene, cast.roles["user"], function, number) for number in (cast.runs["runner"], 987654)
        }
        assert len(answers) == 1
    assert cast.runs["runner"] in {number for (number,) in scene.sql("SELECT run_id FROM cerebro.runs")}


def _message(scene: Stage, role: str, function: str, number: int) -> tuple[str, str | None]:
    with scene.acting(role), pytest.raises(psycopg2.errors.InsufficientPrivilege) as caught:
        scene.sql(f"SELECT cerebro.{function}({number})")
    said = caught.value.diag
    assert said.message_detail is None
    return str(said.message_primary).replace(str(number), "N"), said.message_hint


def test_results_belong_to_the_caller(scene: Stage, cast: Cast) -> None:
    reader = cast.roles["reader"]
    with scene.acting(reader):
        for name in ("pack", "fit many", "evaluate", "predict a table"):
            scene.sql(OPERATIONS[name].call)
    owners = scene.sql(
        "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relnamespace = 'made'::regnamespace"
    )
    assert owners == [(reader,)]
    scene.sql("DROP SCHEMA made CASCADE; CREATE SCHEMA made; GRANT ALL ON SCHEMA made TO PUBLIC")
