"""Models over related tables: they find signals in these tables, predict new rows, and are retrained."""

from __future__ import annotations

import json
from contextlib import closing

import psycopg2
import pytest

from fixtures import Connect, MakeRole
from trial import Trial

pytestmark = pytest.mark.fresh_caller
# Greenplum refuses cerebro.predict_related and cerebro.predict.
predicts = pytest.mark.postgresql

TIMES = '{"orders": "placed", "items": null}'
OPTIONS = json.dumps(
    {"nets": ["linear"], "configs": 2, "epochs": 9, "single": True, "metric": "auc", "backend": "jax"}
)
RELATE = (
    "SELECT cerebro.relate('SELECT id, at, gone FROM labels', 'related', entity => 'customers',"
    f" cutoff => 'at', times => '{TIMES}', windows => ARRAY['60 days', 'all'], max_features => 40)"
)
PREDICTED = "SELECT (p.source ->> 'id')::integer AS id, p.class, p.probability FROM cerebro.predict_related"


@pytest.fixture(scope="module", autouse=True)
def shop(trial: Trial) -> None:
    """Make tables in which customers who buy cheap items leave; only rows of `items` show this rule."""
    trial.sql("CREATE TABLE customers (id integer PRIMARY KEY, age integer, plan text)")
    trial.sql(
        "CREATE TABLE orders (number integer PRIMARY KEY, customer integer REFERENCES customers,"
        " placed timestamp)"
    )
    trial.sql("CREATE TABLE items (number integer REFERENCES orders, price double precision)")
    trial.sql(
        "INSERT INTO customers SELECT i, 20 + i * 7919 % 60, 'p' || i * 31 % 3"
        " FROM generate_series(1, 800) AS i"
    )
    trial.sql(
        "INSERT INTO orders SELECT i, 1 + i % 800, timestamp '2026-01-01'"
        " + i * 104729 % 150 * interval '1 day' FROM generate_series(1, 4000) AS i"
    )
    trial.sql(
        "INSERT INTO items SELECT o.number, 20 + o.customer * 7907 % 50 + (o.number * 17 + l * 5) % 20"
        " FROM orders AS o, generate_series(1, 3) AS l"
    )
    trial.sql(
        "CREATE TABLE labels AS SELECT id, timestamp '2026-05-15' AS at, id * 7907 % 50 < 25 AS gone"
        " FROM customers"
    )


@pytest.fixture(scope="module")
def trained(trial: Trial, shop: None) -> str:
    trial.sql(RELATE)
    trial.sql("SELECT * FROM cerebro.train('related', 'gone', 'leaves', '30 s', %s)", OPTIONS)
    trial.sql("SELECT cerebro.register('leaves', 'leaving')")
    return "leaves"


def auc(trial: Trial, source: str, name: str) -> float:
    best = "SELECT value FROM cerebro.train(%s, 'gone', %s, '30 s', %s) WHERE best"
    return trial.value(best, source, name, OPTIONS)


def test_a_signal_in_a_child_of_a_child_is_found(trial: Trial, trained: str) -> None:
    trial.sql("CREATE TABLE own AS SELECT c.*, l.gone FROM customers AS c JOIN labels AS l USING (id)")
    related = trial.value("SELECT validation_metrics_final FROM leaves_info ORDER BY 1 DESC LIMIT 1")
    assert auc(trial, "own", "own_model") + 0.2 < related


def test_the_key_and_the_cut_off_are_no_inputs(trial: Trial, trained: str) -> None:
    specification = trial.value("SELECT feature_specification FROM leaves_summary")
    assert specification["left_out"]["id"] == 'the key of "public"."customers"'
    assert "at" in specification["left_out"]
    assert [feature["name"] for feature in specification["relations"]["features"]][0] == "customers_age"


@predicts
def test_new_rows_get_the_features_that_training_rows_had(trial: Trial, trained: str) -> None:
    here = trial.sql(f"{PREDICTED}('leaves', 'SELECT id, at FROM labels') AS p ORDER BY id")
    there = trial.sql(
        "SELECT r.id, p.class, p.probability FROM related AS r, cerebro.predict('leaves', r) AS p ORDER BY id"
    )
    assert len(here) == 800
    assert [row[:2] for row in here] == [row[:2] for row in there]
    assert [row[2] for row in here] == pytest.approx([row[2] for row in there], abs=1e-6)
    # A registered model does the same, and a customer without rows has an answer.
    trial.sql("INSERT INTO customers VALUES (1000, 30, 'p1')")
    found = trial.sql(f"{PREDICTED}('leaving@1', 'SELECT id, now() AS at FROM customers') AS p")
    assert len(found) == 801 and 1000 in [row[0] for row in found]
    assert trial.value("SELECT count(*) FROM pg_class WHERE relname LIKE 'cerebro\\_related%%'") == 0


