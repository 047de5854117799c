"""Tables of features: the outputs of frozen layers for packed rows, stored once to train nets on."""

from __future__ import annotations

import numpy as np
import psycopg2
import pytest

import nets
from fixtures import Connect
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.slow

EPOCHS = 3
NET = nets.sequential(
    [nets.FEATURES],
    nets.layer("Dense", units=40, activation="relu", trainable=False, name="first"),
    nets.layer("Dense", units=30, activation="tanh", trainable=False, name="second"),
    nets.layer("Dense", units=20, activation="relu", trainable=False, name="third"),
    nets.layer("Dropout", rate=0.3),
    nets.layer("Dense", units=8, activation="relu", name="head"),
    nets.layer("Dense", units=nets.CLASSES, activation="softmax"),
)
SIZE = 64 * 40 + 40 + 40 * 30 + 30 + 30 * 20 + 20 + 20 * 8 + 8 + 8 * 3 + 3


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(260)))
    trial.table("more", "x real[], y integer", rows_of(*blobs(40, seed=3)))
    trial.table("others", "x real[], y integer", rows_of(*blobs(90, seed=4)))
    trial.pack("blobs", "packed", buffer_size=37)
    weights = np.random.default_rng(2).normal(size=SIZE, scale=0.2).astype("<f4")
    trial.model(NET, weights=weights.tobytes())
    trial.model(NET, weights=abs(weights).tobytes())
    trial.select("mst", [1], [ADAM, SGD], ["batch_size=16,epochs=1"])
    assert materialized(trial, "packed", "third", "features") == 260
    trial.pack_validation("others", "others_packed", "features")
    assert materialized(trial, "others_packed", "third", "others_features") == 90


def materialized(trial: Trial, source: str, layer: str, out: str, model_id: int = 1) -> int:
    call = "SELECT cerebro.materialize_features(%s, 'arch', %s, layer => %s, output_table => %s)"
    return trial.value(call, source, model_id, layer, out)


def features_of(trial: Trial, table: str) -> np.ndarray:
    rows = trial.sql(f"SELECT features, features_shape FROM {table} ORDER BY buffer_id, __dist_key__")
    return np.concatenate([np.frombuffer(data, "<f4").reshape(shape) for data, shape in rows])


def near(left: dict[int, bytes], right: dict[int, bytes]) -> bool:
    arrays = ([np.frombuffer(found[key], "<f4") for key in sorted(found)] for found in (left, right))
    return all(np.allclose(a, b, atol=1e-5) for a, b in zip(*arrays, strict=True))


def test_buffers_stand_in_the_places_of_the_source(trial: Trial) -> None:
    places = "SELECT __dist_key__, buffer_id, y, y_shape FROM {} ORDER BY 1, 2"
    found, wanted = (
        [(key, number, bytes(y), shape) for key, number, y, shape in trial.sql(places.format(name))]
        for name in ("features", "packed")
    )
    assert found == wanted
    assert features_of(trial, "features").shape == (260, 20)


def test_nets_are_trained_whole(trial: Trial) -> None:
    trial.fit("features", "of_features", "mst", EPOCHS, validation_table="others_features")
    trial.fit("packed", "of_rows", "mst", EPOCHS, validation_table="others_packed")
    assert near(trial.weights("of_features"), trial.weights("of_rows"))
    metrics = (
        "SELECT m.value FROM cerebro.metrics AS m JOIN {} USING (run_id) ORDER BY m.mst_key, dataset, metric"
    )
    found, wanted = (
        [value for (value,) in trial.sql(metrics.format(f"{name}_summary"))]
        for name in ("of_features", "of_rows")
    )
    assert len(found) == 8
    assert np.allclose(found, wanted, atol=1e-4)
    # Predictions take rows as they are.
    ours, theirs = (
        [row[2:] for row in trial.predicted(name, "others")] for name in ("of_features", "of_rows")
    )
    assert [one for one, _ in ours] == [one for one, _ in theirs]
    assert np.allclose([p for _, p in ours], [p for _, p in theirs], atol=1e-5)


