"""Citus: each way to train gives on the workers the bits of a single session."""

from __future__ import annotations

import json
from typing import Any

import pytest

import nets
from trial import ADAM, SGD, Trial, blobs, rows_of

pytestmark = pytest.mark.citus
FEATURES, SEGMENTS, EPOCHS = 12, 3, 3
FROZEN = nets.sequential(
    [FEATURES],
    nets.layer("Dense", units=16, activation="relu", trainable=False),
    nets.layer("Dense", units=nets.CLASSES, activation="softmax"),
)


@pytest.fixture(scope="module", autouse=True)
def tables(trial: Trial) -> None:
    rows = [(*row, number % 4) for number, row in enumerate(rows_of(*blobs(600, features=FEATURES)))]
    trial.table("blobs", "x real[], y integer, part integer", rows)
    for name, options in {
        "packed": {},
        "in_folds": {"folds": {"column": "part"}},
        "in_groups": {"group_by": ["part"]},
    }.items():
        trial.pack("blobs", name, buffer_size=50, options={"segments": SEGMENTS, **options})
    for text in (nets.mlp(FEATURES), FROZEN):
        trial.model(text)
    fits = ["batch_size=16,epochs=1", "batch_size=20,epochs=2"]
    trial.select("mst", [1], [ADAM, SGD], fits)
    trial.select("frozen_mst", [2], [ADAM], fits)


def train_both_ways(trial: Trial, packed: str, mst: str, **more: Any) -> tuple[str, str]:
    """Train on the workers and in the caller's session; return the names of the two model tables.

    The caller's session trains all segments itself if its transaction does not see the commits of others.
    """
    trial.fit(packed, "spread", mst, EPOCHS, **more)
    trial.sql("BEGIN ISOLATION LEVEL REPEATABLE READ")
    try:
        trial.fit(packed, "alone", mst, EPOCHS, **more)
    finally:
        trial.sql("COMMIT")
    return "spread", "alone"


def read(trial: Trial, models: str) -> list[tuple[Any, ...]]:
    """Return the weights and losses of a model table, or of each of its groups or folds."""
    columns = {name for (name,) in trial.sql(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0", f"{models}_info"
    )}  # fmt: skip
    also = ", ".join(sorted(columns & {"part", "fold"}) or ["0"])
    weights = trial.sql(f"SELECT md5(model_weights) FROM {models} ORDER BY 1")
    return weights + trial.sql(
        f"SELECT mst_key, {also}, training_loss::text, training_loss_final FROM {models}_info ORDER BY 1, 2"
    )


@pytest.mark.parametrize(
    ("packed", "mst", "options"),
    [
        ("packed", "frozen_mst", {}),
        ("packed", "frozen_mst", {"hybrid": {"average_from_epoch": 2}}),
        ("in_folds", "mst", {"cross_validate": {"final": True}}),
        ("in_groups", "mst", {}),
        ("in_groups", "frozen_mst", {}),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else value,
)
def test_the_bits_are_those_of_one_session(
    trial: Trial, packed: str, mst: str, options: dict[str, Any]
) -> None:
    trial.sql("DROP TABLE IF EXISTS spread, spread_info, spread_summary, alone, alone_info, alone_summary")
    spread, alone = train_both_ways(trial, packed, mst, options=options)
    topologies = "SELECT topology FROM cerebro.runs ORDER BY run_id DESC LIMIT 2"
    assert trial.sql(topologies) == [("inline",), ("citus",)]
    assert read(trial, spread) == read(trial, alone) != []


def test_a_warm_start_goes_on_from_the_states_on_the_workers(trial: Trial) -> None:
    trial.fit("packed", "whole", "mst", 2 * EPOCHS)
    trial.fit("packed", "halves", "mst", EPOCHS)
    trial.fit("packed", "halves", "mst", EPOCHS, warm_start=True)
    assert trial.weights("halves") == trial.weights("whole")
