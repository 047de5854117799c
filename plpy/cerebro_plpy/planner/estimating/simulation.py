"""Simulates a run: asks the same `Plan.next` as a run, and adds estimated times instead of doing work."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cerebro_plpy.planner.estimating.rates import Rates
from cerebro_plpy.planner.estimating.work import ConfigKind, RunWork
from cerebro_plpy.planner.plan import Plan
from cerebro_plpy.planner.units import AVERAGE, EVALUATE, MERGE, PART, VISIT, Config, PartDone, Unit

COMPILE, READ, TRAIN, WRITE, MEASURE, REST = "compile", "read", "train", "write", "evaluate", "rest"
# Computing the outputs of frozen layers once.
ONCE = "once"
MB = 2**20


@dataclass
class Played:
    """The result of a simulation; `spent` has the seconds of sessions by config and activity."""

    seconds: float = 0.0
    first_measured: float | None = None
    spent: dict[tuple[int, str], float] = field(default_factory=dict)
    visits: int = 0
    evaluations: int = 0
    # Set if not every visit writes a state.
    states_written: int | None = None

    @property
    def busy(self) -> float:
        return sum(self.spent.values())

    def of_activity(self, activity: str, keys: Sequence[int] | None = None) -> float:
        return sum(
            seconds
            for (key, what), seconds in self.spent.items()
            if what == activity and (keys is None or key in keys)
        )

    def waiting(self, sessions: int) -> float:
        """Return the share of the sessions' time in which they have nothing to do."""
        return max(0.0, 1 - self.busy / (self.seconds * sessions)) if self.seconds else 0.0


class Prices:
    """The estimated seconds of units; compiling and reading, whose results sessions keep, count only once."""

    def __init__(self, work: RunWork, rates: Rates) -> None:
        self._work, self._rates = work, rates
        self.tick = rates.tick
        self._code = {slot: set(work.compiled) for slot in range(work.sessions)}
        self._read: set[int] = set()
        self._known: dict[tuple[str, str], Mapping[str, float]] = {}

    def price_unit(self, unit: Unit, kind: ConfigKind, slot: int) -> Mapping[str, float]:
        work, seconds = self._work, self.seconds(kind, unit.segment)
        found: dict[str, float] = defaultdict(float, {REST: seconds[REST]})
        if unit.kind == MERGE:
            found[MEASURE] += seconds[MEASURE]
            return found
        if unit.kind == AVERAGE:
            found[WRITE] += seconds[WRITE] * (1 + work.segments)
            return found
        megabytes = work.segment_bytes(unit.segment) / MB
        if unit.segment not in self._read or work.streams:
            self._read.add(unit.segment)
            times = kind.passes if work.streams and unit.kind in (VISIT, PART) else 1
            found[READ] += seconds[READ] * megabytes * times
        if unit.kind == EVALUATE:
            found[MEASURE] += seconds[MEASURE] * work.evaluation_batches(unit.segment)
            return found
        if work.needs_code(kind, self._code[slot]):
            found[COMPILE] += seconds[COMPILE]
            found[ONCE] += seconds[ONCE] * work.evaluation_batches(unit.segment)
        self._code[slot].add(kind.code)
        found[TRAIN] += seconds[TRAIN] * work.visit_batches(kind, unit.segment)
        found[WRITE] += seconds[WRITE]
        return found

    def seconds(self, kind: ConfigKind, segment: int) -> Mapping[str, float]:
        host = self._work.host_of(segment)
        if (kind.name, host) not in self._known:
            rates = self._rates.on(host)
            once = kind.computed_once
            self._known[kind.name, host] = {
                # The whole net, too, which tells whether what is cut has its bits.
                COMPILE: rates.compiling(kind).seconds * (1 if once is None else 2),
                ONCE: 0.0 if once is None else rates.evaluation_batch(once).seconds,
                READ: rates.reading().seconds,
                TRAIN: rates.batch(kind).seconds,
                WRITE: rates.writing(kind).seconds,
                MEASURE: rates.evaluation_batch(kind).seconds,
                REST: rates.resting().seconds,
            }
        return self._known[kind.name, host]

    def visit_seconds(self, kind: ConfigKind) -> float:
        """Return the seconds of a usual visit of a kind, which compiles nothing and reads no rows."""
        alike = self._work.alike
        return sum(self._usual(kind, s) * count for s, count in alike.items()) / self._work.segments

    def _usual(self, kind: ConfigKind, segment: int) -> float:
        seconds = self.seconds(kind, segment)
        return seconds[TRAIN] * self._work.visit_batches(kind, segment) + seconds[WRITE] + seconds[REST]


def configs_of(work: RunWork, prices: Prices, until: int) -> dict[int, Config]:
    """Return the configs of a run for a simulated plan, with the estimated seconds of their visits.

    They train up to epoch `until`.
    """
    return {
        key: Config(
            mst_key=key,
            backend=kind.backend,
            kind=kind.name,
            visit_units=prices.visit_seconds(kind),
            until=until,
        )
        for key, kind in work.kinds.items()
    }


def plan_of(work: RunWork, configs: dict[int, Config], epochs: int) -> Plan:
    return Plan(
        seed=work.seed,
        segments=work.segments,
        epochs=epochs,
        frequency=work.frequency,
        configs=configs,
        even=work.even,
        average_from=work.average_from,
    )


def play(
    plan: Plan,
    work: RunWork,
    prices: Prices,
    kind_of: Callable[[int], ConfigKind],
    measured: Callable[[int, int], None] = lambda key, epoch: None,
) -> Played:
    """Simulate the sessions until no work is left.

    `measured` is called after each evaluation with config and epoch, and may change the plan.
    """
    played, now = Played(), 0.0
    ends: list[tuple[float, int, Unit, float]] = []
    busy: set[int] = set()
    number = 0
    plan.take_up()
    while True:
        for segment in range(work.segments):
            slot = segment % work.sessions
            unit = None if slot in busy else plan.next(segment)
            if unit is None:
                continue
            parts = prices.price_unit(unit, kind_of(unit.mst_key), slot)
            for activity, seconds in parts.items():
                place = unit.mst_key, activity
                played.spent[place] = played.spent.get(place, 0.0) + seconds
            number += 1
            took = sum(parts.values())
            heapq.heappush(ends, (now + took, number, unit, took))
            busy.add(slot)
        if not ends:
            break
        prices.tick()
        now, _, unit, took = heapq.heappop(ends)
        busy.discard(unit.segment % work.sessions)
        if unit.kind == VISIT:
            played.visits += 1
            plan.visited(unit, took, None)
        elif unit.kind == PART:
            played.visits += 1
            plan.parted(unit, took, PartDone(0, None))
        elif unit.kind == AVERAGE:
            plan.averaged(unit, None)
        elif unit.kind == EVALUATE:
            plan.evaluated_on(unit, took)
        else:
            plan.merged(unit)
            played.evaluations += 1
            played.first_measured = now if played.first_measured is None else played.first_measured
            measured(unit.mst_key, unit.epoch)
    played.seconds = now
    return played
