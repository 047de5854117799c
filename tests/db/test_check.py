"""cerebro.check compares new rows with the rows that a model was trained on."""

from __future__ import annotations

from contextlib import closing

import psycopg2
import pytest

from fixtures import Connect, MakeRole, execute
from trial import Trial

ROWS = 4000
OF_CLASSES = ("logloss", "accuracy", "auc", "f1", "balanced_accuracy")
# Numbers that look drawn, the same in each run.
DRAWN = "sqrt(-2 * ln(0.5 / 10007 + (i * 7919 %% 10007) / 10007.0)) * cos(i * 2.399963)"


@pytest.fixture(scope="module", autouse=True)
def model(trial: Trial) -> None:
    trial.sql(
        f"CREATE TABLE rents AS SELECT i, ({DRAWN})::float AS size,"
        " (ARRAY['a','b','c'])[1 + i * 7 %% 3] AS kind,"
        " CASE WHEN i %% 20 > 0 THEN i %% 91 END AS age,"
        f" CASE WHEN ({DRAWN}) + sin(i) * 0.7 > 0 THEN 'yes' ELSE 'no' END AS let"
        " FROM generate_series(1, %s) i",
        2 * ROWS,
    )
    trial.sql(f"CREATE VIEW before AS SELECT * FROM rents WHERE i <= {ROWS}")
    trial.sql(f"CREATE VIEW after AS SELECT * FROM rents WHERE i > {ROWS}")
    options = {"columns": "auto", "exclude": ["i"], "validation": 0.3}
    trial.pack("before", "packed", "let", "*", options=options)
    trial.value("SELECT cerebro.load_net('nets', 'packed', 'linear')")
    trial.select(
        "mst",
        [1],
        ["loss='categorical_crossentropy',optimizer='Adam(lr=0.1)',metrics=['accuracy']"],
        ["batch_size=32"],
        arch="nets",
    )
    trial.fit("packed", "models", "mst", 3, validation_table="packed_validation")
    trial.sql("SELECT cerebro.register('models', 'renting')")


Findings = dict[tuple[str | None, str], tuple[float, float | None, str]]


def check(trial: Trial, source: str, model: str = "renting@1", thresholds: str | None = None) -> Findings:
    found = trial.sql(
        "SELECT column_name, measure, value, before, verdict FROM cerebro.check(%s, %s, thresholds => %s)",
        model,
        source,
        thresholds,
    )
    return {(column, measure): (value, before, verdict) for column, measure, value, before, verdict in found}


def alarms(found: Findings) -> set[tuple[str | None, str]]:
    return {key for key, (_, _, verdict) in found.items() if verdict == "alarm"}


def test_rows_that_are_alike_are_ok(trial: Trial) -> None:
    found = check(trial, "after")
    assert {verdict for _, _, verdict in found.values()} == {"ok"}
    assert set(found) == {
        *((column, measure) for column in ("size", "kind", "age") for measure in ("stability", "nulls")),
        ("kind", "unseen"),
        ("size", "outside"),
        ("age", "outside"),
        (None, "predictions"),
        *((None, metric) for metric in OF_CLASSES),
    }
    value, before, _ = found[None, "accuracy"]
    measured = trial.value("SELECT validation_metrics_final FROM models_info")
    assert before == pytest.approx(measured, abs=1e-6)
    assert value == pytest.approx(measured, abs=0.05)
    assert found["age", "nulls"][:2] == pytest.approx((0.05, 0.05), abs=0.005)
    # A model table gives the same results, computed by the engine in place of NumPy.
    of_table = check(trial, "after", "models")
    assert of_table.keys() == found.keys()
    for key, (value, before, verdict) in of_table.items():
        assert (value, before) == (pytest.approx(found[key][0]), pytest.approx(found[key][1], abs=1e-5))
        assert verdict == "ok"


def test_the_rows_of_a_query_are_checked_with_the_rights_and_names_of_the_caller(trial: Trial) -> None:
    trial.sql("CREATE SCHEMA elsewhere; CREATE VIEW elsewhere.hidden AS TABLE after")
    trial.sql("SET search_path = elsewhere, public")
    try:
        assert check(trial, "SELECT * FROM hidden -- all") == check(trial, "public.after")
    finally:
        trial.sql("RESET search_path")
    kept = trial.sql("SELECT source_table FROM cerebro.model_health ORDER BY check_id DESC LIMIT 2")
    assert kept == [("public.after",), ("SELECT * FROM hidden -- all",)]


def test_what_is_wrong_with_a_query_is_told_of_the_query(trial: Trial) -> None:
    for query, text in (("SELECT * FROM after LIMIT 0", "has no rows"), ("SELECT let FROM after", "lacks")):
        with pytest.raises(psycopg2.Error, match=f"the query {text}"):
            check(trial, query)


