"""The profile of a model's training rows: the distributions of their values, and of the model's answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

# Numbers are compared in this many ranges, each with equally many of the earlier rows. Frequent codes are
# compared one by one, and all others together.
RANGES = 10
MOST_CODES = 20


@dataclass(frozen=True)
class Distribution:
    """Counts of values: in each range of numbers, or of each frequent code and of all other codes."""

    is_coded: bool
    # The edges between ranges, or the codes.
    marks: list[float]
    counts: list[int]

    def count(self, values: np.ndarray) -> np.ndarray:
        """Return how many of these values are in each range or have each code."""
        return _count(self.is_coded, np.array(self.marks), values)


def describe(values: np.ndarray, *, is_coded: bool) -> Distribution:
    """Return the distribution of values: of codes if `is_coded`, else of numbers."""
    if is_coded:
        codes, counts = np.unique(values, return_counts=True)
        marks = np.sort(codes[np.argsort(-counts, kind="stable")[:MOST_CODES]])
    else:
        marks = np.unique(np.quantile(values, np.arange(1, RANGES) / RANGES)) if values.size else np.empty(0)
    found = _count(is_coded, marks, values)
    return Distribution(is_coded, marks.tolist(), found.tolist())


def _count(is_coded: bool, marks: np.ndarray, values: np.ndarray) -> np.ndarray:
    if not is_coded:
        # A value that is an edge is in the range below it: of few values each has its own.
        return np.bincount(np.searchsorted(marks, values, side="left"), minlength=len(marks) + 1)
    found = np.array([(values == code).sum() for code in marks] or [0])
    return np.append(found, len(values) - found.sum())


@dataclass(frozen=True)
class Profile:
    """The distributions of a model's training rows, and of its answers for the rows that `measured` names."""

    rows: int
    columns: Mapping[str, Distribution]
    # For columns of categories and texts, the share of values or words without a code of their own.
    unseen: Mapping[str, float]
    answers: Distribution | None = None
    measured: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def read(given: Mapping[str, Any]) -> Profile:
    """Return the profile in an object that `as_json` has returned."""
    answers = given["answers"]
    return Profile(
        rows=given["rows"],
        columns={name: Distribution(**one) for name, one in given["columns"].items()},
        unseen=given["unseen"],
        answers=None if answers is None else Distribution(**answers),
        measured=given["measured"],
        metrics=given["metrics"],
    )
