"""An epoch may have only a part of the rows; the epochs of one pass together have each row once."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from cerebro_plpy.logical.budget import MOST_MEASURED
from cerebro_plpy.segment.rows import Partition, PartitionRows, Stretch, Subset, choose_measured_rows
from cerebro_plpy.store.packed.partitions import Buffer

SIZES = (7, 1, 12, 5)


def make(epochs: int, sizes: tuple[int, ...] = SIZES) -> PartitionRows:
    buffers = [Buffer(number, rows, 8 * rows) for number, rows in enumerate(sizes)]
    partition = Partition(1, "packed", 2, None, buffers, source=None)  # pyright: ignore[reportArgumentType]
    chosen = [Stretch(number, 0, rows) for number, rows in enumerate(sizes)]
    return PartitionRows(partition, chosen, epochs_per_pass=epochs)


@pytest.mark.parametrize("epochs", [1, 2, 3, 5, 7, 25, 40])
def test_the_epochs_of_a_pass_have_different_rows_in_its_order(epochs: int) -> None:
    whole, parts = make(1), make(epochs)
    for pass_number in (1, 2):
        order = whole.shuffled_places(seed=3, epoch=pass_number, number=0)
        first = (pass_number - 1) * epochs + 1
        found = [parts.shuffled_places(3, epoch, 0) for epoch in range(first, first + epochs)]
        assert {len(one) for one in found} == {parts.rows}
        together = np.concatenate(found)[: whole.rows]
        assert together.tolist() == order[: len(together)].tolist()
        # All but the few that do not fill another epoch.
        assert whole.rows - len(together) < max(epochs, 1)


def test_rows_that_are_not_shuffled_come_in_parts_as_well() -> None:
    parts = make(5)
    found = [parts.places_in_order(epoch).tolist() for epoch in range(1, 7)]
    assert found[:5] == [list(range(5 * part, 5 * part + 5)) for part in range(5)]
    assert found[5] == found[0]


def test_another_pass_has_another_order() -> None:
    parts = make(2)
    assert parts.shuffled_places(3, 1, 0).tolist() != parts.shuffled_places(3, 3, 0).tolist()


def test_an_empty_partition_has_no_rows_in_any_epoch() -> None:
    parts = make(4, ())
    assert parts.rows == 0
    assert len(parts.shuffled_places(3, 2, 0)) == 0


def measured(epochs: int | None, *, seed: int = 3, size: int = 7_000) -> list[int]:
    buffers = [Buffer(number, size, 8 * size, fold=number % 2) for number in range(6)]
    partition = Partition(1, "packed", 2, None, buffers, source=cast("Any", None))
    run: Any = SimpleNamespace(limits=json.dumps({"epochs_per_pass": epochs}), seed=seed)
    return choose_measured_rows(run, partition, Subset()).places_in_order().tolist()


def test_configs_are_measured_on_the_same_sample_if_an_epoch_has_a_part_of_the_rows() -> None:
    sample = measured(16)
    assert len(set(sample)) == len(sample) == MOST_MEASURED
    assert measured(16) == sample and measured(16, seed=4) != sample
    # Whole buffers in the seed's order, and not the first ones.
    assert sorted(sample) != list(range(MOST_MEASURED))


@pytest.mark.parametrize(("epochs", "size"), [(None, 7_000), (1, 7_000), (16, 4_000)])
def test_other_runs_and_fewer_rows_are_measured_on_all_rows(epochs: int | None, size: int) -> None:
    assert measured(epochs, size=size) == list(range(6 * size))
