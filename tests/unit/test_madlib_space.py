"""Spaces of configs in JSON: types, steps, conditions on the architecture, and errors with their paths."""

# ruff: noqa: E501
from __future__ import annotations

import json
from typing import Any

import pytest

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.params import parse_compile, parse_fit
from cerebro_plpy.madlib.spaces.grid import GridRow, grid_configs, random_configs

ADAM = {"optimizer": "Adam", "lr": {"float": [1e-4, 1e-1], "log": True}}


def compiled(*groups: dict[str, Any] | str, **others: Any) -> str:
    return json.dumps({"loss": "mse", "optimizer_params_list": list(groups), **others})


def drawn(
    compile_space: str, fit_space: str, count: int = 60, models: tuple[int, ...] = (1,)
) -> list[GridRow]:
    return random_configs(models, compile_space, fit_space, count, 5)[0]


def arguments(row: GridRow) -> dict[str, Any]:
    return dict(parse_compile(row.compile_params).optimizer.kwargs)


def message(
    compile_space: str, fit_space: str = '{"batch_size": 8}', models: tuple[int, ...] = (1, 2)
) -> str:
    with pytest.raises(CerebroError) as caught:
        random_configs(models, compile_space, fit_space, 2, 1)
    return caught.value.message


def test_json_lists_mean_what_they_mean_in_a_grid() -> None:
    grid = "{'loss': ['mse'], 'optimizer_params_list': [{'optimizer': ['SGD'], 'lr': [0.001, 0.1, 'log']}]}"
    fit = "{'batch_size': [8, 16], 'shuffle': [True, False]}"
    as_json = fit.replace("'", '"').replace("True", "true").replace("False", "false")
    assert drawn(grid.replace("'", '"'), as_json) == drawn(grid, fit)


def test_plain_values_are_the_only_ones() -> None:
    (row,) = grid_configs(
        [1], compiled({"optimizer": "SGD", "momentum": 0.9}, metrics="mae"), '{"epochs": 2}'
    )
    assert row == GridRow(1, "optimizer='SGD(momentum=0.9)',loss='mse',metrics=['mae']", "epochs=2")


def test_a_number_beside_a_schedule_is_a_list_of_values() -> None:
    rates = "[0.01, 'ExponentialDecay(initial_learning_rate=0.1, decay_steps=10, decay_rate=0.9)']"
    grid = f"{{'loss': ['mse'], 'optimizer_params_list': [{{'optimizer': ['SGD'], 'lr': {rates}}}]}}"
    found = grid_configs([1], grid, "{'batch_size': [8]}")
    assert [str(arguments(row)["learning_rate"])[:4] for row in found] == ["0.01", "Call"]


def test_types_draw_within_their_bounds() -> None:
    group = {
        "optimizer": "SGD",
        "lr": {"float": [1e-4, 1e-1], "log": True},
        "momentum": {"float": [0, 0.9], "step": 0.3},
    }
    rows = drawn(
        compiled(group), '{"batch_size": {"int": [8, 11]}, "epochs": {"int": [1, 5], "step": 2}}', 200
    )
    rates = sorted(arguments(row)["learning_rate"] for row in rows)
    assert rates[0] >= 1e-4 and rates[-1] <= 1e-1 and 1e-3 < rates[100] < 1e-2
    assert {arguments(row)["momentum"] for row in rows} == {0.0, 0.3, 0.6, 0.9}
    fits = [parse_fit(row.fit_params) for row in rows]
    assert {fit.batch_size for fit in fits} == {8, 9, 10, 11}
    assert {fit.epochs for fit in fits} == {1, 3, 5}


def test_quantized_values_can_be_listed_and_counted() -> None:
    group = {"optimizer": "SGD", "momentum": {"float": [0, 0.3], "step": 0.1}}
    rows = grid_configs([1], compiled(group), '{"batch_size": {"int": [1, 2]}}')
    assert len(rows) == 8
    assert [arguments(row)["momentum"] for row in rows[::2]] == [0.0, 0.1, 0.2, 0.3]


def test_a_parameter_may_depend_on_the_architecture() -> None:
    rate = {"by_model": {"1": {"float": [0.1, 0.2]}, "2": [0.5]}}
    fit = '{"batch_size": {"by_model": {"2": {"int": [4, 8]}}}, "epochs": 1}'
    rows = drawn(compiled({"optimizer": "SGD", "lr": rate}), fit, 40, (1, 2))
    for row in rows:
        size = parse_fit(row.fit_params).batch_size
        if row.model_id == 1:
            assert 0.1 <= arguments(row)["learning_rate"] <= 0.2 and size == 32
        else:
            assert arguments(row)["learning_rate"] == 0.5 and 4 <= size <= 8
    assert {row.model_id for row in rows} == {1, 2}
    listed = compiled({"optimizer": "SGD", "lr": {"by_model": {"1": [0.1, 0.2], "2": [0.5]}}})
    assert len(grid_configs([1, 2], listed, fit)) == 2 + 5


