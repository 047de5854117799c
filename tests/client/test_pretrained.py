"""db.load_pretrained stores a Keras net once, with frozen layers and a head; its features can be stored."""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cerebro_db
import keras
import numpy as np
import pytest
from cerebro_db import CerebroError, Database, Packed

import applications

pytestmark = pytest.mark.slow

SIDE, CLASSES, ROWS = 8, 3, 60
GRID = {"loss": "categorical_crossentropy", "metrics": ["accuracy"], "batch_size": 10}


@pytest.fixture(scope="module")
def db(client: Database, client_database: str) -> Iterator[Database]:
    """A client with its own table of architectures, `trained`, and with images of three kinds."""
    with cerebro_db.connect(f"postgresql:///{client_database}", architectures="trained") as own:
        random = np.random.default_rng(0)
        images = random.uniform(-1, 1, (ROWS, SIDE * SIDE * 3)).astype(np.float32)
        kinds = np.arange(ROWS) % CLASSES
        images[:, :64] += kinds[:, np.newaxis]
        own.load("images", {"image": list(images[:50]), "kind": kinds[:50]})
        own.load("more_images", {"image": list(images[50:]), "kind": kinds[50:]})
        yield own


@pytest.fixture(scope="module")
def packed(db: Database) -> Packed:
    return db.pack("images", x="image", y="kind", into="images_packed", shape=[SIDE, SIDE, 3], segments=2)


def trunk(seed: int = 1) -> Any:
    """Return a net without a head, with seeded weights; its unnamed layers get other names in each call."""
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    x = keras.Input((SIDE, SIDE, 3))
    y = layers.Conv2D(6, 3, activation="relu", name="block1")(x)
    y = layers.Dropout(0.4)(layers.BatchNormalization()(y))
    return keras.Model(x, layers.Conv2D(8, 3, activation="relu", name="block2")(y), name="seen_much")


def stored(db: Database, model_id: int) -> dict[str, Any]:
    query = "SELECT name, model_arch, model_weights FROM trained WHERE model_id = %s"
    return db.rows(query, model_id)[0]


def layer_configs(row: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["config"]["name"]: one["config"] for one in row["model_arch"]["config"]["layers"]}


def flat(model: Any) -> bytes:
    return b"".join(array.astype("<f4").tobytes() for array in model.get_weights())


def test_a_frozen_trunk_gets_a_head_for_the_labels(db: Database, packed: Packed) -> None:
    base = trunk()
    before = base.to_json(), flat(base)
    number = db.load_pretrained(base, packed, head="Dense(16, 'relu'), Dropout(0.2)", freeze="*")
    row = stored(db, number)
    found = layer_configs(row)
    assert [name for name, config in found.items() if not config.get("trainable", True)] == [
        layer.name for layer in base.layers[1:]
    ]
    assert list(found)[-4:] == ["head_pooled", "head_1", "head_2", "out_kind"]
    assert (found["out_kind"]["units"], found["head_2"]["rate"]) == (CLASSES, 0.2)
    # A frozen Dropout layer drops nothing.
    assert [config["rate"] for name, config in found.items() if name.startswith("dropout")] == [0.0]
    assert bytes(row["model_weights"]).startswith(before[1]) and row["name"] == "seen_much"
    assert (base.to_json(), flat(base)) == before and all(layer.trainable for layer in base.layers)
    other = db.load_pretrained(base, packed, head="Dense(5)", freeze="*")
    grid = {**GRID, "model": [number, other], "learning_rate": 0.01}
    run = db.fit(packed, grid, epochs=2, seed=1, wait=True)
    frozen = "SELECT DISTINCT digest FROM cerebro._frozen WHERE run_id = %s"
    assert len(db.rows(frozen, run.run_id)) == 1
    live: Any = run.best().to_keras()
    assert flat(keras.Model(live.inputs, live.get_layer("block2").output)) == before[1]


