"""pred_type: the choice of the classes that are written for each row. Pure NumPy."""

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
    """A choice of the classes that are written for each row. Without `most` and `above`, all are written."""

    most: int | None = None
    above: float | None = None
    ranked: bool = True

    @property
    def is_selective(self) -> bool:
        """Whether the choice makes sense only for a model that predicts classes."""
        return self.ranked and (self.most is not None or self.above is not None)


def parse(pred_type: str | int | float | None) -> ClassChoice:
    """Return the choice that pred_type means.

    It is a text, an integer or a number, as in the three SQL overloads.
    """
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
    """Rows of the result. Each has the number of an input row, and one of the classes chosen for that row.

    A class is given by its place among the classes, with its probability and its rank.
    """

    rows: np.ndarray
    places: np.ndarray
    probabilities: np.ndarray
    ranks: np.ndarray


def pick(probabilities: np.ndarray, choice: ClassChoice) -> Picked:
    """Return the classes chosen for each row, given the probabilities as an array (rows, classes).

    Classes of equal probability keep their order.
    """
    rows, classes = probabilities.shape
    if choice.most == 1:
        order = find_likeliest(probabilities)[:, np.newaxis]
    else:
        order = np.argsort(-probabilities, axis=1, kind="stable")[:, : choice.most]
    taken = np.take_along_axis(probabilities, order, axis=1)
    kept = np.ones(taken.shape, bool) if choice.above is None else taken > choice.above
    row_numbers, ranks = np.nonzero(kept)
    return Picked(row_numbers, order[kept], taken[kept], ranks + 1)


def find_likeliest(probabilities: np.ndarray) -> np.ndarray:
    """Return the place of each row's most probable class; NaN counts as less than any number."""
    return np.where(np.isnan(probabilities), -np.inf, probabilities).argmax(axis=-1)


LOGITS_SOFTMAX, LOGITS_SIGMOID = "softmax", "sigmoid"


def probabilities(output: np.ndarray, logits: str | None, is_binary: bool) -> np.ndarray:
    """Convert a model's output, an array (rows, width), into the probability of each class, as float64.

    `logits` names the function that makes probabilities of logits; it is None if the output has no logits.
    A binary output has one probability for each row, of the second class.
    """
    values = output.astype(np.float64)
    with np.errstate(over="ignore"):
        if logits == LOGITS_SIGMOID:
            values = 1 / (1 + np.exp(-values))
        elif logits == LOGITS_SOFTMAX:
            values = np.exp(values - values.max(axis=1, keepdims=True))
            values /= values.sum(axis=1, keepdims=True)
    return np.hstack([1 - values, values]) if is_binary else values
