"""madlib_predict and madlib_keras_predict_byom: predictions equal Keras', and wrong calls are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg2
import psycopg2.errors
import pytest

import nets
from fixtures import Connect, MakeRole, execute
from predicting import (
    KINDS,
    PICTURE,
    ROWS,
    SCALE,
    WRONG,
    ask_as_another,
    make_images,
    make_large,
    outputs,
    probabilities,
    random_weights,
    store,
    store_by_jax,
    train,
)
from trial import Trial, blobs

pytestmark = pytest.mark.fresh_caller


@pytest.fixture(scope="module")
def features() -> np.ndarray:
    return blobs(ROWS)[0]


@pytest.fixture(scope="module", autouse=True)
def trained(trial: Trial) -> None:
    train(trial)


@pytest.fixture(scope="module")
def expected(trial: Trial, features: np.ndarray) -> np.ndarray:
    return probabilities(trial, features)


@pytest.fixture(autouse=True)
def clean(trial: Trial) -> None:
    trial.sql("DROP TABLE IF EXISTS out")


def predict(trial: Trial, *arguments: Any, **named: Any) -> list[tuple[Any, ...]]:
    places = ["%s"] * len(arguments) + [f"{name} => %s" for name in named]
    trial.sql(f"SELECT cerebro.madlib_predict({', '.join(places)})", *arguments, *named.values())
    return trial.sql("SELECT * FROM out ORDER BY 1, class_name, 4 DESC")


def byom(trial: Trial, model_arch: str, weights: bytes, *arguments: Any, **named: Any) -> list[Any]:
    model_id = trial.model(model_arch, "own", weights)
    places = ["%s"] * (len(arguments) + 2) + [f"{name} => %s" for name in named]
    trial.sql(
        f"SELECT cerebro.madlib_keras_predict_byom({', '.join(places)})",
        "own", model_id, *arguments, *named.values(),
    )  # fmt: skip
    return trial.sql("SELECT * FROM out ORDER BY 1, class_name")


def test_every_class_of_every_row_has_the_probability_of_keras(trial: Trial, expected: np.ndarray) -> None:
    found = predict(trial, "many", "new", "id", "x", "out", "prob", False, 2)
    assert len(found) == ROWS * len(KINDS)
    probabilities = np.zeros_like(expected)
    for number, name, kind, probability, rank in found:
        assert name == "kind"
        probabilities[number - 1, KINDS.index(kind)] = probability
        assert rank == 1 + (expected[number - 1] > expected[number - 1, KINDS.index(kind)]).sum()
    assert np.abs(probabilities - expected).max() < 1e-6


def test_response_is_the_most_probable_class_without_a_rank(trial: Trial, expected: np.ndarray) -> None:
    found = predict(trial, "many", "new", "id", "x", "out", "response", False, 2)
    assert [kind for _, _, kind, _ in found] == [KINDS[place] for place in expected.argmax(axis=1)]
    assert np.allclose([p for *_, p in found], expected.max(axis=1), atol=1e-6)


def test_an_integer_asks_for_so_many_classes(trial: Trial) -> None:
    found = predict(trial, "many", "new", "id", "x", "out", 2, False, 2)
    assert [rank for *_, rank in found] == [1, 2] * ROWS
    trial.sql("DROP TABLE out")
    assert [rank for *_, rank in predict(trial, "many", "new", "id", "x", "out", 1, mst_key=2)] == [1] * ROWS


def test_a_fraction_asks_for_what_is_more_probable(trial: Trial, expected: np.ndarray) -> None:
    trial.sql("SELECT cerebro.madlib_keras_predict('many', 'new', 'id', 'x', 'out', 0.4, FALSE, 2)")
    assert trial.value("SELECT count(*) FROM out") == (expected > 0.4).sum()
    assert trial.value("SELECT min(prob) FROM out") > 0.4


def test_a_single_model_is_predicted_with_five_arguments(trial: Trial, features: np.ndarray) -> None:
    weights = bytes(trial.value("SELECT model_weights FROM one"))
    expected = outputs(nets.mlp(), weights, features / np.float32(SCALE))[0]
    found = predict(trial, "one", "new", "id", "x", "out")
    assert np.allclose([p for *_, p, _ in found], -np.sort(-expected, axis=1).ravel(), atol=1e-6)


def test_a_sigmoid_gives_both_classes(trial: Trial, features: np.ndarray) -> None:
    net = nets.mlp(outputs=1, activation="sigmoid")
    weights = random_weights(net)
    store(trial, "two", net, weights, classes=["no", "yes"])
    (expected,) = outputs(net, weights, features)
    found = {(number, kind): p for number, _, kind, p, _ in predict(trial, "two", "new", "id", "x", "out")}
    for number, yes in enumerate(expected[:, 0].astype(float), 1):
        assert found[number, "yes"] == pytest.approx(yes, abs=1e-6)
        assert found[number, "no"] == pytest.approx(1 - yes, abs=1e-6)


def test_logits_become_probabilities(trial: Trial, features: np.ndarray) -> None:
    net = nets.mlp(activation="linear")
    weights = random_weights(net)
    loss = "optimizer='SGD()',loss='CategoricalCrossentropy(from_logits=True)'"
    store(trial, "logits", net, weights, classes=KINDS, compile_params=loss)
    (logits,) = outputs(net, weights, features)
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    found = predict(trial, "logits", "new", "id", "x", "out", "response")
    assert np.allclose([p for *_, p in found], expected.max(axis=1), atol=1e-6)


def test_classes_beyond_those_of_the_training_rows_are_left_out(trial: Trial) -> None:
    net = nets.mlp(outputs=5)
    store(trial, "padded", net, random_weights(net), classes=[*KINDS, None, None])  # type: ignore[list-item]
    found = predict(trial, "padded", "new", "id", "x", "out")
    assert {kind for _, _, kind, *_ in found} == set(KINDS)


def test_a_number_is_predicted_as_a_number(trial: Trial, features: np.ndarray) -> None:
    net = nets.mlp(outputs=1, activation="linear")
    weights = random_weights(net)
    store(trial, "value", net, weights, classes=None)
    (expected,) = outputs(net, weights, features)
    trial.sql("SELECT cerebro.madlib_predict('value', 'new', 'id', 'x', 'out')")
    found = trial.sql("SELECT id, class_name, prediction FROM out ORDER BY id")
    assert np.allclose([value for *_, value in found], expected[:, 0], atol=1e-6)


def test_several_numbers_are_an_array(trial: Trial, features: np.ndarray) -> None:
    net = nets.mlp(outputs=4, activation="linear")
    weights = random_weights(net)
    store(trial, "vector", net, weights, classes=None)
    trial.sql("SELECT cerebro.madlib_predict('vector', 'new', 'id', 'x', 'out')")
    found = [value for (value,) in trial.sql("SELECT prediction FROM out ORDER BY id")]
    expected = outputs(net, weights, features)[0]
    # Processors add up in different orders, which shows where large summands leave a small sum.
    assert np.allclose(found, expected, atol=1e-6 * np.abs(expected).max())


def test_several_inputs_and_outputs(trial: Trial) -> None:
    net = nets.two_by_two([3, 2], 3)
    weights = random_weights(net)
    trial.sql("CREATE TABLE mixed AS SELECT id, x[1:3] AS a, x[4]::float8 AS b1, x[5]::float8 AS b2 FROM new")
    a = np.array([row[0] for row in trial.sql("SELECT a FROM mixed ORDER BY id")], np.float32)
    b = np.array(trial.sql("SELECT b1, b2 FROM mixed ORDER BY id"), np.float32)
    kind, size = outputs(net, weights, a, b)
    named = {"class_values": [["u", "v", "w"], [None, None, None]], "dependent_count": 2}
    found = byom(
        trial, net, weights, "mixed", "id", "a, ARRAY[b1, b2]", "out", "response", False, **named
    )  # fmt: skip
    classes = [row for row in found if row[1] == "dependent_var_0"]
    values = [row for row in found if row[1] == "dependent_var_1"]
    assert [row[2] for row in classes] == ["uvw"[place] for place in kind.argmax(axis=1)]
    assert np.allclose([row[-1] for row in values], size[:, 0], atol=1e-6)


@pytest.fixture(scope="module")
def likely(trial: Trial) -> np.ndarray:
    return make_images(trial)


def test_images_and_boards(trial: Trial, likely: np.ndarray) -> None:
    """Bytes are given the shape of the model's input; arrays of two dimensions already have the shape."""
    weights = random_weights(PICTURE)
    for column in ("image", "board"):
        found = byom(
            trial, PICTURE, weights, "images", "id", column, "out", "response", False, normalizing_const=255
        )
        assert np.allclose([row[3] for row in found], likely, atol=1e-6)
        assert {row[1] for row in found} == {"dependent_var"}
        assert {row[2] for row in found} <= {"0", "1", "2"}
        trial.sql("DROP TABLE out")


