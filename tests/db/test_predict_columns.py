"""Predictions from plain columns of a table, a query or a row; the columns are found by their names."""

from __future__ import annotations

import json

import numpy as np
import psycopg2
import pytest

import nets
from fixtures import Connect, MakeRole, execute
from mixed import CUSTOMERS
from packing import column
from predicting import has_keras, start_keras
from trial import Trial

COLUMNS = "age, income, city, plan, joined, seen, active, level, x"
SAID = {
    "income": {"scale": "log", "impute": "median"},
    "city": {"encode": "one_hot", "min_count": 30},
    "seen": {"parts": ["days", "year", "month", "weekday", "hour", "minute"], "cyclic": True},
    "level": {"encode": "ordinal"},
    "x": {"input": "independent_var", "divide": 3},
}
CONFIGS = [
    "loss='categorical_crossentropy',optimizer='Adam(lr=0.01)',metrics=['accuracy']",
    "loss='categorical_crossentropy',optimizer='SGD(lr=0.00001)',metrics=['accuracy']",
]
ROWS = 2000


@pytest.fixture(scope="module", autouse=True)
def trained(trial: Trial) -> None:
    trial.sql(CUSTOMERS, ROWS)
    trial.pack("customers", "packed", "gone", COLUMNS, options={"columns": SAID})
    width = trial.value("SELECT independent_var_shape[2] FROM packed LIMIT 1")
    model = trial.model(nets.mlp(width, 8, 2))
    trial.select("configs", [model], CONFIGS, ["batch_size=32"])
    trial.fit("packed", "models", "configs", 3)


def features(trial: Trial) -> np.ndarray:
    """Return the features of all rows of `customers`, in the order of the ids."""
    said = json.dumps({"columns": {"id": {"scale": "none", "input": "id"}, **SAID}})
    trial.sql("DROP TABLE IF EXISTS numbered, numbered_summary")
    trial.call(
        "training_preprocessor_dl",
        "customers",
        "numbered",
        "gone",
        f"id, {COLUMNS}",
        options=json.loads(said),
    )
    ids = column(trial.sql, "id", "<f4", "numbered")[:, 0]
    return column(trial.sql, "independent_var", "<f4", "numbered")[np.argsort(ids)]


def best(trial: Trial) -> int:
    return trial.value(
        "SELECT mst_key FROM models_info"
        " ORDER BY training_metrics_final DESC, training_loss_final, mst_key LIMIT 1"
    )


def forward(trial: Trial, key: int, rows: np.ndarray) -> np.ndarray:
    """Return the class probabilities of the rows, computed by NumPy from the weights of a config."""
    flat = np.frombuffer(trial.weights("models")[key], "<f4")
    width = rows.shape[1]
    sizes = [(width, 8), (8,), (8, 2), (2,)]
    w1, b1, w2, b2 = (
        part.reshape(size)
        for part, size in zip(np.split(flat, np.cumsum([np.prod(s) for s in sizes])[:-1]), sizes, strict=True)
    )
    logits = np.maximum(rows @ w1 + b1, 0) @ w2 + b2
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def test_a_table_is_predicted_by_its_columns(trial: Trial) -> None:
    expected = forward(trial, 1, features(trial))
    trial.sql("DROP TABLE IF EXISTS out; DROP VIEW IF EXISTS other_order")
    trial.sql(
        "CREATE VIEW other_order AS"
        " SELECT x, level, active, seen, joined, plan, city, income, age, id, 1 AS more FROM customers"
    )
    trial.call("madlib_predict", "models", "other_order", "id", "*", "out", mst_key=1)
    found = trial.sql("SELECT prob FROM out WHERE class_value = 'yes' ORDER BY id")
    assert np.abs(np.array(found)[:, 0] - expected[:, 1]).max() < 1e-5


@pytest.mark.postgresql
def test_rows_in_a_query_are_predicted_by_the_best_config(trial: Trial) -> None:
    expected = forward(trial, best(trial), features(trial))
    found = trial.sql("SELECT p.* FROM customers c, cerebro.predict('models', c) AS p ORDER BY c.id")
    classes = [("no", "yes")[place] for place in expected.argmax(axis=1)]
    assert [row[0] for row in found] == classes
    assert np.abs(np.array([row[1] for row in found]) - expected.max(axis=1)).max() < 1e-5
    assert np.abs(np.array([row[3]["yes"] for row in found]) - expected[:, 1]).max() < 1e-5


