"""Groups and rights: a role packs, trains and sees only the groups of rows that it may read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

import nets
from fixtures import Connect, MakeRole
from trial import ADAM, Trial, blobs, rows_of

FEATURES = 6


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(200, features=FEATURES)))
    trial.sql(
        "CREATE TABLE sales AS SELECT x, y, (ARRAY['NL', 'BE', 'FR'])[1 + number % 3] AS country"
        " FROM (SELECT *, row_number() OVER () AS number FROM blobs) AS b"
    )


@pytest.fixture(scope="module")
def theirs(trial: Trial, database: str) -> Iterator[Trial]:
    """A session of a role that, by row-level security, may read the rows of two of three groups."""
    user = f"{database}_near"
    trial.sql(f"CREATE ROLE {user} LOGIN; SELECT cerebro.grant_usage('{user}')")
    trial.sql(f"CREATE SCHEMA own; GRANT ALL ON SCHEMA own TO {user}; GRANT SELECT ON sales TO {user}")
    trial.sql("ALTER TABLE sales ENABLE ROW LEVEL SECURITY")
    trial.sql(f"CREATE POLICY near ON sales TO {user} USING (country <> 'FR')")
    with closing(psycopg2.connect(dbname=database, user=user)) as connection:
        connection.autocommit = True
        connection.notices = []
        session = Trial(connection)
        session.sql("SET search_path = own, public")
        session.pack("sales", "packed", options={"group_by": "country"})
        session.model(nets.mlp(FEATURES))
        session.select("configs", [1], [ADAM], ["batch_size=10"])
        session.fit("packed", "models", "configs", 2)
        yield session
    trial.sql(f"DROP POLICY near ON sales; DROP OWNED BY {user} CASCADE; DROP ROLE {user}")


def test_a_role_trains_the_groups_of_the_rows_that_it_sees(theirs: Trial) -> None:
    assert theirs.sql("SELECT country, __rows__ FROM packed_groups ORDER BY 1") == theirs.sql(
        "SELECT country, count(*) FROM sales GROUP BY 1 ORDER BY 1"
    )
    assert theirs.sql("SELECT country FROM models ORDER BY 1") == [("BE",), ("NL",)]
    assert theirs.value("SELECT count(*) FROM cerebro.leaderboard WHERE group_key IS NOT NULL") == 2


# Greenplum has no predictions in queries.
@pytest.mark.postgresql
def test_its_groups_are_its_own(theirs: Trial, connect: Connect, role: MakeRole) -> None:
    run = theirs.value("SELECT max(run_id) FROM cerebro.runs")
    with closing(connect(user=role())) as connection:
        connection.notices = []
        stranger = Trial(connection)
        for view in ("leaderboard", "progress", "visits", "metrics"):
            assert stranger.sql(f"SELECT * FROM cerebro.{view} WHERE run_id = %s", run) == []
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            stranger.sql("SELECT * FROM cerebro._group")
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            stranger.sql("SELECT * FROM own.models")
        with pytest.raises(psycopg2.Error, match="permission denied"):
            stranger.sql("SELECT cerebro.predict('own.models', s) FROM (SELECT 'NL' AS country) AS s")


# Greenplum has no predictions in queries.
@pytest.mark.postgresql
def test_a_model_that_is_kept_asks_for_the_right_each_time(
    trial: Trial, theirs: Trial, connect: Connect, role: MakeRole
) -> None:
    user = role()
    asked = (
        "SELECT p.class FROM (SELECT 'NL' AS country, array_fill(0.5, ARRAY[6]) AS x) AS s,"
        " cerebro.predict('own.models', s) AS p"
    )
    tables = "own.models, own.models_info, own.models_summary"
    trial.sql(f"GRANT USAGE ON SCHEMA own TO {user}")
    theirs.sql(f"GRANT SELECT ON {tables} TO {user}")
    with closing(connect(user=user)) as connection:
        connection.notices = []
        guest = Trial(connection)
        assert guest.value(asked) is not None
        theirs.sql(f"REVOKE SELECT ON {tables} FROM {user}")
        with pytest.raises(psycopg2.Error, match="permission denied"):
            guest.sql(asked)


def test_validation_rows_are_those_that_it_sees(theirs: Trial) -> None:
    theirs.notices()
    theirs.pack_validation("sales", "packed_v", "packed")
    assert "left out" not in theirs.notices()
    theirs.fit("packed", "measured", "configs", 1, validation_table="packed_v")
    assert theirs.value("SELECT count(validation_loss_final) FROM measured_info") == 2
