"""The calls that compare a model's answers with what is true, and one that makes it ready to explain them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cerebro_plpy.predicting import confusion, explained, importance, parts_of_rows, watching, worst

CALLS: Mapping[str, Callable[..., Any]] = {
    "check": watching.check,
    "confusion_matrix": confusion.confusion,
    "evaluate_by": parts_of_rows.evaluate_by,
    "explained": explained.make_ready,
    "importance": importance.find_importance,
    "worst_rows": worst.find_worst_rows,
}
