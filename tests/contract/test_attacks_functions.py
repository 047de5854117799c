"""Only a superuser may register functions, and only roles with a grant may use a registered function."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stage import ARCHITECTURE, FITTED, SGD, Stage, stage, unique

pytestmark = pytest.mark.slow

SOURCE = """
from keras import ops

def secret(y_true, y_pred):
    return ops.mean(ops.square(y_true - y_pred), axis=-1)
"""
LAYER = """
import keras

class Hidden(keras.layers.Layer):
    def call(self, inputs):
        return inputs * 2.0
"""
REGISTER = f"SELECT cerebro.register_function('mine', $f${SOURCE.replace('secret', 'mine')}$f$, 'loss')"
CALLS = (
    REGISTER, "SELECT cerebro.unregister_function('secret')",
    "SELECT cerebro.grant_function('secret', 'public')", "SELECT cerebro.revoke_function('secret', 'public')",
)  # fmt: skip
LOAD_PICKLE = "SELECT cerebro.load_custom_function('objects', 'x'::bytea, 'mine')"
MEASURED = SGD.replace("'accuracy'", "secret")
OTHERS = SGD.replace("categorical_crossentropy", "secret")


def with_hidden(**fields: object) -> str:
    model = json.loads(ARCHITECTURE)
    hidden = {
        "module": None,
        "class_name": "Hidden",
        "config": {"name": "hidden"},
        "registered_name": "Hidden",
    }
    model["config"]["layers"].insert(2, {**hidden, **fields})
    return json.dumps(model)


@dataclass(frozen=True)
class Scene:
    stage: Stage
    user: str
    friend: str

    def functions(self) -> object:
        return self.stage.sql("SELECT * FROM cerebro._function ORDER BY 1, 2")

    def runs(self) -> object:
        return self.stage.value("SELECT count(*) FROM cerebro._run")


@pytest.fixture(scope="module")
def scene(database: str) -> Iterator[Scene]:
    with stage(database) as made:
        user, friend = made.role("user"), made.role("friend")
        made.lab(user, "lab")
        made.lab(friend, "own")
        made.sql("SELECT cerebro.register_function('secret', %s, 'loss')", SOURCE)
        made.sql("SELECT cerebro.register_function('Hidden', %s, 'layer')", LAYER)
        for name in ("secret", "Hidden"):
            made.sql("SELECT cerebro.grant_function(%s, %s)", name, friend)
        yield Scene(made, user, friend)


@pytest.mark.parametrize("call", CALLS)
def test_only_a_superuser_may_register(scene: Scene, call: str) -> None:
    """A user may not register functions even with EXECUTE on the SQL functions that do it."""
    before = scene.functions()
    assert scene.stage.attempt(scene.user, call) == "42501"
    scene.stage.named("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA cerebro TO {0}", scene.user)
    try:
        assert scene.stage.attempt(scene.user, call) == "42501"
    finally:
        scene.stage.sql("SELECT cerebro.revoke_usage(%s)", scene.user)
        scene.stage.sql("SELECT cerebro.grant_usage(%s)", scene.user)
    assert scene.functions() == before


def test_a_pickle_is_a_superusers_too(scene: Scene) -> None:
    assert scene.stage.attempt(scene.user, "SET search_path = lab", LOAD_PICKLE) == "42501"
    assert scene.stage.value("SELECT to_regclass('lab.objects')") is None


@pytest.mark.parametrize("call", [*CALLS, LOAD_PICKLE])
def test_a_definer_of_somebody_elses_lends_no_right(scene: Scene, call: str) -> None:
    """A SECURITY DEFINER function may not register functions if its owner or its caller is no superuser."""
    made, before = scene.stage, scene.functions()
    for owner, caller in (("postgres", scene.user), (scene.user, "postgres")):
        made.sql("CREATE FUNCTION lab.door(statement text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER"
                 " SET search_path = lab AS 'BEGIN EXECUTE statement; END'")  # fmt: skip
        made.named("ALTER FUNCTION lab.door(text) OWNER TO {0}", owner)
        statement = f"SELECT lab.door($door${call}$door$)"
        try:
            assert made.attempt(caller, statement) == "42501"
        finally:
            made.sql("DROP FUNCTION lab.door(text)")
    assert scene.functions() == before


def test_a_role_is_what_it_was_set_to(scene: Scene) -> None:
    """A role may register functions after SET ROLE to a superuser; a superuser may not as another user."""
    made, boss, admin = scene.stage, unique("boss"), scene.stage.role("admin")
    made.named("CREATE ROLE {0} SUPERUSER; GRANT {0} TO {1}", boss, admin)
    try:
        assert made.attempt(admin, REGISTER) == "42501"
        assert made.attempt(admin, f"SET ROLE {boss}", REGISTER) == "ok"
        assert made.attempt("postgres", f"SET ROLE {scene.user}", REGISTER) == "42501"
        assert made.attempt(scene.user, f"SET ROLE {boss}", REGISTER) == "42501"
    finally:
        made.named("DROP ROLE {0}", boss)


def test_code_behind_a_table_registers_nothing(scene: Scene) -> None:
    """The caller's row security policy runs in a segment session, which has logged in as a superuser."""
    made, before = scene.stage, scene.functions()
    with made.acting(scene.user):
        made.sql("CREATE TABLE lab.tried (n integer)")
        made.sql(
            "CREATE FUNCTION lab.strike() RETURNS boolean LANGUAGE plpgsql AS $$ DECLARE s text; BEGIN"
            " FOREACH s IN ARRAY ARRAY[$r$" + REGISTER + "$r$,"
            " 'INSERT INTO cerebro._function (name, version, kind) SELECT ''x'', 1, ''loss''',"
            " 'INSERT INTO cerebro._function_grant SELECT ''secret'', 0']"
            " LOOP BEGIN EXECUTE s; RAISE 'got in by %', s;"
            " EXCEPTION WHEN insufficient_privilege OR active_sql_transaction OR read_only_sql_transaction"
            " OR invalid_parameter_value OR cant_change_runtime_param THEN NULL; END; END LOOP;"
            " RETURN TRUE; END $$"
        )
        made.sql("ALTER TABLE lab.packed ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
        made.sql("CREATE POLICY p ON lab.packed USING (lab.strike())")
        try:
            made.fit(out="struck")
        finally:
            made.sql("ALTER TABLE lab.packed DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY")
            made.sql("DROP POLICY p ON lab.packed")
    assert scene.functions() == before
    assert made.sql("SELECT status FROM lab.struck_info") == [("finished",)]


FORGED = (
    "CREATE TABLE lab.forged (mst_key serial, model_id integer, compile_params varchar, fit_params varchar)",
    f"INSERT INTO lab.forged VALUES (1, 1, $${OTHERS}$$, '{FITTED}')",
    "CREATE TABLE lab.forged_summary AS SELECT 'lab.arch'::varchar AS model_arch_table, NULL::varchar AS"
    " object_table",
)
NETS = "INSERT INTO lab.arch (model_id, model_arch) VALUES (9, $a${0}$a$)"
FIT_NET = f"SELECT cerebro.madlib_fit('lab.packed', 'lab.x', 'lab.arch', 9, $${SGD}$$, '{FITTED}', 1)"


@pytest.mark.parametrize("statements", [
    (f"SELECT cerebro.load_model_selection_table('lab.arch', 'lab.x', ARRAY[1], ARRAY[$${OTHERS}$$],"
     f" ARRAY['{FITTED}'])",),
    (*FORGED, "SELECT cerebro.madlib_fit_multiple_model('lab.packed', 'lab.x', 'lab.forged', 1)"),
    (f"SELECT cerebro.madlib_fit('lab.packed', 'lab.x', 'lab.arch', 1, $${OTHERS}$$, '{FITTED}', 1)",),
    (f"SELECT cerebro.madlib_fit('lab.packed', 'lab.x', 'lab.arch', 1, $${MEASURED}$$,"
     f" '{FITTED}', 1)",),
    ("SELECT cerebro.generate_model_configs('lab.arch', 'lab.x', ARRAY[1], $${'loss': ['mse', 'secret'],"
     " 'optimizer_params_list': [{'optimizer': ['SGD']}]}$$, $${'batch_size': [8]}$$)",),
    ("SELECT cerebro.madlib_automl('lab.packed', 'lab.x', 'lab.arch', 'lab.y', ARRAY[1], $${'loss':"
     " ['mse', 'secret'], 'optimizer_params_list': [{'optimizer': ['SGD']}]}$$, $${'batch_size': [8]}$$,"
     " 'hyperband', 'R=2, eta=2')",),
    (f"SELECT cerebro.load_keras_model('lab.x', $a${with_hidden()}$a$)",),
    (NETS.format(with_hidden()), FIT_NET),
])  # fmt: skip
def test_without_a_grant_nothing_begins(scene: Scene, statements: tuple[str, ...]) -> None:
    runs = scene.runs()
    assert scene.stage.attempt(scene.user, *statements) == "42501"
    assert scene.runs() == runs


@pytest.mark.parametrize("fields", [
    {"registered_name": "cerebro>Hidden@" + "0" * 64}, {"registered_name": "cerebro>Other@" + "0" * 64},
    {"class_name": "Dense", "registered_name": "cerebro>Hidden@{digest}"},
    {"class_name": "Unknown"}, {"class_name": "secret", "registered_name": "secret"},
    {"module": "os", "class_name": "system"}, {"class_name": "Unknown", "registered_name": "Hidden"},
    {"class_name": "Lambda", "module": "keras.layers"},
])  # fmt: skip
def test_an_architecture_that_means_something_else_is_refused(scene: Scene, fields: dict[str, str]) -> None:
    """The caller may use the registered layer `Hidden`, but the architecture does not name it correctly."""
    (digest,) = scene.stage.sql("SELECT digest FROM cerebro.functions WHERE name = 'Hidden'")[0]
    filled = {key: value.replace("{digest}", digest) for key, value in fields.items()}
    assert scene.stage.attempt(
        scene.friend, f"SELECT cerebro.load_keras_model('own.x', $a${with_hidden(**filled)}$a$)"
    ) == "0A000"  # fmt: skip


class Evil:
    """An object that creates a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.system, (f"touch {self.file}",)


def test_what_stands_in_an_object_table_is_never_executed(scene: Scene, tmp_path: Path) -> None:
    file = tmp_path / "was_here"
    evil = pickle.dumps(Evil(file))
    made = scene.stage
    tmp_path.chmod(0o777)
    with made.acting(scene.user):
        made.sql("CREATE TABLE lab.objects (id serial, name text, description text, object bytea)")
        made.sql("INSERT INTO lab.objects (name, object) VALUES ('evil', %s), ('secret', %s)", evil, evil)
    for name, code in (("evil", "22023"), ("secret", "42501")):
        compiled = SGD.replace("categorical_crossentropy", name)
        for call in (
            f"SELECT cerebro.load_model_selection_table('lab.arch', 'lab.x', ARRAY[1], ARRAY[$${compiled}$$],"
            f" ARRAY['{FITTED}'], 'lab.objects')",
            f"SELECT cerebro.madlib_fit('lab.packed', 'lab.x', 'lab.arch', 1, $${compiled}$$, '{FITTED}', 1,"
            " object_table => 'lab.objects')",
        ):
            assert made.attempt(scene.user, call) == code
    assert made.attempt(scene.user, "SELECT cerebro.update_custom_function_table('lab.objects')") == "ok"
    assert not file.exists()
    for call in (
        "load_top_k_accuracy_function('lab.objects', 2)",
        "delete_custom_function('lab.objects', 1)",
    ):
        assert made.attempt(scene.friend, f"SELECT cerebro.{call}") == "42501"


def test_tables_named_as_ours_are_not_ours(scene: Scene) -> None:
    made = scene.stage
    with made.acting(scene.user):
        made.sql("CREATE TABLE lab._function AS SELECT 'evil'::text AS name, 1 AS version,"
                 " 'loss'::text AS kind, repeat('0', 64) AS digest, 'raise SystemExit'::text AS source,"
                 " NULL::boolean AS higher_is_better")  # fmt: skip
        made.sql("CREATE TABLE lab._function_grant AS SELECT 'secret'::text AS name, 0::regrole AS role")
        made.sql("CREATE VIEW lab.functions AS TABLE lab._function")
    call = f"SELECT cerebro.madlib_fit('lab.packed', 'lab.x', 'lab.arch', 1, $${{}}$$, '{FITTED}', 1)"
    for name, code in (("evil", "22023"), ("secret", "42501")):
        compiled = SGD.replace("categorical_crossentropy", name)
        path = "SET search_path = lab, pg_temp, cerebro"
        assert made.attempt(scene.user, path, call.format(compiled)) == code


def test_the_extensions_own_tables_are_closed(scene: Scene) -> None:
    for table in ("_function", "_function_grant", "_run_function"):
        for statement in ("SELECT * FROM", "DELETE FROM", "INSERT INTO", "TRUNCATE"):
            tail = " DEFAULT VALUES" if statement.startswith("INSERT") else ""
            assert scene.stage.attempt(scene.user, f"{statement} cerebro.{table}{tail}") == "42501"


def test_who_sees_what(scene: Scene) -> None:
    made = scene.stage
    shown = "SELECT name, source IS NOT NULL, granted_to FROM cerebro.functions ORDER BY name"
    with made.acting(scene.user):
        assert made.sql(shown) == []
    with made.acting(scene.friend):
        assert made.sql(shown) == [("Hidden", True, [scene.friend]), ("secret", True, [scene.friend])]


def test_a_right_that_is_taken_back_is_gone(scene: Scene) -> None:
    """Calls, kept models and resumed runs are refused once a grant, or membership in its role, is revoked."""
    made = scene.stage
    group = made.role("group", usage=False)
    made.named("GRANT {0} TO {1}", group, scene.user)
    made.sql(
        "SELECT cerebro.grant_function('secret', %s), cerebro.grant_function('Hidden', %s)", group, group
    )
    with made.acting(scene.user):
        made.sql(NETS.format(with_hidden()))
        made.sql(FIT_NET.replace("lab.x", "lab.hidden"))
        ask = "SELECT cerebro.predict('lab.hidden', NULL, ARRAY[1, 2, 3, 4]::float8[])"
        fit = f"SELECT cerebro.madlib_fit('lab.packed', 'lab.x', 'lab.arch', 1, $${OTHERS}$$, '{FITTED}', 1)"
        made.sql(ask)
        made.sql("BEGIN")
        made.sql(fit)
        made.sql("ROLLBACK")
        run = made.value("SELECT max(run_id) FROM cerebro.runs")
    made.named("REVOKE {0} FROM {1}", group, scene.user)
    resume = f"SELECT cerebro.resume({run})"
    predicts = "SELECT cerebro.madlib_predict('lab.hidden', 'lab.rows', 'id', 'x', 'lab.out')"
    for call in (ask, fit, predicts, resume):
        assert made.attempt(scene.user, call) == "42501"
    made.sql("SELECT cerebro.grant_function('secret', 'public'), cerebro.grant_function('Hidden', 'public')")
    for call in (ask, fit, predicts, resume):
        assert made.attempt(scene.user, call) == "ok"
    made.sql(
        "SELECT cerebro.revoke_function('secret', 'public'), cerebro.revoke_function('Hidden', 'public')"
    )
    for call in (ask, fit, predicts, resume):
        assert made.attempt(scene.user, call) == "42501"


def test_another_ones_run_lends_no_version(scene: Scene) -> None:
    """A user who writes another's run_id into a summary cannot use the registered functions of that run."""
    made = scene.stage
    with made.acting(scene.friend):
        made.sql(
            f"SELECT cerebro.madlib_fit('own.packed', 'own.m', 'own.arch', 1, $${OTHERS}$$, '{FITTED}', 1)"
        )
        run = made.value("SELECT run_id FROM own.m_summary")
    with made.acting(scene.user):
        made.fit(out="honest")
    assert made.attempt(
        scene.user, f"UPDATE lab.honest_summary SET run_id = {run}",
        f"UPDATE lab.honest_info SET compile_params = $${OTHERS}$$",
        "SELECT cerebro.madlib_evaluate('lab.honest', 'lab.packed', 'lab.e', FALSE, 1)",
    ) == "42501"  # fmt: skip


def test_what_a_source_registers_with_keras_reaches_nobody(scene: Scene) -> None:
    made = scene.stage
    source = (
        "import keras\n"
        "@keras.saving.register_keras_serializable(package='keras.layers', name='Dense')\n"
        "class Sly(keras.layers.Layer):\n    def call(self, inputs):\n        return inputs * 0.0\n"
    )
    for _ in range(2):
        made.sql("SELECT cerebro.register_function('Sly', %s, 'layer')", source)
        source += "\n"
    with made.acting(scene.user):
        model = ARCHITECTURE.replace('"registered_name": null', '"registered_name": "keras.layers>Dense"')
    assert made.attempt(scene.user, f"SELECT cerebro.load_keras_model('lab.x', $a${model}$a$)") == "0A000"
