"""Finds what a run must keep: states, and the outputs of layers that it computes once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from cerebro_plpy.planner.units import Config

if TYPE_CHECKING:
    from cerebro_plpy.planner.plan import Plan


def needed_steps(
    plan: Plan, mst_keys: Iterable[int], measured: Iterable[tuple[int, int]]
) -> dict[int, list[int]]:
    """Return, for each config, those of its steps whose states must be kept.

    They are its last step, steps that wait for evaluation (`measured`), steps from which one of these can be
    computed again if its state is damaged, and steps from which clones begin or results are made.
    """
    waiting: dict[int, set[int]] = {}
    for key, epoch in measured:
        waiting.setdefault(key, set()).add(epoch * plan.segments)
    cloned = _cloned_steps(plan.configs, plan.segments)
    return {
        key: sorted(_needed(plan, plan.configs[key], waiting.get(key, set())) | cloned.get(key, set()))
        for key in mst_keys
    }


def find_cut_configs(plan: Plan, mst_keys: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return the nets and batch sizes for which the run still needs outputs of frozen layers.

    Each tuple has the key of a config that uses these outputs, its net and its batch size. The list is empty
    if no config in `mst_keys` uses such outputs.
    """
    if all(plan.configs[key].cut is None for key in mst_keys):
        return []
    measured = {key for key, _ in plan.measured}
    needed = [key for key in plan.configs if plan.trains(key) or key in measured]
    first: dict[tuple[int, int], int] = {}
    for key in (*mst_keys, *needed):
        if (cut := plan.configs[key].cut) is not None:
            first.setdefault(cut, key)
    return [(key, *cut) for cut, key in first.items()]


def _needed(plan: Plan, config: Config, waiting: set[int]) -> set[int]:
    needed = {config.step, *waiting}
    # A damaged state of a group on one segment is trained again from the beginning, which is soon done.
    if config.home is None:
        needed |= {*map(plan.step_before, needed), plan.whole_epochs(config) * plan.segments}
    if (best := plan.best_epoch(config)) is not None:
        needed.add(best * plan.segments)
    return needed


def _cloned_steps(configs: Mapping[int, Config], segments: int) -> dict[int, set[int]]:
    """Return, for each config that has been cloned, its steps from whose states clones begin.

    Until a clone has completed an epoch, a clone made from it begins with the same state.
    """
    steps: dict[int, set[int]] = {}
    for config in configs.values():
        begins = config.step // segments == config.first_step // segments
        if config.source is not None and begins and (origin := _origin(configs, config)) is not None:
            steps.setdefault(origin, set()).add(config.first_step)
    return steps


def _origin(configs: Mapping[int, Config], config: Config) -> int | None:
    """Return the config that has the state with which a clone begins.

    It is the clone's source; or, if the source is a clone that has not trained yet, the origin of the source.
    """
    source = config.source
    while source is not None and configs[source].first_step == config.first_step:
        before = configs[source].source
        if before is None:
            break
        source = before
    return source
