"""The budget of a call reaches the runs that the call begins."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from cerebro_plpy.executor.calls import train, train_ensemble
from cerebro_plpy.executor.calls.train_order import TrainOrder
from cerebro_plpy.executor.ensembles.folding import Folding
from cerebro_plpy.executor.starting import begin


def test_folds_have_the_seconds_until_the_call_ends() -> None:
    now = time.monotonic()
    assert Folding({}).count_left() is None
    assert Folding({}, 20).count_left() == 20
    assert Folding({}, 20, now + 7.9).count_left() == 7
    assert Folding({}, 5, now + 60).count_left() == 5
    assert Folding({}, 20, now - 1).count_left() == 0


def test_the_search_ends_when_its_share_of_the_budget_does(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[Any, float | None]] = []

    def record(db: Any, call: Any, *, ends_at: float | None = None) -> None:
        begun.append((call, ends_at))

    monkeypatch.setattr(begin, "begin", record)
    monkeypatch.setattr(train, "_task", lambda db, call: "task")
    monkeypatch.setattr(train, "_prepare", lambda db, task, here: ("search", 123.0, task))
    monkeypatch.setattr(train_ensemble, "join_best", lambda db, task: [])
    db: Any = None
    train.train(db, train.TrainCall("t", "y", None, None, None))
    assert begun == [("search", 123.0)]


def test_the_share_of_rows_follows_from_columns_and_elements_of_arrays() -> None:
    order = TrainOrder("t", "y", "m", {}, 60, None)
    assert order.choose_share(1_000_000, 20, 0) == 0.75
    assert order.choose_share(1_000_000, 2, 0) == 1
    # A million rows of 2,000 numbers do not fit, 60,000 small images do.
    assert order.choose_share(1_000_000, 2, 2000) == 0.23
    assert order.choose_share(60_000, 2, 784) == 1


@pytest.mark.parametrize("option", [{"class_weight": "balanced"}, {"weight": "w"}])
def test_members_are_left_out_where_rows_have_weights(option: dict[str, str]) -> None:
    summary: Any = SimpleNamespace(input_shapes=((9,),), total_rows=1_000, segments=2)
    for given, there in (({}, True), (option, False)):
        chosen = train._chosen_nets(TrainOrder("t", "y", "m", given, 60, None), summary)
        assert ("tabm" in dict(chosen)) is there
