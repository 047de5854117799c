"""Checks options that are given as a JSON object. Each key of the object has its own check."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard, cast

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.logical.budget import BUDGET_MB, Aim, Limits
from cerebro_plpy.madlib.literal import shorten
from cerebro_plpy.madlib.nearest import unknown

if TYPE_CHECKING:
    from cerebro_plpy.madlib.spaces.grid import GridRow

Validator: TypeAlias = Callable[[str, object], Any]

BACKENDS: Final = ("tensorflow", "jax", "torch")
LARGEST: Final = 2**63 - 1
AUTO: Final = "auto"
FASTEST: Final = "fastest"
LONGEST, EVEN = "longest", "even"
EXACT, FAST, OFF = "exact", "fast", "off"
ALL, CHANGED = "all", "changed"
LOSS, METRIC = "loss", "metric"
ROWS, EPOCHS = "rows", "epochs"
LEAST_MEMORY_MB: Final = 16


@dataclass(frozen=True)
class CrossValidation:
    """The option to train each config once without each fold, and, if `final`, also on all rows.

    If `models`, the models that have not seen a fold are kept.
    """

    final: bool = False
    models: bool = False


@dataclass(frozen=True)
class FitOptions:
    """The options of a fit call. Most options that were not given are None."""

    seed: int | None = None
    # A name, "auto", or names by model_id.
    backend: str | Mapping[int, str] | None = None
    memory_mb: int | None = None
    # A number, or "auto": the cores are shared by the configs that train at a time.
    threads: int | str | None = None
    patience: int | None = None
    min_delta: float | None = None
    target: float | None = None
    restore_best: bool | None = None
    # Whether metrics are also computed on the training rows.
    training_metrics: bool | None = None
    max_seconds: int | None = None
    max_visits: int | None = None
    max_configs: int | None = None
    replay: int | None = None
    background: bool | None = None
    order: str | None = None
    plan: Aim | None = None
    # From which epoch on states are averaged.
    hybrid: int | None = None
    cross_validate: CrossValidation | None = None
    materialize: str | None = None
    budget_mb: int | None = None
    fuse: str | None = None
    # True, or the names of the layers that are computed again in the backward pass.
    recompute: bool | Sequence[str] = False
    # The memory that a net may use on the device while it trains; a net that needs more is cut into shards.
    device_memory_mb: int | None = None
    checkpoint_every: int | None = None
    # The number of epochs in a pass over the rows: each epoch trains on another part of them.
    epochs_per_pass: int | None = None
    # Groups with fewer rows or classes are left out; `fallback`: whether a model of all rows replaces them.
    min_rows: int | None = None
    min_classes: int | None = None
    fallback: bool | None = None
    # Whether a warm start trains only the groups that have changed.
    groups: str | None = None
    # In a search on a table in groups: whether each group is searched by itself.
    search: str | None = None
    # Whether epochs and configs are compared by their losses or by the metric that decides.
    compare_by: str | None = None
    # Whether a search compares configs on parts of the rows before it compares them on all rows.
    rung_by: str | None = None
    # The configs that a search tries before those that it draws.
    try_first: Sequence[GridRow] = ()
    # Whether a search begins with the best configs of earlier searches on like tables.
    experience: bool = False

    @property
    def measures_each_epoch(self) -> bool:
        """Whether an option needs metrics of the configs while they train."""
        return bool(self.restore_best) or self.patience is not None or self.target is not None

    @property
    def limits(self) -> Limits:
        return Limits(
            restore_best=bool(self.restore_best),
            by_loss=self.compare_by == LOSS,
            training_metrics=self.training_metrics is not False,
            max_seconds=self.max_seconds,
            max_visits=self.max_visits,
            max_configs=self.max_configs,
            replay=self.replay,
            even=self.order == EVEN,
            average_from=self.hybrid,
            materialize=self.materialize != OFF,
            budget_mb=self.budget_mb or BUDGET_MB,
            fuse=self.fuse,
            recompute=self.recompute,
            device_memory_mb=self.device_memory_mb,
            checkpoint_every=self.checkpoint_every,
            epochs_per_pass=self.epochs_per_pass,
            min_rows=self.min_rows,
            min_classes=self.min_classes,
            changed_groups=self.groups == CHANGED,
            fold_models=self.cross_validate is not None and self.cross_validate.models,
        )


def parse_fit_options(text: str | None) -> FitOptions:
    """Return the options in `text`, the JSON that a fit call gives."""
    options = FitOptions(**parse_options(text, FIT_OPTIONS))
    if options.min_delta is not None and options.patience is None:
        raise CerebroError("option min_delta is given without patience")
    if options.compare_by is not None and not options.measures_each_epoch:
        raise CerebroError(
            "option compare_by is given without restore_best, patience or target",
            hint="They compare the epochs of a config: give one of them, or leave compare_by out.",
        )
    return options


def parse_engine_options(text: str | None) -> FitOptions:
    """Return the options in `text`, the JSON that a call that trains nothing gives."""
    return FitOptions(**parse_options(text, ENGINE_OPTIONS))


_EXAMPLE: Final = 'Write an object such as {"seed": 42}.'


def drop_nulls(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as they were given, without those that are null, which count as not given."""
    return {key: value for key, value in given.items() if value is not None}


