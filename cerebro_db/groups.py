"""Reads the results of a run of groups, which trains each config once for each group of rows."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_db.errors import CerebroError
from cerebro_db.link import Row
from cerebro_db.statements import is_missing

if TYPE_CHECKING:
    from cerebro_db.protocols import RunRows
    from cerebro_db.run import Run

_ALL = "SELECT * FROM cerebro.groups WHERE run_id = %s ORDER BY is_fallback DESC, group_key::jsonb"
_SPREAD = """
SELECT count(*) AS groups, count(*) FILTER (WHERE status = 'measured') AS measured, min(metric) AS metric,
    min(value) AS lowest, percentile_cont(0.25) WITHIN GROUP (ORDER BY value) AS lower_quarter,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY value) AS median, max(value) AS highest
FROM cerebro.groups WHERE run_id = %s AND NOT is_fallback
"""
# Compared as JSON, since the group's values are written as the server writes them.
_UNITS = """
SELECT unit_key, mst_key, rank, group_key FROM cerebro.leaderboard
WHERE run_id = %s AND group_key::jsonb = %s::jsonb ORDER BY rank, mst_key
"""
_EXAMPLE = """
SELECT group_key FROM cerebro.groups WHERE run_id = %s AND NOT is_fallback LIMIT 1
"""
INDEX = "groups.csv"


def listed(run: Run) -> list[Row]:
    """Return the run's rows of `cerebro.groups`, with the columns that define the groups in front."""
    return split(run.rows(_ALL))


def spread(run: RunRows) -> Row:
    """Return how many groups have been measured, and quartiles of the values of their best configs."""
    return run.rows(_SPREAD)[0]


def split(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the JSON in `group_key` replaced by one column for each of its keys."""
    keys = [None if row["group_key"] is None else json.loads(row["group_key"]) for row in rows]
    names = next((list(key) for key in keys if key is not None), None)
    if names is None:
        return list(rows)
    found: list[Row] = []
    for row, key in zip(rows, keys, strict=True):
        rest = {name: value for name, value in row.items() if name != "group_key"}
        of_group = {name: None if key is None else key[name] for name in names}
        # A column that defines groups may have the name of a column of the view.
        found.append({"run_id": rest.pop("run_id"), **rest, **of_group})
        front = ["run_id", *names]
        found[-1] = {name: found[-1][name] for name in [*front, *(n for n in rest if n not in front)]}
    return found


def _plain(value: Any) -> Any:
    """Return a value of a group as JSON has it: None for a missing one, a number for one of NumPy's."""
    if is_missing(value):
        return None
    return value.item() if hasattr(value, "item") else value


def unit(run: Run, group: Mapping[str, Any], mst_key: int | None = None) -> Row:
    """Return the leaderboard row of the best config of a group, or of the group's config `mst_key`."""
    asked = json.dumps({name: _plain(value) for name, value in group.items()}, default=str)
    rows = run.db.look(_UNITS, run.run_id, asked)
    if not rows:
        example = run.rows(_EXAMPLE)
        raise CerebroError(
            f"run {run.run_id} has no models of a group {asked}",
            hint=f"A group is written as {example[0]['group_key']}; run.groups() lists them."
            if example
            else "Its rows were not packed in groups.",
            shell=f"A group is written as {example[0]['group_key']}; cerebro groups {run.run_id} lists them."
            if example
            else None,
        )
    ranked = [row for row in rows if row["rank"] is not None]
    wanted = ranked if mst_key is None else [row for row in rows if row["mst_key"] == mst_key]
    if not wanted:
        what = "measured config" if mst_key is None else f"config {mst_key}"
        raise CerebroError(f"run {run.run_id} has no {what} of group {asked}")
    return wanted[0]


def save(run: Run, folder: Path, custom_objects: Mapping[str, Any] | None = None) -> Path:
    """Write each group's best model as a `.keras` file; return the path of a list of them, `groups.csv`."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [row for row in run.rows(_ALL) if row["value"] is not None]
    if not rows:
        raise CerebroError(f"run {run.run_id} has no measured models of groups")
    for row in rows:
        one = run.config(row["mst_key"], None if row["is_fallback"] else json.loads(row["group_key"]))
        row["file"] = one.save(folder / f"{row['unit_key']}.keras", custom_objects).name
    found = split(rows)
    with (folder / INDEX).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(found[0]))
        writer.writeheader()
        writer.writerows(found)
    return folder / INDEX
