"""Evaluations of segments are merged to the metrics that Keras' evaluate computes on all rows at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import architecture, calls
from cerebro_plpy.engine.models import model
from cerebro_plpy.engine.models.data import INDEX, ONE_HOT, VALUE, Block, Dataset, Target, whole
from cerebro_plpy.engine.state import State
from cerebro_plpy.madlib.nearest import fold
from cerebro_plpy.madlib.params import Call, CompileParams

pytestmark = [
    pytest.mark.usefixtures("engine"),
    pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Explicitly requested dtype:UserWarning"),
]

CLASSES = 4
ROWS = 237
SGD = Call("SGD", ())


def call(name: str, /, **kwargs: Any) -> Call:
    return Call(name, tuple(kwargs.items()))


# One compiled model for all metrics that take the same labels keeps this quick.
CATEGORICAL: list[Any] = [
    "accuracy",
    "AUC",
    "auc",
    call("AUC", curve="PR", num_thresholds=50, name="pr"),
    call("AUC", multi_label=True, num_labels=CLASSES, name="each"),
    "BinaryAccuracy",
    "binary_crossentropy",
    "CategoricalAccuracy",
    "categorical_crossentropy",
    "CategoricalHinge",
    "ConcordanceCorrelation",
    "CosineSimilarity",
    call("F1Score", average="macro"),
    call("FBetaScore", average="micro", beta=2.0),
    "FalseNegatives",
    "FalsePositives",
    "Hinge",
    "KLDivergence",
    "LogCoshError",
    "mae",
    "mape",
    "mse",
    "msle",
    call("OneHotIoU", num_classes=CLASSES, target_class_ids=[0, 2]),
    call("OneHotMeanIoU", num_classes=CLASSES),
    call("BinaryIoU", threshold=0.3),
    "PearsonCorrelation",
    "Poisson",
    call("Precision", top_k=2),
    "Recall",
    call("PrecisionAtRecall", recall=0.4),
    call("RecallAtPrecision", precision=0.3),
    call("SensitivityAtSpecificity", specificity=0.5),
    call("SpecificityAtSensitivity", sensitivity=0.5),
    "RootMeanSquaredError",
    "R2Score",
    "SquaredHinge",
    call("TopKCategoricalAccuracy", k=2),
    "TrueNegatives",
    "TruePositives",
]
SPARSE: list[Any] = [
    "acc",
    "SparseCategoricalAccuracy",
    "sparse_categorical_crossentropy",
    call("SparseTopKCategoricalAccuracy", k=2),
    call("MeanIoU", num_classes=CLASSES, sparse_y_pred=False),
    call("IoU", num_classes=CLASSES, target_class_ids=[1], sparse_y_pred=False),
]
REGRESSION: list[Any] = [
    "Accuracy",
    "R2Score",
    "mae",
    "RootMeanSquaredError",
    "MeanSquaredLogarithmicError",
    "cosine_similarity",
]


def text_of(units: int, activation: str) -> str:
    keras = runtime.keras()
    layers = [keras.Input((6,)), keras.layers.Dense(units, activation=activation, kernel_regularizer="l2")]
    return architecture.describe(keras.Sequential(layers, name="net").to_json()).json


def rows_of(kind: str) -> Dataset:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(ROWS, 6)).astype(np.float32)
    labels = (x[:, :CLASSES] + rng.normal(size=(ROWS, CLASSES))).argmax(1)
    values = {
        ONE_HOT: np.eye(CLASSES, dtype=np.int16)[labels],
        INDEX: labels.astype(np.int32),
        VALUE: (x[:, :1] + 1).astype(np.float32),
    }
    return Dataset([x], [Target(values[kind], kind)])


def merged(text: str, params: CompileParams, dataset: Dataset, cuts: list[int]) -> dict[str, float]:
    """Evaluate a net on segments that end at `cuts`, and return the merged metrics.

    The segments' rows do not fill their last batches.
    """
    shared = model.compiled(text, params)
    state = shared.initial_state(params, 4, None)
    parts = []
    for rows in np.split(np.arange(ROWS), cuts):
        blocks = [Block(dataset, half) for half in np.array_split(rows, 2)]
        parts.append(shared.evaluate(state, blocks, 32, lambda: None))
    return shared.merge(parts)


def plain(text: str, params: CompileParams, y: np.ndarray, x: np.ndarray) -> dict[str, float]:
    keras = runtime.keras()
    keras.utils.set_random_seed(4)
    made = keras.models.model_from_json(text)
    made.compile(**calls.compile_arguments(params))
    found = made.evaluate(x, y, batch_size=32, verbose=0, return_dict=True)
    return {name: float(np.mean(value)) for name, value in found.items()}


def assert_same(found: dict[str, float], expected: dict[str, float]) -> None:
    assert set(found) == set(expected)
    assert next(iter(found)) == "loss"
    for name, value in expected.items():
        # With several outputs Keras on TensorFlow counts the last, smaller batch in full in each one's loss.
        exact = not name.endswith("_loss") or runtime.backend() != "tensorflow"
        tolerance = 1e-5 if exact else 0.05
        assert found[name] == pytest.approx(value, rel=tolerance, abs=1e-5), name


@pytest.mark.parametrize("kind", [ONE_HOT, pytest.param(INDEX, marks=pytest.mark.slow)])
def test_metrics_over_one_column_per_class(kind: str) -> None:
    params = CompileParams(SGD, "categorical_crossentropy", CATEGORICAL)
    text, dataset = text_of(CLASSES, "softmax"), rows_of(kind)
    y = rows_of(ONE_HOT).targets[0].values.astype(np.float32)
    expected = plain(text, params, y, dataset.inputs[0])
    assert_same(merged(text, params, dataset, [50, 51, 200]), expected)


@pytest.mark.parametrize("kind", [ONE_HOT, INDEX])
def test_metrics_over_class_indices(kind: str) -> None:
    params = CompileParams(SGD, "sparse_categorical_crossentropy", SPARSE)
    text, dataset = text_of(CLASSES, "softmax"), rows_of(kind)
    expected = plain(text, params, rows_of(INDEX).targets[0].values, dataset.inputs[0])
    assert_same(merged(text, params, dataset, [100]), expected)


def test_metrics_of_a_regression() -> None:
    params = CompileParams(SGD, "mse", REGRESSION)
    text, dataset = text_of(1, "linear"), rows_of(VALUE)
    expected = plain(text, params, dataset.targets[0].values, dataset.inputs[0])
    assert_same(merged(text, params, dataset, [10, 150]), expected)


def test_names_do_not_depend_on_what_the_process_did_before() -> None:
    params = CompileParams(SGD, "mse", [call("AUC"), call("R2Score"), call("MeanIoU", num_classes=2)])
    for _ in range(2):
        names = [metric.name for metric in calls.metrics(params.metrics)]
        assert names == ["auc", "r2_score", "mean_io_u"]


def two_outputs() -> str:
    keras = runtime.keras()
    inputs = keras.Input((6,), name="x")
    hidden = keras.layers.Dense(5)(inputs)
    one = keras.layers.Dense(CLASSES, activation="softmax", name="one")(hidden)
    two = keras.layers.Dense(1, name="two")(hidden)
    return architecture.describe(keras.Model(inputs, [one, two]).to_json()).json


@pytest.mark.parametrize(
    ("losses", "metrics"),
    [
        (["categorical_crossentropy", "mse"], [["accuracy"], ["mae"]]),
        ({"one": "categorical_crossentropy", "two": "mse"}, {"two": ["mae", "mse"]}),
    ],
)
def test_several_outputs(losses: Any, metrics: Any) -> None:
    params = CompileParams(SGD, losses, metrics)
    first, second = rows_of(ONE_HOT), rows_of(VALUE)
    dataset = Dataset(first.inputs, [*first.targets, *second.targets])
    keras, text = runtime.keras(), two_outputs()
    keras.utils.set_random_seed(4)
    made = keras.models.model_from_json(text)
    made.compile(**calls.compile_arguments(params))
    y = [first.targets[0].values.astype(np.float32), second.targets[0].values]
    expected = made.evaluate(first.inputs[0], y, batch_size=32, verbose=0, return_dict=True)
    assert_same(merged(text, params, dataset, [70]), expected)
    shared = model.compiled(text, params)
    state: State = shared.initial_state(params, 4, None)
    trained, logs = shared.train(state, [[whole(dataset)]], 32, None, lambda: None, rows=ROWS)
    assert logs["loss"] > 0
    assert trained.step == -(-ROWS // 32)


def test_every_metric_of_keras_was_tried() -> None:
    tried = [spec if isinstance(spec, str) else spec.name for spec in CATEGORICAL + SPARSE + REGRESSION]
    known = {fold(name) for name in tried}
    short = {"mae": "meanabsoluteerror", "mse": "meansquarederror", "mape": "meanabsolutepercentageerror"}
    known |= {short.get(name, name) for name in known} | {"meansquaredlogarithmicerror"}
    assert {fold(name) for name in calls.METRICS} - known == set()
