"""Grids, random search and lists: the rows of a model selection table."""

# ruff: noqa: E501
from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.params import Call, parse_compile, parse_fit
from cerebro_plpy.madlib.spaces.grid import (
    MOST_CONFIGS,
    GridRow,
    grid_configs,
    list_configs,
    open_space,
    random_configs,
    search_configs,
)

GRID = """
    {'loss': ['categorical_crossentropy'],
     'optimizer_params_list': [ {'optimizer': ['Adam', 'SGD'], 'lr': [0.001, 0.01]} ],
     'metrics': ['accuracy']}
"""
FIT = "{'batch_size': [64, 128], 'epochs': [10]}"
RANDOM = """
    {'loss': ['categorical_crossentropy'],
     'optimizer_params_list': [
        {'optimizer': ['SGD'], 'lr': [0.0001, 0.001, 'log'], 'momentum': [0.95, 0.99, 'log_near_one']},
        {'optimizer': ['Adam'], 'lr': [0.01, 0.1, 'linear'], 'decay': [1e-6, 1e-4, 'log']}],
     'metrics': ['accuracy']}
"""


def message(*arguments: object, **named: object) -> str:
    with pytest.raises(CerebroError) as caught:
        search_configs(*arguments, **named)  # type: ignore[arg-type]
    return caught.value.message


def one_optimizer(arguments: str) -> str:
    return f"{{'loss': ['mse'], 'optimizer_params_list': [{arguments}]}}"


def test_grid_is_madlibs() -> None:
    rows = grid_configs([2, 1, 2], GRID, FIT)
    assert len(rows) == 16
    assert rows[0] == GridRow(
        1,
        "optimizer='Adam(lr=0.001)',loss='categorical_crossentropy',metrics=['accuracy']",
        "batch_size=64,epochs=10",
    )
    names, rates, batches = ("Adam", "SGD"), (0.001, 0.01), (64, 128)
    expected = {
        (model, f"optimizer='{name}(lr={rate})',loss='categorical_crossentropy',metrics=['accuracy']", batch)
        for model, name, rate, batch in product((1, 2), names, rates, batches)
    }
    found = {(row.model_id, row.compile_params, parse_fit(row.fit_params).batch_size) for row in rows}
    assert found == expected


def test_grid_is_the_union_over_optimizers() -> None:
    groups = (
        "{'optimizer': ['sgd'], 'momentum': [0.9, 0.95]}, {'optimizer': ['rmsprop', 'Adam']}, {'lr': [0.5]}"
    )
    rows = grid_configs([1], one_optimizer(groups), "{'epochs': [1]}")
    texts = ["SGD(momentum=0.9)", "SGD(momentum=0.95)", "RMSprop()", "Adam()", "RMSprop(lr=0.5)"]
    assert [row.compile_params for row in rows] == [f"optimizer='{text}',loss='mse'" for text in texts]


def test_grid_without_optimizers_takes_madlibs_default() -> None:
    rows = grid_configs([1], "{'loss': ['mse'], 'metrics': [['mae', 'mse'], 'mae']}", "{'epochs': [1]}")
    assert [row.compile_params for row in rows] == [
        "optimizer='RMSprop()',loss='mse',metrics=['mae','mse']",
        "optimizer='RMSprop()',loss='mse',metrics=['mae']",
    ]


def test_schedules_and_calls_may_stand_in_grids() -> None:
    schedule = "ExponentialDecay(initial_learning_rate=0.1, decay_steps=5, decay_rate=0.5)"
    grid = f"{{'loss': [\"Huber(delta=2)\"], 'optimizer_params_list': [{{'lr': ['{schedule}']}}]}}"
    params = parse_compile(grid_configs([1], grid, FIT)[0].compile_params)
    assert isinstance(params.optimizer.get("learning_rate"), Call)
    assert params.loss == Call("Huber", (("delta", 2.0),))


def test_rows_that_mean_the_same_are_made_once() -> None:
    groups = (
        "{'optimizer': ['adam', 'Adam'], 'lr': [0.1, 0.10]}, {'optimizer': ['ADAM'], 'learning_rate': [1e-1]}"
    )
    assert len(grid_configs([1], one_optimizer(groups), "{'epochs': [1, 1]}")) == 1


@pytest.mark.parametrize("word", ["g", "GRID", "gri", "grid"])
def test_search_type_grid_is_any_prefix(word: str) -> None:
    assert search_configs([1], GRID, FIT, word) == (grid_configs([1], GRID, FIT), None)


