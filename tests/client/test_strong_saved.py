"""Files of `realmlp`, `tabm` and their ensemble answer as the server does, in the unit of the table."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cerebro_db
import keras
import numpy as np
import pytest
from cerebro_db import Database, shared
from cerebro_db.models import features_file

import strong

# Each further way costs some seconds of training.
WAYS = ["standard", "log", *(pytest.param(way, marks=pytest.mark.slow) for way in ("clamp", "classes"))]
# Keras and the exporters to ONNX call outdated functions.
OUTDATED = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)


@pytest.fixture(scope="module")
def trained(client: Database) -> Iterator[Callable[[str], None]]:
    """Pack the rows, and yield a function that trains and registers the nets for a target at first."""
    strong.pack(client.rows)

    def train(way: str) -> None:
        strong.train(client.rows, way, epochs=3)
        for net in strong.NETS:
            table, key = strong.model(way, net)
            client.models.register(table, f"{way}_{net}", key)

    yield functools.cache(train)
    for model in client.models.list()["name"]:
        client.models.drop(model)


@pytest.fixture
def name(trained: Callable[[str], None], way: str, net: str) -> str:
    """The registered model of a net, or of the ensemble, for a target, such as log_tabm."""
    trained(way)
    return f"{way}_{net}"


def as_in_the_server(client: Database, name: str) -> np.ndarray:
    """Return the quantity, or the probabilities of the classes, of each row that is asked for."""
    client.rows("DROP TABLE IF EXISTS told")
    client.rows("SELECT cerebro.madlib_predict(%s, 'asked', 'id', '*', 'told')", f"{name}@1")
    answer = "array_agg(prob ORDER BY class_value)" if "classes" in name else "array_agg(prediction)"
    found = client.rows(f"SELECT {answer} AS answer FROM told GROUP BY id ORDER BY id")
    return np.array([row["answer"] for row in found])


def rows_of(client: Database) -> list[dict[str, Any]]:
    return [dict(row) for row in client.rows("SELECT a, b, plan FROM asked ORDER BY id")]


def inputs_of(path: Path, rows: list[dict[str, Any]]) -> list[np.ndarray]:
    """Return the inputs of a net for rows of the table, by what the file beside the model says."""
    portable = shared.portable()
    specification = portable.read_specification(features_file(path).read_text())
    kinds = {one.name: portable.cells.converter(one) for one in specification.features}
    encoder = portable.RowEncoder(specification)
    converted = [{name: convert(row[name]) for name, convert in kinds.items()} for row in rows]
    return [np.concatenate(parts) for parts in zip(*map(encoder.encode, converted), strict=True)]


def assert_alike(found: Any, expected: np.ndarray) -> None:
    found = np.asarray(found).reshape(len(found), -1)
    assert found.shape == expected.shape and len(found) == strong.ASKED_ROWS
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.median(np.abs(expected)))


@pytest.mark.parametrize("net", strong.NETS)
@pytest.mark.parametrize("way", WAYS)
def test_a_folder_answers_as_the_server_does(client: Database, tmp_path: Path, name: str) -> None:
    model: Any = cerebro_db.load_model(client.models.save(name, tmp_path / "here"))
    answer = model.predict_proba if "classes" in name else model.predict
    assert_alike(answer(rows_of(client)), as_in_the_server(client, name))


@OUTDATED
@pytest.mark.parametrize("net", strong.NETS)
@pytest.mark.parametrize("way", WAYS)
def test_a_keras_file_answers_as_the_server_does(client: Database, tmp_path: Path, name: str) -> None:
    path = client.models.save(name, tmp_path / "net.keras")
    model: Any = keras.models.load_model(path)
    found = model.predict(inputs_of(path, rows_of(client)), verbose=0)
    assert_alike(found, as_in_the_server(client, name))


@OUTDATED
@pytest.mark.parametrize("net", strong.NETS)
@pytest.mark.parametrize("way", WAYS)
def test_an_onnx_file_answers_as_the_server_does(client: Database, tmp_path: Path, name: str) -> None:
    """The file has all numbers of the net, also what it knows of its rows: only the inputs are given."""
    from onnx.reference import ReferenceEvaluator

    path = client.models.save(name, tmp_path / "net.onnx")
    session: Any = ReferenceEvaluator(str(path))
    inputs = inputs_of(path, rows_of(client))
    (found,) = session.run(None, dict(zip(session.input_names, inputs, strict=True)))
    assert_alike(found, as_in_the_server(client, name))
