"""Simulates a search procedure with invented results, since nobody knows beforehand how much it trains."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cerebro_plpy.logical.search.template import Clone, Decision, GoOn, Procedure, Result, StartConfig
from cerebro_plpy.planner.estimating.simulation import Played, Prices, plan_of, play
from cerebro_plpy.planner.estimating.work import ConfigKind, RunWork
from cerebro_plpy.planner.units import Config

KindOf = Callable[[StartConfig | Clone], ConfigKind]
# If a scenario has more visits times configs, no further scenario is simulated.
MOST_PLAYED = 60_000


@dataclass
class Curves:
    """Invented losses: the loss of each config falls to a level of its own, with some random noise."""

    seed: int

    def value(self, mst_key: int, epoch: int) -> float:
        level = random.Random(f"{self.seed}/{mst_key}").random()
        chance = random.Random(f"{self.seed}/{mst_key}/{epoch}").random()
        return level + 1 / (1 + epoch) + 0.05 * chance


class Scenario:
    """One possible course of a search, with invented losses that depend on `seed`."""

    def __init__(
        self, procedure: Procedure, work: RunWork, prices: Prices, kind_of: KindOf, seed: int
    ) -> None:
        self._procedure, self._work, self._prices, self._kind_of = procedure, work, prices, kind_of
        self._curves = Curves(seed)
        self.kinds: dict[int, ConfigKind] = {}
        self.plan = plan_of(work, {}, work.epochs)
        # The configs of a fit call, which wait for the procedure's decisions.
        for key, kind in work.kinds.items():
            self._add(key, kind, 0)

    def play(self) -> Played:
        self._apply(self._procedure.begin())
        return play(self.plan, self._work, self._prices, self.kinds.__getitem__, self._measured)

    def _measured(self, mst_key: int, epoch: int) -> None:
        config = self.plan.configs[mst_key]
        if epoch == config.until and config.stop_at is None:
            value = self._curves.value(mst_key, epoch)
            self._apply(self._procedure.observe(Result(mst_key, epoch, value)))

    def _apply(self, decided: Sequence[Decision]) -> None:
        for decision in decided:
            key = decision.mst_key
            if isinstance(decision, StartConfig | Clone):
                source = decision.source if isinstance(decision, Clone) else None
                self._add(key, self._kind_of(decision), decision.epochs, source)
            elif isinstance(decision, GoOn):
                self.plan.set_until(key, decision.epochs)
            else:
                self.plan.stop(key, self.plan.begun_step(key))
            self.plan.settle(key)

    def _add(self, key: int, kind: ConfigKind, epochs: int, source: int | None = None) -> None:
        self.kinds[key] = kind
        before = 0 if source is None else self.plan.whole_epochs(self.plan.configs[source])
        self.plan.add(
            Config(
                mst_key=key,
                backend=kind.backend,
                kind=kind.name,
                visit_units=self._prices.visit_seconds(kind),
                until=epochs,
                source=source if before else None,
                first_step=before * self._work.segments,
            )
        )


def scenarios(
    make: Callable[[], Procedure],
    work: RunWork,
    prices: Callable[[], Prices],
    kind_of: KindOf,
    count: int = 3,
) -> list[tuple[RunWork, Played]]:
    """Simulate at most `count` courses of one search; return the work and the result of each.

    The work of a course has the configs that the search tried in it. After a very long course, no
    other is simulated.
    """
    found: list[tuple[RunWork, Played]] = []
    for seed in range(count):
        scenario = Scenario(make(), work, prices(), kind_of, seed)
        played = scenario.play()
        found.append((replace(work, kinds=dict(scenario.kinds)), played))
        if played.visits * len(scenario.kinds) > MOST_PLAYED:
            break
    return found