@pytest.mark.postgresql
def test_a_query_is_predicted_many_rows_at_a_time(trial: Trial) -> None:
    trial.sql("DROP VIEW IF EXISTS doubled")
    trial.sql("CREATE VIEW doubled AS SELECT c.* FROM customers c, generate_series(1, 5)")
    by_row = trial.sql("SELECT c.id, p.class, p.probability FROM doubled c, cerebro.predict('models', c) p")
    found = trial.sql(
        "SELECT (p.source).id, p.class, p.probability FROM cerebro.predict_query("
        "'models', 'SELECT * FROM doubled -- all', NULL::customers) AS p"
    )
    assert len(found) == 5 * ROWS
    for one, other in zip(sorted(by_row), sorted(found), strict=True):
        assert one[:2] == other[:2] and abs(one[2] - other[2]) < 1e-5
    for query, code in {
        "SELECT id FROM customers": "42703",
        "SELECT * FROM nowhere": "42P01",
        "": "22004",
        "SELECT * FROM customers; DROP TABLE customers": "42601",
    }.items():
        with pytest.raises(psycopg2.Error) as caught:
            trial.sql("SELECT count(*) FROM cerebro.predict_query('models', %s, NULL::customers)", query)
        assert caught.value.pgcode == code, query
    trial.sql("DROP VIEW IF EXISTS narrow; CREATE VIEW narrow AS SELECT id, age FROM customers")
    with pytest.raises(psycopg2.Error, match='the row type "narrow" lacks columns'):
        trial.sql("SELECT count(*) FROM cerebro.predict_query('models', 'TABLE customers', NULL::narrow)")
    with pytest.raises(psycopg2.Error, match="row_type is of no table"):
        trial.sql("SELECT count(*) FROM cerebro.predict_query('models', 'SELECT 1', NULL::int)")


@pytest.mark.postgresql
def test_predictions_of_queries_are_nested(trial: Trial) -> None:
    few = "SELECT * FROM customers WHERE id <= 2"
    inner = f"(SELECT count(*) FROM cerebro.predict_query('models', '{few}', NULL::customers))"
    asked = f"{few} AND id < {' + '.join([inner] * 9)}"
    count = "SELECT count(*) FROM cerebro.predict_query('models', %s, NULL::customers)"
    assert trial.sql(count, asked) == [(2,)]


@pytest.mark.postgresql
def test_rows_of_a_query_are_filled_in_by_their_names(trial: Trial) -> None:
    """predict_query finds columns by name, also if their order differs or the query has more columns."""
    asked = (
        "SELECT age AS level, level AS age, plan AS city, city AS plan, income, joined, seen, active, x, gone"
    )
    found = trial.sql(
        "SELECT p.source, p.class FROM cerebro.predict_query('models', %s, NULL::customers) AS p"
        " ORDER BY (p.source).id LIMIT 3",
        f"{asked}, id, far, note, 1 AS more FROM customers",
    )
    trial.sql("DROP TABLE IF EXISTS turned_rows")
    trial.sql("CREATE TABLE turned_rows AS SELECT id, level AS age, income, far, plan AS city, city AS plan,"
              " age AS level, joined, seen, note, active, x, gone FROM customers")  # fmt: skip
    expected = trial.sql(
        "SELECT t::text, p.class FROM turned_rows AS t, cerebro.predict('models', t) AS p"
        " ORDER BY t.id LIMIT 3"
    )
    assert found == expected
    with pytest.raises(psycopg2.Error, match="column the_query.far does not exist"):
        trial.sql(
            "SELECT count(*) FROM cerebro.predict_query('models', %s, NULL::customers)",
            f"{asked}, id, note FROM customers",
        )


@pytest.mark.postgresql
def test_a_config_is_named_by_its_key(trial: Trial) -> None:
    expected = forward(trial, 2, features(trial)[:5])
    found = trial.sql(
        "SELECT p.probability FROM customers c, cerebro.predict('models', c, mst_key => 2) AS p"
        " ORDER BY c.id LIMIT 5"
    )
    assert np.abs(np.array(found)[:, 0] - expected.max(axis=1)).max() < 1e-5


