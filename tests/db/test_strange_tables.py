"""Tables of a stranger's model run no code of the stranger's, whatever the types of their columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

import nets
from fixtures import Connect, MakeRole
from trial import ADAM, Trial, blobs, rows_of

# Greenplum has no predictions in queries.
pytestmark = pytest.mark.postgresql
FEATURES = 6
OF_MODELS = [name + end for name in "mg" for end in ("", "_info", "_summary")]
COPIED = ("arch", "packed", "packed_summary", "configs", "configs_summary", *OF_MODELS)
GROUP = "ALTER TABLE att.g ALTER kind TYPE {0}; ALTER TABLE att.g_info ALTER kind TYPE {0}"
# What a number is drawn from goes on, also if the statement around it fails.
CODE = "LANGUAGE plpgsql AS $$BEGIN PERFORM nextval('att.runs'); RETURN {}; END$$"
PREDICT = "SELECT p.class FROM rows AS r, cerebro.predict('att.{}', r, {}) AS p"
QUERY = "SELECT count(p.class) FROM cerebro.predict_query('att.g', 'SELECT * FROM rows', NULL::rows) AS p"
M, M_1, G = PREDICT.format("m", "NULL"), PREDICT.format("m", 1), PREDICT.format("g", "NULL")
# What a stranger makes of tables of models, and what a reader calls.
VECTORS = {
    "architecture": ("ALTER TABLE att.m ALTER model_arch TYPE att.word USING '{}'", M),
    "domain": ("ALTER TABLE att.m ALTER model_arch TYPE att.words USING '{}'", M),
    "loaded net": (
        "ALTER TABLE att.arch ALTER model_arch TYPE att.word USING '{}'",
        "SELECT * FROM cerebro.show_net('att.arch', 1)",
    ),
    "classes": ("ALTER TABLE att.m_summary ALTER y_class_values TYPE att.text[] USING '{a,a,a}'", M),
    "key": ("ALTER TABLE att.m ALTER mst_key TYPE att.key USING '1'", M_1),
    "key of info": ("ALTER TABLE att.m_info ALTER mst_key TYPE att.key USING '1'", M_1),
    "group": (GROUP.format("att.words USING '{}'::att.words"), G),
    "group of a row": (GROUP.format("att.pair USING ROW('{}')"), G),
    "check of a group": (
        GROUP.format("att.checked") + "; SELECT setval('att.runs', 1, false)",
        QUERY,
    ),
    "recipe": (
        "ALTER TABLE att.packed_summary ADD recipe att.words DEFAULT '{}'",
        "SELECT * FROM cerebro.importance('att.m', 'rows')",
    ),
    "packed rows": (
        "ALTER TABLE att.packed_summary ADD features_of att.words DEFAULT '{}'",
        "SELECT * FROM cerebro.check('att.m', 'rows')",
    ),
    "check of a multirange": (
        GROUP.format("att.spans USING '{[a,a]}'") + "; SELECT setval('att.runs', 1, false)",
        QUERY,
    ),
    "selection": (
        "ALTER TABLE att.configs ALTER compile_params TYPE att.word USING '{}'",
        "SELECT cerebro.explain_fit('packed', 'att.configs', 1)",
    ),
    "view of a selection": (
        "CREATE VIEW att.seen AS SELECT * FROM att.configs WHERE att.is_right('a');"
        " CREATE TABLE att.seen_summary AS TABLE att.configs_summary",
        "SELECT cerebro.explain_fit('packed', 'att.seen', 1)",
    ),
    "view of nets": (
        "CREATE VIEW att.seen AS SELECT * FROM att.arch WHERE att.is_right('a')",
        "SELECT * FROM cerebro.show_net('att.seen', 1)",
    ),
    "view of packed rows": (
        "CREATE VIEW att.seen AS TABLE att.packed;"
        " CREATE VIEW att.peeks AS SELECT * FROM att.packed_summary WHERE att.is_right('a');"
        " ALTER VIEW att.peeks RENAME TO seen_summary",
        "SELECT cerebro.load_net('mine', 'att.seen', 'linear')",
    ),
    "summary of a selection": (
        "ALTER TABLE att.configs_summary ALTER qualified_names TYPE att.word USING '{}'",
        "SELECT cerebro.explain_fit('packed', 'att.configs', 1)",
    ),
    "forecast": (
        "CREATE TABLE att.m_forecast AS SELECT '{}'::att.word AS document",
        "SELECT cerebro.register('att.m', 'taken')",
    ),
    "policy": (
        "ALTER TABLE att.m_summary ENABLE ROW LEVEL SECURITY;"
        " CREATE POLICY sees ON att.m_summary USING (att.is_right(source_table))",
        M,
    ),
    "policy of a view": (
        "CREATE VIEW att.peeks AS SELECT att.is_right('a') AS yes; GRANT SELECT ON att.peeks TO public;"
        " ALTER TABLE att.m_summary ENABLE ROW LEVEL SECURITY;"
        " CREATE POLICY sees ON att.m_summary USING ((SELECT yes FROM att.peeks))",
        M,
    ),
    "policy that runs a text": (
        "ALTER TABLE att.m_summary ENABLE ROW LEVEL SECURITY; CREATE POLICY sees ON att.m_summary USING"
        " (query_to_xml('SELECT att.is_right(''a'')', true, true, '') IS NOT NULL)",
        M,
    ),
    "check that runs a text": (
        GROUP.format("att.running") + "; SELECT setval('att.runs', 1, false)",
        QUERY,
    ),
    "check of a domain beneath": (
        GROUP.format("att.nested") + "; SELECT setval('att.runs', 1, false)",
        QUERY,
    ),
    "index": (
        "CREATE INDEX ON att.m (mst_key) WHERE att.is_always('a'); SELECT setval('att.runs', 1, false)",
        M,
    ),
    "operator": (
        "CREATE FUNCTION att.equal(varchar, varchar) RETURNS boolean " + CODE.format("true") + ";"
        " CREATE OPERATOR att.= (FUNCTION = att.equal, LEFTARG = varchar, RIGHTARG = varchar);"
        " ALTER TABLE att.g_info ALTER compile_params TYPE varchar",
        QUERY,
    ),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("rows", "x real[], y integer", rows_of(*blobs(90, features=FEATURES)))
    trial.sql("ALTER TABLE rows ADD kind text DEFAULT 'a'")
    trial.pack("rows", "packed", options={"segments": 2})
    trial.pack("rows", "grouped", options={"group_by": "kind"})
    trial.model(nets.mlp(FEATURES))
    trial.select("configs", [1], [ADAM], ["batch_size=10"])
    trial.fit("packed", "m", "configs", 1)
    trial.fit("grouped", "g", "configs", 1)
    trial.sql("GRANT SELECT ON ALL TABLES IN SCHEMA public TO public")


@pytest.fixture(scope="module")
def stranger(trial: Trial, database: str) -> Iterator[Trial]:
    """A session of a role that makes types with code of its own in its schema att."""
    user = f"{database}_stranger"
    trial.sql(f"CREATE ROLE {user} LOGIN; SELECT cerebro.grant_usage('{user}')")
    trial.sql(f"CREATE SCHEMA att AUTHORIZATION {user}")
    with closing(psycopg2.connect(dbname=database, user=user)) as connection:
        connection.autocommit = True
        theirs = Trial(connection)
        theirs.sql("GRANT USAGE ON SCHEMA att TO public")
        theirs.sql("CREATE SEQUENCE att.runs; GRANT ALL ON att.runs TO public")
        for name, value, target, given in (
            ("word", "{}", "pg_catalog.text", "'{}'"),
            ("word", "{}", "json", "'{}'"),
            ("text", "a", "pg_catalog.text", "'a'"),
            ("key", "1", "integer", "1"),
        ):
            if theirs.value("SELECT to_regtype(%s) IS NULL", f"att.{name}"):
                theirs.sql(f"CREATE TYPE att.{name} AS ENUM ('{value}')")
            made = f"att.as_{target.rpartition('.')[2]}(att.{name})"
            theirs.sql(f"CREATE FUNCTION {made} RETURNS {target} {CODE.format(given)}")
            theirs.sql(f"CREATE CAST (att.{name} AS {target}) WITH FUNCTION {made} AS IMPLICIT")
        theirs.sql("CREATE DOMAIN att.words AS att.word; CREATE TYPE att.pair AS (one att.word)")
        theirs.sql(f"CREATE FUNCTION att.is_right(text) RETURNS boolean {CODE.format('true')}")
        theirs.sql(f"CREATE FUNCTION att.is_always(text) RETURNS boolean IMMUTABLE {CODE.format('true')}")
        theirs.sql("CREATE DOMAIN att.checked AS text CHECK (att.is_right(VALUE))")
        theirs.sql(
            "CREATE DOMAIN att.running AS text CHECK"
            " (query_to_xml('SELECT att.is_right(''a'')', true, true, '') IS NOT NULL)"
        )
        theirs.sql("CREATE DOMAIN att.nested AS text CHECK (VALUE::att.checked IS NOT NULL)")
        theirs.sql("CREATE TYPE att.span AS RANGE (subtype = att.checked, multirange_type_name = att.spans)")
        theirs.sql("CREATE TYPE att.mood AS ENUM ('a', 'b')")
        theirs.sql("CREATE DOMAIN att.short AS text CHECK (VALUE ~ '^.$')")
        theirs.sql("CREATE DOMAIN att.good AS att.mood CHECK (VALUE <> 'b')")
        yield theirs
    trial.sql(f"DROP OWNED BY {user} CASCADE; DROP ROLE {user}")


@pytest.fixture
def copies(stranger: Trial) -> Iterator[Trial]:
    """The stranger's session, with fresh copies of the tables of models in its schema."""
    for name in COPIED:
        stranger.sql(f"CREATE TABLE att.{name} AS TABLE public.{name}")
    stranger.sql("UPDATE att.m_summary SET source_table = 'att.packed', qualified_names = NULL")
    stranger.sql("SELECT setval('att.runs', 1, false)")
    yield stranger
    gone = ", ".join(f"att.{name}" for name in COPIED)
    for kind, name in stranger.sql(
        "SELECT CASE relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, relname FROM pg_class"
        " WHERE relnamespace = 'att'::regnamespace AND relname ~ '^(seen|peeks)'"
    ):
        stranger.sql(f"DROP {kind} att.{name} CASCADE")
    stranger.sql(f"DROP TABLE IF EXISTS att.m_forecast, {gone}")


