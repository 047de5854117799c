"""A checked call of a preprocessor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cerebro_plpy.features.specification import Specification
from cerebro_plpy.packing.columns.sources import SourcePart
from cerebro_plpy.packing.dividing.grouping import Grouping
from cerebro_plpy.packing.dividing.parts import FOLD, GROUP, PartsRead
from cerebro_plpy.packing.rows.reading import PackedPart, fields
from cerebro_plpy.store.names import Table, TargetTable
from cerebro_plpy.store.packed.packed import Expression

ALL_SEGMENTS = "all_segments"


@dataclass(frozen=True)
class Rules:
    """The content ids of the segments that rows are dealt to, None for all; and how the summary says so."""

    contents: Sequence[int] | None = None
    shown: str = ALL_SEGMENTS
    gpu_config: str = ALL_SEGMENTS


@dataclass
class Job:
    """Everything that a call asks for, checked."""

    source: Table
    target: TargetTable
    spelled: tuple[str, str]
    dependents: list[SourcePart]
    independents: Sequence[PackedPart]
    buffer_size: int | None
    divisor: float
    num_classes: list[int | None]
    segments: int
    seed: int
    memory: int
    shapes: Mapping[str | None, tuple[int, ...]]
    rules: Rules = field(default_factory=Rules)
    # On Greenplum, the distribution key of each segment.
    dist_keys: list[int] | None = None
    # What the columns become, where the caller had them prepared.
    features: Specification | None = None
    # What each row counts.
    weight: SourcePart | None = None
    # In how many folds the rows are packed; the source has a column that says which each is in.
    folds: int | None = None
    # In groups: the columns that say which group a row is in, and the table that numbers them.
    grouping: Grouping | None = None
    # What a validation table takes over from the training table, one per dependent or independent.
    class_values: list[list[str | None] | None] = field(default_factory=list)
    class_types: list[str] = field(default_factory=list)
    row_shapes: list[list[int]] = field(default_factory=list)
    # Whether classes that are new may take the places that are free.
    takes_new_classes: bool = False

    @property
    def is_validation(self) -> bool:
        return bool(self.row_shapes)

    @property
    def parts(self) -> list[PackedPart]:
        return [*self.dependents, *self.independents, *([self.weight] if self.weight else [])]

    @property
    def fields(self) -> list[Expression]:
        """The fields that are read of each row."""
        return [*fields(self.parts), *([FOLD] if self.folds else []), *([GROUP] if self.grouping else [])]

    @property
    def parts_read(self) -> PartsRead | None:
        """A counter for rows in folds or groups; None for rows in neither."""
        count = self.folds if self.grouping is None else self.grouping.highest
        return PartsRead(count) if count else None

    def divisor_of(self, part: PackedPart) -> float:
        """Return what a part is divided by: only inputs are divided, not labels and weights."""
        return self.divisor if any(part is one for one in self.independents) else 1.0
