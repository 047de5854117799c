"""One dimension of a space of configs, and its place in a user's text."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, TypeGuard

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.literal import Value
from cerebro_plpy.madlib.names import OPTIMIZERS

DISTRIBUTIONS: Final = ("linear", "log", "log_near_one")
WHOLE_FIT_KEYS: Final = ("batch_size", "epochs")
EDGE: Final = 2.0**-30


@dataclass(frozen=True)
class TextPlace:
    """A place in a grid: subscripts of MADlib's dict, such as `['lr'][0]`, or a path in JSON."""

    kind: str
    json: bool = False
    steps: tuple[str | int, ...] = ()

    def at(self, step: str | int) -> TextPlace:
        return replace(self, steps=(*self.steps, step))

    def __str__(self) -> str:
        if not self.json:
            return "".join(f"[{step!r}]" for step in self.steps)
        inner = "".join(f".{step}" if isinstance(step, str) else f"[{step}]" for step in self.steps)
        return f"$.{self.kind}_params{inner}"

    def fault(self, said: str, message: str = "", hint: str | None = None) -> CerebroError:
        """Return the error for a fault at this place.

        In a JSON text, the error's message is the path of this place and `said`. In MADlib's dict, it is
        `message`, in MADlib's words.
        """
        if self.json:
            return CerebroError(f"{self} {said.rstrip('.')}", hint=hint)
        return CerebroError(message, detail=f"{self} {said}", hint=hint)


@dataclass(frozen=True)
class Dimension:
    """One parameter with its possible values: a list, or a distribution between two bounds.

    With a `step`, the values are the lower bound and every further step from it. With `models`, only these
    architectures have the parameter.
    """

    name: str
    path: str
    values: tuple[Value, ...] = ()
    distribution: str | None = None
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    step: float | None = None
    models: tuple[int, ...] | None = None

    def applies_to(self, model_id: int) -> bool:
        return self.models is None or model_id in self.models

    @property
    def size(self) -> int | None:
        """The number of possible values; None if it is infinite."""
        if self.distribution is None:
            return len(self.values)
        if self.step is not None:
            # Bounds that are a whole number of steps apart must not miss the last for a rounding error.
            return math.floor((self.high - self.low) / self.step * (1 + 1e-12)) + 1
        return math.floor(self.high) - math.ceil(self.low) + 1 if self.whole else None

    @property
    def is_drawn(self) -> bool:
        """Whether the values come from a distribution without a step: they are drawn, not listed."""
        return self.distribution is not None and self.step is None

    def extremes(self) -> tuple[Value, ...]:
        """Return example values: all values of a list, or for a range, the two values next to its bounds.

        The bounds themselves would be no examples, as they are almost never drawn.
        """
        return self.values if self.distribution is None else (self.pick(EDGE), self.pick(1.0 - EDGE))

    def all(self) -> tuple[Value, ...]:
        """Return all possible values. Call this only if their number is finite."""
        if self.distribution is None:
            return self.values
        if self.step is not None:
            return tuple(self.stepped(number) for number in range(self.size or 0))
        return tuple(range(math.ceil(self.low), math.floor(self.high) + 1))

    def stepped(self, number: int) -> int | float:
        """Return the value that is `number` steps above the lower bound, without rounding noise."""
        value = self.low + number * (self.step or 0.0)
        return round(value) if self.whole else float(f"{value:.12g}")

    def pick(self, unit: float) -> Value:
        """Return the value that belongs to a number in [0, 1)."""
        if self.distribution is None:
            return self.values[int(unit * len(self.values))]
        if self.step is not None:
            return self.stepped(int(unit * (self.size or 1)))
        return self.clip(self._sample(unit))

    def clip(self, number: float) -> int | float:
        """Return the number, moved between the bounds, and rounded if the parameter takes only integers."""
        inside = min(max(number, self.low), self.high)
        if not self.whole:
            return inside
        return min(max(round(inside), math.ceil(self.low)), math.floor(self.high))

    def _sample(self, unit: float) -> float:
        if self.distribution == "linear":
            return self.low + unit * (self.high - self.low)
        if self.distribution == "log":
            return _between_logs(self.low, self.high, unit)
        return 1.0 - _between_logs(1.0 - self.high, 1.0 - self.low, unit)


def is_number(value: Value) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(name: str, kind: str) -> bool:
    """Return whether a parameter takes only integers; `kind` is "compile" or "fit"."""
    if kind == "fit":
        return name in WHOLE_FIT_KEYS
    return any(signature[name].kind == "integer" for signature in OPTIMIZERS.values() if name in signature)


def finite_bounds(low: Value, high: Value) -> tuple[float, float] | None:
    if not (is_number(low) and is_number(high)):
        return None
    try:
        bounds = float(low), float(high)
    except OverflowError:
        return None
    return bounds if all(map(math.isfinite, bounds)) and math.isfinite(bounds[1] - bounds[0]) else None


def bound_fault(low: float, high: float, kind: str, whole: bool) -> str | None:
    if high <= low:
        return "The upper bound must be above the lower one."
    if kind == "log" and low <= 0:
        return "For 'log' both bounds must be above 0."
    if kind == "log_near_one" and high >= 1:
        return "For 'log_near_one' both bounds must be below 1."
    if whole and math.floor(high) < math.ceil(low):
        return "There is no integer between the bounds."
    return None


def _between_logs(low: float, high: float, unit: float) -> float:
    return math.exp(math.log(low) + unit * (math.log(high) - math.log(low)))
