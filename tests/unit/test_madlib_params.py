"""Compile and fit parameters are read or raise CerebroError, nothing else."""

# ruff: noqa: E501

from __future__ import annotations

import json
from typing import cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.madlib.callbacks import left_out
from cerebro_plpy.madlib.literal import MAX_LENGTH, Value, read_arguments, read_value
from cerebro_plpy.madlib.names import LOSSES, METRICS, OPTIMIZERS, SCHEDULES
from cerebro_plpy.madlib.params import Call, CompileParams, FitParams, parse_compile, parse_fit
from cerebro_plpy.madlib.spaces.render import deduplicate, render_row, render_value
from cerebro_plpy.madlib.spellings import LOSS_TEXTS, METRIC_TEXTS

FUZZ = settings(max_examples=150, derandomize=True, deadline=None)


def optimizer(text: str) -> Call:
    return parse_compile(f"loss='mse', optimizer={text}").optimizer


def refused(text: str) -> CerebroError:
    with pytest.raises(CerebroError) as caught:
        parse_compile(text)
    assert caught.value.message.startswith("Compile param check failed for: ")
    return caught.value


def refused_fit(text: str) -> CerebroError:
    with pytest.raises(CerebroError) as caught:
        parse_fit(text)
    assert caught.value.message.startswith("Fit param check failed for: ")
    return caught.value


def test_madlibs_own_example() -> None:
    params = parse_compile("optimizer='Adam(lr=0.001)',loss='categorical_crossentropy',metrics=['accuracy']")
    assert params == CompileParams(
        Call("Adam", (("learning_rate", 0.001),)), "categorical_crossentropy", ["accuracy"]
    )
    assert parse_fit("batch_size=8,epochs=1") == FitParams(8, 1, True, None)


@pytest.mark.parametrize(
    "text",
    [
        "'Adam(lr=0.1)'", "Adam(lr=0.1)", "'adam(learning_rate=0.1)'", "ADAM(lr=+0.1)",
        '"Adam( lr = 1e-1 )"', "'Adam(lr=0.1, decay=0.0)'", "'Adam(lr=0.1, epsilon=None)'",
    ],
)  # fmt: skip
def test_spellings_of_one_optimizer(text: str) -> None:
    assert optimizer(text) == Call("Adam", (("learning_rate", 0.1),))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("'sgd'", "SGD"),
        ("SGD()", "SGD"),
        ("'rmsprop'", "RMSprop"),
        ("adamw", "AdamW"),
        ("'Adamw()'", "AdamW"),
    ],
)
def test_names_of_optimizers_in_any_case(text: str, name: str) -> None:
    assert optimizer(text) == Call(name)


def test_optimizer_is_rmsprop_unless_required() -> None:
    assert parse_compile("loss='mse'").optimizer == Call("RMSprop")
    with pytest.raises(CerebroError, match="optimizer is a required parameter for compile"):
        parse_compile("loss='mse'", require_optimizer=True)


def test_false_is_false() -> None:
    assert optimizer("'Adam(amsgrad=False)'").get("amsgrad") is False
    assert optimizer("'SGD(nesterov=True, momentum=1)'").get("momentum") == 1.0


@pytest.mark.parametrize("quote", ["", "'"])
def test_schedule_in_a_quoted_or_a_bare_call(quote: str) -> None:
    schedule = "ExponentialDecay(initial_learning_rate=0.1, decay_steps=100, decay_rate=0.9)"
    call = optimizer(f"{quote}SGD(learning_rate={schedule}, momentum=0.9){quote}")
    rate = Call(
        "ExponentialDecay", (("decay_rate", 0.9), ("decay_steps", 100), ("initial_learning_rate", 0.1))
    )
    assert call == Call("SGD", (("learning_rate", rate), ("momentum", 0.9)))


def test_decay_of_keras_2_is_inverse_time_decay() -> None:
    rate = optimizer("'RMSprop(lr=0.0001, decay=1e-6)'").get("learning_rate")
    assert rate == Call(
        "InverseTimeDecay", (("decay_rate", 1e-6), ("decay_steps", 1), ("initial_learning_rate", 0.0001))
    )
    default = optimizer("SGD(decay=0.5)").get("learning_rate")
    assert isinstance(default, Call) and default.get("initial_learning_rate") == 0.01


