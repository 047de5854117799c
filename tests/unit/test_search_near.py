"""The last configs of ASHA lie near the best one."""

from __future__ import annotations

import json
import math
import re
import zlib
from dataclasses import replace
from typing import Any

import pytest

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.logical.search.automl import SearchCall
from cerebro_plpy.logical.search.methods import read_method
from cerebro_plpy.madlib.params import parse_compile
from cerebro_plpy.madlib.spaces.grid import GridRow
from simulator import Config, Simulation

SPACE = json.dumps(
    {
        "loss": "mse",
        "optimizer_params_list": [
            {"optimizer": "SGD", "lr": {"float": [1e-4, 1], "log": True}, "momentum": [0.0, 0.9]},
            {"optimizer": "Adam", "lr": {"float": [1e-5, 1e-1], "log": True}},
        ],
    }
)
FIRST = [
    GridRow(2, "optimizer='Adam(lr=0.01)',loss='mse'", "batch_size=16"),
    GridRow(1, "optimizer='SGD(lr=0.1)',loss='mse'", "batch_size=32"),
]


def search(params: str) -> SearchCall:
    return SearchCall(read_method("asha", params), (1, 2), SPACE, '{"batch_size": {"int": [8, 64]}}', 3, 3)


def curve(config: Config, epoch: int) -> float:
    """Return a config's loss after an epoch, which falls towards a limit that its parameters decide."""
    text = config.begun.compile_params + config.begun.fit_params
    return zlib.crc32(text.encode()) / 2**32 + 1 / epoch


def run(found: SearchCall) -> list[Any]:
    """Return the decisions that start the configs of a simulated search, in the order of their mst_keys."""
    configs = Simulation(found.procedure(), curve, order=1).run().configs
    return [configs[key].begun for key in sorted(configs)]


def optimizer(begun: Any) -> Any:
    return parse_compile(begun.compile_params).optimizer


def test_they_have_its_net_and_a_rate_between_its_own_and_a_random_one() -> None:
    drawn, begun = run(search("num_configs=12")), run(search("num_configs=12, near_best=6"))
    for one, other in zip(begun[:6], drawn[:6], strict=True):
        assert (one.model_id, one.compile_params) == (other.model_id, other.compile_params)
    moved = 0
    for one, other in zip(begun[6:], drawn[6:], strict=True):
        found = re.search(r"between config (\d+) and a random one", one.reason)
        best = begun[int(found[1]) - 1] if found else None
        if best is not None and optimizer(best).name == optimizer(other).name:
            rates: list[Any] = [optimizer(row).get("learning_rate") for row in (best, other, one)]
            assert one.model_id == best.model_id
            assert rates[2] == pytest.approx(math.sqrt(rates[0] * rates[1]))
            moved += 1
    assert moved > 0
    assert run(search("num_configs=12, near_best=6")) == begun


def test_configs_to_try_first_come_first_all_the_same() -> None:
    begun = run(replace(search("num_configs=12, near_best=6"), first=FIRST))
    assert [GridRow(one.model_id, one.compile_params, one.fit_params) for one in begun[:2]] == FIRST


def test_of_fewer_configs_fewer_lie_near_the_best() -> None:
    assert search("num_configs=12, near_best=6").limited(8).method.params["near_best"] == 2


@pytest.mark.parametrize(
    "params, said",
    [
        ("near_best=-1", "near_best in 'automl_params' is -1"),
        ("num_configs=12, near_best=13", "near_best in 'automl_params' is 13, more than num_configs = 12"),
    ],
)
def test_a_number_that_cannot_be_is_refused(params: str, said: str) -> None:
    with pytest.raises(CerebroError, match=said):
        search(params)