@pytest.mark.parametrize("word", ["r", "rand", "RANDOM"])
def test_search_type_random_is_any_prefix(word: str) -> None:
    rows, seed = search_configs([1], GRID, FIT, word, 3, 0)
    assert (len(rows), seed) == (3, 0)


def test_draws_are_a_function_of_the_seed() -> None:
    first = random_configs([1, 2], RANDOM, FIT, 20, 0)
    assert first == random_configs([1, 2], RANDOM, FIT, 20, 0)
    assert first[1] == 0
    assert first[0] != random_configs([1, 2], RANDOM, FIT, 20, 1)[0]
    assert first[0][:5] == random_configs([1, 2], RANDOM, FIT, 5, 0)[0]


def test_draws_have_not_changed() -> None:
    rows, _ = random_configs([1, 2], RANDOM, FIT, 5, 42)
    parsed = [(row.model_id, parse_compile(row.compile_params), parse_fit(row.fit_params)) for row in rows]
    found = [(model_id, compiled.optimizer.name, fitted.batch_size) for model_id, compiled, fitted in parsed]
    assert found == [(1, "Adam", 128), (1, "SGD", 128), (1, "Adam", 128), (2, "Adam", 128), (1, "SGD", 128)]


def test_without_a_seed_a_fresh_one_is_drawn_and_told() -> None:
    rows, seed = random_configs([1], RANDOM, FIT, 5)
    assert random_configs([1], RANDOM, FIT, 5, seed) == (rows, seed)
    assert len({random_configs([1], RANDOM, FIT, 1)[1] for _ in range(5)}) > 1


def test_all_draws_differ_and_exhaust_the_space() -> None:
    rows, _ = random_configs([1, 2], GRID, FIT, 16, 7)
    assert set(rows) == set(grid_configs([1, 2], GRID, FIT))
    assert len(set(rows)) == 16


def test_a_space_too_small_says_its_size() -> None:
    with pytest.raises(CerebroError, match="the search space has 16 configs, fewer than num_configs = 17"):
        random_configs([1, 2], GRID, FIT, 17, 7)


def test_rare_points_are_found_at_last() -> None:
    grid = one_optimizer("{'optimizer': ['SGD']}")
    rows, _ = random_configs([1], grid, "{'batch_size': [1, 400, 'log']}", 400, 3)
    assert {parse_fit(row.fit_params).batch_size for row in rows} == set(range(1, 401))


def test_distributions_have_their_shapes() -> None:
    grid = one_optimizer(
        "{'optimizer': ['SGD'], 'lr': [1e-4, 1e-2, 'log'], 'momentum': [0.9, 0.999, 'log_near_one'],"
        " 'clipnorm': [2, 4, 'linear']}"
    )
    rows, _ = random_configs([1], grid, "{'batch_size': [8, 32, 'log']}", 1000, 11)
    calls = [parse_compile(row.compile_params).optimizer for row in rows]
    rates, momenta, norms = ([float(call.get(key)) for call in calls] for key in KEYS)  # type: ignore[arg-type]
    assert all(1e-4 <= rate <= 1e-2 for rate in rates)
    assert all(0.9 <= momentum <= 0.999 for momentum in momenta)
    assert all(2 <= norm <= 4 for norm in norms)
    assert abs(median(rates) - 1e-3) < 2e-4
    assert abs(median(momenta) - 0.99) < 2e-3
    assert abs(median(norms) - 3.0) < 0.1
    assert all(8 <= parse_fit(row.fit_params).batch_size <= 32 for row in rows)


KEYS = ("learning_rate", "momentum", "clipnorm")


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def test_dimensions_are_independent() -> None:
    grid = one_optimizer("{'optimizer': ['SGD'], 'lr': [0, 1, 'linear'], 'momentum': [0, 1, 'linear']}")
    rows, _ = random_configs([1], grid, FIT, 1000, 0)
    calls = [parse_compile(row.compile_params).optimizer for row in rows]
    pairs = [(float(c.get("learning_rate")), float(c.get("momentum"))) for c in calls]  # type: ignore[arg-type]
    mean = math.fsum((x - 0.5) * (y - 0.5) for x, y in pairs) / len(pairs)
    assert abs(mean) * 12 < 0.1


