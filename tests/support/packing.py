"""A small table, helpers that pack it and read the packed table, and a check that a call is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg2
import pytest

from fixtures import Connection, Rows, Sql


def make(sql: Sql, query: str = "") -> None:
    """Create the table t: by `query`, or else 40 rows with 4 features x, a label, a number and a quantity."""
    sql(
        query
        or """CREATE TABLE t AS SELECT i AS id, ARRAY[i, i * 2, -i, i % 3]::real[] AS x,
              (ARRAY['cat', 'Ant', 'bee'])[i % 3 + 1] AS label, i % 5 AS number, i / 4.0::float8 AS quantity
              FROM generate_series(1, 40) i"""
    )


def train(
    sql: Sql, out: str = "p", dep: str = "label", indep: str = "x", on: Connection | None = None, **more: Any
) -> None:
    """Pack t, or the table `source`, on 2 segments unless `options` is given; `more` are named arguments."""
    source = more.pop("source", "t")
    more.setdefault("options", '{"segments": 2}')
    named = "".join(f", {name} => %s" for name in more)
    sql(
        f"SELECT cerebro.training_preprocessor_dl(%s, %s, %s, %s{named})",
        source,
        out,
        dep,
        indep,
        *more.values(),
        on=on,
    )


def validate(
    sql: Sql, source: str, out: str = "v", dep: str = "label", indep: str = "x", training: str = "p"
) -> None:
    sql("SELECT cerebro.validation_preprocessor_dl(%s, %s, %s, %s, %s)", source, out, dep, indep, training)


def column(sql: Callable[[str], Rows], name: str, dtype: str, table: str = "p") -> np.ndarray:
    """Return all rows of one column of a packed table, in the order of the buffers."""
    rows = sql(f'SELECT "{name}", "{name}_shape" FROM {table} ORDER BY buffer_id')
    return np.concatenate([np.frombuffer(data, dtype).reshape(shape) for data, shape in rows])


def refused(sql: Sql, code: str, text: str, **how: Any) -> psycopg2.Error:
    before = sql("SELECT count(*) FROM pg_class")
    with pytest.raises(psycopg2.Error) as caught:
        train(sql, **how)
    assert caught.value.pgcode == code
    assert text in str(caught.value)
    assert sql("SELECT count(*) FROM pg_class") == before
    return caught.value
