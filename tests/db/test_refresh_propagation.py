"""cerebro.refresh_propagation computes again only what changes in a graph have affected."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import numpy as np
import psycopg2
import pytest

from fixtures import Connect, MakeRole, Rows
from trial import Trial

CALL = (
    "SELECT cerebro.propagate('papers', 'cites', %s, 'paper', 'citing', 'cited', ARRAY['x', 'age'], 2, %s,"
    " weight => 'often', teleport => %s, kind => %s)"
)
WAYS = {
    "mean": ("mean", 0.0, None),
    "sum of kinds": ("sum", 0.2, "via"),
    "symmetric": ("symmetric", 0.1, None),
    "symmetric of kinds": ("symmetric", 0.0, "via"),
}


@pytest.fixture
def graph(trial: Trial) -> None:
    trial.sql("DROP TABLE IF EXISTS papers, cites")
    rng = np.random.default_rng(8)
    papers = [(f"p{i * 7 % 80:02}", rng.normal(size=3).tolist(), i, "new") for i in range(80)]
    trial.table("papers", "paper text, x real[], age integer, state text", papers)
    ends = rng.integers(0, 79, (90, 2)).tolist()
    cites = [(f"p{a:02}", f"p{b:02}", 1 + a % 3, "text" if b % 2 else "note") for a, b in ends]
    trial.table("cites", "citing text, cited text, often integer, via text", cites)


def made(trial: Trial, table: str) -> Rows:
    return trial.sql(f"SELECT (s.*)::text FROM {table} AS s ORDER BY paper")


def again(trial: Trial, table: str, way: Sequence[object]) -> int:
    """Refresh a table, check that it equals a new propagation, and return the count of recomputed nodes."""
    count = trial.value("SELECT cerebro.refresh_propagation(%s)", table)
    trial.sql("DROP TABLE IF EXISTS anew, anew_summary, anew_nodes")
    trial.sql(CALL, "anew", *way)
    assert made(trial, table) == made(trial, "anew")
    return count


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_after_a_refresh_all_is_as_if_it_were_propagated_anew(
    trial: Trial, graph: None, way: Sequence[object]
) -> None:
    trial.sql("DROP TABLE IF EXISTS reached, reached_summary, reached_nodes")
    trial.sql(CALL, "reached", *way)
    assert again(trial, "reached", way) == 0
    trial.sql("INSERT INTO cites VALUES ('p03', 'p04', 1, 'text'), ('p05', 'p99', 1, 'note')")
    few = again(trial, "reached", way)
    assert 0 < few < 40
    # The edge to a node that nobody knew counts now; its number comes before all others.
    trial.sql("INSERT INTO papers VALUES ('p99', '{1,2,3}', 7, 'new'), ('a', '{4,5,6}', 8, 'new')")
    assert 0 < again(trial, "reached", way) < 40
    trial.sql("UPDATE papers SET x = '{0,0,1}' WHERE paper = 'p07'")
    trial.sql("UPDATE cites SET often = often + 1 WHERE citing = 'p11'")
    trial.sql("DELETE FROM cites WHERE cited IN ('p20', 'p21')")
    trial.sql("DELETE FROM papers WHERE paper = 'p33'")
    trial.notices()
    again(trial, "reached", way)
    assert "; 0 new, 1 gone" in trial.notices()
    # A column that no hop reads is copied, and nothing is computed.
    trial.sql("UPDATE papers SET state = 'old' WHERE paper = 'p08'")
    assert again(trial, "reached", way) == 0


def test_the_nodes_that_an_edge_reaches_are_counted(trial: Trial) -> None:
    trial.sql("CREATE TABLE line AS SELECT i AS id, i::real AS x FROM generate_series(1, 20) AS i")
    trial.sql("CREATE TABLE next AS SELECT i AS a, i + 1 AS b FROM generate_series(1, 19) AS i")
    trial.sql("SELECT cerebro.propagate('line', 'next', 'along', 'id', 'a', 'b', '{x}', 2)")
    trial.sql("INSERT INTO next VALUES (1, 9)")
    # The mean of node 9 changes, and with it the mean of node 10.
    assert trial.value("SELECT cerebro.refresh_propagation('along')") == 2
    trial.sql("UPDATE line SET x = 0 WHERE id = 18")
    assert trial.value("SELECT cerebro.refresh_propagation('along')") == 2


def test_what_cannot_be_brought_up_to_date_is_refused(trial: Trial, graph: None) -> None:
    trial.sql("DROP TABLE IF EXISTS reached, reached_summary, reached_nodes")
    trial.sql(CALL, "reached", "mean", 0, "via")
    refresh = "SELECT cerebro.refresh_propagation('reached')"
    with pytest.raises(psycopg2.errors.UndefinedTable, match="was not made by cerebro.propagate"):
        trial.sql("SELECT cerebro.refresh_propagation('papers')")
    trial.sql("INSERT INTO cites VALUES ('p01', 'p02', 1, 'talk')")
    with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState, match='of a new kind, "talk"'):
        trial.sql(refresh)
    trial.sql("DELETE FROM cites WHERE via = 'talk'; ALTER TABLE papers ADD pages integer")
    with pytest.raises(psycopg2.errors.UndefinedColumn, match='has no column "pages"'):
        trial.sql(refresh)
    trial.sql("ALTER TABLE papers DROP pages")
    # Sent alone: in one string with other statements, Greenplum's segments would stay in one transaction.
    trial.sql("BEGIN READ ONLY")
    with pytest.raises(psycopg2.errors.ReadOnlySqlTransaction):
        trial.sql(refresh)
    trial.sql("ROLLBACK; UPDATE reached_summary SET propagation = propagation || '{\"hops\": 0}'")
    with pytest.raises(psycopg2.Error, match="hops is 0"):
        trial.sql(refresh)
    trial.sql("UPDATE reached_summary SET propagation = '[]'")
    with pytest.raises(psycopg2.Error, match="not what cerebro.propagate writes") as caught:
        trial.sql(refresh)
    assert caught.value.pgcode == "XX001"


def test_a_refresh_reads_and_writes_with_the_callers_rights(
    trial: Trial, graph: None, connect: Connect, role: MakeRole
) -> None:
    user = role()
    trial.sql("DROP TABLE IF EXISTS reached, reached_summary, reached_nodes")
    trial.sql(CALL, "reached", "mean", 0, None)
    trial.sql(f"GRANT SELECT ON reached, reached_summary, reached_nodes, papers TO {user}")
    with closing(connect(user=user)) as theirs:
        session = Trial(theirs)
        refresh = "SELECT cerebro.refresh_propagation('reached')"
        with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="cites"):
            session.sql(refresh)
        trial.sql(f"GRANT SELECT ON cites TO {user}")
        with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="reached"):
            session.sql(refresh)
        # Somebody else's view would run code with the caller's rights.
        trial.sql("CREATE VIEW shown AS SELECT * FROM papers; GRANT SELECT ON shown TO PUBLIC")
        trial.sql('UPDATE reached_summary SET propagation = propagation || \'{"nodes": "public.shown"}\'')
        with pytest.raises(psycopg2.Error, match="shown.* is no table, and somebody else owns it"):
            session.sql(refresh)
        trial.sql('UPDATE reached_summary SET propagation = propagation || \'{"nodes": "public.papers"}\'')
        trial.sql(f"GRANT UPDATE, INSERT, DELETE ON reached, reached_nodes TO {user}")
        trial.sql("INSERT INTO cites VALUES ('p01', 'p02', 1, 'text')")
        assert session.value(refresh) > 0


def test_names_of_a_graph_that_is_refreshed_may_be_hostile(trial: Trial) -> None:
    trial.sql("""CREATE SCHEMA "o d"; CREATE TABLE "o d"."n""s" ("i d" integer, "x;--" real)""")
    trial.sql("""CREATE TABLE "o d"."e'" ("fr om" integer, "to" integer, "w $1" integer, "ki'nd" text)""")
    trial.sql("""INSERT INTO "o d"."n""s" SELECT i, i FROM generate_series(1, 9) AS i""")
    trial.sql("""INSERT INTO "o d"."e'" SELECT i, i + 1, 1, 'k"' FROM generate_series(1, 7) AS i""")
    trial.sql(
        """SELECT cerebro.propagate('"o d"."n""s"', '"o d"."e''"', '"o d"."h""s"', '"i d"', '"fr om"',"""
        """ '"to"', ARRAY['"x;--"'], 1, weight => '"w $1"', kind => '"ki''nd"')"""
    )
    trial.sql("""INSERT INTO "o d"."e'" VALUES (3, 9, 1, 'k"')""")
    assert trial.value("""SELECT cerebro.refresh_propagation('"o d"."h""s"')""") == 1
    names = trial.sql(
        """SELECT attname FROM pg_attribute WHERE attrelid = '"o d"."h""s"'::regclass AND attnum > 2"""
    )
    ((name,),) = names
    quoted = '"' + name.replace('"', '""') + '"'
    assert trial.value(f"""SELECT {quoted} FROM "o d"."h""s" WHERE "i d" = 9""") == 3.0
