"""Values of Python, NumPy and pandas are converted to the text that the server writes for them."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cerebro_plpy.features.cells import converter
from cerebro_plpy.features.specification import Array, Category, Date, Feature, Number, Text

CATEGORY = Category("one_hot", ["1.50", "x"], null=False, other=True, buckets=0, fill=None)
DATE = Date(["year"], cyclic=False, scale="none", center=0, spread=1, fill=None, indicator=False)
UTC = datetime.UTC


def convert(way: Any, element: str, value: Any) -> Any:
    return converter(Feature("a", element, element, "a", way))(value)


WRITTEN = [
    ("int4", 3, "3"), ("int4", 3.0, "3"), ("int8", np.int64(3), "3"), ("text", "a", "a"),
    ("bool", True, "true"), ("bool", np.bool_(False), "false"), ("float8", 1.0, "1"), ("float8", 0.1, "0.1"),
    ("float8", 1e15, "1e+15"),
    ("float8", 123456789012345.0, "123456789012345"), ("float8", 1e-5, "1e-05"), ("float8", 0.0001, "0.0001"),
    ("float4", 0.1, "0.1"), ("float4", 1e6, "1e+06"), ("float4", 123456.0, "123456"), ("float8", -0.0, "-0"),
    ("float8", float("inf"), "Infinity"), ("numeric", 1.5, "1.50"),
    ("numeric", decimal.Decimal("1.5"), "1.5"),
    ("numeric", decimal.Decimal("1E+3"), "1000"), ("numeric", "1.5", "1.5"),
    ("date", datetime.date(2024, 1, 31), "2024-01-31"),
    ("timestamp", datetime.datetime(2024, 1, 31, 5, 6, 7, 500000), "2024-01-31T05:06:07.5"),
    ("timestamptz", datetime.datetime(2024, 1, 31, tzinfo=UTC), "2024-01-31T00:00:00+00:00"),
    ("time", datetime.time(1, 2, 3, 40), "01:02:03.00004"),
    ("timestamp", pd.Timestamp(2024, 1, 31, 5), "2024-01-31T05:00:00"),
]  # fmt: skip


@pytest.mark.parametrize("element, value, text", WRITTEN)
def test_categories(element: str, value: Any, text: str) -> None:
    assert convert(CATEGORY, element, value) == text


@pytest.mark.parametrize("missing", [None, float("nan"), np.float32("nan"), pd.NA, pd.NaT])
@pytest.mark.parametrize("way", [CATEGORY, DATE, Text(2, [], 3)])
def test_what_is_missing_is_null(way: Any, missing: Any) -> None:
    assert convert(way, "text", missing) is None


def test_numbers_times_and_arrays() -> None:
    number = Number("none", 0, 1, fill=None, indicator=False)
    assert convert(number, "int4", pd.NA) is None
    assert convert(number, "numeric", decimal.Decimal("1.5")) == decimal.Decimal("1.5")
    assert convert(DATE, "date", np.datetime64("2024-01-31")) == "2024-01-31"
    assert convert(DATE, "date", "2024-01-31") == "2024-01-31"
    array = Array([2], 1)
    assert convert(array, "float4", np.array([1.0, 2.0])) == [1.0, 2.0]
    assert convert(array, "float4", (1, 2)) == [1, 2]
    assert convert(array, "bytea", memoryview(b"\x01\xff")) == "\\x01ff"
    assert convert(array, "float4", None) is None
