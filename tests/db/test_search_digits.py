"""Searches on digits find the best config of a grid with a quarter of the grid's visits.

With the option -s, pytest prints the figures.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

import nets
from trial import Trial, rows_of

EPOCHS = 27
TRAINING = 1200
GRID = """{'loss': ['categorical_crossentropy'], 'metrics': ['accuracy'],
    'optimizer_params_list': [
        {'optimizer': ['Adam'], 'lr': [0.0003, 0.001, 0.003, 0.01]},
        {'optimizer': ['SGD'], 'lr': [0.001, 0.01, 0.1, 0.5], 'momentum': [0.0, 0.5, 0.9]}]}"""
FIT = "{'batch_size': [16, 64]}"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def digits(trial: Trial) -> Trial:
    """Pack the digits for training and validation, and train all 64 configs of a grid to the end."""
    digits: Any = load_digits(return_X_y=True)
    features, labels = digits
    order = np.random.default_rng(0).permutation(len(labels))
    rows = rows_of(features[order].astype(np.float32), labels[order])
    trial.table("digits", "x real[], y integer", rows[:TRAINING])
    trial.table("digits_held", "x real[], y integer", rows[TRAINING:])
    trial.pack("digits", "packed", normalizing_const=16.0)
    trial.pack_validation("digits_held", "packed_val", "packed")
    for units in (16, 64):
        trial.model(nets.mlp(units=units, outputs=10))
    trial.sql("SELECT cerebro.generate_model_configs('arch', 'grid', ARRAY[1, 2], %s, %s)", GRID, FIT)
    assert trial.value("SELECT count(*) FROM grid") == 64
    trial.fit("packed", "whole", "grid", EPOCHS, validation_table="packed_val")
    return trial


def visits(trial: Trial, out: str) -> int:
    run = trial.value(f"SELECT run_id FROM {out}_summary")
    return trial.value("SELECT count(*) FROM cerebro.visits WHERE run_id = %s", run)


def best(trial: Trial, out: str) -> float:
    return trial.value(f"SELECT max(validation_metrics_final) FROM {out}_info")


@pytest.mark.parametrize(
    ("method", "params"),
    [("asha", f"num_configs=64, num_iterations={EPOCHS}"), ("hyperband", f"R={EPOCHS}")],
)
def test_a_search_finds_the_best_of_the_grid_with_a_quarter_of_its_visits(
    digits: Trial, method: str, params: str
) -> None:
    digits.call(
        "madlib_keras_automl", "packed", method, "arch", f"{method}_best", [1, 2], GRID, FIT,
        method, params, 1,
        validation_table="packed_val", options={"threads": 1},
    )  # fmt: skip
    whole, part = visits(digits, "whole"), visits(digits, method)
    aim, found = best(digits, "whole"), best(digits, method)
    configs = digits.value(f"SELECT count(*) FROM {method}_info")
    chosen = digits.value(
        f"SELECT validation_metrics_final FROM {method}_info JOIN {method}_best USING (mst_key)"
    )
    print(f"\nthe grid: {whole} visits, best accuracy {aim:.4f}")
    print(f"{method}: {configs} configs, {part} visits ({part / whole:.1%}), best accuracy {found:.4f}")
    print(f"accuracy of the config with the lowest loss: {chosen:.4f}")
    assert part <= 0.25 * whole
    assert found >= aim - 0.005
