"""Determines what each output of a model means: classes, with their names, or numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from cerebro_plpy.engine.checks.architecture import DescribedModel, Shape
from cerebro_plpy.engine.models import forms
from cerebro_plpy.errors import NOT_SUPPORTED, WRONG_STATE, CerebroError
from cerebro_plpy.madlib.params import Call
from cerebro_plpy.predicting import choices
from cerebro_plpy.predicting.choices import LOGITS_SIGMOID, LOGITS_SOFTMAX


@dataclass(frozen=True)
class Output:
    """One output of a model; `values` is None if it predicts numbers and not classes.

    A binary output is a single unit: the probability of the second class.
    """

    name: str
    values: list[str | None] | None
    width: int
    logits: str | None = None
    is_binary: bool = False

    def read(self, result: np.ndarray) -> np.ndarray:
        """Return the probability of each class, or the predicted numbers, for each row of a net's output."""
        flat = result.reshape(len(result), -1)
        if self.values is None:
            return flat.astype(np.float64)
        return choices.probabilities(flat, self.logits, self.is_binary)[:, : len(self.values)]

    @property
    def as_read(self) -> Output:
        """The output whose results are what `read` returns for the results of this one."""
        if self.values is None:
            return self
        return replace(self, width=len(self.values), logits=None, is_binary=False)

    @cached_property
    def shown(self) -> list[str]:
        """The class values as JSON texts. NULL is an empty text, unless this is a class as well."""
        values = self.values or ()
        missing = "NULL" if "" in values else ""
        return [json.dumps(missing if value is None else value, ensure_ascii=False) for value in values]


@dataclass(frozen=True)
class Dependent:
    """A dependent variable: its class values if they are known, and whether it has classes."""

    name: str
    values: list[str | None] | None
    has_classes: bool


class NetOutputs(Protocol):
    """The outputs of a net: the shape of each output for one row, and the names of the outputs."""

    @property
    def outputs(self) -> tuple[Shape, ...]: ...

    @property
    def output_names(self) -> tuple[str, ...]: ...


def dependents_of(summary: Mapping[str, Any], values: Sequence[list[str | None] | None]) -> list[Dependent]:
    """Return the dependent variables in a run's summary, with their class values (None: unknown)."""
    names: Sequence[str] = summary["dependent_varname"]
    widths: Sequence[int | None] = summary.get("num_classes") or [None] * len(names)
    return [
        Dependent(name, known, known is not None or width is not None)
        for name, known, width in zip(names, values, widths, strict=True)
    ]


def settle(described: NetOutputs, dependents: Sequence[Dependent], loss: Any = None) -> list[Output]:
    """Return the meaning of each output of a model: the nth output predicts the nth dependent variable.

    The `loss` says whether an output holds logits instead of probabilities.
    """
    if len(dependents) != len(described.outputs):
        raise CerebroError(
            f"the model has {len(described.outputs)} outputs for {len(dependents)} dependent variables",
            detail=f"The outputs are {', '.join(described.output_names)}.",
            sqlstate=WRONG_STATE,
        )
    losses = forms.per_output(loss, list(described.output_names))
    return [
        _settle(dependent, shape, one)
        for dependent, shape, one in zip(dependents, described.outputs, losses, strict=True)
    ]


def _settle(dependent: Dependent, shape: Shape, loss: Any) -> Output:
    if not dependent.has_classes:
        if None in shape:
            raise _no_fixed_width(dependent.name, shape)
        return Output(dependent.name, None, math.prod(d or 1 for d in shape))
    if len(shape) != 1 or shape[0] is None:
        raise _no_fixed_width(dependent.name, shape)
    width = shape[0]
    values = dependent.values or [str(number) for number in range(max(2, width))]
    is_binary = width == 1 and len(values) == 2
    if len(values) != width and not is_binary:
        raise CerebroError(
            f'"{dependent.name}" has {len(values)} class values, but the model gives {width} values',
            hint="There must be one class value for each unit of the last layer, or two for a single unit.",
        )
    return Output(dependent.name, _without_padding(values), width, _logits(loss, width), is_binary)


def _no_fixed_width(name: str, shape: Shape) -> CerebroError:
    return CerebroError(
        f'the output for "{name}" has the shape {list(shape)} a row, which cannot be written as rows',
        hint="Classes need an output of one dimension, numbers one of a fixed size.",
        sqlstate=NOT_SUPPORTED,
    )


def _without_padding(values: list[str | None]) -> list[str | None]:
    """Return the class values without the NULLs at their end, which are not predicted.

    These are places that the argument num_classes of training_preprocessor_dl has left free for later
    classes.
    """
    end = len(values)
    while end > 1 and values[end - 1] is None:
        end -= 1
    return values[:end]


def _logits(loss: Any, width: int) -> str | None:
    """Return the name of the function that makes probabilities of logits.

    Return None unless the loss says, by `from_logits`, that the output holds logits.
    """
    if not isinstance(loss, Call) or dict(loss.kwargs).get("from_logits") is not True:
        return None
    binary = width == 1 or forms.name_of(loss).startswith("binary")
    return LOGITS_SIGMOID if binary else LOGITS_SOFTMAX


def is_binary(described: DescribedModel, number: int) -> bool:
    """Return whether the layer of output `number` has a sigmoid: one unit is then a class's probability."""
    name = described.output_names[number]
    layers = json.loads(described.json)["config"].get("layers", [])
    found = [layer["config"] for layer in layers if layer["config"].get("name") == name]
    return bool(found) and found[-1].get("activation") in ("sigmoid", "hard_sigmoid")