@predicts
def test_the_columns_of_the_query_come_back_as_json(trial: Trial, trained: str) -> None:
    query = "SELECT id, 'x' AS note, timestamp '2026-03-01' AS at FROM customers WHERE id = 7;"
    source = trial.value("SELECT source FROM cerebro.predict_related('leaves', %s)", query)
    assert source == {"id": 7, "note": "x", "at": "2026-03-01T00:00:00"}


WRONG = {
    "no model": (None, "SELECT id, now() AS at FROM customers", "22004", "model is NULL"),
    "no query": ("leaves", None, "22004", "query is NULL"),
    "no key": ("leaves", "SELECT now() AS at", "42703", 'the query has no column "id"'),
    "a key of another type": (
        "leaves", "SELECT 'x' AS id, now() AS at", "42804", 'the query gives "id" as text, and in'
    ),
    "no cut-off": ("leaves", "SELECT id FROM customers", "22023", 'the query has no column "at"'),
    "a cut-off that is NULL": (
        "leaves", "SELECT id, NULL::date AS at FROM customers WHERE id < 4", "22004", "NULL in 3 rows"
    ),
    "a feature's name": (
        "leaves", "SELECT id, now() AS at, 1 AS orders_count FROM customers", "22023", "which is a feature"
    ),
    "another model": ("plain", "SELECT id, now() AS at FROM customers", "55000", "was not trained on"),
}  # fmt: skip


@predicts
@pytest.mark.parametrize("model, query, code, text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused(
    model: str | None, query: str | None, code: str, text: str, trial: Trial, trained: str
) -> None:
    if model == "plain":
        trial.sql("CREATE TABLE simple AS SELECT age, gone FROM customers JOIN labels USING (id)")
        trial.sql("SELECT * FROM cerebro.train('simple', 'gone', 'plain', '30 s', %s)", OPTIONS)
    with pytest.raises(psycopg2.Error) as caught:
        trial.sql("SELECT * FROM cerebro.predict_related(%s, %s)", model, query)
    assert (caught.value.pgcode, text in str(caught.value)) == (code, True), caught.value


@predicts
def test_a_column_that_is_gone_and_keys_that_nobody_has_are_named(trial: Trial, trained: str) -> None:
    call = "SELECT class FROM cerebro.predict_related('leaves', %s)"
    trial.notices()
    trial.sql(call, "SELECT i AS id, now() AS at FROM generate_series(799, 802) AS i")
    assert "2 rows have a key that is not in" in trial.notices()
    trial.sql("ALTER TABLE items RENAME price TO cost")
    try:
        with pytest.raises(psycopg2.errors.UndefinedColumn, match='"price", of which the model has features'):
            trial.sql(call, "SELECT 1 AS id, now() AS at")
    finally:
        trial.sql("ALTER TABLE items RENAME cost TO price")


@pytest.mark.greenplum
def test_greenplum_refuses_before_it_makes_features(trial: Trial, trained: str) -> None:
    """The call is refused before its query begins, which would divide by zero."""
    said = "predict_related and explain_predict do not work on Greenplum"
    with pytest.raises(psycopg2.errors.FeatureNotSupported, match=said) as caught:
        trial.sql("SELECT * FROM cerebro.predict_related('leaves', 'SELECT 1 / 0 AS id, now() AS at')")
    assert "cerebro.madlib_predict" in (caught.value.diag.message_hint or "")


@predicts
def test_features_are_not_made_in_a_transaction_that_only_reads(trial: Trial, trained: str) -> None:
    trial.sql("BEGIN READ ONLY")
    with pytest.raises(psycopg2.errors.ReadOnlySqlTransaction, match="the features of related tables cannot"):
        trial.sql("SELECT * FROM cerebro.predict_related('leaves', 'SELECT id, now() AS at FROM customers')")
    trial.sql("ROLLBACK")


