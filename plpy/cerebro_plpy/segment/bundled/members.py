"""The members of a bundle during its visit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cerebro_plpy.engine.state import State
from cerebro_plpy.segment.rows import PartitionRows
from cerebro_plpy.segment.visits import Task


@dataclass
class Member:
    """A member of a bundle: a config, or a group's share of a config, with its rows, state and results."""

    mst_key: int
    # In a run of groups, all members share the task's model and parameters; only its `config` differs.
    work: Task
    # The rows to train on; and the rows to measure, under "training" or "validation".
    rows: PartitionRows
    measured_on: Mapping[str, PartitionRows]
    state: State
    logs: Mapping[str, float] = field(default_factory=dict)
    # Metrics by epoch and dataset.
    measured: dict[tuple[int, str], Mapping[str, float]] = field(default_factory=dict)
    failure: str | None = None
