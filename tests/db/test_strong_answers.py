"""The nets `realmlp` and `tabm` and their ensemble answer alike whatever asks, in the unit of the table."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

import strong
from fixtures import Connect
from predicting import has_keras
from trial import Trial

pytestmark = [pytest.mark.fresh_caller]

Answers = dict[tuple[int, str | None], float]
Model = tuple[str, int | None]
# Each further way costs some seconds of training.
WAYS = ["standard", "log", "classes", pytest.param("clamp", marks=pytest.mark.slow)]
QUANTITIES = [way for way in WAYS if way != "classes"]


@pytest.fixture(scope="module", autouse=True)
def trained(trial: Trial) -> Callable[[str], None]:
    """Pack the rows, and return a function that trains the nets for a target at its first call."""
    strong.pack(trial.sql)
    return functools.cache(functools.partial(strong.train, trial.sql))


@pytest.fixture
def model(trained: Callable[[str], None], way: str, net: str) -> Model:
    """The model table and the mst_key of a net, or of the ensemble, for a target."""
    trained(way)
    return strong.model(way, net)


def read(trial: Trial, table: str, way: str) -> Answers:
    """Return the quantity of each row of a table of predictions, or the probability of each class."""
    columns = "class_value, prob" if way == "classes" else "NULL, prediction"
    return {(row, value): answer for row, value, answer in trial.sql(f"SELECT id, {columns} FROM {table}")}


def by_table(trial: Trial, model: str, key: int | None, way: str, source: str = "asked") -> Answers:
    trial.sql("DROP TABLE IF EXISTS told")
    trial.call("madlib_predict", model, source, "id", "*", "told", mst_key=key)
    return read(trial, "told", way)


def by_row(trial: Trial, model: str, key: int | None, way: str) -> Answers:
    answer = "q.key, q.value::float8" if way == "classes" else "NULL, p.prediction"
    each = "CROSS JOIN jsonb_each_text(p.probabilities) AS q" if way == "classes" else ""
    found = trial.sql(
        f"SELECT s.id, {answer} FROM asked AS s CROSS JOIN cerebro.predict(%s, s, %s) AS p {each}", model, key
    )
    return {(row, value): answer for row, value, answer in found}


def by_query(trial: Trial, model: str, key: int | None, way: str) -> Answers:
    """Return the quantity of each row, or the probability of its class, as predict_query answers."""
    answer = "p.class, p.probability" if way == "classes" else "NULL, p.prediction"
    found = trial.sql(
        f"SELECT (p.source).id, {answer} FROM"
        " cerebro.predict_query(%s, 'SELECT * FROM asked', NULL::asked, %s) AS p",
        model, key,
    )  # fmt: skip
    return {(row, value): answer for row, value, answer in found}


def by_own_model(trial: Trial, model: str, key: int | None, way: str, nets: str | None = None) -> Answers:
    """Return the answers of a net that was loaded with its weights, as if it came from elsewhere.

    If a table of architectures is given, the weights go into its only net.
    """
    trial.sql("DROP TABLE IF EXISTS brought, told")
    which = "" if key is None else f" WHERE mst_key = {key}"
    stored = f"FROM {model}{which}"
    architecture = f"(SELECT model_arch {stored if nets is None else f'FROM {nets}'})"
    trial.sql(f"SELECT cerebro.load_keras_model('brought', {architecture}, (SELECT model_weights {stored}))")
    about = f"FROM {model}_summary"
    values = f"(SELECT kind_class_values {about})" if way == "classes" else "NULL"
    trial.sql(
        "SELECT cerebro.madlib_keras_predict_byom('brought', 1, 'asked', 'id', '*', 'told',"
        f" class_values => {values}, features => (SELECT feature_specification {about}))"
    )
    return read(trial, "told", way)


def likeliest(answers: Answers) -> Answers:
    best: dict[int, tuple[float, str | None]] = {}
    for (row, value), answer in answers.items():
        best[row] = max(best.get(row, (-1.0, None)), (answer, value))
    return {(row, value): answer for row, (answer, value) in best.items()}


def assert_alike(found: Answers, expected: Answers) -> None:
    assert found.keys() == expected.keys() and len(found) >= strong.ASKED_ROWS
    ours, theirs = ([answers[place] for place in sorted(expected, key=str)] for answers in (found, expected))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5 * np.median(np.abs(theirs)))


@pytest.mark.parametrize("net", strong.NETS)
@pytest.mark.parametrize("way", WAYS)
def test_a_net_that_is_brought_answers_as_the_trained_one(trial: Trial, model: Model, way: str) -> None:
    assert_alike(by_own_model(trial, *model, way), by_table(trial, *model, way))


@pytest.mark.postgresql
@pytest.mark.parametrize("net", strong.NETS)
@pytest.mark.parametrize("way", WAYS)
def test_rows_and_queries_are_answered_as_tables_are(
    trial: Trial, connect: Connect, model: Model, way: str
) -> None:
    """In a new session NumPy answers, and in the other one it is compared with Keras at first."""
    expected = by_table(trial, *model, way)
    likely = likeliest(expected) if way == "classes" else expected
    session = Trial(connect())
    for asked in (session, trial):
        assert_alike(by_row(asked, *model, way), expected)
        assert_alike(by_query(asked, *model, way), likely)
    assert not has_keras(session.connection)


@pytest.mark.parametrize("way", QUANTITIES)
def test_the_ensemble_answers_with_the_mean_of_both_in_the_unit(
    trial: Trial, trained: Callable[[str], None], way: str
) -> None:
    trained(way)
    ask = "SELECT * FROM cerebro.ensemble(%s, %s, packed_table => %s)"
    shares = dict(trial.sql(ask, f"{way}_models", f"{way}_again", f"{way}_between_rows"))
    assert shares.keys() == {1, 2}
    alone = {key: by_table(trial, f"{way}_models", key, way) for key in shares}
    mean = {
        place: sum((share * alone[key][place] for key, share in shares.items()), 0.0) for place in alone[1]
    }
    assert_alike(by_table(trial, f"{way}_joined", None, way), mean)


def measured(trial: Trial, model: Model, packed: str) -> tuple[float, float]:
    """Return the metric and the loss of a model on packed rows."""
    trial.sql("DROP TABLE IF EXISTS measured")
    trial.call("madlib_evaluate", model[0], packed, "measured", mst_key=model[1])
    ((metric, loss),) = trial.sql("SELECT metric, loss FROM measured")
    return metric, loss


@pytest.mark.parametrize("net", strong.NETS)
@pytest.mark.parametrize("way", QUANTITIES)
def test_what_is_measured_is_the_error_of_the_answers(trial: Trial, model: Model, way: str) -> None:
    """Both the metric and the loss equal what SQL makes of the predictions and of the table."""
    by_table(trial, *model, way, "later")
    difference = "ln(1 + prediction) - ln(1 + bill)" if way == "log" else "prediction - bill"
    ((error, loss, explained),) = trial.sql(
        f"SELECT avg(abs(prediction - bill)), avg(({difference})^2),"
        " 1 - avg((prediction - bill)^2) / var_pop(bill) FROM told JOIN later USING (id)"
    )
    found = measured(trial, model, "bill_rows_later")
    assert found == (pytest.approx(error, rel=1e-5), pytest.approx(loss, rel=1e-4))
    # In any other unit than that of the table, nothing would be explained.
    assert explained > 0.5


@pytest.mark.parametrize("net", strong.NETS)
@pytest.mark.parametrize("way", ["classes"])
def test_what_is_measured_of_classes_is_what_is_answered(trial: Trial, model: Model, way: str) -> None:
    by_table(trial, *model, way, "later")
    ((right, loss),) = trial.sql(
        "SELECT avg((rank = 1)::int)::float8, avg(-ln(prob)) FROM told JOIN later USING (id)"
        " WHERE kind = class_value"
    )
    found = measured(trial, model, "kind_rows_later")
    assert found == (pytest.approx(right, rel=1e-5), pytest.approx(loss, rel=1e-4))


@pytest.mark.slow
@pytest.mark.parametrize("net", ["realmlp", "tabm"])
@pytest.mark.parametrize("way", ["clamp"])
def test_wild_weights_cannot_leave_the_values_seen(trial: Trial, model: Model, way: str, net: str) -> None:
    """With any weights, a clamped net answers as the same net without a clamp, cut at the bills packed."""
    (table, key), wild = model, f"wild_{net}"
    for part in ("", "_info", "_summary"):
        trial.sql(f"CREATE TABLE {wild}{part} AS SELECT * FROM {table}{part}")
    least, most = trial.sql("SELECT min(bill), max(bill) FROM known")[0]
    strong.load(trial.sql, f"free_{net}", "standard", net)
    given = np.frombuffer(trial.weights(table)[key or 0], "<f4")
    cut: list[str] = []
    for factor in (3, -3):
        large = (given * np.float32(factor)).tobytes()
        trial.sql(f"UPDATE {wild} SET model_weights = %s WHERE mst_key = %s", large, key)
        free = by_own_model(trial, wild, key, way, f"free_{net}")
        cut += ["below" if one < least else "above" for one in free.values() if not least <= one <= most]
        expected = {place: min(max(one, least), most) for place, one in free.items()}
        assert_alike(by_table(trial, wild, key, way), expected)
        if trial.topology != "greenplum":
            assert_alike(by_row(trial, wild, key, way), expected)
    assert set(cut) == {"below", "above"}, cut
