"""Functions that judge a model read labels and inputs of unusual forms as training does."""

from __future__ import annotations

import json

import psycopg2
import pytest

from trial import ADAM, Trial

pytestmark = pytest.mark.fresh_caller

ROWS = 240


@pytest.fixture(scope="module", autouse=True)
def models(trial: Trial) -> None:
    trial.sql(
        "CREATE TABLE marks AS SELECT i AS id, i * 7 %% 60 AS r,"
        " (i * 7 %% 60 > 30)::integer::float8 AS label,"
        " ARRAY[sin(i), cos(i), i %% 3, 1]::real[] AS x,"
        " CASE WHEN i %% 3 > 0 THEN chr(97 + i %% 3) END AS kind"
        " FROM generate_series(1, %s) AS i",
        ROWS,
    )
    options = {"columns": "auto", "exclude": ["id", "x", "kind"], "task": "classification", "validation": 0.2}
    fit(trial, "by_number", "label", "r", options, "Dense(4, 'relu')")
    # "kind" is NULL in a third of the rows.
    fit(trial, "by_shape", "kind", "x", {"shape": [2, 2, 1]}, "Conv2D(4, 1, activation='relu'), Flatten()")


def fit(trial: Trial, name: str, label: str, inputs: str, options: dict[str, object], net: str) -> None:
    trial.pack("marks", f"{name}_rows", label, "*" if "columns" in options else inputs, options=options)
    trial.sql("SELECT cerebro.load_net(%s, %s, %s)", f"{name}_nets", f"{name}_rows", net)
    trial.sql(
        "SELECT cerebro.madlib_fit(%s, %s, %s, 1, %s, 'batch_size=16', 5)",
        f"{name}_rows", name, f"{name}_nets", "loss='categorical_crossentropy',optimizer='Adam(lr=0.03)'",
    )  # fmt: skip


def count_judged(trial: Trial, model: str, rows: str = "marks") -> int:
    trial.notices()
    found = trial.sql("SELECT * FROM cerebro.evaluate_by(%s, %s, ARRAY['r'])", model, rows)
    assert found and "left out" not in trial.notices()
    return trial.value("SELECT count(*) FROM cerebro.worst_rows(%s, %s, 1000)", model, rows)


@pytest.mark.parametrize("kind", ["float8", "integer", "numeric(4,2)", "text"])
def test_a_label_is_known_in_each_spelling_of_its_number(trial: Trial, kind: str) -> None:
    label = "(ARRAY['0.0', '1.0'])[1 + label::integer]" if kind == "text" else f"label::{kind}"
    trial.sql(f"CREATE VIEW spelled AS SELECT id, r, {label} AS label FROM marks")
    assert count_judged(trial, "by_number", "spelled") == ROWS
    trial.sql("DROP VIEW spelled")


def test_a_check_measures_labels_that_are_floats(trial: Trial) -> None:
    ask = "SELECT measure, value FROM cerebro.check('by_number', 'marks') WHERE column_name IS NULL"
    assert dict(trial.sql(ask))["accuracy"] > 0.5


def test_booleans_learned_as_numbers_are_compared_and_labels_of_other_types_are_not(trial: Trial) -> None:
    trial.sql("CREATE TABLE held AS SELECT id, r, label > 0 AS held FROM marks")
    trial.sql("CREATE VIEW not_held AS SELECT id, r, NULL AS held FROM held")
    options = {"task": "regression", "exclude": ["id"], "nets": "linear", "configs": 1, "epochs": 2}
    trial.sql("SELECT * FROM cerebro.train('held', 'held', 'by_held', options => %s)", json.dumps(options))
    for ask in ("evaluate_by('by_held', 'held', ARRAY['r'])", "importance('by_held', 'held')"):
        assert trial.value(f"SELECT count(*) FROM cerebro.{ask}") > 0, ask
    ask = "SELECT measure, value FROM cerebro.check('by_held', %s) WHERE column_name IS NULL"
    assert 0 < dict(trial.sql(ask, "held"))["rmse"] < 1
    trial.notices()
    assert "rmse" not in dict(trial.sql(ask, "not_held"))
    assert 'column "held" of public.not_held is text: answers are not compared' in trial.notices()
    with pytest.raises(psycopg2.Error, match="not a number"):
        trial.sql("SELECT * FROM cerebro.evaluate_by('by_held', 'not_held', ARRAY['r'])")