def test_the_same_net_has_the_same_number(
    db: Database, packed: Packed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cerebro_db")
    first = db.load_pretrained(trunk(), packed, freeze="*")
    again = trunk()
    assert again.layers[3].name != trunk().layers[3].name
    assert db.load_pretrained(again, packed, freeze="*") == first
    assert f"model_id {first} is in trained already" in caplog.text
    others = {
        db.load_pretrained(trunk(), packed, freeze="block1"),
        db.load_pretrained(trunk(2), packed, freeze="*"),
        db.load_pretrained(trunk(), packed, head="Dense(4)", freeze="*"),
        db.load_pretrained(trunk(), packed, layer="block1", freeze="*"),
    }
    assert len(others - {first}) == 4
    assert len(db.architectures.ids()) == len(set(db.architectures.ids()))


def test_names_with_a_star_choose_what_is_frozen(db: Database, packed: Packed) -> None:
    found = layer_configs(stored(db, db.load_pretrained(trunk(), packed, freeze=["block*", "batch_*"])))
    still = [name for name, config in found.items() if not config.get("trainable", True)]
    assert len(still) == 3 and all(name.startswith(("block", "batch_")) for name in still)
    assert [config["rate"] for name, config in found.items() if name.startswith("dropout")] == [0.4]


def test_a_file_is_read_and_open_sizes_are_those_of_the_rows(
    db: Database, packed: Packed, tmp_path: Path
) -> None:
    x = keras.Input((None, None, 3), name="any_size")
    base = keras.Model(x, keras.layers.Conv2D(4, 3, name="only")(x), name="from_a_file")
    base.save(tmp_path / "net.keras")
    number = db.load_pretrained(tmp_path / "net.keras", packed, freeze="only")
    assert layer_configs(stored(db, number))["any_size"]["batch_shape"] == [None, SIDE, SIDE, 3]
    assert db.load_pretrained(str(tmp_path / "net.keras"), packed, freeze="only") == number


def test_a_file_that_names_more_units_than_it_has_weights_is_not_built(
    db: Database, packed: Packed, tmp_path: Path
) -> None:
    trunk().save(tmp_path / "small.keras")
    huge = tmp_path / "huge.keras"
    with zipfile.ZipFile(tmp_path / "small.keras") as small, zipfile.ZipFile(huge, "w") as forged:
        for name in small.namelist():
            content = small.read(name)
            if name == "config.json":
                content = content.replace(b'"filters": 8', b'"filters": 1000000000')
            forged.writestr(name, content)
    with pytest.raises(CerebroError, match="a layer of 1000000000 units, and its weights have"):
        db.load_pretrained(huge, packed)
    huge.write_bytes(huge.read_bytes()[:100])
    with pytest.raises(CerebroError, match=r"huge\.keras is no \.keras file, or a damaged one"):
        db.load_pretrained(huge, packed)


def test_layers_of_ones_own_are_a_head_as_well(db: Database) -> None:
    head = [keras.layers.Flatten(name="flat"), keras.layers.Dense(2, name="mine")]
    found = layer_configs(stored(db, db.load_pretrained(trunk(), head=head)))
    assert list(found)[-3:] == ["block2", "flat", "mine"]
    assert "head_pooled" not in found


class Own(keras.Model):
    def call(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        (trunk, {"freeze": "blok1"}, r'not there: "blok1"(.|\n)*Did you mean "block1"'),
        (trunk, {"layer": "nowhere"}, 'no layer "nowhere"'),
        (trunk, {"head": "Dense(4"}, "no line of layers"),
        (trunk, {"head": "Dens(4)"}, "no line of layers(.|\n)*no layer Dens"),
        (trunk, {"head": "Dense(__import__('os').getpid())"}, "no line of layers"),
        (trunk, {"head": "Dense(units=-1)"}, "no line of layers"),
        (Own, {}, "not a graph of layers"),
        (lambda: 7, {}, "int is no trained net"),
        (lambda: "net.h5", {}, "neither"),
        (lambda: "nowhere.keras", {}, "cannot be read"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_added(
    db: Database, model: Any, given: dict[str, Any], message: str
) -> None:
    before = db.architectures.ids()
    with pytest.raises(CerebroError, match=message):
        db.load_pretrained(model(), **given)
    assert db.architectures.ids() == before


def test_large_weights_go_in_pieces(db: Database) -> None:
    net = keras.Sequential([keras.Input((2100,)), keras.layers.Dense(2050, name="wide")], name="large")
    weights = flat(net)
    assert len(weights) > 2**24
    assert bytes(stored(db, db.load_pretrained(net))["model_weights"]) == weights


def test_features_are_stored_and_completed(db: Database, packed: Packed) -> None:
    number = db.load_pretrained(trunk(), packed, freeze="*")
    features = db.materialize_features(packed, number, "block2", into="image_features")
    assert (features.table, features.x, len(features)) == ("image_features", "image", 50)
    run = db.fit(features, {**GRID, "model": number, "learning_rate": 0.01}, epochs=2, seed=1, wait=True)
    assert run.status == "finished"
    db.rows("SELECT cerebro.append_rows('images_packed', 'more_images')")
    assert (db.refresh_features(features), db.refresh_features("image_features")) == (10, 0)
    assert len(features) == ROWS


@pytest.mark.parametrize("backend", [pytest.param("tensorflow", marks=pytest.mark.tensorflow), "jax"])
def test_a_frozen_net_of_keras_is_computed_once_to_the_same_bits(db: Database, backend: str) -> None:
    random = np.random.default_rng(1)
    photos = random.uniform(-1, 1, (40, 32 * 32 * 3)).astype(np.float32)
    table = f"photos_{backend}"
    db.load(table, {"photo": list(photos), "kind": np.arange(40) % CLASSES})
    rows = db.pack(table, x="photo", y="kind", shape=[32, 32, 3], segments=1)
    keras.utils.set_random_seed(1)
    number = db.load_pretrained(applications.net(keras, "MobileNetV2"), rows, freeze="*")
    grid = {**GRID, "model": number, "optimizer": "Adam", "learning_rate": [0.01, 0.001]}
    options: dict[str, Any] = {"epochs": 25, "seed": 1, "backend": backend, "wait": True}
    once, each = (
        db.fit(rows, grid, materialize=how, out=f"{table}_{how}", **options) for how in ("auto", "off")
    )
    limits = "SELECT limits::json -> 'cuts' AS cuts FROM cerebro._run WHERE run_id = %s"
    (cut,) = db.rows(limits, once.run_id)[0]["cuts"].values()
    assert len(cut[0]["leaving"]) == 1 and "pool" in cut[0]["leaving"][0]
    assert not db.rows(limits, each.run_id)[0]["cuts"]
    weights = "SELECT mst_key, model_weights FROM {} ORDER BY mst_key"
    found, wanted = (
        [(row["mst_key"], bytes(row["model_weights"])) for row in db.rows(weights.format(run.models()))]
        for run in (once, each)
    )
    assert found == wanted


def test_nets_of_the_same_layers_with_other_ends_are_two(db: Database) -> None:
    x = keras.Input((5, 3))
    _, last, cell = keras.layers.LSTM(4, return_state=True)(x)
    one, other = (db.load_pretrained(keras.Model(x, end)) for end in (last, cell))
    assert one != other
    assert db.load_pretrained(keras.Model(x, last)) == one
    mine, again, yours = (
        db.load_pretrained(keras.Model(x, keras.layers.Dense(2, kernel_initializer="ones", name=name)(last)))
        for name in ("mine", "mine", "yours")
    )
    # A name that somebody has chosen is meant.
    assert mine == again != yours


def test_what_came_of_a_load_is_loaded_again(db: Database, packed: Packed, tmp_path: Path) -> None:
    """The first head's names of layers are taken, so the layers of the second head get other names."""
    first = db.load_pretrained(trunk(), packed, head="Dense(4, 'relu')", freeze="*")
    run = db.fit(packed, {**GRID, "model": [first], "learning_rate": 0.01}, epochs=1, seed=1, wait=True)
    run.best().save(tmp_path / "best.keras")
    again = db.load_pretrained(tmp_path / "best.keras", packed, head="Dense(5)", freeze="*", layer="head_1")
    assert list(layer_configs(stored(db, again)))[-2:] == ["head_1_2", "out_kind_2"]


def test_a_head_may_begin_with_what_takes_a_map(db: Database, packed: Packed) -> None:
    found = layer_configs(stored(db, db.load_pretrained(trunk(), packed, head="Conv2D(4, 2)")))
    assert list(found)[-3:] == ["head_1", "head_pooled", "out_kind"]
    with pytest.raises(CerebroError, match="the head cannot stand behind the net"):
        db.load_pretrained(trunk(), packed, head="LSTM(4)")
    with pytest.raises(CerebroError, match="Lambda holds code"):
        db.load_pretrained(trunk(), packed, head="Lambda('x')")


def test_a_layer_that_is_a_net_gives_what_it_gives_there(db: Database, packed: Packed) -> None:
    x = keras.Input((SIDE, SIDE, 3))
    inside = trunk()
    net = keras.Model(x, keras.layers.Flatten()(inside(keras.layers.Rescaling(0.5)(x))))
    number = db.load_pretrained(net, packed, layer="seen_much", freeze="seen_much")
    assert list(layer_configs(stored(db, number)))[-2:] == ["head_pooled", "out_kind"]


def test_a_quantized_net_comes_with_its_weights(db: Database) -> None:
    net = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4), keras.layers.Dense(3)])
    net.layers[0].quantize("int8")
    with pytest.raises(CerebroError, match="is quantized, and no weights are given"):
        db.architectures.add(net)
    assert db.architectures.add(net, weights=True)


def test_a_net_for_other_rows_is_refused(db: Database, packed: Packed) -> None:
    other = keras.Sequential([keras.Input((SIDE, SIDE, 1)), keras.layers.Flatten()])
    with pytest.raises(CerebroError, match=r"takes rows of shape \[8, 8, 1\], the packed table has rows of"):
        db.load_pretrained(other, packed)