def test_size_of_a_space() -> None:
    assert open_space([1], RANDOM, FIT).volume is None
    with pytest.raises(CerebroError, match="the search space has 12 configs"):
        random_configs([1, 2], one_optimizer("{'lr': [0.1, 0.1, 0.2]}"), "{'batch_size': [1, 3, 'log']}", 13)


@pytest.mark.parametrize(
    ("compile_grid", "text"),
    [
        ("{'loss': 'mse'}", "DL: compile param values must be specified in a list"),
        ("{'loss': []}", "DL: compile param values must be specified in a list"),
        ("{'loss': ['mse'], 'optimizer_params_list': {'lr': [1]}}", "DL: compile param values must be specified in a list"),
        (one_optimizer("{'lr': 1}"), "DL: compile param values must be specified in a list"),
        (one_optimizer("{}"), "DL: empty dictionaries cannot be specified in the value list of 'optimizer_params_list'"),
        (one_optimizer("{'lr': [1, 'log']}"), "DL: 'lr' should have exactly 3 elements if picking from a distribution"),
        (one_optimizer("{'lr': [2, 1, 'log']}"), "DL: 'lr' should be of the format [lower_bound, upper_bound, distribution_type]"),
        (one_optimizer("{'lr': [0, 1, 'log']}"), "DL: 'lr' should be of the format [lower_bound, upper_bound, distribution_type]"),
        (one_optimizer("{'lr': [0, 1, 'log_near_one']}"), "DL: 'lr' should be of the format [lower_bound, upper_bound, distribution_type]"),
        (one_optimizer("{'lr': [0, 1e999, 'linear']}"), "DL: 'lr' should be of the format [lower_bound, upper_bound, distribution_type]"),
        (one_optimizer("{'lr': [0, 1, 'lin']}"), "DL: Please choose a valid distribution type for 'lr': ['linear', 'log', 'log_near_one']"),
        ("{'loss': ['mse'], 'optimizer': ['Adam']}", "DL: 'optimizer_params_list' key should only contain 'optimizer'"),
        ("{foo='bar'}", "Invalid syntax in 'compile_params_dict'"),
        ("['loss']", "Invalid syntax in 'compile_params_dict'"),
        ("{}", "Invalid syntax in 'compile_params_dict'"),
        ("{'loss': ['msee']}", "Compile param check failed for: loss='msee': "),
        (one_optimizer("{'optimizer': ['Adma']}"), "Compile param check failed for: optimizer='Adma()': "),
    ],
)  # fmt: skip
def test_faults_of_compile_grids(compile_grid: str, text: str) -> None:
    assert message([1], compile_grid, FIT, "random", 1, 1).startswith(text)


@pytest.mark.parametrize(
    ("fit_grid", "text"),
    [
        ("{'batch_size': 8}", "DL: fit param values must be specified in a list"),
        ("{'batch_size': [1.2, 1.8, 'linear']}", "DL: 'batch_size' should be of the format"),
        ("{'epchs': [1]}", "Fit param check failed for: epchs=1"),
        ("{batch_size='bar'}", "Invalid syntax in 'fit_params_dict'"),
        ("{'optimizer': ['RMSprop()'], 'loss': ['mse']}", "Fit param check failed for: "),
    ],
)
def test_faults_of_fit_grids(fit_grid: str, text: str) -> None:
    assert message([1], "{'loss': ['mse']}", fit_grid, "random", 1, 1).startswith(text)


def test_faults_come_with_their_path() -> None:
    with pytest.raises(CerebroError) as caught:
        random_configs([1], one_optimizer("{'lr': [1]}, {'lr': 2}"), FIT, 1)
    assert caught.value.detail == "['optimizer_params_list'][1]['lr'] is 2."


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((GRID, FIT, "grid", 8), "DL: 'num_configs' and 'random_state' must be NULL for grid search"),
        ((GRID, FIT, "grid", None, 1), "DL: 'num_configs' and 'random_state' must be NULL for grid search"),
        ((RANDOM, FIT, "grid"), "DL: Cannot search from a distribution with grid search"),
        ((GRID, "{'batch_size': [8, 32, 'log']}", "g"), "DL: Cannot search from a distribution with grid search"),
        ((GRID, FIT, "random"), "DL: 'num_configs' cannot be NULL and needs to be a natural number for random search"),
        ((GRID, FIT, "random", 0), "DL: 'num_configs' cannot be NULL and needs to be a natural number for random search"),
        ((GRID, FIT, "gird"), "DL: 'search_type' must be either 'grid' or 'random'"),
        ((GRID, FIT, ""), "DL: 'search_type' must be either 'grid' or 'random'"),
        ((GRID, FIT, None), "DL: 'search_type' must be either 'grid' or 'random'"),
        ((None, FIT), "compile_params_list cannot be NULL"),
        ((GRID, None), "fit_params_list cannot be NULL"),
    ],
)  # fmt: skip
def test_faults_of_calls(arguments: tuple[object, ...], text: str) -> None:
    assert message([1], *arguments) == text


