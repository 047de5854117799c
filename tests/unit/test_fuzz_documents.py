"""A JSON document in which any part was replaced by anything is read or raises CerebroError."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.features import encode, specification
from cerebro_plpy.features.rows import RowEncoder
from cerebro_plpy.features.specification import Array, Category, Date, Feature, Image, Number, Text
from cerebro_plpy.logical import options as fit_options
from cerebro_plpy.madlib import params
from cerebro_plpy.madlib.spaces import space
from cerebro_plpy.nets import points
from cerebro_plpy.nets.fitting import NetOutput, NetRows
from cerebro_plpy.packing import empty
from cerebro_plpy.packing import options as pack_options
from cerebro_plpy.packing.columns.grammar import parse_items
from cerebro_plpy.packing.faults import Faults
from cerebro_plpy.predicting import choices
from cerebro_plpy.predicting.models import _class_values as class_values

QUICK = settings(max_examples=100, derandomize=True, deadline=None, database=None)
DEEP = "[" * 5000 + "]" * 5000
NUMBERS = st.sampled_from(
    [-1, 0, 1, 2**31, 2**63, 10**30, 10**400, -(10**400), 0.5, 1e300, -1e300, 1e-300, float("nan"), math.inf]
)  # fmt: skip
WORDS = st.sampled_from(
    "number date category text array image one_hot hash ordinal embed standard log none days hour"
    " independent_var auto seed columns shape group_by 0.2 \ud800 \x00 1e400 NaN".split(" ")
) | st.text(max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
FEATURES = (
    Feature("n", "real", "float4", "v", Number("log", 1.0, 2.0, 0.5, True)),
    Feature("q", "real", "float4", "v", Number("quantile", 0.0, 1.0, 0.5, True, [0.0, 0.5, 2.0])),
    Feature("d", "date", "date", "v", Date(["days", "year", "hour"], True, "standard", 1e9, 1e6, 1e9, False)),
    Feature("c", "text", "text", "v", Category("one_hot", ["a", "b"], True, True, 0, None)),
    Feature("h", "text", "text", "h", Category("hash", [], True, False, 5, None)),
    Feature("t", "text", "text", "t", Text(4, ["fox"], 0)),
    Feature("x", "real[]", "float4", "x", Array([2, 2], 255.0)),
    Feature("i", "bytea", "bytea", "i", Image([2, 2, 3], 255.0)),
)
ROWS = NetRows([[5]], [NetOutput("y", [2], True)], None)
DOCUMENT = json.loads(specification.Specification(FEATURES, 10).as_json())
ROW = {
    "n": 1.5,
    "q": 1.5,
    "d": "2024-02-01",
    "c": "a",
    "h": None,
    "t": "The fox",
    "x": [[1, 2], [3, 4]],
    "i": "\\x00",
}
SUMMARY = {
    "source_table": "s", "output_table": "o", "segments": 2, "buffer_size": 10, "seed": 0, "total_rows": 20,
    "normalizing_const": 1.0, "dependent_varname": ["y"], "independent_varname": ["x"], "num_classes": [2],
    "dependent_vartype": ["integer"], "y_class_values": ["0", "1"], "feature_specification": DOCUMENT,
}  # fmt: skip
OPTIONS = {
    "columns": {"a": {"encode": "one_hot", "impute": 1.5}, "b": {"parts": ["days"]}, "c": {"decode": [8, 8]}},
    "validation": {"share": 0.2}, "seed": 1, "segments": 2, "shape": {"x": [2, 2]}, "group_by": ["a"],
    "weight": "w", "folds": 3, "exclude": ["z"], "patience": 1, "target": 0.5, "plan": {"within": "1 min"},
}  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path to every part of a document, as a tuple of keys and indexes."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in places(one, (*path, key)))]


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    made = dict(document) if isinstance(document, dict) else list(document)
    made[path[0]] = changed(document[path[0]], path[1:], value)
    return made


def damage(document: Any) -> st.SearchStrategy[str]:
    """Return a strategy for the document as JSON with one random part replaced by a random value."""
    parts = st.sampled_from(places(document))
    once = st.builds(changed, st.just(document), parts, VALUES)
    return once.map(json.dumps)


def refused_or_done(work: Callable[..., object], *arguments: object) -> Any:
    try:
        return work(*arguments)
    except CerebroError as error:
        assert error.message
        return None


@QUICK
@given(damage(DOCUMENT))
@example(DEEP)
@example(json.dumps(DOCUMENT)[:-1])
@example(json.dumps(changed(DOCUMENT, ("columns", 1, "center"), 1e300)))
@example(json.dumps(changed(DOCUMENT, ("columns", 0, "center"), 10**400)))
def test_a_feature_specification_is_used_or_refused(text: str) -> None:
    found = refused_or_done(specification.read, text)
    if found is None or sum(feature.width for feature in found.features) > 10_000:
        return
    refused_or_done(lambda: RowEncoder(found).encode(ROW))
    for feature in found.features:
        out, notes = np.zeros((2, feature.width), np.float32), encode.Notes(feature.name, 1, Faults())
        values = np.array([1.5, np.nan])
        if isinstance(feature.way, Number):
            encode.number(feature.way, values, out, notes)
        elif isinstance(feature.way, Date):
            encode.date(feature.way, values, out, notes)


@QUICK
@given(damage(ROW))
@example(json.dumps({**ROW, "x": DEEP}))
@example(json.dumps({**ROW, "x": "[" * 5000}))
@example(DEEP)
def test_a_row_is_encoded_or_refused(text: str) -> None:
    encoder = RowEncoder(specification.Specification(FEATURES, 10))
    row = refused_or_done(encoder.parse, text)
    if isinstance(row, dict):
        for arrays in refused_or_done(encoder.encode, row) or ():
            assert np.isfinite(arrays).all()


CHECKED: dict[str, tuple[Any, Callable[[str], object]]] = {
    "packing": (OPTIONS, lambda text: pack_options.parse(text, pack_options.TRAINING)),
    "validation": (OPTIONS, lambda text: pack_options.parse(text, pack_options.VALIDATION)),
    "fit": (OPTIONS, fit_options.parse_fit_options),
    "engine": (OPTIONS, fit_options.parse_engine_options),
    "net": ({"width": [8, 16], "dropout": 0.5}, lambda text: points.nets("tabular", text, ROWS)),
    "summary": (SUMMARY, lambda text: empty._summary("o", text)),
}


@pytest.mark.parametrize("which", CHECKED)
def test_options_and_summaries_are_read_or_refused(which: str) -> None:
    document, read = CHECKED[which]

    @QUICK
    @given(damage(document))
    @example(DEEP)
    @example(json.dumps({key: json.loads("[" * 500 + "]" * 500) for key in document}))
    def check(text: str) -> None:
        refused_or_done(read, text)

    check()


TEXTS = [
    "loss='mse',optimizer='Adam(lr=0.1)',metrics=['mae']",
    "batch_size=32,epochs=1,class_weight={0: 1, 1: 2.5}",
    "{'loss': ['mse'], 'optimizer_params_list': [{'optimizer': ['Adam'], 'lr': [0.1, 0.01, 'log']}]}",
    '{"batch_size": [32, 64], "epochs": [1]}',
    'a, ARRAY[b, "C d"], e',
]
PIECES = st.sampled_from(
    ["", "'", '"', "(", ")", "[", "]", "{", "}", ",", ":", "=", "1e400", "9" * 5000, "-", "~", "\\", "\x00",
     "\ud800", "é", "lambda: 0", "__import__('os')", "(" * 3000, "[" * 3000, "-" * 3000, "None", "nan", "1_0"]
)  # fmt: skip


@settings(QUICK, max_examples=200)
@given(st.sampled_from(TEXTS), st.integers(0, 100), st.integers(0, 12), PIECES)
def test_texts_of_parameters_and_columns_are_read_or_refused(
    text: str, place: int, length: int, piece: str
) -> None:
    text = text[:place] + piece + text[place + length :]
    refused_or_done(params.parse_compile, text)
    refused_or_done(params.parse_fit, text)
    refused_or_done(space.read_space, [1], text, TEXTS[3])
    refused_or_done(space.read_space, [1], TEXTS[2], text)
    refused_or_done(parse_items, text, "dependent_varname", ["a", "C d"])
    refused_or_done(points.nets, text, None, ROWS)
    refused_or_done(choices.parse, text)


CLASSES = st.none() | st.text(max_size=2)


ARRAYS = st.lists(CLASSES, max_size=3)


@QUICK
@given(st.none() | ARRAYS | st.lists(ARRAYS, max_size=3) | st.just([[["a"]]]), st.integers(-1, 3))
def test_class_values_are_texts_for_each_output_or_refused(values: Any, count: int) -> None:
    found = refused_or_done(class_values, values, count)
    for one in found or ():
        assert one is None or all(value is None or isinstance(value, str) for value in one)
