"""pred_type: which classes of a row's probabilities it asks for. Pure NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cerebro_plpy.errors import CerebroError

_HINT = (
    "Use 'prob' for all classes, 'response' for the most probable one, an integer k for the k most probable"
    " ones, or a number from 0 to below 1 for those whose probability is greater."
)


@dataclass(frozen=True)
class ClassChoice:
    """A choice of the classes of each row that are written; without `most` and `above`, all."""

    most: int | None = None
    above: float | None = None
    ranked: bool = True

    @property
    def is_selective(self) -> bool:
        """Whether the choice makes sense for classes alone."""
        return self.ranked and (self.most is not None or self.above is not None)


def parse(pred_type: str | int | float | None) -> ClassChoice:
    """Read pred_type in any of the forms that the three overloads take."""
    match pred_type:
        case None:
            return ClassChoice()
        case str():
            return _named(pred_type)
        case int() if pred_type >= 1:
            return ClassChoice(most=pred_type)
        case float() if 0 <= pred_type < 1:
            return ClassChoice(above=pred_type)
    raise CerebroError(f"pred_type cannot be {pred_type}", hint=_HINT)


def _named(pred_type: str) -> ClassChoice:
    match pred_type.strip().lower():
        case "prob":
            return ClassChoice()
        case "response":
            return ClassChoice(most=1, ranked=False)
    raise CerebroError(f"pred_type cannot be '{pred_type}'", hint=_HINT)


@dataclass(frozen=True)
class Picked:
    """Rows of the result: which row was read, the place of the class, its probability and its rank."""

    rows: np.ndarray
    places: np.ndarray
    probabilities: np.ndarray
    ranks: np.ndarray


def pick(probabilities: np.ndarray, choice: ClassChoice) -> Picked:
    """Choose among the classes of each row, (rows, classes); equal ones rank in the classes' order."""
    rows, classes = probabilities.shape
    if choice.most == 1:
        order = probabilities.argmax(axis=1)[:, np.newaxis]
    else:
        order = np.argsort(-probabilities, axis=1, kind="stable")[:, : choice.most]
    taken = np.take_along_axis(probabilities, order, axis=1)
    kept = np.ones(taken.shape, bool) if choice.above is None else taken > choice.above
    row_numbers, ranks = np.nonzero(kept)
    return Picked(row_numbers, order[kept], taken[kept], ranks + 1)


LOGITS_SOFTMAX, LOGITS_SIGMOID = "softmax", "sigmoid"


def probabilities(output: np.ndarray, logits: str | None, is_binary: bool) -> np.ndarray:
    """Turn a model's output, (rows, width), into the probability of every class, in double precision."""
    values = output.astype(np.float64)
    with np.errstate(over="ignore"):
        if logits == LOGITS_SIGMOID:
            values = 1 / (1 + np.exp(-values))
        elif logits == LOGITS_SOFTMAX:
            values = np.exp(values - values.max(axis=1, keepdims=True))
            values /= values.sum(axis=1, keepdims=True)
    return np.hstack([1 - values, values]) if is_binary else values
