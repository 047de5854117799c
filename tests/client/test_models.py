"""Trained configs as live Keras models, as files, and in predictions by the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cerebro_db
import keras
import numpy as np
import pandas as pd
import pytest
from cerebro_db import CerebroError, Config, Database, Packed, Run, models

FEATURES = ["weight", "power"]


@pytest.fixture(scope="module")
def own_session(client_database: str) -> Iterator[Database]:
    """A client whose session has used no other engine: only the same engine computes the same bits."""
    with cerebro_db.connect(f"postgresql:///{client_database}") as db:
        yield db


@pytest.fixture(scope="module")
def prices(own_session: Database, run: Run) -> Config:
    """The best config of the run on prices."""
    return own_session.run(run.run_id).best()


@pytest.fixture(scope="module")
def cars(client: Database) -> pd.DataFrame:
    return pd.DataFrame(client.rows("SELECT * FROM cars ORDER BY id LIMIT 40")).set_index("id")


@pytest.fixture(scope="module")
def x(cars: pd.DataFrame) -> np.ndarray:
    return cars[FEATURES].to_numpy().astype("float32")


@pytest.fixture(scope="module")
def net() -> keras.Model:
    """A Keras model with variables that are hard to carry over: seeds, counters and moving statistics."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((2,)),
            layers.Dense(8, "relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.1),
            layers.Dense(3, "softmax"),
        ]
    )


@pytest.fixture(scope="module")
def kinds(own_session: Database, client: Database, net: keras.Model) -> Run:
    """A run on the kinds of cars that starts from the weights of the Keras model `net`."""
    table = own_session.pack("cars", x=FEATURES, y="kind", into="kinds", normalize=2.0)
    started = own_session.architectures.add(net, weights=True)
    grid = {
        "model": started,
        "loss": "categorical_crossentropy",
        "metrics": ["accuracy", "Precision()"],
        "optimizer": [{"optimizer": "SGD", "momentum": 0.9}, {"optimizer": "Adam", "clipnorm": 1.0}],
        "learning_rate": 0.01,
        "batch_size": 25,
    }
    return own_session.fit(table, grid, epochs=2, seed=3, wait=True)


def test_layers_that_were_unfrozen_bring_their_optimizer(own_session: Database, kinds: Run) -> None:
    table = own_session.pack("cars", x=FEATURES, y="kind", into="kinds_thawed", normalize=2.0)
    layers = keras.layers
    held = layers.Dense(8, "relu", name="low", trainable=False)
    net = keras.Sequential([layers.Input((2,)), held, layers.Dense(3, "softmax")])
    grid = {
        "model": own_session.architectures.add(net, weights=True),
        "loss": "categorical_crossentropy",
        "optimizer": "Adam",
        "unfreeze_at": {2: ["low"]},
    }
    for epochs, variables in ((1, 2), (2, 4)):
        run = own_session.fit(table, grid, epochs=epochs, out=f"thawed_{epochs}", wait=True)
        live = run.best().to_keras()
        # Two moments of each variable that trains, beside the count of steps and the learning rate.
        assert len(live.optimizer.variables) == 2 + 2 * variables
        assert any(np.any(keras.ops.convert_to_numpy(one)) for one in live.optimizer.variables[2:])


def test_a_live_model_predicts_what_the_server_does(
    prices: Config, cars: pd.DataFrame, x: np.ndarray
) -> None:
    there = prices.predict(cars, x=FEATURES)
    here = prices.to_keras().predict(x, verbose=0)[:, 0]
    assert list(there.index) == list(cars.index)
    # The order in which a processor adds numbers depends on how many rows it computes at once.
    np.testing.assert_allclose(there["prediction"], here, rtol=1e-6)


@pytest.mark.parametrize("key", [1, 2])
def test_a_live_model_of_classes_predicts_what_the_server_does(
    kinds: Run, cars: pd.DataFrame, x: np.ndarray, key: int
) -> None:
    config = kinds.config(key)
    there = config.probabilities(cars)
    here = config.to_keras().predict(x / np.float32(2), verbose=0)
    np.testing.assert_allclose(there, here, rtol=1e-6, atol=1e-7)
    assert list(there.columns) == ["kind 0", "kind 1", "kind 2"]
    chosen = config.predict(cars)
    assert list(chosen["class"]) == [there.columns[n] for n in here.argmax(axis=1)]


