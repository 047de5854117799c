"""No caller's search_path, setting or name of a table, column or role changes what the extension's SQL does.

The tests put traps first on the search_path: functions, operators, tables and types with the names of those
that the extension uses. A trap function that is called inserts a row into trap.stepped and raises an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from fixtures import Rows, execute
from stage import ARCHITECTURE, FITTED, SGD, Stage, connect, stage

pytestmark = pytest.mark.slow

# Functions with a trap: the names and argument types of the functions that the extension's SQL calls.
FUNCTIONS = (
    "format(text, text, text)", "format(text, name, name)", "format(text, VARIADIC text[])", "count()",
    "unnest(text[])", "unnest(integer[])", "unnest(anyarray)", "max(integer)", "to_regclass(text)",
    "to_regclass(name)", "to_regprocedure(text)", "current_setting(text)", "current_setting(text, boolean)",
    "octet_length(bytea)", "md5(bytea)", "md5(text)", "now()", "clock_timestamp()", "pg_my_temp_schema()",
    "set_config(text, text, boolean)", "jsonb_populate_record(anyelement, jsonb)", "nextval(regclass)",
    "jsonb_populate_recordset(anyelement, jsonb)", "has_table_privilege(oid, text)", "quote_ident(text)",
    "pg_has_role(oid, text)", "pg_has_role(name, oid, text)", "has_schema_privilege(oid, text)",
    "pg_get_userbyid(oid)", "quote_literal(text)", "pg_backend_pid()", "position(text, text)", "_boot()",
    "pg_try_advisory_lock(integer, integer)", "regexp_matches(text, text)", "to_timestamp(double precision)",
    "date_part(text, timestamptz)", "left(text, integer)", "array_to_string(text[], text)", "_as_owner()",
    "string_agg(text, text)", "_members(regclass)", "_array_bytes(anyarray)", "run_pending()",
)  # fmt: skip
OPERATORS = (
    ("=", "text", "text"), ("=", "name", "text"), ("=", "name", "name"), ("=", "oid", "oid"),
    ("=", "integer", "integer"), ("=", "bigint", "integer"), ("=", "bigint", "bigint"), ("=", "xid", "xid"),
    ("<>", "text", "text"), ("<", "integer", "integer"), ("||", "text", "text"), ("+", "integer", "integer"),
    ("-", "integer", "integer"), ("*", "integer", "integer"), ("&", "bigint", "bigint"),
    ("~~", "text", "text"), ("~~", "name", "text"), ("=", "tid", "tid"),
)  # fmt: skip
TABLES = (
    "pg_class", "pg_namespace", "pg_proc", "pg_type", "pg_attribute", "pg_roles", "pg_locks", "pg_extension",
    "pg_stat_activity", "pg_inherits", "pg_database", "settings", "_run", "_state", "_config", "_visit",
)  # fmt: skip
TYPES = ("text", "integer", "int4", "bigint", "oid", "regclass", "jsonb", "bytea", "name", "float8")
RESULTS = {"||": "text", "=": "boolean", "<>": "boolean", "<": "boolean", "~~": "boolean"}

# Names that change a statement unless they are quoted. A name may have at most 63 bytes.
NAMES = (
    'q"uo"te', "sin'gle", "semi;colon--", "dot.ted", "Ümläut 表", "$body$", "%s %I {0}", "back\\slash",
    "select", " pad ", "new\nline", "a" * 52,
)  # fmt: skip
ROLES = ('"quoted" %I', "O'Neil; --", "Ümläut\\ $$ {0}")


def quoted(*name: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in name)


def literally(scene: Stage, statement: str) -> Rows:
    """Run a statement in which `%` is no placeholder, and return its rows."""
    with scene.connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture(scope="module")
def scene(database: str) -> Iterator[Stage]:
    with stage(database) as made:
        yield made


@pytest.fixture(scope="module")
def user(scene: Stage) -> str:
    role = scene.role("user")
    scene.lab(role, "lab")
    return role


@pytest.fixture(scope="module")
def trapped(scene: Stage, user: str) -> str:
    """Create traps for names that the extension's SQL uses, and return a search_path with the traps first."""
    scene.named("CREATE SCHEMA trap AUTHORIZATION {0}", scene.role("trapper"))
    scene.sql("CREATE TABLE trap.stepped (what text, who text); GRANT ALL ON trap.stepped TO PUBLIC")
    scene.sql("GRANT USAGE ON SCHEMA trap TO PUBLIC")
    for signature in FUNCTIONS:
        name, arguments = signature.split("(")
        _set_trap(scene, f"{quoted(name)}({arguments}", signature, "integer")
    for number, (operator, left, right) in enumerate(OPERATORS):
        function = f"operator_{number}"
        _set_trap(scene, f"{function}({left}, {right})", operator, RESULTS.get(operator, left))
        sides = f"LEFTARG = {left}, RIGHTARG = {right}"
        literally(scene, f"CREATE OPERATOR trap.{operator} ({sides}, FUNCTION = trap.{function})")
    for name in TABLES:
        scene.sql(f"CREATE TABLE trap.{name} (name text, value text, oid oid, rolname name, nspname name)")
        scene.sql(f"INSERT INTO trap.{name} VALUES ('connection', 'host=elsewhere')")
    for name in TYPES:
        scene.sql(f"CREATE DOMAIN trap.{quoted(name)} AS pg_catalog.int2 CHECK (VALUE IS NULL)")
    return "trap, pg_catalog, public"


