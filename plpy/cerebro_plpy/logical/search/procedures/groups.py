"""Searches on a table in groups: each group has a search of its own, or one search decides for all of them.

A config on the rows of a group is a unit: one number (`Units`) stands for the config and the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cerebro_plpy.logical.search.template import Clone, Decision, Procedure, Result, StartConfig

PER_GROUP, ALL_GROUPS = "per_group", "all_groups"
SCOPES: Final = (PER_GROUP, ALL_GROUPS)


@dataclass(frozen=True)
class Units:
    """The numbers of units: each number stands for a config on one of the groups."""

    groups: Sequence[int]

    def number(self, key: int, place: int) -> int:
        return (key - 1) * len(self.groups) + place + 1

    def place_of(self, number: int) -> int:
        """Return the place of a unit's group in `groups`."""
        return (number - 1) % len(self.groups)

    def key_of(self, number: int) -> int:
        return (number - 1) // len(self.groups) + 1

    def number_decision(self, decision: Decision, place: int) -> Decision:
        """Return a decision about a config as a decision about its unit on the group at `place`."""
        key = decision.mst_key
        numbered = replace(decision, mst_key=self.number(key, place))
        if isinstance(numbered, StartConfig | Clone):
            numbered = replace(numbered, config_key=key, group=self.groups[place])
        if isinstance(numbered, Clone):
            numbered = replace(numbered, source=self.number(numbered.source, place))
        return numbered


class PerGroup:
    """A procedure made of one procedure for each group, each of which gets only the results of its group."""

    def __init__(self, groups: Sequence[int], make: Callable[[], Procedure]) -> None:
        self._units = Units(groups)
        self._procedures = [make() for _ in groups]

    def begin(self) -> list[Decision]:
        found = [(place, d) for place, own in enumerate(self._procedures) for d in own.begin()]
        # A config of many groups is trained on them together.
        found.sort(key=lambda one: one[1].mst_key)
        return [self._units.number_decision(decision, place) for place, decision in found]

    def observe(self, result: Result) -> list[Decision]:
        place = self._units.place_of(result.mst_key)
        of_config = replace(result, mst_key=self._units.key_of(result.mst_key))
        return [self._units.number_decision(one, place) for one in self._procedures[place].observe(of_config)]


class AllGroups:
    """A procedure whose configs are trained on every group, with one inner procedure that decides.

    The inner procedure gets the mean of the groups' values, weighted by their rows. For a group in which a
    config has failed, its worst value so far counts: else the config would be better than those that learn
    a hard group. A group that no config has learned does not count, nor one that a person took.
    """

    def __init__(self, rows: Mapping[int, int], procedure: Procedure) -> None:
        self._units = Units(list(rows))
        self._rows = list(rows.values())
        self._procedure = procedure
        # By config: its values by group after the awaited epoch, the groups where it has ended, that epoch.
        self._values: dict[int, dict[int, float]] = {}
        self._lost: dict[int, set[int]] = {}
        self._awaited: dict[int, int] = {}
        # By config: the groups in which it has failed. By group: the worst value of any config.
        self._failed: dict[int, set[int]] = {}
        self._worst: dict[int, float] = {}

    def begin(self) -> list[Decision]:
        return self._on_all(self._procedure.begin())

    def observe(self, result: Result) -> list[Decision]:
        key, place = self._units.key_of(result.mst_key), self._units.place_of(result.mst_key)
        lost = self._lost.setdefault(key, set())
        if place in lost:
            return []
        if result.value is None:
            lost.add(place)
            if not result.is_taken:
                self._failed.setdefault(key, set()).add(place)
        elif key in self._awaited:
            self._values.setdefault(key, {})[place] = result.value
            self._worst[place] = max(result.value, self._worst.get(place, result.value))
        values = self._values.get(key, {})
        if key not in self._awaited:
            # The config waits. If it trains in no group any more, it can no longer be chosen.
            gone = len(lost) == len(self._rows)
            return self._on_all(self._procedure.observe(replace(result, mst_key=key))) if gone else []
        if len(values) + len(lost - values.keys()) < len(self._rows):
            return []
        epoch = self._awaited.pop(key)
        self._values[key] = {}
        mean, is_taken = self._mean(key, values), not self._failed.get(key)
        result = Result(key, epoch, mean, is_taken=mean is None and is_taken)
        return self._on_all(self._procedure.observe(result))

    def _mean(self, key: int, values: Mapping[int, float]) -> float | None:
        if not values:
            return None
        failed = self._failed.get(key, set()) & self._worst.keys()
        values = {**{place: self._worst[place] for place in failed}, **values}
        rows = sum(self._rows[place] for place in values)
        # In the order of the groups: sums of floats depend on it.
        return sum(values[place] * self._rows[place] for place in sorted(values)) / rows

    def _on_all(self, decided: Iterable[Decision]) -> list[Decision]:
        found: list[Decision] = []
        for decision in decided:
            key = decision.mst_key
            if isinstance(decision, Clone):
                # In groups that lost the source, the clone has no state to begin from.
                self._lost[key] = set(self._lost.get(decision.source, ()))
                self._failed[key] = set(self._failed.get(decision.source, ()))
            lost = self._lost.setdefault(key, set())
            epochs = getattr(decision, "epochs", None)
            if epochs is not None:
                self._awaited[key] = epochs
            found += [
                self._units.number_decision(decision, place)
                for place in range(len(self._rows))
                if place not in lost
            ]
        return found