def test_plain_columns_are_an_input(trial: Trial) -> None:
    flat = nets.mlp(features=2)
    trial.sql("CREATE TABLE plain AS SELECT 1 AS id, 0.5::real AS u, 3 AS v")
    weights = random_weights(flat)
    ((*_, found),) = byom(trial, flat, weights, "plain", "id", "u, v", "out", "response")
    point = np.array([[0.5, 3]], np.float32)
    assert found == pytest.approx(float(outputs(flat, weights, point)[0].max()), abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "expression"),
    [
        ("text", "CASE WHEN id > 2 THEN 'o''clock \"' || id END"),
        ("numeric(10,2)", "id + 0.25"),
        ("double precision", "id / 3.0"),
        ("timestamp with time zone", "timestamptz '2026-01-01 12:00 UTC' + id * interval '1 us'"),
        ("uuid", "md5(id::text)::uuid"),
        ("integer[]", "ARRAY[id, 2]"),
    ],
)
def test_ids_keep_their_type_and_value(trial: Trial, kind: str, expression: str) -> None:
    trial.sql(
        f"CREATE OR REPLACE TEMP VIEW typed_{kind[:4]} AS SELECT ({expression})::{kind} AS who, x FROM new"
    )
    trial.sql(f"SELECT cerebro.madlib_predict('one', 'typed_{kind[:4]}', 'who', 'x', 'out', 'response')")
    query = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute"
    query += " WHERE attrelid = 'out'::regclass AND attnum = 1"
    assert trial.value(query) == kind
    left = f"(SELECT who FROM typed_{kind[:4]} EXCEPT ALL SELECT who FROM out)"
    assert trial.value(f"SELECT count(*) FROM {left} AS l") == 0


