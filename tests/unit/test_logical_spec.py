"""The specification of a run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.logical.spec import ConfigSpec, RunSpec, check_budget, evaluation_epochs
from cerebro_plpy.madlib.params import parse_compile, parse_fit

COMPILE = (
    "optimizer='SGD(lr=InverseTimeDecay(initial_learning_rate=1, decay_steps=1, decay_rate=0.5))',loss='mse'"
)
FIT = "batch_size=8,epochs=1,class_weight={1: 2, 0: 1}"


def config(key: int, backend: str = "jax") -> ConfigSpec:
    return ConfigSpec(key, 1, COMPILE, FIT, parse_compile(COMPILE), parse_fit(FIT), backend)


RUN = RunSpec(7, 10, 3, (config(1), config(2, "tensorflow")), 'public."Packed ü"', "public.validation", True)


def test_specifications_survive_json() -> None:
    assert RunSpec.from_json(RUN.to_json()) == RUN
    assert ConfigSpec.from_json(RUN.configs[0].to_json()) == RUN.configs[0]
    assert json.loads(RUN.to_json())["seed"] == 7


@pytest.mark.parametrize(
    ("iterations", "frequency", "expected"),
    [
        (10, 3, [3, 6, 9, 10]),
        (10, 5, [5, 10]),
        (10, 10, [10]),
        (3, 1, [1, 2, 3]),
        (1, 1, [1]),
        (7, 5, [5, 7]),
    ],
)
def test_evaluation_every_so_many_epochs_and_after_the_last(
    iterations: int, frequency: int, expected: list[int]
) -> None:
    assert evaluation_epochs(iterations, frequency) == expected
    assert replace(RUN, epochs=iterations, metrics_frequency=frequency).evaluations == expected


def test_metrics_are_computed_at_the_end_unless_said_otherwise() -> None:
    assert check_budget(5, None) == (5, 5)
    assert check_budget(5, 1) == (5, 1)


@pytest.mark.parametrize(
    ("iterations", "frequency", "text"),
    [
        (0, None, "Number of iterations cannot be < 1"),
        (-1, 1, "Number of iterations cannot be < 1"),
        (None, None, "Number of iterations cannot be < 1"),
        (5, 0, r"metrics_compute_frequency must be in the range \(1 - 5\)"),
        (5, 6, r"metrics_compute_frequency must be in the range \(1 - 5\)"),
    ],
)
def test_budgets_that_are_refused(iterations: int | None, frequency: int | None, text: str) -> None:
    with pytest.raises(CerebroError, match=text):
        check_budget(iterations, frequency)


def test_runs_that_are_refused() -> None:
    for changes in (
        {"epochs": 0},
        {"metrics_frequency": 11},
        {"configs": ()},
        {"configs": (config(1), config(1))},
    ):
        with pytest.raises(CerebroError):
            replace(RUN, **changes)  # type: ignore[arg-type]
    with pytest.raises(CerebroError, match="unknown backend mxnet"):
        config(1, "mxnet")