def test_a_live_model_of_members_is_of_keras_layers_alone(
    kinds: Run, own_session: Database, cars: pd.DataFrame, x: np.ndarray, tmp_path: Path
) -> None:
    own_session.rows("SELECT cerebro.load_net('members', 'kinds', 'tabm', '{\"width\": 4, \"members\": 3}')")
    own_session.rows(
        "SELECT cerebro.load_model_selection_table('members', 'few', ARRAY[1], ARRAY[$$loss="
        "'categorical_crossentropy',optimizer='Adam()',metrics=['accuracy']$$], ARRAY['batch_size=25'])"
    )
    own_session.rows("SELECT cerebro.madlib_fit_multiple_model('kinds', 'member_models', 'few', 2)")
    (row,) = own_session.rows("SELECT run_id FROM member_models_summary")
    config = own_session.run(row["run_id"]).config(1)
    model: Any = keras.models.load_model(config.save(tmp_path / "members.keras"))
    assert {type(layer).__module__.partition(".")[0] for layer in model.layers} == {"keras"}
    here = model.predict(x / np.float32(2), verbose=0)
    there = config.probabilities(cars, x=FEATURES)
    np.testing.assert_allclose(there, here, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("key", [1, 2])
def test_a_live_model_has_the_state_of_its_optimizer(kinds: Run, client: Database, key: int) -> None:
    model = kinds.config(key).to_keras()
    visits = 2 * 2
    assert int(model.optimizer.iterations) == visits * 100 // 25
    assert float(model.optimizer.learning_rate) == np.float32(0.01)
    state = client.rows("SELECT * FROM cerebro.config_state(%s, %s)", kinds.run_id, key)
    moments = [row for row in state if row["kind"] == "optimizer"][2:]
    assert moments
    for row, variable in zip(moments, model.optimizer.variables[2:], strict=True):
        assert bytes(row["data"]) == np.asarray(variable).tobytes()
        assert np.asarray(variable).any()


def test_a_live_model_trains_on(kinds: Run, x: np.ndarray) -> None:
    model = kinds.best().to_keras()
    logs = model.fit(x, np.eye(3)[np.arange(len(x)) % 3], epochs=1, verbose=0).history
    assert {"loss", "accuracy", "precision"} <= logs.keys()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_keras_file_is_the_model(kinds: Run, x: np.ndarray, tmp_path: Path) -> None:
    config = kinds.best()
    loaded: Any = keras.models.load_model(config.save(tmp_path / "best.keras"))
    model = config.to_keras()
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))
    assert int(loaded.optimizer.iterations) == int(model.optimizer.iterations)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
def test_an_onnx_file_is_the_model(kinds: Run, x: np.ndarray, tmp_path: Path) -> None:
    from onnx.reference import ReferenceEvaluator

    path = kinds.best().save(tmp_path / "best.onnx")
    session: Any = ReferenceEvaluator(str(path))
    (found,) = session.run(None, {session.input_names[0]: x})
    np.testing.assert_allclose(found, kinds.best().to_keras().predict(x, verbose=0), rtol=1e-5, atol=1e-6)


@pytest.mark.doors("client", "predict")
def test_rows_may_be_an_array(run: Run, cars: pd.DataFrame, x: np.ndarray) -> None:
    pd.testing.assert_frame_equal(run.best().predict(x), run.best().predict(cars).reset_index(drop=True))


def test_the_config_of_a_single_fit_predicts(
    own_session: Database, packed: Packed, model: int, cars: pd.DataFrame
) -> None:
    own_session.rows(
        "SELECT cerebro.madlib_fit(%s, 'single', %s, %s, %s, 'batch_size=25', 1)",
        packed.table, own_session.architectures.table, model, "loss='mse', optimizer='SGD()'",
    )  # fmt: skip
    number = own_session.rows("SELECT max(run_id) AS number FROM cerebro.runs")[0]["number"]
    assert len(own_session.run(number).best().predict(cars, x=FEATURES)) == len(cars)


def test_predicting_leaves_nothing_behind(client: Database, run: Run, cars: pd.DataFrame) -> None:
    tables = "SELECT count(*) AS n FROM pg_class"
    before = client.rows(tables)
    run.best().predict(cars)
    assert client.rows(tables) == before


def test_a_run_that_is_looked_up_asks_for_the_columns(client: Database, run: Run, cars: pd.DataFrame) -> None:
    again = client.run(run.run_id).best()
    with pytest.raises(CerebroError, match="is not known"):
        again.predict(cars)
    assert len(again.predict(cars, x=FEATURES)) == len(cars)
    with pytest.raises(CerebroError, match="the frame has no column power"):
        again.predict(cars.drop(columns="power"), x=FEATURES)


