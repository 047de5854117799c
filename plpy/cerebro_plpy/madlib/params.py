"""Compile and fit parameters: reads and checks the texts in a model selection table."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, cast

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib import registered
from cerebro_plpy.madlib.callbacks import check_callbacks, check_initial_epoch
from cerebro_plpy.madlib.check import Named, check_loss, check_metric, check_optimizer, not_supported, wrong
from cerebro_plpy.madlib.literal import Call, Value, read_arguments, shorten
from cerebro_plpy.madlib.nearest import fold, unknown
from cerebro_plpy.madlib.registered import Function

__all__ = [
    "Call",
    "CompileParams",
    "FitParams",
    "Named",
    "functions_in",
    "parse_compile",
    "parse_fit",
    "reparse_compile",
]

Losses: TypeAlias = Named | list[Named | None] | dict[str, Named | None]
MetricList: TypeAlias = list[Named]
Metrics: TypeAlias = list[Named | MetricList | None] | dict[str, MetricList] | None
# By class, or BALANCED.
ClassWeight: TypeAlias = dict[int, float] | str
Weights: TypeAlias = float | list[float] | dict[str, float] | None
T = TypeVar("T")

COMPILE_KEYS: Final = (
    "optimizer",
    "loss",
    "metrics",
    "loss_weights",
    "weighted_metrics",
    "sample_weight_mode",
)
FIT_KEYS: Final = (
    "batch_size",
    "epochs",
    "shuffle",
    "class_weight",
    "unfreeze_at",
    "anneal_at",
    "verbose",
    "callbacks",
    "initial_epoch",
)
# Arguments of Keras' fit() that a run must not have, with the values that are allowed as they have no effect.
FOREIGN_FIT_KEYS: Final[dict[str, tuple[Value, ...]]] = {
    "sample_weight": (None,),
    "steps_per_epoch": (None,),
    "validation_batch_size": (None,),
    "validation_data": (None,),
    "validation_freq": (None, 1),
    "validation_split": (None, 0),
    "validation_steps": (None,),
}
LARGEST: Final = 2**31 - 1
WEIGHTED: Final = "class_weight"
UNFREEZE: Final = "unfreeze_at"
# Classes with fewer rows get greater weights, by scikit-learn's formula of this name.
BALANCED: Final = "balanced"


@dataclass(frozen=True)
class CompileParams:
    """The arguments of Keras' compile().

    A loss or metric is a name that Keras knows, or a call of a class.
    """

    optimizer: Call
    loss: Losses
    metrics: Metrics = None
    loss_weights: Weights = None
    weighted_metrics: Metrics = None

    def to_json(self) -> str:
        """Return the parameters as JSON. Equal parameters give equal texts."""
        return _to_json(self)

    def compile_key(self, inputs: Collection[str] = ()) -> str:
        """Return, as JSON, the parameters on which compiled code depends.

        These are all parameters except a numeric learning rate and the values of `inputs`: numbers of the
        optimizer that compiled code takes as inputs (`inputs.py`).
        """
        fields = json.loads(self.to_json())
        optimizer = fields["optimizer"]
        optimizer["kwargs"] = sorted(
            pair
            for pair in optimizer["kwargs"]
            if pair[0] not in inputs and (pair[0] != "learning_rate" or not isinstance(pair[1], int | float))
        )
        optimizer["inputs"] = sorted(inputs)
        optimizer["call"] = fold(optimizer["call"])
        return json.dumps(fields, sort_keys=True)


@dataclass(frozen=True)
class FitParams:
    """The fit parameters of a config, by which each of its visits trains."""

    batch_size: int = 32
    epochs: int = 1
    shuffle: bool = True
    # For several outputs, by their names.
    class_weight: ClassWeight | dict[str, ClassWeight] | None = None
    # By epoch: the names of frozen layers that train from this epoch on; * in a name matches any text.
    unfreeze_at: dict[int, list[str]] | None = None
    # The epochs, in ascending order, by whose ends the learning rate has come down.
    anneal_at: list[int] | None = None

    def share_of_rate(self, epoch: int) -> float:
        """Return the share of its learning rate with which a config trains in an epoch.

        Up to each epoch in `anneal_at`, the share falls along half a cosine, and then begins anew. After the
        last of these epochs, it is 1.
        """
        ends = [0, *(self.anneal_at or ())]
        if epoch > ends[-1]:
            return 1.0
        end = min(one for one in ends if one >= epoch)
        begin = max(one for one in ends if one < epoch)
        return 0.5 * (1 + math.cos(math.pi * (epoch - begin - 0.5) / (end - begin)))

    def thawed(self, epoch: int | None = None) -> tuple[str, ...]:
        """Return the names of layers that are frozen in the architecture but train in the given epoch.

        Without an epoch, return the layers that train in any epoch.
        """
        found = sorted((self.unfreeze_at or {}).items())
        return tuple(name for first, names in found if epoch is None or first <= epoch for name in names)

    def to_json(self) -> str:
        """Return the parameters as JSON. Equal parameters give equal texts."""
        return _to_json(self)


def parse_compile(text: str, *, require_optimizer: bool = False) -> CompileParams:
    """Return the compile parameters in a text such as `optimizer='Adam()',loss='mse',metrics=['mae']`."""
    return _explained("Compile", text, partial(_compile_params, require_optimizer=require_optimizer))


def reparse_compile(text: str) -> CompileParams:
    """Return compile parameters that were checked earlier.

    Registered functions in them need not be known now.
    """
    try:
        return parse_compile(text)
    except CerebroError:
        with registered.checked_before():
            return parse_compile(text)


def parse_fit(text: str) -> FitParams:
    """Return the fit parameters in a text such as `batch_size=8,epochs=1`."""
    return _explained("Fit", text, _fit_params)


def functions_in(params: CompileParams) -> list[Function]:
    """Return the registered functions among the losses and metrics of compile parameters."""
    calls = _calls([params.loss, params.metrics, params.weighted_metrics])
    return [call.function for call in calls if call.function is not None]


def _calls(spec: object) -> Iterator[Call]:
    if isinstance(spec, Call):
        yield spec
    elif isinstance(spec, dict):
        yield from _calls(list(cast("dict[str, object]", spec).values()))
    elif isinstance(spec, list):
        for item in cast("list[object]", spec):
            yield from _calls(item)


def _explained(kind: str, text: str, read: Callable[[dict[str, Value]], T]) -> T:
    """Return what `read` makes of the values in a text. An error gets MADlib's words before its message."""
    try:
        return read(read_arguments(text))
    except CerebroError as error:
        raise CerebroError(
            f"{kind} param check failed for: {shorten(text)}: {error.message}",
            detail=error.detail,
            hint=error.hint,
            sqlstate=error.sqlstate,
        ) from None