def test_the_labels_of_a_confusion_matrix_are_spelled_as_its_predictions(trial: Trial) -> None:
    cells = trial.sql("SELECT * FROM cerebro.confusion_matrix('by_number', 'by_number_rows')")
    assert {label for label, _, _ in cells} == {"0.0", "1.0"}
    assert sum(rows for label, predicted, rows in cells if label == predicted) > ROWS / 4


def test_a_row_with_a_column_named_r_is_shown_whole(trial: Trial) -> None:
    shown = trial.value('SELECT "row" FROM cerebro.worst_rows(%s, %s, 1)', "by_number", "marks")
    assert {"id", "r", "label", "kind"} <= shown.keys()


def test_rows_of_the_null_class_are_judged(trial: Trial) -> None:
    assert count_judged(trial, "by_shape") == ROWS
    truths = trial.sql("SELECT DISTINCT truth FROM cerebro.worst_rows('by_shape', 'marks', 1000)")
    assert (None,) in truths and len(truths) == 3


@pytest.mark.postgresql
def test_flat_rows_take_the_shape_of_the_net(trial: Trial) -> None:
    ask = (
        "SELECT (p.source).id, p.class"
        " FROM cerebro.predict_query('by_shape', 'TABLE marks', NULL::marks) AS p ORDER BY 1"
    )
    by_row = "SELECT id, p.class FROM marks AS m, cerebro.predict('by_shape', m) AS p ORDER BY 1"
    assert trial.sql(ask) == trial.sql(by_row)


@pytest.mark.postgresql
@pytest.mark.parametrize(
    "ask",
    [
        "SELECT class FROM cerebro.predict_query('by_shape', 'TABLE short', NULL::short)",
        "SELECT * FROM cerebro.worst_rows('by_shape', 'short')",
    ],
)
def test_rows_of_another_shape_are_refused(trial: Trial, ask: str) -> None:
    trial.sql("CREATE OR REPLACE VIEW short AS SELECT id, r, x[1:3] AS x, kind FROM marks")
    with pytest.raises(psycopg2.Error, match=r'column "x" has rows of shape \[3\]; the model.s input has'):
        trial.sql(ask)


@pytest.mark.postgresql
def test_a_composite_column_is_no_input(trial: Trial) -> None:
    trial.sql(
        "CREATE TYPE place AS (city text, zip text);"
        "CREATE TABLE homes AS SELECT i * 7 % 60 AS size, ROW('c' || i % 4, 'z')::place AS home,"
        " CASE WHEN i * 7 % 60 > 30 THEN 'big' ELSE 'small' END AS kind FROM generate_series(1, 200) AS i"
    )
    options = json.dumps({"configs": 1, "epochs": 1, "nets": "linear", "single": True})
    trial.sql("SELECT FROM cerebro.train('homes', 'kind', 'housed', '20 s', %s)", options)
    assert "(type public.place has no meaning for a net)" in trial.notices()
    assert trial.value("SELECT count(p.class) FROM homes AS h, cerebro.predict('housed', h) AS p") == 200


def test_folds_of_columns_that_became_one_vector_are_refused(trial: Trial) -> None:
    trial.sql("CREATE TABLE pairs AS SELECT r::real AS a, id::real AS b, kind FROM marks WHERE kind > ''")
    trial.pack("pairs", "pair_rows", "kind", "a, b", options={"validation": 0.2})
    trial.sql("SELECT cerebro.load_net('pair_nets', 'pair_rows', 'linear')")
    trial.select("pair_mst", [1], [ADAM], ["batch_size=16"], "pair_nets")
    trial.fit("pair_rows", "paired", "pair_mst", 1, validation_table="pair_rows_validation")
    with pytest.raises(psycopg2.Error, match='pair_rows has "independent_var", which .*pairs lacks'):
        trial.sql("SELECT cerebro.ensemble('paired', 'folded', options => '{\"folds\": 3}')")
