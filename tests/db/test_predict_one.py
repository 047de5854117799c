"""cerebro.predict answers for one row, inside any query. Greenplum refuses it (tests/greenplum)."""

from __future__ import annotations

import numpy as np
import psycopg2
import psycopg2.errors
import pytest

import nets
from fixtures import Connect, Connection, MakeRole, execute
from predicting import (
    KINDS,
    PICTURE,
    ROWS,
    ask_as_another,
    has_keras,
    make_images,
    make_large,
    outputs,
    probabilities,
    random_weights,
    start_keras,
    store,
    store_by_jax,
    train,
)
from trial import Trial, blobs

pytestmark = [pytest.mark.postgresql, pytest.mark.fresh_caller]


@pytest.fixture(scope="module")
def features() -> np.ndarray:
    return blobs(ROWS)[0]


@pytest.fixture(scope="module", autouse=True)
def trained(trial: Trial) -> None:
    train(trial)


@pytest.fixture(scope="module")
def expected(trial: Trial, features: np.ndarray) -> np.ndarray:
    return probabilities(trial, features)


def test_a_single_row_has_its_number(trial: Trial, features: np.ndarray) -> None:
    net = nets.mlp(outputs=1, activation="linear")
    weights = random_weights(net)
    store(trial, "single", net, weights, classes=None)
    (expected,) = outputs(net, weights, features)
    answers = trial.sql("SELECT p.* FROM new, cerebro.predict('single', NULL, x) AS p ORDER BY id LIMIT 20")
    assert [row[:2] for row in answers] == [(None, None)] * 20
    assert np.allclose([row[2] for row in answers], expected[:20, 0], atol=1e-6)


def test_a_row_is_the_same_as_its_array(trial: Trial) -> None:
    """A model with one input column answers for a row as for its array, and finds the column by name."""
    asked = (
        "SELECT p.class, p.probability FROM new AS n, cerebro.predict('many', {}) AS p ORDER BY n.id LIMIT 30"
    )
    assert trial.sql(asked.format("n, 2")) == trial.sql(asked.format("2, n.x"))
    with pytest.raises(psycopg2.Error, match='the row has no column "x"'):
        trial.sql("SELECT cerebro.predict('many', r, 2) FROM (SELECT 1 AS id) AS r")
    with pytest.raises(psycopg2.Error, match="is NULL, or not an array of numbers"):
        trial.sql("SELECT cerebro.predict('many', r, 2) FROM (SELECT 'none' AS x) AS r")


@pytest.mark.parametrize("model", ["one", "many"])
def test_a_first_answer_needs_no_engine_and_is_the_same(trial: Trial, connect: Connect, model: str) -> None:
    asked = f"SELECT id, p.* FROM new, cerebro.predict('{model}', %s, x) AS p ORDER BY id LIMIT 30"
    key = None if model == "one" else 2
    found = []
    for starts_engine in (False, True):
        session = connect()
        if starts_engine:
            start_keras(session, "one", "new")
        found.append(execute(session, asked, key))
        assert has_keras(session) is starts_engine
    by_numpy, by_engine = found
    assert [row[:2] for row in by_numpy] == [row[:2] for row in by_engine]
    assert [row[2] for row in by_numpy] == pytest.approx([row[2] for row in by_engine], abs=1e-5)


@pytest.mark.slow
def test_wide_rows_are_predicted_a_few_at_a_time(trial: Trial) -> None:
    """The server collects the fields of a batch in an array, which may have at most 1 GB."""
    width, rows = 300_000, 1000
    net = nets.sequential([width], nets.layer("Dense", units=1))
    store(trial, "wide", net, np.ones(width + 1, "<f4").tobytes(), classes=None)
    trial.sql("ALTER TABLE wide_summary ADD independent_varname text[] DEFAULT ARRAY['x']")
    trial.sql("CREATE TABLE wide_rows (id integer, x real[])")
    query = (
        f"SELECT i AS id, array_fill((i % 7)::real, ARRAY[{width}]) AS x FROM generate_series(1, {rows}) AS i"
    )
    answers = (
        "SELECT count(*), sum(q.prediction) FROM cerebro.predict_query('wide', %s, NULL::wide_rows) AS q"
    )
    total = sum(width * (i % 7) + 1 for i in range(1, rows + 1))
    assert trial.sql(answers, query) == [(rows, total)]


