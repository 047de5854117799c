"""Option `folds`: computes the fold of each row from the row's own values. Rows are packed fold by fold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATATYPE_MISMATCH, NULL_NOT_ALLOWED, CerebroError
from cerebro_plpy.logical.options import Validator, boolean, integer, named
from cerebro_plpy.packing.columns import sources
from cerebro_plpy.packing.dividing import holdout, parts
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed import splits
from cerebro_plpy.store.packed.packed import SourceColumn
from cerebro_plpy.store.packed.splits import FoldsOf

MOST_FOLDS = 100
_EXAMPLE = (
    'Write {"folds": 5}, {"folds": {"count": 5, "by": "patient"}},'
    ' {"folds": {"count": 5, "stratify": true}} or {"folds": {"column": "fold"}}.'
)


def option(key: str, value: object) -> Mapping[str, Any]:
    """Return the checked value of the option `folds`, as an object."""
    if not isinstance(value, Mapping):
        return {"count": integer(2, MOST_FOLDS)(key, value)}
    found = named(key, cast("Mapping[str, object]", value), _KEYS)
    if ("count" in found) == ("column" in found):
        raise CerebroError(f"option {key} needs either count or column", hint=_EXAMPLE)
    if len(found) > (1 if "column" in found else 2):
        raise CerebroError(
            f"option {key} has {json.dumps(value)[:60]}: these keys exclude each other", hint=_EXAMPLE
        )
    return found


_KEYS: Mapping[str, Validator] = {
    "count": integer(2, MOST_FOLDS),
    "by": holdout.text,
    "stratify": boolean(),
    "column": holdout.text,
}


def table(
    db: Database,
    source: Table,
    known: Mapping[str, SourceColumn],
    said: Mapping[str, Any],
    label: SourceColumn,
    seed: int,
) -> tuple[Table, int]:
    """Return the rows, with the fold of each row (from 1) in an extra column, and the number of folds."""
    parts.check_name(parts.FOLD, known, source.quoted)
    if "column" in said:
        column = sources.find_column(said["column"], known, source.quoted)
        return splits.with_fold(source, list(known), FoldsOf(column=column)), _count(db, source, column)
    by = sources.find_column(said["by"], known, source.quoted) if "by" in said else None
    strata = label if said.get("stratify") else None
    how = FoldsOf(count=said["count"], seed=seed, by=by, strata=strata)
    return splits.with_fold(source, list(known), how), said["count"]


def _count(db: Database, source: Table, column: SourceColumn) -> int:
    if not column.sortable:
        raise CerebroError(
            f'column "{column.name}" of type {column.shown_type} cannot name folds',
            hint="Its type has no order. Cast it to text in a view.",
            sqlstate=DATATYPE_MISMATCH,
        )
    count, nulls = splits.distinct_up_to(db, source, column, MOST_FOLDS + 1)
    if nulls:
        raise CerebroError(
            f'column "{column.name}" is NULL in some rows: they have no fold',
            hint="Leave such rows out with a view, or fill them with coalesce().",
            sqlstate=NULL_NOT_ALLOWED,
        )
    if not 2 <= count <= MOST_FOLDS:
        shown = f"more than {MOST_FOLDS} values" if count > MOST_FOLDS else f"{count} value"
        raise CerebroError(
            f'column "{column.name}" has {shown}, and each is a fold',
            hint=f"There may be 2 to {MOST_FOLDS} folds. "
            + 'Rows of equal values share a fold with {"folds": {"count": 5, "by": "column"}}.',
        )
    return count


def check(rows: Sequence[int], source: Table) -> None:
    """Raise an error if a fold has no rows; `rows` has the number of rows of each fold."""
    for number, count in enumerate(rows, 1):
        if not count:
            raise CerebroError(
                f"fold {number} of {len(rows)} has no rows of {source.quoted}",
                hint="Ask for fewer folds.",
            )
