"""Checks how long a run is to train and how often it is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cerebro_plpy.errors import CerebroError

MOST_EPOCHS: Final = 2**31 - 1
# Memory for the outputs of frozen layers.
BUDGET_MB: Final = 2048


@dataclass(frozen=True)
class Limits:
    """The bounds and choices of a run, which are written down with it.

    They say what ends a run before its configs have all their epochs, which of their states are its result,
    which run it repeats, whether its configs train side by side, none an epoch ahead of the others, and from
    which epoch on the states of all segments are averaged; whether the outputs of frozen layers are kept, in
    how much memory of all segments, and where nets are cut for that (`planner/cuts.py`); in which form small
    nets train as one program, how many epochs a visit to groups has, with how few rows or classes one is left
    out, whether models of groups stay that have not changed, how many epochs a pass over the rows takes,
    whether models that have not seen a fold are kept, and which layers are computed again.
    """

    restore_best: bool = False
    max_seconds: int | None = None
    max_visits: int | None = None
    max_configs: int | None = None
    replay: int | None = None
    even: bool = False
    average_from: int | None = None
    materialize: bool = True
    budget_mb: int = BUDGET_MB
    # Layers that are computed once, for each architecture: the best choice, and others.
    cuts: Mapping[str, Sequence[Mapping[str, Any]]] = field(
        default_factory=dict[str, Sequence[Mapping[str, Any]]]
    )
    # The layers that made each table of features, by the name of the table.
    stored: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    fuse: str | None = None
    # What the form of small nets follows from, as it was when the run began.
    small_nets: Mapping[str, Any] = field(default_factory=dict[str, Any])
    checkpoint_every: int | None = None
    epochs_per_pass: int | None = None
    min_rows: int | None = None
    min_classes: int | None = None
    changed_groups: bool = False
    # The run that has made those models.
    changed_since: int | None = None
    fold_models: bool = False
    # Which layers are computed again in the backward pass: none, all that can be, or those named.
    recompute: bool | Sequence[str] = False
    # What a net may have on the device while it trains.
    device_memory_mb: int | None = None

    @property
    def why_alone(self) -> str | None:
        """Why nets train by themselves, in a form that takes less memory; None if they need not."""
        if self.recompute:
            return "layers are computed again in the backward pass"
        if self.device_memory_mb is not None:
            return "nets may be in shards on the device"
        return None


@dataclass(frozen=True)
class Aim:
    """The bounds that a plan is to keep to: seconds in all, and memory of all sessions."""

    within: int | None = None
    memory_mb: int | None = None


def check_budget(num_iterations: int | None, metrics_compute_frequency: int | None) -> tuple[int, int]:
    """Check both numbers; if no frequency is given, the metrics are computed only at the end."""
    if num_iterations is None or not 1 <= num_iterations <= MOST_EPOCHS:
        raise CerebroError(
            f"Number of iterations cannot be < 1: {num_iterations}",
            hint="Give the number of epochs in num_iterations.",
        )
    frequency = num_iterations if metrics_compute_frequency is None else metrics_compute_frequency
    if not 1 <= frequency <= num_iterations:
        raise CerebroError(
            f"metrics_compute_frequency must be in the range (1 - {num_iterations}): {frequency}"
        )
    return num_iterations, frequency


def evaluation_epochs(num_iterations: int, frequency: int) -> list[int]:
    """Return the epochs, counted from 1, after which metrics are computed: every so many, and the last."""
    epochs = list(range(frequency, num_iterations + 1, frequency))
    return epochs if epochs and epochs[-1] == num_iterations else [*epochs, num_iterations]
