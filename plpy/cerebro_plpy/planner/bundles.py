"""Puts configs into bundles, so that several visits are one command and one transaction.

If the rows of each group lie on one segment, a config on the groups of a segment forms bundles that last for
the whole run. Configs that hop are put together each time a segment is free: those of one program that wait
for this segment at the same step. The bits of a config never depend on the other members of its bundle, so
members may change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from cerebro_plpy.planner.units import EVALUATE, MERGE, Config, Unit

# Large enough to make the fixed costs of a visit negligible.
MOST_MEMBERS = 512
# The seconds of work that a crash may cost: a visit of a bundle takes about as long.
CHECKPOINT_SECONDS = 10.0
# The most configs that hop together. A session keeps all of their states, and a crash costs little.
MOST_TOGETHER = 16


class Grouped(Protocol):
    """The facts about a config that decide to which bundle it belongs."""

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
    # The order of rows depends on the epoch, and after a warm start configs may be in different epochs.
    return home, config.backend, config.key, config.epochs_before


class Bundles:
    """The lasting bundles of a run, by segment; an open bundle may have work left."""

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
        """Add a config that joins the run later to a bundle; do nothing if the config hops."""
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
        """Return a segment's first bundle for which `left` returns True, or None; remove finished bundles."""
        waiting = self._open.get(segment, [])
        while waiting and not left(waiting[0]):
            waiting.pop(0)
        return waiting[0] if waiting else None

    def any_left(self, left: Callable[[Bundle], bool]) -> bool:
        return any(self.first(segment, left) for segment in list(self._open))

    def rotate(self, segment: int) -> None:
        """Move the first open bundle of a segment behind its other open bundles."""
        waiting = self._open[segment]
        waiting.append(waiting.pop(0))

    def reopen(self, mst_key: int) -> None:
        """Mark the bundle of a config as open again, because the config may have more work."""
        bundle = self._of.get(mst_key)
        if bundle is not None and bundle not in self._open[bundle.segment]:
            self._open[bundle.segment].append(bundle)


def _even(members: Sequence[int]) -> list[Sequence[int]]:
    """Divide the members into as few lists as possible, all of nearly equal length."""
    parts = -(-len(members) // MOST_MEMBERS)
    bounds = [len(members) * part // parts for part in range(parts + 1)]
    return [members[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]


def most_together(alike: int, lane: int, segments: int) -> int:
    """Return how many configs with the same program and the same route share a visit.

    `alike` is the number of these configs, and `lane` the number of all configs with this route. If both are
    equal, the configs form two bundles, so that a segment can work on one bundle while the other is on
    another segment.
    """
    return -(-alike // 2) if segments > 1 and alike == lane else alike


def together(
    first: Config, waiting: Sequence[Config], going: Sequence[Config], segments: int
) -> list[Config]:
    """Return the configs of one visit: `first`, and those of `waiting` that may share the visit.

    `going` are all configs that still train.
    """
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
    """Return which of `configs` train in the next visit: all, or some of those whose last visit was lost.

    After each loss, visits get smaller, until only the config that causes the loss is left.
    """
    lost = [c for c in configs if c.at_most is not None]
    return lost[: lost[0].at_most] if lost else configs


def measured_together(
    first: Unit, queue: Sequence[Unit], configs: Mapping[int, Config]
) -> tuple[Unit, list[Unit]]:
    """Return `first` joined with units of `queue` that can be done with it, and the rest of `queue`.

    They are joined if all are evaluations, or all are merges, of configs of one program after the same epoch.
    """
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
