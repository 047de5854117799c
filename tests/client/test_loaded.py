"""Columns of data frames keep their kinds and values as they are loaded into tables."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cerebro_db import CerebroError, Database
from cerebro_db.estimators import CerebroClassifier

MOMENT = datetime.datetime(2026, 3, 1, 12, 30)
LARGE = 9007199254740993
ODD = ["\\N", "\\.", 'a"b', "a,b\n\tc\\"]
COLUMNS: dict[str, tuple[Any, str, list[Any]]] = {
    "Int64": (pd.array([LARGE, None], "Int64"), "bigint", [LARGE, None]),
    "Int64, none missing": (pd.array([LARGE, 1], "Int64"), "bigint", [LARGE, 1]),
    "nullable booleans": (pd.array([True, None], "boolean"), "boolean", [True, None]),
    "booleans": (pd.array([True, False], "boolean"), "boolean", [True, False]),
    "objects of booleans": (np.array([True, None], object), "boolean", [True, None]),
    "Float64": (pd.array([1.5, None], "Float64"), "double precision", [1.5, None]),
    "strings": (pd.array(["", None], "string"), "text", ["", None]),
    "texts": (np.array(["", None], object), "text", ["", None]),
    "odd texts": (np.array(ODD, object), "text", ODD),
    "decimals": (np.array([Decimal("1.50"), None], object), "numeric", [Decimal("1.50"), None]),
    "dates": (np.array([MOMENT.date(), None], object), "date", [MOMENT.date(), None]),
    "moments": (np.array([MOMENT, None], object), "timestamp without time zone", [MOMENT, None]),
    "times": (np.array([MOMENT, "NaT"], "datetime64[ns]"), "timestamp without time zone", [MOMENT, None]),
    "spans": (
        np.array([90061000001, "NaT"], "timedelta64[us]"),
        "interval",
        [datetime.timedelta(days=1, seconds=3661, microseconds=1), None],
    ),
    "large integers": (np.array([2**70, None], object), "numeric", [Decimal(2**70), None]),
    "integers and floats": (np.array([1, 2.5, None], object), "double precision", [1.0, 2.5, None]),
    "a mixture": (np.array([1, "a", None], object), "text", ["1", "a", None]),
}


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another"])
@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_keeps_its_kind_and_its_values(client: Database, kind: str, beside: bool) -> None:
    values, sql, expected = COLUMNS[kind]
    frame = pd.DataFrame({"v": values})
    if beside:
        frame["n"] = range(len(frame))
    table = f"loaded {kind} {beside}"
    assert client.load(f'"{table}"', frame) == len(expected)
    found = client.rows(f'SELECT v, pg_typeof(v)::text AS kind FROM "{table}"')
    assert {row["kind"] for row in found} == {sql}
    assert [row["v"] for row in found] == expected


def test_arrays_that_are_no_numbers_are_refused(client: Database) -> None:
    with pytest.raises(CerebroError, match="column x has an array of <U1 in each row"):
        client.load("no_arrays", {"x": np.array([["a", "b"]])})


def test_a_class_of_one_row_is_never_held_out_alone() -> None:
    labels = np.array([*[0] * 100, *[1] * 99, 2])
    for seed in range(40):
        held = CerebroClassifier(random_state=seed)._held_out(200, labels)
        assert {*labels[~held]} == {0, 1, 2} and held.sum() >= 19
