"""Counts the rows of each class of a packed table, and measures its quantities, group by group."""

from __future__ import annotations

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.logical.class_weights import ClassCounts
from cerebro_plpy.packing.rows.read import FEATURES, ONE_HOT, decode_buffer
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed import packed, partitions


def of_groups(db: Database, table: Table, summary: packed.PackedSummary) -> dict[int, ClassCounts]:
    """Return the class counts of each group by its number, from the labels that the caller may read."""
    names = [
        name for name, one_hot in zip(summary.dependent_varname, summary.one_hot, strict=True) if one_hot
    ]
    found: dict[tuple[int, str], np.ndarray] = {}
    for buffer in partitions.labels_of_groups(db, table, names, summary.below) if names else ():
        for name in names:
            labels = decode_buffer(buffer[name], buffer[name + packed.SHAPE], ONE_HOT)
            first = 0
            for group, rows in buffer["groups"]:
                counts = labels[first : first + rows].sum(axis=0, dtype=np.int64)
                found[group, name] = found[group, name] + counts if (group, name) in found else counts
                first += rows
    numbers = dict.fromkeys(group for group, _ in found)
    return {
        group: {
            name: found[group, name].tolist() if name in names else None for name in summary.dependent_varname
        }
        for group in numbers
    }


def measure_spreads(db: Database, table: Table, below: int | None, label: str) -> np.ndarray:
    """Return the deviation of a quantity in each group, by the group's number; NaN for numbers without rows.

    Sums are of distances from the first value of each group, so that a constant group deviates by 0.
    """
    first, sums = np.zeros(0), np.zeros((0, 3))
    for buffer in partitions.labels_of_groups(db, table, [label], below):
        numbers, rows = np.array(buffer["groups"], np.int64).reshape(-1, 2).T
        values = decode_buffer(buffer[label], buffer[label + packed.SHAPE], FEATURES)
        values, starts = values.reshape(-1).astype(np.float64), np.cumsum(rows) - rows
        missing = max(0, int(numbers.max(initial=-1)) + 1 - len(first))
        first = np.pad(first, (0, missing), constant_values=np.nan)
        sums = np.pad(sums, ((0, missing), (0, 0)))
        first[numbers] = np.where(np.isnan(first[numbers]), values[starts], first[numbers])
        apart = values - np.repeat(first[numbers], rows)
        each = rows, np.add.reduceat(apart, starts), np.add.reduceat(apart**2, starts)
        np.add.at(sums, numbers, np.stack(each, axis=1))
    count, total, squares = sums.T
    with np.errstate(all="ignore"):
        return np.sqrt(np.maximum(0, squares / count - (total / count) ** 2))