def test_the_same_bits_each_time_and_after_a_warm_start(trial: Trial) -> None:
    trial.fit("features", "twice", "mst", EPOCHS)
    trial.fit("features", "halves", "mst", 1)
    trial.fit("features", "halves", "mst", EPOCHS - 1, warm_start=True)
    assert trial.weights("halves") == trial.weights("twice")


def test_models_are_evaluated_on_features(trial: Trial) -> None:
    trial.fit("packed", "measured", "mst", 1)
    for table, out in (("others_packed", "on_rows"), ("others_features", "on_features")):
        trial.call("madlib_evaluate", "measured", table, out, False, 1)
    ((one,), (two,)) = (trial.sql(f"SELECT loss FROM {name}")[0] for name in ("on_rows", "on_features"))
    assert abs(one - two) < 1e-4


def test_calls_that_answer_rows_refuse_features_and_name_the_rows(trial: Trial) -> None:
    trial.fit("features", "answering", "mst", 1, validation_table="others_features")
    trial.sql("SELECT cerebro.register('answering', 'featured')")
    said = r"holds outputs of layer third.*\n.*public\.others_packed"
    for call in (
        "confusion_matrix('answering', 'others_features')",
        "ensemble('answering', 'joined')",
        "promote('featured', 1, 'best', 'others_features')",
    ):
        with pytest.raises(psycopg2.errors.FeatureNotSupported, match=said):
            trial.sql(f"SELECT * FROM cerebro.{call}")
    cells = trial.sql("SELECT * FROM cerebro.confusion_matrix('answering', 'others_packed')")
    assert sum(count for _, _, count in cells) == 90
    trial.notices()
    trial.sql("SELECT * FROM cerebro.check('answering', 'others')")
    assert "or stored as outputs of a net" in trial.notices()


def test_a_later_layer_is_made_of_an_earlier_one(trial: Trial) -> None:
    materialized(trial, "packed", "first", "early")
    materialized(trial, "early", "third", "late")
    assert np.allclose(features_of(trial, "late"), features_of(trial, "features"), atol=1e-6)
    trial.fit("late", "of_late", "mst", 1)
    with pytest.raises(psycopg2.Error, match='holds outputs of layer "third", which is not before the other'):
        materialized(trial, "late", "second", "refused")


def test_new_rows_alone_go_through_the_net(trial: Trial) -> None:
    trial.pack("blobs", "growing", buffer_size=37)
    materialized(trial, "growing", "third", "grown")
    before = features_of(trial, "grown")
    call = "SELECT cerebro.refresh_features('grown')"
    assert trial.value(call) == 0
    trial.call("append_rows", "growing", "more")
    assert trial.value(call) == 40
    after = features_of(trial, "grown")
    assert len(after) == 300
    materialized(trial, "growing", "third", "anew")
    assert (after == features_of(trial, "anew")).all()
    assert len(before) == 260
    run = trial.fit("grown", "of_grown", "mst", 1)
    assert trial.value("SELECT packed_version FROM cerebro.runs WHERE run_id = %s", run) == 2
    assert trial.value("SELECT sum(rows) FROM cerebro.visits WHERE run_id = %s AND mst_key = 1", run) == 300


def test_a_source_that_was_packed_with_other_classes_is_refused(trial: Trial) -> None:
    trial.sql("CREATE TABLE moving AS SELECT * FROM blobs")
    trial.pack("moving", "moved", buffer_size=37)
    materialized(trial, "moved", "third", "still")
    trial.sql("UPDATE moving SET y = y + 1")
    trial.sql("DROP TABLE moved, moved_summary")
    trial.pack("moving", "moved", buffer_size=37)
    with pytest.raises(psycopg2.Error, match="is not what .*still.* was made of"):
        trial.sql("SELECT cerebro.refresh_features('still')")


