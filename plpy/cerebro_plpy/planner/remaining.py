"""How long a run takes yet, by what its visits and evaluations have taken so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cerebro_plpy.planner.costs import EVALUATION_SHARE, evaluations_due
from cerebro_plpy.planner.units import Config

if TYPE_CHECKING:
    from cerebro_plpy.planner.plan import Plan


def seconds_left(plan: Plan, measured: Mapping[tuple[int, int], int]) -> float | None:
    """An estimate for the whole run: the work left is shared, but no config can be in two visits. `measured`
    says of configs and epochs on how many segments they are.

    None while there was no visit yet that tells more than how long starting takes.
    """
    if not plan.costs.known:
        return None
    waiting = Counter[int]()
    for (key, _), segments in measured.items():
        waiting[key] += plan.segments - segments
    left = [
        plan.remaining_seconds(c) + _measuring_seconds(plan, c, waiting[c.mst_key])
        for c in plan.configs.values()
    ]
    return max(sum(left) / plan.segments, max(left, default=0.0))


def _measuring_seconds(plan: Plan, config: Config, waiting: int) -> float:
    """What measuring a config takes yet, on so many segments for epochs that it has trained, and later;
    bundles measure in their visits."""
    if config.failure is not None or config.deleted or config.home is not None:
        return 0.0
    until = (config.step + plan.visits_left(config)) // plan.segments
    due = evaluations_due(plan.whole_epochs(config), until, plan.frequency)
    units = (waiting + due * plan.segments) * config.visit_units
    if not plan.evaluation_costs.known:
        return plan.costs.seconds(config.kind, units) * EVALUATION_SHARE
    return plan.evaluation_costs.seconds(config.kind, units)
