"""The most epochs of a config in `cerebro.train` grow with the table."""

from __future__ import annotations

import pytest

from cerebro_plpy.executor.calls.train import count_epochs
from cerebro_plpy.executor.calls.train_order import TrainOrder


@pytest.mark.parametrize(
    ("given", "parts", "epochs"),
    [({}, 0, 81), ({}, 25, 81), ({}, 125, 375), ({}, 25_000, 10_000), ({"epochs": 9}, 125, 9)],
)
def test_the_largest_tables_have_epochs_for_three_passes(
    given: dict[str, int], parts: int, epochs: int
) -> None:
    order = TrainOrder("rows", "answer", "model", given, seconds=60, recipe=None)
    assert count_epochs(order, parts) == epochs