def _set_trap(scene: Stage, signature: str, name: str, returns: str) -> None:
    body = f"BEGIN INSERT INTO trap.stepped VALUES ('{name}', current_user); RAISE 'stepped on {name}'; END"
    literally(
        scene, f"CREATE FUNCTION trap.{signature} RETURNS {returns} LANGUAGE plpgsql AS $trap${body}$trap$"
    )


def script(place: str, name: str) -> list[str]:
    """Return statements that pack, train, evaluate and predict, on tables whose names begin with `name`."""
    made = [f"{place}{quoted(name + suffix)}" for suffix in ("", "_p", "_v", "_a", "_c", "_m", "_o")]
    rows, packed, val, arch, mst, model, out = (f"$tag${one}$tag$" for one in made)
    views = ("runs", "visits", "metrics", "leaderboard", "progress", "sizes", "costs")
    return [
        f"SELECT cerebro.training_preprocessor_dl({rows}, {packed}, 'y', 'x')",
        f"SELECT cerebro.validation_preprocessor_dl({rows}, {val}, 'y', 'x', {packed})",
        f"SELECT cerebro.load_keras_model({arch}, '{ARCHITECTURE}')",
        f"SELECT cerebro.load_model_selection_table({arch}, {mst}, ARRAY[1], ARRAY[$${SGD}$$],"
        f" ARRAY['{FITTED}'])",
        f"SELECT cerebro.madlib_fit_multiple_model({packed}, {model}, {mst}, 1, FALSE, {val}, name => {rows},"
        " options => '{\"seed\": 5}')",
        f"SELECT cerebro.madlib_evaluate({model}, {val}, {out}, FALSE, 1)",
        f"SELECT * FROM cerebro.predict({model}, 1, ARRAY[1, 2, 3, 4]::pg_catalog.float8[])",
        f"DROP TABLE {made[6]}",
        f"SELECT cerebro.madlib_predict({model}, {rows}, 'id', 'x', {out}, mst_key => 1)",
        *(f"SELECT v::pg_catalog.text FROM cerebro.{view} AS v" for view in views),
    ]


def script_of_columns(place: str, name: str) -> list[str]:
    """Return statements that describe, pack, append, train and predict for a table of mixed columns."""
    made = [f"{place}{quoted(name + suffix)}" for suffix in ("", "_p", "_n", "_m", "_w")]
    rows, packed, nets, model, seen = (f"$tag${one}$tag$" for one in made)
    query = f"SELECT c.* FROM {made[0]} AS c"
    return [
        f"SELECT d.column_name FROM cerebro.describe_columns({rows}) AS d",
        f"SELECT cerebro.training_preprocessor_dl({rows}, {packed}, 'y', '*', options =>"
        ' \'{"columns": {"note": {"tokens": 2, "vocabulary": 9}}, "validation": 0.4}\')',
        f"SELECT cerebro.append_rows({packed}, {rows})",
        f"SELECT cerebro.load_net({nets}, {packed}, 'linear')",
        f"SELECT cerebro.load_net({nets}, {packed}, 'Dense(4)')",
        f"SELECT cerebro.enable_lora({nets}, 2, 1)",
        f"SELECT cerebro.madlib_fit({packed}, {model}, {nets}, 1, $${SGD}$$, '{FITTED}', 1)",
        f"SELECT p.class FROM {made[0]} AS c, cerebro.predict({model}, c) AS p",
        f"SELECT p.class FROM cerebro.predict_query({model}, $tag${query}$tag$, NULL::{made[0]}) AS p",
        f"SELECT cerebro.windows({rows}, {seen}, 'kind', 'id', 'age', 2, label => 'y')",
        "SELECT d.packed_table FROM cerebro.drift AS d",
        *_of_relations(place, name),
    ]