def parse_options(
    text: str | None, allowed: Mapping[str, Validator], name: str = "options", example: str = _EXAMPLE
) -> dict[str, Any]:
    """Return the checked values of a JSON object. Raise an error if it has a key that is not allowed.

    A key whose value is null counts as not given.
    """
    values = read_object(text, name, example) if text is not None else {}
    for key in values:
        if key not in allowed:
            raise _unknown_option(key, allowed)
    return {key: allowed[key](key, value) for key, value in values.items() if value is not None}


# Parameters that users give as options by mistake: each config has them in its own parameters.
_OF_CONFIGS = {
    **dict.fromkeys(("loss", "metrics", "optimizer", "learning_rate"), "compile"),
    **dict.fromkeys(("batch_size", "class_weight", "shuffle"), "fit"),
}


def _unknown_option(key: str, allowed: Mapping[str, Validator]) -> CerebroError:
    error = unknown(f"unknown option {shorten(key, 60)}", key, allowed)
    # A function that makes its configs itself has an option with the singular of the name.
    if key in _OF_CONFIGS and key.removesuffix("s") not in allowed:
        error.hint = f"Each config has it among its {_OF_CONFIGS[key]} parameters."
    return error


def named(key: str, said: Mapping[str, object], checks: Mapping[str, Validator]) -> dict[str, Any]:
    """Return the checked values of the option `key`, whose value `said` is an object.

    `checks` has the check for each key of this object.
    """
    for name in said:
        if name not in checks:
            raise unknown(f"option {key} says {name}", name, sorted(checks))
    return {name: checks[name](f"{key}.{name}", one) for name, one in said.items()}


