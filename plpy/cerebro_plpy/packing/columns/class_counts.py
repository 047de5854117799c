"""Counts the rows of each class of a packed table, and measures its quantities, group by group."""

from __future__ import annotations

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.logical.class_weights import ClassCounts
from cerebro_plpy.packing.rows.read import FEATURES, ONE_HOT, decode_buffer, scan
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


def measure_spreads(db: Database, table: Table, below: int | None, label: str, mean: float) -> np.ndarray:
    """Return the deviation of a quantity in each group, by the group's number; NaN for numbers without rows.

    `mean` is the mean of all rows: sums are of distances from it, so that they keep their digits.
    """
    numbers, rows = np.array(partitions.groups_of_buffers(db, table.quoted, below), np.int64).reshape(-1, 2).T
    if not len(rows):
        return np.zeros(0)
    buffers = scan(db, table.quoted, label, FEATURES, below=below)
    apart = np.concatenate([buffer.reshape(-1) for buffer in buffers]).astype(np.float64) - mean
    starts = np.cumsum(rows) - rows
    each = (rows, np.add.reduceat(apart, starts), np.add.reduceat(apart**2, starts))
    count, total, squares = (np.bincount(numbers, weights=one) for one in each)
    with np.errstate(all="ignore"):
        return np.sqrt(np.maximum(0, squares / count - (total / count) ** 2))
