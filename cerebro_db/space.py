"""The values that a parameter may have, and grids of parameters in the form that the server reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cerebro_db.errors import CerebroError

Json = Any


@dataclass(frozen=True)
class Choice:
    """The values of a parameter as a list to choose from."""

    values: tuple[Any, ...]

    def to_json(self) -> Json:
        return {"choice": list(self.values)}


@dataclass(frozen=True)
class Range:
    """The values of a parameter as the numbers between two bounds."""

    kind: str
    low: float
    high: float
    log: bool = False
    step: float | None = None

    def to_json(self) -> Json:
        found: dict[str, Any] = {self.kind: [self.low, self.high]}
        if self.log:
            found["log"] = True
        if self.step is not None:
            found["step"] = self.step
        return found


@dataclass(frozen=True)
class ByModel:
    """The values of a parameter by model_id; architectures that are not listed do not have the parameter."""

    values: Mapping[int, Any]

    def to_json(self) -> Json:
        return {"by_model": {str(model): _leaf(value) for model, value in self.values.items()}}


Dimension = Choice | Range | ByModel


def choice(values: Iterable[Any]) -> Choice:
    """Return a list of values to choose from: `choice(["relu", "tanh"])`. A plain list means the same."""
    return Choice(tuple(values))


def uniform(low: float, high: float, step: float | None = None) -> Range:
    """Return a range of numbers, all equally likely; with a step, only low, low + step and so on."""
    return Range("float", low, high, step=step)


def loguniform(low: float, high: float) -> Range:
    """Return a range of numbers, each order of magnitude equally likely, for example for learning rates."""
    return Range("float", low, high, log=True)


def integer(low: int, high: int, step: int | None = None, *, log: bool = False) -> Range:
    """Return a range of integers that includes both bounds."""
    return Range("int", low, high, log=log, step=step)


def by_model(values: Mapping[int, Any]) -> ByModel:
    """Return values by model_id: `by_model({1: [8, 16], 2: integer(32, 64)})`."""
    return ByModel(dict(values))


FIT_KEYS = ("batch_size", "epochs", "shuffle", "class_weight", "anneal_at", "unfreeze_at")
# Fit parameters whose values are dicts with numbers as keys, which JSON has not.
_KEYED = ("class_weight", "unfreeze_at")
COMPILE_KEYS = ("loss", "metrics", "loss_weights", "weighted_metrics")
# Keys for which a list is one value, as in Keras, and not a list of alternatives.
_LISTS = ("metrics", "weighted_metrics")


@dataclass(frozen=True)
class Grid:
    """A grid in the two parts that the server takes: the compile parameters and the fit parameters."""

    compile: dict[str, Json]
    fit: dict[str, Json]

    def texts(self) -> tuple[str, str]:
        """Return both parts as text: JSON, but a Python dict for fit parameters that have dicts as values."""
        return json.dumps(self.compile), self._fit_text()

    def _fit_text(self) -> str:
        keyed = next((key for key in _KEYED if key in self.fit), None)
        if keyed is None:
            return json.dumps(self.fit)
        drawn = [k for k, v in self.fit.items() if isinstance(v, Mapping) and "choice" not in v]
        if drawn:
            raise CerebroError(f"{drawn[0]} is a range beside {keyed}", hint="List its values.")
        return repr({key: _listed(value) for key, value in self.fit.items()})

    @property
    def is_finite(self) -> bool:
        """Whether the grid has a finite number of combinations."""
        return not _endless(self.compile) and not _endless(self.fit)


def read_grid(space: Mapping[str, Any]) -> Grid:
    """Split a grid into fit and compile parameters; all keys of neither kind belong to the optimizer."""
    fit = {key: _leaf(value) for key, value in space.items() if key in FIT_KEYS}
    compiled = {
        key: _list_leaf(value) if key in _LISTS else _leaf(value)
        for key, value in space.items()
        if key in COMPILE_KEYS
    }
    others = {key: v for key, v in space.items() if key not in (*FIT_KEYS, *COMPILE_KEYS, "optimizer")}
    if "loss" not in space:
        raise CerebroError(
            "the grid names no loss",
            hint='Add, for example, "loss": "mse".',
            shell='Add to [grid], for example, loss = "mse".',
        )
    compiled["optimizer_params_list"] = _optimizers(space.get("optimizer", "RMSprop"), others)
    return Grid(compiled, fit or {"batch_size": 32})


def _optimizers(value: Any, others: Mapping[str, Any]) -> list[Json]:
    shared = {key: _leaf(item) for key, item in others.items()}
    named = (
        value.values if isinstance(value, Choice) else value if isinstance(value, list | tuple) else [value]
    )
    return [_optimizer(item, shared) for item in named]


def _optimizer(value: Any, shared: Mapping[str, Json]) -> Json:
    if isinstance(value, str):
        return {"optimizer": value, **shared}
    if isinstance(value, Mapping) and "optimizer" in value:
        return {**shared, **{str(key): _leaf(item) for key, item in value.items()}}
    raise CerebroError(
        f"{value!r} is not an optimizer",
        hint='Write a name, or a dict such as {"optimizer": "SGD", "momentum": [0.0, 0.9]}.',
        shell='Write a name, or a table such as {optimizer = "SGD", momentum = [0.0, 0.9]}.',
    )


def _list_leaf(value: Any) -> Json:
    return [list(value)] if isinstance(value, list | tuple) else _leaf(value)


def _listed(value: Json) -> list[Any]:
    """Return the values of a parameter that is not a range, as a list."""
    if isinstance(value, Mapping):
        return value["choice"]
    return value if isinstance(value, list) else [value]


def _leaf(value: Any) -> Json:
    if isinstance(value, Choice | Range | ByModel):
        return value.to_json()
    if isinstance(value, list | tuple):
        # The server takes a list of numbers that ends with a word for a distribution.
        return {"choice": list(value)} if len(value) > 1 and isinstance(value[-1], str) else list(value)
    if isinstance(value, Mapping):
        return {"choice": [dict(value)]}
    # NumPy's numbers are no numbers to JSON.
    return value.item() if hasattr(value, "item") and not isinstance(value, str) else value


def _endless(value: Json) -> bool:
    if isinstance(value, Mapping):
        return _is_drawn(value) or any(map(_endless, value.values()))
    return isinstance(value, list) and any(map(_endless, value))


def _is_drawn(leaf: Mapping[str, Json]) -> bool:
    return ("float" in leaf and "step" not in leaf) or ("int" in leaf and bool(leaf.get("log")))
