"""The interface of search procedures: a procedure is told results, and answers with decisions.

A procedure is a pure function of its arguments, its seed and the sequence of results. It asks no clock and
depends on no order of a set, so that the same results in the same order bring the same decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True)
class Result:
    """One measurement of one config after an epoch, in the order in which it arrived.

    `epoch` counts what the config has behind it in this run, a clone's source included. A lower `value` is
    better; it is None if it is not finite, or if the config failed or a person stopped it.
    """

    mst_key: int
    epoch: int
    value: float | None


@dataclass(frozen=True)
class StartConfig:
    """The decision to train a new config until an epoch."""

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
    """The decision to begin a new config with the source's state after the epoch just measured."""

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
    """The decision to train a waiting config until a later epoch."""

    mst_key: int
    epochs: int
    reason: str


@dataclass(frozen=True)
class Stop:
    """The decision to make no further visits with a config; its state and metrics stay."""

    mst_key: int
    reason: str


Decision: TypeAlias = StartConfig | Clone | GoOn | Stop


class Procedure(Protocol):
    """A search procedure, which decides which configs train, and how far.

    A config that reaches its epochs is measured and then waits for GoOn or Stop; what still waits when no
    config trains any more is finished, and the run with it.
    """

    def begin(self) -> list[Decision]: ...

    def observe(self, result: Result) -> list[Decision]: ...
