"""`db.train` on a data frame of mixed columns: its leaderboard, files, predictions and errors."""

from __future__ import annotations

import json
import re
from contextlib import closing, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import pandas as pd
import psycopg2
import pytest
from cerebro_db import CerebroError, Database, Run, connect, link
from cerebro_db.statements import literal

from shell import cerebro

ROWS = 400


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    ages = [None if i % 10 == 0 else 18.0 + i * 7 % 60 for i in range(ROWS)]
    plans = [("free", "basic", "pro")[i % 3] for i in range(ROWS)]
    gone = [
        "yes" if (age or 0) > 45 or plan == "pro" else "no" for age, plan in zip(ages, plans, strict=True)
    ]
    return pd.DataFrame(
        {"age": ages, "plan": plans, "joined": pd.date_range("2024", periods=ROWS), "gone": gone}
    )


class Trained(NamedTuple):
    run: Run
    shown: list[str]


@pytest.fixture(scope="module", autouse=True)
def trained(client: Database, frame: pd.DataFrame) -> Trained:
    """Train on the frame, which also makes the table churn_rows; most tests use the run and this table."""
    with redirect_stdout(StringIO()) as out:
        run = client.train(frame, "gone", name="churn", configs=3, epochs=4, nets=["linear", "tabular"])
    return Trained(run, out.getvalue().splitlines())


def test_a_data_frame_is_trained_on_as_it_is(
    client: Database, frame: pd.DataFrame, trained: Trained, greenplum: bool
) -> None:
    run, shown = trained
    assert shown[0] == "packing churn_rows and making nets" and f"run {run.run_id} finished" in shown[-1]
    best = run.leaderboard().to_dict("records")[0]
    assert best["metric"] == "accuracy" and best["value"] > 0.8
    assert run.best().mst_key == best["mst_key"]
    if greenplum:
        # It refuses cerebro.predict.
        assert len(run.predict(frame.drop(columns="gone"))) == ROWS
        return
    told = client.rows("SELECT p.class FROM churn_rows c, cerebro.predict('churn', c) p LIMIT 2")
    assert list(run.predict(frame.drop(columns="gone"))["class"])[:2] == [row["class"] for row in told]
    found = client.rows("SELECT count(p.class) AS n FROM churn_rows c, cerebro.predict('churn', c) p")
    assert found == [{"n": ROWS}]
    together = "SELECT count(p.class) AS n FROM churn_rows c, cerebro.predict('churn_ensemble', c) p"
    assert client.rows(together) == [{"n": ROWS}]


def test_a_frame_may_lack_all_values_and_have_numbers_that_are_categories(client: Database) -> None:
    rng = np.random.default_rng(1)
    routes = rng.integers(0, 12, ROWS)
    given = pd.DataFrame(
        {
            "route": routes,
            "load": np.where(np.arange(ROWS) % 9, rng.normal(size=ROWS), np.nan),
            "day": pd.date_range("2024", periods=ROWS).where(np.arange(ROWS) % 9 != 1),
            "fare": 10.0 * rng.permutation(12)[routes] + rng.normal(size=ROWS),
        }
    )
    said = {"route": {"also_category": True}}
    run = client.train(given, "fare", name="fares", columns=said, configs=1, epochs=1, nets=["linear"])
    one = given[["route", "load", "day"]].iloc[:3].astype(object)
    one[["load", "day"]] = None
    without = "SELECT route, NULL::float8 AS load, NULL::date AS day FROM fares_rows"
    client.rows(f"CREATE VIEW lacking AS {without}")
    told = client.rows("SELECT p.prediction FROM lacking l, cerebro.predict('fares', l) p LIMIT 3")
    found = run.predict(one)["prediction"]
    assert list(found) == pytest.approx([row["prediction"] for row in told], rel=1e-5)


def test_a_session_that_ran_another_engine_is_no_hindrance(client: Database) -> None:
    how = {"configs": 2, "epochs": 1, "nets": ["linear"], "backend": "jax", "metric": "auc"}
    run = client.train("churn_rows", "gone", name="by_jax", **how)
    assert run.status == "finished" and set(run.leaderboard()["metric"].dropna()) == {"auc"}