@predicts
def test_who_may_not_read_a_table_gets_no_features_of_it(
    trial: Trial, trained: str, connect: Connect, role: MakeRole
) -> None:
    user = role()
    trial.sql("SELECT cerebro.grant_model('leaving', %s, 'predict')", user)
    trial.sql(f"GRANT SELECT ON customers, orders TO {user}")
    ask = f"{PREDICTED}('leaving', 'SELECT id, now() AS at FROM customers LIMIT 3') AS p"
    with closing(connect(user=user)) as connection:
        with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="permission denied for public.items"):
            Trial(connection).sql(ask)
        trial.sql(f"GRANT SELECT ON items TO {user}")
        assert len(Trial(connection).sql(ask)) == 3


@pytest.mark.slow
def test_retraining_makes_the_features_of_new_labels(trial: Trial, trained: str, greenplum: bool) -> None:
    trial.sql("INSERT INTO labels SELECT id, '2026-06-20', gone FROM labels")
    # The query keeps the search_path of the call that had it, as a scheduled session may have another.
    trial.sql("SET search_path = pg_catalog")
    found = trial.read_row("SELECT * FROM cerebro.retrain('leaving', promote => 'always')")
    trial.sql("RESET search_path")
    assert found["promoted"] and found["judged_rows"] > 100
    recipe, comment = trial.sql(
        "SELECT lineage -> 'recipe', comment FROM cerebro.model_versions WHERE version = 2"
    )[0]
    assert comment == "retrained on the rows of its query"
    assert recipe["relations"]["query"] == "SELECT id, at, gone FROM labels"
    if not greenplum:
        ask = f"{PREDICTED}('leaving', 'SELECT id, now() AS at FROM customers') AS p"
        assert len(trial.sql(ask)) > 700
    # Retraining on another table of labels computes features for its rows as well.
    trial.sql("CREATE TABLE later AS SELECT id, at + interval '1 day' AS at, gone FROM labels")
    assert trial.read_row("SELECT * FROM cerebro.retrain('leaving', 'later')")["version"] == 3
    assert trial.value("SELECT count(*) FROM pg_class WHERE relname LIKE 'cerebro\\_retrain%%'") == 0


def test_labels_begin_where_features_end(trial: Trial) -> None:
    trial.sql(
        "SELECT cerebro.labels('customers', 'count(orders) = 0', over => '30 days', every => '20 days',"
        " output_table => 'quiet', label => 'quiet')"
    )
    at = [row[0] for row in trial.sql("SELECT DISTINCT at FROM quiet ORDER BY at")]
    ends = trial.value("SELECT max(placed) FROM orders")
    assert [str(ends - one) for one in at] == [f"{days} days, 0:00:00" for days in (110, 90, 70, 50, 30)]
    wrong = (
        "SELECT count(*) FROM quiet AS q WHERE quiet IS DISTINCT FROM NOT EXISTS (SELECT FROM orders AS o"
        " WHERE o.customer = q.id AND o.placed >= q.at AND o.placed < q.at + interval '30 days')"
    )
    assert trial.value(wrong) == 0
    assert trial.value("SELECT count(DISTINCT quiet) FROM quiet") == 2
    assert trial.value("SELECT count(*) = 5 * (SELECT count(*) FROM customers) FROM quiet")


def test_labels_are_of_entities_that_were_there(trial: Trial) -> None:
    trial.sql("CREATE TABLE clients (id integer PRIMARY KEY, since date)")
    trial.sql(
        "CREATE TABLE deals (client integer REFERENCES clients, closed timestamptz, sent date, worth integer)"
    )
    trial.sql("INSERT INTO clients SELECT i, date '2026-01-01' + i FROM generate_series(1, 60) AS i")
    trial.sql(
        "INSERT INTO deals SELECT i, timestamptz '2026-01-01' + i * interval '1 day', NULL, i"
        " FROM generate_series(1, 60) AS i"
    )
    with pytest.raises(psycopg2.errors.NullValueNotAllowed, match="nothing says when a row of"):
        trial.sql("SELECT cerebro.labels('clients', 'sum(deals.worth)', '10 days', '10 days', 'worth')")
    trial.sql(
        "SELECT cerebro.labels('clients', 'sum(deals.worth)', '10 days', '10 days', 'worth',"
        ' times => \'{"deals": "closed", "clients": "since"}\','
        " starts => '2026-01-21', ends => '2026-02-10')"
    )
    # Clients 1 to 19 were there before that day, and those of 20 to 29 had their deals then or after it.
    assert trial.sql("SELECT at::date::text, count(*), sum(label) FROM worth GROUP BY 1 ORDER BY 1") == [
        ("2026-01-21", 19, 0.0),
        ("2026-01-31", 29, 0.0),
    ]


