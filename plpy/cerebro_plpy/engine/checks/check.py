"""Checks that a config fits its packed table, before any training; errors name the values of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from cerebro_plpy.engine import losses
from cerebro_plpy.engine.checks import calls
from cerebro_plpy.engine.checks.architecture import DescribedModel, Shape
from cerebro_plpy.engine.models import forms
from cerebro_plpy.engine.models.data import BINARY, DENSE, SPARSE, VALUE, TargetForm
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.literal import Call
from cerebro_plpy.madlib.nearest import fold

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cerebro_plpy.madlib.params import CompileParams


Compiled: TypeAlias = "tuple[str, type]"
_QUANTITY = (
    "Give the last layer {classes} units. If the labels are quantities, pack them as such: options"
    ' {{"task": "regression"}}.'
)
_ONE_COLUMN = frozenset({"binarycrossentropy", "binaryfocalcrossentropy", "bce"})
_CATEGORICAL = frozenset(
    {
        "categoricalcrossentropy",
        "categoricalfocalcrossentropy",
        "categoricalgeneralizedcrossentropy",
        "sparsecategoricalcrossentropy",
        "weightedcategoricalcrossentropy",
    }
)


def check_config(
    arch: DescribedModel,
    compile_params: CompileParams,
    input_shapes: tuple[Shape, ...],
    target_shapes: tuple[Shape, ...],
    target_kinds: tuple[str, ...],
    null_classes: tuple[bool, ...] = (),
    made: set[Compiled] | None = None,
) -> None:
    """Raise an error if a config does not fit its packed table; the error says what does not fit.

    Shapes are the shapes of one row, and the last dimension of a label of classes is their number.
    `null_classes` says for which targets NULL is one of the classes. `made` holds compile parameters that
    Keras has accepted for other configs, and gets the ones that it accepts now.
    """
    _check_count("inputs", len(arch.inputs), len(input_shapes))
    _check_count("outputs", len(arch.outputs), len(target_shapes))
    for name, wanted, given in zip(arch.input_names, arch.inputs, input_shapes, strict=True):
        _check_input(name, wanted, given)
    names = list(arch.output_names)
    _check_losses(compile_params, names)
    chosen = forms.per_output(compile_params.loss, names)
    for number, loss in enumerate(chosen):
        null = any(null_classes[number : number + 1])
        _check_output(arch, number, loss, _Packed(target_shapes[number], target_kinds[number], null))
    for what in ("metrics", "weighted_metrics"):
        decides = what == "metrics" or not compile_params.metrics
        _check_spread(what, getattr(compile_params, what), names, decides=decides)
    _check_metrics(arch, compile_params, chosen)
    _check_compiles(compile_params, set() if made is None else made)


def _check_count(what: str, wanted: int, given: int) -> None:
    if wanted != given:
        raise CerebroError(f"the architecture has {wanted} {what}, the packed table has {given}")


def _check_input(name: str, wanted: Shape, given: Shape) -> None:
    fits = len(wanted) == len(given) and all(w in (None, g) for w, g in zip(wanted, given, strict=True))
    if not fits:
        raise CerebroError(
            f'the input "{name}" has shape {_text(wanted)}, the packed table has shape {_text(given)}',
            hint="Change the first layer's shape, or pack the table with arrays of that shape.",
        )


@dataclass(frozen=True)
class _Packed:
    """The labels that the packed table has for one output of the model."""

    shape: Shape
    kind: str
    null: bool

    @property
    def classes(self) -> int | None:
        return self.shape[-1] if self.shape else None

    @property
    def text(self) -> str:
        return f"{self.classes} classes{', one of them NULL' if self.null else ''}"


def _check_output(arch: DescribedModel, number: int, loss: Any, target: _Packed) -> None:
    if loss is None:
        return
    output, where = arch.outputs[number], f'output "{arch.output_names[number]}"'
    form = forms.of_output(loss, (None, *output))
    if target.kind == VALUE:
        _check_values(where, loss, form, output, target.shape)
    else:
        _check_classes(where, loss, form, output, target)


def _check_values(where: str, loss: Any, form: TargetForm, output: Shape, given: Shape) -> None:
    if form.name == SPARSE:
        raise CerebroError(
            f'the loss "{loss_name(loss)}" needs class labels, but the packed table has numbers',
            hint="Use a loss such as mse. If the numbers are classes, pack them with num_classes.",
        )
    if len(output) != len(given) or any(w not in (None, g) for w, g in zip(output, given, strict=True)):
        hint = None
        if len(output) == 1 and given in ((), (1,)) and fold(loss_name(loss)) in _CATEGORICAL:
            hint = (
                "The labels are floats, which are numbers to regress on. If they are classes, pack them with"
                f" num_classes => ARRAY[{output[0]}]."
            )
        raise CerebroError(
            f"{where} has shape {_text(output)}, the targets have shape {_text(given)}", hint=hint
        )


def _check_classes(where: str, loss: Any, form: TargetForm, output: Shape, target: _Packed) -> None:
    name, width, classes = loss_name(loss), output[-1] if output else None, target.classes
    _check_class_weights(where, loss, width)
    if form.name == BINARY:
        _check_one_column(where, name, target)
        return
    wide_enough = form.name == SPARSE and None not in (classes, width) and (width or 0) >= (classes or 0)
    if width != classes and not wide_enough:
        room = (
            f", or pack the table with num_classes => ARRAY[{width}]" if (width or 0) > (classes or 0) else ""
        )
        hint = (
            _QUANTITY.format(classes=classes) if width == 1 else f"Give the last layer {classes} units{room}."
        )
        raise CerebroError(f"{where} is {width} wide, the packed table has {target.text}", hint=hint)


def _check_class_weights(where: str, loss: Any, width: int | None) -> None:
    if not isinstance(loss, Call) or not losses.is_own(loss):
        return
    weights = loss.get("class_weights")
    if isinstance(weights, list) and len(weights) != width:
        raise CerebroError(
            f"the loss {loss.name} has {len(weights)} class_weights, {where} is {width} wide",
            hint="Give one weight for each class, in the order of the class values.",
        )


def _check_one_column(where: str, name: str, target: _Packed) -> None:
    classes = target.classes
    if fold(name) in _CATEGORICAL:
        raise CerebroError(
            f'the loss "{name}" needs one unit per class, but {where} has 1',
            hint=f"Give the last layer {classes} units with softmax, or use binary_crossentropy.",
        )
    if classes is not None and classes > 2:
        raise CerebroError(
            f"{where} is 1 wide, the packed table has {target.text}",
            hint=_QUANTITY.format(classes=classes),
        )


def _check_losses(params: CompileParams, names: list[str]) -> None:
    """Raise an error if the losses or their weights do not say which of the outputs they are for.

    Keras gives the weights of a dictionary to a list of losses by the alphabet, and finds the rest only when
    it trains.
    """
    loss, weights, count = params.loss, params.loss_weights, len(names)
    if isinstance(loss, dict) and loss.keys() != set(names):
        raise CerebroError(
            f"loss is a dictionary of {_listed(loss)}, and the architecture has {_listed(names)}",
            hint="Name each output of the architecture, with None for one that has no loss.",
        )
    if count == 1:
        losses = len(loss) if isinstance(loss, list) else 1
        if isinstance(weights, list) and len(weights) != losses:
            raise CerebroError(f"loss_weights has {len(weights)} weights for {losses} losses")
        return
    if isinstance(loss, list) and len(loss) != count:
        raise CerebroError(f"loss is a list of {len(loss)}, and the architecture has {count} outputs")
    if isinstance(loss, list | dict):
        # The keys of two dictionaries have been compared.
        by_name = isinstance(loss, dict) and isinstance(weights, dict)
        fits = by_name or (isinstance(weights, list) and len(weights) == count)
    else:
        fits = isinstance(weights, float)
    if weights is not None and not fits:
        raise CerebroError(
            f"loss_weights does not say which of the losses each weight is for: {weights!r}",
            hint="Give loss and loss_weights both as lists with an entry for each output, in the order"
            f" {', '.join(names)}, or both as dictionaries by these names.",
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _check_spread(what: str, spec: Any, names: list[str], *, decides: bool) -> None:
    """Raise an error if the metrics do not say which of several outputs they are for.

    Allowed as `spec` are a single metric, a list with one entry per output, and a dictionary by `names` of
    outputs. If the first metric `decides`, the dictionary must have their order: configs are compared by the
    first metric, which Keras takes from the first output. `what` is the argument of compile(), for example
    `metrics`.
    """
    count = len(names)
    if count == 1 or not spec or calls.is_for_each(spec):
        return
    metric = forms.first_name(spec)
    each = f"{what}=[{', '.join([f'[{metric!r}]'] * count)}]"
    named = f"{what}={{{', '.join(f'{name!r}: [{metric!r}]' for name in names)}}}"
    hint = f"Say which output each metric is for: {each}, or by name: {named}."
    if isinstance(spec, dict):
        strange = sorted(set(spec) - set(names))
        if strange:
            raise CerebroError(f"{what} names an output {strange[0]!r} that is not there", hint=hint)
        ordered = [name for name in names if name in spec]
        if decides and list(spec) != ordered:
            raise CerebroError(
                f"{what} names the outputs in the order {_listed(spec)}, the architecture has"
                f" {_listed(ordered)}",
                hint="Name them in the architecture's order: configs are compared by the first metric.",
            )
    elif len(spec) != count:
        raise CerebroError(
            f"{what} is a list of {len(spec)}, and the architecture has {count} outputs", hint=hint
        )


def _check_metrics(arch: DescribedModel, params: CompileParams, chosen: list[Any]) -> None:
    """Raise an error if a metric and the loss need labels in different forms: class indices or columns."""
    names = list(arch.output_names)
    for spec in (params.metrics, params.weighted_metrics):
        for number, metric in forms.metrics_per_output(spec, names):
            form = forms.of_output(chosen[number], (None, *arch.outputs[number]))
            wanted = forms.metric_wants(metric)
            if wanted is not None and form.name in (SPARSE, DENSE) and wanted != form.name:
                raise _mixed(loss_name(chosen[number]), loss_name(metric), wanted)


def _mixed(loss: str, metric: str, wanted: str) -> CerebroError:
    kinds = {SPARSE: "class indices", DENSE: "one column per class"}
    other = kinds[DENSE if wanted == SPARSE else SPARSE]
    return CerebroError(
        f'the metric "{metric}" wants labels as {kinds[wanted]}, the loss "{loss}" as {other}',
        hint="Use both with sparse_ or both without, or the metric accuracy, which fits either.",
    )


def _check_compiles(params: CompileParams, made: set[Compiled]) -> None:
    """Raise an error if Keras refuses the compile parameters; no model is built for this.

    Parameters are not checked again if `made` has equal ones, or ones that differ only in the value of the
    learning rate: Keras checks only its type.
    """
    compiled = params.compile_key(), type(params.optimizer.get("learning_rate"))
    if compiled not in made:
        calls.compile_arguments(params)
        made.add(compiled)


def loss_name(spec: Any) -> str:
    return spec if isinstance(spec, str) else str(getattr(spec, "name", spec))


def _text(shape: Shape) -> str:
    return "{" + ", ".join("any" if d is None else str(d) for d in shape) + "}"
