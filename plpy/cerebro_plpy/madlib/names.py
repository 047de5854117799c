"""Keras 3's built-in optimizers, schedules, losses and metrics, with their arguments.

The tables are written out here, so that a session that only checks parameters need not load Keras. A test
compares them with the installed Keras.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

REQUIRED: Final = "<required>"


@dataclass(frozen=True)
class Argument:
    """The values that an argument may have: its kind, range, choices and default.

    `above` and `below` exclude the bounds `low` and `high` themselves.
    """

    kind: str
    default: object = REQUIRED
    low: float | None = None
    high: float | None = None
    above: bool = False
    below: bool = False
    choices: tuple[str, ...] = ()
    optional: bool = False


Signature = dict[str, Argument]


def _number(default: object = REQUIRED, low: float | None = None, high: float | None = None) -> Argument:
    return Argument("number", default, low, high)


def _positive(default: object = REQUIRED) -> Argument:
    return Argument("number", default, 0.0, above=True)


def _optional(default: object = None, low: float | None = 0.0, *, above: bool = False) -> Argument:
    return Argument("number", default, low, above=above, optional=True)


def _fraction(default: object = REQUIRED) -> Argument:
    return Argument("number", default, 0.0, 1.0)


def _beta(default: float) -> Argument:
    return Argument("number", default, 0.0, 1.0, below=True)


def _integer(default: object = REQUIRED, low: int | None = 1) -> Argument:
    return Argument("integer", default, low, optional=default is None)


def _boolean(default: bool) -> Argument:
    return Argument("boolean", default)


def _choice(default: object, *choices: str) -> Argument:
    return Argument("choice", default, choices=choices, optional=default is None)


def _name(default: str | None = None) -> Argument:
    return Argument("name", default, optional=default is None)


AXIS: Final = Argument("integer", -1)
AXES: Final = Argument("integers", None, optional=True)
DTYPE: Final = _choice(None, "bfloat16", "float16", "float32", "float64")
# A loss must come out as one number, so Keras' "none" is not among them.
REDUCTION: Final = _choice(
    "sum_over_batch_size", "sum_over_batch_size", "sum", "mean", "mean_with_sample_weight"
)
COMMON: Final[Signature] = {
    "weight_decay": _optional(),
    "clipnorm": _optional(above=True),
    "clipvalue": _optional(above=True),
    "global_clipnorm": _optional(above=True),
    "use_ema": _boolean(False),
    "ema_momentum": _fraction(0.99),
    "ema_overwrite_frequency": _integer(None),
    "loss_scale_factor": _optional(above=True),
    "gradient_accumulation_steps": _integer(None, 2),
    "name": _name(),
}


def _optimizer(rate: float = 0.001, **own: Argument) -> Signature:
    return {"learning_rate": Argument("rate", rate, 0.0, above=True), **COMMON, **own}


def _adam(rate: float = 0.001, epsilon: float = 1e-7, **own: Argument) -> Signature:
    return _optimizer(
        rate, **{"beta_1": _beta(0.9), "beta_2": _beta(0.999), "epsilon": _number(epsilon, 0.0), **own}
    )


OPTIMIZERS: Final[dict[str, Signature]] = {
    "Adadelta": _optimizer(rho=_fraction(0.95), epsilon=_number(1e-7, 0.0)),
    "Adafactor": _optimizer(
        beta_2_decay=_number(-0.8, None, 0.0),
        epsilon_1=_number(1e-30, 0.0),
        epsilon_2=_number(0.001, 0.0),
        clip_threshold=_positive(1.0),
        relative_step=_boolean(True),
    ),
    "Adagrad": _optimizer(initial_accumulator_value=_number(0.1, 0.0), epsilon=_number(1e-7, 0.0)),
    "Adam": _adam(amsgrad=_boolean(False)),
    "AdamW": _adam(amsgrad=_boolean(False), weight_decay=_optional(0.004)),
    "Adamax": _adam(),
    "Ftrl": _optimizer(
        learning_rate_power=_number(-0.5, None, 0.0),
        initial_accumulator_value=_number(0.1, 0.0),
        l1_regularization_strength=_number(0.0, 0.0),
        l2_regularization_strength=_number(0.0, 0.0),
        l2_shrinkage_regularization_strength=_number(0.0, 0.0),
        beta=_number(0.0, 0.0),
    ),
    "Lamb": _adam(),
    "Lion": _optimizer(beta_1=_beta(0.9), beta_2=_beta(0.99)),
    "LossScaleOptimizer": {
        "inner_optimizer": Argument("optimizer"),
        "initial_scale": _positive(32768.0),
        "dynamic_growth_steps": _integer(2000),
        "name": _name(),
    },
    "Muon": _optimizer(
        adam_beta_1=_beta(0.9),
        adam_beta_2=_beta(0.999),
        adam_weight_decay=_optional(0.004),
        epsilon=_number(1e-7, 0.0),
        weight_decay=_optional(0.004),
        # Keras takes these for regular expressions; a pattern of a user's could run for ever.
        exclude_layers=Argument("names", None, optional=True),
        exclude_embeddings=_boolean(True),
        muon_a=_number(3.4445),
        muon_b=_number(-4.775),
        muon_c=_number(2.0315),
        adam_lr_ratio=_positive(1),
        momentum=_fraction(0.95),
        ns_steps=_integer(5),
        nesterov=_boolean(True),
        rms_rate=_optional(0.2),
    ),
    "Nadam": _adam(),
    "RMSprop": _optimizer(
        rho=_fraction(0.9), momentum=_fraction(0.0), epsilon=_number(1e-7, 0.0), centered=_boolean(False)
    ),
    "SGD": _optimizer(0.01, momentum=_fraction(0.0), nesterov=_boolean(False)),
    "ScheduleFreeAdamW": _adam(0.0025, 1e-8, warmup_steps=_integer(0, 0)),
}


def _schedule(name: str, **own: Argument) -> Signature:
    return {"initial_learning_rate": _number(low=0.0), **own, "name": _name(name)}


SCHEDULES: Final[dict[str, Signature]] = {
    "CosineDecay": _schedule(
        "CosineDecay",
        decay_steps=_integer(),
        alpha=_number(0.0, 0.0),
        warmup_target=_optional(),
        warmup_steps=_integer(0, 0),
    ),
    "CosineDecayRestarts": _schedule(
        "SGDRDecay",
        first_decay_steps=_integer(),
        t_mul=_positive(2.0),
        m_mul=_positive(1.0),
        alpha=_number(0.0, 0.0),
    ),
    "ExponentialDecay": _schedule(
        "ExponentialDecay", decay_steps=_integer(), decay_rate=_number(low=0.0), staircase=_boolean(False)
    ),
    "InverseTimeDecay": _schedule(
        "InverseTimeDecay", decay_steps=_integer(), decay_rate=_number(low=0.0), staircase=_boolean(False)
    ),
    "PiecewiseConstantDecay": {
        "boundaries": Argument("numbers", low=0.0),
        "values": Argument("numbers", low=0.0),
        "name": _name("PiecewiseConstant"),
    },
    "PolynomialDecay": _schedule(
        "PolynomialDecay",
        decay_steps=_integer(),
        end_learning_rate=_number(0.0001, 0.0),
        power=_positive(1.0),
        cycle=_boolean(False),
    ),
}


def _loss(name: str, **own: Argument) -> Signature:
    return {**own, "reduction": REDUCTION, "name": _name(name), "dtype": DTYPE}


def _crossentropy(name: str, **own: Argument) -> Signature:
    return _loss(name, from_logits=_boolean(False), label_smoothing=_fraction(0.0), axis=AXIS, **own)


LOSSES: Final[dict[str, Signature]] = {
    "BinaryCrossentropy": _crossentropy("binary_crossentropy"),
    "BinaryFocalCrossentropy": _crossentropy(
        "binary_focal_crossentropy",
        apply_class_balancing=_boolean(False),
        alpha=_fraction(0.25),
        gamma=_number(2.0, 0.0),
    ),
    "CTC": _loss("ctc"),
    "CategoricalCrossentropy": _crossentropy("categorical_crossentropy"),
    "CategoricalFocalCrossentropy": _crossentropy(
        "categorical_focal_crossentropy", alpha=_number(0.25, 0.0), gamma=_number(2.0, 0.0)
    ),
    "CategoricalGeneralizedCrossEntropy": _loss("categorical_generalized_cross_entropy", q=_fraction(0.5)),
    "CategoricalHinge": _loss("categorical_hinge"),
    "Circle": _loss("circle", gamma=_positive(80.0), margin=_number(0.4), remove_diagonal=_boolean(True)),
    "CosineSimilarity": _loss("cosine_similarity", axis=AXIS),
    "Dice": _loss("dice", axis=AXES),
    "Hinge": _loss("hinge"),
    "Huber": _loss("huber_loss", delta=_positive(1.0)),
    "KLDivergence": _loss("kl_divergence"),
    "LogCosh": _loss("log_cosh"),
    "MeanAbsoluteError": _loss("mean_absolute_error"),
    "MeanAbsolutePercentageError": _loss("mean_absolute_percentage_error"),
    "MeanSquaredError": _loss("mean_squared_error"),
    "MeanSquaredLogarithmicError": _loss("mean_squared_logarithmic_error"),
    "Poisson": _loss("poisson"),
    "SparseCategoricalCrossentropy": _loss(
        "sparse_categorical_crossentropy",
        from_logits=_boolean(False),
        ignore_class=_integer(None, None),
        axis=AXIS,
    ),
    "SquaredHinge": _loss("squared_hinge"),
    "Tversky": _loss("tversky", alpha=_number(0.5, 0.0), beta=_number(0.5, 0.0), axis=AXES),
}


# Losses that come with cerebro (engine/losses.py). They are metrics as well.
OWN_LOSSES: Final[dict[str, Signature]] = {
    "Quantile": _loss("quantile", tau=Argument("number", 0.5, 0.0, 1.0, above=True, below=True)),
    "WeightedBinaryCrossentropy": _loss(
        "weighted_binary_crossentropy", positive_weight=_positive(), from_logits=_boolean(False)
    ),
    "WeightedCategoricalCrossentropy": _loss(
        "weighted_categorical_crossentropy",
        class_weights=Argument("numbers", low=0.0),
        from_logits=_boolean(False),
    ),
}


def _metric(name: str | None = None, **own: Argument) -> Signature:
    return {"name": _name(name), "dtype": DTYPE, **own}


THRESHOLD: Final = Argument("number", None, 0.0, 1.0, optional=True)
CLASS: Final = _integer(None, 0)
COUNT: Final = _metric(thresholds=THRESHOLD)
HIT: Final = _metric(thresholds=THRESHOLD, top_k=_integer(None), class_id=CLASS)
AVERAGE: Final = Argument("choice", None, choices=("micro", "weighted", "macro"))
ONE_HOT_IOU: Final = _metric(
    num_classes=_integer(), ignore_class=_integer(None, None), sparse_y_pred=_boolean(False), axis=AXIS
)
IOU: Final[Signature] = {**ONE_HOT_IOU, "sparse_y_true": _boolean(True), "sparse_y_pred": _boolean(True)}
TARGETS: Final = Argument("integers", low=0)


def _at(other: str) -> Signature:
    return {**_metric(num_thresholds=_integer(200), class_id=CLASS), other: _fraction()}


METRICS: Final[dict[str, Signature]] = {
    "AUC": _metric(
        num_thresholds=_integer(200, 2),
        curve=_choice("ROC", "ROC", "PR"),
        summation_method=_choice("interpolation", "interpolation", "minoring", "majoring"),
        thresholds=Argument("numbers", None, 0.0, 1.0, optional=True),
        multi_label=_boolean(False),
        num_labels=_integer(None),
        label_weights=Argument("numbers", None, 0.0, optional=True),
        from_logits=_boolean(False),
    ),
    "Accuracy": _metric("accuracy"),
    "BinaryAccuracy": _metric("binary_accuracy", threshold=_fraction(0.5)),
    "BinaryCrossentropy": _metric(
        "binary_crossentropy", from_logits=_boolean(False), label_smoothing=_fraction(0)
    ),
    "BinaryIoU": _metric(target_class_ids=Argument("integers", (0, 1), 0.0, 1.0), threshold=_fraction(0.5)),
    "CategoricalAccuracy": _metric("categorical_accuracy"),
    "CategoricalCrossentropy": _metric(
        "categorical_crossentropy", from_logits=_boolean(False), label_smoothing=_fraction(0), axis=AXIS
    ),
    "CategoricalHinge": _metric("categorical_hinge"),
    "ConcordanceCorrelation": _metric("concordance_correlation", axis=AXIS),
    "CosineSimilarity": _metric("cosine_similarity", axis=AXIS),
    "F1Score": _metric("f1_score", average=AVERAGE, threshold=THRESHOLD),
    "FBetaScore": _metric("fbeta_score", average=AVERAGE, beta=_positive(1.0), threshold=THRESHOLD),
    "FalseNegatives": COUNT,
    "FalsePositives": COUNT,
    "Hinge": _metric("hinge"),
    "IoU": {**IOU, "target_class_ids": TARGETS},
    "KLDivergence": _metric("kl_divergence"),
    "LogCoshError": _metric("logcosh"),
    "MeanAbsoluteError": _metric("mean_absolute_error"),
    "MeanAbsolutePercentageError": _metric("mean_absolute_percentage_error"),
    "MeanIoU": IOU,
    "MeanSquaredError": _metric("mean_squared_error"),
    "MeanSquaredLogarithmicError": _metric("mean_squared_logarithmic_error"),
    "OneHotIoU": {**ONE_HOT_IOU, "target_class_ids": TARGETS},
    "OneHotMeanIoU": ONE_HOT_IOU,
    "PearsonCorrelation": _metric("pearson_correlation", axis=AXIS),
    "Poisson": _metric("poisson"),
    "Precision": HIT,
    "PrecisionAtRecall": _at("recall"),
    "R2Score": _metric(
        "r2_score",
        class_aggregation=Argument(
            "choice", "uniform_average", choices=("uniform_average", "variance_weighted_average")
        ),
        num_regressors=_integer(0, 0),
    ),
    "Recall": HIT,
    "RecallAtPrecision": _at("precision"),
    "RootMeanSquaredError": _metric("root_mean_squared_error"),
    "SensitivityAtSpecificity": _at("specificity"),
    "SparseCategoricalAccuracy": _metric("sparse_categorical_accuracy"),
    "SparseCategoricalCrossentropy": _metric(
        "sparse_categorical_crossentropy",
        from_logits=_boolean(False),
        ignore_class=_integer(None, None),
        axis=AXIS,
    ),
    "SparseTopKCategoricalAccuracy": _metric(
        "sparse_top_k_categorical_accuracy", k=_integer(5), from_sorted_ids=_boolean(False)
    ),
    "SpecificityAtSensitivity": _at("sensitivity"),
    "SquaredHinge": _metric("squared_hinge"),
    "TopKCategoricalAccuracy": _metric("top_k_categorical_accuracy", k=_integer(5)),
    "TrueNegatives": COUNT,
    "TruePositives": COUNT,
}