WRONG_LABELS: dict[str, tuple[str, str, str]] = {
    "code": ("'customers', '1) = 1; --', '1 day', '1 day', 'l'", "22023", "is not a label"),
    "another aggregate": ("'customers', 'mode(orders)', '1 day', '1 day', 'l'", "22023", "is not a label"),
    "no column": ("'customers', 'sum(orders)', '1 day', '1 day', 'l'", "22023", "names no column"),
    "another column": ("'customers', 'sum(orders.x)', '1 day', '1 day', 'l'", "42703", 'no column "x"'),
    "no interval": ("'customers', 'count(orders)', NULL, '1 day', 'l'", "22023", "over is NULL"),
    "no number": ("'customers', 'sum(orders.placed)', '1 day', '1 day', 'l'", "42804", "has no numbers"),
    "no child": ("'customers', 'count(items)', '1 day', '1 day', 'l'", "55000", "no foreign keys lead"),
    "no length": ("'customers', 'count(orders)', '0 days', '1 day', 'l'", "22023", "over is"),
    "no step": ("'customers', 'count(orders)', '1 day', NULL, 'l'", "22023", "every is"),
    "two columns": ("'customers', 'count(orders)', '1 day', '1 day', 'l', 'at'", "42701", 'two columns "at"'),
    "the key": ("'customers', 'count(orders)', '1 day', '1 day', 'l', 'id'", "42701", 'two columns "id"'),
    "too long": ("'customers', 'count(orders)', '9 years', '1 day', 'l'", "55000", "no cut-off has"),
}


@pytest.mark.parametrize("said, code, text", WRONG_LABELS.values(), ids=WRONG_LABELS)
def test_labels_that_are_none_are_refused(said: str, code: str, text: str, trial: Trial) -> None:
    with pytest.raises(psycopg2.Error) as caught:
        trial.sql(f"SELECT cerebro.labels({said})")
    assert (caught.value.pgcode, text in str(caught.value)) == (code, True), caught.value
    assert trial.value("SELECT to_regclass('l')") is None


def test_labels_with_odd_names_a_key_of_two_columns_and_partitions_or_nothing(trial: Trial) -> None:
    trial.sql('CREATE SCHEMA "o d"')
    trial.sql('CREATE TABLE "o d"."wh""o" ("a b" text, "c;" integer, PRIMARY KEY ("a b", "c;"))')
    trial.sql(
        """CREATE TABLE "o d"."do'ne" ("a b" text, "c;" integer, "at $1" date, "--" integer,"""
        """ FOREIGN KEY ("a b", "c;") REFERENCES "o d"."wh""o") PARTITION BY RANGE ("at $1")"""
    )
    for number, first, last in ((1, "2026-01-01", "2026-02-01"), (2, "2026-02-01", "2027-01-01")):
        trial.sql(
            f"""CREATE TABLE "o d"."part {number}" PARTITION OF "o d"."do'ne" FOR VALUES"""
            f" FROM ('{first}') TO ('{last}')"
        )
    trial.sql("""INSERT INTO "o d"."wh""o" SELECT 'k' || i % 2, i FROM generate_series(1, 6) AS i""")
    call = (
        """SELECT cerebro.labels('"o d"."wh""o"', 'sum("o d"."do''ne"."--")', '20 days', '20 days',"""
        """ '"o d"."ma""de"', label => 'l"; --')"""
    )
    with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState, match="has no rows|no cut-off"):
        trial.sql(call)
    trial.sql(
        """INSERT INTO "o d"."do'ne" SELECT 'k' || i % 2, i, '2026-01-01'::date + 11 * d, i"""
        """ FROM generate_series(1, 5) AS i, generate_series(0, 4) AS d"""
    )
    trial.sql(call)
    found = trial.sql("""SELECT "a b", "c;", at::date::text, "l""; --" FROM "o d"."ma""de" ORDER BY 3, 2""")
    # All labels are of rows in the table of entities.
    assert {row[:2] for row in found} <= {(f"k{i % 2}", i) for i in range(1, 7)}
    by_hand = (
        """SELECT count(*) FROM "o d"."ma""de" AS m WHERE m."l""; --" IS DISTINCT FROM (SELECT"""
        """ coalesce(sum("--"), 0) FROM "o d"."do'ne" AS d WHERE (d."a b", d."c;") = (m."a b", m."c;")"""
        """ AND d."at $1" >= m.at AND d."at $1" < m.at + interval '20 days')"""
    )
    assert found and trial.value(by_hand) == 0


