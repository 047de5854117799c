"""Models saved to a folder predict without a server as in the server, from the original columns."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import cerebro_db
import numpy as np
import pandas as pd
import pytest
from cerebro_db import CerebroError, Database
from cerebro_db.saved import SavedClassifier, SavedRegressor
from PIL import Image

from mixed import CUSTOMERS, picture
from shell import cerebro, environment

COLUMNS = ["age", "income", "far", "city", "plan", "level", "joined", "seen", "note", "active", "x"]
# A float, a decimal and an integer are categories as well, by the text that the server gives them.
SAID = {name: {"also_category": True} for name in ("far", "income", "level")}
READ = f"SELECT {', '.join(COLUMNS)} FROM clients ORDER BY id"
ANSWERS = (
    "SELECT array_agg(prob ORDER BY class_value) AS probabilities,"
    " (array_agg(class_value ORDER BY prob DESC))[1] AS class FROM answered GROUP BY id ORDER BY id"
)
LOSS = {"loss": "categorical_crossentropy", "optimizer": "Adam", "learning_rate": 0.01, "batch_size": 32}


@pytest.fixture(scope="module", autouse=True)
def trained(client: Database) -> Iterator[None]:
    """Register two versions of `churn`, classifiers of mixed columns; the second is an ensemble."""
    client.rows(CUSTOMERS.replace("customers", "clients", 1), 300)
    packed = client.pack("clients", x=COLUMNS, y="gone", columns=SAID, segments=2, validation=0.3)
    client.rows("SELECT cerebro.load_net('client_nets', 'clients_packed', 'tabular', '{\"width\": 8}')")
    run = client.with_architectures("client_nets").fit(
        packed, {**LOSS, "learning_rate": [0.01, 0.003]}, epochs=2, out="client_models", wait=True, seed=1
    )
    client.models.register(run.models(), "churn")
    judges = "clients_packed_validation"
    client.rows("SELECT cerebro.ensemble('client_models', 'client_joined', 4, NULL, %s)", judges)
    client.models.register("client_joined", "churn")
    yield
    for model in client.models.list()["name"]:
        client.models.drop(model)


@pytest.fixture(scope="module")
def folder(client: Database, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return client.models.save("churn@1", tmp_path_factory.mktemp("saved") / "churn")


def as_in_the_server(client: Database, reference: str) -> tuple[list[str], np.ndarray]:
    client.rows("DROP TABLE IF EXISTS answered")
    client.rows("SELECT cerebro.madlib_predict(%s, 'clients', 'id', '*', 'answered')", reference)
    rows = client.rows(ANSWERS)
    return [row["class"] for row in rows], np.array([row["probabilities"] for row in rows])


@pytest.mark.parametrize("version", [1, 2])
def test_a_folder_answers_as_the_server_does(client: Database, tmp_path: Path, version: int) -> None:
    client.models.save(f"churn@{version}", tmp_path / "here")
    model = cerebro_db.load_model(tmp_path / "here")
    assert isinstance(model, SavedClassifier)
    assert list(model.classes_) == ["no", "yes"]
    assert model.columns == COLUMNS
    classes, probabilities = as_in_the_server(client, f"churn@{version}")
    rows = client.rows(READ)
    for given in (rows, pd.DataFrame(rows)):
        np.testing.assert_allclose(model.predict_proba(given), probabilities, rtol=1e-5, atol=1e-7)
        assert list(model.predict(given)) == classes
    assert model.predict_proba([]).shape == (0, 2)


def test_nothing_but_the_folder_is_needed(folder: Path, client: Database) -> None:
    """The folder suffices in a process that can reach no server, and Keras is not loaded there."""
    program = (
        "import sys, json, datetime, cerebro_db\n"
        f"model = cerebro_db.load_model({str(folder)!r})\n"
        "row = json.loads(sys.argv[1])\n"
        "print(json.dumps(model.predict_proba([row]).tolist()))\n"
        "assert 'keras' not in sys.modules and 'pandas' not in sys.modules\n"
    )
    (row,) = client.rows("SELECT to_json(c) AS row FROM clients AS c WHERE id = 7")
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(row["row"])],
        cwd=folder, env={**environment(""), "PGHOST": "/nowhere"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    _, probabilities = as_in_the_server(client, "churn@1")
    assert json.loads(done.stdout) == pytest.approx(probabilities[6:7])


@pytest.mark.postgresql
def test_a_quantity_and_arrays(client: Database, model: int, tmp_path: Path) -> None:
    client.rows("CREATE TABLE spots AS SELECT id, ARRAY[weight, power] AS spot, price FROM cars")
    packed = client.pack("spots", x="spot", y="price")
    grid = {**LOSS, "loss": "mse", "model": model}
    of_spots = client.fit(packed, grid, epochs=1, seed=1, out="spot_models", wait=True)
    client.models.register(of_spots.models(), "spots")
    saved = cerebro_db.load_model(client.models.save("spots", tmp_path / "spots"))
    assert isinstance(saved, SavedRegressor)
    assert not hasattr(saved, "predict_proba")
    rows = client.rows("SELECT spot FROM spots ORDER BY id LIMIT 50")
    asked = "SELECT p.prediction FROM spots AS s, cerebro.predict('spots', s) AS p ORDER BY s.id LIMIT 50"
    expected = [row["prediction"] for row in client.rows(asked)]
    array = np.array([row["spot"] for row in rows], "float32")
    # A prediction near 0 is a difference of larger, rounded numbers, so its relative error may be large.
    for given in (rows, pd.DataFrame(rows), array):
        assert saved.predict(given) == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.postgresql
def test_a_net_of_pictures_takes_keras(client: Database, tmp_path: Path) -> None:
    client.rows("CREATE TABLE shots (id int, shot bytea, kind text)")
    for number in range(40):
        client.rows("INSERT INTO shots VALUES (%s, %s, %s)", number, picture(number), "ab"[number % 2])
    packed = client.pack(
        "shots", x="*", y="kind", exclude=["id"], columns={"shot": {"decode": [12, 12, 3]}}, segments=1
    )
    client.rows("SELECT cerebro.load_net('shot_nets', 'shots_packed', 'image')")
    found = client.with_architectures("shot_nets").fit(packed, LOSS, epochs=1, out="shot_models", wait=True)
    client.models.register(found.models(), "shots")
    model = cerebro_db.load_model(client.models.save("shots", tmp_path / "shots"))
    assert isinstance(model, SavedClassifier)
    asked = "SELECT p.class, p.probability FROM shots AS s, cerebro.predict('shots', s) AS p ORDER BY s.id"
    rows = client.rows(asked)
    given = [{"shot": picture(number)} for number in range(40)]
    assert list(model.predict(given)) == [row["class"] for row in rows]
    likely = [row["probability"] for row in rows]
    assert model.predict_proba(given).max(axis=1) == pytest.approx(likely, rel=1e-4)
    (shot,) = client.models.explain("shots", "shots", "id", [3]).to_dict("records")
    drawn = np.asarray(Image.open(io.BytesIO(shot["map"])))
    assert (drawn.shape, drawn.dtype, shot["value"]) == ((12, 12, 3), np.uint8, None)
    # The place that adds most to the score has the full colour.
    assert any((drawn == colour).all(axis=2).any() for colour in ((178, 24, 43), (33, 102, 172)))


SALES = (
    "CREATE TABLE sales AS SELECT i AS id, sin(i)::real AS heat, (i %% 3)::numeric(4, 1) AS shop,"
    " date '2026-01-01' + i %% 2 AS day,"
    " CASE WHEN sin(i) * (i %% 2 - 0.5) > 0 THEN 'yes' ELSE 'no' END AS gone FROM generate_series(1, %s) AS i"
)


@pytest.mark.postgresql
def test_groups_answer_each_by_its_own_net(client: Database, client_database: str, tmp_path: Path) -> None:
    client.rows(SALES, 300)
    client.rows(
        "CREATE TABLE told AS SELECT * FROM sales WHERE id <= 40 UNION ALL SELECT 99, 0.5, 7, now(), 'no'"
    )
    packed = client.pack("sales", x=["heat"], y="gone", columns="auto", group_by=["shop", "day"], segments=1)
    client.rows("SELECT cerebro.load_net('sales_nets', 'sales_packed', 'linear')")
    run = client.with_architectures("sales_nets").fit(packed, LOSS, epochs=1, out="sales_models", wait=True)
    client.models.register(run.models(), "sales")
    model = cerebro_db.load_model(client.models.save("sales", tmp_path / "sales"))
    assert isinstance(model, SavedClassifier)
    assert sorted(model.columns) == ["day", "heat", "shop"]
    rows = client.rows("SELECT shop, day, heat FROM told ORDER BY id")
    expected = client.rows(
        "SELECT p.class, p.probabilities FROM told AS t, cerebro.predict('sales', t) AS p ORDER BY t.id"
    )
    texts = [{**row, "shop": f"{row['shop']:.3f}", "day": str(row["day"])} for row in rows]
    for given in (rows, pd.DataFrame(rows), texts):
        likely = model.predict_proba(given)
        assert list(model.predict(given)) == [row["class"] for row in expected]
        np.testing.assert_allclose(
            likely[:-1], [list(row["probabilities"].values()) for row in expected[:-1]], rtol=1e-5
        )
        assert np.isnan(likely[-1]).all()
    with pytest.raises(CerebroError, match='no column "day", which says what group'):
        model.predict([{"heat": 0.5}])
    with pytest.raises(CerebroError, match="has a net for each of 6 groups"):
        client.models.get("sales@1")


def test_a_folder_is_registered_again(client: Database, folder: Path, tmp_path: Path) -> None:
    assert client.models.load(folder, "brought", comment="from elsewhere", tags={"by": "test"}) == 1
    classes, probabilities = as_in_the_server(client, "churn@1")
    again, same = as_in_the_server(client, "brought@1")
    assert classes == again
    np.testing.assert_array_equal(probabilities, same)
    (row,) = client.models.versions("brought").to_dict("records")
    (first,) = [one for one in client.models.versions("churn").to_dict("records") if one["version"] == 1]
    assert (row["digest"], row["comment"]) == (first["digest"], "from elsewhere")
    assert row["tags"] == {
        "by": "test",
        "brought_from": {"model": "churn@1", "weights_sha256": row["digest"]},
    }
    document = json.loads((folder / "model.json").read_text())
    hostile = {"class_name": "Lambda", "module": "keras.layers", "config": {"function": "os.system('true')"}}
    document["architecture"]["config"]["layers"].append(hostile)
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "model.json").write_text(json.dumps(document))
    (tmp_path / "odd" / "weights.npy").write_bytes((folder / "weights.npy").read_bytes())
    with pytest.raises(CerebroError, match="which is not allowed"):
        client.models.load(tmp_path / "odd", "odd")


def _archive() -> bytes:
    file = io.BytesIO()
    np.savez(file, weights=np.zeros(3, "<f4"))
    return file.getvalue()


HUGE = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000,), }".ljust(117) + "\n"
WEIGHTS = {
    "an archive": _archive(),
    "nothing": b"",
    "a size that no machine has": b"\x93NUMPY\x01\x00" + len(HUGE).to_bytes(2, "little") + HUGE.encode(),
}
CRAFTED: dict[str, tuple[list[str], Any]] = {
    "class values in a list": (["about", "class_values"], ["yes"]),
    "class values of another type": (["about", "class_values", "gone"], {"yes": 1}),
    "classes that are no number": (["about", "num_classes"], "x"),
    "a label that is code": (["about", "dependent_varname"], ["x'; DROP TABLE clients; --"]),
    "a divisor that is code": (["about", "normalizing_const"], "1; DROP TABLE clients"),
    "columns that are none": (["features"], {"columns": "x"}),
    "a loss that is code": (["compile_params"], "loss=__import__('os').system('touch crafted')"),
    "layers in a text": (["architecture", "config"], "x"),
}


@pytest.mark.parametrize("what", WEIGHTS)
def test_weights_that_are_none_are_refused(client: Database, folder: Path, tmp_path: Path, what: str) -> None:
    (tmp_path / "model.json").write_bytes((folder / "model.json").read_bytes())
    (tmp_path / "weights.npy").write_bytes(WEIGHTS[what])
    for read in (cerebro_db.load_model, lambda place: client.models.load(place, "crafted")):
        with pytest.raises(CerebroError, match="holds no model that can be read"):
            read(tmp_path)


@pytest.mark.parametrize("what", CRAFTED)
def test_a_crafted_folder_runs_nothing(client: Database, folder: Path, tmp_path: Path, what: str) -> None:
    """The folder is refused when it is loaded or predicts, or the crafted value is only used as text."""
    document = place = json.loads((folder / "model.json").read_text())
    *path, last = CRAFTED[what][0]
    for name in path:
        place = place[name]
    place[last] = CRAFTED[what][1]
    (tmp_path / "model.json").write_text(json.dumps(document))
    (tmp_path / "weights.npy").write_bytes((folder / "weights.npy").read_bytes())
    name = f"crafted_{list(CRAFTED).index(what)}"
    with suppress(CerebroError):
        client.models.load(tmp_path, name)
        as_in_the_server(client, f"{name}@1")
    with suppress(CerebroError):
        cerebro_db.load_model(tmp_path).predict(client.rows(READ))
    assert not Path("crafted").exists() and client.rows("SELECT FROM clients LIMIT 1")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_versions_and_aliases_go_to_mlflow_and_come_back(
    client: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow
    from mlflow.tracking import MlflowClient

    monkeypatch.chdir(tmp_path)
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    client.models.alias("churn", "champion", 2)
    there = client.models.to_mlflow("churn", store)
    assert client.models.to_mlflow("churn", store) == there == {1: 1, 2: 2}
    registry = MlflowClient(registry_uri=store, tracking_uri=store)
    assert registry.get_model_version_by_alias("churn", "champion").version in (2, "2")
    mlflow.set_tracking_uri(store)
    loaded = mlflow.pyfunc.load_model("models:/churn@champion")
    classes, _ = as_in_the_server(client, "churn@champion")
    assert list(loaded.predict(pd.DataFrame(client.rows(READ)))) == classes
    assert client.models.from_mlflow("churn", store, into="returned") == {1: 1, 2: 2}
    assert client.models.from_mlflow("churn", store, into="returned") == {1: 1, 2: 2}
    listed = client.models.list().set_index("name")
    assert listed.loc["returned", "aliases"] == listed.loc["churn", "aliases"]
    before, after = (client.models.versions(name) for name in ("churn", "returned"))
    assert list(before["digest"]) == list(after["digest"])
    measured = [
        [{what: {**own, "rows": None} for what, own in one.items()} for one in versions["metrics"]]
        for versions in (before, after)
    ]
    assert measured[0] == measured[1] and all(measured[0])
    _, here = as_in_the_server(client, "churn@champion")
    np.testing.assert_array_equal(here, as_in_the_server(client, "returned@champion")[1])
    with pytest.raises(CerebroError, match="MLflow has no registered model nobody"):
        client.models.from_mlflow("nobody", store)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_command_takes_a_model_to_mlflow_and_back(
    client_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    done = cerebro("export", "churn", "--mlflow", store, database=client_database)
    assert (done.code, done.out) == (
        0, f"churn@1 is version 1 in {store}\nchurn@2 is version 2 in {store}\n"
    )  # fmt: skip
    done = cerebro("import", "churn", "by_command", "--mlflow", store, database=client_database)
    assert (done.code, done.out.splitlines()[-1]) == (0, f"by_command@2 is version 2 in {store}")
    done = cerebro("models", "by_command", "--format", "json", database=client_database)
    assert [row["version"] for row in done.rows] == [2, 1]
    done = cerebro("import", "nobody", "--mlflow", store, database=client_database)
    assert done.code == 1 and "MLflow has no registered model nobody" in done.err


@pytest.mark.slow
def test_the_command_writes_the_folder(client_database: str, tmp_path: Path) -> None:
    done = cerebro("export", "churn@2", tmp_path / "out", database=client_database)
    assert (done.code, done.out) == (0, f"{tmp_path / 'out'}\n")
    assert cerebro_db.load_model(tmp_path / "out").name == "churn@2"
    done = cerebro("import", tmp_path / "out", "Commanded", database=client_database)
    assert (done.code, done.out) == (0, "commanded@1\n")
    done = cerebro("import", tmp_path / "out", database=client_database)
    assert done.code == 2 and "say as what" in done.err
    done = cerebro("import", tmp_path / "nowhere", "commanded", database=client_database)
    assert done.code == 1 and "Traceback" not in done.err
    done = cerebro("export", "churn@2", database=client_database)
    assert done.code == 2 and "cerebro export churn@2 FOLDER" in done.err
    done = cerebro("export", "churn@9", tmp_path / "none", database=client_database)
    assert done.code == 1 and "no registered model 'churn@9'" in done.err
    assert not (tmp_path / "none").exists()


WRONG_ROWS = {
    "a missing column": ([{"age": 3}], 'the row has no column "income"'),
    "no column at all": ([{}], 'the rows have no column "age"'),
    "another type": ({"age": "much"}, 'column "age" has the value "much"'),
    "no rows": ({"age": 3}.keys(), "rows are a data frame or a list of dicts"),
    "an array": (np.zeros((2, 3)), "was trained on columns, and is given an array"),
}


@pytest.mark.parametrize("given, text", WRONG_ROWS.values(), ids=WRONG_ROWS)
def test_wrong_rows_are_refused(client: Database, folder: Path, given: Any, text: str) -> None:
    if isinstance(given, dict):
        given = [{**client.rows(READ)[0], **given}]
    with pytest.raises(CerebroError, match=text):
        cerebro_db.load_model(folder).predict(given)


def changed(folder: Path, into: Path, **fields: Any) -> Path:
    into.mkdir()
    (into / "weights.npy").write_bytes((folder / "weights.npy").read_bytes())
    document = json.loads((folder / "model.json").read_text())
    (into / "model.json").write_text(json.dumps({**document, **fields}))
    return into


LAMBDA = {
    "class_name": "Sequential",
    "config": {"layers": [{"module": "keras.layers", "class_name": "Lambda", "config": {"function": "x"}}]},
}
WRONG_FILES = {
    "another format": ({"format": 9}, "its format is 9"),
    "other weights": ({"weights_sha256": "0"}, "does not hold the weights"),
    "code": ({"architecture": LAMBDA}, "which is not allowed"),
    "no net": ({"architecture": None}, "it describes no net"),
    "no answer": ({"about": {}}, "does not say what the model answers"),
    "a damaged column": ({"features": {"version": 1, "columns": [{}]}}, "feature specification cannot"),
}


@pytest.mark.parametrize("fields, text", WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_strangers_folder_is_checked(
    folder: Path, tmp_path: Path, fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(CerebroError, match=text):
        cerebro_db.load_model(changed(folder, tmp_path / "changed", **fields))


def test_a_folder_that_is_none(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CerebroError, match=r"it has no model\.json"):
        cerebro_db.load_model(tmp_path)
    copy = changed(folder, tmp_path / "copy")
    np.save(copy / "weights.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(CerebroError, match=r"weights\.npy cannot be read"):
        cerebro_db.load_model(copy)