def _of_relations(place: str, name: str) -> list[str]:
    """Return statements that make features, train and predict over a table with a foreign key to itself."""
    made = [f"{place}{quoted(name + suffix)}" for suffix in ("", "_l", "_r", "_q", "_b", "_k")]
    rows, labels, related, packed, nets, model = (f"$tag${one}$tag$" for one in made)
    named = (
        f"foreign_keys => ARRAY[$tag${made[0]} (id) REFERENCES {made[0]} (id)$tag$],"
        f" times => $tag${json.dumps({made[0]: 'at'})}$tag$"
    )
    target = f"$tag$count({made[0]}) = 0$tag$"
    query = f"SELECT q.id, '2100-01-01'::pg_catalog.timestamptz AS at, q.y FROM {made[0]} AS q"
    return [
        f"SELECT cerebro.labels({rows}, {target}, '4 days', '9 days', {labels}, {named})",
        f"SELECT cerebro.relate($tag${query}$tag$, {related}, {rows}, 'at', {named})",
        f"SELECT cerebro.training_preprocessor_dl({related}, {packed}, 'y', '*', options =>"
        ' \'{"columns": "auto"}\')',
        f"SELECT cerebro.load_net({nets}, {packed}, 'linear')",
        f"SELECT cerebro.madlib_fit({packed}, {model}, {nets}, 1, $${SGD}$$, '{FITTED}', 1)",
        f"SELECT p.class FROM cerebro.predict_related({model}, $tag${query}$tag$) AS p",
    ]


def script_of_versions(place: str, name: str) -> list[str]:
    """Return statements that register, use and unregister a model, and one with a net for each group."""
    made = [f"{place}{quoted(name + suffix)}" for suffix in ("", "_p", "_n", "_m", "_g", "_c", "_e")]
    rows, packed, nets, model, grouped, mst, each = (f"$tag${one}$tag$" for one in made)
    query = f"$tag$SELECT c.* FROM {made[0]} AS c$tag$"
    judged = [
        f"SELECT p.class FROM {made[0]} AS c, cerebro.predict('{{0}}', c) AS p",
        f"SELECT e.column_name FROM {made[0]} AS c, cerebro.explain_predict('{{0}}', c) AS e",
        f"SELECT p.class FROM cerebro.predict_query('{{0}}', {query}, NULL::{made[0]}) AS p",
        f"SELECT c.verdict FROM cerebro.check('{{0}}', {rows}) AS c",
        f"SELECT c.verdict FROM cerebro.check('{{0}}', {query}) AS c",
        f"SELECT i.column_name FROM cerebro.importance('{{0}}', {rows}) AS i",
        f"SELECT e.part FROM cerebro.evaluate_by('{{0}}', {rows}, ARRAY['kind']) AS e",
        f"SELECT w.loss FROM cerebro.worst_rows('{{0}}', {rows}) AS w",
    ]
    columns = '\'{"columns": "auto", "exclude": ["x", "note"]'
    return [
        f"SELECT cerebro.training_preprocessor_dl({rows}, {packed}, 'y', '*', options => {columns}}}')",
        f"SELECT cerebro.load_net({nets}, {packed}, 'linear')",
        f"SELECT cerebro.madlib_fit({packed}, {model}, {nets}, 1, $${SGD}$$, '{FITTED}', 1)",
        *[f"SELECT cerebro.register({model}, 'kept', tags => '{{}}')"] * 2,
        "SELECT cerebro.set_alias('kept', 'champion', 2)",
        "SELECT p.promoted FROM cerebro.promote('kept', 2) AS p",
        "SELECT cerebro.rollback('kept')",
        *(one.format("kept@champion") for one in judged),
        f"SELECT i.layer FROM cerebro.inspect_net('kept', {rows}) AS i",
        "SELECT cerebro.grant_model('kept', 'public', 'predict')",
        "SELECT cerebro.revoke_model('kept', 'public')",
        f"SELECT cerebro.training_preprocessor_dl({rows}, {grouped}, 'y', '*', options => {columns},"
        ' "group_by": ["kind"]}\')',
        f"SELECT cerebro.load_model_selection_table({nets}, {mst}, ARRAY[1], ARRAY[$${SGD}$$],"
        f" ARRAY['{FITTED}'])",
        f"SELECT cerebro.madlib_fit_multiple_model({grouped}, {each}, {mst}, 1)",
        f"SELECT cerebro.register({each}, 'each')",
        *(one.format("each@1") for one in judged),
        "SELECT r.model_weights FROM cerebro.read_model('each') AS r",
        *(
            f"SELECT v::pg_catalog.text FROM cerebro.{view} AS v"
            for view in ("models", "model_versions", "model_history", "model_health", "schedules")
        ),
        "SELECT cerebro.drop_alias('kept', 'champion'), cerebro.drop_version('kept', 2)",
        "SELECT cerebro.unregister('each'), cerebro.unregister('kept')",
    ]


