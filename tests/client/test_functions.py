"""Registered functions in the client: register them, train with them, and pass them to load the models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from cerebro_db import CerebroError, Config, Database, Packed

import nets


@keras.saving.register_keras_serializable(package="tests")
class Doubled(keras.layers.Layer):
    """A user's own layer, which doubles its inputs."""

    def call(self, inputs: Any, *_: Any) -> Any:
        return inputs * 2


def tilted(y_true, y_pred, below=2.0):  # noqa: ANN001, ANN201
    """Too low costs more."""
    from keras import ops

    missing = y_true - y_pred
    return ops.mean(ops.square(missing) * ops.where(missing > 0, below, 1.0), axis=-1)  # pyright: ignore


LAYER = """
import keras

class Doubled(keras.layers.Layer):
    def call(self, inputs):
        return inputs * 2
"""


@pytest.fixture(scope="module")
def trained(client: Database, packed: Packed) -> Config:
    assert client.functions.register(tilted, "loss", description="tilted squares") == 1
    assert "from keras import ops" in client.functions.source("tilted")
    assert client.functions.register(LAYER, "layer", name="Doubled") == 1
    net = json.loads(nets.mlp(2, 8, 1, "linear"))
    layer = {
        "module": "elsewhere",
        "class_name": "Doubled",
        "config": {"name": "d"},
        "registered_name": "t>Doubled",
    }
    net["config"]["layers"].insert(1, layer)
    model = client.architectures.add(net, name="doubled")
    grid = {
        "model": model, "loss": "tilted(below=3)", "metrics": ["Quantile(tau=0.9)"], "optimizer": "SGD",
        "learning_rate": 0.001, "batch_size": 32,
    }  # fmt: skip
    return client.fit(packed, grid, epochs=1, seed=2, wait=True).best()


def test_functions_are_listed_granted_and_ended(client: Database) -> None:
    assert client.functions.register("def brief(a, b): return a - b", "loss", name="brief") == 1
    client.functions.grant("brief")
    listed = client.functions.list().set_index("name")
    assert listed.loc["brief", "granted_to"] == ["public"]
    client.functions.revoke("brief")
    client.functions.unregister("brief")
    with pytest.raises(CerebroError, match="no registered function brief"):
        client.functions.source("brief")
    with pytest.raises(CerebroError, match="does not know the source"):
        client.functions.register(len, "metric")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_with_functions_needs_them_here(trained: Config, tmp_path: Path) -> None:
    for given, missing in (({}, "Doubled"), ({"Doubled": Doubled}, "tilted")):
        with pytest.raises(
            CerebroError, match=f"needs {missing}, which is registered in the database"
        ) as raised:
            trained.to_keras(given)
        assert f"custom_objects={{'{missing}'" in str(raised.value.hint)
    own = {"Doubled": Doubled, "tilted": tilted}
    model = trained.to_keras(own)
    cars = trained.run.db.rows("SELECT weight, power, price FROM cars ORDER BY id LIMIT 20")
    x = np.array([[row["weight"], row["power"]] for row in cars], np.float32)
    file = trained.save(tmp_path / "model.keras", own)
    loaded: Any = keras.models.load_model(file, custom_objects=own, compile=False)
    assert np.array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))