@pytest.mark.slow
def test_the_command_takes_the_metric_that_decides(client_database: str, client: Database) -> None:
    how = ("--name", "by_f1", "--configs", "2", "--epochs", "1", "--metric", "f1")
    done = cerebro("train", "churn_rows", "gone", *how, database=client_database)
    assert done.code == 0 and " f1 " in done.out and "always '" in done.out, done.out + done.err
    assert client.rows("SELECT count(*) AS n FROM by_f1_ensemble") == [{"n": 1}]


def test_columns_are_packed_as_they_are(client: Database) -> None:
    packed = client.pack("churn_rows", x="*", y="gone", into="as_it_is", columns="auto", validation=0.25)
    assert len(packed) + len(client.packed("as_it_is_validation")) == ROWS
    assert packed.summary()["feature_specification"]["inputs"][0]["name"] == "independent_var"


def test_a_file_carries_what_columns_became_and_weights(client: Database, tmp_path: Path) -> None:
    client.rows("CREATE TABLE weighed AS SELECT *, 2 AS w FROM churn_rows")
    packed = client.pack("weighed", x="*", y="gone", columns="auto", weight="w")
    packed.export(tmp_path / "packed.npz")
    again = client.import_packed(tmp_path / "packed.npz", "weighed_again")
    for key in ("feature_specification", "weight_varname", "total_rows"):
        assert again.summary()[key] == packed.summary()[key]
    sums = "SELECT md5(string_agg(__weight__::text || independent_var::text, '' ORDER BY buffer_id)) FROM "
    assert client.rows(sums + "weighed_packed") == client.rows(sums + "weighed_again")


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("suffix", ["keras", "onnx"])
def test_an_exported_model_has_what_its_columns_became_beside_it(
    client: Database, tmp_path: Path, suffix: str, greenplum: bool
) -> None:
    """The model's file and the file about its columns suffice to predict where run and rows are unknown."""
    config = client.run(client.rows("SELECT run_id FROM churn_summary")[0]["run_id"]).best()
    path = config.save(tmp_path / f"best.{suffix}")
    text = (tmp_path / "best.features.json").read_text()
    assert json.loads(text)["classes"] == {"gone": ["no", "yes"]}
    if suffix == "onnx":
        return
    number = client.architectures.add(keras.models.load_model(path), weights=True)
    client.rows("CREATE TABLE numbered AS SELECT row_number() OVER () AS id, * FROM churn_rows")
    client.rows(
        "SELECT cerebro.madlib_keras_predict_byom(%s, %s, 'numbered', 'id', '*', 'brought', 'response',"
        " class_values => %s, features => %s)",
        client.architectures.table, number, json.loads(text)["classes"]["gone"], text,
    )  # fmt: skip
    if greenplum:
        assert client.rows("SELECT count(*) AS n FROM brought") == [{"n": ROWS}]
        return
    same = """SELECT count(*) AS n FROM brought JOIN numbered AS c USING (id),
                     cerebro.predict('churn', c) AS p
              WHERE class_value = p.class AND abs(prob - p.probability) < 1e-5"""
    assert client.rows(same) == [{"n": ROWS}]


def test_a_report_says_what_columns_became(client: Database, tmp_path: Path) -> None:
    run = client.run(client.rows("SELECT run_id FROM churn_summary")[0]["run_id"])
    text = re.sub(r"<[^>]+>", " ", run.report(tmp_path / "run.html").read_text())
    for wanted in (
        "What the columns became",
        "number: scale standard, fill ",
        "category: encode one_hot, values basic, free, pro",
        "parts days, month, weekday, ",
        ", cyclic, ",
        "nulls ",
    ):
        assert wanted in text, wanted


@pytest.mark.slow
def test_the_command_names_both_files(client_database: str, client: Database, tmp_path: Path) -> None:
    run = client.rows("SELECT run_id FROM churn_summary")[0]["run_id"]
    done = cerebro("export", str(run), "--model", str(tmp_path / "best.keras"), database=client_database)
    assert done.out.split() == [str(tmp_path / name) for name in ("best.keras", "best.features.json")]


def test_the_command_predicts_from_the_columns_as_they_are(client_database: str, client: Database) -> None:
    run = client.rows("SELECT run_id FROM churn_summary")[0]["run_id"]
    client.rows("CREATE TABLE newcomers AS SELECT row_number() OVER () AS id, * FROM churn_rows LIMIT 5")
    done = cerebro("predict", "newcomers", "--id", "id", "--run", str(run), database=client_database)
    assert done.code == 0 and len(re.findall("yes|no", done.out)) == 5, done.out + done.err


