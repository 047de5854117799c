"""Options of calls, given as JSON, are read or refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.logical.options import (
    FIT_OPTIONS,
    FitOptions,
    boolean,
    integer,
    one_of,
    parse_fit_options,
    parse_options,
)

ROOT = Path(__file__).resolve().parents[2]


def refused(text: str) -> CerebroError:
    with pytest.raises(CerebroError) as caught:
        parse_fit_options(text)
    return caught.value


def test_nothing_given() -> None:
    assert (
        parse_fit_options(None)
        == parse_fit_options("{}")
        == parse_fit_options('{"seed": null}')
        == FitOptions()
    )


def test_everything_given() -> None:
    text = '{"seed": -7, "backend": "jax", "memory_mb": 16, "threads": 1}'
    assert parse_fit_options(text) == FitOptions(-7, "jax", 16, 1)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('{"sede": 1}', "unknown option sede", 'Did you mean "seed"?'),
        ('{"backend": "tensorflwo"}', "option backend is tensorflwo", 'Did you mean "tensorflow"?'),
    ],
)
def test_unknown_names_come_with_the_nearest(text: str, message: str, hint: str) -> None:
    error = refused(text)
    assert (error.message, error.hint) == (message, hint)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"seed": 1.5}', "option seed is 1.5"),
        ('{"seed": true}', "option seed is True"),
        ('{"seed": "1"}', "option seed is 1"),
        ('{"seed": 99999999999999999999}', "option seed is 99999999999999999999"),
        ('{"memory_mb": 15}', "option memory_mb is 15"),
        ('{"threads": 0}', "option threads is 0"),
        ('{"backend": 1}', "option backend is 1"),
        ("[1]", "options are not a JSON object: [1]"),
        ("null", "options are not a JSON object: null"),
        ("{", "options are not valid JSON: {"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    assert refused(text).message == message


def test_other_functions_have_their_own_keys() -> None:
    allowed = {"segments": integer(1, 8), "keep": boolean(), "kind": one_of("a", "b")}
    assert parse_options('{"segments": 8, "keep": false, "kind": "b"}', allowed) == {
        "segments": 8,
        "keep": False,
        "kind": "b",
    }
    for text in ('{"segments": 9}', '{"keep": 1}', '{"kind": "c"}', '{"seed": 1}'):
        with pytest.raises(CerebroError):
            parse_options(text, allowed)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(["seed", "backend", "memory_mb", "threads", "Seed", ""])


@settings(max_examples=150, derandomize=True, deadline=None)
@given(
    st.text(max_size=60) | st.dictionaries(KEYS, JSON, max_size=3).map(json.dumps) | st.just("[" * 100_000)
)
def test_only_one_kind_of_error_ever_leaves(text: str) -> None:
    try:
        parse_fit_options(text)
    except CerebroError as error:
        assert len(error.message) < 500


def test_the_comment_of_the_fit_call_names_every_option() -> None:
    file = ROOT / "sql" / "api" / "madlib_keras_fit_multiple_model.sql"
    said = file.read_text().rpartition("The options are ")[2]
    assert sorted(set(re.findall(r"\w+", said)) & FIT_OPTIONS.keys()) == sorted(FIT_OPTIONS)


@pytest.mark.parametrize(
    "length", [10**400, "9" * 400 + " h", 10**10, "0.5 s"], ids=["digits", "text", "integer", "fraction"]
)
def test_lengths_of_time_beyond_reason_are_refused(length: str | int) -> None:
    assert refused(json.dumps({"plan": {"within": length}})).message.startswith("option plan.within is ")