def test_grids_without_end_are_refused() -> None:
    values = list(range(1, 200))
    grid = f"{{'loss': ['mse'], 'optimizer_params_list': [{{'lr': {values}, 'clipnorm': {values}}}]}}"
    assert message([1], grid, FIT) == "the grid has 79202 configs"
    assert len(random_configs([1], grid, FIT, 50, 1)[0]) == 50
    assert MOST_CONFIGS < 79202


def test_a_narrow_distribution_ends() -> None:
    narrow = one_optimizer(f"{{'lr': [1.0, {math.nextafter(1.0, 2.0)!r}, 'linear']}}")
    with pytest.raises(CerebroError, match="seems to hold only 4 different configs"):
        random_configs([1], narrow, FIT, 5, 1)


def test_lists_are_combined() -> None:
    compiles = [
        "loss='mse', optimizer='Adam(lr=0.1)'",
        " optimizer='Adam(lr=0.1)',loss='mse'",
        "loss='mae',optimizer=sgd",
    ]
    rows = list_configs([2, 1, 2], compiles, ["epochs=1,batch_size=5", "batch_size=5, epochs=1"])
    assert rows == [
        GridRow(model, text, "batch_size=5, epochs=1") for model in (1, 2) for text in compiles[1:]
    ]


@pytest.mark.parametrize(
    ("models", "compiles", "fits", "text"),
    [
        ([1], [], ["epochs=1"], "compile_params_list cannot be NULL"),
        ([1], ["loss='mse',optimizer='sgd'"], [], "fit_params_list cannot be NULL"),
        ([1], [None], ["epochs=1"], "compile_params_list cannot be NULL"),
        ([], ["loss='mse',optimizer='sgd'"], ["epochs=1"], "model_id_list cannot be NULL"),
        ([None], ["loss='mse',optimizer='sgd'"], ["epochs=1"], "model_id_list cannot be NULL"),
        ([1], ["foo='bar'"], ["epochs=1"], "Compile param check failed for: foo='bar'"),
        ([1], ["loss='mse'"], ["epochs=1"], "Compile param check failed for: loss='mse'"),
        ([1], ["loss='mse',optimizer='sgd'"], ["batch_size='bar'"], "Fit param check failed for: batch_size='bar'"),
    ],
)  # fmt: skip
def test_faults_of_lists(models: list[int], compiles: list[str], fits: list[str], text: str) -> None:
    with pytest.raises(CerebroError) as caught:
        list_configs(models, compiles, fits)
    assert caught.value.message.startswith(text)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["log", "mse", "Adam"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["loss", "metrics", "optimizer", "lr", "optimizer_params_list", "batch_size", "epochs"]
)
GRIDS = st.dictionaries(NAMES, VALUES | st.lists(st.dictionaries(NAMES, st.lists(VALUES))), max_size=3).map(
    repr
)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(GRIDS | st.text(max_size=80), GRIDS | st.text(max_size=80), st.sampled_from(["grid", "random"]))
def test_only_one_kind_of_error_ever_leaves(compile_grid: str, fit_grid: str, kind: str) -> None:
    for first, second in ((compile_grid, fit_grid), (GRID, fit_grid), (compile_grid, FIT)):
        try:
            rows, _ = search_configs([1], first, second, kind, 3 if kind == "random" else None)
        except CerebroError:
            continue
        for row in rows:
            parse_compile(row.compile_params)
            parse_fit(row.fit_params)


def test_a_value_that_is_no_list_is_written_as_one_in_the_hint() -> None:
    with pytest.raises(CerebroError) as caught:
        search_configs([1], one_optimizer("{'optimizer': 'Adam'}"), FIT, "random", 1, 1)
    assert caught.value.hint == "Write ['Adam']."