def test_the_command_asks_for_features_that_no_model_names(client_database: str, run: Run) -> None:
    done = cerebro("predict", "cars", "--id", "weight", "--run", str(run.run_id), database=client_database)
    assert done.code == 1 and "Name the features as they were packed: --x COLUMNS." in done.err


def test_what_is_wrong_is_said(client: Database, frame: pd.DataFrame) -> None:
    with pytest.raises(CerebroError, match="a data frame needs a name"):
        client.train(frame, "gone")
    with pytest.raises(CerebroError, match='column "left" does not exist'):
        client.train("churn_rows", "left", name="other")


def test_a_refusal_leaves_nothing_behind(client: Database, frame: pd.DataFrame) -> None:
    for wrong in ({"target": "left"}, {"target": "gone", "nets": ["Dens(8)"]}):
        with pytest.raises(CerebroError):
            client.train(frame, **{"name": "again", "configs": 1, "epochs": 1, **wrong})
        assert client.rows("SELECT relname FROM pg_class WHERE relname LIKE 'again%%'") == []
    run = client.train(frame, "gone", name="again", configs=1, epochs=1, nets=["linear"])
    assert run.status == "finished"


def test_rows_that_are_no_table_are_refused(client: Database, frame: pd.DataFrame) -> None:
    with pytest.raises(CerebroError, match="target is a Series, not the name of a column"):
        client.train(frame, frame["gone"], name="alone")  # pyright: ignore[reportArgumentType]
    with pytest.raises(CerebroError, match="a Series is no table of columns") as caught:
        client.train(frame["gone"], "gone", name="alone")
    assert "to_frame()" in str(caught.value.hint)


@pytest.mark.slow
def test_the_models_of_another_run_are_refused(client: Database, frame: pd.DataFrame) -> None:
    how: dict[str, Any] = {"configs": 1, "epochs": 1, "nets": ["linear"], "budget": 20}
    first = client.train("churn_rows", "gone", name="twice", **how)
    made = ("", "_info", "_summary", "_best", "_best_summary", "_nets", "_ensemble", "_ensemble_summary")
    tables = [f"twice{name}" for name in (*made, *(f"_packed{name}" for name in ("", "_summary")))]
    tables += ["twice_packed_validation", "twice_packed_validation_summary"]
    client.rows(f"DROP TABLE {', '.join(tables)}")
    second = client.train("churn_rows", "gone", name="twice", **how)
    assert len(second.predict(frame)) == ROWS
    for ask in (first.models, lambda: first.predict(frame)):
        with pytest.raises(CerebroError, match=f"has the models of run {second.run_id}, and no longer"):
            ask()


def test_numbers_of_numpy_are_numbers(client: Database) -> None:
    newest: Any = np.int64(client.rows("SELECT max(run_id) AS n FROM cerebro.runs")[0]["n"])
    assert client.run(newest).run_id == newest
    assert client.rows("SELECT %s + 1 AS n", newest) == [{"n": newest + 1}]
    assert literal({"configs": np.int64(4)}) == "'{\"configs\": 4}'"
    assert literal(np.float64(0.5)) == "0.5" and literal([np.int64(3)]) == "ARRAY[3]"


def test_training_is_part_of_a_transaction_that_is_open(client_database: str, frame: pd.DataFrame) -> None:
    with closing(psycopg2.connect(dbname=client_database)) as connection:
        client = connect(connection)
        client.rows("SELECT 1")
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        how = {"configs": 1, "epochs": 1, "nets": ["linear"]}
        assert client.train("churn_rows", "gone", name="within", **how).status == "finished"
        connection.rollback()
        assert client.rows("SELECT to_regclass('within') AS made") == [{"made": None}]


def test_a_long_wait_says_what_it_is_for(
    client: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "QUIET_SECONDS", 0.2)
    caplog.set_level("INFO", "cerebro_db")
    client.rows("SELECT pg_sleep(0.5)")
    client.rows("SELECT cerebro.help(), pg_sleep(0.1)")
    assert [record.message for record in caplog.records][:2] == [
        "waiting for the server",
        "waiting for cerebro.help",
    ]
