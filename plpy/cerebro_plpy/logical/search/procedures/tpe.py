"""Tree-structured Parzen estimator: Optuna proposes configs from the results of earlier ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.literal import Value
from cerebro_plpy.madlib.spaces.dimension import Dimension
from cerebro_plpy.madlib.spaces.grid import GridRow, Meanings, draw_choice, to_row
from cerebro_plpy.madlib.spaces.space import Choice, Point, Space

# After this many proposals in a row that exist already, a config is drawn at random instead.
PATIENCE = 10
# After this many random draws that exist already, the space is used up, and a config is trained again.
DRAWS = 1000
STARTUP = 10


class Tpe:
    """A sampler that proposes configs by TPE. Of `count` configs, the first few are drawn at random."""

    def __init__(self, space: Space, random_state: int, count: int) -> None:
        # Optuna takes most of a second to import: only a search that needs it pays.
        import optuna

        # Otherwise Optuna logs that it samples parameters that only some optimizers have independently.
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna = optuna
        self._space = space
        self._random_state = random_state
        sampler = optuna.samplers.TPESampler(
            seed=random_state % 2**32,
            n_startup_trials=min(STARTUP, max(1, count // 4)),
        )
        self._study = optuna.create_study(sampler=sampler)
        self._trials: dict[int, Any] = {}
        self._meanings = Meanings()
        self._known: set[tuple[int, str, str]] = set()
        self._draws = 0

    def ask(self, mst_key: int) -> GridRow:
        for _ in range(PATIENCE):
            trial = self._study.ask()
            row = to_row(self._choose(trial))
            if self._is_new(row):
                self._trials[mst_key] = trial
                return row
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        choice = self._draw()
        self._study.enqueue_trial(self._parameters(choice))
        self._trials[mst_key] = trial = self._study.ask()
        return to_row(self._choose(trial))

    def tell(self, mst_key: int, values: Mapping[int, float], complete: bool) -> None:
        trial = self._trials.pop(mst_key)
        for epoch, value in values.items():
            trial.report(value, epoch)
        if complete or not values:
            self._study.tell(trial, values[max(values)] if values else math.inf)
        else:
            self._study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)

    def _is_new(self, row: GridRow) -> bool:
        try:
            means = self._meanings.make_key(row)
        except CerebroError:
            # The proposal is a bound that the parameter itself must not reach.
            return False
        if means in self._known:
            return False
        self._known.add(means)
        return True

    def _draw(self) -> Choice:
        for _ in range(DRAWS):
            choice = draw_choice(self._space, self._random_state, self._draws)
            self._draws += 1
            if self._is_new(to_row(choice)):
                return choice
        return draw_choice(self._space, self._random_state, self._draws)

    def _choose(self, trial: Any) -> Choice:
        space = self._space
        group: int = trial.suggest_categorical("group", list(range(len(space.optimizers))))
        model_id: int = trial.suggest_categorical("model_id", list(space.model_ids))

        def point(dimensions: tuple[Dimension, ...], scope: str) -> Point:
            return {
                item.name: _suggest(trial, f"{scope} {item.path}", item)
                for item in dimensions
                if item.applies_to(model_id)
            }

        optimizer = point(space.optimizers[group], "compile")
        return Choice(model_id, group, optimizer, point(space.compile, "compile"), point(space.fit, "fit"))

    def _parameters(self, choice: Choice) -> dict[str, Any]:
        """Return a config as the parameters of an Optuna trial."""
        space = self._space
        parts = (
            ("compile", space.optimizers[choice.group], choice.optimizer),
            ("compile", space.compile, choice.compile),
            ("fit", space.fit, choice.fit),
        )
        values: dict[str, Any] = {"group": choice.group, "model_id": choice.model_id}
        for scope, dimensions, point in parts:
            for item in dimensions:
                if item.applies_to(choice.model_id):
                    values[f"{scope} {item.path}"] = _parameter(item, point[item.name])
        return values


def _suggest(trial: Any, name: str, item: Dimension) -> Value:
    if item.distribution is None:
        index: int = trial.suggest_categorical(name, list(range(len(item.values))))
        return item.values[index]
    if item.step is not None:
        return item.stepped(trial.suggest_int(name, 0, (item.size or 1) - 1))
    if item.distribution == "log_near_one":
        return item.clip(1.0 - trial.suggest_float(name, 1.0 - item.high, 1.0 - item.low, log=True))
    log = item.distribution == "log"
    if item.whole:
        return trial.suggest_int(name, math.ceil(item.low), math.floor(item.high), log=log)
    return trial.suggest_float(name, item.low, item.high, log=log)


def _parameter(item: Dimension, value: Any) -> Any:
    if item.distribution is None:
        return item.values.index(value)
    if item.step is not None:
        return round((value - item.low) / item.step)
    return 1.0 - value if item.distribution == "log_near_one" else value
