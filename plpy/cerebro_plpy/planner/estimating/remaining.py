"""Estimates how much time a run has left, from the times of its visits and evaluations so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cerebro_plpy.planner.estimating.costs import EVALUATION_SHARE, evaluations_due
from cerebro_plpy.planner.units import Config

if TYPE_CHECKING:
    from cerebro_plpy.planner.plan import Plan


def seconds_left(plan: Plan, measured: Mapping[tuple[int, int], int]) -> float | None:
    """Return the estimated time left of the run, or None until enough visits have been recorded.

    `measured` has the number of segments that have evaluated a config, for each config and epoch under
    evaluation. A config cannot be in two visits at once, so the time is at least that of the longest
    config.
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
    """Return the seconds of a config's evaluations to come: on `waiting` segments, and after later epochs.

    Bundles of groups are evaluated in their visits, and take no such seconds.
    """
    if config.failure is not None or config.deleted or config.home is not None:
        return 0.0
    until = (config.step + plan.visits_left(config)) // plan.segments
    due = evaluations_due(plan.whole_epochs(config), until, plan.frequency)
    units = (waiting + due * plan.segments) * config.visit_units
    if not plan.evaluation_costs.known:
        return plan.costs.seconds(config.kind, units) * EVALUATION_SHARE
    return plan.evaluation_costs.seconds(config.kind, units)