@pytest.mark.slow
def test_rows_with_wide_columns_that_no_net_reads_are_predicted_a_few_at_a_time(trial: Trial) -> None:
    trial.sql("CREATE TABLE noted_rows (id integer, x real[], note text)")
    query = (
        "SELECT i AS id, n.x, repeat('x', 300000) AS note FROM generate_series(1, 4096) AS i"
        " CROSS JOIN (SELECT x FROM new LIMIT 1) AS n"
    )
    answers = "SELECT count(q.class) FROM cerebro.predict_query('one', %s, NULL::noted_rows) AS q"
    assert trial.sql(answers, query) == [(4096,)]


@pytest.mark.slow
def test_a_code_that_numpy_does_not_know_is_the_engines(trial: Trial, connect: Connect) -> None:
    """If an embedding has no vector for a code, the engine answers, since each engine has its own rule."""
    net = nets.sequential(
        [2],
        nets.layer("Embedding", input_dim=4, output_dim=3),
        nets.layer("Flatten"),
        nets.layer("Dense", units=3, activation="softmax"),
    )
    store(trial, "coded", net, random_weights(net), classes=KINDS)
    trial.sql("ALTER TABLE coded_summary ADD independent_varname text[] DEFAULT ARRAY['x']")
    trial.sql(
        "CREATE TABLE codes AS SELECT i AS id, ARRAY[i % 4, CASE i WHEN 4000 THEN 9 ELSE 1 END]::real[] AS x"
        " FROM generate_series(1, 5000) i"
    )
    found = []
    for starts_engine in (False, True):
        session = connect()
        if starts_engine:
            start_keras(session, "one", "new")
        try:
            answers = (
                "SELECT (q.source).id, q.class, q.probability"
                " FROM cerebro.predict_query('coded', 'SELECT * FROM codes', NULL::codes) AS q ORDER BY 1"
            )
            found.append(execute(session, answers))
        except psycopg2.Error as error:
            found.append([(error.pgcode, str(error).splitlines()[0], 0)])
            session.rollback()
        assert has_keras(session)
    for one, other in zip(*found, strict=True):
        assert one == tuple(pytest.approx(value, abs=1e-5, nan_ok=True) for value in other)


@pytest.mark.slow
def test_many_rows_of_a_heavy_net_bring_an_engine_up(trial: Trial, connect: Connect) -> None:
    """Many rows of an LSTM start an engine, which is far faster than NumPy; ten rows do not."""
    net = nets.sequential(
        [200],
        nets.layer("Reshape", target_shape=[100, 2]),
        nets.layer("LSTM", units=4),
        nets.layer("Dense", units=3, activation="softmax"),
    )
    store(trial, "recurrent", net, random_weights(net), classes=KINDS)
    trial.sql(
        "CREATE TABLE readings AS SELECT i AS id, array_agg(sin(i * j / 7.0))::real[] AS x"
        " FROM generate_series(1, 100) i, generate_series(1, 200) j GROUP BY i"
    )
    session = connect()
    asked = (
        "SELECT p.class, p.probability FROM (SELECT * FROM readings ORDER BY id LIMIT {}) AS r,"
        " cerebro.predict('recurrent', NULL, r.x) AS p ORDER BY r.id"
    )
    few = execute(session, asked.format(10))
    assert not has_keras(session)
    many = execute(session, asked.format(100))
    assert has_keras(session)
    trial.call("madlib_predict", "recurrent", "readings", "id", "x", "recurrent_p", "response")
    whole = trial.sql("SELECT class_value, prob FROM recurrent_p ORDER BY id")
    for found in (few, many):
        expected = whole[: len(found)]
        assert [kind for kind, _ in found] == [kind for kind, _ in expected]
        assert [p for _, p in found] == pytest.approx([p for _, p in expected], abs=1e-5)


