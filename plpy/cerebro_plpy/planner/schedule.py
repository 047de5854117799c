"""Choose the waiting config that a free segment takes next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cerebro_plpy.planner.plan import Plan
    from cerebro_plpy.planner.units import Config

# Estimates are not exact: a little more than its share is none.
PRESSING = 1.1


@dataclass(frozen=True)
class Waiting:
    """A config whose next stop is the segment at hand."""

    mst_key: int
    remaining_seconds: float


def choose(waiting: Iterable[Waiting]) -> int | None:
    """Return the config with the longest remaining time; among equals, the one with the smallest key."""
    best = max(waiting, key=lambda w: (w.remaining_seconds, -w.mst_key), default=None)
    return None if best is None else best.mst_key


def presses(left: float, all_left: Iterable[float], segments: int) -> bool:
    """Return whether a config has more work left than its share of all remaining work."""
    return left > PRESSING * sum(all_left) / segments


def ends_in_time(plan: Plan, config: Config, seconds: float) -> bool:
    """Return whether what a config would do next, and its measurement, end in time.

    One that has not begun would end its first epoch; one in its first epoch ends it in any case. Later half a
    visit must fit, so that a run is as often a little short of its time as beyond it.
    """
    measuring = plan.evaluation_costs.seconds(config.kind, config.visit_units)
    if config.step >= config.first_step + plan.segments:
        return plan.costs.seconds(config.kind, config.visit_units) / 2 + measuring <= seconds
    if config.step > config.first_step or config.amid_epoch:
        return True
    return plan.costs.seconds(config.kind, plan.segments * config.visit_units) + measuring <= seconds
