"""Population based training on a task that needs a high learning rate first and a low one at the end.

With the option -s, pytest prints the figures.
"""

from __future__ import annotations

import numpy as np
import pytest

import nets
from trial import Trial

EPOCHS = 24
FEATURES = 10
SPACE = """{"loss": "mse", "optimizer_params_list": [
    {"optimizer": "SGD", "lr": {"float": [0.0003, 0.1], "log": true}}]}"""
FIT = '{"batch_size": 2}'

pytestmark = pytest.mark.slow


def noisy(rows: int, seed: int, noise: float) -> list[tuple[list[float], float]]:
    """Return rows whose target is a linear function of features of different scales, plus noise."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(rows, FEATURES)) * np.geomspace(1.5, 0.1, FEATURES)
    targets = features @ np.full(FEATURES, 2.0) + random.normal(scale=noise, size=rows)
    return [(x.tolist(), float(y)) for x, y in zip(features.astype(np.float32), targets, strict=True)]


def test_pbt_beats_the_best_fixed_config_of_its_population(trial: Trial) -> None:
    trial.table("noisy", "x real[], y real", noisy(400, 0, 3.0))
    trial.table("clean", "x real[], y real", noisy(400, 1, 0.0))
    trial.pack("noisy", "packed")
    trial.pack_validation("clean", "packed_val", "packed")
    trial.model(nets.sequential([FEATURES], nets.layer("Dense", units=1)))
    trial.call(
        "madlib_keras_automl", "packed", "pbt", "arch", "pbt_best", [1], SPACE, FIT,
        "pbt", f"population=8, num_iterations={EPOCHS}", 1,
        validation_table="packed_val", options={"threads": 1},
    )  # fmt: skip
    trial.sql(
        "CREATE TABLE population AS SELECT mst_key, model_id, compile_params, fit_params FROM pbt_info"
        " WHERE mst_key <= 8"
    )
    trial.sql("CREATE TABLE population_summary AS SELECT * FROM pbt_best_summary")
    trial.fit("packed", "fixed", "population", EPOCHS, validation_table="packed_val", options={"seed": 1})
    losses = {
        out: trial.value(f"SELECT min(validation_loss_final) FROM {out}_info") for out in ("pbt", "fixed")
    }
    visits = {
        out: trial.value(f"SELECT count(*) FROM cerebro.visits JOIN {out}_summary USING (run_id)")
        for out in losses
    }
    print(f"\nPBT: loss {losses['pbt']:.4f} after {visits['pbt']} visits")
    print(f"best fixed config: loss {losses['fixed']:.4f} after {visits['fixed']} visits")
    assert visits["pbt"] == visits["fixed"]
    assert losses["pbt"] < 0.9 * losses["fixed"]
