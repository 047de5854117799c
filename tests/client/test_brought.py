"""Models, also of groups, are registered again from folders and from MLflow; crafted files do no harm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cerebro_db import CerebroError, Database

# The groups have a number with a fraction, a date, and a name that SQL and Python could stumble over.
SHOPS = (
    "CREATE TABLE shops AS SELECT i AS id, sin(i)::real AS heat, (i %% 3)::numeric(4, 1) AS shop,"
    " date '2026-01-01' + i %% 2 AS \"the %%s 'day\", CASE WHEN i %% 5 > 0 THEN 'a' || i %% 2 END AS kind,"
    " CASE WHEN sin(i) * (i %% 2 - 0.5) > 0 THEN 'yes' ELSE 'no' END AS gone FROM generate_series(1, %s) AS i"
)
BY = ["shop", "the %s 'day", "kind"]
GRID = {"loss": "categorical_crossentropy", "optimizer": "Adam", "learning_rate": 0.01, "batch_size": 32}
ASKED = "CREATE TABLE asked AS SELECT * FROM shops UNION ALL SELECT 999, 0.5, 9, now(), 'x', 'no'"


@pytest.fixture(scope="module", autouse=True)
def registered(client: Database) -> Iterator[None]:
    """Register `shops`, with a net for each group and one for all rows, and `whole`, with one net."""
    client.rows(SHOPS, 400)
    client.rows(ASKED)
    packed = client.pack("shops", x=["heat"], y="gone", columns="auto", group_by=BY, segments=1)
    client.rows("SELECT cerebro.load_net('shops_nets', 'shops_packed', 'linear')")
    nets = client.with_architectures("shops_nets")
    grid = {**GRID, "learning_rate": [0.01, 0.1]}
    run = nets.fit(packed, grid, epochs=1, out="shops_models", wait=True, fallback=True)
    client.models.register(run.models(), "shops", comment="by shop", tags={"team": "south"})
    client.pack("shops", x=["heat"], y="gone", columns="auto", into="shops_whole", segments=1)
    whole = nets.fit("shops_whole", GRID, epochs=1, out="shops_one", wait=True)
    client.models.register(whole.models(), "whole")
    yield
    for model in client.models.list()["name"]:
        client.models.drop(model)


@pytest.fixture(scope="module")
def folders(client: Database, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = tmp_path_factory.mktemp("saved")
    return {name: client.models.save(name, made / name) for name in ("shops", "whole")}


def answers(client: Database, reference: str) -> list[dict[str, Any]]:
    client.rows("DROP TABLE IF EXISTS answered")
    client.rows("SELECT cerebro.madlib_predict(%s, 'asked', 'id', '*', 'answered')", reference)
    return client.rows("SELECT id, class_value, prob FROM answered ORDER BY 1, 2")


def test_models_of_groups_are_brought_back_to_the_bit(client: Database, folders: dict[str, Path]) -> None:
    assert client.models.load(folders["shops"], "again", comment="here", tags={"by": "test"}) == 1
    assert answers(client, "again") == answers(client, "shops")
    (before, after) = (client.models.versions(name).to_dict("records")[0] for name in ("shops", "again"))
    assert before["digest"] == after["digest"]
    measured = [{**one["metrics"]["training"], "rows": None} for one in (before, after)]
    assert measured[0] == pytest.approx(measured[1])
    assert (after["comment"], after["tags"]["by"]) == ("here", "test")
    types = [read_types(client, name) for name in ("shops", "again")]
    assert types[0].keys() == types[1].keys() == set(BY)


def read_types(client: Database, name: str) -> dict[str, str]:
    return client.rows("SELECT about -> 'group_by' AS by FROM cerebro.read_model(%s) LIMIT 1", name)[0]["by"]


def test_several_are_brought_back_in_one_transaction(
    client: Database, client_database: str, folders: dict[str, Path]
) -> None:
    import cerebro_db
    import psycopg2

    with psycopg2.connect(dbname=client_database) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        db = cerebro_db.connect(connection)
        assert [db.models.load(folders[name], "both") for name in ("shops", "whole", "shops")] == [1, 2, 3]
    connection.close()
    assert answers(client, "both@3") == answers(client, "shops")


def craft(folder: Path, into: Path, path: list[str | int], value: Any) -> Path:
    document = place = json.loads((folder / "model.json").read_text())
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    into.mkdir(exist_ok=True)
    (into / "model.json").write_text(json.dumps(document))
    (into / "weights.npy").write_bytes((folder / "weights.npy").read_bytes())
    return into


WRONG_GROUPS: dict[str, tuple[list[str | int], Any, str]] = {
    "a type that is code": (["group_by", "shop"], "int4); DROP TABLE shops; --", "none of the server's"),
    "a type of nobody's": (["group_by", "shop"], "no such type", "none of the server's"),
    "a type of users'": (["group_by", "shop"], "cars", "none of the server's"),
    "a pseudo-type": (["group_by", "shop"], "record", "none of the server's"),
    "a type that is no text": (["group_by", "shop"], {"a": 1}, "none of the server's"),
    "no columns": (["group_by"], {}, "its groups"),
    "columns in a list": (["group_by"], ["shop"], "its groups"),
    "more weights than there are": (["groups", 0, "numbers"], 10**9, "its groups"),
    "fewer than none": (["groups", 0, "numbers"], -1, "its groups"),
    "a number too large": (["groups", 0, "numbers"], 10**400, "its groups"),
    "a net that is not there": (["groups", 0, "net"], "77", "its groups"),
    "a net that is no number": (["groups", 0, "net"], "../1", "its groups"),
    "a group of other columns": (["groups", 1, "group"], {"shop": 1}, "its groups"),
    "a group of another type": (["groups", 1, "group", "shop"], "much", "invalid input syntax"),
    "a measurement that is none": (["groups", 1, "metrics"], {"training": {"loss": []}}, "its groups"),
    "groups in a text": (["groups"], "shop", "its groups"),
    "nets in a list": (["nets"], [], "its groups"),
}


@pytest.mark.parametrize("path, value, text", WRONG_GROUPS.values(), ids=WRONG_GROUPS)
def test_crafted_groups_are_refused(
    client: Database, folders: dict[str, Path], tmp_path: Path, path: list[str | int], value: Any, text: str
) -> None:
    with pytest.raises(CerebroError, match=text):
        client.models.load(craft(folders["shops"], tmp_path / "odd", path, value), "odd")
    assert client.rows("SELECT count(*) AS n FROM shops")[0]["n"] == 400
    assert "odd" not in set(client.models.list()["name"])


LAMBDA = {
    "module": "keras",
    "class_name": "Sequential",
    "config": {"layers": [{"module": "keras.layers", "class_name": "Lambda", "config": {"function": "x"}}]},
}
# Values that JSON allows but a database refuses, and nets that are code or no nets.
WRONG_TEXTS: dict[str, tuple[list[str | int], Any, str]] = {
    "a number that is none": (["about", "normalizing_const"], "much", "invalid input syntax"),
    "NaN in a specification": (["features", "rows"], float("nan"), "no database can keep"),
    "half a letter": (["about", "dependent_varname"], ["\ud800"], "no database can keep"),
    "a letter that ends texts": (["compile_params"], "loss=\0", "code 0|Unicode"),
    "a net that is code": (["architecture"], LAMBDA, "which is not allowed"),
    "a net that is none": (["architecture"], {}, "class_name"),
}


@pytest.mark.parametrize("path, value, text", WRONG_TEXTS.values(), ids=WRONG_TEXTS)
def test_what_no_database_takes_is_refused(
    client: Database, folders: dict[str, Path], tmp_path: Path, path: list[str | int], value: Any, text: str
) -> None:
    with pytest.raises(CerebroError, match=text):
        client.models.load(craft(folders["whole"], tmp_path / "odd", path, value), "odd")
    first = next(iter(json.loads((folders["shops"] / "model.json").read_text())["nets"]))
    with pytest.raises(CerebroError, match=text):
        client.models.load(craft(folders["shops"], tmp_path / "too", ["nets", first, *path], value), "odd")
    assert "odd" not in set(client.models.list()["name"])


@pytest.fixture(scope="module")
def store(client: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Write both models to a new MLflow registry, and yield its URI."""
    folder = tmp_path_factory.mktemp("mlflow")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        for name in ("shops", "whole"):
            assert client.models.to_mlflow(name, uri) == {1: 1}
        yield uri


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_models_of_groups_come_back_from_mlflow(client: Database, store: str) -> None:
    assert client.models.from_mlflow("shops", store, into="returned") == {1: 1}
    assert answers(client, "returned@default") == answers(client, "shops")
    (row,) = client.models.versions("returned").to_dict("records")
    assert (row["comment"], row["tags"]["team"]) == ("by shop", "south")
    assert client.models.from_mlflow("shops", store, into="returned") == {1: 1}
    # A tag of this name may have been set by a user.
    client.models.register("shops_one", "tagged", tags={"mlflow_version": "one"})
    assert client.models.from_mlflow("whole", store, into="tagged") == {1: 2}
    # Its number in MLflow is that of another version, too.
    assert client.models.from_mlflow("shops", store, into="tagged") == {1: 3}


