"""Makes Keras objects from parsed calls, whose names must be listed here, cerebro's own, or registered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cerebro_plpy.engine import losses as losses_
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import custom
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.nearest import fold

if TYPE_CHECKING:
    from cerebro_plpy.madlib.literal import Call
    from cerebro_plpy.madlib.params import CompileParams


OPTIMIZERS = frozenset(
    "Adadelta Adafactor Adagrad Adam AdamW Adamax Ftrl Lamb Lion LossScaleOptimizer Muon Nadam "
    "RMSprop SGD ScheduleFreeAdamW".split()
)
SCHEDULES = frozenset(
    "CosineDecay CosineDecayRestarts ExponentialDecay InverseTimeDecay PiecewiseConstantDecay "
    "PolynomialDecay".split()
)
LOSSES = frozenset(
    "BinaryCrossentropy BinaryFocalCrossentropy CTC CategoricalCrossentropy "
    "CategoricalFocalCrossentropy CategoricalGeneralizedCrossEntropy CategoricalHinge Circle "
    "CosineSimilarity Dice Hinge Huber KLDivergence LogCosh MeanAbsoluteError "
    "MeanAbsolutePercentageError MeanSquaredError MeanSquaredLogarithmicError Poisson "
    "SparseCategoricalCrossentropy SquaredHinge Tversky".split()
)
METRICS = frozenset(
    "AUC Accuracy BinaryAccuracy BinaryCrossentropy BinaryIoU CategoricalAccuracy "
    "CategoricalCrossentropy CategoricalHinge ConcordanceCorrelation CosineSimilarity F1Score "
    "FBetaScore FalseNegatives FalsePositives Hinge IoU KLDivergence LogCoshError MeanAbsoluteError "
    "MeanAbsolutePercentageError MeanIoU MeanSquaredError MeanSquaredLogarithmicError OneHotIoU "
    "OneHotMeanIoU PearsonCorrelation Poisson Precision PrecisionAtRecall R2Score Recall "
    "RecallAtPrecision RootMeanSquaredError SensitivityAtSpecificity SparseCategoricalAccuracy "
    "SparseCategoricalCrossentropy SparseTopKCategoricalAccuracy SpecificityAtSensitivity "
    "SquaredHinge TopKCategoricalAccuracy TrueNegatives TruePositives".split()
)
_LOSS_ABBREVIATIONS = frozenset("mse mae mape msle bce kld ce crossentropy".split())
_METRIC_ABBREVIATIONS = _LOSS_ABBREVIATIONS | {"acc", "accuracy"}


def optimizer(call: Call) -> Any:
    """Return a new optimizer, made from a call such as `Adam(learning_rate=0.1)`."""
    return _instance(call, "optimizer", OPTIMIZERS, "optimizers")


def losses(spec: Any) -> Any:
    """Return the losses that `spec` names, in lists and dictionaries like those of `spec`, for compile()."""
    return _map(spec, _loss)


def metrics(spec: Any) -> Any:
    """Return the metrics that `spec` names, in lists and dictionaries like those of `spec`, for compile()."""
    return _map(spec, _metric)


def compile_arguments(params: CompileParams, outputs: int = 1) -> dict[str, Any]:
    """Return new arguments of model.compile() for a net with this number of outputs."""
    return {
        "optimizer": optimizer(params.optimizer),
        "loss": losses(params.loss),
        "loss_weights": params.loss_weights,
        "metrics": metrics(_for_each(params.metrics, outputs)),
        "weighted_metrics": metrics(_for_each(params.weighted_metrics, outputs)),
    }


def is_for_each(spec: Any) -> bool:
    """Return whether `spec` is a list of a single metric, which applies to each output, as in Keras 2."""
    return isinstance(spec, list | tuple) and len(spec) == 1 and not isinstance(spec[0], list | tuple)


def _for_each(spec: Any, outputs: int) -> Any:
    return [list(spec)] * outputs if outputs > 1 and is_for_each(spec) else spec


def _map(spec: Any, make: Callable[[Any], Any]) -> Any:
    if spec is None:
        return None
    if isinstance(spec, dict):
        return {key: _map(value, make) for key, value in spec.items()}
    if isinstance(spec, list | tuple):
        return [_map(value, make) for value in spec]
    return make(spec)


def _loss(spec: str | Call) -> Any:
    if isinstance(spec, str):
        return _name(spec, "loss", LOSSES, _LOSS_ABBREVIATIONS)
    if spec.function is not None:
        return custom.loss(spec)
    if losses_.is_own(spec):
        return losses_.loss(spec)
    return _instance(spec, "loss", LOSSES, "losses")


def _metric(spec: str | Call) -> Any:
    if isinstance(spec, str):
        return _name(spec, "metric", METRICS | LOSSES, _METRIC_ABBREVIATIONS)
    if spec.function is not None:
        return custom.metric(spec)
    if losses_.is_own(spec):
        return losses_.metric(spec)
    made = _instance(spec, "metric", METRICS, "metrics")
    if not any(key == "name" for key, _ in spec.kwargs):
        made.name = _without_counter(made)
    return made


def _without_counter(metric: Any) -> str:
    """Return a metric's name without the number by which Keras tells equal names in one process apart."""
    base = _snake(type(metric).__name__)
    return base if metric.name.removeprefix(base).lstrip("_").isdigit() else metric.name


def _snake(name: str) -> str:
    return runtime.keras().src.utils.naming.to_snake_case(name)


def _name(name: str, what: str, classes: frozenset[str], abbreviations: frozenset[str]) -> str:
    """Return a name of a loss or metric as Keras spells it.

    A spelling that Keras accepts is returned unchanged, since results are named by it.
    """
    if name.lower() in abbreviations:
        return name.lower()
    found = _find(name, what, classes)
    return name if name in (found, _snake(found)) else _snake(found)


def _find(name: str, what: str, classes: frozenset[str]) -> str:
    for candidate in classes:
        if fold(candidate) == fold(name):
            return candidate
    raise CerebroError(f'unknown {what} "{name}"', hint=f"Known names: {', '.join(sorted(classes))}.")


def _instance(call: Call, what: str, classes: frozenset[str], module: str) -> Any:
    found = _find(call.name, what, classes)
    holder = runtime.keras()
    for part in module.split("."):
        holder = getattr(holder, part)
    kwargs = {key: _argument(value) for key, value in call.kwargs}
    if module == "optimizers":
        # Its variables are found by their names in states of other sessions, also in those of a config that
        # gives it another name, and Keras would number it by how many a process has made.
        kwargs["name"] = _snake(found)
    try:
        return getattr(holder, found)(**kwargs)
    except Exception as error:
        raise CerebroError(
            f"cannot make the {what} {found}", detail=f"Keras says: {one_line(error)}"
        ) from error


def _argument(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_argument(item) for item in value]
    if not hasattr(value, "kwargs"):
        return value
    if fold(value.name) in map(fold, OPTIMIZERS):
        return optimizer(value)
    return _instance(value, "learning rate schedule", SCHEDULES, "optimizers.schedules")


def one_line(error: BaseException) -> str:
    """Return the message of a Keras error on one line of at most 600 characters."""
    # Keras wraps the reason in the whole config of the object that it could not make.
    text = str(error).rpartition("Exception encountered:")[2] or str(error)
    text = " ".join(text.split()) or type(error).__name__
    return text if len(text) <= 600 else text[:597] + "..."
