"""Finds columns that alone predict the label. Often they are copies of it, which new rows will not have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.features.specification import ONE_HOT as ONE_HOT_PLACES
from cerebro_plpy.features.specification import Category, Date, Feature, FeatureInput, Number
from cerebro_plpy.packing.rows.read import FEATURES, ONE_HOT, decode_buffer
from cerebro_plpy.store import names
from cerebro_plpy.store.packed import packed, partitions

# Rows are shuffled when they are packed, so the first ones are as good as any.
MOST_ROWS = 20_000
FEWEST_ROWS = 50
# The share of what a guess without the column gets wrong that is still wrong with it.
LEFT_WRONG = 0.02
# Values with fewer rows each are compared with their neighbours instead of among themselves.
ROWS_OF_VALUE = 10


def tell(db: Database, table: names.TargetTable) -> None:
    """Send a notice that names the columns of a packed table that alone predict its label nearly exactly.

    Do nothing if the table has several labels, has groups, or has no feature specification.
    """
    summary = packed.summary(db, table.schema, table.name)
    if summary.features is None or len(summary.dependent_varname) != 1 or summary.group_by is not None:
        return
    inputs = [one for one in summary.features.inputs if any(map(_has_one_value, one.features))]
    if not inputs:
        return
    is_classes = summary.one_hot[0]
    label, *arrays = _first_rows(db, table, summary, inputs)
    if len(label) < FEWEST_ROWS:
        return
    target = label.argmax(axis=1) if is_classes and label.ndim == 2 else label.reshape(len(label), -1)[:, 0]
    telling = [
        feature.name for feature, values in _columns(inputs, arrays) if _tells(values, target, is_classes)
    ]
    found = [json.dumps(name, ensure_ascii=False) for name in dict.fromkeys(telling)]
    if found:
        they, them, predict, are = (
            ("they", "them", "predict", "are") if len(found) > 1 else ("it", "it", "predicts", "is")
        )
        db.notice(
            f"{', '.join(found)} alone {predict} {summary.dependent_varname[0]} nearly perfectly;"
            f" if {they} {are} not known before the label, leave {them} out:"
            f' {{"exclude": [{", ".join(found)}]}}'
        )


def _first_rows(
    db: Database, table: names.TargetTable, summary: packed.PackedSummary, inputs: Sequence[FeatureInput]
) -> list[np.ndarray]:
    """Return the label and the inputs of the first rows of each segment, as one array each."""
    label = summary.dependent_varname[0]
    types = {label: ONE_HOT if summary.one_hot[0] else FEATURES, **{one.name: FEATURES for one in inputs}}
    most = -(-MOST_ROWS // len(summary.keys))
    parts = [
        [decode_buffer(row[name], row[name + packed.SHAPE], kind)[:most] for name, kind in types.items()]
        for row in partitions.first_buffers(db, table.quoted, list(types))
    ]
    return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]


def _has_one_value(feature: Feature) -> bool:
    return isinstance(feature.way, Number | Date | Category)


def _columns(
    inputs: Sequence[FeatureInput], arrays: Sequence[np.ndarray]
) -> Iterator[tuple[Feature, np.ndarray]]:
    """Yield each feature that has one value per row, with its values: codes for a one-hot category."""
    for one, array in zip(inputs, arrays, strict=True):
        first, rows = 0, array.reshape(len(array), -1)
        for feature in one.features:
            own = rows[:, first : first + feature.width]
            first += feature.width
            if isinstance(feature.way, Category) and feature.way.encode == ONE_HOT_PLACES:
                yield feature, own.argmax(axis=1)
            elif _has_one_value(feature):
                yield feature, own[:, 0]


def _tells(values: np.ndarray, target: np.ndarray, is_classes: bool) -> bool:
    """Return whether the values of a column predict the label with almost no error."""
    order = np.lexsort((target, values))
    values, target = values[order], target[order]
    starts = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))
    if len(starts) < 2:
        return False
    if len(starts) * ROWS_OF_VALUE > len(values):
        # Each row is guessed by the one before it.
        error, usual = (
            (np.mean(target[1:] != target[:-1]), _disorder(target))
            if is_classes
            else (np.mean(np.diff(target.astype(np.float64)) ** 2) / 2, np.var(target, dtype=np.float64))
        )
    else:
        groups = np.split(target, starts[1:])
        of_group = [_disorder(one) if is_classes else np.var(one, dtype=np.float64) for one in groups]
        error = np.average(of_group, weights=[len(one) for one in groups])
        usual = _disorder(target) if is_classes else np.var(target, dtype=np.float64)
    return bool(usual > 0 and error <= LEFT_WRONG * usual)


def _disorder(target: np.ndarray) -> float:
    """Return the share of rows that are not in the most frequent class."""
    return 1 - np.unique(target, return_counts=True)[1].max() / len(target)
