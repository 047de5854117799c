"""Option `recompute`: runs give the same models as without it, and can be resumed and explained."""

from __future__ import annotations

import itertools
import json

import numpy as np
import psycopg2
import pytest

import nets
from trial import ADAM, SGD, Trial, blobs, cancelled, rows_of

pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]

EPOCHS = 3
DEEP = nets.sequential(
    [nets.FEATURES],
    *(nets.layer("Dense", units=24, activation="relu") for _ in range(8)),
    nets.layer("Dropout", rate=0.2),
    nets.layer("Dense", units=nets.CLASSES, activation="softmax"),
)
# The four batches of a visit make a step and a part of the next one, which goes on in the next visit.
SUMMED = ADAM.replace("lr=0.01", "lr=0.01, gradient_accumulation_steps=3")
AGAIN = {"recompute": True, "seed": 3, "threads": 1}


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(150)))
    trial.pack("blobs", "packed", buffer_size=37)
    trial.select("mst", [trial.model(DEEP)], [ADAM, SGD, SUMMED], ["batch_size=20"])
    trial.fit("packed", "kept", "mst", EPOCHS, options={**AGAIN, "recompute": False})


@pytest.mark.tensorflow
def test_the_weights_are_those_of_a_run_without_it(trial: Trial) -> None:
    for name, asked in (("every", True), ("named", ["dense_2", "dense_3", "dropout_9"])):
        run = trial.fit("packed", name, "mst", EPOCHS, options={**AGAIN, "recompute": asked})
        said = trial.value("SELECT limits::json -> 'recompute' FROM cerebro._run WHERE run_id = %s", run)
        assert (sorted(said) if isinstance(said, list) else said) == asked
        assert trial.weights(name) == trial.weights("kept")


WIDTHS = (nets.FEATURES, 600, 600, 24, 24, nets.CLASSES)
FROZEN = nets.sequential(
    [nets.FEATURES],
    nets.layer("Dense", units=600, activation="relu", trainable=False, name="wide"),
    nets.layer("Dense", units=600, activation="relu", trainable=False, name="narrow"),
    nets.layer("Dense", units=24, activation="relu", name="first"),
    nets.layer("Dense", units=24, activation="relu", name="second"),
    nets.layer("Dense", units=nets.CLASSES, activation="softmax"),
)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("packing", "fit", "options"),
    [
        ({"folds": 2}, "batch_size=20", {"cross_validate": True}),
        ({"group_by": "part"}, "batch_size=20", {}),
        ({}, "batch_size=20,unfreeze_at={2: 'narrow'}", {}),
        ({}, "batch_size=20,epochs=100", {}),
    ],
    ids=["folds", "groups", "layers that thaw", "layers computed once"],
)
def test_the_weights_are_the_same_beside_other_ways_to_train(
    trial: Trial, packing: dict[str, object], fit: str, options: dict[str, object]
) -> None:
    trial.sql("CREATE TABLE IF NOT EXISTS parted AS SELECT *, y % 2 AS part FROM blobs")
    trial.sql("DROP TABLE IF EXISTS other_packed, other_packed_summary, other_mst, other_mst_summary")
    trial.pack("parted", "other_packed", buffer_size=37, options=packing)
    size = sum((a + 1) * b for a, b in itertools.pairwise(WIDTHS))
    given = np.random.default_rng(2).normal(0, 0.05, size).astype("<f4").tobytes()
    trial.select("other_mst", [trial.model(FROZEN, weights=given)], [ADAM], [fit])
    found = []
    for again in (False, ["first", "second"]):
        trial.sql("DROP TABLE IF EXISTS other, other_info, other_summary")
        more = {**AGAIN, **options, "recompute": again}
        run = trial.fit("other_packed", "other", "other_mst", EPOCHS, options=more)
        cuts = trial.value("SELECT limits::json ->> 'cuts' FROM cerebro._run WHERE run_id = %s", run)
        assert (cuts != "{}") is ("epochs=100" in fit)
        # A cross-validated run leaves no models.
        visits = "SELECT mst_key, step, loss FROM cerebro.visits WHERE run_id = %s ORDER BY 1, 2"
        found.append((trial.sql("SELECT md5(model_weights) FROM other ORDER BY 1"), trial.sql(visits, run)))
    assert found[0] == found[1]
    assert len(found[0][0]) == (0 if "folds" in packing else 2 if packing else 1) and found[0][1]


