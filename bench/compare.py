"""Compares contenders on whole jobs, which run in turn (A B C A B C), by medians and ratios."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import contenders
import measure
import server
import tables
from contenders import AS_IT_COMES, BEST, OURS, OURS_FIRST, RAY, Contender
from measure import Outcome, Spread, ratio
from workloads import Workload

Tell = Callable[[str], None]
# The number of runs of slow contenders, which have no warm-up and are watched while measured.
SELDOM = 1
MOST_SHOWN = 5


@dataclass
class Comparison:
    """The measurements of all contenders on one workload; `peaks` has the bytes of each process."""

    workload: Workload
    best: str
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)
    peaks: dict[str, Sequence[int]] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)
    disturbed: int = 0

    def add(self, measured: contenders.Measured, warm_up: bool) -> None:
        for name, outcome in measured.outcomes.items():
            if measured.peak is not None:
                self.stored[name] = outcome.stored
                self.peaks[name] = measured.peak
            if not warm_up:
                self.outcomes.setdefault(name, []).append(outcome)

    def seconds(self, name: str) -> list[float]:
        return [o.seconds for o in self.outcomes[name]]

    def warm(self, name: str) -> list[float]:
        return [o.warm_seconds for o in self.outcomes[name]]


def compare(workload: Workload, repetitions: int, search: bool, options: str, tell: Tell) -> Comparison:
    with closing(server.connect()) as connection:
        server.load(connection, workload)
        server.make_configs(connection, workload)
    best = contenders.find_best(workload, tell) if search else contenders.KNOWN_BEST[workload.name]
    tell(f"  bare Keras at its best: {best}")
    found = Comparison(workload, best)
    everybody = contenders.field(contenders.CANDIDATES[best], options)
    for number in range(-1, repetitions):
        for contender in everybody:
            if contender.often or 0 <= number < SELDOM:
                _one(found, contender, number < 0, tell)
    return found


def _one(found: Comparison, contender: Contender, warm_up: bool, tell: Tell) -> None:
    noise = "" if measure.wait_until_quiet() else ", while the machine was busy otherwise"
    found.disturbed += bool(noise)
    clock = time.perf_counter()
    measured = contender.run(found.workload, warm_up or not contender.often)
    found.add(measured, warm_up)
    seconds = ", ".join(f"{o.seconds:.2f} s ({o.warm_seconds:.2f})" for o in measured.outcomes.values())
    took = time.perf_counter() - clock
    tell(f"  {'warm-up: ' if warm_up else ''}{contender.name}: {seconds}, all in all {took:.1f} s{noise}")


def table(found: Comparison) -> str:
    """Return the comparison as Markdown: a row for each contender, the fastest first, then memory."""
    names = sorted(found.outcomes, key=lambda n: Spread.from_values(found.seconds(n)).median)
    head = ["", "seconds", "÷ ours", "warm seconds", "÷ ours", "stored", "peak memory", "moved", "accuracy"]
    return f"{tables.markdown(head, [_row(found, name) for name in names])}\n\n{_largest(found)}"


def _largest(found: Comparison) -> str:
    """Return a sentence with the memory of the largest processes of some contenders."""
    processes = {
        name: ", ".join(f"{size / 1e6:.0f}" for size in sorted(found.peaks[name], reverse=True)[:MOST_SHOWN])
        for name in (OURS, BEST, RAY)
        if name in found.peaks
    }
    listed = "; ".join(f"{name}: {sizes}" for name, sizes in processes.items())
    return f"The largest processes at the peak of memory, in MB. {listed}."


def _row(found: Comparison, name: str) -> list[str]:
    # Our second job compares with the peers' warm time, our first job with their whole time.
    is_warm, is_first = name == OURS, name == OURS_FIRST
    whole, warm = found.seconds(name), found.warm(name)
    against_first = None if is_warm else ratio(whole, found.seconds(OURS_FIRST))
    against_warm = None if is_first else ratio(warm, found.seconds(OURS))
    outcomes = found.outcomes[name]
    return [
        name + (f" ({found.best})" if name == BEST else ""),
        "" if is_warm else tables.spread(Spread.from_values(whole)),
        "" if is_warm or against_first is None else tables.spread(against_first),
        "" if is_first else tables.spread(Spread.from_values(warm)),
        "" if is_first or against_warm is None else tables.spread(against_warm),
        tables.size(found.stored[name]),
        tables.size(sum(found.peaks[name])),
        tables.size(outcomes[0].moved),
        tables.spread(Spread.from_values([o.accuracy for o in outcomes]), 4),
    ]


# The goal, the peer, and which of our two jobs is compared with it.
_GOALS = {
    "digits": [(0.35, AS_IT_COMES, OURS), (0.8, AS_IT_COMES, OURS_FIRST), (0.1, RAY, OURS)],
    "images": [(0.8, AS_IT_COMES, OURS), (0.35, RAY, OURS)],
    "wide": [(0.65, AS_IT_COMES, OURS), (0.6, RAY, OURS)],
}
_GOALS_EVERYWHERE = [(1.0, BEST, OURS), (1.0, BEST, OURS_FIRST)]


def goals(found: Comparison) -> list[tables.Goal]:
    name = found.workload.name
    rows = [_goal(found, *goal) for goal in _GOALS[name] + _GOALS_EVERYWHERE]
    if found.peaks.get(RAY):
        memory = Spread.from_values([sum(found.peaks[OURS]) / sum(found.peaks[RAY])])
        rows.append(tables.Goal(f"`{name}`: peak memory, ours ÷ {RAY}", 0.7, memory))
    return rows


def _goal(found: Comparison, goal: float, peer: str, which: str) -> tables.Goal:
    """Return a goal for our time ÷ a peer's: our second job to its warm time, our first to its whole time."""
    theirs = found.warm(peer) if which == OURS else found.seconds(peer)
    reached = ratio(found.seconds(which), theirs)
    return tables.Goal(f"`{found.workload.name}`: {which} ÷ {peer}", goal, reached)
