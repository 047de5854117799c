"""Feature specifications are checked when they are read, and encode one row just as a batch of rows."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.features import encode, specification
from cerebro_plpy.features.facts import NumberFacts, steady
from cerebro_plpy.features.rows import RowEncoder, seconds_of
from cerebro_plpy.features.specification import Category, Date, Feature, Number, Specification, Text
from cerebro_plpy.packing.faults import Faults

MADE = Specification(
    (
        Feature("age", "integer", "int4", "v", Number("standard", 41.7, 12.3, 41.7, True)),
        Feature("income", "numeric", "numeric", "v", Number("log", 9.1, 1.7, 20000.0, False)),
        Feature(
            "at",
            "timestamp",
            "timestamp",
            "v",
            Date(["days", "year", "month", "weekday", "hour"], True, "standard", 1.6e9, 3e7, 1.6e9, True),
        ),  # fmt: skip
        Feature("city", "text", "text", "v", Category("one_hot", ["a", "b"], True, True, 0, None)),
        Feature("code", "real", "float4", "code", Category("embed", ["1", "1.5"], False, False, 0, None)),
        Feature("note", "text", "text", "note", Text(4, ["fox", "dog"], 0)),
        Feature(
            "worth",
            "double precision",
            "float8",
            "v",
            Number("quantile", 0.0, 1.0, 2.5, True, [0.0, 1.0, 1.0, 2.5, 40.0]),
        ),
    ),
    100,
)


def rows() -> list[dict[str, Any]]:
    random = np.random.default_rng(1)
    return [
        {
            "age": None if i % 7 == 0 else int(random.integers(18, 90)),
            "income": float(np.round(random.lognormal(9, 1), 2)),
            "worth": None if i % 5 == 0 else float(random.choice([0.0, 1.0, random.lognormal(1, 1)])),
            "at": None if i % 11 == 0 else f"20{i % 90 + 10}-0{i % 9 + 1}-1{i % 9}T0{i % 10}:30:00.25",
            "city": [None, "a", "b", "c"][i % 4],
            "code": [None, 1.5, 1, 2.25][i % 4],
            "note": [None, "The FOX, the dog; runs!", "fox"][i % 3],
        }
        for i in range(200)
    ]


def test_one_row_is_encoded_as_a_batch_is_to_the_bit() -> None:
    given, encoder, seen = rows(), RowEncoder(MADE), Faults()
    out = np.zeros((len(given), MADE.inputs[0].shape[0]), np.float32)
    place = 0
    for feature in MADE.inputs[0].features:
        values, own = [row[feature.name] for row in given], out[:, place : place + feature.width]
        place += feature.width
        notes = encode.Notes(feature.name, 1, seen)
        if isinstance(feature.way, Number):
            encode.number(feature.way, np.array([np.nan if v is None else v for v in values]), own, notes)
        elif isinstance(feature.way, Date):
            seconds = np.array([np.nan if v is None else seconds_of(v) for v in values])
            encode.date(feature.way, seconds, own, notes)
        elif isinstance(feature.way, Category):
            encode.category(feature.way, encode.CategoryCodes(feature.way), values, own)
    single = [encoder.encode(encoder.parse(json.dumps(row))) for row in given]
    assert np.array_equal(np.concatenate([arrays[0] for arrays in single]), out)
    assert [arrays[1][0, 0] for arrays in single[:4]] == [1, 3, 2, 0]
    assert single[1][2].tolist() == [[1, 2, 1, 3]]


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("1970-01-02", 86400),
        ("1970-01-01T01:00:00+01:00", 0),
        ("0044-03-15 BC", -63549273600 + 86400 * 0),
        ("12:30:00.5", 45000.5),
        ("20000-01-01T00:00:00", 568971820800),
        ("infinity", math.inf),
    ],
)
def test_times_as_json_has_them(text: str, seconds: float) -> None:
    if "BC" in text:
        seconds = float((np.datetime64("-0043-03-15") - np.datetime64("1970-01-01")).astype(int) * 86400)
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("buckets", [0, 7])
def test_words_are_cut_alike_alone_together_and_in_halves(
    buckets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = Text(3, [] if buckets else ["fox", "é\xa0", "\x1c日"], buckets)
    values = [None, "", " \t\n", "The FOX,\vfox\f\rjumps; far", "--- é\xa0 \x1c日", "É fox", "FOX" * 9]

    def tokens(values: list[str | None]) -> list[list[float]]:
        out = np.full((len(values), way.tokens), 9, np.float32)
        encode.text(way, encode.Words(way), values, out)
        return out.tolist()

    together = tokens(values)
    assert together == [tokens([value])[0] for value in values]
    monkeypatch.setattr(encode, "_CUT_CHARACTERS", 10)
    assert tokens(values) == together
    known = dict(zip(way.vocabulary, range(2, 9), strict=False))

    def code(word: str) -> int:
        return 1 + encode.hashed(word) % buckets if buckets else known.get(word, 1)

    words = [[], [], [], ["the", "fox", "fox"], ["é\xa0", "\x1c日"], ["É", "fox"], ["fox" * 9]]
    assert together == [[code(w) for w in found] + [0] * (3 - len(found)) for found in words]


def test_what_is_written_is_read_again() -> None:
    assert specification.read(MADE.as_json()) == MADE


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"columns": []},
        {"columns": [{"kind": "code"}]},
        {"columns": [{**json.loads(MADE.as_json())["columns"][0], "spread": 0}]},
        {"columns": [{**json.loads(MADE.as_json())["columns"][0], "center": "1; DROP TABLE"}]},
        {"columns": [{**json.loads(MADE.as_json())["columns"][5], "tokens": 2**40}]},
        {"columns": [json.loads(MADE.as_json())["columns"][0]] * 2},
        {"left_out": []},
    ],
    ids=str,
)
def test_a_document_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CerebroError, match="the feature specification cannot be used") as caught:
        specification.read(json.dumps({**json.loads(MADE.as_json()), **change}))
    assert caught.value.sqlstate == "XX001"


def test_sums_in_another_order_are_the_same() -> None:
    random = np.random.default_rng(2)
    values = random.normal(1e6, 3.0, 10_000)
    one, other = values.sum() / len(values), sum(values[::-1].tolist()) / len(values)
    assert one != other
    assert steady(one, 3.0) == steady(other, 3.0) == pytest.approx(one, abs=1e-6)


def test_a_mean_is_shown_the_same_whatever_the_order_of_the_rows() -> None:
    values = np.random.default_rng(3).normal(1e19, 3e19, 1800)
    # As segments add up their rows: sum() would make up for what is lost.
    shares = [(0, 1800), (0, 580, 1190, 1800), (0, 610, 1230, 1800)]
    means = [
        sum(float(np.cumsum(values[a:b])[-1]) for a, b in zip(ends, ends[1:], strict=False)) / len(values)
        for ends in shares
    ]
    assert len(set(means)) > 1
    deviation = float(np.std(values))
    assert len({NumberFacts(1800, mean=mean, deviation=deviation).steady_mean for mean in means}) == 1


@pytest.mark.parametrize("mean", [None, math.inf, -math.inf])
def test_a_mean_that_no_sum_has_changed_is_shown_as_it_is(mean: float | None) -> None:
    assert NumberFacts(2, mean=mean, deviation=None if mean is None else math.nan).steady_mean == mean


def test_a_deviation_that_is_but_rounding_says_nothing() -> None:
    """A deviation within the rounding errors of the server's sums is replaced by half of the range."""
    least, greatest = 0.3, 0.1 + 0.2
    texts = {"minimum": repr(least), "maximum": repr(greatest), "deviation": "1.94e-15"}
    made = [
        NumberFacts.from_counts({"present": 2400, "mean": mean, **texts})
        for mean in ("0.3000000000000042", "0.29999999999999")
    ]
    assert made[0] == made[1]
    assert least <= (made[0].mean or 0) <= greatest
    assert made[0].deviation == pytest.approx((greatest - least) / 2)
    one = {"present": 9, "mean": "0.09999999999999999", "deviation": "1e-18"} | dict.fromkeys(
        ("minimum", "maximum"), "0.1"
    )
    assert NumberFacts.from_counts(one) == NumberFacts(9, mean=0.1, deviation=0.0, minimum=0.1, maximum=0.1)


def test_means_and_deviations_that_can_be_are_as_they_were_counted() -> None:
    counted = {"present": 3, "mean": "2", "deviation": "1.4", "minimum": "0", "maximum": "3"}
    assert NumberFacts.from_counts(counted) == NumberFacts(3, mean=2, deviation=1.4, minimum=0, maximum=3)
    open_end = {**counted, "maximum": "Infinity", "mean": "Infinity", "deviation": "NaN"}
    assert NumberFacts.from_counts(open_end).mean == math.inf


@pytest.mark.parametrize(("element", "code"), [("numeric", 3), ("float8", 3), ("text", 0)])
def test_a_number_that_is_a_category_is_known_in_each_spelling(element: str, code: int) -> None:
    way = Category("embed", ["7.25", "12.50"], False, False, 0, None)
    codes = encode.CategoryCodes(way, element)
    assert [codes[value] for value in ("12.50", "7.25", "13", None)] == [3, 2, 0, 1]
    assert [codes["12.5"], codes["1.25e1"], codes["12.500"]] == [code] * 3