def test_odd_names_work_and_are_never_code(trial: Trial) -> None:
    name = "Ödd \"name'; DROP TABLE rows; --"
    quoted = '"' + name.replace('"', '""') + '"'
    trial.sql(
        f'CREATE TABLE {quoted} AS SELECT id AS {quoted}, x AS "Select x" FROM new LIMIT 10'.replace(
            "%", "%%"
        )
    )
    trial.sql(
        "SELECT cerebro.madlib_predict('one', %s, %s, '\"Select x\"', %s, 'response')",
        quoted, quoted, 'public."Out; put"',
    )  # fmt: skip
    assert trial.value('SELECT count(*) FROM "Out; put"') == 10
    assert trial.value(f'SELECT count({quoted}) FROM "Out; put"') == 10
    assert trial.value("SELECT count(*) FROM rows") == ROWS


def test_the_callers_search_path_finds_and_makes_tables(trial: Trial) -> None:
    trial.sql("CREATE SCHEMA elsewhere; SET search_path = elsewhere, public")
    trial.sql("SELECT cerebro.madlib_predict('one', 'new', 'id', 'x', 'placed')")
    assert trial.value("SELECT count(*) FROM elsewhere.placed") == ROWS * len(KINDS)
    trial.sql("RESET search_path; DROP SCHEMA elsewhere CASCADE")


def test_who_may_not_read_a_model_gets_no_predictions(trial: Trial, role: MakeRole) -> None:
    user = role()
    call = "SELECT cerebro.madlib_predict('many', 'new', 'id', 'x', 'out', mst_key => 2)"
    trial.sql(f"GRANT SELECT ON new, many, many_summary, many_info TO {user}")
    trial.sql(f"SET ROLE {user}")
    try:
        trial.sql(call)
        trial.sql(f"DROP TABLE out; RESET ROLE; REVOKE SELECT ON many FROM {user}; SET ROLE {user}")
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            trial.sql(call)
    finally:
        trial.sql("RESET ROLE")


@pytest.fixture(scope="module")
def large(trial: Trial) -> None:
    make_large(trial)


def test_weights_too_large_for_a_field_come_from_the_run(
    trial: Trial, role: MakeRole, large: None, expected: np.ndarray
) -> None:
    found = predict(trial, "large", "new", "id", "x", "out", "response", False, 2)
    assert np.allclose([p for *_, p in found], expected.max(axis=1), atol=1e-6)
    with pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState, match="state of its run"):
        ask_as_another(
            trial, role, "SELECT cerebro.madlib_predict('large', 'new', 'id', 'x', 'theirs', mst_key => 2)"
        )