NOT_OURS = "was not written by cerebro"
WRONG_FILES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", NOT_OURS),
    "half a document": (b'{"tags": ', NOT_OURS),
    "a list": (b"[]", NOT_OURS),
    "tags in a list": (b'{"tags": [], "metrics": {}}', NOT_OURS),
    "no metrics": (b'{"tags": {}}', NOT_OURS),
    "a pickle": (b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0dtouch crafted\x85R.", NOT_OURS),
    "lists without an end": (b"[" * 200_000, NOT_OURS),
    "digits without an end": (b'{"tags": {"a": ' + b"9" * 5000 + b'}, "metrics": {}}', NOT_OURS),
    "a loss that is none": (b'{"tags": {}, "metrics": {"training": {"loss": {}}}}', "no database can keep"),
    "a loss too large": (
        b'{"tags": {}, "metrics": {"training": {"loss": 1' + b"0" * 400 + b"}}}", "no database can keep"
    ),
    "a tag with half a letter": (rb'{"tags": {"a": "\ud800"}, "metrics": {}}', "surrogate|Unicode"),
    "a tag that ends texts": (rb'{"tags": {"a": "\u0000"}, "metrics": {}}', "Unicode"),
    "a tag that is NaN": (b'{"tags": {"a": NaN}, "metrics": {}}', "no database can keep"),
}  # fmt: skip