MIXED = """CREATE TABLE lab.{0} AS
SELECT g AS id, 20 + g % 7 AS age, 'k' || g % 3 AS kind, now() + g * '1 day'::interval AS at,
       'so many words ' || g AS note, ARRAY[g, 1]::real[] AS x, g % 2 = 0 AS y
  FROM generate_series(1, 40) AS g"""


def weights(scene: Stage, model: str) -> bytes:
    return bytes(literally(scene, f"SELECT model_weights FROM {model}")[0][0])


@pytest.fixture(scope="module")
def reference(scene: Stage, user: str) -> bytes:
    with scene.acting(user):
        scene.sql("CREATE TABLE lab.plain AS TABLE lab.rows")
        for statement in script("lab.", "plain"):
            literally(scene, statement)
    return weights(scene, "lab.plain_m")


@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
def test_nothing_of_the_callers_search_path_is_stepped_on(
    scene: Stage, user: str, trapped: str, reference: bytes, level: str
) -> None:
    """Tables are named without a schema, so the search_path decides where they are found and created."""
    name = level.replace(" ", "_")
    scene.sql(f"CREATE TABLE lab.{name} AS TABLE lab.rows")
    scene.named(f"ALTER TABLE lab.{name} OWNER TO {{0}}", user)
    with closing(connect(scene.connection.info.dbname, user)) as session:
        execute(session, f"SET default_transaction_isolation = '{level}'; SET search_path = lab, {trapped}")
        for statement in script("", name):
            execute(session, statement)
    assert scene.sql("SELECT * FROM trap.stepped") == []
    assert weights(scene, f"lab.{name}_m") == reference


def test_nothing_is_stepped_on_where_columns_are_as_they_are(scene: Stage, user: str, trapped: str) -> None:
    scene.sql(MIXED.format("mixed"))
    scene.named("ALTER TABLE lab.mixed OWNER TO {0}", user)
    with closing(connect(scene.connection.info.dbname, user)) as session:
        execute(session, f"SET search_path = lab, {trapped}")
        done = [(statement, execute(session, statement)) for statement in script_of_columns("", "mixed")]
    assert scene.sql("SELECT * FROM trap.stepped") == []
    rows, batches, related = (found for statement, found in done if "cerebro.predict" in statement)
    assert len(rows) == len(related) == 40
    assert sorted(rows) == sorted(batches)


def test_nothing_is_stepped_on_by_registered_models(scene: Stage, user: str, trapped: str) -> None:
    scene.sql(MIXED.format("versions"))
    scene.named("ALTER TABLE lab.versions OWNER TO {0}", user)
    with closing(connect(scene.connection.info.dbname, user)) as session:
        execute(session, f"SET search_path = lab, {trapped}")
        for statement in script_of_versions("", "versions"):
            assert execute(session, statement) or "schedules" in statement
    assert scene.sql("SELECT * FROM trap.stepped") == []


