"""Notices about answers that are no better than one answer for all rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from cerebro_plpy.executor.ensembles import standings
from cerebro_plpy.predicting.examining.scoring import MAE, R2


def told(metric: str, answers: np.ndarray, truth: np.ndarray) -> list[str]:
    notices: list[str] = []
    summary = SimpleNamespace(dependent_varname=["price"], one_hot=[False])
    judging = SimpleNamespace(truth=truth, is_classes=False)
    contest = SimpleNamespace(judging=judging, metric=metric, is_asked=True, summary=summary)
    db = SimpleNamespace(notice=notices.append)
    standings._tell_no_better(cast("Any", db), cast("Any", contest), "the model", answers)
    return notices


def test_a_negative_r2_is_told_whatever_metric_decides() -> None:
    """Most answers are right, so that the absolute error is small; some are off by four deviations."""
    truth = np.random.default_rng(1).normal(size=(500, 1))
    answers = truth + 4 * (np.arange(500) % 12 == 0)[:, None]
    for metric in (MAE, R2):
        (notice,) = told(metric, answers, truth)
        assert notice.startswith("by r2, the model is no better than always answering the mean of price: -0.")
    assert told(MAE, truth + 0.1, truth) == []
