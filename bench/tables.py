"""Writes results as Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from measure import Spread


@dataclass(frozen=True)
class Goal:
    """A goal: the reached value must be at most `goal`, or at least `goal` if `at_most` is false."""

    what: str
    goal: float
    reached: Spread
    at_most: bool = True

    @property
    def met(self) -> bool:
        return self.reached.median <= self.goal if self.at_most else self.reached.median >= self.goal


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def goals(rows: Sequence[Goal]) -> str:
    found = [
        [
            g.what,
            f"{'≤' if g.at_most else '≥'} {g.goal:g}",
            spread(g.reached),
            "met" if g.met else "**missed**",
        ]
        for g in rows
    ]
    return markdown(["", "goal", "reached", ""], found)


def spread(value: Spread, digits: int = 2) -> str:
    """Return a spread as text: the median and, if there are several values, the extremes in brackets."""
    middle = f"{value.median:.{digits}f}"
    return middle if value.count == 1 else f"{middle} ({value.low:.{digits}f}–{value.high:.{digits}f})"


def share(value: float) -> str:
    return f"{100 * value:.1f} %"


def size(count: int) -> str:
    if count == 0:
        return "0"
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
