"""Chooses the waiting config that a free segment trains next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cerebro_plpy.planner.plan import Plan
    from cerebro_plpy.planner.units import Config

# Estimates are not exact, so a config must have clearly more than its share.
PRESSING = 1.1


@dataclass(frozen=True)
class Waiting:
    """A config whose next stop is the free segment, with its estimated time left."""

    mst_key: int
    remaining_seconds: float


def choose(waiting: Iterable[Waiting]) -> int | None:
    """Return the key of the config with the longest remaining time; among equals, the smallest key."""
    best = max(waiting, key=lambda w: (w.remaining_seconds, -w.mst_key), default=None)
    return None if best is None else best.mst_key


def presses(left: float, all_left: Iterable[float], segments: int) -> bool:
    """Return whether a config's seconds left are clearly more than a segment's share of all seconds left."""
    return left > PRESSING * sum(all_left) / segments


def ends_in_time(plan: Plan, config: Config, seconds: float) -> bool:
    """Return whether a config's next work and the evaluation after it end within `seconds`.

    A config that has not begun must complete its first epoch in time. A config in its first epoch always
    goes on. Later, half a visit must fit, so that a run ends as often before its limit as after it.
    """
    measuring = plan.evaluation_costs.seconds(config.kind, config.visit_units)
    if config.step >= config.first_step + plan.segments:
        return plan.costs.seconds(config.kind, config.visit_units) / 2 + measuring <= seconds
    if config.step > config.first_step or config.amid_epoch:
        return True
    return plan.costs.seconds(config.kind, plan.segments * config.visit_units) + measuring <= seconds
