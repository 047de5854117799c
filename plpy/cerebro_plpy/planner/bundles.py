"""Bundles: the configs that one visit carries together.

With groups whose rows lie on one segment, the units of a config form bundles that last for the whole run.
Configs that hop are put together whenever a segment is free: those of one program that wait there for the
same visit. In no form do the bits of one depend on the others, so the members may change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from cerebro_plpy.planner.units import EVALUATE, MERGE, Config, Unit

# Enough for what a visit costs by itself to be next to nothing.
MOST_MEMBERS = 512
# The work that a crash may cost, in seconds: states are written at least this often.
CHECKPOINT_SECONDS = 10.0
# The most configs that hop together. A session keeps all of their states, and a crash costs little.
MOST_TOGETHER = 16


class Grouped(Protocol):
    """The facts about a config of the plan that decide its bundle."""

    mst_key: int
    backend: str

    @property
    def key(self) -> int: ...

    @property
    def home(self) -> int | None: ...

    @property
    def epochs_before(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Bundle:
    segment: int
    members: list[int]


# The facts that the members of a bundle share.
_Kind = tuple[int, str, int, int]


def _kind(config: Grouped, home: int) -> _Kind:
    # Rows come in an order that is of the epoch: after a warm start not all are in the same.
    return home, config.backend, config.key, config.epochs_before


class Bundles:
    """All bundles of a run; open ones may have something left to do."""

    def __init__(self, configs: Iterable[Grouped]) -> None:
        self._open: dict[int, list[Bundle]] = {}
        self._of: dict[int, Bundle] = {}
        self._newest: dict[_Kind, Bundle] = {}
        alike: dict[_Kind, list[int]] = {}
        for config in configs:
            if config.home is not None:
                alike.setdefault(_kind(config, config.home), []).append(config.mst_key)
        for kind, members in alike.items():
            for some in _even(members):
                self._begin(kind, some)

    def _begin(self, kind: _Kind, members: Sequence[int]) -> Bundle:
        bundle = self._newest[kind] = Bundle(kind[0], list(members))
        self._open.setdefault(bundle.segment, []).append(bundle)
        self._of.update(dict.fromkeys(members, bundle))
        return bundle

    def add(self, config: Grouped) -> None:
        """Put a config that comes in during the run into a bundle."""
        if config.home is None:
            return
        kind = _kind(config, config.home)
        bundle = self._newest.get(kind)
        if bundle is None or len(bundle.members) >= MOST_MEMBERS:
            self._begin(kind, [config.mst_key])
            return
        bundle.members.append(config.mst_key)
        self._of[config.mst_key] = bundle
        self.reopen(config.mst_key)

    def first(self, segment: int, left: Callable[[Bundle], bool]) -> Bundle | None:
        """Return a segment's first bundle with work left; one bundle is finished before the next begins."""
        waiting = self._open.get(segment, [])
        while waiting and not left(waiting[0]):
            waiting.pop(0)
        return waiting[0] if waiting else None

    def any_left(self, left: Callable[[Bundle], bool]) -> bool:
        return any(self.first(segment, left) for segment in list(self._open))

    def rotate(self, segment: int) -> None:
        """Move the first bundle of a segment behind the others."""
        waiting = self._open[segment]
        waiting.append(waiting.pop(0))

    def reopen(self, mst_key: int) -> None:
        """Open the bundle of a config again, since the config may have more to do."""
        bundle = self._of.get(mst_key)
        if bundle is not None and bundle not in self._open[bundle.segment]:
            self._open[bundle.segment].append(bundle)


def _even(members: Sequence[int]) -> list[Sequence[int]]:
    """Cut the members into as few parts as possible, of nearly equal sizes."""
    parts = -(-len(members) // MOST_MEMBERS)
    bounds = [len(members) * part // parts for part in range(parts + 1)]
    return [members[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]


def most_together(alike: int, lane: int, segments: int) -> int:
    """Return how many alike configs of a lane share a visit.

    Segments that pass configs on to each other are to have two bundles each, so that they work on one while
    the other is elsewhere: if all configs of a lane are alike, they are halved.
    """
    return -(-alike // 2) if segments > 1 and alike == lane else alike


def together(
    first: Config, waiting: Sequence[Config], going: Sequence[Config], segments: int
) -> list[Config]:
    """Return the config with the waiting ones that share its visit; `going` are all that still train."""
    if first.alike is None or first.at_most is not None:
        return [first]
    lane = [c for c in going if c.key % segments == first.key % segments]
    most = most_together(sum(c.alike == first.alike for c in lane), len(lane), segments)
    others = [
        c
        for c in waiting
        if c is not first and c.alike == first.alike and c.step == first.step and c.at_most is None
    ]
    return [first, *others[: min(most, MOST_TOGETHER) - 1]]


def part(configs: list[Config]) -> list[Config]:
    """Return the configs that go into one visit: after a lost visit, only some of those that were in it.

    Visits get smaller until it shows whose fault it is.
    """
    lost = [c for c in configs if c.at_most is not None]
    return lost[: lost[0].at_most] if lost else configs


def measured_together(
    first: Unit, queue: Sequence[Unit], configs: Mapping[int, Config]
) -> tuple[Unit, list[Unit]]:
    """Return the unit together with waiting ones of the same work and epoch, and the units that remain."""
    of = configs[first.mst_key]
    if first.kind not in (EVALUATE, MERGE) or of.alike is None or first.apart:
        return first, list(queue)
    more = [
        unit
        for unit in queue
        if (unit.kind, unit.epoch) == (first.kind, first.epoch)
        and configs[unit.mst_key].alike == of.alike
        and not unit.apart
    ][: MOST_TOGETHER - 1]
    if not more:
        return first, list(queue)
    members = (first.mst_key, *(unit.mst_key for unit in more))
    return replace(first, members=members), [unit for unit in queue if unit not in more]
