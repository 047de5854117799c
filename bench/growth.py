"""Measures how the time of a run grows with the numbers of configs, rows and segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import details
import server
import tables
from measure import Spread, slope
from tables import Goal
from workloads import DIGITS, Config, Workload

Tell = Callable[[str], None]


def _configs(count: int) -> list[Config]:
    """Return configs that differ in the learning rate alone, so that each costs the same."""
    return [Config(0, 0.01 / (1 + number), 64) for number in range(count)]


def _fewer_or_more(name: str, sizes: Sequence[int]) -> Iterator[tuple[int, Workload, int | None]]:
    for size in sizes:
        if name == "configs":
            yield size, replace(DIGITS, configs=_configs(size), rows=1797 * 4, epochs=1), None
        elif name == "rows":
            yield size, replace(DIGITS, configs=_configs(8), rows=1797 * 4 * size, epochs=1), None
        else:
            yield size, replace(DIGITS, configs=_configs(8), rows=1797 * 16, epochs=1), size


SIZES = {"configs": (1, 2, 4, 8, 16, 32, 64), "rows": (1, 2, 4, 8, 16), "segments": (1, 2, 4, 8)}


def growth(
    repetitions: int, options: str, tell: Tell, sizes: dict[str, tuple[int, ...]] = SIZES
) -> details.Section:
    """Measure one-epoch runs on the digits in warm sessions, with more and more configs, rows or segments."""
    texts, goals = [], []
    for name, steps in sizes.items():
        found = {
            size: _measure(w, segments, repetitions, options)
            for size, w, segments in _fewer_or_more(name, steps)
        }
        middles = [Spread.from_values(seconds).median for seconds in found.values()]
        rows = [["seconds", *(tables.spread(Spread.from_values(seconds)) for seconds in found.values())]]
        texts.append(tables.markdown([name, *(str(size) for size in found)], rows))
        tell(f"  growth {name} {middles}")
        if len(middles) > 1:
            exponent = slope(list(found), middles)
            texts.append(f"Fitted: seconds ~ {name}^{exponent:.2f}.")
            goals.append(
                Goal(
                    f"growth with {name}: exponent of the fit", 1.05, Spread(exponent, exponent, exponent, 1)
                )
            )
    return details.Section("How the cost grows", "\n\n".join(texts), goals)


def _measure(workload: Workload, segments: int | None, repetitions: int, options: str) -> list[float]:
    with server.session() as connection:
        server.load(connection, workload)
        server.make_configs(connection, workload)
        server.pack(connection, workload, server.packing_options(workload, segments))
        found = [server.fit(connection, workload, options)[1] for _ in range(repetitions + 1)]
    return found[1:]
