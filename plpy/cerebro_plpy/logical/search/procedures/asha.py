"""Asynchronous successive halving: a config is promoted as soon as it is among the best of its rung.

A rung is a number of epochs after which configs are compared; a promoted config trains on to the next rung.
No rung has to be complete for that, so the decisions depend on the order in which results arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from cerebro_plpy.logical.search.method import Draws, Params, SearchMethod, in_epochs
from cerebro_plpy.logical.search.ranking import rank
from cerebro_plpy.logical.search.template import Decision, GoOn, Procedure, Result, StartConfig, Stop
from cerebro_plpy.madlib.spaces.grid import GridRow, Meanings
from cerebro_plpy.madlib.spaces.halfway import meet
from cerebro_plpy.madlib.spaces.space import Choice, Space


def rung_epochs(least: int, most: int, eta: int) -> list[int]:
    """Return the epochs of the rungs: `least`, then `eta` times the epoch before, and `most` for the last."""
    epochs: list[int] = []
    while least < most:
        epochs.append(least)
        least *= eta
    return [*epochs, most]


class Asha:
    """A procedure in which at most `width` configs train at a time: three for each segment.

    When a config has completed its rung, another config is promoted, or a new one begins. Half of `width` is
    about as many as keep all segments busy.

    The first `added` configs are not the search's own. They are promoted if they are among the best of all,
    and the others also if they are among the best of the others: then none is left behind that would have
    been promoted without the added ones.

    The last configs may lie near the best one: `near` makes the config with a number from the best config so
    far. Numbers begin at 1, and `configs` has the configs that take part if there is no best one yet.
    """

    def __init__(
        self,
        configs: Sequence[GridRow],
        epochs: Sequence[int],
        eta: int,
        width: int,
        finished: int = 1,
        added: int = 0,
        near: Callable[[GridRow, int], GridRow] | None = None,
        near_from: int = 0,
    ) -> None:
        self._configs = list(configs)
        self._near, self._near_from = near, near_from
        self._meanings = Meanings()
        self._epochs = list(epochs)
        self._eta = eta
        self._width = width
        self._finished = finished
        self._added = added
        self._started = 0
        self._training: dict[int, int] = {}
        self._values: list[dict[int, float | None]] = [{} for _ in epochs]
        self._promoted: list[set[int]] = [set() for _ in epochs]

    def begin(self) -> list[Decision]:
        return self._fill()

    def observe(self, result: Result) -> list[Decision]:
        key, value = result.mst_key, result.value
        rung = self._training.get(key)
        if rung is None:
            # A person has stopped a config that waited: it can no longer be promoted.
            for values in self._values if value is None else ():
                values.pop(key, None)
            return []
        if value is not None and result.epoch < self._epochs[rung]:
            return []
        del self._training[key]
        if not result.is_taken:
            self._values[rung][key] = value
        return self._fill() or self._fill_idle()

    def _fill(self) -> list[Decision]:
        decisions: list[Decision] = []
        while len(self._training) < self._width:
            decision = self._promotion() or self._new()
            if decision is None:
                break
            decisions.append(decision)
        return decisions

    def _promotion(self) -> Decision | None:
        for rung in reversed(range(len(self._epochs) - 1)):
            values = self._values[rung]
            own = {key: value for key, value in values.items() if key > self._added}
            for compared in (values, own):
                order = rank(compared)
                for place, key in enumerate(order[: len(compared) // self._eta], 1):
                    if key not in self._promoted[rung]:
                        return self._promote(rung, key, place, len(order))
        return None

    def _promote(self, rung: int, key: int, place: int, count: int) -> Decision:
        self._promoted[rung].add(key)
        self._training[key] = rung + 1
        return GoOn(key, self._epochs[rung + 1], f"rung {rung}: place {place} of {count} so far")

    def _new(self) -> Decision | None:
        if self._started == len(self._configs):
            return None
        self._started += 1
        key, reason = self._started, "no config can be promoted"
        best = self._find_best() if self._near is not None and key >= self._near_from else None
        if self._near is not None and best is not None:
            config = self._near(self._configs[best - 1], key)
            if self._is_new(config):
                self._configs[key - 1] = config
                reason = f"{reason}: between config {best} and a random one"
        config = self._configs[key - 1]
        self._training[key] = 0
        return StartConfig(
            mst_key=key,
            model_id=config.model_id,
            compile_params=config.compile_params,
            fit_params=config.fit_params,
            epochs=self._epochs[0],
            reason=reason,
        )

    def _find_best(self) -> int | None:
        """Return the best config of the highest rung; None before the first result."""
        return next((order[0] for rung in reversed(self._values) if (order := rank(rung))), None)

    def _is_new(self, config: GridRow) -> bool:
        key = self._meanings.make_key(config)
        return all(self._meanings.make_key(one) != key for one in self._configs)

    def _fill_idle(self) -> list[Decision]:
        """Return the decisions when no config can begin, and none is among the best of its rung.

        If a segment is idle and more configs should be trained to the end, the best configs that wait are
        promoted all the same. If still no config trains, all that wait are stopped.
        """
        training = len(self._training)
        lacking = self._count_wanted() - len(rank(self._values[-1])) - training
        promoted = self._promote_next(min(lacking, self._width // 2 - training))
        return promoted if promoted or training else self._stop_others()

    def _count_wanted(self) -> int:
        """Return how many configs should be trained to the end: one, or `finished` if longer training helps.

        The best config that was trained to the end decides: longer training helps if its last value is its
        best one. Before any config is trained to the end, the best config of the highest rung decides: longer
        training helps if its value is better than in its first rung.
        """
        reached = [order for rung in self._values[1:] if (order := rank(rung))]
        if not reached:
            return 1
        best = reached[-1][0]
        values = [value for rung in self._values if (value := rung.get(best)) is not None]
        helps = values[-1] <= min(values) if best in self._values[-1] else values[-1] < values[0]
        return self._finished if helps else 1

    def _promote_next(self, wanted: int) -> list[Decision]:
        """Promote at most `wanted` of the configs that wait: those of the highest rung first, best first."""
        decisions: list[Decision] = []
        for rung in reversed(range(len(self._epochs) - 1)):
            order = rank(self._values[rung])
            for place, key in enumerate(order, 1):
                if len(decisions) < wanted and key not in self._promoted[rung]:
                    decisions.append(self._promote(rung, key, place, len(order)))
        return decisions

    def _stop_others(self) -> list[Decision]:
        return [
            Stop(key, f"rung {rung}: place {place} of {len(order)}, too low for rung {rung + 1}")
            for rung, values in enumerate(self._values[:-1])
            for order in [rank(values)]
            for place, key in enumerate(order, 1)
            if key not in self._promoted[rung]
        ]


class AshaMethod(SearchMethod):
    name: ClassVar[str] = "asha"
    defaults: ClassVar[Params] = {
        "num_configs": 20,
        "num_iterations": 9,
        "eta": 3,
        "min_iterations": 1,
        "min_finished": 1,
        "near_best": 0,
    }
    least: ClassVar[Mapping[str, int]] = {"eta": 2, "near_best": 0}
    has_rungs: ClassVar[bool] = True

    @property
    def proposes(self) -> bool:
        return self.number("near_best") > 0

    @property
    def takes_configs(self) -> bool:
        return True

    def resized(self, configs: int) -> SearchMethod:
        """Return the method with the given number of configs; of fewer, fewer lie near the best one."""
        fewer = max(0, self.number("num_configs") - configs)
        near = max(0, self.number("near_best") - fewer)
        return replace(self, params={**self.params, "num_configs": configs, "near_best": near})

    def procedure(self, draws: Draws) -> Procedure:
        eta = self.number("eta")
        passes = rung_epochs(self.number("min_iterations"), self.number("num_iterations"), eta)
        # Each config needs one segment at a time, and some need it only briefly: with two for each segment,
        # one segment is idle whenever all of them want the others.
        count, near = self.number("num_configs"), self.number("near_best")
        return Asha(
            draws.rows(count),
            in_epochs(passes, self.parts, eta),
            eta,
            width=3 * draws.segments,
            finished=self.number("min_finished"),
            added=draws.added,
            near=partial(_draw_near, draws.space, draws.choices(count)) if near else None,
            near_from=count - near + 1,
        )


def _draw_near(space: Space, drawn: Sequence[Choice], best: GridRow, key: int) -> GridRow:
    """Return a config between the best one and the drawn one with the number `key`."""
    return meet(space, best, drawn[key - 1])