@pytest.mark.parametrize(("change", "call"), VECTORS.values(), ids=VECTORS)
def test_no_type_of_a_strangers_runs_code(
    copies: Trial, connect: Connect, role: MakeRole, change: str, call: str
) -> None:
    copies.sql(change)
    copies.sql("GRANT SELECT ON ALL TABLES IN SCHEMA att TO public")
    failed = None
    with closing(connect(user=role())) as connection:
        reader = Trial(connection)
        reader.sql("SET search_path = public, att")
        try:
            reader.sql(call)
        except psycopg2.Error as error:
            failed = error
    assert copies.value("SELECT is_called FROM att.runs") is False
    assert failed is None or (failed.pgcode, "may run code of its own" in str(failed)) == ("0A000", True)


@pytest.mark.parametrize("kind", ["text", "att.mood", "att.short", "att.good"])
def test_types_of_a_strangers_without_code_are_read(
    copies: Trial, connect: Connect, role: MakeRole, kind: str
) -> None:
    copies.sql(GROUP.format(f"{kind} USING kind::{kind}"))
    copies.sql("GRANT SELECT ON ALL TABLES IN SCHEMA att TO public")
    with closing(connect(user=role())) as connection:
        reader = Trial(connection)
        assert len(reader.sql(G)) == 90
        assert reader.sql(QUERY) == [(90,)]
        assert len(reader.sql(M)) == 90