def test_losses_and_metrics_in_every_form() -> None:
    params = parse_compile(
        "loss=BinaryCrossentropy(from_logits=True), metrics=['mse', \"AUC(num_thresholds=50)\", Recall(name='r')]"
    )
    assert params.loss == Call("BinaryCrossentropy", (("from_logits", True),))
    auc = Call("AUC", (("name", "auc"), ("num_thresholds", 50)))
    assert params.metrics == ["mse", auc, Call("Recall", (("name", "r"),))]
    several = parse_compile(
        "loss={'a': 'mse', 'b': Huber(delta=2)}, loss_weights={'b': 1, 'a': 0.5},"
        "metrics={'a': 'mae', 'b': ['mse', 'mae']}, weighted_metrics=[['acc'], None]"
    )
    assert several.loss == {"a": "mse", "b": Call("Huber", (("delta", 2.0),))}
    assert several.metrics == {"a": ["mae"], "b": ["mse", "mae"]}
    assert several.loss_weights == {"a": 0.5, "b": 1.0}
    assert several.weighted_metrics == [["acc"], None]
    listed = parse_compile("loss=['mse', 'mae'], loss_weights=[1, 2], metrics='acc'")
    assert (listed.loss, listed.loss_weights, listed.metrics) == (["mse", "mae"], [1.0, 2.0], ["acc"])


def test_unnamed_metrics_get_the_name_that_keras_gives_the_first_of_its_kind() -> None:
    params = parse_compile("loss='mse', metrics=[AUC(), MeanIoU(num_classes=3), CategoricalAccuracy()]")
    assert params.metrics == [
        Call("AUC", (("name", "auc"),)),
        Call("MeanIoU", (("name", "mean_io_u"), ("num_classes", 3))),
        Call("CategoricalAccuracy"),
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [("kullback_leibler_divergence", "kl_divergence"), ("cosine_proximity", "cosine_similarity")],
)
def test_old_names(old: str, new: str) -> None:
    params = parse_compile(f"loss='{old}', metrics=['{old}', 'kld']")
    assert (params.loss, params.metrics) == (new, [new, "kl_divergence"])