def test_an_image_in_a_select_list(trial: Trial) -> None:
    likely = make_images(trial)
    store(trial, "picture", PICTURE, random_weights(PICTURE), classes=KINDS, normalizing_const=255)
    answers = trial.sql(
        "SELECT (cerebro.predict('picture', NULL, image)).probability FROM images ORDER BY id"
    )
    assert np.allclose([p for (p,) in answers], likely, atol=1e-6)


def test_the_callers_search_path_finds_the_model(trial: Trial) -> None:
    trial.sql("CREATE SCHEMA elsewhere; SET search_path = elsewhere, public")
    trial.sql("CREATE TABLE elsewhere.one AS SELECT * FROM public.one WHERE FALSE")
    with pytest.raises(psycopg2.Error, match="one_summary"):
        trial.sql("SELECT (cerebro.predict('one', NULL, x)).class FROM new LIMIT 1")
    trial.sql("RESET search_path; DROP SCHEMA elsewhere CASCADE")


def test_a_select_list_gives_class_and_probability(trial: Trial, expected: np.ndarray) -> None:
    query = "SELECT id, (cerebro.predict('many', 2, x)).* FROM new ORDER BY id LIMIT 50"
    for number, kind, probability, prediction in trial.sql(query):
        assert kind == KINDS[expected[number - 1].argmax()]
        assert probability == pytest.approx(expected[number - 1].max(), abs=1e-6)
        assert prediction is None


def test_arrays_of_every_numeric_type_are_taken(trial: Trial) -> None:
    (first,) = trial.sql("SELECT p.* FROM new, cerebro.predict('many', 2, x) AS p WHERE id = 1")
    for kind in ("double precision", "numeric"):
        query = f"SELECT p.* FROM new, cerebro.predict('many', 2, x::{kind}[]) AS p WHERE id = 1"
        assert trial.sql(query)[0][0] == first[0]
    for kind in ("smallint", "integer", "bigint"):
        trial.sql(f"SELECT cerebro.predict('many', 2, x::{kind}[]) FROM new WHERE id = 1")


def test_a_model_made_anew_is_never_answered_from_the_old_one(trial: Trial, features: np.ndarray) -> None:
    net, ask = nets.mlp(), "SELECT (cerebro.predict('again', NULL, x)).probability FROM new WHERE id = 1"
    store(trial, "again", net, random_weights(net, 1), classes=KINDS)

    def check(seed: int) -> None:
        (wanted,) = outputs(net, random_weights(net, seed), features[:1])
        assert trial.value(ask) == pytest.approx(float(wanted.max()), abs=1e-6)

    check(1)
    trial.sql("UPDATE again SET model_weights = %s", random_weights(net, 2))
    check(2)
    trial.sql("DROP TABLE again, again_summary")
    with pytest.raises(psycopg2.errors.UndefinedTable):
        trial.value(ask)
    store(trial, "again", net, random_weights(net, 3), classes=KINDS)
    check(3)
    trial.sql("BEGIN; TRUNCATE again")
    trial.sql("INSERT INTO again VALUES (%s, %s)", random_weights(net, 4), net)
    check(4)
    trial.sql("TRUNCATE again")
    trial.sql("INSERT INTO again VALUES (%s, %s)", random_weights(net, 5), net)
    check(5)
    trial.sql("ROLLBACK")
    check(3)


