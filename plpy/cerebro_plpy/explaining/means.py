"""The mean of the training rows, computed from the statistics in a feature specification.

A specification may come from a user's table, so statistics may be missing or invalid.
"""

from __future__ import annotations

import numpy as np

from cerebro_plpy.features import encode
from cerebro_plpy.features.encode import CategoryCodes
from cerebro_plpy.features.specification import (
    EMBED,
    LOG,
    ONE_HOT,
    ORDINAL,
    QUANTILE,
    Category,
    Date,
    Feature,
    FeatureInput,
    Number,
    Specification,
)
from cerebro_plpy.logical.options import is_number


def find_mean_row(specification: Specification) -> list[np.ndarray]:
    """Return the mean row as the arrays of a net's inputs; arrays, texts, images and codes are zero in it."""
    rows = specification.rows
    return [
        np.concatenate([_mean(feature, rows) for feature in one.features])
        .astype(np.float32)
        .reshape(one.shape)
        for one in specification.inputs
    ]


def find_shares(one: FeatureInput, rows: int) -> np.ndarray | None:
    """Return the share of rows with each code, for each column of the input `one`: an array (codes, columns).

    Return None if no column of the input is encoded for an embedding.
    """
    known = [_code_shares(feature, rows) for feature in one.features]
    if all(shares is None for shares in known):
        return None
    widths = [feature.width for feature in one.features]
    codes = max(len(shares) for shares in known if shares is not None)
    found = np.zeros((codes, sum(widths)))
    # A column without codes counts as code 0 in all rows.
    found[0] = 1.0
    for place, shares in zip(np.cumsum([0, *widths[:-1]]).tolist(), known, strict=True):
        if shares is not None:
            found[:, place] = 0.0
            found[: len(shares), place] = shares
    return found


def _code_shares(feature: Feature, rows: int) -> np.ndarray | None:
    way = feature.way
    if not isinstance(way, Category) or way.encode != EMBED:
        return None
    codes, weights = _weights(feature, way, rows)
    return np.bincount(codes, weights, minlength=way.codes)


def _mean(feature: Feature, rows: int) -> np.ndarray:
    match feature.way:
        case Number() as way:
            return _of_number(feature, way, rows)
        case Date() as way:
            return _of_date(feature, way, rows)
        case Category() as way if way.encode in (ONE_HOT, ORDINAL):
            return _of_category(feature, way, rows)
    return np.zeros(feature.width)


def _of_category(feature: Feature, way: Category, rows: int) -> np.ndarray:
    codes, weights = _weights(feature, way, rows)
    if way.encode == ORDINAL:
        return np.array([codes @ weights])
    # A value without a place of its own is zero at all places.
    has_place = codes >= 0
    return np.bincount(codes[has_place], weights[has_place], minlength=feature.width)


def _weights(feature: Feature, way: Category, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return codes of a column's known values, of unseen values and of NULL, and their shares of rows."""
    codes, nulls, shares = CategoryCodes(way), _null_share(feature, rows), _shares(feature, way)
    found = [codes[value] for value in (*way.values, encode.UNSEEN, None)]
    weights = np.array([*(shares * (1 - nulls)), (1 - shares.sum()) * (1 - nulls), nulls])
    return np.array(found, np.int64), weights


def _shares(feature: Feature, way: Category) -> np.ndarray:
    """Return the share of each known value among values that are not NULL; equal shares without counts."""
    given = feature.statistics.get("counts")
    counts = [float(one) if is_number(one) else -1.0 for one in given] if isinstance(given, list) else []
    if len(counts) != len(way.values) or min(counts, default=-1.0) < 0 or not sum(counts):
        return np.full(len(way.values), 1 / max(1, len(way.values)))
    return np.array(counts) / max(sum(counts), _known(feature, "present") or 0.0)


def _known(feature: Feature, key: str) -> float | None:
    value = feature.statistics.get(key)
    return float(value) if is_number(value) else None


def _null_share(feature: Feature, rows: int) -> float:
    return min(1.0, max(0.0, (_known(feature, "nulls") or 0.0) / max(1, rows)))


def _of_number(feature: Feature, way: Number, rows: int) -> np.ndarray:
    nulls, mean = _null_share(feature, rows), _known(feature, "mean")
    # The center of "log" is the mean of logarithms, and half of all values are below that of "quantile".
    is_centered = way.scale in (LOG, QUANTILE)
    scaled = 0.0 if mean is None or is_centered else (mean - way.center) / way.spread
    (filled,) = encode.scale(way, np.array([0.0 if way.fill is None else way.fill])).tolist()
    return np.array([(1 - nulls) * scaled + nulls * filled, nulls][: 1 + way.indicator])


class _Ignored:
    """A collector of faults that ignores them all, because faults do not matter for a mean."""

    def add(self, column: str, problem: str, rows: object, example: str = "") -> None: ...


def _of_date(feature: Feature, way: Date, rows: int) -> np.ndarray:
    """Return the features of the mean date, with zero for parts that are cyclic, for example the hour."""
    found = np.zeros((1, feature.width))
    encode.date(way, np.array([way.center]), found, encode.Notes(feature.name, 1, _Ignored()))
    place = 0
    for part in way.parts:
        width = 1 + way.is_cyclic(part)
        if width > 1:
            found[0, place : place + width] = 0.0
        place += width
    if way.indicator:
        found[0, place] = _null_share(feature, rows)
    return found[0]