def test_labels_are_made_with_the_callers_rights(trial: Trial, connect: Connect, role: MakeRole) -> None:
    user = role()
    # No AUTHORIZATION clause: Greenplum would check whether the owner may create schemas.
    trial.sql("CREATE SCHEMA theirs")
    trial.sql(f"GRANT ALL ON SCHEMA theirs TO {user}")
    call = "SELECT cerebro.labels('customers', 'count(orders)', '30 days', '30 days', 'theirs.counted')"
    with closing(connect(user=user)) as connection:
        session = Trial(connection)
        for table in ("customers", "orders"):
            with pytest.raises(
                psycopg2.errors.InsufficientPrivilege, match=f"for public.{table}\nHINT:  .* on it\\.\n"
            ):
                session.sql(call)
            trial.sql(f"GRANT SELECT ON {table} TO {user}")
        session.sql(call)
        assert session.value("SELECT count(*) > 0 FROM theirs.counted")


def test_a_query_that_somebody_else_has_written_is_not_run(
    trial: Trial, trained: str, connect: Connect, role: MakeRole
) -> None:
    user, refused = role(), "is trained on the rows of a query that somebody else has written"
    trial.sql("CREATE TABLE theirs AS TABLE related; CREATE TABLE theirs_summary AS TABLE related_summary")
    trial.sql(f"ALTER TABLE theirs OWNER TO {user}; ALTER TABLE theirs_summary OWNER TO {user}")
    trial.sql("SELECT FROM cerebro.train('theirs', 'gone', 'of_theirs', '30 s', %s)", OPTIONS)
    trial.sql("SELECT cerebro.register('of_theirs', 'of_theirs')")
    # The other role registers the tables of the model, and its version is copied.
    trial.sql(f"GRANT SELECT ON leaves, leaves_info, leaves_summary, related_summary TO {user}")
    trial.sql(f"GRANT SELECT ON leaves_packed, leaves_packed_summary TO {user}")
    with closing(connect(user=user)) as connection:
        other = Trial(connection)
        other.sql("SELECT cerebro.register('public.leaves', 'brought')")
        other.sql("SELECT cerebro.grant_model('brought', %s, 'manage')", trial.value("SELECT current_user"))
    trial.sql("SELECT cerebro.register('brought@1', 'copied')")
    for model in ("of_theirs", "brought", "copied"):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege, match=refused):
            trial.sql("SELECT * FROM cerebro.retrain(%s)", model)


def test_other_children_of_a_parent_are_not_the_row_itself(trial: Trial) -> None:
    trial.sql("CREATE TABLE homes (home integer PRIMARY KEY)")
    trial.sql(
        "CREATE TABLE people (id integer PRIMARY KEY, home integer REFERENCES homes, joined date,"
        " sick boolean)"
    )
    trial.sql("INSERT INTO homes SELECT i FROM generate_series(1, 90) AS i")
    trial.sql(
        "INSERT INTO people SELECT i, 1 + i * i % 83, date '2026-01-01' + i % 50, i * 7919 % 10 < 4"
        " FROM generate_series(1, 300) AS i"
    )
    trial.sql(
        "SELECT cerebro.relate('SELECT id, date ''2026-06-01'' AS at, sick AS ill FROM people', 'housed',"
        " entity => 'people', cutoff => 'at', times => '{\"people\": \"joined\"}',"
        " aggregates => ARRAY['count', 'mean'])"
    )
    wrong = (
        "SELECT count(*) FROM housed JOIN (SELECT id, count(*) OVER h AS n, sum(sick::integer) OVER h"
        " - sick::integer AS others FROM people WINDOW h AS (PARTITION BY home)) AS p USING (id)"
        " WHERE homes_people_count <> n - 1 OR abs(homes_people_mean_sick * (n - 1) - others) > 1e-9"
        " OR (homes_people_mean_sick IS NULL) <> (n = 1)"
    )
    assert trial.value(wrong) == 0
