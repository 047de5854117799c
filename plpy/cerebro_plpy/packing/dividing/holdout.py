"""Option `validation`: chooses the rows to validate on, by the rows' own values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from cerebro_plpy.database import Database
from cerebro_plpy.errors import DATATYPE_MISMATCH, CerebroError
from cerebro_plpy.logical.options import Validator, boolean, named
from cerebro_plpy.packing.columns import sources
from cerebro_plpy.store.names import Table
from cerebro_plpy.store.packed import splits
from cerebro_plpy.store.packed.packed import SourceColumn
from cerebro_plpy.store.packed.splits import Holdout

SHARE = 0.2
_EXAMPLE = (
    'Write {"validation": 0.2}, {"validation": {"by": "patient"}}'
    ' or {"validation": {"after": "2026-01-01", "on": "at"}}.'
)


def option(key: str, value: object) -> Mapping[str, Any]:
    """Return the checked value of the option `validation`, as an object."""
    if isinstance(value, Mapping):
        found = named(key, cast("Mapping[str, object]", value), _KEYS)
    else:
        found = {"share": _share(key, value)}
    if ("after" in found) != ("on" in found):
        raise CerebroError(f"option {key} needs both after and on, or neither", hint=_EXAMPLE)
    if "after" in found and found.keys() - {"after", "on"}:
        raise CerebroError(f"option {key} has both after and a share", hint=_EXAMPLE)
    if found.get("stratify") and "by" in found:
        raise CerebroError(f"option {key} cannot stratify rows that stay together", hint=_EXAMPLE)
    return found


def _share(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise CerebroError(
            f"option {key} is {json.dumps(value)[:60]}", detail="A share is between 0 and 1.", hint=_EXAMPLE
        )
    return float(value)


def text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise CerebroError(f"option {key} is {json.dumps(value)[:60]}, not text", hint=_EXAMPLE)
    return value


_KEYS: Mapping[str, Validator] = {
    "share": _share,
    "by": text,
    "after": text,
    "on": text,
    "stratify": boolean(),
}


def tables(
    db: Database,
    source: Table,
    known: Mapping[str, SourceColumn],
    said: Mapping[str, Any],
    label: SourceColumn,
    seed: int,
) -> tuple[Table, Table]:
    """Return the rows to train on and the rows to validate on; raise an error if one of the two is empty."""
    holdout = _holdout(source, known, said, label, seed)
    parts = splits.hold_out(db, source, known, holdout)
    for part, what in zip(parts, ("train", "validate"), strict=True):
        if not splits.has_rows(db, part):
            raise CerebroError(
                f"option validation leaves no rows of {source.quoted} to {what} on", hint=_EXAMPLE
            )
    return parts


def _holdout(
    source: Table,
    known: Mapping[str, SourceColumn],
    said: Mapping[str, Any],
    label: SourceColumn,
    seed: int,
) -> Holdout:
    share = said.get("share", SHARE)
    if "on" in said:
        column = sources.find_column(said["on"], known, source.quoted)
        if not column.sortable:
            raise CerebroError(
                f'column "{column.name}" of type {column.shown_type} has no order',
                hint=_EXAMPLE,
                sqlstate=DATATYPE_MISMATCH,
            )
        return Holdout(share, seed, after=(column, said["after"]))
    by = sources.find_column(said["by"], known, source.quoted) if "by" in said else None
    return Holdout(share, seed, by=by, strata=label if said.get("stratify") else None)
