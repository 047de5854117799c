"""Population based training: after each generation, copies of the best configs replace the worst configs.

Numbers of the copies, such as the learning rate, are slightly changed. A generation ends when all its configs
have results, so the order of results changes no decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.logical.search.method import WHO, Draws, Params, SearchMethod, refuse_above
from cerebro_plpy.logical.search.ranking import rank
from cerebro_plpy.logical.search.template import Clone, Decision, GoOn, Procedure, Result, StartConfig, Stop
from cerebro_plpy.madlib.literal import Value
from cerebro_plpy.madlib.spaces.dimension import Dimension, is_number, is_whole
from cerebro_plpy.madlib.spaces.grid import to_row
from cerebro_plpy.madlib.spaces.space import Choice, Point, Space
from cerebro_plpy.seeding import derive

FACTORS = (0.8, 1.25)


class Pbt:
    """A procedure that replaces `replaced` configs after each generation of `interval` epochs."""

    def __init__(
        self,
        space: Space,
        population: Sequence[Choice],
        epochs: int,
        interval: int,
        replaced: int,
        random_state: int,
    ) -> None:
        self._space = space
        self._choices = dict(enumerate(population, 1))
        self._epochs = epochs
        self._interval = interval
        self._replaced = replaced
        self._random_state = random_state
        self._members = list(self._choices)
        self._values: dict[int, float | None] = {}
        self._generation = 1

    @property
    def _until(self) -> int:
        return min(self._generation * self._interval, self._epochs)

    def begin(self) -> list[Decision]:
        decisions: list[Decision] = []
        for key, choice in self._choices.items():
            row = to_row(choice)
            decisions.append(
                StartConfig(
                    mst_key=key,
                    model_id=row.model_id,
                    compile_params=row.compile_params,
                    fit_params=row.fit_params,
                    epochs=self._until,
                    reason="generation 1",
                )
            )
        return decisions

    def observe(self, result: Result) -> list[Decision]:
        early = result.value is not None and result.epoch < self._until
        if early or result.mst_key not in self._members:
            return []
        self._values[result.mst_key] = result.value
        if len(self._values) < len(self._members) or self._until == self._epochs:
            return []
        return self._next_generation()

    def _next_generation(self) -> list[Decision]:
        order = rank(self._values)
        failed = len(self._members) - len(order)
        if not order:
            return []
        # Configs that failed are always replaced. The worst configs make up the rest of the number.
        losers = max(0, min(self._replaced - failed, len(order) - 1))
        staying = order[: len(order) - losers]
        best = staying[: max(1, self._replaced)]
        decisions: list[Decision] = []
        where = f"generation {self._generation}"
        self._generation += 1
        for place, key in enumerate(order, 1):
            reason = f"{where}: place {place} of {len(order)}"
            stays = place <= len(staying)
            decisions.append(
                GoOn(key, self._until, reason) if stays else Stop(key, f"{reason}, gives way to a copy")
            )
        self._members, self._values = list(staying), {}
        decisions += [self._copy(best, where) for _ in range(losers + failed)]
        return decisions

    def _copy(self, best: list[int], where: str) -> Decision:
        key = max(self._choices) + 1
        source = best[derive(self._random_state, "pbt source", key) % len(best)]
        choice = perturbed(self._space, self._choices[source], self._random_state, key)
        self._choices[key] = choice
        self._members.append(key)
        row = to_row(choice)
        reason = f"{where}: explores from config {source}, place {best.index(source) + 1}"
        return Clone(
            mst_key=key,
            source=source,
            model_id=row.model_id,
            compile_params=row.compile_params,
            fit_params=row.fit_params,
            epochs=self._until,
            reason=reason,
        )


def perturbed(space: Space, choice: Choice, seed: int, key: int) -> Choice:
    """Return the config with every number slightly changed, up or down.

    All other values stay, so the state keeps its shape.
    """

    def change(dimensions: Sequence[Dimension], point: Point, kind: str) -> Point:
        named = {item.name: item for item in dimensions if item.applies_to(choice.model_id)}
        return {
            name: value
            if kind == "compile" and is_whole(name, kind)
            else _neighbour(named[name], value, derive(seed, "pbt", kind, name, key) % 2)
            for name, value in point.items()
        }

    return Choice(
        choice.model_id,
        choice.group,
        change(space.optimizers[choice.group], choice.optimizer, "compile"),
        choice.compile,
        change(space.fit, choice.fit, "fit"),
    )


def _neighbour(item: Dimension, value: Value, up: int) -> Value:
    new = _moved(item, value, up)
    # Optimizers keep variables for a momentum other than zero, and none for zero.
    return value if (new == 0) != (value == 0) else new


def _moved(item: Dimension, value: Value, up: int) -> Value:
    if not is_number(value):
        return value
    if item.distribution is None or item.step is not None:
        values = sorted(v for v in item.all() if is_number(v))
        if len(values) < len(item.all()):
            return value
        place = values.index(value) + (1 if up else -1)
        return values[min(max(place, 0), len(values) - 1)]
    if item.distribution == "log_near_one":
        return item.clip(1.0 - (1.0 - value) * FACTORS[up])
    return item.clip(value * FACTORS[up])


class PbtMethod(SearchMethod):
    name: ClassVar[str] = "pbt"
    defaults: ClassVar[Params] = {"population": 8, "num_iterations": 9, "interval": 1, "replaced": 2}
    least: ClassVar[Mapping[str, int]] = {"population": 2}

    def check(self) -> None:
        super().check()
        if 2 * self.number("replaced") > self.number("population"):
            raise CerebroError(
                f"{WHO}: replaced in 'automl_params' is {self.params['replaced']}",
                detail=f"It must be at most half of population = {self.params['population']}.",
            )

    @property
    def proposes(self) -> bool:
        return True

    def limited(self, most: int) -> SearchMethod:
        generations = (self.epochs - 1) // self.number("interval")
        refuse_above(most, self.number("population") + self.number("replaced") * generations)
        return self

    def procedure(self, draws: Draws) -> Procedure:
        return Pbt(
            draws.space,
            draws.choices(self.number("population")),
            epochs=self.epochs,
            interval=self.number("interval"),
            replaced=self.number("replaced"),
            random_state=draws.random_state,
        )
