"""Fit parameter `anneal_at`: the learning rate falls by half a cosine until each listed epoch."""

from __future__ import annotations

import numpy as np
import psycopg2
import pytest

import nets
from reference import BACKEND
from trial import Trial, blobs, cancelled, rows_of

pytestmark = pytest.mark.fresh_caller

LOSS = "loss='categorical_crossentropy',optimizer='{}',metrics=['accuracy']"
FEATURES, RATE, EPOCHS = 6, 0.1, 4
SGD, ADAM = LOSS.format(f"SGD(learning_rate={RATE})"), LOSS.format("Adam(learning_rate=0.01)")
AT = "batch_size=8,epochs=1,anneal_at=[1, 4]"
# So many configs that some wait for the same segment.
RATES = (0.01, 0.003, 0.02, 0.001, 0.004, 0.002, 0.03, 0.006)
# Half a cosine to the end of the first epoch, and another one over the next three.
SHARES = (0.5, 0.9330127018922193, 0.5, 0.06698729810778070)


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(200, features=FEATURES)))
    trial.pack("blobs", "packed", buffer_size=37)
    trial.model(nets.mlp(FEATURES))
    trial.select("mst", [1], [SGD, ADAM], [AT])
    trial.select("adams", [1], [LOSS.format(f"Adam(learning_rate={rate})") for rate in RATES], [AT])


def test_each_epoch_trains_with_its_share_of_the_rate(trial: Trial) -> None:
    """Warm starts of one epoch each, at rates that are computed by hand, give the bits of `anneal_at`."""
    trial.fit("packed", "annealed", "mst", EPOCHS)
    for epoch, share in enumerate(SHARES):
        rate = float(np.float32(np.float64(np.float32(RATE)) * share))
        by_hand = LOSS.format(f"SGD(learning_rate={rate!r})")
        trial.select("by_hand", [1], [by_hand, ADAM], ["batch_size=8,epochs=1"])
        trial.fit("packed", "in_steps", "by_hand", 1, warm_start=epoch > 0)
        trial.sql("DROP TABLE by_hand, by_hand_summary")
    assert trial.weights("in_steps")[1] == trial.weights("annealed")[1]
    assert trial.weights("in_steps")[2] != trial.weights("annealed")[2]


def test_after_the_last_of_them_the_rate_is_the_whole_again(trial: Trial) -> None:
    trial.fit("packed", "longer", "mst", EPOCHS + 1)
    trial.keep("without", "mst", [1, 2])
    trial.sql("UPDATE without SET fit_params = 'batch_size=8,epochs=1'")
    trial.fit("packed", "further", "mst", EPOCHS)
    trial.fit("packed", "further", "without", 1, warm_start=True)
    assert trial.weights("further") == trial.weights("longer")


def test_configs_that_share_visits_come_to_the_same_bits(trial: Trial) -> None:
    options = {"backend": BACKEND}
    trial.fit("packed", "alone", "adams", EPOCHS, options={**options, "fuse": "off"})
    run_id = trial.fit("packed", "shared", "adams", EPOCHS, options={**options, "fuse": "exact"})
    assert trial.count_shared(run_id) > 0
    assert trial.weights("shared") == trial.weights("alone")


@pytest.mark.slow
def test_the_bits_are_the_same_after_a_cancel(trial: Trial) -> None:
    trial.fit("packed", "at_once", "mst", EPOCHS)
    with cancelled(trial, 9):
        trial.fit("packed", "in_parts", "mst", EPOCHS)
    trial.sql("SELECT cerebro.resume(%s)", trial.value("SELECT max(run_id) FROM cerebro._run"))
    assert trial.weights("in_parts") == trial.weights("at_once")


@pytest.mark.parametrize("text", ["0", "[]", "[3, 2]", "[2, 2]", "[1.5]", "True", "'2'", "{2: 3}"])
def test_what_is_no_list_of_epochs_is_refused(trial: Trial, text: str) -> None:
    with pytest.raises(psycopg2.Error, match=r"anneal_at is .*\n.*It must be a list of epochs"):
        trial.select("wrong", [1], [SGD], [f"batch_size=16,anneal_at={text}"])


def test_a_schedule_beside_it_is_refused(trial: Trial) -> None:
    schedule = LOSS.format("SGD(learning_rate=CosineDecay(initial_learning_rate=0.1, decay_steps=9))")
    trial.select("two_ways", [1], [schedule], [AT])
    with pytest.raises(psycopg2.Error, match="config 1: anneal_at and CosineDecay both change the learning"):
        trial.fit("packed", "none_made", "two_ways", 1)
    assert trial.value("SELECT to_regclass('none_made')") is None


def test_groups_refuse_it(trial: Trial) -> None:
    trial.sql("CREATE TABLE kinds AS SELECT *, y % 2 AS kind FROM blobs")
    trial.pack("kinds", "by_kind", options={"group_by": ["kind"]})
    with pytest.raises(psycopg2.Error, match="config 1: anneal_at is not there for groups"):
        trial.fit("by_kind", "of_groups", "mst", 1)