def _compile_params(values: dict[str, Value], require_optimizer: bool) -> CompileParams:
    for key in values:
        if key not in COMPILE_KEYS:
            raise unknown(f"{shorten(key, 60)} is not currently accepted as a parameter", key, COMPILE_KEYS)
    for key in ("optimizer", "loss") if require_optimizer else ("loss",):
        if key not in values:
            raise CerebroError(f"{key} is a required parameter for compile")
    if values.get("sample_weight_mode") is not None:
        raise not_supported("sample_weight_mode is not supported", "Keras 3 has no such parameter.")
    loss = _losses(values["loss"])
    return CompileParams(
        optimizer=check_optimizer(values.get("optimizer", "RMSprop")),
        loss=loss,
        metrics=_metrics(values.get("metrics"), "metrics"),
        loss_weights=_weights(values.get("loss_weights"), loss),
        weighted_metrics=_metrics(values.get("weighted_metrics"), "weighted_metrics"),
    )


def _losses(value: Value) -> Losses:
    if isinstance(value, list):
        losses = [None if item is None else check_loss(item) for item in value]
        return _some(losses, "loss")
    if isinstance(value, dict):
        named = {_output(key): None if item is None else check_loss(item) for key, item in value.items()}
        _some(list(named.values()), "loss")
        return named
    return check_loss(value)


def _some(losses: list[Named | None], what: str) -> list[Named | None]:
    if not any(item is not None for item in losses):
        raise CerebroError(f"{what} names no loss at all")
    return losses


def _output(key: str | int) -> str:
    if not isinstance(key, str):
        raise wrong("an output's name", key, "a string")
    return key


def _metrics(value: Value, what: str) -> Metrics:
    if value is None or value == []:
        return None
    if isinstance(value, str | Call):
        return [check_metric(value)]
    if isinstance(value, dict):
        return {_output(key): _metric_list(item) for key, item in value.items() if item is not None} or None
    if isinstance(value, list):
        return [
            None if item is None else _metric_list(item) if isinstance(item, list) else check_metric(item)
            for item in value
        ]
    raise wrong(what, value, "a list of metrics, or a list or dict with such a list for each output")


def _metric_list(value: Value) -> MetricList:
    if isinstance(value, list):
        return [check_metric(item) for item in value]
    return [check_metric(value)]


def _weights(value: Value, loss: Losses) -> Weights:
    if value is None:
        return None
    if isinstance(value, dict):
        weights = {_output(key): _weight(item) for key, item in value.items()}
        if isinstance(loss, dict) and weights.keys() != loss.keys():
            raise wrong("loss_weights", sorted(weights), f"a dict with the keys of loss: {sorted(loss)}")
        return weights
    if isinstance(value, list):
        if isinstance(loss, list) and len(value) != len(loss):
            raise wrong("loss_weights", value, f"a list of {len(loss)} numbers, one for each loss")
        return [_weight(item) for item in value]
    return _weight(value)


def _weight(value: Value) -> float:
    return _real(value, "a loss weight", "a finite number")


