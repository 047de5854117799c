"""The calls that compare a model's answers with what is true, by their names in SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cerebro_plpy.predicting import confusion, importance, parts_of_rows

CALLS: Mapping[str, Callable[..., list[Any]]] = {
    "confusion_matrix": confusion.confusion,
    "evaluate_by": parts_of_rows.evaluate_by,
    "importance": importance.find_importance,
}
