"""A contest: models that are compared by their answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from cerebro_plpy.executor.ensembles.comparing import JudgingRows
from cerebro_plpy.executor.ensembles.contest import _answers  # pyright: ignore[reportPrivateUsage]


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
