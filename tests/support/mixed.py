"""A table with columns of many types, and helpers that pack it and read the packed table."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from fixtures import Sql

ROWS = 20_000
CUSTOMERS = """CREATE TABLE customers AS
SELECT i AS id,
       CASE WHEN i %% 17 = 0 THEN NULL ELSE 18 + i %% 60 END AS age,
       CASE WHEN i %% 11 = 0 THEN NULL ELSE ((i::bigint * 7919) %% 90000) / 7.0 END AS income,
       1e9::float8 + (i * 31) %% 1000 AS far,
       'city ' || (i::bigint * i) %% 200 AS city,
       (ARRAY['free', 'basic', 'pro', NULL])[1 + i %% 4] AS plan,
       (i * 7) %% 12 AS level,
       '2020-01-01'::date + (i * 13) %% 1500 AS joined,
       CASE WHEN i %% 9 > 0 THEN '1999-12-31 23:59Z'::timestamptz + (i * 77) * interval '1 min' END AS seen,
       'The quick,  brown Fox' || repeat('!', i %% 3) || E'\\tjumps ' || i %% 500 || ' ÄRGER' AS note,
       i %% 3 = 0 AS active,
       ARRAY[i %% 5, i %% 7]::real[] AS x,
       CASE WHEN (i * 37) %% 60 > 32 THEN 'yes' ELSE 'no' END AS gone
  FROM generate_series(1, %s) AS i"""


def pack(sql: Sql, listed: str, columns: object = "auto", source: str = "customers", **more: Any) -> None:
    """Pack the columns `listed` of a table as `packed`, with the label `gone`; `more` are further options."""
    sql("DROP TABLE IF EXISTS packed, packed_summary")
    options = json.dumps({"columns": columns, "segments": 2, **more})
    sql(
        "SELECT cerebro.training_preprocessor_dl(%s, 'packed', 'gone', %s, options => %s)",
        source,
        listed,
        options,
    )


def specification(sql: Sql, table: str = "packed") -> Mapping[str, Any]:
    return sql(f"SELECT feature_specification FROM {table}_summary")[0][0]


def feature(sql: Sql, name: str) -> Mapping[str, Any]:
    return next(column for column in specification(sql)["columns"] if column["name"] == name)


def picture(number: int, size: tuple[int, int] = (20, 30), kind: str = "PNG", mode: str = "RGB") -> bytes:
    random = np.random.default_rng(number)
    pixels = random.integers(0, 255, (*size[::-1], {"RGB": 3, "L": 1}[mode]), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze(), mode).save(file, kind)
    return file.getvalue()
