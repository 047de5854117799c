"""cerebro.ensemble joins several nets to one net, which answers with their weighted mean."""

from __future__ import annotations

import json
import math

import psycopg2
import pytest

from mixed import CUSTOMERS
from trial import ADAM, Trial

SAID = {"city": {"encode": "embed"}, "note": {"tokens": 8, "vocabulary": 50}}
CHAIN = {
    "module": "keras",
    "class_name": "Sequential",
    "config": {
        "name": "chain",
        "layers": [
            {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [None, 2]}},
            {"module": "keras.layers", "class_name": "BatchNormalization", "config": {}},
            {"module": "keras.layers", "class_name": "Dense", "config": {"units": 1}},
        ],
    },
}


@pytest.fixture(scope="module", autouse=True)
def models(trial: Trial) -> None:
    trial.sql(CUSTOMERS, 500)
    trial.sql(
        "CREATE TABLE sums AS SELECT id, a, b, (1000 * (a + b * b))::real AS y FROM ("
        "SELECT i AS id, sin(i) AS a, cos(i * i) AS b FROM generate_series(1, 300) AS i) AS s"
    )
    options = json.dumps({"columns": SAID, "validation": 0.3, "segments": 2})
    pack = "SELECT cerebro.training_preprocessor_dl(%s, %s, %s, %s, options => %s)"
    trial.sql(pack, "customers", "mixed", "gone", "age, city, note, plan, x", options)
    trial.sql(pack, "sums", "sums_packed", "y", "a, b", json.dumps({"columns": "auto", "validation": 0.3}))
    for net, params in (("linear", None), ("tabular", {"width": 8}), ("tabm", {"width": 8, "members": 3})):
        given = params and json.dumps(params)
        trial.sql("SELECT cerebro.load_net('nets', 'mixed', %s, %s)", net, given)
        if net != "linear":
            trial.sql("SELECT cerebro.load_net('sum_nets', 'sums_packed', %s, %s)", net, given)
    trial.sql("SELECT cerebro.load_keras_model('sum_nets', %s)", json.dumps(CHAIN))
    trial.select("mst", [1, 2, 3], [ADAM], ["batch_size=16,epochs=1"], arch="nets")
    compiled = "loss='mse',optimizer='Adam(learning_rate=0.03)',loss_weights=[1e-5]"
    trial.select("sum_mst", [1, 2, 3], [compiled], ["batch_size=16,epochs=1"], arch="sum_nets")
    trial.fit("mixed", "out", "mst", 4, validation_table="mixed_validation")
    trial.fit("sums_packed", "sum_out", "sum_mst", 4, validation_table="sums_packed_validation")


def probabilities(trial: Trial, model: str, key: int | None) -> dict[tuple[int, str], float]:
    """Predict `customers` into a table, and return the probability for each row id and class."""
    trial.sql("DROP TABLE IF EXISTS said")
    trial.sql(
        "SELECT cerebro.madlib_predict(%s, 'customers', 'id', '*', 'said', 'prob', mst_key => %s)", model, key
    )
    return {(row, value): prob for row, value, prob in trial.sql("SELECT id, class_value, prob FROM said")}


def quantities(trial: Trial, model: str, key: int | None) -> dict[int, float]:
    """Predict `sums` into a table, and return the prediction for each row id."""
    trial.sql("DROP TABLE IF EXISTS said")
    trial.sql("SELECT cerebro.madlib_predict(%s, 'sums', 'id', '*', 'said', mst_key => %s)", model, key)
    return dict(trial.sql("SELECT id, prediction FROM said"))


def test_it_answers_with_the_weighted_mean(trial: Trial) -> None:
    parts = dict(trial.sql("SELECT * FROM cerebro.ensemble('out', 'joined', 6, 'accuracy')"))
    assert parts.keys() <= {1, 2, 3} and math.isclose(sum(parts.values()), 1)
    assert "joined is the mean of " in trial.notices()
    alone = {key: probabilities(trial, "out", key) for key in parts}
    joined = probabilities(trial, "joined", None)
    for place, answer in joined.items():
        mean = sum(share * alone[key][place] for key, share in parts.items())
        assert answer == pytest.approx(mean, abs=2e-6)


@pytest.mark.postgresql
def test_it_answers_a_row_in_a_query(trial: Trial) -> None:
    trial.sql("SELECT cerebro.ensemble('out', 'by_row')")
    by_table = probabilities(trial, "by_row", None)
    by_row = trial.sql(
        "SELECT c.id, p.class, p.probability FROM customers AS c, cerebro.predict('by_row', c) AS p LIMIT 20"
    )
    for row, answer, probability in by_row:
        assert probability == pytest.approx(by_table[row, answer], abs=2e-6)


def test_the_least_error_on_held_out_rows_counts(trial: Trial) -> None:
    trial.sql("SELECT cerebro.ensemble('out', 'least', metric => 'logloss')")
    trial.sql("SELECT cerebro.madlib_evaluate('least', 'mixed_validation', 'measured')")
    best = trial.value("SELECT min(validation_loss_final) FROM out_info")
    assert trial.value("SELECT loss FROM measured") <= best + 1e-5


