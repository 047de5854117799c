"""The checked arguments of a call that packs rows."""

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
    """The segments that get rows: `contents` has their content ids as in Greenplum, or is None for all.

    `shown` and `gpu_config` are the texts that the summary table shows for these rules and for GPUs.
    """

    contents: Sequence[int] | None = None
    shown: str = ALL_SEGMENTS
    gpu_config: str = ALL_SEGMENTS


@dataclass
class Job:
    """The checked arguments of a call that packs rows, with everything that was derived from them."""

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
    # The feature specification, if the call has the option `columns`.
    features: Specification | None = None
    # The column with the weight of each row.
    weight: SourcePart | None = None
    # The number of folds; the source then has a column with the fold of each row.
    folds: int | None = None
    # For rows in groups: the columns that define groups, and the table of groups.
    grouping: Grouping | None = None
    # Settings of the training table that validation rows keep, one for each dependent or independent column.
    class_values: list[list[str | None] | None] = field(default_factory=list)
    class_types: list[str] = field(default_factory=list)
    row_shapes: list[list[int]] = field(default_factory=list)
    # Whether new classes may take free places among the class values.
    takes_new_classes: bool = False

    @property
    def is_validation(self) -> bool:
        return bool(self.row_shapes)

    @property
    def parts(self) -> list[PackedPart]:
        return [*self.dependents, *self.independents, *([self.weight] if self.weight else [])]

    @property
    def fields(self) -> list[Expression]:
        """The SQL expressions that are read from each source row."""
        return [*fields(self.parts), *([FOLD] if self.folds else []), *([GROUP] if self.grouping else [])]

    @property
    def parts_read(self) -> PartsRead | None:
        """A new counter of the rows in each fold or group, or None if rows are in neither."""
        count = self.folds if self.grouping is None else self.grouping.highest
        return PartsRead(count) if count else None

    def divisor_of(self, part: PackedPart) -> float:
        """Return the number by which a packed column is divided: 1 for labels and weights."""
        return self.divisor if any(part is one for one in self.independents) else 1.0