def test_every_name_of_the_tables_is_taken() -> None:
    for name in set(OPTIMIZERS) - {"LossScaleOptimizer"}:
        assert optimizer(f"'{name}()'") == Call(name)
    assert optimizer("LossScaleOptimizer(inner_optimizer=adam)").get("inner_optimizer") == Call("Adam")
    for name in LOSS_TEXTS:
        assert parse_compile(f"loss='{name}'").loss == name
    for name in LOSSES:
        assert parse_compile(f"loss={name}()").loss == Call(name)
    needy = {"F1Score", "FBetaScore", *(n for n in METRICS if "IoU" in n or "At" in n)} - {"BinaryIoU"}
    for name, class_name in METRIC_TEXTS.items():
        if class_name not in needy:
            assert parse_compile(f"loss='mse', metrics=['{name}']").metrics == [name]
    for name in set(SCHEDULES) - {
        "PiecewiseConstantDecay",
        "CosineDecayRestarts",
        "CosineDecay",
        "PolynomialDecay",
    }:
        text = f"SGD(learning_rate={name}(initial_learning_rate=1, decay_steps=2, decay_rate=0.5))"
        assert optimizer(text).get("learning_rate") is not None


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("loss='mse', optimizer='Adma()'", "invalid optimizer name: Adma", "Adam"),
        ("loss='mse', optimizer=Adam(learningrate=1)", "no argument learningrate", "learning_rate"),
        (
            "loss='categorical_crosentropy'",
            "unknown loss categorical_crosentropy",
            "categorical_crossentropy",
        ),
        ("loss='mse', metrics=['acuracy']", "unknown metric acuracy", "accuracy"),
        ("loss='mse', metrics=[AUC(thresholdz=[1])]", "no argument thresholdz", "thresholds"),
        ("loss='mse', optimizer=SGD(lr=ExponentialDcay())", "schedule ExponentialDcay", "ExponentialDecay"),
        ("los='mse'", "los is not currently accepted as a parameter", "loss"),
    ],
)
def test_unknown_names_come_with_the_nearest(text: str, words: str, hint: str) -> None:
    error = refused(text)
    assert words in error.message
    assert error.hint == f'Did you mean "{hint}"?'
    assert error.detail is not None and hint in error.detail


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("optimizer='adam'", "loss is a required parameter for compile"),
        ("", "loss is a required parameter for compile"),
        ("loss='mse', optimizer='Adam(lr=0)'", "learning_rate is 0"),
        ("loss='mse', optimizer='Adam(lr=1e999)'", "learning_rate is inf"),
        ("loss='mse', optimizer='Adam(lr=True)'", "learning_rate is True"),
        ("loss='mse', optimizer='Adam(amsgrad=1)'", "amsgrad is 1"),
        ("loss='mse', optimizer='Adam(lr=0.1, learning_rate=0.1)'", "both lr and learning_rate"),
        ("loss='mse', optimizer='SGD(clipnorm=1, clipvalue=1)'", "more than one of clipnorm, clipvalue"),
        ("loss='mse', optimizer='SGD(momentum=1.5)'", "momentum is 1.5"),
        ("loss='mse', optimizer='Adam(0.1)'", "malformed parameters"),
        ("loss='mse', metrics=['f1_score']", "F1Score needs the argument average"),
        ("loss='mse', metrics=[IoU(num_classes=2)]", "lacks the argument target_class_ids"),
        ("loss='mse', sample_weight_mode='temporal'", "sample_weight_mode is not supported"),
        ("loss='mse', loss='mae'", "malformed parameters"),
        ("loss=[None]", "names no loss at all"),
        ("loss={'a': 'mse'}, loss_weights={'b': 1}", "loss_weights is ['b']"),
        ("loss='mse', metrics=[AUC(name='a; DROP TABLE t')]", "name is a; DROP TABLE t"),
        ("loss='mse', optimizer=SGD(lr=PiecewiseConstantDecay(boundaries=[1], values=[1]))", "1 boundaries"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    assert words in refused(text).message


@pytest.mark.parametrize(
    "text",
    [
        "loss=__import__('os').system('id')", "loss='mse') or print('x'", "loss=lambda: 1", "loss=[x for x in 'a']",
        "loss=open", "loss=f'{1}'", "loss=b'mse'", "loss=...", "loss=1 + 1", "loss=-'a'", "loss=~1", "loss=x.y",
        "loss={**{}}", "**{'loss': 'mse'}", "*['a']", "loss=(yield)", "loss=(a := 1)", "loss='mse' if 1 else 2",
        "loss='mse'\x00", "loss='m\ud800se'", "loss=" + "[" * 300, "loss=" + "-" * 5000 + "1", "loss=" + "9" * 9999,
        "loss='" + "a" * MAX_LENGTH + "'", "'; DROP TABLE users; --", "optimizer=(((((((((((((())))))))))))))",
    ],
)  # fmt: skip
def test_nothing_is_evaluated(text: str) -> None:
    error = refused(text)
    assert len(error.message) < 1000


def test_fit_parameters() -> None:
    text = "batch_size=16, epochs=2, shuffle=False, class_weight={0: 1, 1: 2.5}, verbose=2, callbacks=None"
    assert parse_fit(text) == FitParams(16, 2, False, {0: 1.0, 1: 2.5})
    assert parse_fit("") == FitParams(32, 1, True, None)
    assert parse_fit("class_weight='balanced'").class_weight == "balanced"
    several = parse_fit("class_weight={'kind': 'balanced', 'size': {0: 2}}").class_weight
    assert several == {"kind": "balanced", "size": {0: 2.0}}
    assert parse_fit("validation_split=0.0, steps_per_epoch=None, initial_epoch=0") == FitParams()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("batch_size=0", "batch_size is 0"), ("batch_size=2.0", "batch_size is 2.0"), ("epochs=-1", "epochs is -1"),
        ("epochs=True", "epochs is True"), ("shuffle='True'", "shuffle is True"), ("batch_size='bar'", "is bar"),
        ("class_weight={0: -1}", "class_weight[0] is -1"),
        ("class_weight='even'", "class_weight is even"), ("class_weight={'a': {'b': 1}}", "a key of class_weight['a'] is b"),
        ("class_weight={'a': 1}", "a key of class_weight is a"),
        ("class_weight=[1]", "class_weight is [1]"), ("batchsize=3", "batchsize is not currently accepted"),
    ],
)  # fmt: skip
def test_fit_parameters_that_are_refused(text: str, words: str) -> None:
    assert words in refused_fit(text).message


@pytest.mark.parametrize(
    "text",
    ["callbacks=[EarlyStopping(patience=3)]", "steps_per_epoch=3", "validation_split=0.1"],
)
def test_fit_parameters_that_mean_something_else_here(text: str) -> None:
    error = refused_fit(text)
    assert error.sqlstate == NOT_SUPPORTED
    assert error.detail and error.hint


@pytest.mark.parametrize(
    "text",
    [
        "batch_size=8, callbacks=[TensorBoard(log_dir='/tmp/logs', histogram_freq=1)], initial_epoch=3",
        "callbacks=\"[TensorBoard(log_dir='/tmp/logs')]\", initial_epoch=1, batch_size=8",
        "callbacks=TensorBoard, initial_epoch=1, batch_size=8",
    ],
)
def test_callbacks_that_watch_are_left_out(text: str) -> None:
    assert parse_fit(text) == FitParams(8)
    views, epoch = left_out([text, text, "batch_size=8"])
    assert "callback TensorBoard left out: cerebro.metrics" in views
    assert epoch.startswith("initial_epoch left out: ")
    assert len(deduplicate([text, "batch_size=8"], parse_fit)) == 1


def test_what_says_nothing_is_not_told_of() -> None:
    assert left_out(["batch_size=8", "callbacks=[], initial_epoch=0", "callbacks=None"]) == []


