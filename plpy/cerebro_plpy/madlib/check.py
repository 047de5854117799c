"""Checks optimizers, losses and metrics against the tables in `names.py`, and gives their canonical form."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.madlib import registered
from cerebro_plpy.madlib.literal import Call, Value, read_call, shorten
from cerebro_plpy.madlib.names import (
    LOSSES,
    METRICS,
    OPTIMIZERS,
    OWN_LOSSES,
    REQUIRED,
    SCHEDULES,
    Argument,
    Signature,
)
from cerebro_plpy.madlib.nearest import unknown
from cerebro_plpy.madlib.registered import LOSS, METRIC, Function
from cerebro_plpy.madlib.spellings import (
    LOSS_TEXTS,
    METRIC_TEXTS,
    OLD_LOSSES,
    OLD_METRICS,
    OWN_TEXTS,
    TOP_K,
    snake,
)

Named: TypeAlias = str | Call
# Names of metrics end up in result tables and, with TensorFlow, in name scopes.
NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")
MOST_NUMBERS: Final = 100_000


def check_optimizer(value: Value) -> Call:
    """Return the canonical form of an optimizer, given as a call, a quoted call or a name in any case."""
    call = _as_call(value, "optimizer")
    folded = {name.lower(): name for name in OPTIMIZERS}
    if call.name.lower() not in folded:
        raise unknown(f"invalid optimizer name: {shorten(call.name, 60)}", call.name, OPTIMIZERS)
    name = folded[call.name.lower()]
    kwargs = _keras2_arguments(name, dict(call.kwargs))
    given = [key for key in ("clipnorm", "clipvalue", "global_clipnorm") if kwargs.get(key) is not None]
    if len(given) > 1:
        raise CerebroError(
            f"optimizer {name} has more than one of {', '.join(given)}", hint="Keep one of them."
        )
    return _checked(name, kwargs, OPTIMIZERS[name], f"optimizer {name}")


def check_schedule(value: Call) -> Call:
    """Return the canonical form of a learning-rate schedule. Raise an error if it is invalid."""
    if value.name not in SCHEDULES:
        raise unknown(f"unknown learning-rate schedule {shorten(value.name, 60)}", value.name, SCHEDULES)
    call = _checked(value.name, dict(value.kwargs), SCHEDULES[value.name], f"schedule {value.name}")
    boundaries, values = call.get("boundaries"), call.get("values")
    if isinstance(boundaries, list) and isinstance(values, list) and len(values) != len(boundaries) + 1:
        raise CerebroError(
            f"schedule {value.name} has {len(boundaries)} boundaries and {len(values)} values",
            detail="There must be one value more than boundaries.",
        )
    return call


def check_loss(value: Value) -> Named:
    """Return the canonical form of a loss: a name that Keras knows, or a call of a loss class."""
    call = _as_call(value, "loss")
    if own := OWN_TEXTS.get(call.name):
        return _checked(own, dict(call.kwargs), OWN_LOSSES[own], f"loss {own}")
    old = OLD_LOSSES.get(call.name, call.name)
    if old not in LOSS_TEXTS and old not in LOSSES:
        if function := registered.find(call.name, (LOSS,)):
            return _of_function(call, function)
        raise unknown(f"unknown loss {shorten(call.name, 60)}", call.name, {**LOSS_TEXTS, **OWN_TEXTS})
    if isinstance(value, str) and not _is_call(value) and old in LOSS_TEXTS:
        return old
    name = LOSS_TEXTS.get(old, old)
    return _checked(name, dict(call.kwargs), LOSSES[name], f"loss {name}")


def check_metric(value: Value) -> Named:
    """Return the canonical form of a metric: a name that Keras knows, or a call of a metric class."""
    call = _as_call(value, "metric")
    if call.name in OWN_TEXTS:
        return _own_metric(call)
    if top := TOP_K.fullmatch(call.name):
        call = Call("TopKCategoricalAccuracy", (*call.kwargs, ("k", int(top[1])), ("name", call.name)))
        return _checked(call.name, dict(call.kwargs), METRICS[call.name], f"metric {call.name}")
    old = OLD_METRICS.get(call.name, call.name)
    if old not in METRIC_TEXTS:
        if function := registered.find(call.name, (METRIC, LOSS)):
            return _of_function(call, function)
        raise unknown(f"unknown metric {shorten(call.name, 60)}", call.name, METRIC_TEXTS)
    name = METRIC_TEXTS[old]
    checked = _checked(name, dict(call.kwargs), METRICS[name], f"metric {name}")
    if isinstance(value, str) and not _is_call(value):
        return old
    # Keras would number unnamed metrics as they are made in a process, differently in each session.
    if METRICS[name]["name"].default is None and checked.get("name") is None:
        kwargs = {**dict(checked.kwargs), "name": snake(name)}
        return Call(name, tuple(sorted(kwargs.items())))
    return checked


def _own_metric(call: Call) -> Call:
    """Return the call of a metric that is the mean, over the rows, of one of cerebro's own losses."""
    name = OWN_TEXTS[call.name]
    signature = {key: argument for key, argument in OWN_LOSSES[name].items() if key != "reduction"}
    return _checked(name, {"name": snake(name), **dict(call.kwargs)}, signature, f"metric {name}")