@pytest.mark.parametrize("trap", ["SELECT count()", "SELECT now()", "SELECT 1 + 1", "SELECT 2 = 2"])
def test_the_traps_work(scene: Stage, trapped: str, trap: str) -> None:
    """Plain SQL calls some of the traps, so the tests in which no trap is called are meaningful."""
    with pytest.raises(psycopg2.errors.RaiseException, match="stepped on"):
        scene.sql(f"BEGIN; SET LOCAL search_path = {trapped}; {trap}")
    scene.sql("ROLLBACK")


@pytest.mark.parametrize("name", NAMES)
def test_names_of_tables_are_never_code(scene: Stage, user: str, reference: bytes, name: str) -> None:
    literally(scene, f"CREATE SCHEMA {quoted(name)} AUTHORIZATION {quoted(user)}")
    with scene.acting(user):
        literally(scene, f"CREATE TABLE {quoted(name, name)} AS TABLE lab.rows")
        for statement in script(f"{quoted(name)}.", name):
            literally(scene, statement)
    assert weights(scene, quoted(name, f"{name}_m")) == reference
    shown = scene.sql("SELECT name FROM cerebro.runs WHERE name IS NOT NULL ORDER BY run_id DESC LIMIT 1")
    assert shown == [(quoted(name, name),)]


@pytest.mark.parametrize("number", range(len(NAMES)))
def test_names_of_columns_are_never_code(scene: Stage, user: str, number: int) -> None:
    name = NAMES[number][:45]
    x, y = quoted(f"{name}x"), quoted(f"{name}y")
    rows, packed, model, out = (f"lab.{what}_of_{number}" for what in ("rows", "packed", "model", "out"))
    with scene.acting(user):
        literally(scene, f"CREATE TABLE {rows} AS SELECT id, x AS {x}, y AS {y} FROM lab.rows")
        scene.sql("SELECT cerebro.training_preprocessor_dl(%s, %s, %s, %s)", rows, packed, y, x)
        scene.sql("SELECT cerebro.madlib_fit(%s, %s, 'lab.arch', 1, %s, %s, 1)", packed, model, SGD, FITTED)
        scene.sql("SELECT cerebro.madlib_predict(%s, %s, 'id', %s, %s)", model, rows, x, out)
        assert scene.value(f"SELECT count(*) FROM {out}") == 24


@pytest.mark.parametrize("name", ROLES)
def test_names_of_roles_are_never_code(scene: Stage, name: str) -> None:
    """A role whose name is the quoted name of another role must not be confused with that role."""
    literally(scene, f"CREATE ROLE {quoted(name)} LOGIN")
    literally(scene, f"CREATE ROLE {quoted(quoted(name))} LOGIN")
    try:
        scene.sql("SELECT cerebro.grant_usage(%s)", name)
        scene.lab(name, "roles_own")
        with scene.acting(name):
            run = scene.fit("roles_own")
            assert scene.sql("SELECT run_id, owner FROM cerebro.runs") == [(run, name)]
            scene.sql("SELECT cerebro.forget(%s)", run)
        scene.sql("SELECT cerebro.revoke_usage(%s)", name)
    finally:
        literally(scene, f"DROP OWNED BY {quoted(name)} CASCADE")
        literally(scene, f"DROP ROLE {quoted(name)}, {quoted(quoted(name))}")


def test_settings_of_the_callers_bend_nothing(scene: Stage, user: str, reference: bytes) -> None:
    settings = {
        "standard_conforming_strings": "off", "array_nulls": "off", "transform_null_equals": "on",
        "quote_all_identifiers": "on", "extra_float_digits": "-15", "bytea_output": "escape",
        "DateStyle": "SQL, DMY", "IntervalStyle": "sql_standard", "xmlbinary": "hex", "search_path": "",
        "client_min_messages": "error", "lc_numeric": "C", "TimeZone": "Asia/Kathmandu",
        "default_transaction_deferrable": "on", "check_function_bodies": "off", "enable_seqscan": "off",
        "plan_cache_mode": "force_generic_plan", "backslash_quote": "on", "escape_string_warning": "off",
        "work_mem": "64kB",
    }  # fmt: skip
    with closing(connect(scene.connection.info.dbname, user)) as session:
        execute(session, "CREATE TABLE lab.bent AS TABLE lab.rows")
        for name, value in settings.items():
            execute(session, f"SET {name} = '{value}'")
        for statement in script("lab.", "bent"):
            execute(session, statement)
    assert weights(scene, "lab.bent_m") == reference