ROUND_TRIPS = [
    "loss='mse'",
    "optimizer='Adam(lr=0.001)',loss='categorical_crossentropy',metrics=['accuracy']",
    "optimizer=SGD(lr=CosineDecay(initial_learning_rate=0.1, decay_steps=10, name='it')), loss=['mse', None],"
    "loss_weights=[1, 2], metrics=[['acc'], [AUC(curve='PR', thresholds=[0.1, 0.5])]], weighted_metrics=['mae']",
    "loss={'a\"b': 'mse', 'c\\'d': Huber(delta=2)}, metrics={'a\"b': 'mae'}, loss_weights={'a\"b': 1, 'c\\'d': 2}",
    "optimizer=LossScaleOptimizer(inner_optimizer='Adam(lr=0.1)'), loss=Dice(axis=[1, 2])",
]


def render_compile(params: CompileParams) -> str:
    """Return compile parameters as text that is read back as the same parameters."""
    others = {key: value for key, value in vars(params).items() if key != "optimizer" and value is not None}
    return render_row({"optimizer": render_value(params.optimizer), **others})


def render_fit(params: FitParams) -> str:
    """Return fit parameters as text that is read back as the same parameters."""
    values: dict[str, Value] = {"batch_size": params.batch_size, "epochs": params.epochs}
    if not params.shuffle:
        values["shuffle"] = False
    if params.class_weight is not None:
        values["class_weight"] = cast("Value", params.class_weight)
    return render_row(values)


@pytest.mark.parametrize("text", ROUND_TRIPS)
def test_compile_parameters_survive_their_text(text: str) -> None:
    params = parse_compile(text)
    assert json.loads(params.to_json())
    assert parse_compile(render_compile(params)) == params


@pytest.mark.parametrize(
    "text",
    [
        "",
        "batch_size=3,epochs=2",
        "shuffle=False, class_weight={3: 1, 0: 0}",
        "class_weight='balanced'",
        "class_weight={'a': {1: 2}, 'b': 'balanced'}",
    ],
)
def test_fit_parameters_survive_their_text(text: str) -> None:
    params = parse_fit(text)
    assert json.loads(params.to_json())
    assert parse_fit(render_fit(params)) == params


def test_canonical_text_is_madlibs() -> None:
    params = parse_compile("metrics=[ 'accuracy' ], loss='mse', optimizer='adam'")
    assert render_compile(params) == "optimizer='Adam()',loss='mse',metrics=['accuracy']"
    assert render_fit(parse_fit("epochs=1, batch_size=8")) == "batch_size=8,epochs=1"


def test_last_spelling_wins() -> None:
    texts = ["loss='mse', optimizer='Adam(lr=0.1)'", "loss='mae'", " optimizer='Adam(lr=0.1)',loss='mse' "]
    assert [text for text, _ in deduplicate(texts, parse_compile)] == [texts[2], texts[1]]


WORDS = st.sampled_from(
    "loss optimizer metrics = , ( ) [ ] { } : ' \" 'mse' Adam(lr=0.1) SGD lr= - 1 0.5 None True \\ \n # ; -- $$ "
    "batch_size epochs 'Adam(lr= AUC() **  * . lambda ExponentialDecay( é 漢 \ud800 \x00 1e999".split(" ")
)


@FUZZ
@given(st.one_of(st.text(max_size=300), st.lists(WORDS, max_size=40).map("".join)))
@example("[" * 100_000)
@example("loss='" + "(" * 50 + "'")
@example("optimizer='Adam(lr=" * 200)
def test_only_one_kind_of_error_ever_leaves(text: str) -> None:
    for parse in (parse_compile, parse_fit, read_arguments, read_value):
        try:
            parse(text)
        except CerebroError as error:
            assert len(error.message) < 2000


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(sorted(METRICS)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = [*CompileParams.__dataclass_fields__, *FitParams.__dataclass_fields__, "callbacks", "steps_per_epoch"]


@FUZZ
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4))
def test_wrong_types_are_refused_in_good_order(values: dict[str, object]) -> None:
    text = ",".join(f"{key}={value!r}" for key, value in values.items())
    for parse in (parse_compile, parse_fit):
        try:
            params = parse(text)
        except CerebroError:
            continue
        assert json.loads(params.to_json())


@FUZZ
@given(st.sampled_from(sorted(OPTIMIZERS)), st.data())
def test_wrong_arguments_are_refused_in_good_order(name: str, data: st.DataObject) -> None:
    arguments = data.draw(st.dictionaries(st.sampled_from(sorted(OPTIMIZERS[name])), VALUES, max_size=3))
    inner = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    try:
        params = parse_compile(f"loss='mse', optimizer={name}({inner})")
    except CerebroError:
        return
    assert parse_compile(render_compile(params)) == params
