"""Describes the configs that an ensemble is chosen from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cerebro_plpy.predicting.holders import TrainedModel
from cerebro_plpy.predicting.models import Model


@dataclass(frozen=True)
class CandidatePart:
    """A model of the table; of a config's models by fold, also the fold that it has not seen."""

    found: TrainedModel
    model: Model
    fold: int | None = None


@dataclass(frozen=True)
class Candidate:
    """A config with its model, or its models by fold, and its answers for the rows that choose."""

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
    """The columns of groups with their types, and the key of the group of each row that chooses."""

    types: Mapping[str, str]
    keys: Sequence[str]