def test_nets_that_are_too_sure_get_a_temperature(trial: Trial) -> None:
    """Nets that have memorized random labels are too sure; the ensemble's temperature softens answers."""
    trial.sql(
        "CREATE TABLE coins AS SELECT i AS id, sin(i) AS a, cos(i * i) AS b, sin(i * i * i) AS c,"
        " CASE WHEN hashint4(i) % 2 = 0 THEN 'heads' ELSE 'tails' END AS side"
        " FROM generate_series(1, 300) AS i"
    )
    options = {"columns": "auto", "validation": 0.3}
    trial.pack("coins", "coins_packed", "side", "a, b, c", options=options)
    trial.sql("SELECT cerebro.load_net('coin_nets', 'coins_packed', 'Dense(64, ''relu'')')")
    trial.select("coin_mst", [1], [ADAM.replace("0.01", "0.05")], ["batch_size=16"], arch="coin_nets")
    trial.fit("coins_packed", "sides", "coin_mst", 12, validation_table="coins_packed_validation")
    trial.notices()
    trial.sql("SELECT cerebro.ensemble('sides', 'less_sure')")
    assert "less_sure is the mean of 1 model at temperature " in trial.notices()
    trial.sql("SELECT cerebro.madlib_evaluate('less_sure', 'coins_packed_validation', 'coins_measured')")
    before = trial.value("SELECT validation_loss_final FROM sides_info")
    assert trial.value("SELECT loss FROM coins_measured") < before - 0.01
    # Both classes of a row are raised to the same power.
    asked = "SELECT cerebro.madlib_predict(%s, 'coins', 'id', '*', %s, 'prob')"
    for model in ("sides", "less_sure"):
        trial.sql(asked, model, f"{model}_told")
    (least, most), *_ = trial.sql(
        "SELECT min(d), max(d) FROM (SELECT ln(s.prob / (1 - s.prob)) / ln(l.prob / (1 - l.prob)) AS d"
        " FROM sides_told AS s JOIN less_sure_told AS l USING (id, class_value)"
        " WHERE abs(s.prob - 0.5) BETWEEN 0.03 AND 0.49) AS powers"
    )
    assert least == pytest.approx(most, rel=1e-3) and least > 1
    if trial.topology != "greenplum":
        by_row = trial.sql(
            "SELECT p.probability, l.prob FROM coins AS s, cerebro.predict('less_sure', s) AS p,"
            " less_sure_told AS l WHERE l.id = s.id AND l.class_value = p.class LIMIT 20"
        )
        assert by_row == [(pytest.approx(told, abs=2e-6), told) for _, told in by_row]
    trial.sql("SELECT cerebro.ensemble('sides', 'as_sure', metric => 'accuracy')")
    assert "temperature" not in trial.notices()


def test_nets_of_a_quantity(trial: Trial) -> None:
    """The ensemble predicts the weighted mean of numbers; one of its nets has moving statistics."""
    parts = dict(trial.sql("SELECT * FROM cerebro.ensemble('sum_out', 'sum_joined')"))
    alone = [(share, quantities(trial, "sum_out", key)) for key, share in parts.items()]
    for row, answer in quantities(trial, "sum_joined", None).items():
        assert answer == pytest.approx(sum(share * found[row] for share, found in alone), rel=1e-4, abs=1e-3)
    trial.sql("SELECT cerebro.ensemble('sum_out', 'one_of_all', size => 1, metric => 'mae')")


WRONG = {
    "no round": ("'out', 'x', 0", "size is 0, it must be from 1 to 1000"),
    "a metric of quantities": ("'out', 'x', 3, 'rmse'", "no metric is called 'rmse'"),
    "a table that is there": ("'out', 'sum_out'", '"sum_out" already exists'),
    "no table": ("'nowhere', 'x'", "'nowhere' does not exist"),
    "rows of another kind": ("'out', 'x', packed_table => 'sums_packed'", "was not packed as the rows"),
    "no packed rows": ("'out', 'x', packed_table => 'customers'", "customers"),
}


@pytest.mark.parametrize("arguments, text", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused_and_leaves_nothing(trial: Trial, arguments: str, text: str) -> None:
    with pytest.raises(psycopg2.Error) as caught:
        trial.sql(f"SELECT cerebro.ensemble({arguments})")
    assert text in str(caught.value)
    assert trial.value("SELECT to_regclass('x')") is None


def test_a_chain_alone(trial: Trial) -> None:
    trial.keep("chain_mst", "sum_mst", [3])
    trial.fit("sums_packed", "chains", "chain_mst", 1, validation_table="sums_packed_validation")
    assert trial.sql("SELECT * FROM cerebro.ensemble('chains', 'chains_joined')") == [(3, 1.0)]
    assert "is the mean of 1 model: rmse" in trial.notices()


def test_a_model_without_numbers_is_left_out(trial: Trial) -> None:
    trial.sql("CREATE TABLE odd AS SELECT * FROM out; CREATE TABLE odd_info AS SELECT * FROM out_info")
    trial.sql("CREATE TABLE odd_summary AS SELECT * FROM out_summary")
    trial.sql(
        "UPDATE odd SET model_weights = decode(repeat('0000c07f', octet_length(model_weights) / 4), 'hex')"
        " WHERE mst_key = 2"
    )
    trial.notices()
    parts = dict(trial.sql("SELECT * FROM cerebro.ensemble('odd', 'odd_joined')"))
    assert 2 not in parts
    assert "mst_key 2 is left out: it answers with NaN or infinity" in trial.notices()


def test_rows_that_trained_cannot_choose(trial: Trial) -> None:
    with pytest.raises(psycopg2.Error, match="was trained on the rows of .*mixed.*: they cannot choose"):
        trial.sql("SELECT cerebro.ensemble('out', 'x', packed_table => 'mixed')")
    trial.fit("mixed", "seen", "mst", 1)
    with pytest.raises(psycopg2.Error, match="seen was trained without a validation table"):
        trial.sql("SELECT cerebro.ensemble('seen', 'x')")
    trial.sql("SELECT cerebro.ensemble('seen', 'chosen', packed_table => 'mixed_validation')")
    with pytest.raises(psycopg2.Error, match="chosen holds a single model"):
        trial.sql("SELECT cerebro.ensemble('chosen', 'x')")