def _of_function(call: Call, function: Function) -> Call:
    """Return the call of a registered function. Raise an error if one of its arguments contains a call."""
    for key, value in call.kwargs:
        if _holds_call(value):
            raise wrong(f"{call.name}: {key}", value, "made of constants, lists and dicts")
    return Call(call.name, tuple(sorted(call.kwargs)), function)


def _holds_call(value: Value) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    return any(map(_holds_call, value)) if isinstance(value, list) else isinstance(value, Call)


def wrong(what: str, value: object, expected: str) -> CerebroError:
    """Return the error for a wrong value; `expected` says which values are right."""
    return CerebroError(f"{what} is {shorten(value, 80)}", detail=f"It must be {expected}.")


def _is_call(text: str) -> bool:
    return "(" in text


def _as_call(value: Value, what: str) -> Call:
    if isinstance(value, Call):
        return value
    if not isinstance(value, str):
        raise wrong(f"a {what}" if what != "optimizer" else "the optimizer", value, "a name or a call")
    return read_call(value) if _is_call(value) else Call(value.strip())


def _keras2_arguments(name: str, kwargs: dict[str, Value]) -> dict[str, Value]:
    """Return an optimizer's arguments, with Keras 2's `lr`, `decay` and `epsilon=None` as in Keras 3."""
    result = dict(kwargs)
    if "lr" in result:
        if "learning_rate" in result:
            raise CerebroError(f"optimizer {name} has both lr and learning_rate", hint="Keep learning_rate.")
        result["learning_rate"] = result.pop("lr")
    if result.get("epsilon", 0) is None:
        del result["epsilon"]
    decay = result.pop("decay", None)
    return _with_decay(name, result, decay) if decay else result


def _with_decay(name: str, kwargs: dict[str, Value], decay: Value) -> dict[str, Value]:
    rate_argument = OPTIMIZERS[name].get("learning_rate")
    if rate_argument is None:
        raise CerebroError(f"optimizer {name} has no argument decay", hint="Write it on the inner optimizer.")
    rate = kwargs.get("learning_rate", rate_argument.default)
    if isinstance(rate, Call | str):
        raise CerebroError(
            f"optimizer {name} has both decay and a learning-rate schedule", hint="Leave decay out."
        )
    _number(decay, Argument("number", low=0.0, above=True), f"optimizer {name}: decay")
    schedule = {"initial_learning_rate": rate, "decay_steps": 1, "decay_rate": decay}
    return {**kwargs, "learning_rate": Call("InverseTimeDecay", tuple(schedule.items()))}  # type: ignore[arg-type]


def _checked(name: str, kwargs: Mapping[str, Value], signature: Signature, what: str) -> Call:
    for key in kwargs:
        if key not in signature:
            raise unknown(f"{what} has no argument {shorten(key, 60)}", key, signature)
    for key, argument in signature.items():
        if argument.default == REQUIRED and key not in kwargs:
            raise CerebroError(f"{what} lacks the argument {key}", hint=f"Write {name}({key}=…).")
        if argument.kind == "choice" and argument.default is None and not argument.optional:
            _require_choice(kwargs.get(key), argument, what, key, name)
    values = {key: _argument(value, signature[key], f"{what}: {key}") for key, value in kwargs.items()}
    return Call(name, tuple(sorted(values.items())))


