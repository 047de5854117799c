"""Counts how many rows of each class a packed table has, group by group."""

from __future__ import annotations

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.logical.class_weights import ClassCounts
from cerebro_plpy.packing.rows.read import ONE_HOT, decode_buffer
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
