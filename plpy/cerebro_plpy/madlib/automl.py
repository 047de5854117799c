"""The method and the parameters of an automl call: MADlib's two methods in its words, and four more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from ..errors import CerebroError
from .literal import Value, read_arguments, shorten
from .nearest import unknown

WHO: Final = "madlib_keras_automl"
LARGEST: Final = 10_000

Params: TypeAlias = dict[str, int | str]

DEFAULTS: Final[Mapping[str, Params]] = {
    "hyperband": {"R": 6, "eta": 3, "skip_last": 0},
    "hyperopt": {"num_configs": 20, "num_iterations": 5, "algorithm": "tpe"},
    "asha": {"num_configs": 20, "num_iterations": 9, "eta": 3, "min_iterations": 1},
    "median": {"num_configs": 20, "num_iterations": 9, "min_iterations": 2, "min_configs": 4},
    "tpe": {"num_configs": 20, "num_iterations": 9, "min_iterations": 2, "min_configs": 4},
    "pbt": {"population": 8, "num_iterations": 9, "interval": 1, "replaced": 2},
}
# What each of MADlib's methods says of a parameter that it does not know.
_INVALID: Final[Mapping[str, str]] = {
    "hyperband": "Invalid param(s) passed in for hyperband. Only R, eta, and skip_last may be specified",
    "hyperopt": "Invalid param(s) passed in for hyperopt. Only num_configs, num_iterations, and algorithm"
    " may be specified",
}
_LEAST: Final[Mapping[str, int]] = {"eta": 2, "population": 2}


@dataclass(frozen=True)
class Method:
    """How an automl call searches; every parameter of the method has its value."""

    name: str
    params: Params

    def number(self, key: str) -> int:
        value = self.params[key]
        if isinstance(value, str):
            raise TypeError(f"{key} is {value}")
        return value

    def text(self) -> str:
        """Write the parameters as a call has them."""
        return ", ".join(f"{key}={value}" for key, value in self.params.items())


def read_method(name: str | None, params: str | None) -> Method:
    """Read both arguments; what is not said is as MADlib has it."""
    method = (name or "hyperband").strip().lower()
    if method not in DEFAULTS:
        # MADlib's words, and after them the methods that it has not.
        others = "', '".join(sorted(DEFAULTS.keys() - _INVALID.keys()))
        message = f"{WHO}: The chosen automl method must be 'hyperband' or 'hyperopt', or one of '{others}'"
        raise unknown(f"{message}; it is '{shorten(name, 60)}'", method, DEFAULTS)
    given = _read_params(method, params) if params and params.strip() else {}
    found = Method(method, {**DEFAULTS[method], **given})
    _check(found)
    return found


def _read_params(method: str, text: str) -> Params:
    values = {_spelling(method, key): value for key, value in read_arguments(text).items()}
    for key in values:
        if key not in DEFAULTS[method]:
            message = _INVALID.get(method, f"{shorten(key, 60)} is no parameter of {method}")
            raise unknown(f"{WHO}: {message}", key, DEFAULTS[method])
    return {
        key: _algorithm(value) if key == "algorithm" else _whole(key, value) for key, value in values.items()
    }


def _spelling(method: str, key: str) -> str:
    """MADlib writes R large and everything else small; users do not always."""
    return next((known for known in DEFAULTS[method] if known.lower() == key.lower()), key)


def _algorithm(value: Value) -> str:
    name = str(value).lower()
    if name not in ("tpe", "rand"):
        raise CerebroError(
            f"{WHO}: valid algorithm 'automl_params' for hyperopt: 'rand', 'tpe'",
            detail=f"It is {shorten(value, 60)}.",
        )
    return name


def _whole(key: str, value: Value) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > LARGEST:
        raise CerebroError(
            f"{WHO}: {key} in 'automl_params' is {shorten(value, 60)}",
            detail=f"It must be an integer of at most {LARGEST}.",
        )
    return value


def _check(method: Method) -> None:
    """Check the numbers of all methods but hyperband, whose schedule checks them."""
    if method.name == "hyperband":
        return
    if method.name == "hyperopt":
        if method.number("num_configs") <= 0 or method.number("num_iterations") <= 0:
            raise CerebroError(
                f"{WHO}: num_configs and num_iterations in 'automl_params' must be > 0",
                detail=f"They are {method.params['num_configs']} and {method.params['num_iterations']}.",
            )
        return
    for key, value in method.params.items():
        least = _LEAST.get(key, 1)
        if isinstance(value, int) and value < least:
            raise CerebroError(
                f"{WHO}: {key} in 'automl_params' is {value}", detail=f"It must be at least {least}."
            )
    for small, large in (("min_iterations", "num_iterations"), ("interval", "num_iterations")):
        if small in method.params and method.number(small) > method.number(large):
            raise CerebroError(
                f"{WHO}: {small} in 'automl_params' is {method.params[small]},"
                f" more than {large} = {method.params[large]}"
            )
    if method.name == "pbt" and 2 * method.number("replaced") > method.number("population"):
        raise CerebroError(
            f"{WHO}: replaced in 'automl_params' is {method.params['replaced']}",
            detail=f"It must be at most half of population = {method.params['population']}.",
        )