def integer(low: int, high: int = LARGEST) -> Validator:
    """Return a check for an integer from `low` to `high`."""

    def check(key: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            bounds = f"of at least {low}" if high == LARGEST else f"from {low} to {high}"
            raise wrong(key, value, f"an integer {bounds}")
        return value

    return check


def number(low: float = -math.inf) -> Validator:
    """Return a check for a finite number that is at least `low`."""

    def check(key: str, value: object) -> float:
        if not is_number(value):
            raise wrong(key, value, "a number")
        if value < low:
            raise wrong(key, value, f"a number of at least {low}")
        return float(value)

    return check


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a JSON value is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # An integer may be beyond all floats, for which isfinite() raises.
    return -sys.float_info.max <= value <= sys.float_info.max


def one_of(*names: str) -> Validator:
    """Return a check for one of the given names."""

    def check(key: str, value: object) -> str:
        if not isinstance(value, str):
            raise wrong(key, value, f"one of {', '.join(names)}")
        if value not in names:
            raise unknown(f"option {key} is {shorten(value, 60)}", value, names)
        return value

    return check


def boolean() -> Validator:
    """Return a check for true or false."""

    def check(key: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise wrong(key, value, "true or false")
        return value

    return check


def integer_or(word: str, low: int, high: int = LARGEST) -> Validator:
    """Return a check for an integer from `low` to `high`, or for the text `word`."""
    number = integer(low, high)

    def check(key: str, value: object) -> Any:
        if isinstance(value, str) and value != word:
            raise wrong(key, value, f'an integer from {low} to {high}, or "{word}"')
        return value if value == word else number(key, value)

    return check


def seconds() -> Validator:
    """Return a check for a length of time: a number of seconds, or a text such as "30 min"."""

    def check(key: str, value: object) -> int:
        if isinstance(value, str):
            found = _LENGTH.fullmatch(value.strip())
            value = int(min(float(found[1]) * _UNITS[found[2]], _MOST_SECONDS + 1)) if found else value
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_SECONDS:
            raise wrong(key, value, 'a number of seconds, or a text such as "90 s", "30 min" or "2 h"')
        return value

    return check


_MOST_SECONDS: Final = 10**9
_UNITS: Final = {"s": 1, "min": 60, "h": 3600}
_LENGTH: Final = re.compile(r"(\d+(?:\.\d+)?) ?(s|min|h)")
_ENGINE: Final = one_of(*BACKENDS)


def _backends(key: str, value: object) -> str | Mapping[int, str]:
    if not isinstance(value, dict):
        return one_of(*BACKENDS, AUTO)(key, value)
    named = cast("dict[str, object]", value)
    for model_id in named:
        if not model_id.isascii() or not model_id.isdigit() or len(model_id) > 9:
            raise wrong(key, named, 'an engine, "auto", or engines by model_id: {"1": "jax"}')
    return {int(model_id): _ENGINE(key, backend) for model_id, backend in named.items()}


def _aim(key: str, value: object) -> Aim:
    if value == FASTEST:
        return Aim()
    if not isinstance(value, dict) or not value:
        raise wrong(
            key,
            cast("object", value),
            '"fastest", or an object such as {"within": "30 min", "memory_mb": 8000}',
        )
    named = cast("dict[str, object]", value)
    checks = {"within": seconds(), "memory_mb": integer(1)}
    for name in named:
        if name not in checks:
            raise unknown(f"unknown option {key}.{shorten(name, 60)}", name, checks)
    return Aim(**{name: checks[name](f"{key}.{name}", given) for name, given in named.items()})


def _hybrid(key: str, value: object) -> int:
    name = "average_from_epoch"
    if not isinstance(value, dict) or list(cast("dict[str, object]", value)) != [name]:
        raise wrong(key, cast("object", value), f'an object such as {{"{name}": 8}}')
    return integer(1)(f"{key}.{name}", cast("dict[str, object]", value)[name])


def _cross_validation(key: str, value: object) -> CrossValidation | None:
    if isinstance(value, bool):
        return CrossValidation() if value else None
    said = cast("Mapping[str, object]", value if isinstance(value, dict) else {})
    if not said or said.keys() - _OF_CROSS_VALIDATION:
        raise wrong(key, cast("object", value), 'true, {"final": true} or {"models": true}')
    return CrossValidation(**{name: boolean()(f"{key}.{name}", one) for name, one in said.items()})


def _recompute(key: str, value: object) -> bool | list[str]:
    if isinstance(value, bool):
        return value
    names = cast("list[object]", value) if isinstance(value, list) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise wrong(key, cast("object", value), 'true, false, or names of layers: ["conv_1", "conv_2"]')
    return sorted({str(name) for name in names})


_OF_CROSS_VALIDATION: Final = {"final", "models"}


ENGINE_OPTIONS: Final[dict[str, Validator]] = {
    "seed": integer(-LARGEST),
    "backend": one_of(*BACKENDS),
    "memory_mb": integer(LEAST_MEMORY_MB),
    "threads": integer(1, 4096),
}
FIT_OPTIONS: Final[dict[str, Validator]] = {
    **ENGINE_OPTIONS,
    "backend": _backends,
    "threads": integer_or(AUTO, 1, 4096),
    "plan": _aim,
    "hybrid": _hybrid,
    "cross_validate": _cross_validation,
    "materialize": one_of(AUTO, OFF),
    "budget_mb": integer(1),
    "fuse": one_of(EXACT, FAST, OFF),
    "recompute": _recompute,
    "device_memory_mb": integer(1),
    "checkpoint_every": integer(1),
    "epochs_per_pass": integer(1),
    "min_rows": integer(1),
    "min_classes": integer(1),
    "fallback": boolean(),
    "groups": one_of(ALL, CHANGED),
    "patience": integer(1),
    "min_delta": number(0.0),
    "target": number(),
    "restore_best": boolean(),
    "compare_by": one_of(LOSS, METRIC),
    "training_metrics": boolean(),
    "max_seconds": integer(1),
    "max_visits": integer(1),
    "max_configs": integer(1),
    "replay": integer(1),
    "background": boolean(),
    "order": one_of(LONGEST, EVEN),
}


def read_object(text: str, name: str, example: str) -> dict[str, Any]:
    """Return the JSON object in a user's text. Raise an error if it holds anything else."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise CerebroError(f"{name} are not valid JSON: {shorten(text)}", hint=example) from None
    if not isinstance(values, dict):
        raise CerebroError(f"{name} are not a JSON object: {shorten(text)}", hint=example)
    return cast("dict[str, Any]", values)


def wrong(key: str, value: object, expected: str) -> CerebroError:
    """Return the error for an option with a wrong value; `expected` says which values are right."""
    return CerebroError(f"option {key} is {shorten(value, 60)}", detail=f"It must be {expected}.")
