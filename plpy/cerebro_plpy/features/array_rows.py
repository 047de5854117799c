"""Makes the input of a net from rows as JSON, for a net trained on one column of numbers or arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cerebro_plpy.errors import DATATYPE_MISMATCH, NULL_NOT_ALLOWED, UNDEFINED_COLUMN, CerebroError
from cerebro_plpy.features.rows import array_of, parse


@dataclass(frozen=True)
class ArrayOfRow:
    """The one column of numbers, or of arrays of numbers, that a net was trained on."""

    name: str
    wanted: Sequence[int | None]
    divisor: np.float32

    def parse(self, text: str) -> Any:
        return parse(text)

    def encode(self, row: Mapping[str, Any]) -> list[np.ndarray]:
        if self.name not in row:
            raise CerebroError(
                f'the row has no column "{self.name}", which the model was trained on',
                hint="Name a column like this in a query: FROM (SELECT …) AS r, cerebro.predict('model', r).",
                sqlstate=UNDEFINED_COLUMN,
            )
        given = row[self.name]
        try:
            values = array_of(given if isinstance(given, list) else [given]).astype(np.float32)
        except (TypeError, ValueError):
            raise CerebroError(
                f'column "{self.name}" is NULL, or not an array of numbers',
                hint="Leave such rows out, or call cerebro.predict(model, mst_key, features).",
                sqlstate=NULL_NOT_ALLOWED if given is None else DATATYPE_MISMATCH,
            ) from None
        if not np.isfinite(values).all():
            raise CerebroError(
                f'column "{self.name}" has NULL elements, or values that are too large',
                hint="Leave such rows out, or replace the values.",
                sqlstate=NULL_NOT_ALLOWED,
            )
        shape = fit_shape(values.shape, self.wanted, values.ndim == 1, f'column "{self.name}"')
        return [(values.reshape(shape) / self.divisor)[np.newaxis]]


def fit_shape(
    arrived: Sequence[int], wanted: Sequence[int | None], is_flat: bool, what: str
) -> tuple[int, ...]:
    """Return the shape in which a row enters a model whose input has the shape `wanted`.

    `arrived` is the row's own shape, which is returned if it fits. If `is_flat`, the row is a flat array, and
    fits if it has as many numbers as the input. Raise an error about `what`, the source of the row, if it
    does not fit.
    """
    if len(arrived) == len(wanted) and all(w is None or a == w for a, w in zip(arrived, wanted, strict=True)):
        return tuple(arrived)
    fixed = tuple(size for size in wanted if size is not None)
    total = 1
    for size in arrived:
        total *= size
    expected = 1
    for size in fixed:
        expected *= size
    if is_flat and len(fixed) == len(wanted) and total == expected:
        return fixed
    shown = ["any" if size is None else str(size) for size in wanted]
    raise CerebroError(
        f"{what} has rows of shape {list(arrived)}; the model's input has [{', '.join(shown)}]",
        hint="Give the rows as the model was trained on them.",
    )
