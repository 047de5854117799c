"""cerebro.predict and cerebro.predict_query show callers no more than their own statements would."""

from __future__ import annotations

from contextlib import closing

import psycopg2
import pytest

from fixtures import Connect, Connection, MakeRole, execute
from trial import ADAM, Trial

pytestmark = pytest.mark.postgresql
ROW = "SELECT p.class FROM guests AS g, cerebro.predict('models', g) AS p WHERE g.id = 1"
QUERY = "SELECT count(p.class) FROM cerebro.predict_query('models', %s, NULL::guests) AS p"
ALL = "SELECT * FROM guests"
MODEL = "models, models_summary, models_info"


@pytest.fixture(scope="module", autouse=True)
def trained(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE guests AS SELECT i AS id, nullif(i % 9, 0) AS age, 'k' || i % 3 AS kind, i % 2 = 0 AS y"
        " FROM generate_series(1, 60) AS i"
    )
    trial.pack("guests", "packed", "y", "age, kind", options={"columns": "auto"})
    trial.sql("SELECT cerebro.load_net('nets', 'packed', 'linear')")
    trial.select("configs", [1], [ADAM], ["batch_size=16"], arch="nets")
    trial.fit("packed", "models", "configs", 1)


def denied(connection: Connection, statement: str, *values: object) -> None:
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        execute(connection, statement, *values)


def test_a_model_of_another_roles_answers_nobody(trial: Trial, connect: Connect, role: MakeRole) -> None:
    user = role()
    trial.sql(f"GRANT SELECT ON guests TO {user}")
    with closing(connect(user=user)) as theirs:
        denied(theirs, ROW)
        denied(theirs, QUERY, ALL)
        trial.sql(f"GRANT SELECT ON {MODEL} TO {user}")
        assert execute(theirs, ROW)
        assert execute(theirs, QUERY, ALL) == [(60,)]
        # A model that is kept in the session's memory needs the right as well.
        trial.sql(f"REVOKE SELECT ON models FROM {user}")
        denied(theirs, ROW)
        denied(theirs, QUERY, ALL)
        trial.sql(f"GRANT SELECT ON {MODEL} TO {user}")
        trial.sql(f"REVOKE SELECT ON guests FROM {user}")
        denied(theirs, QUERY, ALL)


def test_a_model_that_one_role_has_used_is_not_the_next_ones(
    trial: Trial, connect: Connect, role: MakeRole
) -> None:
    """After SET ROLE, a session may not use the model with which its earlier role has predicted."""
    user = role()
    trial.sql(f"GRANT SELECT ON guests TO {user}")
    with closing(connect()) as own:
        assert execute(own, ROW)
        execute(own, f"SET ROLE {user}")
        denied(own, ROW)
        denied(own, QUERY, ALL)


def test_a_query_runs_as_its_caller_and_only_reads(trial: Trial, connect: Connect, role: MakeRole) -> None:
    user = role()
    trial.sql(f"GRANT SELECT ON guests, {MODEL} TO {user}")
    with closing(connect(user=user)) as theirs:
        where = f"{ALL} WHERE current_user = '{user}' AND session_user = '{user}'"
        assert execute(theirs, QUERY, where) == [(60,)]
        with pytest.raises(psycopg2.Error, match="must be at the top level"):
            execute(theirs, QUERY, "WITH gone AS (DELETE FROM guests RETURNING *) SELECT * FROM gone")
        for query in (
            f"{ALL}) AS s; DROP TABLE guests; --",
            f"{ALL}; {ALL}",
            "DROP TABLE guests",
            "",
            "nonsense",
        ):
            with pytest.raises(psycopg2.Error):
                execute(theirs, QUERY, query)
        # A comment at the end of the query does not hide the SQL that follows.
        assert execute(theirs, QUERY, f"{ALL} -- all of them") == [(60,)]
        assert execute(theirs, QUERY, f"{ALL} WHERE false") == [(0,)]
    assert trial.value("SELECT count(*) FROM guests") == 60


def test_what_is_internal_gives_nothing_by_hand(trial: Trial, connect: Connect, role: MakeRole) -> None:
    user = role()
    with closing(connect(user=user)) as theirs:
        denied(theirs, "SELECT cerebro._predict_batch('guess', NULL, NULL, 1)")
        denied(theirs, "SELECT cerebro._predict_row('models'::regclass::oid, '{}', NULL)")
        with pytest.raises(psycopg2.errors.UndefinedTable):
            execute(theirs, "SELECT cerebro._predict_row(1::oid, '{}', NULL)")


def test_null_rows_and_rows_of_nulls(trial: Trial) -> None:
    with pytest.raises(psycopg2.errors.NullValueNotAllowed, match="the row is NULL"):
        trial.sql("SELECT * FROM cerebro.predict('models', NULL::guests)")
    with pytest.raises(psycopg2.errors.NullValueNotAllowed, match="the row is NULL"):
        trial.sql(
            "SELECT p.class FROM (VALUES (1)) AS v (a) LEFT JOIN guests AS g ON g.id = -1,"
            " LATERAL cerebro.predict('models', g) AS p"
        )
    found = trial.sql(
        "SELECT p.class FROM cerebro.predict('models', ROW(NULL, NULL, NULL, NULL)::guests) AS p"
    )
    assert found[0][0] in ("true", "false")
    # The same for a row of a query.
    same = trial.sql(
        "SELECT p.class FROM cerebro.predict_query("
        "'models', 'SELECT NULL::int AS id, NULL::int AS age, NULL::text AS kind, NULL::bool AS y',"
        " NULL::guests) AS p"
    )
    assert same == found
