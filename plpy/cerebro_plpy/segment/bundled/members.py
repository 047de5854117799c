"""The members of a bundle, on their way through a visit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cerebro_plpy.engine.state import State
from cerebro_plpy.segment.rows import PartitionRows
from cerebro_plpy.segment.visits import Task


@dataclass
class Member:
    """One config of a bundle, on all rows or those of a group."""

    mst_key: int
    # For a group: what all groups of a config share, except for the config.
    work: Task
    # To train on; and to measure on, by what they are to the run.
    rows: PartitionRows
    measured_on: Mapping[str, PartitionRows]
    state: State
    logs: Mapping[str, float] = field(default_factory=dict)
    # What was measured after each epoch that is due, on which rows.
    measured: dict[tuple[int, str], Mapping[str, float]] = field(default_factory=dict)
    failure: str | None = None
