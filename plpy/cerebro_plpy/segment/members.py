"""The groups of a bundle, on their way through a visit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cerebro_plpy.engine.state import State
from cerebro_plpy.segment.rows import PartitionRows


@dataclass
class Member:
    """One group of a bundle."""

    mst_key: int
    rows: PartitionRows
    state: State
    logs: Mapping[str, float] = field(default_factory=dict)
    # What was measured after each epoch that is due.
    measured: dict[int, Mapping[str, float]] = field(default_factory=dict)
    failure: str | None = None
