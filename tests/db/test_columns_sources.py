"""Training on columns gives the same bits whatever the source, the session and the encoding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from fixtures import Connect, MakeRole, execute
from mixed import CUSTOMERS, picture
from trial import ADAM, Trial

KINDS = {
    "numbers": ("age, income, active", {"income": {"impute": "median"}}),
    "one-hot": ("plan", {"plan": {"encode": "one_hot"}}),
    "ordinal": ("plan", {"plan": {"encode": "ordinal"}}),
    "embedding": ("city", {"city": {"encode": "embed", "min_count": 5}}),
    "hash": ("city", {"city": {"encode": "hash", "buckets": 7}}),
    "dates": ("joined, seen", {"seen": {"parts": ["days", "hour", "weekday"], "cyclic": True}}),
    "words": ("note", {"note": {"tokens": 4, "vocabulary": 30}}),
    "arrays": ("x", {"x": {"divide": 3}}),
    "images": ("photo", {"photo": {"decode": [6, 5, 3]}}),
}


@pytest.fixture(scope="module", autouse=True)
def customers(trial: Trial) -> None:
    trial.sql(CUSTOMERS, 300)
    trial.sql("ALTER TABLE customers ADD COLUMN photo bytea")
    for number in range(4):
        trial.sql("UPDATE customers SET photo = %s WHERE id %% 4 = %s", picture(number), number)


# The kinds that every run of the tests tries: numbers, texts and pictures.
QUICK = {"numbers"}


@pytest.mark.parametrize(
    "kind", [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_bits_are_the_same_in_one_session_and_in_several(trial: Trial, connect: Connect, kind: str) -> None:
    """Neither the order of the rows nor the sessions that train change the bits."""
    listed, said = KINDS[kind]
    weights = []
    trial.sql("CREATE OR REPLACE VIEW turned AS SELECT * FROM customers ORDER BY md5(id::text)")
    for place, source in enumerate(("customers", "turned")):
        names = [f"{one}{place}{end}" for one in "pnms" for end in ("", "_summary", "_info")]
        trial.sql(f"DROP TABLE IF EXISTS {', '.join(names)}")
        trial.pack(source, f"p{place}", "gone", listed, options={"columns": said})
        trial.sql(f"SELECT cerebro.load_net('n{place}', 'p{place}', $$Dense(4, activation='relu')$$)")
        trial.select(f"s{place}", [1], [ADAM], ["batch_size=32"], arch=f"n{place}")
        if place:
            # Nobody else sees what this transaction has made: its own session does all.
            with closing(connect(autocommit=False)) as own:
                own.notices = []
                alone = Trial(own)
                execute(own, f"ALTER TABLE p{place} ADD CHECK (TRUE)")
                alone.fit(f"p{place}", f"m{place}", f"s{place}", 2)
                own.commit()
        else:
            trial.fit(f"p{place}", f"m{place}", f"s{place}", 2)
        weights.append(trial.weights(f"m{place}"))
    assert weights[0] == weights[1]


def test_statistics_are_those_of_the_rows_that_a_role_sees(
    trial: Trial, connect: Connect, role: MakeRole
) -> None:
    user = role()
    trial.sql("CREATE SCHEMA own")
    trial.sql(f"GRANT ALL ON SCHEMA own TO {user}")
    trial.sql("CREATE VIEW few AS SELECT id, age, plan, gone FROM customers WHERE id <= 50")
    trial.sql(f"GRANT SELECT ON customers, few TO {user}")
    trial.sql("ALTER TABLE customers ENABLE ROW LEVEL SECURITY")
    trial.sql(f"CREATE POLICY young ON customers TO {user} USING (age < 40 AND plan <> 'pro')")
    try:
        with closing(connect(user=user)) as theirs:
            theirs.notices = []
            session = Trial(theirs)
            session.pack("customers", "own.p", "gone", "age, plan", options={"columns": "auto"})
            session.pack("few", "own.q", "gone", "age, plan", options={"columns": "auto"})
    finally:
        trial.sql("ALTER TABLE customers DISABLE ROW LEVEL SECURITY")
        trial.sql("DROP POLICY young ON customers")
    wanted = {
        "own.p": "customers WHERE age < 40 AND plan <> 'pro'",
        # A view reads with the rights of its owner, who may see all rows.
        "own.q": "few",
    }
    for packed, rows in wanted.items():
        age, plan = trial.value(f"SELECT feature_specification FROM {packed}_summary")["columns"]
        lowest, highest, mean = trial.sql(f"SELECT min(age), max(age), avg(age)::float8 FROM {rows}")[0]
        known = age["statistics"]
        assert (known["minimum"], known["maximum"]) == (lowest, highest)
        assert known["mean"] == pytest.approx(mean, rel=1e-6)
        kinds = [value for (value,) in trial.sql(f"SELECT DISTINCT plan FROM {rows} ORDER BY 1") if value]
        assert plan["values"] == sorted(kinds)


@pytest.fixture
def latin(database: str) -> Iterator[Trial]:
    """A `Trial` in a new database with the encoding LATIN1."""
    name = f"{database}_latin"
    with closing(psycopg2.connect(dbname=database)) as connection:
        connection.autocommit = True
        how = "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        execute(connection, f"CREATE DATABASE {name} {how}")
        try:
            with closing(psycopg2.connect(dbname=name)) as own:
                own.autocommit = True
                own.notices = []
                own.set_client_encoding("UTF8")
                execute(own, "CREATE EXTENSION cerebro CASCADE")
                yield Trial(own)
        finally:
            execute(connection, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.slow
@pytest.mark.postgresql
def test_text_in_another_encoding_is_the_same_text(latin: Trial) -> None:
    latin.sql(
        "CREATE TABLE t AS SELECT i AS id, (ARRAY['Zürich', 'Århus', 'Köln'])[1 + i %% 3] AS city,"
        " 'Größe über ' || i %% 70 || ' Äpfel' AS note, i %% 3 = %s AS y FROM generate_series(1, 90) AS i",
        0,
    )
    said = {"note": {"tokens": 4, "vocabulary": 20}}
    latin.pack("t", "p", "y", "city, note", options={"columns": said})
    city, note = latin.value("SELECT feature_specification FROM p_summary")["columns"]
    assert city["values"] == ["Köln", "Zürich", "Århus"]
    assert {"größe", "über"} <= set(note["vocabulary"])
    latin.sql("SELECT cerebro.load_net('n', 'p', 'linear')")
    latin.select("s", [1], [ADAM.replace("0.01", "0.1")], ["batch_size=16"], arch="n")
    latin.fit("p", "m", "s", 5)
    rows = latin.sql("SELECT c.id, p.class FROM t AS c, cerebro.predict('m', c) AS p ORDER BY 1")
    batches = latin.sql(
        "SELECT (p.source).id, p.class"
        " FROM cerebro.predict_query('m', 'SELECT * FROM t', NULL::t) AS p ORDER BY 1"
    )
    assert rows == batches
    right = latin.sql("SELECT id, y::text FROM t ORDER BY id")
    assert rows == right