def _require_choice(value: Value, argument: Argument, what: str, key: str, name: str) -> None:
    if value is None:
        raise CerebroError(
            f"{what} needs the argument {key}",
            detail="Without it the result is one number per class; a metric here must be one number.",
            hint=f"Write {name}({key}='{argument.choices[-1]}').",
        )


def _argument(value: Value, argument: Argument, what: str) -> Value:
    if value is None and argument.optional:
        return None
    return _KINDS[argument.kind](value, argument, what)


def _in_range(value: float, argument: Argument) -> bool:
    if argument.low is not None and (value < argument.low or (argument.above and value == argument.low)):
        return False
    return argument.high is None or value < argument.high or (value == argument.high and not argument.below)


def _range(argument: Argument) -> str:
    parts: list[str] = []
    if argument.low is not None:
        parts.append(f"{'above' if argument.above else 'at least'} {argument.low:g}")
    if argument.high is not None:
        parts.append(f"{'below' if argument.below else 'at most'} {argument.high:g}")
    return " " + " and ".join(parts) if parts else ""


def _number(value: Value, argument: Argument, what: str) -> float:
    expected = f"a number{_range(argument)}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(what, value, expected)
    try:
        number = float(value)
    except OverflowError:
        raise wrong(what, "a number beyond floating point", expected) from None
    if not math.isfinite(number) or not _in_range(number, argument):
        raise wrong(what, value, expected)
    return number


def _integer(value: Value, argument: Argument, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(what, value, f"an integer{_range(argument)}")
    if not _in_range(value, argument) or abs(value) > 2**62:
        raise wrong(what, value, f"an integer{_range(argument)}")
    return value


def _boolean(value: Value, argument: Argument, what: str) -> bool:
    if not isinstance(value, bool):
        raise wrong(what, value, "True or False")
    return value


def _choice(value: Value, argument: Argument, what: str) -> str:
    if not isinstance(value, str) or value not in argument.choices:
        options = ", ".join(repr(item) for item in argument.choices)
        raise wrong(what, value, f"one of {options}" + (" or None" if argument.optional else ""))
    return value


def _name(value: Value, argument: Argument, what: str) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise wrong(what, value, "a name of letters, digits, _, . and -")
    return value


def _rate(value: Value, argument: Argument, what: str) -> Value:
    if isinstance(value, str) and _is_call(value):
        value = read_call(value)
    if isinstance(value, Call):
        return check_schedule(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(what, value, "a positive number or a schedule such as ExponentialDecay(…)")
    return _number(value, argument, what)


def _optimizer(value: Value, argument: Argument, what: str) -> Call:
    call = check_optimizer(value)
    if call.name == "LossScaleOptimizer":
        raise wrong(what, call.name, "an optimizer that scales no loss itself")
    return call


def _several(check: Callable[[Value, Argument, str], Value]) -> Callable[[Value, Argument, str], Value]:
    def items(value: Value, argument: Argument, what: str) -> Value:
        if not isinstance(value, list) or not value or len(value) > MOST_NUMBERS:
            raise wrong(what, value, "a list that is not empty")
        return [check(item, argument, f"{what}[{index}]") for index, item in enumerate(value)]

    return items


_KINDS: Final[dict[str, Callable[[Value, Argument, str], Value]]] = {
    "number": _number,
    "integer": _integer,
    "boolean": _boolean,
    "choice": _choice,
    "name": _name,
    "rate": _rate,
    "optimizer": _optimizer,
    "numbers": _several(_number),
    "integers": _several(_integer),
    "names": _several(_name),
}


def not_supported(message: str, detail: str, hint: str | None = None) -> CerebroError:
    """Return the error for something that Keras can do, but a run cannot."""
    return CerebroError(message, detail=detail, hint=hint, sqlstate=NOT_SUPPORTED)
