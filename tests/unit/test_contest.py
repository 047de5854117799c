"""A contest: models that are compared by their answers."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from cerebro_plpy.executor.ensembles.comparing import JudgingRows
from cerebro_plpy.executor.ensembles.contest import (
    Contest,
    _answers,  # pyright: ignore[reportPrivateUsage]
)


class Rows(JudgingRows):
    """Rows that each model answers with its own number."""

    def answer(self, db: Any, model: Any, places: Any = None) -> np.ndarray:
        assert places is not None and places.any(), "a net cannot answer no rows"
        return np.full((places.sum(), 1), float(model))


@dataclass(frozen=True)
class Part:
    model: int
    fold: int


def test_models_of_folds_without_rows_among_those_read_answer_nothing() -> None:
    rows = Rows([np.zeros((4, 1))], np.zeros((4, 1)), is_classes=False, folds=np.array([1, 2, 1, 2]))
    parts = cast("Any", [Part(10, 1), Part(20, 2), Part(30, 3)])
    assert _answers(cast("Any", None), parts, rows).ravel().tolist() == [10.0, 20.0, 10.0, 20.0]


def contest(compiled: str, metric: str, is_classes: bool = False) -> Contest:
    """Return a contest of models with these compile parameters, for which somebody asked by a metric."""
    rows = JudgingRows([np.zeros((3, 1))], np.array([[1.0], [3.0], [7.0]]), is_classes=is_classes, folds=None)
    best = SimpleNamespace(selected=SimpleNamespace(compile_params=compiled))
    rest = dict.fromkeys(("about", "summary", "rows", "candidates", "groups", "tick"))
    return cast("Any", Contest)(best=best, judging=rows, metric=metric, is_asked=True, **rest)


def compiled(loss: str, metrics: str, more: str = "") -> str:
    return f"loss='{loss}',metrics=[{metrics}],optimizer='Adam'{more}"


@pytest.mark.parametrize(
    ("metric", "params", "expected"),
    [
        ("rmse", compiled("msle", "RootMeanSquaredError(name='rmse')"), False),
        ("rmse", compiled("mse", "'mae'"), True),
        ("mae", compiled("mse", "'mae'"), False),
        ("r2", compiled("mse", "'mae'"), True),
        ("r2", compiled("mse", "RootMeanSquaredError(name='rmse')"), False),
        ("logloss", compiled("categorical_crossentropy", "'accuracy'"), True),
        ("logloss", compiled("categorical_crossentropy", "CategoricalCrossentropy(name='logloss')"), False),
    ],
)
def test_the_metric_that_is_asked_for_keeps_the_epochs_if_it_is_measured(
    metric: str, params: str, expected: bool
) -> None:
    assert contest(params, metric).goes_by_loss is expected


def test_the_loss_of_an_ensemble_is_that_of_its_models() -> None:
    answers = np.array([[2.0], [3.0], [4.0]])
    for params, kind, expected in (
        (compiled("mse", "'mae'"), "mse", 10 / 3),
        (compiled("mse", "'mae'", ",loss_weights=[0.25]"), "mse", 10 / 12),
        (compiled("mae", "'mae'", ",loss_weights=[0.25]"), "mse", 10 / 3),
        (compiled("mean_squared_error", "'mae'", ",loss_weights=0.25"), "mse", 10 / 12),
        (
            compiled("msle", "'mae'", ",loss_weights=[0.5]"),
            "msle",
            0.5 * np.square(np.log([3 / 2, 4 / 4, 5 / 8])).mean(),
        ),
    ):
        made = contest(params, "rmse")
        assert made.loss_type == kind
        assert made.measure_loss(answers, slice(None)) == pytest.approx(expected)
