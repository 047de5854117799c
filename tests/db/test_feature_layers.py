"""Nets with new layers on several layers of one trained net; a run computes their common layers once."""

from __future__ import annotations

import json

import psycopg2
import pytest

import nets
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]

UNITS, EPOCHS = 1500, 6
NET = "Dense(8, 'relu', name='new')"
BASE = nets.sequential(
    [nets.FEATURES],
    nets.layer("Reshape", target_shape=[nets.SIDE, nets.SIDE, 1], name="image"),
    nets.layer("Conv2D", filters=3, kernel_size=[3, 3], activation="relu", name="map"),
    nets.layer("Flatten", name="flat"),
    nets.layer("Dense", units=UNITS, activation="relu", name="before"),
    nets.layer("Dense", units=UNITS, activation="relu", name="first"),
    nets.layer("Dropout", rate=0.3, name="drops"),
    nets.layer("Dense", units=UNITS, activation="tanh", name="second"),
    nets.layer("Dense", units=20, name="new"),
    nets.layer("Dense", units=nets.CLASSES, activation="softmax"),
)


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(260)))
    trial.pack("blobs", "packed", buffer_size=37, options={"validation": 0.25})
    trial.model(BASE)
    trial.select("seeded", [1], [SGD], ["batch_size=32,epochs=1"])
    trial.fit("packed", "trained", "seeded", 1)
    trial.model(BASE, weights=trial.weights("trained")[1])


def load(trial: Trial, net: str, **params: object) -> list[int]:
    return trial.value(
        "SELECT cerebro.load_net('arch', 'packed', %s, %s)", net, json.dumps({"base": 2, **params})
    )


def test_new_layers_sit_on_layers_of_a_trained_net(trial: Trial) -> None:
    made = load(trial, "Dense({4, 8}, 'relu', name='new')", feature_layer=["map", "second", "map"])
    assert len(made) == 4
    trained = bytes(trial.value("SELECT model_weights FROM arch WHERE model_id = 2"))
    for model_id, (before, first) in zip(
        made, [("map", "globalaveragepooling2d_1")] * 2 + [("second", "new")] * 2, strict=True
    ):
        rows = trial.sql("SELECT layer, parameters FROM cerebro.show_net('arch', %s)", model_id)
        names = [name for name, _ in rows]
        kept = names[: names.index(before) + 1]
        # The net has no later layers of the trained net, so new layers may have their names.
        assert names[len(kept)] == first and names[-1] == "out_y"
        own = bytes(trial.value("SELECT model_weights FROM arch WHERE model_id = %s", model_id))
        size = 4 * sum(count for name, count in rows if name in kept)
        assert own[:size] == trained[:size]
        layers = trial.value("SELECT model_arch FROM arch WHERE model_id = %s", model_id)
        frozen = {one["name"]: one["config"].get("trainable", True) for one in layers["config"]["layers"][1:]}
        assert [name for name, trains in frozen.items() if not trains] == kept[1:]
    name = trial.value("SELECT name FROM arch WHERE model_id = %s", made[1])
    assert name == "Dense(8, 'relu', name='new') on map"


def test_a_search_chooses_the_layer(trial: Trial) -> None:
    made = load(trial, NET, feature_layer=["map", "first", "second"])
    grid = "{'loss': ['categorical_crossentropy'], 'optimizer_params_list': [{'optimizer': ['Adam']}]}"
    trial.call(
        "madlib_keras_automl", "packed", "chosen", "arch", "chosen_best", made, grid, "{'batch_size': [32]}",
        "asha", "num_configs=3, num_iterations=3", validation_table="packed_validation",
        options={"threads": 1, "seed": 1},
    )  # fmt: skip
    losses = "SELECT model_id FROM chosen_info ORDER BY validation_loss_final LIMIT 1"
    assert trial.sql("SELECT model_id FROM chosen_best") == trial.sql(losses)
    assert trial.value("SELECT count(DISTINCT model_id) FROM chosen_info") == 3


# Sends notices when this session computes outputs of frozen layers, and when it drops some.
COUNT = """
DO LANGUAGE plpython3u $$
from cerebro_plpy import memory
from cerebro_plpy.engine.models import cut
from cerebro_plpy.segment import features, rows

def features_noted(self, *arguments, own=cut.Pass.features, **named):
    plpy.notice("computed with %s outputs" % len(self.shapes))
    return own(self, *arguments, **named)

def dropped_noted(needs, own=features.drop_unneeded):
    partitions = list(memory.get_instance(rows.Partitions).values())
    before = sum(len(one.features) for one in partitions)
    own(needs)
    if (left := sum(len(one.features) for one in partitions)) < before:
        plpy.notice("kept %s of %s" % (left, before))

cut.Pass.features, features.drop_unneeded = features_noted, dropped_noted
$$
"""


@pytest.mark.postgresql
def test_layers_in_common_are_computed_in_one_pass_and_kept_as_long_as_needed(trial: Trial) -> None:
    """Two nets share one pass over the rows. The test looks into its own process, not into a cluster's."""
    trial.sql("BEGIN")
    try:
        made = load(trial, NET, feature_layer=["first", "second"])
        trial.select("compared", made, [ADAM, SGD], ["batch_size=32,epochs=2"])
        # Tables of this transaction keep the run in this session.
        trial.pack("blobs", "own", buffer_size=37)
        trial.fit("own", "alone", "compared", EPOCHS, options={"materialize": "off", "budget_mb": 1})
        trial.sql(COUNT)
        trial.notices()
        run = trial.fit("own", "together", "compared", EPOCHS)
        cuts = trial.value("SELECT limits::json -> 'cuts' FROM cerebro._run WHERE run_id = %s", run)
        assert sorted(cuts) == sorted(map(str, made))
        said = trial.notices()
        # Each net is tried with each optimizer; one pass over each of the two partitions serves both nets.
        assert said.count("computed with 2 outputs") == 2
        assert said.count("computed with 1 outputs") == 4
        assert "kept 2 of 4" in said
        assert trial.weights("together") == trial.weights("alone")
    finally:
        trial.sql("ROLLBACK")


@pytest.mark.parametrize(
    ("net", "params", "message"),
    [
        (NET, {"feature_layer": "secnd"}, 'no layer "secnd"'),
        (NET, {"feature_layer": []}, "base is given without feature_layer"),
        (NET, {"feature_layer": "first", "base": None}, "feature_layer is given without base"),
        (NET, {"feature_layer": [7]}, "feature_layer is 7"),
        (NET, {"feature_layer": "first", "width": 3}, "parameter width is not for layers on a trained net"),
        ("tabular", {"feature_layer": "first"}, "'tabular' is a whole net"),
        (NET, {"feature_layer": "first", "base": 3_000_000_000}, "base is 3000000000"),
        (NET, {"feature_layer": ["first", "secnd"]}, 'no layer "secnd"'),
        (NET, {"feature_layer": "first", "base": 1}, "model_id 1 of .* has no weights"),
        (NET, {"feature_layer": "first", "base": 99}, "99"),
        (NET, {"feature_layer": "first", "base": "x"}, "base is x"),
        (NET, {"feature_layer": "inputlayer_0"}, "it is an input"),
    ],
)
def test_what_has_no_such_layer_is_refused(
    trial: Trial, net: str, params: dict[str, object], message: str
) -> None:
    before = trial.value("SELECT count(*) FROM arch")
    with pytest.raises(psycopg2.Error, match=message):
        load(trial, net, **params)
    assert trial.value("SELECT count(*) FROM arch") == before