def test_a_kept_model_is_kept_from_those_who_may_not_read_it(trial: Trial, role: MakeRole) -> None:
    user = role()
    ask = "SELECT (cerebro.predict('many', 2, x)).class FROM new WHERE id = 1"
    trial.sql(
        f"GRANT SELECT ON new, many_summary, many_info TO {user}; GRANT SELECT (mst_key) ON many TO {user}"
    )
    trial.value(ask)
    trial.sql(f"SET ROLE {user}")
    try:
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            trial.value(ask)
        trial.sql(f"RESET ROLE; GRANT SELECT ON many TO {user}; SET ROLE {user}")
        trial.value(ask)
        trial.sql(f"RESET ROLE; REVOKE SELECT ON many FROM {user}; SET ROLE {user}")
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            trial.value(ask)
    finally:
        trial.sql("RESET ROLE")


def test_weights_too_large_for_a_field_answer_for_a_row(
    trial: Trial, role: MakeRole, expected: np.ndarray
) -> None:
    make_large(trial)
    ask = "SELECT (cerebro.predict('large', 2, x)).probability FROM new WHERE id = 1"
    assert trial.value(ask) == pytest.approx(float(expected[0].max()), abs=1e-6)
    with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState, match="state of its run"):
        ask_as_another(trial, role, ask)


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        ("'many', 2, NULL::real[]", "22004", "features is NULL"),
        ("'many', 2, array_append(x[2:], NULL)", "22004", "NULL elements"),
        ("'many', 2, array_append(x[2:], 'Infinity')", "22023", "infinity"),
        ("'many', 2, x[1:3]", "22023", "shape"),
        ("'one', 2, x", "22023", "mst_key 2 was given"),
        ("NULL, 2, x", "22004", "model is NULL"),
        ("'nowhere', 2, x", "42P01", "nowhere"),
        ("'seen', NULL, x", "0A000", "not a table"),
    ],
)
def test_a_wrong_row_is_one_clear_error(trial: Trial, call: str, code: str, message: str) -> None:
    trial.sql("CREATE OR REPLACE VIEW seen AS SELECT * FROM one")
    trial.sql("CREATE OR REPLACE VIEW seen_summary AS SELECT * FROM one_summary")
    with pytest.raises(psycopg2.Error, match=message) as caught:
        trial.sql(f"SELECT cerebro.predict({call}) FROM new WHERE id = 1")
    assert caught.value.pgcode == code


def with_the_servers_compiler(session: Connection) -> None:
    execute(session, "SET jit = on; SET jit_above_cost = 0")
    execute(session, "SELECT sum(id * 2) FROM new WHERE id + id > 3")
    execute(session, "SET jit_above_cost = 100000")


@pytest.mark.tensorflow
def test_the_servers_own_compiler_and_tensorflow_bear_each_other(trial: Trial, connect: Connect) -> None:
    """PostgreSQL's JIT compiler and TensorFlow work in one process, whichever is loaded first."""
    ask = "SELECT (cerebro.predict('many', 2, x)).class FROM new WHERE id = 1"
    trial.value(ask)
    with_the_servers_compiler(trial.connection)
    other = connect()
    with_the_servers_compiler(other)
    assert execute(other, ask) == trial.sql(ask)
    with_the_servers_compiler(other)


def test_the_backend_that_trained_the_model_answers_for_a_row(
    trial: Trial, connect: Connect, features: np.ndarray
) -> None:
    likely = store_by_jax(trial, features)
    ask = "SELECT (cerebro.predict('by_jax', NULL, x)).probability FROM new WHERE id = 1"
    assert execute(connect(), ask)[0][0] == pytest.approx(float(likely[0]), abs=1e-5)


def test_a_query_of_arrays_is_predicted_many_rows_at_a_time(trial: Trial, expected: np.ndarray) -> None:
    found = trial.sql(
        "SELECT p.class, p.probability FROM cerebro.predict_query("
        "'many', 'SELECT * FROM new', NULL::new, 2) AS p ORDER BY (p.source).id"
    )
    assert [row[0] for row in found] == [KINDS[place] for place in expected.argmax(axis=1)]
    assert np.allclose([row[1] for row in found], expected.max(axis=1), atol=1e-5)
