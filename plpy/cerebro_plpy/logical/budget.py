"""The limits of a run; checks its number of epochs, and how often metrics are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cerebro_plpy.errors import CerebroError

MOST_EPOCHS: Final = 2**31 - 1
# A search has this share of its call's budget however long packing takes, and it trains for this share of its
# own seconds however long engines take to start.
LEAST_SHARE: Final = 0.5
# Memory for the outputs of frozen layers.
BUDGET_MB: Final = 2048
# The most validation rows of a segment on which a config is measured, if each epoch has a part of the rows.
MOST_MEASURED: Final = 25_000


@dataclass(frozen=True)
class Limits:
    """The limits and choices of a run, which are stored with it.

    `max_seconds` and `max_visits` end a run early, and it has at most `max_configs` configs. `restore_best`
    makes the best state of each config its result: the one with the best metric, or with the least loss if
    `by_loss`. With `training_metrics`, metrics are also computed on the
    training rows, and not only on those that decide. `replay` is the run to repeat. With `even`, no config is
    more than an epoch ahead of another. The states of all segments are averaged from epoch `average_from` on.

    `materialize` says whether the outputs of frozen layers are kept, in `budget_mb` of memory on all segments
    together; nets are cut after the layers in `cuts` (`planner/cuts.py`). `fuse` is the form in which small
    nets train as one program. Layers in `recompute` are computed again in the backward pass.

    A visit to groups has `checkpoint_every` epochs. Groups with fewer rows than `min_rows`, or fewer classes
    than `min_classes`, are left out. With `changed_groups`, models of unchanged groups stay as they are.
    With `epochs_per_pass`, the rows are divided among this number of epochs. `fold_models` keeps the models
    that have not seen a fold.
    """

    restore_best: bool = False
    by_loss: bool = False
    training_metrics: bool = True
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
    # The facts from which `fuse` was decided when the run began.
    small_nets: Mapping[str, Any] = field(default_factory=dict[str, Any])
    checkpoint_every: int | None = None
    epochs_per_pass: int | None = None
    min_rows: int | None = None
    min_classes: int | None = None
    changed_groups: bool = False
    # The run that made the models of unchanged groups.
    changed_since: int | None = None
    fold_models: bool = False
    # Which layers are computed again in the backward pass: none, all that can be, or those named.
    recompute: bool | Sequence[str] = False
    # The memory that a net may use on the device while it trains.
    device_memory_mb: int | None = None

    @property
    def why_alone(self) -> str | None:
        """The reason why nets must train one by one, to use less memory; None if they need not."""
        if self.recompute:
            return "layers are computed again in the backward pass"
        if self.device_memory_mb is not None:
            return "nets may be in shards on the device"
        return None


@dataclass(frozen=True)
class Aim:
    """The bounds that a plan should keep: the seconds of the run, and the memory of all its sessions."""

    within: int | None = None
    memory_mb: int | None = None


def check_budget(num_iterations: int | None, metrics_compute_frequency: int | None) -> tuple[int, int]:
    """Return the number of epochs and the frequency of metrics. Raise an error if one is out of range.

    Without a frequency, metrics are computed only at the end.
    """
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


def count_most_measured(rows: int, epochs_per_pass: int | None) -> int:
    """Return on how many of a segment's validation rows a config is measured."""
    return rows if (epochs_per_pass or 1) == 1 else min(rows, MOST_MEASURED)


def evaluation_epochs(num_iterations: int, frequency: int) -> list[int]:
    """Return the epochs after which metrics are computed: every `frequency`th epoch, and the last one."""
    epochs = list(range(frequency, num_iterations + 1, frequency))
    return epochs if epochs and epochs[-1] == num_iterations else [*epochs, num_iterations]
