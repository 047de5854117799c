"""The mean row of the training rows, from what a feature specification knows of them.

Specifications may come from a user's table, so nothing of their statistics is taken for granted.
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
    """Return the mean of each number of each input; zero for arrays, texts, images and codes."""
    rows = specification.rows
    return [
        np.concatenate([_mean(feature, rows) for feature in one.features])
        .astype(np.float32)
        .reshape(one.shape)
        for one in specification.inputs
    ]


def find_shares(one: FeatureInput, rows: int) -> np.ndarray | None:
    """Return the share of each code in each column, (codes, columns); None if no column has such codes."""
    known = [_code_shares(feature, rows) for feature in one.features]
    if all(shares is None for shares in known):
        return None
    widths = [feature.width for feature in one.features]
    codes = max(len(shares) for shares in known if shares is not None)
    found = np.zeros((codes, sum(widths)))
    # Without counts, a place is what code 0 is.
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
    # What has no place of its own is zero everywhere.
    has_place = codes >= 0
    return np.bincount(codes[has_place], weights[has_place], minlength=feature.width)


def _weights(feature: Feature, way: Category, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the codes of the values, of others and of NULL, with the shares of rows that have them."""
    codes, nulls, shares = CategoryCodes(way), _null_share(feature, rows), _shares(feature, way)
    found = [codes[value] for value in (*way.values, encode.UNSEEN, None)]
    weights = np.array([*(shares * (1 - nulls)), (1 - shares.sum()) * (1 - nulls), nulls])
    return np.array(found, np.int64), weights


def _shares(feature: Feature, way: Category) -> np.ndarray:
    """Return the shares of the values that have a place; if nobody has counted them, all are the same."""
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
    """Takes note of no faults: a mean has none that matter."""

    def add(self, column: str, problem: str, rows: object, example: str = "") -> None: ...


def _of_date(feature: Feature, way: Date, rows: int) -> np.ndarray:
    """Return the parts of the mean date, but zero for both coordinates of what turns in a circle."""
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
