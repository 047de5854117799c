"""The share of the learning rate that each epoch uses, by the fit parameter `anneal_at`."""

from __future__ import annotations

import pytest

from cerebro_plpy.madlib.params import parse_fit


def test_the_rate_comes_down_to_each_epoch_and_begins_anew() -> None:
    fit = parse_fit("batch_size=8, anneal_at=[3, 5]")
    shares = [fit.share_of_rate(epoch) for epoch in range(1, 8)]
    assert shares == pytest.approx([0.9330127, 0.5, 0.0669873, 0.8535534, 0.1464466, 1, 1])


def test_one_epoch_may_stand_alone() -> None:
    assert parse_fit("anneal_at=2").anneal_at == [2]
    assert parse_fit("anneal_at=[1]").share_of_rate(1) == pytest.approx(0.5)
    assert [parse_fit("batch_size=8").share_of_rate(epoch) for epoch in (1, 9)] == [1, 1]
