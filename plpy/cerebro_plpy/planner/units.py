"""The objects of a plan: configs while their run goes on, and units, which are the work of segments."""

from __future__ import annotations

from dataclasses import dataclass, field

from cerebro_plpy.logical.options import FAST, OFF

VISIT, EVALUATE, MERGE = "visit", "evaluate", "merge"
# In an epoch whose states are averaged: a visit from the state that all begin with, and the averaging.
PART, AVERAGE = "part", "average"
# A visit of several: one config on many groups, which is measured as well, or configs of one program.
BUNDLE = "bundle"


@dataclass(frozen=True)
class Alike:
    """The mark of configs that may share a visit: the name of their program, and their form of training."""

    name: str
    form: str


@dataclass(frozen=True)
class Unit:
    """A piece of work for one segment: a visit, evaluation, merge or averaging, of one config or several."""

    kind: str
    mst_key: int
    epoch: int
    segment: int
    stop: int = 0
    # The configs of a bundle, or those that are measured together.
    members: tuple[int, ...] = ()
    # For a bundle: its last epoch, the epochs after which it measures, and its form.
    until: int = 0
    measured: tuple[int, ...] = ()
    form: str = OFF
    # Whether to evaluate or merge it by itself, after it was lost together with others.
    apart: bool = False

    @property
    def keys(self) -> tuple[int, ...]:
        """The keys of the configs in the unit."""
        return self.members or (self.mst_key,)


@dataclass(frozen=True)
class PartDone:
    """The result of one segment's visit in an epoch whose states are averaged."""

    rows: int
    loss: float | None


@dataclass
class Config:
    """The progress of a config while its run goes on.

    `step` is the number of its committed visits, and `until` the last epoch that it trains. A clone begins
    at `first_step` with the state that its `source` had there. A stopped config has its last visit at
    `stop_at`.
    """

    mst_key: int
    backend: str
    kind: object
    visit_units: float
    until: int
    epochs_before: int = 0
    source: int | None = None
    first_step: int = 0
    step: int = 0
    visiting: bool = False
    stop_at: int | None = None
    deleted: bool = False
    failure: str | None = None
    loss: float | None = None
    best: tuple[float, int] | None = None
    # In an epoch whose states are averaged: the segments that work on it, and those that are done.
    busy: set[int] = field(default_factory=set)
    parts: dict[int, PartDone] = field(default_factory=dict)
    # In a cross-validated run: the config that it is, and the fold that it leaves out.
    config_key: int | None = None
    fold: int | None = None
    # In a run of groups: the name of the group in messages, and the segment that has all of its rows.
    group: str | None = None
    home: int | None = None
    # The mark of configs that may share its visits; after a lost visit, the most configs in its next visit.
    alike: Alike | None = None
    at_most: int | None = None
    # The net and the batch size by which configs share the outputs of frozen layers, where a run keeps them.
    cut: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self.step = max(self.step, self.first_step)

    @property
    def key(self) -> int:
        """The key by which the user knows the config; the configs for the folds of one config share it."""
        return self.mst_key if self.config_key is None else self.config_key

    @property
    def name(self) -> str:
        """The name of the config in messages."""
        if self.group is not None:
            return f"config {self.key} of group {self.group}"
        return f"config {self.key}" if self.fold is None else f"config {self.key} without fold {self.fold}"

    @property
    def batched(self) -> bool:
        """Whether the config trains in the batched form, with other bits than in a visit of its own."""
        return self.alike is not None and self.alike.form == FAST

    @property
    def amid_epoch(self) -> bool:
        """Whether segments have begun an epoch whose states are to be averaged, without a stored mean yet."""
        return bool(self.busy or self.parts)

    @property
    def over(self) -> bool:
        """Whether the config gets no more visits because it failed, was deleted or was stopped."""
        stopped = self.stop_at is not None and self.step >= self.stop_at
        return self.is_out or stopped

    @property
    def is_out(self) -> bool:
        """Whether the config has failed or was deleted, so that the run no longer uses it."""
        return self.failure is not None or self.deleted
