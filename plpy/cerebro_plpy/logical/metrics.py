"""Says whether a metric is better when it is higher, or when it is lower."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from cerebro_plpy.madlib.literal import Call
from cerebro_plpy.madlib.names import METRICS, OWN_LOSSES
from cerebro_plpy.madlib.params import CompileParams, Metrics, Named
from cerebro_plpy.madlib.registered import LOSS
from cerebro_plpy.madlib.spellings import METRIC_TEXTS, snake

Direction = Literal["max", "min"]

DOWN: Final = frozenset(
    {
        "BinaryCrossentropy",
        "CategoricalCrossentropy",
        "CategoricalHinge",
        "FalseNegatives",
        "FalsePositives",
        "Hinge",
        "KLDivergence",
        "LogCoshError",
        "MeanAbsoluteError",
        "MeanAbsolutePercentageError",
        "MeanSquaredError",
        "MeanSquaredLogarithmicError",
        "Poisson",
        "RootMeanSquaredError",
        "SparseCategoricalCrossentropy",
        "SquaredHinge",
    }
)
UP_WORDS: Final = frozenset(
    "acc accuracy auc correlation f1 fbeta iou precision r2 recall score".split()
    + "sensitivity similarity specificity".split()
)


def better(metric_name: str, params: CompileParams | None = None) -> Direction:
    """Return "max" if higher values of a metric are better, else "min".

    `metric_name` is the name in Keras' results. With `params`, the compile parameters of the config, a name
    that a user gave to a metric is known as well. An unknown name counts as a loss, unless it has a word
    such as "score".
    """
    known: dict[str, Direction] = {**KNOWN, **_own_names(params)}
    for name in (metric_name, re.sub(r"_\d+$", "", metric_name)):
        parts = name.split("_")
        for start in range(len(parts)):
            text = "_".join(parts[start:])
            if text in known:
                return known[text]
    words = set(re.split(r"[^a-z0-9]+", metric_name.lower()))
    return "max" if words & UP_WORDS else "min"


def badness(metric_name: str, value: float | None, params: CompileParams | None = None) -> float | None:
    """Return the value in a form in which lower is better; None if the value is not finite.

    If higher values of the metric are better, the sign is changed.
    """
    if value is None or not math.isfinite(value):
        return None
    return -value if better(metric_name, params) == "max" else value


def standing(params: CompileParams, metric: float | None, loss: float | None) -> tuple[float, float]:
    """Return the sort key of a config, the lower the better: its metric, then its loss.

    A config whose loss is not finite has learned nothing, whatever its metric is, and comes last.
    """
    if loss is not None and not math.isfinite(loss):
        return math.inf, math.inf
    worth = loss if metric is None else -metric if direction(params) == "max" else metric
    return _or_last(worth), _or_last(loss)


def _or_last(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else math.inf


def direction(params: CompileParams) -> Direction:
    """Return "max" or "min" for the metric by which configs are compared.

    It is the first metric that is not a loss, as for `deciding`, or else the loss.
    """
    listed = [*_named(params.metrics), *_named(params.weighted_metrics)]
    first = next((one for one in listed if not _is_loss(_shown_name(one))), "loss")
    return _call_direction(first) if isinstance(first, Call) else better(first)


def find_first_name(params: CompileParams) -> str | None:
    """Return the name of the first metric, which a user may have given; None without metrics."""
    first = next(_named(params.metrics), None)
    return None if first is None else _shown_name(first)


def _shown_name(metric: Named) -> str:
    """Return the name of a metric in Keras' results, which a user may have given."""
    if isinstance(metric, str):
        return metric
    return str(metric.get("name") or snake(metric.name))


def _named(group: Metrics | Named | list[Named]) -> Iterator[Named]:
    if isinstance(group, str | Call):
        yield group
    elif group is not None:
        for item in group.values() if isinstance(group, dict) else group:
            yield from _named(item)


def deciding(names: Sequence[str]) -> str | None:
    """Return the name of the metric by which configs are compared, or None if there are no names.

    It is the first metric that is not a loss, or else the loss.
    """
    metrics = [name for name in names if not _is_loss(name)]
    return next(iter(metrics), next(iter(names), None))


def _is_loss(name: str) -> bool:
    return name == "loss" or name.endswith("_loss")


def _direction(class_name: str) -> Direction:
    return "min" if class_name in DOWN or class_name in OWN_LOSSES else "max"


def _call_direction(call: Call) -> Direction:
    """Return "max" or "min" for a metric, as its registered function says, or else by its name."""
    if call.function is None:
        return _direction(call.name)
    higher = call.function.higher_is_better
    if higher is None and call.function.kind == LOSS:
        return "min"
    return better(call.name) if higher is None else "max" if higher else "min"


def _default_name(class_name: str) -> str:
    default = METRICS[class_name]["name"].default
    return default if isinstance(default, str) else snake(class_name)


KNOWN: Final[dict[str, Direction]] = {
    **{snake(class_name): "min" for class_name in OWN_LOSSES},
    **{text: _direction(class_name) for text, class_name in METRIC_TEXTS.items()},
    **{_default_name(class_name): _direction(class_name) for class_name in METRICS},
    "loss": "min",
}


def _own_names(params: CompileParams | None) -> dict[str, Direction]:
    if params is None:
        return {}
    named = [call for group in (params.metrics, params.weighted_metrics) for call in _named(group)]
    calls = [call for call in named if isinstance(call, Call)]
    own: dict[str, Direction] = {
        call.name: _call_direction(call) for call in calls if call.function is not None
    }
    for call in calls:
        if isinstance(name := call.get("name"), str):
            own[name] = _call_direction(call)
    return own
