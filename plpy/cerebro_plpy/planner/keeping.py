"""Which states of a run must stay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from cerebro_plpy.planner.units import Config

if TYPE_CHECKING:
    from cerebro_plpy.planner.plan import Plan


def needed_steps(
    plan: Plan, mst_keys: Iterable[int], measured: Iterable[tuple[int, int]]
) -> dict[int, list[int]]:
    """The states of configs that must stay: the last, those that wait to be `measured`, and before each of
    them the one that it can be made from again; and those that a clone or a result may begin with."""
    waiting: dict[int, set[int]] = {}
    for key, epoch in measured:
        waiting.setdefault(key, set()).add(epoch * plan.segments)
    cloned = _cloned_steps(plan.configs, plan.segments)
    return {
        key: sorted(_needed(plan, plan.configs[key], waiting.get(key, set())) | cloned.get(key, set()))
        for key in mst_keys
    }


def _needed(plan: Plan, config: Config, waiting: set[int]) -> set[int]:
    needed = {config.step, *waiting}
    # Of a group on one segment, what is damaged is trained again from the beginning: it is soon done.
    if config.home is None:
        needed |= {*map(plan.step_before, needed), plan.whole_epochs(config) * plan.segments}
    if (best := plan.best_epoch(config)) is not None:
        needed.add(best * plan.segments)
    return needed


def _cloned_steps(configs: Mapping[int, Config], segments: int) -> dict[int, set[int]]:
    """By config, the steps that clones begin with; until a clone has finished an epoch of its own, that is
    also what a clone of the clone begins with."""
    steps: dict[int, set[int]] = {}
    for config in configs.values():
        begins = config.step // segments == config.first_step // segments
        if config.source is not None and begins and (origin := _origin(configs, config)) is not None:
            steps.setdefault(origin, set()).add(config.first_step)
    return steps


def _origin(configs: Mapping[int, Config], config: Config) -> int | None:
    """Whose state a clone begins with: its source may be a clone itself that has not begun."""
    source = config.source
    while source is not None and configs[source].first_step == config.first_step:
        before = configs[source].source
        if before is None:
            break
        source = before
    return source
