"""Describes the configs from which an ensemble is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cerebro_plpy.predicting.holders import TrainedModel
from cerebro_plpy.predicting.models import Model


@dataclass(frozen=True)
class CandidatePart:
    """A trained model of a config; if it was trained in folds, also the fold that this model has not seen."""

    found: TrainedModel
    model: Model
    fold: int | None = None


@dataclass(frozen=True)
class Candidate:
    """A config with its models and its answers for the rows by which models are compared.

    It has one model, or one model for each fold.
    """

    key: int
    parts: Sequence[CandidatePart]
    answers: np.ndarray
    # The weights of each group's model by the group's key; empty where models are not of groups.
    of_groups: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"mst_key {self.key}"


@dataclass(frozen=True)
class JudgingGroups:
    """The group columns with their types, and the group key of each row by which models are compared."""

    types: Mapping[str, str]
    keys: Sequence[str]
