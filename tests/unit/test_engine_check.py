from __future__ import annotations

from typing import Any

import pytest

from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import architecture, calls
from cerebro_plpy.engine.checks.check import Compiled, check_config
from cerebro_plpy.engine.models.data import INDEX, ONE_HOT, VALUE
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.madlib.params import Call, CompileParams

pytestmark = pytest.mark.usefixtures("engine")

CROSS = "categorical_crossentropy"
SPARSE = "sparse_categorical_crossentropy"


def check(units: int, loss: Any, metrics: Any, shape: tuple[int, ...], kind: str, **other: Any) -> None:
    keras = runtime.keras()
    made = keras.Sequential([keras.Input((6,)), keras.layers.Dense(units)], name="net")
    params = CompileParams(other.pop("optimizer", Call("Adam", ())), loss, metrics)
    inputs = other.pop("inputs", ((6,),))
    nulls = other.pop("null_classes", (False,))
    known = other.pop("made", None)
    check_config(architecture.describe(made.to_json()), params, inputs, (shape,), (kind,), nulls, known)


@pytest.mark.parametrize(
    ("units", "loss", "metrics", "shape", "kind"),
    [
        (3, CROSS, ["accuracy", "AUC"], (3,), ONE_HOT),
        (3, SPARSE, ["accuracy", "sparse_categorical_accuracy"], (3,), ONE_HOT),
        (5, SPARSE, ["acc"], (3,), ONE_HOT),
        (3, Call("CategoricalCrossentropy", (("label_smoothing", 0.1),)), [Call("AUC", ())], (3,), INDEX),
        (1, "binary_crossentropy", ["accuracy"], (2,), ONE_HOT),
        (2, "binary_crossentropy", ["accuracy"], (2,), ONE_HOT),
        (1, "mse", ["mae"], (1,), VALUE),
        (4, "huber", None, (4,), VALUE),
    ],
)
def test_what_fits_is_accepted(
    units: int, loss: Any, metrics: Any, shape: tuple[int, ...], kind: str
) -> None:
    check(units, loss, metrics, shape, kind)


@pytest.mark.parametrize(
    ("units", "loss", "metrics", "shape", "kind", "message"),
    [
        (4, CROSS, None, (3,), ONE_HOT, "is 4 wide, the packed table has 3 classes"),
        (2, SPARSE, None, (3,), ONE_HOT, "is 2 wide, the packed table has 3 classes"),
        (1, CROSS, None, (2,), ONE_HOT, "needs one unit per class"),
        (1, "binary_crossentropy", None, (3,), ONE_HOT, "is 1 wide, the packed table has 3 classes"),
        (3, SPARSE, None, (1,), VALUE, "needs class labels"),
        (2, "mse", None, (3,), VALUE, "targets have shape"),
        (3, CROSS, ["sparse_categorical_accuracy"], (3,), ONE_HOT, "wants labels as class indices"),
        (3, SPARSE, ["AUC"], (3,), ONE_HOT, "wants labels as one column per class"),
        (3, "nosuch", None, (3,), ONE_HOT, 'unknown loss "nosuch"'),
        (3, CROSS, ["nosuch"], (3,), ONE_HOT, 'unknown metric "nosuch"'),
        (3, CROSS, [Call("AUC", (("nosuch", 1),))], (3,), ONE_HOT, "cannot make the metric AUC"),
    ],
)
def test_what_does_not_fit_is_one_clear_error(
    units: int, loss: Any, metrics: Any, shape: tuple[int, ...], kind: str, message: str
) -> None:
    with pytest.raises(CerebroError, match=message):
        check(units, loss, metrics, shape, kind)


def test_the_shape_of_the_input_must_fit() -> None:
    with pytest.raises(CerebroError, match=r"has shape \{6\}, the packed table has shape \{2, 3\}"):
        check(3, CROSS, None, (3,), ONE_HOT, inputs=((2, 3),))


def test_the_number_of_inputs_must_fit() -> None:
    with pytest.raises(CerebroError, match="has 1 inputs, the packed table has 2"):
        check(3, CROSS, None, (3,), ONE_HOT, inputs=((6,), (6,)))


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (Call("Nosuch", ()), 'unknown optimizer "Nosuch"'),
        (Call("Adam", (("nosuch", 1),)), "cannot make the optimizer Adam"),
        (Call("Adam", (("learning_rate", Call("Nosuch", ())),)), "unknown learning rate schedule"),
    ],
)
def test_optimizers_must_be_known(optimizer: Call, message: str) -> None:
    with pytest.raises(CerebroError, match=message):
        check(3, CROSS, None, (3,), ONE_HOT, optimizer=optimizer)


def test_configs_that_differ_in_a_learning_rate_are_made_once() -> None:
    made: set[Compiled] = set()
    for rate in (0.1, 0.2):
        check(3, CROSS, None, (3,), ONE_HOT, optimizer=adam(rate), made=made)
    assert len(made) == 1
    with pytest.raises(CerebroError, match="cannot make the optimizer Adam"):
        check(3, CROSS, None, (3,), ONE_HOT, optimizer=adam("fast"), made=made)
    with pytest.raises(CerebroError, match="cannot make the optimizer Adam"):
        check(3, CROSS, None, (3,), ONE_HOT, optimizer=adam(0.1, clipnorm=1.0, clipvalue=1.0), made=made)