@pytest.mark.slow
@pytest.mark.postgresql
def test_a_first_answer_of_a_graph_needs_no_engine_and_is_the_same(trial: Trial, connect: Connect) -> None:
    trial.sql("SELECT cerebro.load_net('points', 'packed', 'tabular', %s)", json.dumps({"width": 8}))
    trial.select("graphs", [1], CONFIGS[:1], ["batch_size=32"], "points")
    trial.fit("packed", "graph_models", "graphs", 1)
    asked = (
        "SELECT c.id, p.probability, p.class FROM customers c, cerebro.predict('graph_models', c) AS p"
        " WHERE c.id < 50 ORDER BY c.id"
    )
    found = []
    for starts_engine in (False, True):
        session = connect()
        if starts_engine:
            start_keras(session, "models", "customers")
        found.append(execute(session, asked))
        assert has_keras(session) is starts_engine
    by_numpy, by_engine = found
    assert [row[0::2] for row in by_numpy] == [row[0::2] for row in by_engine]
    assert [row[1] for row in by_numpy] == pytest.approx([row[1] for row in by_engine], abs=1e-5)


MANY_ROWS = {
    "predict_query": "SELECT (q.source).id, q.class, q.probability"
    " FROM cerebro.predict_query('models', 'SELECT * FROM customers', NULL::customers) AS q ORDER BY 1",
    "confusion_matrix": "SELECT * FROM cerebro.confusion_matrix('models', 'packed') AS m ORDER BY 1, 2",
    "worst_rows": "SELECT w.loss FROM cerebro.worst_rows('models', 'customers') AS w ORDER BY 1",
    "ensemble": "SELECT cerebro.ensemble('models', 'joined', packed_table => 'others')",
}


@pytest.mark.postgresql
@pytest.mark.parametrize(
    "door",
    [
        "predict_query",
        "worst_rows",
        pytest.param("confusion_matrix", marks=pytest.mark.slow),
        pytest.param("ensemble", marks=pytest.mark.slow),
    ],
)
def test_many_rows_of_a_plain_net_need_no_engine(trial: Trial, connect: Connect, door: str) -> None:
    if door == "ensemble":
        trial.call("validation_preprocessor_dl", "customers", "others", "gone", "*", "packed")
    found = []
    for starts_engine in (False, True):
        trial.sql("DROP TABLE IF EXISTS joined, joined_summary")
        session = connect()
        if starts_engine:
            start_keras(session, "models", "customers")
        said = execute(session, MANY_ROWS[door])
        assert has_keras(session) is starts_engine
        found.append(said)
    for by_numpy, by_engine in zip(*found, strict=True):
        assert by_numpy == tuple(pytest.approx(value, abs=1e-5) for value in by_engine)


def test_a_confusion_matrix_counts_labels_and_predictions(trial: Trial) -> None:
    expected = forward(trial, 2, features(trial)).argmax(axis=1)
    labels = trial.sql("SELECT gone FROM customers ORDER BY id")
    pairs = [(label, ("no", "yes")[place]) for (label,), place in zip(labels, expected, strict=True)]
    found = trial.sql("SELECT * FROM cerebro.confusion_matrix('models', 'packed', 2)")
    assert {row[:2]: row[2] for row in found} == {pair: pairs.count(pair) for pair in set(pairs)}
    assert sum(rows for *_, rows in trial.sql("SELECT * FROM cerebro.confusion_matrix('models', 'packed')"))
    trial.sql("DROP TABLE IF EXISTS ages, ages_summary")
    trial.pack("customers", "ages", "far", "age, income", options={"columns": "auto"})
    for table, code, said in (
        ("ages", "0A000", "no single label"), ("customers", "42P01", "not a packed table"),
        ("nowhere", "42P01", "nowhere"), ("numbered", "55000", "was not packed as the rows"),
    ):  # fmt: skip
        with pytest.raises(psycopg2.Error, match=said) as caught:
            trial.sql("SELECT * FROM cerebro.confusion_matrix('models', %s)", table)
        assert caught.value.pgcode == code, table


def predict_row(trial: Trial, said: str) -> object:
    return trial.value(
        f"SELECT p.probability FROM (SELECT {said}) AS c, cerebro.predict('models', c, mst_key => 1) p"
    )


