"""A server derived from Greenplum counts as a cluster; one that lacks what the extension needs is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

import nets
from trial import SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.greenplum

BANNER = "PostgreSQL 14.4 (Apache Cloudberry 2.1.0-incubating build 1) on x86_64-pc-linux-gnu"
# Replaces version() in the catalog of one database, which the server allows only with this setting.
CALL_IT_AN_HEIR = f"""
SET allow_system_table_mods = on;
ALTER FUNCTION pg_catalog.version() RENAME TO version_of_the_build;
CREATE FUNCTION pg_catalog.version() RETURNS text LANGUAGE sql STABLE AS $$ SELECT '{BANNER}'::text $$;
RESET allow_system_table_mods;
"""
# Where the rows of each table are, what makes them unique, and how sequences count.
LAID_OUT = """
SELECT c.relname, p.policytype, p.distkey::text, p.numsegments, c.relreplident, s.seqcache,
    ARRAY(SELECT pg_get_indexdef(i.indexrelid) FROM pg_index AS i WHERE i.indrelid = c.oid ORDER BY 1),
    ARRAY(SELECT n.conname FROM pg_constraint AS n WHERE n.conrelid = c.oid ORDER BY 1),
    obj_description(c.oid)
FROM pg_class AS c
LEFT JOIN gp_distribution_policy AS p ON p.localoid = c.oid
LEFT JOIN pg_sequence AS s ON s.seqrelid = c.oid
WHERE c.relnamespace = 'cerebro'::regnamespace AND c.relkind IN ('r', 'S') ORDER BY 1
"""
# Makes a session believe that the server lacks a C function, or that a file has another format.
LACK = """
DO LANGUAGE plpython3u $do$
from cerebro_plpy.store.cluster import before_statement
before_statement.{name} = {value}
$do$
"""


@pytest.fixture(scope="module")
def heir(empty_database: str) -> Iterator[Trial]:
    with closing(psycopg2.connect(dbname=empty_database)) as connection:
        connection.autocommit = True
        connection.notices = []
        made = Trial(connection)
        made.sql(CALL_IT_AN_HEIR)
        assert made.value("SELECT version()") == BANNER
        made.sql("CREATE EXTENSION cerebro CASCADE")
        yield made


def test_its_tables_are_laid_out_as_greenplum_has_them(heir: Trial, trial: Trial) -> None:
    expected = trial.sql(LAID_OUT)
    assert {row[1] for row in expected} == {None, "p", "r"}
    assert heir.sql(LAID_OUT) == expected
    keys = "SELECT count(*), sum(dist_key) FROM cerebro._segment_key"
    assert heir.sql(keys) == trial.sql(keys)


def test_its_segments_train(heir: Trial) -> None:
    x, y = blobs(300, features=4)
    heir.table("blobs", "x real[], y integer", rows_of(x, y))
    heir.pack("blobs", "packed")
    heir.model(nets.mlp(4))
    heir.select("mst", [1], [SGD], ["batch_size=8,epochs=1"])
    run = heir.fit("packed", "models", "mst", 1)
    assert heir.value("SELECT topology FROM cerebro.runs WHERE run_id = %s", run) == "greenplum"
    assert heir.value("SELECT count(DISTINCT pid) > 1 FROM cerebro.visits WHERE run_id = %s", run)
    assert heir.value("SELECT count(*) > 1 FROM cerebro.segments_ready() WHERE ok")


def test_it_is_diagnosed_by_its_name(heir: Trial) -> None:
    ((status, found),) = heir.sql(
        "SELECT status, found FROM cerebro.diagnose() WHERE item = 'checks of sessions'"
    )
    assert (status, "Apache Cloudberry 2.1.0" in found) == ("ok", True)


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("MISSING", "('cdbcomponent_activeQEsExist',)", "cdbcomponent_activeQEsExist"),
        ("_SEGMENTS", "'PG_VERSION'", "PG_VERSION in the form of Greenplum 7 (it has: 12)"),
    ],
)
def test_a_build_that_lacks_something_is_refused_and_says_what(
    database: str, name: str, value: str, named: str
) -> None:
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        there = Trial(connection)
        there.sql("SELECT * FROM cerebro.diagnose()")
        there.sql(LACK.format(name=name, value=value))
        with pytest.raises(psycopg2.Error, match="not one that cerebro knows") as caught:
            there.sql("SELECT cerebro.last_run()")
        assert caught.value.pgcode == "0A000"
        assert named in (caught.value.diag.message_detail or "")
        ((status, found),) = there.sql(
            "SELECT status, found FROM cerebro.diagnose() WHERE item = 'checks of sessions'"
        )
        assert status == "wrong" and named in found
