"""Hyperband: brackets of successive halving, each a compromise between many configs and many epochs.

A rung ends when all configs of its bracket have results, so the order of results changes no decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.logical.search.method import (
    WHO,
    Draws,
    Params,
    Rung,
    SearchMethod,
    in_epochs,
    refuse_above,
)
from cerebro_plpy.logical.search.ranking import rank
from cerebro_plpy.logical.search.template import Decision, GoOn, Procedure, Result, StartConfig, Stop
from cerebro_plpy.madlib.spaces.grid import GridRow


def schedule(who: str, most: int, eta: int, skip_last: int, parts: int = 1) -> list[Rung]:
    """Return MADlib's table of rungs. Raise an error, in MADlib's words, if the parameters are invalid.

    `who` is the name of the called function. The last `skip_last` rungs of each bracket are left out. A pass
    over the rows has `parts` epochs, and `most` is a number of passes.
    """
    if eta <= 1:
        raise CerebroError(f"{who}: eta must be greater than 1", detail=f"It is {eta}.")
    if most < (eta if parts == 1 else 1):
        bound = "eta" if parts == 1 else "1"
        raise CerebroError(f"{who}: R should not be less than {bound}", detail=f"R is {most}, eta is {eta}.")
    passes = [most]
    while eta ** len(passes) <= most:
        passes.insert(0, round(most / eta ** len(passes)))
    epochs = in_epochs(passes, parts, eta)
    s_max = len(epochs) - 1
    if not 0 <= skip_last <= s_max:
        message = f"{who}: skip_last must be non-negative and less than {s_max + 1}"
        raise CerebroError(message, detail=f"It is {skip_last}.")
    rungs: list[Rung] = []
    for s in reversed(range(s_max + 1)):
        configs = (s_max + 1) // (s + 1) * eta**s
        rungs += [Rung(s, i, configs // eta**i, epochs[s_max - s + i]) for i in range(s + 1 - skip_last)]
    return rungs


def size(rungs: Sequence[Rung]) -> int:
    """Return the number of configs with which a schedule begins."""
    return sum(rung.n_i for rung in rungs if rung.i == 0)


def brackets(rungs: Sequence[Rung]) -> dict[int, range]:
    """Return the keys of the configs in each bracket."""
    found: dict[int, range] = {}
    first = 1
    for rung in rungs:
        if rung.i == 0:
            found[rung.s] = range(first, first + rung.n_i)
            first += rung.n_i
    return found


def rung_of(rungs: Sequence[Rung], mst_key: int, epochs: int) -> Rung | None:
    """Return the last rung of a config that has trained this many epochs; None for an unknown config."""
    for s, members in brackets(rungs).items():
        if mst_key in members:
            own = [rung for rung in rungs if rung.s == s]
            return next((rung for rung in reversed(own) if rung.r_i <= epochs), own[0])
    return None


@dataclass
class _Bracket:
    rungs: list[Rung]
    members: list[int]
    values: dict[int, float | None] = field(default_factory=dict)
    place: int = 0

    @property
    def rung(self) -> Rung:
        return self.rungs[self.place]

    def take(self, result: Result) -> list[Decision]:
        early = result.value is not None and result.epoch < self.rung.r_i
        if early or result.mst_key not in self.members:
            return []
        self.values[result.mst_key] = result.value
        if len(self.values) < len(self.members) or self.place + 1 == len(self.rungs):
            return []
        return self._next_rung()

    def _next_rung(self) -> list[Decision]:
        order = rank(self.values)
        self.place += 1
        self.values = {}
        self.members = order[: self.rung.n_i]
        where = f"bracket {self.rung.s}, rung {self.place - 1}"
        decisions: list[Decision] = []
        for place, key in enumerate(order, 1):
            reason = f"{where}: place {place} of {len(order)}, the best {self.rung.n_i} go on"
            going = place <= self.rung.n_i
            decisions.append(GoOn(key, self.rung.r_i, reason) if going else Stop(key, reason))
        return decisions


class Hyperband:
    """A procedure that trains all brackets at the same time. Each config belongs to one bracket."""

    def __init__(self, rungs: Sequence[Rung], configs: Sequence[GridRow]) -> None:
        self._configs = dict(enumerate(configs, 1))
        self._bracket_of: dict[int, _Bracket] = {}
        for s, members in brackets(rungs).items():
            bracket = _Bracket([rung for rung in rungs if rung.s == s], list(members))
            self._bracket_of |= dict.fromkeys(members, bracket)

    def begin(self) -> list[Decision]:
        decisions: list[Decision] = []
        for key, config in self._configs.items():
            rung = self._bracket_of[key].rung
            where = f"bracket {rung.s}, rung 0"
            decisions.append(
                StartConfig(
                    mst_key=key,
                    model_id=config.model_id,
                    compile_params=config.compile_params,
                    fit_params=config.fit_params,
                    epochs=rung.r_i,
                    reason=where,
                )
            )
        return decisions

    def observe(self, result: Result) -> list[Decision]:
        bracket = self._bracket_of.get(result.mst_key)
        if bracket is None:
            return []
        return bracket.take(result)


class HyperbandMethod(SearchMethod):
    name: ClassVar[str] = "hyperband"
    defaults: ClassVar[Params] = {"R": 6, "eta": 3, "skip_last": 0}
    invalid: ClassVar[str | None] = (
        "Invalid param(s) passed in for hyperband. Only R, eta, and skip_last may be specified"
    )
    has_brackets: ClassVar[bool] = True
    has_rungs: ClassVar[bool] = True

    @property
    def epochs(self) -> int:
        # R, unless the rungs that get R epochs are skipped.
        return max(rung.r_i for rung in self._schedule())

    def check(self) -> None:
        """Do nothing: `schedule` checks the parameters."""

    def limited(self, most: int) -> SearchMethod:
        refuse_above(most, size(self._schedule()))
        return self

    def rung_of(self, mst_key: int, epochs: int) -> Rung | None:
        return rung_of(self._schedule(), mst_key, epochs)

    def procedure(self, draws: Draws) -> Procedure:
        rungs = self._schedule()
        return Hyperband(rungs, draws.rows(size(rungs)))

    def _schedule(self) -> list[Rung]:
        most, eta, skip_last = (self.number(key) for key in ("R", "eta", "skip_last"))
        return schedule(WHO, most, eta, skip_last, self.parts)
