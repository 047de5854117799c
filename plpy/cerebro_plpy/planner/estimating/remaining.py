"""Estimate how long a run has to go, from the times of its visits and evaluations so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cerebro_plpy.planner.estimating.costs import EVALUATION_SHARE, evaluations_due
from cerebro_plpy.planner.units import Config

if TYPE_CHECKING:
    from cerebro_plpy.planner.plan import Plan


def seconds_left(plan: Plan, measured: Mapping[tuple[int, int], int]) -> float | None:
    """Estimate the time left of the whole run; no config can be in two visits at once.

    `measured` says, for configs and epochs, on how many segments they have been measured. Return None until
    there was a visit that tells more than how long starting takes.
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
    """Return the seconds of a config's evaluations that are left, on `waiting` segments and in later epochs.

    Bundles of groups are measured in their visits.
    """
    if config.failure is not None or config.deleted or config.home is not None:
        return 0.0
    until = (config.step + plan.visits_left(config)) // plan.segments
    due = evaluations_due(plan.whole_epochs(config), until, plan.frequency)
    units = (waiting + due * plan.segments) * config.visit_units
    if not plan.evaluation_costs.known:
        return plan.costs.seconds(config.kind, units) * EVALUATION_SHARE
    return plan.evaluation_costs.seconds(config.kind, units)
