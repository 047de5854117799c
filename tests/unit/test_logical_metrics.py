"""Whether larger or smaller values of each metric are better, compared with a list in this file."""

from __future__ import annotations

import math

import pytest

from cerebro_plpy.logical.metrics import better, direction, standing
from cerebro_plpy.madlib.names import METRICS
from cerebro_plpy.madlib.params import parse_compile
from cerebro_plpy.madlib.spellings import METRIC_TEXTS, OLD_METRICS, snake

DIRECTIONS = {
    "AUC": "max",
    "Accuracy": "max",
    "BinaryAccuracy": "max",
    "BinaryCrossentropy": "min",
    "BinaryIoU": "max",
    "CategoricalAccuracy": "max",
    "CategoricalCrossentropy": "min",
    "CategoricalHinge": "min",
    "ConcordanceCorrelation": "max",
    "CosineSimilarity": "max",
    "F1Score": "max",
    "FBetaScore": "max",
    "FalseNegatives": "min",
    "FalsePositives": "min",
    "Hinge": "min",
    "IoU": "max",
    "KLDivergence": "min",
    "LogCoshError": "min",
    "MeanAbsoluteError": "min",
    "MeanAbsolutePercentageError": "min",
    "MeanIoU": "max",
    "MeanSquaredError": "min",
    "MeanSquaredLogarithmicError": "min",
    "OneHotIoU": "max",
    "OneHotMeanIoU": "max",
    "PearsonCorrelation": "max",
    "Poisson": "min",
    "Precision": "max",
    "PrecisionAtRecall": "max",
    "R2Score": "max",
    "Recall": "max",
    "RecallAtPrecision": "max",
    "RootMeanSquaredError": "min",
    "SensitivityAtSpecificity": "max",
    "SparseCategoricalAccuracy": "max",
    "SparseCategoricalCrossentropy": "min",
    "SparseTopKCategoricalAccuracy": "max",
    "SpecificityAtSensitivity": "max",
    "SquaredHinge": "min",
    "TopKCategoricalAccuracy": "max",
    "TrueNegatives": "max",
    "TruePositives": "max",
}


def test_every_metric_has_its_direction_here() -> None:
    assert set(DIRECTIONS) == set(METRICS)


@pytest.mark.parametrize("class_name", DIRECTIONS)
def test_every_name_that_keras_may_report(class_name: str) -> None:
    texts = [text for text, name in METRIC_TEXTS.items() if name == class_name]
    default = METRICS[class_name]["name"].default or snake(class_name)
    for name in [*texts, str(default), snake(class_name)]:
        for form in (
            name,
            f"val_{name}",
            f"{name}_1",
            f"out_{name}",
            f"val_out_2_{name}_12",
            f"weighted_{name}",
        ):
            assert better(form) == DIRECTIONS[class_name], form


@pytest.mark.parametrize("name", ["loss", "val_loss", "out_loss", "hinge_2_loss", "out_huber", "something"])
def test_losses_and_what_says_nothing_go_down(name: str) -> None:
    assert better(name) == "min"


@pytest.mark.parametrize("name", ["top_3_accuracy", "my_custom_accuracy", "my_score", "f1", "iou"])
def test_names_of_ones_own_that_speak(name: str) -> None:
    assert better(name) == "max"


def test_names_of_ones_own_that_only_the_parameters_explain() -> None:
    params = parse_compile(
        "loss=['mse', 'mae'], metrics=[[AUC(name='area')], [FalsePositives(name='precision_slips')]],"
        "weighted_metrics={'b': [Recall(name='hits')]}"
    )
    assert better("area") == "min"
    assert [better(name, params) for name in ("area", "val_a_area_1", "hits")] == ["max"] * 3
    assert better("precision_slips", params) == "min"


def test_old_names_go_the_way_of_the_new() -> None:
    for new in OLD_METRICS.values():
        assert better(new) == DIRECTIONS[METRIC_TEXTS[new]]


@pytest.mark.parametrize(
    "metric, loss, place",
    [
        (0.9, 0.5, (-0.9, 0.5)),
        (None, 0.5, (0.5, 0.5)),
        (0.9, None, (-0.9, math.inf)),
        (0.9, math.nan, (math.inf, math.inf)),
        (0.9, math.inf, (math.inf, math.inf)),
        (math.nan, 0.5, (math.inf, 0.5)),
    ],
)
def test_a_config_whose_loss_is_no_number_comes_last(
    metric: float | None, loss: float | None, place: tuple[float, float]
) -> None:
    params = parse_compile("optimizer='sgd', loss='mse', metrics=['accuracy']")
    assert standing(params, metric, loss) == place


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        # Keras' results name these like losses, so the accuracy decides.
        ("[MeanSquaredError(name='mse_loss'), 'accuracy']", "max"),
        ("['accuracy', MeanSquaredError(name='mse_loss')]", "max"),
        ("[MeanSquaredError(name='mse_loss')]", "min"),
        ("['mae', 'accuracy']", "min"),
    ],
)
def test_what_is_named_like_a_loss_does_not_decide(metrics: str, expected: str) -> None:
    assert direction(parse_compile(f"optimizer='sgd', loss='mse', metrics={metrics}")) == expected