def _real(value: Value, what: str, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e308:
        raise wrong(what, value, expected)
    return float(value)


def _fit_params(values: dict[str, Value]) -> FitParams:
    for key, value in values.items():
        if key in FOREIGN_FIT_KEYS:
            _refuse_foreign(key, value)
        elif key not in FIT_KEYS:
            raise unknown(f"{shorten(key, 60)} is not currently accepted as a parameter", key, FIT_KEYS)
    check_callbacks(values.get("callbacks"))
    check_initial_epoch(values.get("initial_epoch"))
    shuffle = values.get("shuffle", True)
    if not isinstance(shuffle, bool):
        raise wrong("shuffle", shuffle, "True or False")
    return FitParams(
        batch_size=_count(values.get("batch_size", 32), "batch_size"),
        epochs=_count(values.get("epochs", 1), "epochs"),
        shuffle=shuffle,
        class_weight=_class_weight(values.get("class_weight")),
        unfreeze_at=_unfreeze_at(values.get(UNFREEZE)),
        anneal_at=_anneal_at(values.get("anneal_at")),
    )


def _anneal_at(value: Value) -> list[int] | None:
    if value is None:
        return None
    listed = value if isinstance(value, list) else [value]
    found = [one for one in listed if isinstance(one, int) and not isinstance(one, bool)]
    ascending = all(a < b for a, b in zip([0, *found], found, strict=False))
    if not found or len(found) < len(listed) or not ascending or found[-1] > LARGEST:
        raise wrong("anneal_at", value, "a list of epochs, counted from 1, in ascending order: [3, 9, 27]")
    return found


def _unfreeze_at(value: Value) -> dict[int, list[str]] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not value:
        raise wrong("unfreeze_at", value, "a dict from epoch to names of layers, such as {3: ['block5_*']}")
    found: dict[int, list[str]] = {}
    for epoch, names in value.items():
        if not isinstance(epoch, int) or not 1 <= epoch <= LARGEST:
            raise wrong("a key of unfreeze_at", epoch, "an epoch, counted from 1")
        listed = [names] if isinstance(names, str) else names
        if not isinstance(listed, list) or not listed or not all(isinstance(name, str) for name in listed):
            raise wrong(f"unfreeze_at[{epoch}]", names, "a layer's name, or a list of names")
        found[epoch] = [str(name) for name in listed]
    return found


def _refuse_foreign(key: str, value: Value) -> None:
    if value in FOREIGN_FIT_KEYS[key]:
        return
    details = {
        "steps_per_epoch": ("A visit trains on every row of its segment.", "Leave steps_per_epoch out."),
        "sample_weight": ("Weights of rows come with the packed table.", "Pack it with the option weight."),
    }
    detail, hint = details.get(
        key, ("Validation has a table of its own.", "Name a validation table in the fit call.")
    )
    raise not_supported(f"fit parameter {key} is not supported", detail, hint)


def _count(value: Value, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
        raise wrong(what, value, "an integer of at least 1")
    return value


def _class_weight(value: Value) -> ClassWeight | dict[str, ClassWeight] | None:
    # Weights for several outputs. A mixed dict is left to _one_class_weight, which raises an error.
    if isinstance(value, dict) and value and all(isinstance(one, dict | str) for one in value.values()):
        named: dict[str, ClassWeight] = {}
        for name, one in value.items():
            if not isinstance(name, str):
                raise wrong("a key of class_weight", name, "the name of an output")
            weights = _one_class_weight(one, f"class_weight[{name!r}]")
            if weights is not None:
                named[name] = weights
        return named or None
    return _one_class_weight(value, "class_weight")


def _one_class_weight(value: Value, what: str) -> ClassWeight | None:
    if value is None or value == BALANCED:
        return BALANCED if value else None
    if not isinstance(value, dict):
        raise wrong(
            what, value, "'balanced', or a dict from class number to weight, such as {0: 1.0, 1: 2.5}"
        )
    weights: dict[int, float] = {}
    for key, item in value.items():
        if not isinstance(key, int) or not 0 <= key <= LARGEST:
            raise wrong(f"a key of {what}", key, "a class number")
        weights[key] = _real(item, f"{what}[{key}]", "a number of at least 0")
        if weights[key] < 0:
            raise wrong(f"{what}[{key}]", item, "a number of at least 0")
    return weights or None


def _to_json(params: CompileParams | FitParams) -> str:
    return json.dumps({name: _pack(value) for name, value in vars(params).items()}, sort_keys=True)


def _pack(value: Any) -> Any:
    if isinstance(value, Call):
        packed = {"call": value.name, "kwargs": [[key, _pack(item)] for key, item in value.kwargs]}
        return packed if value.function is None else {**packed, "digest": value.function.digest}
    if isinstance(value, dict):
        return {"dict": sorted([key, _pack(item)] for key, item in cast("dict[Any, Any]", value).items())}
    if isinstance(value, list):
        return [_pack(item) for item in cast("list[Any]", value)]
    return value
