"""Compile and fit parameters: the strings of MADlib's model selection table, read and checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeAlias

from .literal import Call, Value, read_arguments, read_call

__all__ = ["Call", "CompileParams", "FitParams", "Named", "parse_compile", "parse_fit"]

Named: TypeAlias = str | Call
Losses: TypeAlias = Named | list[Named | None] | dict[str, Named | None]
Metrics: TypeAlias = list[Any] | dict[str, Any] | None
Weights: TypeAlias = float | list[float] | dict[str, float] | None


@dataclass(frozen=True)
class CompileParams:
    """What Keras' compile() is given. A loss or metric is a name that Keras knows, or a call of its class."""

    optimizer: Call
    loss: Losses
    metrics: Metrics = None
    loss_weights: Weights = None
    weighted_metrics: Metrics = None

    def to_json(self) -> str:
        """Write it as JSON; equal parameters give equal text."""
        return json.dumps({name: _pack(value) for name, value in vars(self).items()}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> CompileParams:
        """Read what `to_json` wrote."""
        return cls(**{name: _unpack(value) for name, value in json.loads(text).items()})


@dataclass(frozen=True)
class FitParams:
    """How one visit trains."""

    batch_size: int = 32
    epochs: int = 1
    shuffle: bool = True
    class_weight: dict[int, float] | None = None

    def to_json(self) -> str:
        """Write it as JSON; equal parameters give equal text."""
        return json.dumps({name: _pack(value) for name, value in vars(self).items()}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> FitParams:
        """Read what `to_json` wrote."""
        return cls(**{name: _unpack(value) for name, value in json.loads(text).items()})


def _pack(value: Value) -> Any:
    if isinstance(value, Call):
        return {"call": value.name, "kwargs": [[key, _pack(item)] for key, item in value.kwargs]}
    if isinstance(value, dict):
        return {"dict": [[key, _pack(item)] for key, item in value.items()]}
    if isinstance(value, list):
        return [_pack(item) for item in value]
    return value


def _unpack(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpack(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "call" in value:
        return Call(value["call"], tuple((key, _unpack(item)) for key, item in value["kwargs"]))
    return {key: _unpack(item) for key, item in value["dict"]}


def parse_compile(text: str) -> CompileParams:
    """Read compile parameters such as `optimizer='Adam(lr=0.001)',loss='mse',metrics=['mae']`."""
    values: dict[str, Any] = dict(read_arguments(text))
    optimizer = values.pop("optimizer", "RMSprop")
    if isinstance(optimizer, str):
        optimizer = read_call(optimizer)
    kwargs = tuple(("learning_rate" if key == "lr" else key, value) for key, value in optimizer.kwargs)
    return CompileParams(optimizer=Call(optimizer.name, kwargs), **values)


def parse_fit(text: str) -> FitParams:
    """Read fit parameters such as `batch_size=8,epochs=1`."""
    values: dict[str, Any] = dict(read_arguments(text))
    values.pop("verbose", None)
    return FitParams(**values)
