"""Which states must stay: what configs go on from, what waits to be measured, what clones begin with."""

from __future__ import annotations

from collections.abc import Mapping

from cerebro_plpy.planner import routes
from cerebro_plpy.planner.units import Config


def needed(
    config: Config, waiting: set[int], segments: int, *, average_from: int | None, best: int | None
) -> set[int]:
    """The steps of a config that it goes on from, or may have to; of those that wait to be measured, too."""
    found = {config.step, *waiting}
    # Of a group on one segment, what is damaged is trained again from the beginning: it is soon done.
    if config.home is None:
        before = {routes.step_before(step, segments, average_from) for step in found}
        found |= {*before, config.step // segments * segments}
    if best is not None:
        found.add(best * segments)
    return found


def cloned_steps(configs: Mapping[int, Config], segments: int) -> dict[int, set[int]]:
    """By config, the steps that clones begin with; until a clone has finished an epoch of its own, that
    is also what a clone of the clone begins with."""
    steps: dict[int, set[int]] = {}
    for config in configs.values():
        begins = config.source is not None and config.step // segments == config.first_step // segments
        if begins and (origin := _origin(configs, config)) is not None:
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