@pytest.mark.parametrize(
    ("group", "text"),
    [
        ({"lr": {"float": [0.1, 0.001]}}, ".lr.float is [0.1, 0.001]: the upper bound must be above the lower one"),
        ({"lr": {"float": [0, 1], "log": True}}, ".lr.float is [0, 1]: for 'log' both bounds must be above 0"),
        ({"lr": {"float": [0.1]}}, ".lr.float is [0.1], not [lower, upper]"),
        ({"lr": {"float": [0.1, 1], "log": 1}}, ".lr.log is 1, not true or false"),
        ({"lr": {"float": [0.1, 1], "log": True, "step": 0.1}}, ".lr.step cannot be combined with log"),
        ({"lr": {"float": [0.1, 1], "step": 2}}, ".lr.step is 2, not a number above 0 that fits between the bounds"),
        ({"lr": {"floot": [0.1, 1]}}, ".lr is {'floot': [0.1, 1]}: it needs exactly one of choice, int, float, by_model"),
        ({"lr": {"choice": [1], "log": True}}, ".lr.log has no meaning beside choice"),
        ({"lr": {"choice": 1}}, ".lr.choice is 1, not a list of values"),
        ({"lr": []}, ".lr is empty"),
        ({"lr": {"by_model": [1]}}, ".lr.by_model is [1], not an object with model_ids as keys"),
        ({"lr": {"by_model": {"one": 1}}}, ".lr.by_model.one is no model_id"),
        ({"lr": {"by_model": {"3": [0.1]}}}, ".lr.by_model.3.choice is for model_id 3, which is not in model_id_list"),
        ({"lr": [0.1, -3.0]}, ".lr is -3.0: Compile param check failed for: optimizer='SGD(lr=-3.0)': optimizer SGD: learning_rate is -3.0"),
        ({"momentun": [0.5]}, ".momentun is 0.5: Compile param check failed for: optimizer='SGD(momentun=0.5)': "),
        ({"lr": [0.1, 0.2, 0.3, "log"]}, ".lr has 4"),
        ({"lr": [0.1, 0.2, "lin"]}, ".lr has 'lin'"),
        ({"gradient_accumulation_steps": {"float": [1, 4]}}, ".gradient_accumulation_steps.float gives fractions, and gradient_accumulation_steps is an integer"),
    ],
)  # fmt: skip
def test_a_fault_of_an_optimizer_is_named_with_its_path(group: dict[str, Any], text: str) -> None:
    found = message(compiled({"optimizer": "SGD", **group}))
    assert found.startswith("$.compile_params.optimizer_params_list[0]" + text)


@pytest.mark.parametrize(
    ("space", "text"),
    [
        ('{"batch_size": {"int": [1.5, 8]}}', "$.fit_params.batch_size.int is [1.5, 8]: the bounds of an int are integers"),
        ('{"batch_size": {"int": [1, 8], "step": 1.5}}', "$.fit_params.batch_size.step is 1.5: the step of an int is an integer"),
        ('{"batch_size": {"float": [1, 8]}}', "$.fit_params.batch_size.float gives fractions, and batch_size is an integer"),
        ('{"batch_size": {"int": [0, 8]}}', "$.fit_params.batch_size is 0: Fit param check failed for: batch_size=0"),
        ('{"batchsize": 8}', "$.fit_params.batchsize is 8: Fit param check failed for: batchsize=8"),
        ('{"batch_size": 8, "batch_size": 9}', "the space has the key batch_size twice in one object"),
        ('{"batch_size": [1, NaN]}', "the space holds NaN, which is not a number that can be searched"),
    ],
)  # fmt: skip
def test_a_fault_of_a_fit_space_is_named_with_its_path(space: str, text: str) -> None:
    assert message(compiled(ADAM), space).startswith(text)


def test_faults_of_a_compile_space_outside_the_optimizers() -> None:
    assert message(compiled(ADAM, loss="msee")).startswith("$.compile_params.loss is msee: ")
    assert message(compiled("SGD")).startswith("$.compile_params.optimizer_params_list[0] is SGD, not a dict")
