"""The space of configs that two grids span: its dimensions, its size and its points."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, TypeAlias, cast

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.literal import Value, read_value, shorten
from cerebro_plpy.madlib.spaces.dimension import (
    DISTRIBUTIONS,
    Dimension,
    TextPlace,
    bound_fault,
    finite_bounds,
    is_number,
    is_whole,
)
from cerebro_plpy.madlib.spaces.leaf import read_leaf

OPTIMIZER_LIST: Final = "optimizer_params_list"

Point: TypeAlias = dict[str, Value]


@dataclass(frozen=True)
class Choice:
    """One point of a space: a value for each dimension that its architecture and its optimizer have."""

    model_id: int
    group: int
    optimizer: Point
    compile: Point
    fit: Point


@dataclass(frozen=True)
class Space:
    """A space of configs: the architectures and the dimensions from which a search chooses."""

    model_ids: tuple[int, ...]
    optimizers: tuple[tuple[Dimension, ...], ...]
    compile: tuple[Dimension, ...]
    fit: tuple[Dimension, ...]

    @property
    def volume(self) -> int | None:
        """The number of points; None if it is infinite. Several points may mean the same config."""
        counts = [
            _count([item for item in (*group, *self.compile, *self.fit) if item.applies_to(model_id)])
            for model_id in self.model_ids
            for group in self.optimizers
        ]
        return None if None in counts else sum(count for count in counts if count is not None)

    def points(self) -> Iterator[Choice]:
        """Yield all points of the space. Their number must be finite."""
        for number, optimizer in enumerate(self.optimizers):
            for model_id in self.model_ids:
                yield from (
                    Choice(model_id, number, chosen, compiled, fitted)
                    for chosen in _points(optimizer, model_id)
                    for compiled in _points(self.compile, model_id)
                    for fitted in _points(self.fit, model_id)
                )

    def dimensions(self) -> list[Dimension]:
        """Return all dimensions, including those that only some architectures or optimizers have."""
        return [*self.compile, *self.fit, *(item for group in self.optimizers for item in group)]


def read_space(model_ids: list[int], compile_grid: str, fit_grid: str) -> Space:
    """Return the space of two grids. Errors name the path of the fault."""
    compiled, compile_place = _read_grid(compile_grid, "compile")
    fitted, fit_place = _read_grid(fit_grid, "fit")
    groups = _optimizer_groups(compiled.pop(OPTIMIZER_LIST, None), compiled, compile_place)
    space = Space(
        tuple(sorted(set(model_ids))),
        groups,
        _dimensions(compiled, compile_place),
        _dimensions(fitted, fit_place),
    )
    for dimension in space.dimensions():
        strangers = set(dimension.models or ()) - set(space.model_ids)
        if strangers:
            raise CerebroError(
                f"{dimension.path} is for model_id {min(strangers)}, which is not in model_id_list"
            )
    return space


def _count(dimensions: Sequence[Dimension]) -> int | None:
    sizes = [dimension.size for dimension in dimensions]
    return None if None in sizes else math.prod(size for size in sizes if size is not None)


def _points(dimensions: tuple[Dimension, ...], model_id: int) -> Iterator[Point]:
    present = [item for item in dimensions if item.applies_to(model_id)]
    names = [dimension.name for dimension in present]
    for values in product(*(dimension.all() for dimension in present)):
        yield dict(zip(names, values, strict=True))


def _read_grid(text: str, kind: str) -> tuple[dict[str, Value], TextPlace]:
    found = _read_json(text)
    if found is not None:
        return found, TextPlace(kind, json=True)
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
                f"Invalid syntax in '{kind}_params_dict'", detail=f"The key {key} is not a string."
            )
    return {str(key): value for key, value in grid.items()}, TextPlace(kind)


def _read_json(text: str) -> dict[str, Value] | None:
    """Return the JSON object in a text; None if the text is not a JSON object or if it is empty.

    Lists in it mean the same as in MADlib's dict.
    """

    def unique(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise CerebroError(f"the space has the key {shorten(twice, 60)} twice in one object")
        return found

    def number(constant: str) -> float:
        raise CerebroError(f"the space holds {constant}, which is not a number that can be searched")

    try:
        found = json.loads(text, object_pairs_hook=unique, parse_constant=number)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Value]", found) if isinstance(found, dict) and found else None


def _example(kind: str) -> str:
    examples = {
        "compile": "{'loss': ['mse'], 'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.1, 0.01]}]}",
        "fit": "{'batch_size': [32, 64], 'epochs': [1]}",
    }
    return f"Write a dict of lists, such as {examples[kind]}."


def _optimizer_groups(
    value: Value, others: dict[str, Value], place: TextPlace
) -> tuple[tuple[Dimension, ...], ...]:
    if value is None and "optimizer" not in others:
        return ((),)
    inner = place.at(OPTIMIZER_LIST)
    groups = [] if value is None else _list(value, inner)
    inside = {key for group in groups if isinstance(group, dict) for key in group} | {"optimizer"}
    stray = sorted(key for key in others if key in inside)
    if stray:
        raise CerebroError(
            "DL: 'optimizer_params_list' key should only contain 'optimizer' and/or optimizer related params "
            "and no such params should reside out of the key",
            detail=f"{', '.join(stray)} stands outside it.",
        )
    return tuple(_optimizer_group(group, inner.at(index)) for index, group in enumerate(groups))


def _optimizer_group(group: Value, place: TextPlace) -> tuple[Dimension, ...]:
    if not isinstance(group, dict):
        raise place.fault(
            f"is {shorten(group, 80)}, not a dict of lists.", "Invalid syntax in 'compile_params_dict'"
        )
    if not group:
        raise place.fault(
            "is empty.",
            "DL: empty dictionaries cannot be specified in the value list of 'optimizer_params_list'",
        )
    return _dimensions({str(key): value for key, value in group.items()}, place)


def _list(value: Value, place: TextPlace) -> list[Value]:
    message = f"DL: {place.kind} param values must be specified in a list"
    if not isinstance(value, list):
        hint = f"Write [{shorten(repr(value), 80)}]."
        raise place.fault(f"is {shorten(value, 80)}.", message, hint)
    if not value:
        raise place.fault("is empty.", message)
    return value


def _dimensions(values: dict[str, Value], place: TextPlace) -> tuple[Dimension, ...]:
    return tuple(
        dimension for key, value in values.items() for dimension in _read_values(key, value, place.at(key))
    )


def _read_values(name: str, value: Value, place: TextPlace) -> list[Dimension]:
    if place.json and not isinstance(value, list):
        return read_leaf(name, value, place)
    items = _list(value, place)
    if not _is_distribution(items):
        return [Dimension(name, str(place), tuple(items))]
    return [_distribution(name, place, items)]


def _is_distribution(items: list[Value]) -> bool:
    *bounds, last = items
    # A text with a parenthesis is a call, such as a schedule beside a constant rate.
    named = isinstance(last, str) and "(" not in last
    return named and bool(bounds) and all(is_number(bound) for bound in bounds)


def _distribution(name: str, place: TextPlace, items: list[Value]) -> Dimension:
    if len(items) != 3:
        raise place.fault(
            f"has {len(items)}.",
            f"DL: '{name}' should have exactly 3 elements if picking from a distribution",
        )
    low, high, kind = items
    if kind not in DISTRIBUTIONS or not isinstance(kind, str):
        raise place.fault(
            f"has {shorten(kind, 60)!r}.",
            f"DL: Please choose a valid distribution type for '{name}': {list(DISTRIBUTIONS)}",
        )
    whole = is_whole(name, place.kind)
    bounds = finite_bounds(low, high)
    fault = "A bound is beyond floating point." if bounds is None else bound_fault(*bounds, kind, whole)
    if bounds is None or fault:
        raise place.fault(
            f"is {shorten(items, 80)}. {fault}",
            f"DL: '{name}' should be of the format [lower_bound, upper_bound, distribution_type]",
        )
    return Dimension(name, str(place), distribution=kind, low=bounds[0], high=bounds[1], whole=whole)