def adam(rate: float | str, **others: float) -> Call:
    return Call("Adam", (("learning_rate", rate), *others.items()))


@pytest.mark.parametrize("name", ["mine", None])
def test_an_optimizer_has_the_usual_name_by_which_its_variables_are_found(name: str | None) -> None:
    made = [calls.optimizer(Call("ScheduleFreeAdamW", (("name", name),))).name for _ in range(2)]
    assert made == ["schedule_free_adam_w"] * 2


def two_outputs(metrics: Any, loss: Any = CROSS, weights: Any = None) -> None:
    keras = runtime.keras()
    given = keras.Input((6,))
    outputs = [keras.layers.Dense(3, name="kind")(given), keras.layers.Dense(2, name="size")(given)]
    made = keras.Model(given, outputs, name="net")
    params = CompileParams(Call("Adam", ()), loss, metrics, weights)
    check_config(architecture.describe(made.to_json()), params, ((6,),), ((3,), (2,)), (ONE_HOT, ONE_HOT))


def test_one_metric_alone_is_for_each_output() -> None:
    two_outputs(["categorical_accuracy"])
    with pytest.raises(CerebroError, match='the metric "sparse_categorical_accuracy" wants labels as'):
        two_outputs(["sparse_categorical_accuracy"])


def test_metrics_of_a_net_with_two_outputs_say_which_they_are_for() -> None:
    two_outputs(None)
    two_outputs([["categorical_accuracy"], ["categorical_accuracy"]])
    two_outputs({"kind": ["categorical_accuracy"]})
    with pytest.raises(CerebroError) as caught:
        two_outputs(["categorical_accuracy", "mse", "mae"])
    assert caught.value.message == "metrics is a list of 3, and the architecture has 2 outputs"
    assert "metrics=[['categorical_accuracy'], ['categorical_accuracy']]" in (caught.value.hint or "")
    assert "{'kind': ['categorical_accuracy'], 'size': ['categorical_accuracy']}" in (caught.value.hint or "")
    with pytest.raises(CerebroError, match="names an output 'colour' that is not there"):
        two_outputs({"colour": ["accuracy"]})


def test_metrics_by_name_stand_in_the_order_of_the_outputs_since_the_first_decides() -> None:
    two_outputs({"kind": ["mse"], "size": ["accuracy"]})
    with pytest.raises(CerebroError, match="metrics names the outputs in the order 'size', 'kind', the arch"):
        two_outputs({"size": ["mse"], "kind": ["accuracy"]})


def test_losses_and_their_weights_say_which_outputs_they_are_for() -> None:
    by_name = {"kind": CROSS, "size": CROSS}
    for loss, weights in [
        (CROSS, 0.5),
        ([CROSS, None], None),
        ([CROSS, CROSS], [1.0, 0.5]),
        (by_name, {"size": 0.5, "kind": 1.0}),
        (by_name, [1.0, 0.5]),
    ]:
        two_outputs(None, loss, weights)
    for loss, weights in [
        (CROSS, [1.0, 0.5]),
        ([CROSS, CROSS], {"kind": 1.0, "size": 0.5}),
        ([CROSS, CROSS], 0.5),
        (by_name, [0.5]),
    ]:
        with pytest.raises(CerebroError, match="loss_weights does not say which of the losses"):
            two_outputs(None, loss, weights)
    with pytest.raises(CerebroError, match="loss is a dictionary of 'kind', and the architecture has"):
        two_outputs(None, {"kind": CROSS})
    with pytest.raises(CerebroError, match="loss is a list of 3, and the architecture has 2 outputs"):
        two_outputs(None, [CROSS] * 3)


def test_float_labels_under_a_loss_for_classes_are_told_of_num_classes() -> None:
    with pytest.raises(CerebroError) as caught:
        check(3, CROSS, None, (1,), VALUE)
    assert "num_classes => ARRAY[3]" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("units", "loss", "hint"),
    [
        (4, CROSS, "Give the last layer 3 units, or pack the table with num_classes => ARRAY[4]."),
        (2, CROSS, "Give the last layer 3 units."),
        (
            1,
            "mse",
            'Give the last layer 3 units. If the labels are quantities, pack them as such: options {"task',
        ),
        (1, SPARSE, "Give the last layer 3 units. If the labels are quantities"),
    ],
)
def test_a_net_of_another_width_is_told_what_would_do(units: int, loss: str, hint: str) -> None:
    with pytest.raises(CerebroError) as caught:
        check(units, loss, None, (3,), ONE_HOT)
    assert str(caught.value.hint).startswith(hint)


def test_a_class_that_is_null_is_named() -> None:
    with pytest.raises(CerebroError, match="3 wide, the packed table has 4 classes, one of them NULL"):
        check(3, CROSS, None, (4,), ONE_HOT, null_classes=(True,))
