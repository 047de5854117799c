"""A call may name registered functions, which are known only within this call."""

from __future__ import annotations

import pytest

from cerebro_plpy.engine.checks import validate
from cerebro_plpy.errors import INSUFFICIENT_PRIVILEGE, CerebroError
from cerebro_plpy.logical.metrics import better, direction
from cerebro_plpy.madlib import registered
from cerebro_plpy.madlib.params import functions_in, parse_compile, reparse_compile
from cerebro_plpy.madlib.registered import Function

LOSS, METRIC = Function("own", "loss", "a" * 64), Function("gain", "metric", "b" * 64, True)
TEXT = "optimizer='SGD()',loss='own',metrics=['gain']"


def test_a_function_is_known_within_its_scope_alone() -> None:
    with registered.scope([LOSS, METRIC]):
        params = parse_compile(TEXT)
        assert functions_in(params) == [LOSS, METRIC]
        with registered.scope(), pytest.raises(CerebroError, match="unknown loss own"):
            parse_compile(TEXT)
    with pytest.raises(CerebroError, match="unknown loss own"):
        parse_compile(TEXT)
    assert [function.digest for function in functions_in(reparse_compile(TEXT))] == ["", ""]


def test_the_first_of_several_versions_counts_and_parameters_tell_them_apart() -> None:
    newer = Function("own", "loss", "c" * 64)
    with registered.scope([newer, LOSS, METRIC]):
        new = parse_compile(TEXT)
        assert registered.find("own", ("loss",)) == newer
        assert registered.find("own", ("loss",), LOSS.digest) == LOSS
        assert registered.find("own", ("layer",)) is None
    with registered.scope([LOSS, METRIC]):
        assert parse_compile(TEXT).to_json() != new.to_json()


def test_without_the_right_a_name_is_refused() -> None:
    with registered.scope([Function("own", "loss", "a" * 64, usable=False), METRIC]):
        with pytest.raises(CerebroError) as raised:
            parse_compile(TEXT)
        assert raised.value.sqlstate == INSUFFICIENT_PRIVILEGE
        assert functions_in(reparse_compile(TEXT))[0].digest == "a" * 64


def test_a_metric_says_which_way_it_is_better() -> None:
    with registered.scope([LOSS, METRIC]):
        params = parse_compile(TEXT)
        own = parse_compile(TEXT.replace("'gain'", "'own'"))
    assert (direction(params), better("gain", params), better("gain")) == ("max", "max", "min")
    assert direction(own) == "min"


def test_a_layer_gets_its_version() -> None:
    layer = Function("Mine", "layer", "d" * 64)
    inner = {"class_name": "Mine", "module": "somewhere", "registered_name": "x>Mine", "config": {}}
    model = {"class_name": "Sequential", "module": "keras", "config": {"layers": [inner]}}
    with pytest.raises(CerebroError, match="not allowed"):
        validate.check(model)
    with registered.scope([layer]):
        validate.check(model)
    name = f"cerebro>Mine@{layer.digest}"
    assert validate.registered_layers(model) == {name: layer.digest}
    with (
        registered.scope([Function("Mine", "layer", "e" * 64)]),
        pytest.raises(CerebroError, match="not there"),
    ):
        validate.check(model)
