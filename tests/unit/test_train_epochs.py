"""The epochs, batches and parts of a pass of `cerebro.train` follow from the number of rows."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from cerebro_plpy.executor.calls.train import _build_search, count_epochs
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


@pytest.mark.parametrize(
    ("rows", "batches", "first", "parts"),
    [
        (800, [16, 64], 9, None),
        (9_000, [64, 256], 3, None),
        (49_000, [64, 256], 1, None),
        (1_000_000, [256, 1024], 1, 25),
    ],
)
def test_a_search_has_batches_and_parts_for_its_rows(
    rows: int, batches: list[int], first: int, parts: int | None
) -> None:
    order = TrainOrder("rows", "answer", "model", {}, seconds=60, recipe=None)
    summary: Any = SimpleNamespace(total_rows=rows)
    titles = {1: "linear", 2: "tabular width=64"}
    search = _build_search(order, summary, loss="'loss': ['mse']", titles=titles, backend="jax", finished=4)
    assert search.fit_params_grid == f"{{'batch_size': {batches}}}"
    options = json.loads(search.options or "{}")
    sizes = {int(size) for one in options["try_first"] for size in re.findall(r"\d+", one["fit_params"])}
    assert sizes <= {*batches} and options.get("epochs_per_pass") == parts
    assert f"min_iterations={first}, min_finished=4" in (search.automl_params or "")