def test_a_layer_that_an_input_passes_by_is_refused(trial: Trial) -> None:
    trial.sql("CREATE TABLE twofold AS SELECT x, x[1:3] AS z, y FROM blobs")
    trial.pack("twofold", "twofold_packed", x="x, z")
    number = trial.model(nets.passed_by(), weights=b"\0" * 4 * (64 * 5 + 5 + 8 * 3 + 3))
    with pytest.raises(psycopg2.Error, match='does not lead to layer "held"'):
        materialized(trial, "twofold_packed", "held", "nothing", number)


def test_features_of_other_weights_are_refused(trial: Trial) -> None:
    trial.select("changed", [2], [ADAM], ["batch_size=16,epochs=1"])
    with pytest.raises(
        psycopg2.Error, match='are not those of this net: its layers up to "third" have other'
    ):
        trial.fit("features", "stale", "changed", 1)
    assert trial.value("SELECT to_regclass('stale')") is None
    trial.pack("blobs", "packed_2", buffer_size=37)
    materialized(trial, "packed_2", "third", "features_2", model_id=2)
    trial.call("append_rows", "packed_2", "more")
    trial.sql("UPDATE arch SET model_weights = %s WHERE model_id = 2", b"\0" * 4 * SIZE)
    with pytest.raises(psycopg2.Error, match="are not those of this net"):
        trial.sql("SELECT cerebro.refresh_features('features_2')")


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        ("head", 'no output of layer "head" can be kept'),
        ("secnd", 'Did you mean "second"'),
        (None, "layer is NULL"),
        ("inputlayer_0", 'no output of layer "inputlayer_0" can be kept'),
    ],
)
def test_layers_that_change_are_refused(trial: Trial, layer: str, said: str) -> None:
    with pytest.raises(psycopg2.Error, match=said):
        materialized(trial, "packed", layer, "nothing")
    assert trial.value("SELECT to_regclass('nothing')") is None


def test_what_cannot_be_is_refused_with_a_reason(trial: Trial) -> None:
    random = trial.model(NET)
    other = trial.model(nets.mlp())
    trial.select("others_mst", [other], [ADAM], ["batch_size=16,epochs=1"])
    trial.sql("CREATE TABLE kinds AS SELECT *, y % 2 AS kind FROM blobs")
    trial.pack("kinds", "by_kind", options={"group_by": ["kind"]})
    for call, said in (
        (f"materialize_features('packed', 'arch', {random}, 'third', 'no')", "has no weights"),
        ("materialize_features('by_kind', 'arch', 1, 'third', 'no')", "was packed in groups"),
        ("materialize_features('packed', 'arch', 1, 'third', 'features')", "already exists"),
        ("refresh_features('packed')", "is no table of features"),
        ("append_rows('features', 'more')", "holds features of"),
        ("madlib_fit_multiple_model('features', 'no', 'others_mst', 1)", "has no frozen layer"),
    ):
        with pytest.raises(psycopg2.Error, match=said):
            trial.sql(f"SELECT cerebro.{call}")
    assert trial.value("SELECT to_regclass('no')") is None


def test_a_role_needs_its_rights(trial: Trial, connect: Connect) -> None:
    trial.sql("CREATE ROLE of_features LOGIN")
    trial.sql("SELECT cerebro.grant_usage('of_features')")
    trial.sql("GRANT CREATE ON SCHEMA public TO of_features")
    try:
        other = Trial(connect(user="of_features"))
        with pytest.raises(psycopg2.Error, match="permission denied"):
            materialized(other, "packed", "third", "taken")
        trial.sql("GRANT SELECT ON packed, packed_summary, arch TO of_features")
        assert materialized(other, "packed", "third", "taken") == 260
        assert other.value("SELECT tableowner FROM pg_tables WHERE tablename = 'taken'") == "of_features"
    finally:
        trial.sql("DROP OWNED BY of_features")
        trial.sql("DROP ROLE of_features")
