"""Finds the form in which a model's losses and metrics need the labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cerebro_plpy.engine.checks import architecture
from cerebro_plpy.engine.models.data import BINARY, DENSE, SPARSE, TargetForm
from cerebro_plpy.madlib.nearest import fold

if TYPE_CHECKING:
    from cerebro_plpy.madlib.params import CompileParams

_WANT_DENSE = frozenset(
    {
        "categoricalaccuracy",
        "categoricalcrossentropy",
        "categoricalhinge",
        "topkcategoricalaccuracy",
        "auc",
        "precision",
        "recall",
        "f1score",
        "fbetascore",
        "onehotiou",
        "onehotmeaniou",
    }
)


def of_model(model: Any, params: CompileParams) -> list[TargetForm]:
    """Return the form of the labels for each output of a model."""
    chosen = per_output(params.loss, architecture.output_names(model))
    return [of_output(spec, tensor.shape) for spec, tensor in zip(chosen, model.outputs, strict=True)]


def per_output(spec: Any, output_names: list[str]) -> list[Any]:
    """Return an argument of compile(), such as `loss`, as a list with one entry per output, as in Keras."""
    if isinstance(spec, dict):
        return [spec.get(name) for name in output_names]
    if isinstance(spec, list | tuple) and len(spec) == len(output_names):
        return list(spec)
    return [spec] * len(output_names)


def metrics_per_output(spec: Any, output_names: list[str]) -> list[tuple[int, Any]]:
    """Return each metric with the number of its output, assigned to the outputs as in Keras."""
    if not spec:
        return []
    found = [spec] if len(output_names) == 1 else per_output(spec, output_names)
    return [(number, metric) for number, metrics in enumerate(found) for metric in _flat(metrics)]


def first_name(spec: Any) -> str:
    """Return the name of the first metric in an argument of compile(), or "accuracy" if there is none."""
    found = _flat(spec)
    named = found[0] if found else "accuracy"
    return named if isinstance(named, str) else str(getattr(named, "name", named))


def _flat(spec: Any) -> list[Any]:
    if isinstance(spec, dict):
        spec = list(spec.values())
    if isinstance(spec, list | tuple):
        return [metric for item in spec for metric in _flat(item)]
    return [] if spec is None else [spec]


def metric_wants(metric: Any) -> str | None:
    """Return the form of labels that a metric needs, indices or columns of classes; None for either form."""
    name = name_of(metric)
    if name.startswith("sparse"):
        return SPARSE
    return DENSE if name in _WANT_DENSE else None


def name_of(spec: Any) -> str:
    """Return the name of a loss or metric, given as a name or a call, without case and underscores."""
    return fold(spec if isinstance(spec, str) else getattr(spec, "name", ""))


def of_output(loss: Any, shape: tuple[int | None, ...]) -> TargetForm:
    """Return the form of the labels for one output of the given shape (batch dimension first)."""
    if name_of(loss).startswith("sparse"):
        return TargetForm(SPARSE, shape[-1])
    if len(shape) > 1 and shape[-1] == 1:
        return TargetForm(BINARY, 1)
    return TargetForm(DENSE, shape[-1] if shape else None)


def build_metrics(model: Any, forms: list[TargetForm]) -> None:
    """Make Keras create the variables of the model's metrics before a program is compiled."""
    inputs = [_symbolic(t.shape, t.dtype) for t in model.inputs]
    targets = [_target(form, tensor.shape) for form, tensor in zip(forms, model.outputs, strict=True)]
    weight = np.ones(2, np.float32) if len(targets) == 1 else None
    model._symbolic_build(data_batch=(pack(model, inputs), one_or_all(targets), weight))
    model.reset_metrics()


def pack(model: Any, inputs: list[Any]) -> Any:
    """Return inputs in the structure that the model takes, such as a dictionary by names."""
    from keras import tree

    return (
        tree.pack_sequence_as(model._inputs_struct, inputs) if hasattr(model, "_inputs_struct") else inputs[0]
    )


def one_or_all(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def if_any(values: list[Any]) -> list[Any]:
    """Return a list to unpack into a call: one argument that holds the values, or nothing without values."""
    return [one_or_all(values)] if values else []


def _symbolic(shape: tuple[int | None, ...], dtype: str) -> Any:
    from keras import KerasTensor

    return KerasTensor((2, *shape[1:]), dtype)


def _target(form: TargetForm, shape: tuple[int | None, ...]) -> Any:
    if form.name == SPARSE:
        return _symbolic((None, *shape[1:-1]), "int32")
    return _symbolic(shape, "float32")
