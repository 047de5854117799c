"""The interface of search procedures: a procedure gets results, and returns decisions.

A procedure depends only on its arguments, its seed and the sequence of results. It reads no clock and relies
on no order of a set, so the same results in the same order lead to the same decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True)
class Result:
    """A measurement of a config after an epoch. Procedures get results in the order in which they arrive.

    `epoch` is the number of epochs that the config has trained in this run; for a clone, the epochs of
    its source count as well. A lower `value` is better. It is None if the measured value is not finite, the
    config failed, or, with `is_taken`, a person took it or the run refused to begin it.
    """

    mst_key: int
    epoch: int
    value: float | None
    is_taken: bool = False


@dataclass(frozen=True)
class StartConfig:
    """A decision to train a new config up to an epoch."""

    mst_key: int
    model_id: int
    compile_params: str
    fit_params: str
    epochs: int
    reason: str
    # In a search on a table in groups: the config and its group; `mst_key` numbers both together.
    config_key: int | None = None
    group: int | None = None


@dataclass(frozen=True)
class Clone:
    """A decision to begin a new config with the state of config `source` after the epoch just measured."""

    mst_key: int
    source: int
    model_id: int
    compile_params: str
    fit_params: str
    epochs: int
    reason: str
    config_key: int | None = None
    group: int | None = None


@dataclass(frozen=True)
class GoOn:
    """A decision to train a waiting config up to a later epoch."""

    mst_key: int
    epochs: int
    reason: str


@dataclass(frozen=True)
class Stop:
    """A decision to make no further visits with a config. Its state and metrics are kept."""

    mst_key: int
    reason: str


Decision: TypeAlias = StartConfig | Clone | GoOn | Stop


class Procedure(Protocol):
    """A search procedure, which decides which configs train, and up to which epoch.

    A config that has reached its epoch is measured, and then waits for GoOn or Stop. When no config trains
    any more, the configs that wait are finished, and so is the run.
    """

    def begin(self) -> list[Decision]: ...

    def observe(self, result: Result) -> list[Decision]: ...