@pytest.mark.tensorflow
def test_madlib_fit_computes_layers_again(trial: Trial) -> None:
    fit = "SELECT cerebro.madlib_fit('packed', %s, 'arch', 1, %s, 'batch_size=20', %s, options => %s)"
    for name, again in (("one_kept", False), ("one_again", True)):
        trial.sql(fit, name, ADAM, EPOCHS, json.dumps(AGAIN | {"recompute": again}))
    kept, again = (trial.value(f"SELECT model_weights FROM {name}") for name in ("one_kept", "one_again"))
    assert bytes(kept) == bytes(again)


def test_an_interrupted_run_is_resumed(trial: Trial) -> None:
    with cancelled(trial, at_visits=3):
        trial.fit("packed", "resumed", "mst", EPOCHS, options=AGAIN)
    run = trial.value("SELECT max(run_id) FROM cerebro.runs")
    trial.sql("SELECT cerebro.resume(%s)", run)
    trial.fit("packed", "undisturbed", "mst", EPOCHS, options=AGAIN)
    assert trial.weights("resumed") == trial.weights("undisturbed")


def test_the_plan_says_why_configs_train_alone(trial: Trial) -> None:
    plan = trial.sql(
        "SELECT * FROM cerebro.explain_fit('packed', 'mst', 3, options => %s)", '{"recompute": true}'
    )
    text = "\n".join(line for (line,) in plan)
    assert "Form alone, Reason layers are computed again in the backward pass" in text


def test_the_plan_says_what_a_mini_batch_keeps(trial: Trial) -> None:
    kept, again = (
        trial.value(
            "SELECT cerebro.explain_fit('packed', 'mst', 3, options => %s, format => 'json')::jsonb"
            " #> '{0,Plan,Plans}'",
            json.dumps({"recompute": again}),
        )
        for again in (False, True)
    )
    bytes_kept, bytes_again = (
        next(node["Activation Bytes"] for node in nodes if node["Node Type"] == "Train")
        for nodes in (kept, again)
    )
    # Eight layers keep their outputs before and after relu; Dropout keeps two numbers for each output.
    assert bytes_kept == 4 * 20 * (8 * 2 * 24 + 2 * 24 + nets.CLASSES)
    assert bytes_again < bytes_kept


def test_a_batch_that_no_machine_holds_is_refused_before_any_work(trial: Trial) -> None:
    trial.select("large_mst", [trial.model(nets.too_large())], [ADAM], ["batch_size=1000"])
    before = trial.value("SELECT count(*) FROM cerebro.runs")
    with pytest.raises(psycopg2.errors.OutOfMemory) as caught:
        trial.fit("packed", "refused", "large_mst", 1)
    with pytest.raises(psycopg2.errors.OutOfMemory, match="config 1 needs at least"):
        trial.sql("SELECT cerebro.explain_fit('packed', 'large_mst', 1)")
    rows = trial.value("SELECT total_rows / 2 FROM packed_summary")
    said = str(caught.value)
    assert "config 1 needs at least 4." in said and f"TB for a mini-batch of {rows} rows" in said
    assert trial.value("SELECT count(*) FROM cerebro.runs") == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"recompute": "dense_2"}, "option recompute is dense_2"),
        ({"recompute": []}, r"option recompute is \[\]"),
        ({"recompute": ["dense_99"]}, 'option recompute names "dense_99", and no net has such a layer'),
        ({"recompute": True, "fuse": "exact"}, "option fuse is exact, and recompute is given"),
    ],
    ids=["no list", "empty", "unknown", "fused"],
)
def test_it_is_refused_before_any_work(trial: Trial, options: dict[str, object], said: str) -> None:
    before = trial.value("SELECT count(*) FROM cerebro.runs")
    with pytest.raises(psycopg2.Error, match=said):
        trial.fit("packed", "refused", "mst", 1, options=options)
    assert trial.value("SELECT count(*) FROM cerebro.runs") == before