def test_what_onnx_has_no_operation_for_is_refused(tmp_path: Path) -> None:
    gelu = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, "gelu")])
    with pytest.raises(CerebroError, match="cannot be written as ONNX"):
        models.save(gelu, tmp_path / "gelu.onnx")
    assert not list(tmp_path.iterdir())


def test_a_file_of_another_kind_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(CerebroError, match="neither"):
        run.best().save(tmp_path / "best.h5")


@pytest.mark.slow
def test_a_run_that_goes_on_has_no_models_yet(client: Database, packed: Packed, model: int) -> None:
    run = client.fit(packed, {"model": model, "loss": "mse", "batch_size": 1}, epochs=500, backend="jax")
    try:
        for ask in (run.config(1).to_keras, lambda: run.config(1).predict(np.zeros((1, 4), np.float32))):
            with pytest.raises(CerebroError, match="its models are there when it is over"):
                ask()
    finally:
        run.stop()
        run.wait()


def adapted(x: np.ndarray) -> Any:
    keras.utils.set_random_seed(2)
    layers = keras.layers
    net: Any = keras.Sequential([layers.Input((2,)), layers.Normalization(), layers.Dense(3, "softmax")])
    net.layers[0].adapt(x)
    return net


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("weights", [True, False])
def test_statistics_of_an_adapted_layer_go_along(
    kinds: Run, own_session: Database, cars: pd.DataFrame, x: np.ndarray, tmp_path: Path, weights: bool
) -> None:
    from onnx.reference import ReferenceEvaluator

    net = adapted(x)
    before = net.to_json(), net.predict(x, verbose=0)
    number = own_session.architectures.add(net, weights=weights)
    assert net.to_json() == before[0]
    np.testing.assert_array_equal(net.predict(x, verbose=0), before[1])
    table = own_session.pack("cars", x=FEATURES, y="kind", into=f"adapted_{weights}".lower())
    grid = {"model": number, "loss": "categorical_crossentropy", "learning_rate": 1e-9, "batch_size": 50}
    config = own_session.fit(table, grid, epochs=1, seed=3, wait=True).best()
    here, there = config.to_keras(), config.probabilities(cars)
    np.testing.assert_allclose(here.predict(x, verbose=0), there, rtol=1e-5, atol=1e-6)
    (normal,) = [layer for layer in here.layers if layer.name.startswith("normalization")]
    np.testing.assert_allclose(np.asarray(normal.mean)[0], x.mean(axis=0), rtol=1e-5)
    if weights:
        np.testing.assert_allclose(there, before[1], rtol=1e-4, atol=1e-5)
    loaded: Any = keras.models.load_model(config.save(tmp_path / "adapted.keras"))
    np.testing.assert_allclose(loaded.predict(x, verbose=0), there, rtol=1e-5, atol=1e-6)
    session: Any = ReferenceEvaluator(str(config.save(tmp_path / "adapted.onnx")))
    (found,) = session.run(None, dict(zip(session.input_names, [x], strict=True)))
    np.testing.assert_allclose(found, there, rtol=1e-5, atol=1e-6)


def test_a_file_of_a_net_with_adapters_has_plain_layers(
    kinds: Run, own_session: Database, net: keras.Model, cars: pd.DataFrame, x: np.ndarray, tmp_path: Path
) -> None:
    number = own_session.architectures.enable_lora(own_session.architectures.add(net, weights=True), 2)
    grid = {"model": number, "loss": "categorical_crossentropy", "learning_rate": 0.1, "batch_size": 25}
    config = own_session.fit(own_session.packed("kinds"), grid, epochs=2, seed=3, wait=True).best()
    live: Any = config.to_keras()
    assert [layer.lora_rank for layer in live.layers if getattr(layer, "lora_enabled", False)] == [2]
    there = config.probabilities(cars, x=FEATURES)
    loaded: Any = keras.models.load_model(config.save(tmp_path / "plain.keras"))
    assert not any(getattr(layer, "lora_enabled", False) for layer in loaded.layers)
    np.testing.assert_allclose(loaded.predict(x / 2.0, verbose=0), there, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(live.predict(x / 2.0, verbose=0), there, rtol=1e-4, atol=1e-5)