ROW = {
    "age": "30", "income": "10.5", "city": "'city 4'", "plan": "'free'", "joined": "'2021-05-05'::date",
    "seen": "'2000-02-05 10:00Z'::timestamptz", "active": "true", "level": "3", "x": "ARRAY[1, 2]",
}  # fmt: skip


def listed(**changed: str) -> str:
    return ", ".join(f"{value} AS {name}" for name, value in {**ROW, **changed}.items() if value)


@pytest.mark.postgresql
def test_what_is_unseen_or_null_has_its_place(trial: Trial) -> None:
    ordinary = predict_row(trial, listed())
    for changed in (
        {"city": "'nowhere'"},
        {"plan": "NULL::text"},
        {"age": "NULL::int"},
        {"seen": "NULL::timestamptz"},
    ):
        assert predict_row(trial, listed(**changed)) != ordinary
    # All unseen categories have the same code.
    assert predict_row(trial, listed(city="'nowhere'")) == predict_row(trial, listed(city="'elsewhere'"))
    assert (
        predict_row(
            trial, listed(age="30::numeric", active="'true'::boolean", joined="'2021-05-05'::timestamp")
        )
        == ordinary
    )


WRONG = {
    "digits with a score": (listed(age="'1_0'::text"), "42804", '"age" has the value "1_0"'),
    "digits of another script": (listed(age="'٩'::text"), "42804", '"age" has the value'),
    "nan as text": (listed(age="'nan'::text"), "42804", '"age" has the value "nan"'),
    "a date of another script": (listed(joined="'٢٠٢٤-01-01'::text"), "42804", '"joined" has the value'),
    "texts in an array": (listed(x="ARRAY['1_0', '2']"), "42804", '"x" has the value'),
    "a number for a text": (listed(city="'{}'::json"), "42804", '"city" has the value {}'),
    "nested JSON": (
        listed(city="'a'", more="(repeat('[', 5000) || repeat(']', 5000))::json"),
        "22023",
        "cannot be read",
    ),
    "a missing column": (listed(city=""), "42703", 'no column "city"'),
    "another type": (listed(age="'old'"), "42804", '"age" has the value "old"'),
    "another shape": (listed(x="ARRAY[1, 2, 3]"), "22023", "the shape [3], not [2]"),
    "infinity": (listed(income="'Infinity'::float8"), "22023", "infinity"),
    "no array": (listed(x="NULL::int[]"), "22004", 'column "x" is NULL'),
}


@pytest.mark.postgresql
@pytest.mark.parametrize("said, code, text", WRONG.values(), ids=WRONG)
def test_rows_that_are_wrong_are_told(trial: Trial, said: str, code: str, text: str) -> None:
    with pytest.raises(psycopg2.Error) as caught:
        predict_row(trial, said)
    assert (caught.value.pgcode, text in str(caught.value)) == (code, True), caught.value


TABLES = {
    "a column is gone": ("SELECT id, age FROM customers", "42703", 'lacks columns "income", "city"'),
    "a column has another type": ("SELECT id, 'x' AS age, income, city, plan, joined, seen, "
                                  "active, level, x FROM customers", "42804", '"age" of .* is text'),
}  # fmt: skip


@pytest.mark.parametrize("query, code, text", TABLES.values(), ids=TABLES)
def test_tables_that_do_not_fit_are_refused(trial: Trial, query: str, code: str, text: str) -> None:
    trial.sql("DROP TABLE IF EXISTS out; DROP VIEW IF EXISTS wrong")
    trial.sql(f"CREATE VIEW wrong AS {query}")
    with pytest.raises(psycopg2.Error, match=text) as caught:
        trial.call("madlib_predict", "models", "wrong", "id", "*", "out", mst_key=1)
    assert caught.value.pgcode == code
    assert trial.value("SELECT to_regclass('out')") is None


@pytest.mark.postgresql
def test_rights_are_looked_at_in_each_statement(trial: Trial, role: MakeRole, connect: Connect) -> None:
    reader = role()
    own = connect(user=reader)
    query = "SELECT count(*) FROM customers c, cerebro.predict('models', c) p WHERE c.id < 5"
    trial.sql(f"GRANT SELECT ON customers, models, models_info, models_summary TO {reader}")
    assert execute(own, query) == [(4,)]
    trial.sql(f"REVOKE SELECT ON models FROM {reader}")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        execute(own, query)


