"""Reads the possible values of a parameter in a JSON space: choice, int, float, or by_model.

With by_model, the parameter has values of its own for each architecture.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cerebro_plpy.madlib.literal import Value, shorten
from cerebro_plpy.madlib.spaces.dimension import (
    Dimension,
    TextPlace,
    bound_fault,
    finite_bounds,
    is_number,
    is_whole,
)

TYPES: Final = ("choice", "int", "float", "by_model")
EXAMPLE: Final = (
    'Write a list of values, or {"choice": [1, 2]}, {"int": [1, 10]}, {"float": [0.1, 1], "log": true},'
    ' {"float": [0, 1], "step": 0.25}, {"by_model": {"1": {"int": [1, 10]}}}.'
)


def read_leaf(name: str, value: Value, place: TextPlace) -> list[Dimension]:
    """Return the dimensions of one parameter in a JSON space.

    A value that is not a JSON object is the only value of the parameter.
    """
    if not isinstance(value, dict):
        return [Dimension(name, str(place), (value,))]
    leaf = {str(key): item for key, item in value.items()}
    types = [key for key in leaf if key in TYPES]
    if len(types) != 1:
        said = f"is {shorten(leaf, 80)}: it needs exactly one of {', '.join(TYPES)}"
        raise place.fault(said, hint=EXAMPLE)
    (kind,) = types
    allowed = (kind, "log", "step") if kind in ("int", "float") else (kind,)
    for key in leaf:
        if key not in allowed:
            raise place.at(key).fault(f"has no meaning beside {kind}", hint=EXAMPLE)
    if kind == "by_model":
        return _by_model(name, leaf[kind], place.at(kind))
    return [
        _choice(name, leaf[kind], place.at(kind)) if kind == "choice" else _range(name, leaf, kind, place)
    ]


def _choice(name: str, values: Value, place: TextPlace) -> Dimension:
    if not isinstance(values, list) or not values:
        raise place.fault(f"is {shorten(values, 80)}, not a list of values", hint=EXAMPLE)
    return Dimension(name, str(place), tuple(values))


def _by_model(name: str, leaves: Value, place: TextPlace) -> list[Dimension]:
    """Return a dimension for each named architecture. All other architectures lack the parameter."""
    if not isinstance(leaves, dict) or not leaves:
        raise place.fault(f"is {shorten(leaves, 80)}, not an object with model_ids as keys", hint=EXAMPLE)
    found: list[Dimension] = []
    for key, leaf in leaves.items():
        inner = place.at(str(key))
        if not str(key).isdecimal():
            raise inner.fault("is no model_id", hint=EXAMPLE)
        if isinstance(leaf, dict) and "by_model" in leaf:
            raise inner.fault("names architectures inside of architectures", hint=EXAMPLE)
        plain: Value = {"choice": leaf} if isinstance(leaf, list) else leaf
        found += [replace(item, models=(int(str(key)),)) for item in read_leaf(name, plain, inner)]
    return found


def _range(name: str, leaf: dict[str, Value], kind: str, place: TextPlace) -> Dimension:
    bounds = leaf[kind]
    inner = place.at(kind)
    if not isinstance(bounds, list) or len(bounds) != 2 or not all(is_number(bound) for bound in bounds):
        raise inner.fault(f"is {shorten(bounds, 80)}, not [lower, upper]", hint=EXAMPLE)
    log, step = leaf.get("log", False), leaf.get("step")
    if not isinstance(log, bool):
        raise place.at("log").fault(f"is {shorten(log, 60)}, not true or false", hint=EXAMPLE)
    pair = finite_bounds(*bounds)
    if pair is None:
        raise inner.fault(f"is {shorten(bounds, 80)}: a bound is beyond floating point")
    if kind == "int" and not all(bound.is_integer() for bound in pair):
        raise inner.fault(f"is {shorten(bounds, 80)}: the bounds of an int are integers")
    whole = kind == "int"
    if not whole and is_whole(name, place.kind):
        raise inner.fault(f"gives fractions, and {name} is an integer", hint="Use int.")
    fault = bound_fault(*pair, "log" if log else "linear", whole)
    if fault:
        raise inner.fault(f"is {shorten(bounds, 80)}: {fault[0].lower()}{fault[1:]}")
    return Dimension(
        name, str(place), distribution="log" if log else "linear", low=pair[0], high=pair[1], whole=whole,
        step=_step(step, log, whole, pair, place.at("step")),
    )  # fmt: skip


def _step(step: Value, log: bool, whole: bool, bounds: tuple[float, float], place: TextPlace) -> float | None:
    if step is None:
        # Equally likely integers; without a step the outermost would be half as likely.
        return 1.0 if whole and not log else None
    if log:
        raise place.fault("cannot be combined with log")
    if not isinstance(step, int | float) or isinstance(step, bool) or not 0 < step <= bounds[1] - bounds[0]:
        raise place.fault(f"is {shorten(step, 60)}, not a number above 0 that fits between the bounds")
    if whole and not float(step).is_integer():
        raise place.fault(f"is {shorten(step, 60)}: the step of an int is an integer")
    return float(step)
