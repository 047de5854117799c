"""The space that a pair of grids spans: its dimensions, its size, its points."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final, TypeAlias

from ..errors import CerebroError
from .literal import Value, read_value, shorten
from .names import OPTIMIZERS

OPTIMIZER_LIST: Final = "optimizer_params_list"
DISTRIBUTIONS: Final = ("linear", "log", "log_near_one")
WHOLE_FIT_KEYS: Final = ("batch_size", "epochs")

Point: TypeAlias = dict[str, Value]


@dataclass(frozen=True)
class Dimension:
    """One parameter with the values that it may take: a list, or a distribution between two bounds."""

    name: str
    path: str
    values: tuple[Value, ...] = ()
    distribution: str | None = None
    low: float = 0.0
    high: float = 0.0
    whole: bool = False

    @property
    def size(self) -> int | None:
        """Give the number of values, None where there is no end of them."""
        if self.distribution is None:
            return len(self.values)
        return math.floor(self.high) - math.ceil(self.low) + 1 if self.whole else None

    def all(self) -> tuple[Value, ...]:
        """Give every value; only where there is an end of them."""
        if self.distribution is None:
            return self.values
        return tuple(range(math.ceil(self.low), math.floor(self.high) + 1))

    def pick(self, unit: float) -> Value:
        """Turn a number of [0, 1) into one value."""
        if self.distribution is None:
            return self.values[int(unit * len(self.values))]
        number = min(max(self._sample(unit), self.low), self.high)
        if not self.whole:
            return number
        return min(max(round(number), math.ceil(self.low)), math.floor(self.high))

    def _sample(self, unit: float) -> float:
        if self.distribution == "linear":
            return self.low + unit * (self.high - self.low)
        if self.distribution == "log":
            return _between_logs(self.low, self.high, unit)
        return 1.0 - _between_logs(1.0 - self.high, 1.0 - self.low, unit)


@dataclass(frozen=True)
class Space:
    """Everything a search may choose from."""

    model_ids: tuple[int, ...]
    optimizers: tuple[tuple[Dimension, ...], ...]
    compile: tuple[Dimension, ...]
    fit: tuple[Dimension, ...]

    @property
    def volume(self) -> int | None:
        """Give the number of points, some of which may mean the same; None if there is no end of them."""
        shared = _count(self.compile + self.fit)
        alternatives = [_count(dimensions) for dimensions in self.optimizers]
        if shared is None or None in alternatives:
            return None
        return len(self.model_ids) * shared * sum(count for count in alternatives if count is not None)

    def points(self) -> Iterator[tuple[int, Point, Point, Point]]:
        """Give every point: model, optimizer, other compile parameters, fit parameters."""
        for optimizer in self.optimizers:
            for model_id in self.model_ids:
                yield from (
                    (model_id, chosen, compiled, fitted)
                    for chosen in _points(optimizer)
                    for compiled in _points(self.compile)
                    for fitted in _points(self.fit)
                )

    def distributions(self) -> list[Dimension]:
        """Give the dimensions that are drawn from a distribution."""
        every = [*self.compile, *self.fit, *(item for group in self.optimizers for item in group)]
        return [dimension for dimension in every if dimension.distribution is not None]


def read_space(model_ids: list[int], compile_grid: str, fit_grid: str) -> Space:
    """Read both grids, complaining with the path to what is wrong."""
    compiled = _read_grid(compile_grid, "compile")
    fitted = _read_grid(fit_grid, "fit")
    groups = _optimizer_groups(compiled.pop(OPTIMIZER_LIST, None), compiled)
    return Space(
        tuple(sorted(set(model_ids))),
        groups,
        tuple(_dimension(key, value, f"['{key}']", "compile") for key, value in compiled.items()),
        tuple(_dimension(key, value, f"['{key}']", "fit") for key, value in fitted.items()),
    )


def _between_logs(low: float, high: float, unit: float) -> float:
    return math.exp(math.log(low) + unit * (math.log(high) - math.log(low)))


def _count(dimensions: tuple[Dimension, ...]) -> int | None:
    sizes = [dimension.size for dimension in dimensions]
    return None if None in sizes else math.prod(size for size in sizes if size is not None)


def _points(dimensions: tuple[Dimension, ...]) -> Iterator[Point]:
    names = [dimension.name for dimension in dimensions]
    for values in product(*(dimension.all() for dimension in dimensions)):
        yield dict(zip(names, values, strict=True))


def _read_grid(text: str, kind: str) -> dict[str, Value]:
    try:
        grid = read_value(text)
    except CerebroError as error:
        raise CerebroError(
            f"Invalid syntax in '{kind}_params_dict'", detail=error.detail, hint=_example(kind)
        ) from None
    if not isinstance(grid, dict) or not grid:
        raise CerebroError(
            f"Invalid syntax in '{kind}_params_dict'", detail="It is not a dict.", hint=_example(kind)
        )
    for key in grid:
        if not isinstance(key, str):
            raise CerebroError(
                f"Invalid syntax in '{kind}_params_dict'", detail=f"The key {key} is no string."
            )
    return {str(key): value for key, value in grid.items()}


def _example(kind: str) -> str:
    examples = {
        "compile": "{'loss': ['mse'], 'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.1, 0.01]}]}",
        "fit": "{'batch_size': [32, 64], 'epochs': [1]}",
    }
    return f"Write a dict of lists, such as {examples[kind]}."


def _optimizer_groups(value: Value, others: dict[str, Value]) -> tuple[tuple[Dimension, ...], ...]:
    if value is None and "optimizer" not in others:
        return ((),)
    groups = [] if value is None else _list(value, f"['{OPTIMIZER_LIST}']", "compile")
    inside = {key for group in groups if isinstance(group, dict) for key in group} | {"optimizer"}
    stray = sorted(key for key in others if key in inside)
    if stray:
        raise CerebroError(
            "DL: 'optimizer_params_list' key should only contain 'optimizer' and/or optimizer related params "
            "and no such params should reside out of the key",
            detail=f"{', '.join(stray)} stands outside it.",
        )
    return tuple(_optimizer_group(group, index) for index, group in enumerate(groups))


def _optimizer_group(group: Value, index: int) -> tuple[Dimension, ...]:
    path = f"['{OPTIMIZER_LIST}'][{index}]"
    if not isinstance(group, dict):
        raise CerebroError(
            "Invalid syntax in 'compile_params_dict'",
            detail=f"{path} is {shorten(group, 80)}, not a dict of lists.",
        )
    if not group:
        raise CerebroError(
            "DL: empty dictionaries cannot be specified in the value list of 'optimizer_params_list'",
            detail=f"{path} is empty.",
        )
    return tuple(_dimension(str(key), value, f"{path}['{key}']", "compile") for key, value in group.items())


def _list(value: Value, path: str, kind: str) -> list[Value]:
    if not isinstance(value, list):
        raise CerebroError(
            f"DL: {kind} param values must be specified in a list",
            detail=f"{path} is {shorten(value, 80)}.",
            hint=f"Write [{shorten(value, 80)}].",
        )
    if not value:
        raise CerebroError(f"DL: {kind} param values must be specified in a list", detail=f"{path} is empty.")
    return value


def _dimension(name: str, value: Value, path: str, kind: str) -> Dimension:
    items = _list(value, path, kind)
    if not _is_distribution(items):
        return Dimension(name, path, tuple(items))
    whole = _is_whole(name, kind)
    return _distribution(name, path, items, whole)


def _is_distribution(items: list[Value]) -> bool:
    *bounds, last = items
    return bool(bounds) and isinstance(last, str) and all(_is_number(bound) for bound in bounds)


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(name: str, kind: str) -> bool:
    if kind == "fit":
        return name in WHOLE_FIT_KEYS
    return any(signature[name].kind == "integer" for signature in OPTIMIZERS.values() if name in signature)


def _distribution(name: str, path: str, items: list[Value], whole: bool) -> Dimension:
    if len(items) != 3:
        raise CerebroError(
            f"DL: '{name}' should have exactly 3 elements if picking from a distribution",
            detail=f"{path} has {len(items)}.",
        )
    low, high, kind = items
    if kind not in DISTRIBUTIONS or not isinstance(kind, str):
        raise CerebroError(
            f"DL: Please choose a valid distribution type for '{name}': {list(DISTRIBUTIONS)}",
            detail=f"{path} has {shorten(kind, 60)!r}.",
        )
    bounds = _bounds(low, high)
    fault = "A bound is beyond floating point." if bounds is None else _bound_fault(*bounds, kind, whole)
    if bounds is None or fault:
        raise CerebroError(
            f"DL: '{name}' should be of the format [lower_bound, upper_bound, distribution_type]",
            detail=f"{path} is {shorten(items, 80)}. {fault}",
        )
    return Dimension(name, path, distribution=kind, low=bounds[0], high=bounds[1], whole=whole)


def _bounds(low: Value, high: Value) -> tuple[float, float] | None:
    try:
        bounds = float(low), float(high)  # type: ignore[arg-type]
    except OverflowError:
        return None
    return bounds if all(map(math.isfinite, bounds)) and math.isfinite(bounds[1] - bounds[0]) else None


def _bound_fault(low: float, high: float, kind: str, whole: bool) -> str | None:
    if high <= low:
        return "The upper bound must be above the lower one."
    if kind == "log" and low <= 0:
        return "For 'log' both bounds must be above 0."
    if kind == "log_near_one" and high >= 1:
        return "For 'log_near_one' both bounds must be below 1."
    if whole and math.floor(high) < math.ceil(low):
        return "There is no integer between the bounds."
    return None