@pytest.fixture(scope="module")
def wrong_tables(trial: Trial, greenplum: bool) -> None:
    odd = (
        "SELECT n AS id, n AS prob, 'a'::text AS t, x, x AS x2, x[1:9] AS short,"
        " CASE WHEN n = 1 THEN x END AS gone, CASE WHEN n = 1 THEN x ELSE x[1:9] END AS ragged,"
        " CASE WHEN n = 1 THEN x ELSE array_append(x[2:], 'NaN') END AS nan"
        " FROM new, generate_series(%s, %s) AS n WHERE id = 1"
    )
    # On one segment of a cluster, or either row might be the first.
    together = " DISTRIBUTED BY (t)" if greenplum else ""
    trial.sql(f"CREATE TABLE odd AS {odd}{together}", 1, 1)
    trial.sql(f"INSERT INTO odd {odd}", 2, 2)
    trial.sql("CREATE TABLE odd_summary AS TABLE one_summary")
    trial.sql("CREATE TABLE nothing AS SELECT * FROM new WHERE FALSE")
    trial.sql("CREATE TABLE alone AS TABLE many; CREATE TABLE alone_summary AS TABLE many_summary")
    trial.sql(
        "CREATE TABLE failed AS SELECT * FROM many WHERE mst_key <> 2;"
        " CREATE TABLE failed_info AS TABLE many_info; CREATE TABLE failed_summary AS TABLE many_summary;"
        " UPDATE failed_info SET status = 'failed'"
    )
    number = nets.mlp(outputs=1, activation="linear")
    store(trial, "number", number, random_weights(number), classes=None)
    store(trial, "fewer", nets.mlp(), random_weights(nets.mlp()), classes=KINDS[:2])
    store(trial, "broken", nets.mlp(), b"\0" * 8, classes=KINDS)


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_is_one_clear_error_and_leaves_nothing(
    trial: Trial, wrong_tables: None, case: str
) -> None:
    call, code, message = WRONG[case]
    arguments = [part.strip("'") for part in (call.replace("x, x2", "x|x2")).split(", ")]
    arguments = [argument.replace("|", ", ") for argument in arguments]
    kinds = ["%s"] * len(arguments)
    if len(arguments) > 5 and arguments[5][-1].isdigit():
        kinds[5] = arguments.pop(5)
    before = trial.value("SELECT count(*) FROM pg_class")
    with pytest.raises(psycopg2.Error, match=message) as caught:
        trial.sql(f"SELECT cerebro.madlib_predict({', '.join(kinds)})", *arguments)
    assert caught.value.pgcode == code
    assert trial.value("SELECT count(*) FROM pg_class") == before


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"class_values": ["a", "b"]}, "2 class values, but the model gives 3"),
        ({"class_values": [["a", "b", "c"], ["d", "e", "f"]]}, "2 lists for 1"),
        ({"dependent_count": 2}, "has 1 outputs, dependent_count is 2"),
        ({"dependent_count": 0}, "at least 1"),
        ({"normalizing_const": 0}, "positive"),
    ],
)
def test_what_is_said_of_an_own_model_must_fit_it(trial: Trial, named: dict[str, Any], message: str) -> None:
    with pytest.raises(psycopg2.Error, match=message):
        byom(trial, nets.mlp(), random_weights(nets.mlp()), "new", "id", "x", "out", **named)


def test_an_own_model_needs_weights(trial: Trial) -> None:
    trial.model(nets.mlp(), "bare")
    with pytest.raises(psycopg2.errors.NullValueNotAllowed, match="no model_weights"):
        trial.sql("SELECT cerebro.madlib_keras_predict_byom('bare', 1, 'new', 'id', 'x', 'out')")
    with pytest.raises(psycopg2.Error, match="not found"):
        trial.sql("SELECT cerebro.madlib_keras_predict_byom('bare', 7, 'new', 'id', 'x', 'out')")


@pytest.fixture(scope="module")
def by_jax(trial: Trial, features: np.ndarray) -> np.ndarray:
    return store_by_jax(trial, features)


def test_the_backend_that_trained_the_model_predicts_unless_another_runs(
    trial: Trial, connect: Connect, by_jax: np.ndarray
) -> None:
    other = connect()
    for session in (trial.connection, other):
        execute(session, "DROP TABLE IF EXISTS out")
        execute(session, "SELECT cerebro.madlib_predict('by_jax', 'new', 'id', 'x', 'out', 'response')")
        found = [p for (p,) in execute(session, "SELECT prob FROM out ORDER BY id")]
        assert np.allclose(found, by_jax, atol=1e-5)


def test_a_table_of_many_batches(trial: Trial, expected: np.ndarray) -> None:
    trial.sql("CREATE TABLE big AS SELECT id, n, x FROM new, generate_series(1, 20) AS n")
    trial.sql("SELECT cerebro.madlib_predict('many', 'big', 'id', 'x', 'out', 'response', FALSE, 2)")
    found = trial.sql(
        "SELECT id, class_value, min(prob), max(prob), count(*) FROM out GROUP BY 1, 2 ORDER BY 1"
    )
    assert [row[1] for row in found] == [KINDS[place] for place in expected.argmax(axis=1)]
    assert {row[4] for row in found} == {20}
    assert all(low == pytest.approx(high, abs=1e-6) for _, _, low, high, _ in found)
