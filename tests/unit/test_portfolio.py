"""The fixed list of configs that cerebro.train tries first."""

from __future__ import annotations

import pytest

from cerebro_plpy.executor.calls import train
from cerebro_plpy.madlib.params import parse_compile
from cerebro_plpy.nets import points, portfolio

LOSS = "'loss': ['mse'], 'metrics': ['mae'], 'loss_weights': [0.25]"
USUAL = {
    1: "linear",
    2: "tabular width=64",
    3: "tabular width=128",
    4: "realmlp width=128",
    5: "tabm width=128",
}


def test_it_is_of_starting_points_whose_rates_the_search_draws_too() -> None:
    for ranked in portfolio.PORTFOLIO:
        assert ranked.net in points.POINTS and train.RATES[0] <= ranked.learning_rate <= train.RATES[1]


def test_each_config_takes_a_net_and_a_batch_of_its_size() -> None:
    found = portfolio.list_configs(USUAL, LOSS, (16, 64), 12)
    assert [row.model_id for row in found] == [5, 5, 4, 1, 5, 3, 4, 5]
    small, large = "batch_size=16", "batch_size=64"
    assert [row.fit_params for row in found] == [large, small, large, large, large, small, small, small]
    assert all(parse_compile(row.compile_params).loss_weights == 0.25 for row in found)


@pytest.mark.parametrize("titles, count", [
    ({7: "tabm width=96 depth=2"}, 4),
    ({7: "image width=16 depth=2"}, 0),
    ({7: "Dense(32, activation='relu')"}, 0),
])  # fmt: skip
def test_only_nets_that_are_there_are_taken_and_each_config_once(titles: dict[int, str], count: int) -> None:
    found = portfolio.list_configs(titles, LOSS, (16, 64), 12)
    assert len(found) == count == len(set(found)) and all(row.model_id == 7 for row in found)


@pytest.mark.parametrize("most, models", [(1, [5]), (2, [5, 1]), (3, [5, 5, 1]), (4, [5, 5, 4, 1])])
def test_a_linear_net_is_among_the_first_as_a_baseline(most: int, models: list[int]) -> None:
    found = portfolio.list_configs(USUAL, LOSS, (16, 64), most)
    assert [row.model_id for row in found[:most]] == models and len(found) == 8