@pytest.mark.postgresql
def test_a_model_that_changes_within_a_procedure_answers_anew(trial: Trial) -> None:
    """A procedure that commits is one statement, and begins to count its commands anew."""
    asked = f"SELECT p.probability FROM (SELECT {listed()}) c, cerebro.predict('models', c, mst_key => 1) p"
    trial.sql("CREATE TABLE answers (number serial, probability float8)")
    trial.sql(
        "CREATE PROCEDURE serve() LANGUAGE plpgsql AS $p$ BEGIN"
        f" INSERT INTO answers (probability) {asked}; COMMIT;"
        " UPDATE models SET model_weights = (SELECT model_weights FROM models WHERE mst_key = 2)"
        " WHERE mst_key = 1; COMMIT;"
        f" INSERT INTO answers (probability) {asked}; END $p$"
    )
    kept = trial.weights("models")[1]
    trial.sql("CALL serve()")
    trial.sql("UPDATE models SET model_weights = %s WHERE mst_key = 1", kept)
    first, second = trial.sql("SELECT probability FROM answers ORDER BY number")
    assert first != second


@pytest.mark.postgresql
def test_a_model_that_changes_within_a_transaction_answers_anew(trial: Trial) -> None:
    before = predict_row(trial, listed())
    trial.sql(
        "UPDATE models SET model_weights = (SELECT model_weights FROM models WHERE mst_key = 2)"
        " WHERE mst_key = 1"
    )
    assert predict_row(trial, listed()) != before


def carried(trial: Trial, table: str, mst_key: int) -> None:
    """Copy a model's net and weights into an architecture table, as for a model from elsewhere."""
    trial.sql(f"DROP TABLE IF EXISTS {table}")
    # In two statements, because on Greenplum a query that reads tables cannot call load_keras_model.
    ((net, weights),) = trial.sql(
        "SELECT model_arch::text, model_weights FROM models WHERE mst_key = %s", mst_key
    )
    trial.sql("SELECT cerebro.load_keras_model(%s, %s, %s)", table, net, weights)


def test_a_model_from_elsewhere_takes_the_specification_along(trial: Trial) -> None:
    """A model from elsewhere predicts the same if its classes and specification are passed with it."""
    key = best(trial)
    carried(trial, "mine", key)
    trial.sql("DROP TABLE IF EXISTS told, brought")
    trial.sql("SELECT cerebro.madlib_predict('models', 'customers', 'id', '*', 'told', mst_key => %s)", key)
    trial.sql(
        "SELECT cerebro.madlib_keras_predict_byom('mine', 1, 'customers', 'id', '*', 'brought',"
        " class_values => (SELECT gone_class_values FROM models_summary),"
        " features => (SELECT feature_specification FROM models_summary))"
    )
    assert trial.value("SELECT count(*) FROM brought") == 2 * ROWS
    same = "SELECT count(*) FROM told AS t JOIN brought AS b USING (id, class_value, rank, prob)"
    assert trial.value(same) == 2 * ROWS


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("features => '{}'", "feature specification cannot be used: its version is null"),
        (
            "features => (SELECT feature_specification FROM models_summary), normalizing_const => 255",
            "normalizing_const is 255, but features says",
        ),
    ],
)
def test_what_cannot_go_with_an_own_model_is_refused(trial: Trial, said: str, message: str) -> None:
    carried(trial, "mine", best(trial))
    trial.sql("DROP TABLE IF EXISTS refused")
    with pytest.raises(psycopg2.Error, match=message):
        trial.sql(
            "SELECT cerebro.madlib_keras_predict_byom('mine', 1, 'customers', 'id', '*', 'refused',"
            f" {said})".replace("%", "%%")
        )
    assert trial.value("SELECT to_regclass('refused')") is None


ODD = """CREATE TABLE odd AS
SELECT i AS id, (i % 5)::numeric(10, 2) AS n, (i % 5) * 0.5::float8 AS f, i % 2 = 0 AS b,
       '2024-01-01'::date + i % 4 AS d,
       '2024-01-01 10:00:00.25Z'::timestamptz + i % 4 * interval '1 hour' AS z,
       '10:00'::time + i % 4 * interval '1 hour' AS t,
       ('10.0.0.' || i % 3)::inet AS ip, ('10.' || i % 3 || '.0.0/16')::cidr AS net,
       ('a' || i % 3)::char(5) AS c, (i % 3)::bit(3) AS bits,
       (ARRAY['sad', 'ok'])[1 + i % 2]::mood AS m, int4range(i % 3, 9) AS r,
       (i % 3 + 1)::counted AS k, i % 2 AS y
  FROM generate_series(1, 120) AS i"""
