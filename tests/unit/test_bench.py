"""The benchmark reads rows from COPY, computes ratios and slopes, and makes the same workloads each time."""

from __future__ import annotations

import importlib
import io
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    return load


class Copied:
    """A fake connection whose COPY returns given bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def cursor(self) -> Copied:
        return self

    def __enter__(self) -> Copied:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def copy_expert(self, sql: str, file: io.BytesIO) -> None:
        file.write(self._data)


def test_exported_rows_are_the_loaded_ones(bench: Any) -> None:
    workloads, server = bench("workloads"), bench("server")
    rows = workloads.Rows(np.random.default_rng(1).random((7, 5), np.float32), np.arange(7, dtype=np.int32))
    found = server.export(Copied(server.binary_rows(0, rows)), "t", 5)
    assert np.array_equal(found.x, rows.x) and np.array_equal(found.y, rows.y)


def test_ratio_is_of_medians_and_spread_of_rounds(bench: Any) -> None:
    found = bench("measure").ratio([1.0, 2.0, 9.0], [2.0, 4.0, 3.0])
    assert (found.median, found.low, found.high, found.count) == (2 / 3, 0.5, 3.0, 3)


def test_slope_is_the_exponent(bench: Any) -> None:
    assert bench("measure").slope([1, 2, 4, 8], [3, 12, 48, 192]) == pytest.approx(2)


def test_a_family_holds_this_process_and_its_children(bench: Any) -> None:
    import os

    assert os.getpid() in bench("measure").family({os.getppid()})


@pytest.mark.parametrize("name", ["digits", "images", "wide", "mixed", "big"])
def test_workloads_are_the_same_every_time(bench: Any, name: str) -> None:
    small = bench("workloads").named(name, 60)
    first, again = small.data(), small.data()
    assert all(
        np.array_equal(a.x, b.x) and np.array_equal(a.y, b.y) for a, b in zip(first, again, strict=True)
    )
    assert [len(part.y) for part in first] == [54, 6]
    assert all(config.net < len(small.nets) for config in small.configs)


def test_goals_know_their_side(bench: Any) -> None:
    tables, measure = bench("tables"), bench("measure")
    value = measure.Spread.from_values([0.5])
    assert tables.Goal("", 0.5, value).met and tables.Goal("", 0.5, value, at_most=False).met
    assert not tables.Goal("", 0.4, value).met
    assert "**missed**" in tables.goals([tables.Goal("x", 0.4, value)])


def test_a_trial_is_kept_in_place_of_an_earlier_one(bench: Any, tmp_path: Path) -> None:
    trials = bench("trials")
    file = tmp_path / "trials.json"
    kept = trials.Trials.read(file)
    old = trials.Trial("net", "rows", 0, "1.0", 0.5, 0.8, 1.0, 100)
    for seed in (1, 0):
        kept.keep(replace(old, seed=seed))
    assert kept.has("net", "rows", 0, "1.0") and not kept.has("net", "rows", 0, "1.1")
    kept.keep(replace(old, version="1.1", score=0.4))
    found = trials.Trials.read(file)
    assert [(one.seed, one.version, one.score) for one in found.found] == [(0, "1.1", 0.4), (1, "1.0", 0.5)]
    assert [one.seed for one in found.list_trials("net", "rows", range(3))] == [0, 1]
    assert not found.list_trials("net", "other", [0])
