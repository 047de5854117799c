"""Rungs: after which epochs searches compare configs; by rows, after parts of a pass over the rows first."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.logical.search.automl import SearchCall
from cerebro_plpy.logical.search.build import build
from cerebro_plpy.logical.search.methods import read_method
from cerebro_plpy.logical.search.procedures import hyperband
from cerebro_plpy.logical.search.procedures.asha import rung_epochs
from cerebro_plpy.logical.search.template import Procedure
from simulator import Config, Simulation

SPACE = """{"loss": "mse", "optimizer_params_list": [
    {"optimizer": "SGD", "lr": {"float": [0.0001, 1], "log": true}, "momentum": {"float": [0, 0.9]}}]}"""


def search(name: str, params: str, parts: int | None) -> SearchCall:
    method = read_method(name, params, parts)
    return SearchCall(method, (1, 2), SPACE, '{"batch_size": {"int": [8, 64]}}', random_state=3, segments=3)


def by_key(config: Config, epoch: int) -> float:
    """Return a loss that is smaller for larger mst_keys and falls with each epoch."""
    return 100.0 / config.key - epoch / 1000


def run(procedure: Procedure) -> Simulation:
    return Simulation(procedure, by_key).run()


def test_rungs_end_at_the_most() -> None:
    assert rung_epochs(1, 9, 3) == [1, 3, 9]
    assert rung_epochs(2, 9, 3) == [2, 6, 9]
    assert rung_epochs(4, 4, 2) == [4]


@pytest.mark.parametrize(
    ("params", "parts", "epochs"),
    [
        ("num_iterations=3", 16, [1, 4, 16, 48]),
        ("num_iterations=1", 16, [1, 4, 16]),
        ("num_iterations=3, eta=2", 8, [1, 2, 4, 8, 16, 24]),
        ("num_iterations=3", 6, [1, 4, 6, 18]),
        ("num_iterations=9", 1, [1, 3, 9]),
        ("num_iterations=9", None, [1, 3, 9]),
    ],
)
def test_asha_compares_on_parts_of_a_pass_before_whole_passes(
    params: str, parts: int | None, epochs: list[int]
) -> None:
    described = search("asha", f"num_configs=200, {params}", parts)
    done = run(described.procedure())
    assert sorted(set(done.epochs().values())) == epochs
    assert described.method.epochs == epochs[-1]


def test_hyperband_compares_on_parts_of_a_pass_before_whole_passes() -> None:
    rungs = hyperband.schedule("f", 3, 4, 0, parts=16)
    assert [(r.s, r.i, r.n_i, r.r_i) for r in rungs] == [
        (2, 0, 16, 1), (2, 1, 4, 4), (2, 2, 1, 48), (1, 0, 4, 4), (1, 1, 1, 48), (0, 0, 3, 48),
    ]  # fmt: skip
    # A number of passes that is a power of eta makes MADlib's schedule for so many epochs.
    assert hyperband.schedule("f", 4, 4, 1, parts=16) == hyperband.schedule("f", 64, 4, 1)
    described = search("hyperband", "R=3", 16)
    assert sorted(run(described.procedure()).epochs().values()) == [1] * 12 + [4] * 6 + [48] * 5
    found = described.method.rung_of(16, 48)
    assert described.method.epochs == 48 and found is not None and (found.s, found.i) == (2, 2)
    with pytest.raises(CerebroError, match="R should not be less than 1"):
        hyperband.schedule("f", 0, 4, 0, parts=16)


def test_with_one_part_a_search_by_rows_is_the_usual_one() -> None:
    for name in ("asha", "hyperband"):
        assert read_method(name, "", 1) == read_method(name, "")


@pytest.mark.parametrize("name", ["asha", "hyperband"])
def test_a_search_by_rows_is_written_down_and_read_again(name: str) -> None:
    described = search(name, "", 16)
    spec = json.loads(json.dumps({"method": name, "arguments": described.arguments}))
    again = SearchCall.from_arguments(name, **spec["arguments"])
    assert again.method == described.method and again.method.parts == 16
    assert run(build(spec)).decisions == run(described.procedure()).decisions
    assert "parts" not in replace(described, method=read_method(name, "")).arguments


@pytest.mark.parametrize("name", ["hyperopt", "median", "tpe", "pbt"])
def test_a_method_without_rungs_takes_none_by_rows(name: str) -> None:
    with pytest.raises(CerebroError, match=f"{name} has no rungs, so option rung_by cannot be rows"):
        read_method(name, "", 1)


def test_a_pass_has_no_more_parts_than_epochs_can_be_counted() -> None:
    with pytest.raises(CerebroError, match="option epochs_per_pass is 214749"):
        read_method("asha", "num_iterations=10000", 214_749)
    assert read_method("asha", "num_iterations=10000", 214_748).epochs < 2**31
