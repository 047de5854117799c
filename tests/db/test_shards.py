"""Option `device_memory_mb`: a run trains nets in shards, and can be planned, resumed and replayed."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psycopg2
import pytest

import nets
from fixtures import Connect
from segments import kill_a_visit
from trial import ADAM, Trial, blobs, cancelled, rows_of

pytestmark = [pytest.mark.fresh_caller, pytest.mark.slow]

EPOCHS = 3
DEEP = nets.sequential(
    [nets.FEATURES],
    *(nets.layer("Dense", units=128, activation="tanh") for _ in range(17)),
    nets.layer("Dense", units=nets.CLASSES, activation="softmax"),
)
SHARDED = {"device_memory_mb": 1, "backend": "jax", "seed": 3, "threads": 1}
WHOLE = {name: value for name, value in SHARDED.items() if name != "device_memory_mb"}


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    trial.table("blobs", "x real[], y integer", rows_of(*blobs(150)))
    trial.pack("blobs", "packed", buffer_size=37)
    trial.select("mst", [trial.model(DEEP)], [ADAM], ["batch_size=16"])


@pytest.fixture(scope="module")
def parts(trial: Trial, tables: None) -> dict[int, bytes]:
    """Train in shards, undisturbed, and return the weights."""
    trial.fit("packed", "parts", "mst", EPOCHS, options=SHARDED)
    return trial.weights("parts")


def test_a_net_of_three_times_the_memory_learns_the_same(trial: Trial, parts: dict[int, bytes]) -> None:
    trial.fit("packed", "whole", "mst", EPOCHS, options=WHOLE)
    losses = [trial.value(f"SELECT training_loss_final FROM {name}_info") for name in ("whole", "parts")]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    weights = [np.frombuffer(found[1], "<f4") for found in (trial.weights("whole"), parts)]
    assert 12 * len(weights[0]) > 3 * 2**20
    np.testing.assert_allclose(weights[1], weights[0], rtol=1e-3, atol=1e-5)


def test_a_run_that_is_canceled_is_resumed(trial: Trial, parts: dict[int, bytes]) -> None:
    with cancelled(trial, at_visits=3):
        trial.fit("packed", "resumed", "mst", EPOCHS, options=SHARDED)
    run = trial.value("SELECT max(run_id) FROM cerebro.runs")
    trial.sql("SELECT cerebro.resume(%s)", run)
    assert trial.weights("resumed") == parts


def test_a_visit_that_is_killed_is_made_again(
    trial: Trial, connect: Connect, parts: dict[int, bytes]
) -> None:
    other = connect()
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(trial.fit, "packed", "killed", "mst", EPOCHS, options=SHARDED)
        assert kill_a_visit(other, run)
        run.result(timeout=100)
    assert trial.weights("killed") == parts


def test_madlib_fit_trains_in_shards(trial: Trial) -> None:
    fit = "SELECT cerebro.madlib_fit('packed', %s, 'arch', 1, %s, 'batch_size=16', %s, options => %s)"
    for name, options in (("one_whole", WHOLE), ("one_in_shards", SHARDED)):
        trial.sql(fit, name, ADAM, EPOCHS, json.dumps(options))
    final = "SELECT training_loss_final FROM {}_summary"
    whole, shards = (trial.value(final.format(name)) for name in ("one_whole", "one_in_shards"))
    assert shards == pytest.approx(whole, rel=1e-5)
    limits = "SELECT limits::jsonb -> 'device_memory_mb' FROM cerebro._run ORDER BY run_id DESC LIMIT 1"
    assert trial.value(limits) == 1


def test_a_replay_is_in_shards_whatever_it_says_of_fusion(trial: Trial) -> None:
    run = trial.fit("packed", "first", "mst", 1, options=SHARDED)
    again = trial.fit("packed", "repeated", "mst", 1, options=WHOLE | {"replay": run, "fuse": "off"})
    limits = trial.value("SELECT limits::jsonb FROM cerebro._run WHERE run_id = %s", again)
    assert limits["device_memory_mb"] == 1
    assert trial.weights("first") == trial.weights("repeated")


def test_a_net_that_no_machine_holds_is_refused_if_it_is_not_cut(trial: Trial) -> None:
    trial.select("large_mst", [trial.model(nets.too_large())], [ADAM], ["batch_size=1000"])
    with pytest.raises(psycopg2.errors.OutOfMemory, match="config 1 needs at least"):
        trial.fit("packed", "refused", "large_mst", 1, options=SHARDED | {"device_memory_mb": 10**12})


def test_the_plan_says_how_the_net_is_cut(trial: Trial) -> None:
    nodes = trial.value(
        "SELECT cerebro.explain_fit('packed', 'mst', 3, options => %s, format => 'json')::jsonb"
        " #> '{0,Plan,Plans}'",
        json.dumps(SHARDED),
    )
    train = next(node for node in nodes if node["Node Type"] == "Train")
    assert train["Shards"] > 3
    assert train["Device Bytes"] <= 2**20
    assert train["State Bytes"] > 3 * 2**20
    lines = trial.sql("SELECT cerebro.explain_fit('packed', 'mst', 3, options => %s)", json.dumps(SHARDED))
    assert any("Form alone, Reason nets may be in shards on the device" in line for (line,) in lines)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device_memory_mb": 0}, "option device_memory_mb is 0"),
        ({"backend": "tensorflow"}, "option device_memory_mb is given, and backend is tensorflow"),
        ({"fuse": "exact"}, "option device_memory_mb is given, and fuse is exact"),
        ({"recompute": True}, "option device_memory_mb is given, and recompute is given"),
    ],
    ids=["zero", "engine", "fused", "recompute"],
)
def test_what_has_no_shards_is_refused(trial: Trial, options: dict[str, object], said: str) -> None:
    with pytest.raises(psycopg2.Error, match=said):
        trial.fit("packed", "refused", "mst", 1, options=SHARDED | options)


def test_a_layer_that_is_too_large_is_named(trial: Trial) -> None:
    wide = nets.sequential(
        [nets.FEATURES],
        nets.layer("Dense", units=1000, activation="relu"),
        nets.layer("Dense", units=1000, activation="relu", name="large"),
        nets.layer("Dense", units=nets.CLASSES, activation="softmax"),
    )
    clipped = "optimizer='Adam(global_clipnorm=1.0)',loss='categorical_crossentropy',metrics=['accuracy']"
    trial.select("wide_mst", [trial.model(wide)], [ADAM], ["batch_size=16"])
    trial.select("clipped_mst", [trial.model(DEEP)], [clipped], ["batch_size=16"])
    before = trial.value("SELECT count(*) FROM cerebro.runs")
    too_small = "config 1: option device_memory_mb is too small: .* least is"
    with pytest.raises(psycopg2.Error, match=too_small) as caught:
        trial.fit("packed", "refused", "wide_mst", 1, options=SHARDED)
    assert 'Most of it is for layer "large"' in str(caught.value)
    with pytest.raises(psycopg2.Error, match="global_clipnorm needs the slopes of all weights at once"):
        trial.fit("packed", "refused", "clipped_mst", 1, options=SHARDED)
    assert trial.value("SELECT count(*) FROM cerebro.runs") == before
