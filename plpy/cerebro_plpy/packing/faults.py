"""Counts the faults in the rows of a table while it is read, and reports all of them in one error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_plpy.errors import NULL_NOT_ALLOWED, CerebroError
from cerebro_plpy.features.encode import IS_NULL, NOT_FINITE, TOO_LARGE

NULL_ELEMENTS = "has NULL elements"
NOT_ONE_HOT = "holds values other than 0 and 1 in arrays of integers, which are one-hot,"
OTHER_SHAPE = "has another shape than the first row"
NO_IMAGE = "is not an image"
# A fault of rows that can still be packed.
OTHER_THAN_ONE = "has no 1 or several"

_HINTS = {
    IS_NULL: "Leave such rows out with a view, or fill them with coalesce().",
    NULL_ELEMENTS: "Leave such rows out with a view, or fill the elements.",
    NOT_FINITE: "Leave such rows out with a view, or replace the values.",
    TOO_LARGE: "Scale the values in a view. Features can be divided by a larger normalizing_const instead.",
    NOT_ONE_HOT: 'If they are quantities, pack them as such: options {"task": "regression"}.',
    OTHER_SHAPE: "All rows of a column must have the same shape: pad or cut them in a view.",
    NO_IMAGE: "Leave such rows out with a view, or store JPEG or PNG.",
}


@dataclass
class Fault:
    """One kind of fault in one column: the number of rows that have it, and the first of them."""

    count: int
    first_row: int
    example: str
    # On Greenplum, the segment whose scan numbered the first row.
    segment: int | None = None

    @property
    def first(self) -> str:
        on = "" if self.segment is None else f" on segment {self.segment}"
        return f"row {self.first_row} of the scan{on}"


class Faults:
    """A collector of the faults that are found while a table is read."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Fault] = {}

    def __bool__(self) -> bool:
        return any(problem != OTHER_THAN_ONE for _, problem in self._found)

    def add(self, column: str, problem: str, rows: Sequence[int], example: str = "") -> None:
        """Record that these rows, numbered from 1 in the order of the scan, have a fault in a column."""
        fault = self._found.setdefault((column, problem), Fault(0, int(rows[0]), example))
        fault.count += len(rows)

    def list_faults(self) -> list[tuple[str, str, int, int, str]]:
        """Return all recorded faults as tuples that can be written as JSON."""
        return [(*place, f.count, f.first_row, f.example) for place, f in self._found.items()]

    def join(self, found: Sequence[Sequence[Any]], segment: int | None = None) -> None:
        """Add faults that another process, such as a segment's, has found in the rows that it read."""
        for column, problem, count, first_row, example in found:
            fault = self._found.setdefault((column, problem), Fault(0, first_row, example, segment))
            fault.count += count

    def error(self, total: int) -> CerebroError:
        """Return an error with the first fault as its message and all faults in its detail."""
        lines = [
            f'Column "{column}" {problem} in {fault.count} of {total} rows;'
            f" the first is {fault.first}{fault.example}."
            for (column, problem), fault in self._faults()
        ]
        (column, problem), fault = self._faults()[0]
        null = problem in (IS_NULL, NULL_ELEMENTS)
        return CerebroError(
            f'column "{column}" {problem} in {fault.count} of {total} rows',
            detail="\n".join(lines),
            hint=_HINTS[problem],
            sqlstate=NULL_NOT_ALLOWED if null else "22023",
        )

    def remarks(self, total: int) -> list[str]:
        """Return remarks on one-hot columns in which rows have no 1 or several; such rows can be packed."""
        return [
            f'column "{column}" {problem} in {fault.count} of {total} rows, the first is {fault.first}'
            f"{fault.example}: such rows have no class, or several. Train with a loss that looks at each"
            " unit by itself, such as binary_crossentropy."
            for (column, problem), fault in self._found.items()
            if problem == OTHER_THAN_ONE
        ]

    def _faults(self) -> list[tuple[tuple[str, str], Fault]]:
        return [found for found in self._found.items() if found[0][1] != OTHER_THAN_ONE]