SETTINGS = "SET timezone = 'Asia/Tokyo'; SET datestyle = 'German'; SET intervalstyle = 'iso_8601'"


@pytest.mark.postgresql
def test_all_forms_see_the_same_in_values_of_any_type(trial: Trial) -> None:
    """Tables, queries and rows get equal predictions for categories of any type, under any settings."""
    trial.sql("CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN counted AS integer CHECK (VALUE > 0)")
    trial.sql(ODD)
    names = "n, f, b, d, z, t, ip, net, c, bits, m, r, k"
    said = {name: {"encode": "one_hot"} for name in names.split(", ")}
    trial.pack("odd", "odd_packed", "y", names, options={"columns": said})
    trial.sql("SELECT cerebro.load_net('odd_nets', 'odd_packed', 'linear')")
    trial.select("odd_configs", [1], [CONFIGS[0].replace("0.01", "0.1")], ["batch_size=32"], arch="odd_nets")
    trial.fit("odd_packed", "odd_models", "odd_configs", 2)
    trial.sql("SELECT cerebro.madlib_predict('odd_models', 'odd', 'id', '*', 'odd_told', mst_key => 1)")
    told = {(key, kind): p for key, kind, p in trial.sql("SELECT id, class_value, prob FROM odd_told")}
    forms = (
        "SELECT o.id, p.class, p.probability FROM odd AS o, cerebro.predict('odd_models', o) AS p",
        "SELECT (p.source).id, p.class, p.probability"
        " FROM cerebro.predict_query('odd_models', 'SELECT * FROM odd', NULL::odd) AS p",
    )
    for settings in ("SELECT 1", SETTINGS):
        trial.sql(settings)
        for form in forms:
            found = {(key, kind): p for key, kind, p in trial.sql(form)}
            assert found == pytest.approx({key: told[key] for key in found}, abs=1e-6), (settings, form)
    trial.sql("RESET timezone; RESET datestyle; RESET intervalstyle")


@pytest.mark.postgresql
def test_all_forms_see_the_same_in_categories_of_other_types(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE spelled AS SELECT i AS id, 'a' || i % 3 AS a, (i % 3)::text AS b,"
        " (i % 3 + 0.5)::numeric(5, 2) AS n, ('a' || i % 3)::char(5) AS c, (i % 3 = 1)::integer AS y"
        " FROM generate_series(1, 60) AS i"
    )
    trial.sql(
        "CREATE VIEW respelled AS SELECT id, a::char(5), b::numeric(5, 2), n::float8::text AS n,"
        " c || '  ' AS c FROM spelled"
    )
    said = {name: {"encode": "one_hot"} for name in "abnc"}
    trial.pack("spelled", "spelled_packed", "y", "a, b, n, c", options={"columns": said})
    trial.sql("SELECT cerebro.load_net('spelled_nets', 'spelled_packed', 'linear')")
    compiled = [CONFIGS[0].replace("0.01", "0.1")]
    trial.select("spelled_configs", [1], compiled, ["batch_size=32"], arch="spelled_nets")
    trial.fit("spelled_packed", "spelled_models", "spelled_configs", 2)
    given = ("spelled_models", "respelled", "id", "*", "respelled_told", "response")
    trial.call("madlib_predict", *given, mst_key=1)
    told = trial.sql("SELECT id, class_value, prob FROM respelled_told ORDER BY id")
    for form in (
        "SELECT r.id, p.class, p.probability FROM respelled AS r, cerebro.predict('spelled_models', r) AS p",
        "SELECT (p.source).id, p.class, p.probability"
        " FROM cerebro.predict_query('spelled_models', 'TABLE respelled', NULL::respelled) AS p",
    ):
        for one, other in zip(trial.sql(f"{form} ORDER BY 1"), told, strict=True):
            assert one == pytest.approx(other, abs=1e-6), form