def file_of(store: str, name: str) -> Path:
    """Return the path of version.json, the file that was written to MLflow with a version of a model."""
    files = Path(store.removeprefix("sqlite:///")).parent.rglob("version.json")
    (found,) = [file for file in files if f'"model": "{name}@' in (file.parent / "model.json").read_text()]
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("data, text", WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_crafted_version_of_mlflows_is_refused(
    client: Database, store: str, data: bytes, text: str
) -> None:
    file = file_of(store, "whole")
    before = file.read_bytes()
    file.write_bytes(data)
    try:
        with pytest.raises(CerebroError, match=text):
            client.models.from_mlflow("whole", store, into="odd")
    finally:
        file.write_bytes(before)
    assert not Path("crafted").exists()
    assert "odd" not in set(client.models.list()["name"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_what_a_version_of_mlflows_says_of_its_origin_is_a_tag_and_no_recipe(
    client: Database, store: str
) -> None:
    """If its lineage became a recipe, a retraining could read any table that the version names."""
    file = file_of(store, "whole")
    before = file.read_bytes()
    recipe = {"source": "shops", "target": "gone", "inputs": ["heat"], "options": {}, "seconds": 1}
    kept = {
        **json.loads(before),
        "lineage": {"recipe": recipe, "source_table": "../../x"},
        "version": 10**300,
    }
    file.write_text(json.dumps(kept))
    try:
        assert client.models.from_mlflow("whole", store, into="forged") == {1: 1}
    finally:
        file.write_bytes(before)
    (row,) = client.models.versions("forged").to_dict("records")
    assert row["tags"]["lineage"]["recipe"] == recipe and "recipe" not in row["lineage"]
    with pytest.raises(CerebroError, match="how forged@1 was trained is not known"):
        client.models.retrain("forged")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_weights_that_are_a_pickle_are_not_loaded(client: Database, store: str) -> None:
    place = file_of(store, "whole").parent / "weights.npy"
    before = place.read_bytes()
    np.save(place, np.array([{}], object), allow_pickle=True)
    try:
        with pytest.raises(CerebroError, match=r"weights\.npy cannot be read"):
            client.models.from_mlflow("whole", store, into="odd")
    finally:
        place.write_bytes(before)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_version_of_others_in_mlflow_is_told_from_ours(client: Database, store: str) -> None:
    from mlflow.tracking import MlflowClient

    registry = MlflowClient(registry_uri=store, tracking_uri=store)
    for name, run in (("of_no_run", None), ("of_others", registry.create_run("0").info.run_id)):
        registry.create_registered_model(name)
        registry.create_model_version(name, "file:///etc", run)
        with pytest.raises(CerebroError, match=NOT_OURS):
            client.models.from_mlflow(name, store)