def test_what_has_changed_is_told(trial: Trial) -> None:
    trial.sql("CREATE VIEW larger AS SELECT i, size + 0.5 AS size, kind, age, let FROM after")
    assert ("size", "stability") in alarms(check(trial, "larger"))
    trial.sql(
        "CREATE VIEW odd AS SELECT i, size, CASE WHEN i % 3 = 0 THEN 'd' ELSE kind END AS kind,"
        " CASE WHEN i % 2 = 0 THEN age + 200 * (i % 4) END AS age FROM after"
    )
    found = check(trial, "odd")
    assert alarms(found) >= {("kind", "unseen"), ("age", "nulls"), ("age", "outside"), ("age", "stability")}
    assert found["kind", "unseen"][0] == pytest.approx(1 / 3, abs=0.01)
    # A table without the label is checked as far as it goes.
    assert (None, "accuracy") not in found
    quiet = '{"stability": 9, "unseen": 2, "age": {"nulls": 2, "outside": 2}, "predictions": 9}'
    assert alarms(check(trial, "odd", thresholds=quiet)) == set()


def test_answers_that_are_worse_are_told(trial: Trial) -> None:
    trial.sql(
        "CREATE VIEW wrong AS SELECT i, size, kind, age, CASE WHEN i % 3 = 0 THEN"
        " CASE let WHEN 'yes' THEN 'no' ELSE 'yes' END WHEN i % 10 > 0 THEN let END AS let FROM after"
    )
    assert alarms(check(trial, "wrong")) == {(None, metric) for metric in OF_CLASSES}


def test_a_class_that_the_model_lacks_counts_as_wrong(trial: Trial) -> None:
    trial.sql(
        "CREATE VIEW newer AS SELECT i, size, kind, age,"
        " CASE WHEN i % 2 = 0 THEN 'paused' ELSE let END AS let FROM after"
    )
    trial.sql("CREATE VIEW renamed AS SELECT i, size, kind, age, let || '!' AS let FROM after")
    trial.notices()
    found = check(trial, "newer")
    assert {(None, "accuracy"), (None, "logloss")} <= alarms(found) and found[None, "accuracy"][0] < 0.5
    assert f"renting@1 does not know the class of {ROWS // 2} of {ROWS} rows" in trial.notices()
    assert check(trial, "renamed")[None, "accuracy"][0] == 0


def test_a_transaction_that_only_reads_keeps_no_findings(trial: Trial) -> None:
    trial.notices()
    trial.sql("BEGIN READ ONLY")
    assert check(trial, "after")
    trial.sql("COMMIT")
    assert "cerebro.model_health does not get these findings" in trial.notices()


def test_checks_are_kept_and_outlive_the_training_rows(
    trial: Trial, role: MakeRole, connect: Connect
) -> None:
    trial.sql("SELECT cerebro.register('models', 'kept')")
    trial.sql("ALTER TABLE packed RENAME TO away")
    try:
        found = check(trial, "after", "kept")
        assert ("size", "stability") in found
        assert ("size", "stability") not in check(trial, "after", "models")
        assert "training rows of" in trial.notices()
    finally:
        trial.sql("ALTER TABLE away RENAME TO packed")
    kept = trial.read_row("SELECT * FROM cerebro.model_health WHERE name = 'kept'")
    assert (kept["version"], kept["verdict"], kept["rows"]) == (1, "ok", ROWS)
    assert kept["source_table"] == "public.after"
    assert [(one["column"], one["measure"]) for one in kept["findings"]] == list(found)
    name = role()
    trial.sql("GRANT SELECT ON after TO " + name)
    trial.sql("SELECT cerebro.grant_model('kept', %s, 'predict')", name)
    with closing(connect(user=name)) as other:
        assert execute(other, "SELECT count(*) FROM cerebro.check('kept', 'after')") == [(len(found),)]
        assert execute(other, "SELECT * FROM cerebro.model_health") == []
        trial.sql("SELECT cerebro.grant_model('kept', %s, 'read')", name)
        assert execute(other, "SELECT count(*) FROM cerebro.model_health WHERE name = 'kept'") == [(1,)]
    trial.sql("SELECT cerebro.unregister('kept')")
    assert trial.sql("SELECT FROM cerebro._model_check WHERE name = 'kept'") == []


def test_a_run_whose_loss_diverges_is_told(trial: Trial, role: MakeRole, connect: Connect) -> None:
    trial.select(
        "steep",
        [1],
        [f"loss='mse',optimizer='SGD(lr={rate})',metrics=['accuracy']" for rate in ("1e39", "0.01")],
        ["batch_size=32"],
        arch="nets",
    )
    run = trial.fit("packed", "steep_models", "steep", 2)
    found = trial.sql("SELECT mst_key, finding, epoch, advice FROM cerebro.advise(%s)", run)
    assert [one[:3] for one in found] == [(1, "the loss diverges", 1)]
    assert "learning rate" in found[0][3]
    with closing(connect(user=role())) as other, pytest.raises(psycopg2.Error) as caught:
        execute(other, "SELECT * FROM cerebro.advise(%s)", run)
    assert caught.value.pgcode == "42501"
