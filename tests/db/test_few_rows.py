"""Tables with fewer rows than segments: visits to segments without rows change nothing."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest

import nets
import reference
from trial import Trial, blobs, rows_of

pytestmark = pytest.mark.fresh_caller

FEATURES, ROWS, SEGMENTS, EPOCHS = 6, 3, 5, 2
LOSS = "categorical_crossentropy"
ADAM = f"loss='{LOSS}',optimizer='Adam(learning_rate=0.01)',metrics=['accuracy']"
KEYS = (1, 2)


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    x, y = blobs(40, features=FEATURES)
    trial.table("three", "x real[], y integer", list(zip(x[:3].tolist(), range(3), strict=True)))
    trial.table("one", "x real[], y integer", rows_of(x[3:4], y[3:4]))
    trial.table("many", "x real[], y integer", rows_of(x, y))
    trial.pack("three", "packed", options={"segments": SEGMENTS})
    trial.pack_validation("one", "packed_val", "packed")
    trial.model(nets.mlp(FEATURES))
    trial.select("mst", [1], [ADAM], ["batch_size=2,epochs=1", "batch_size=2,epochs=2"])


@pytest.fixture(scope="module")
def run(trial: Trial, tables: None) -> int:
    return trial.fit("packed", "out", "mst", EPOCHS, validation_table="packed_val")


def segments(trial: Trial, packed: str) -> tuple[int, int]:
    """Return the number of segments of a packed table, and the number of segments that have rows."""
    declared = trial.value(f"SELECT segments FROM {packed}_summary")
    return declared, trial.value(f"SELECT count(DISTINCT __dist_key__) FROM {packed}")


def test_segments_may_have_no_rows(trial: Trial) -> None:
    assert segments(trial, "packed") == (SEGMENTS, ROWS)
    assert segments(trial, "packed_val") == (SEGMENTS, 1)
    assert sorted(y.argmax() for _, _, y in trial.buffers("packed")) == [0, 1, 2]


def test_there_are_no_more_segments_than_rows_unless_they_are_asked_for(trial: Trial) -> None:
    trial.sql("INSERT INTO cerebro.settings VALUES ('segments', '4')")
    try:
        for source, expected in (("one", 1), ("three", 3), ("many", 4)):
            trial.call("training_preprocessor_dl", source, f"{source}_packed", "y", "x")
            assert segments(trial, f"{source}_packed") == (expected, expected)
        # Rows to validate on are dealt to as many segments as those to train on.
        trial.call("validation_preprocessor_dl", "three", "three_val", "y", "x", "many_packed")
        assert segments(trial, "three_val") == (4, 3)
    finally:
        trial.sql("DELETE FROM cerebro.settings WHERE name = 'segments'")


def test_every_segment_is_visited(trial: Trial, run: int) -> None:
    visits = trial.sql(
        'SELECT mst_key, epoch, segment, "rows", loss IS NULL FROM cerebro.visits WHERE run_id = %s'
        " ORDER BY 1, 2, 3",
        run,
    )
    places = itertools.product(KEYS, range(1, EPOCHS + 1), range(SEGMENTS))
    assert visits == [(*place, int(place[2] < ROWS), place[2] >= ROWS) for place in places]
    assert trial.sql("SELECT DISTINCT status, loss > 0 FROM cerebro.progress WHERE run_id = %s", run) == [
        ("finished", True)
    ]


@pytest.mark.slow
def test_it_comes_to_what_keras_alone_comes_to(trial: Trial, run: int) -> None:
    rows = {}
    for segment, x, y in trial.buffers("packed"):
        rows |= {f"x_{segment}_0": x, f"y_{segment}_0": y}
    configs = [
        reference.Config(
            key, nets.mlp(FEATURES), ("Adam", {"learning_rate": 0.01}), LOSS, 2, key, ["accuracy"]
        )
        for key in KEYS
    ]
    job = reference.Job(reference.BACKEND, 7, EPOCHS, [1, 1, 1, 0, 0], configs)
    with tempfile.TemporaryDirectory() as folder:
        alone = reference.run(job, rows, Path(folder))
    assert trial.weights("out") == alone.weights
    for key in KEYS:
        found = trial.read_row("SELECT * FROM out_info WHERE mst_key = %s", key)
        assert found["training_loss_final"] == pytest.approx(alone.evaluations[key]["loss"], rel=1e-5)
        assert found["training_metrics_final"] == pytest.approx(alone.evaluations[key]["accuracy"])
        assert found["validation_loss_final"] > 0


def test_a_test_table_may_have_few_rows(trial: Trial, run: int) -> None:
    trial.call("madlib_evaluate", "out", "packed_val", "measured", False, 2, options={"threads": 1})
    measured = trial.read_row("SELECT loss, metric FROM measured")
    info = trial.read_row("SELECT * FROM out_info WHERE mst_key = 2")
    assert measured["loss"] == pytest.approx(info["validation_loss_final"])
    assert measured["metric"] == pytest.approx(info["validation_metrics_final"])


@pytest.mark.slow
def test_on_jax_and_in_one_transaction_too(trial: Trial, run: int) -> None:
    trial.fit("packed", "by_jax", "mst", EPOCHS, validation_table="packed_val", options={"backend": "jax"})
    assert trial.value("SELECT count(*) FROM by_jax_info WHERE validation_loss_final > 0") == len(KEYS)
    trial.sql("BEGIN")
    trial.call("validation_preprocessor_dl", "one", "unseen_val", "y", "x", "packed")
    trial.fit("packed", "inline", "mst", EPOCHS, validation_table="unseen_val")
    trial.sql("COMMIT")
    assert trial.weights("inline") == trial.weights("out")
