"""Counts the work of a run of groups and its time; nothing is simulated, since all segments are kept busy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cerebro_plpy.planner.bundles import CHECKPOINT_SECONDS, MOST_MEMBERS
from cerebro_plpy.planner.estimating import constants
from cerebro_plpy.planner.estimating.rates import Rates
from cerebro_plpy.planner.estimating.simulation import (
    COMPILE,
    MB,
    MEASURE,
    READ,
    REST,
    TRAIN,
    WRITE,
    Played,
    Prices,
)
from cerebro_plpy.planner.estimating.work import EVALUATION_BATCH, ConfigKind, GroupSizes, RunWork
from cerebro_plpy.planner.fusion import PROGRAM_VISITS


@dataclass(frozen=True)
class _AtHome:
    """The groups that lie on one segment, and the kind of config that trains on them."""

    sizes: np.ndarray
    kind: ConfigKind
    fuses: bool

    @property
    def members(self) -> int:
        return len(self.sizes)

    @property
    def bundles(self) -> int:
        return -(-self.members // MOST_MEMBERS)

    @property
    def share(self) -> float:
        """The time of mini-batches, as a share of the time that they take if each model trains by itself.

        It is less than 1 if one program trains many models at once (a fused program).
        """
        return constants.FUSED_SHARE if self.fuses and self.members > 1 else 1.0

    @cached_property
    def batches(self) -> int:
        """The number of mini-batches in an epoch of all these groups."""
        return self.kind.passes * int(np.sum(-(-self.sizes // self.kind.batch_size)))

    @property
    def shapes(self) -> int:
        """The number of different sizes that the last mini-batches of groups have."""
        return len(np.unique(self.sizes % self.kind.batch_size)) if self.members else 0


def fuses(groups: GroupSizes, kind: ConfigKind) -> bool:
    has_programs = kind.backend in PROGRAM_VISITS
    return groups.fuse and has_programs and kind.state_bytes <= constants.LARGEST_FUSED


def at_once(groups: GroupSizes, seconds_of_epoch: float) -> int:
    """Return the number of epochs in a visit of a bundle, by the same rule as `Plan`."""
    return groups.checkpoint or max(1, int(CHECKPOINT_SECONDS / max(seconds_of_epoch, 1e-9)))


def counted(work: RunWork, groups: GroupSizes, rates: Rates) -> Played:
    """Return the counted work of a run of groups, and its time; segments wait only at the end of the run."""
    played, prices = Played(states_written=0), Prices(work, rates)
    measures = -(-work.epochs // work.frequency)
    units = len(work.kinds) * groups.count
    played.visits = units * work.segments * work.epochs
    played.evaluations = units * measures
    loads = [0.0] * work.segments
    code = set(work.compiled)
    for key, kind in work.kinds.items():
        spent: dict[str, float] = dict.fromkeys((COMPILE, TRAIN, WRITE, REST, MEASURE), 0.0)
        for segment, sizes in enumerate(groups.at_home):
            own = _AtHome(np.asarray(sizes, np.int64), kind, fuses(groups, kind))
            loads[segment] += _at_home(work, groups, prices, rates, own=own, segment=segment, into=spent)
            played.states_written = (played.states_written or 0) + _written(
                work, groups, prices, own, segment
            )
        _everywhere(work, groups, prices, kind, measures=measures, into=spent)
        played.states_written = (played.states_written or 0) + groups.hopping * work.segments * work.epochs
        if work.needs_code(kind, code):
            spent[COMPILE] += prices.seconds(kind, 0)[COMPILE] * work.sessions * _codes(groups, kind)
        code.add(kind.code)
        played.spent |= {(key, activity): seconds for activity, seconds in spent.items()}
        rates.tick()
    first = next(iter(work.kinds))
    played.spent[first, READ] = sum(
        prices.seconds(work.kinds[first], s)[READ] * work.segment_bytes(s) / MB for s in range(work.segments)
    )
    beside = played.busy - sum(loads)
    played.seconds = max(max(loads, default=0.0), sum(loads) / work.sessions) + beside / work.sessions
    played.first_measured = played.seconds * min(work.frequency, work.epochs) / work.epochs
    return played


def _codes(groups: GroupSizes, kind: ConfigKind) -> int:
    """Return how often a session compiles code for a kind of config.

    JAX compiles code for each size of a last mini-batch, or only twice if one program trains many models.
    """
    if kind.backend != "jax":
        return 1
    if fuses(groups, kind):
        return 2
    sizes = np.concatenate([np.zeros(0, np.int64), *(np.asarray(s, np.int64) for s in groups.at_home)])
    return max(1, _AtHome(sizes, kind, False).shapes)


def _epoch_seconds(prices: Prices, own: _AtHome, segment: int) -> float:
    return own.batches * prices.seconds(own.kind, segment)[TRAIN] * own.share


def _visits(work: RunWork, groups: GroupSizes, prices: Prices, own: _AtHome, segment: int) -> int:
    """Return the number of visits of each bundle on a segment."""
    if not own.members:
        return 0
    return -(-work.epochs // at_once(groups, _epoch_seconds(prices, own, segment) / own.bundles))


def _written(work: RunWork, groups: GroupSizes, prices: Prices, own: _AtHome, segment: int) -> int:
    return own.members * _visits(work, groups, prices, own, segment)


def _at_home(
    work: RunWork,
    groups: GroupSizes,
    prices: Prices,
    rates: Rates,
    *,
    own: _AtHome,
    segment: int,
    into: dict[str, float],
) -> float:
    """Add the seconds of a segment's bundles to `into`, by activity; return their sum."""
    if not own.members:
        return 0.0
    seconds, measures = prices.seconds(own.kind, segment), -(-work.epochs // work.frequency)
    visits = own.bundles * _visits(work, groups, prices, own, segment)
    stack = replace(own.kind, state_bytes=own.kind.state_bytes * own.members // own.bundles)
    validated = 1 + sum(work.validation_rows) / max(1, sum(work.rows))
    batches = float(np.sum(np.ceil(own.sizes * validated / EVALUATION_BATCH)))
    found = {
        TRAIN: _epoch_seconds(prices, own, segment) * work.epochs,
        WRITE: rates.on(work.host_of(segment)).writing(stack).seconds * visits,
        REST: seconds[REST] * visits,
        MEASURE: seconds[MEASURE] * batches * own.share * measures,
    }
    for activity, took in found.items():
        into[activity] += took
    return sum(found.values())


def _everywhere(
    work: RunWork,
    groups: GroupSizes,
    prices: Prices,
    kind: ConfigKind,
    *,
    measures: int,
    into: dict[str, float],
) -> None:
    """Add the seconds of a kind of config to `into`, by activity, for models that hop over all segments.

    They are the models of groups that lie on all segments, and the model of all rows. `measures` is how often
    each is evaluated.
    """
    sizes = [*groups.cut, *([groups.rows] if groups.fallback else [])]
    for segment in range(work.segments):
        seconds = prices.seconds(kind, segment)
        for rows in sizes:
            here = -(-rows // work.segments)
            into[TRAIN] += seconds[TRAIN] * kind.passes * -(-here // kind.batch_size) * work.epochs
            into[WRITE] += seconds[WRITE] * work.epochs
            into[REST] += seconds[REST] * (work.epochs + measures)
            into[MEASURE] += seconds[MEASURE] * -(-here // EVALUATION_BATCH) * measures
