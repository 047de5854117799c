"""Makes a packed table without rows, for buffers that were packed in another database."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.features.specification import Specification
from cerebro_plpy.features.specification import read as read_specification
from cerebro_plpy.logical.options import read_object
from cerebro_plpy.packing.job import Rules
from cerebro_plpy.store import names
from cerebro_plpy.store.packed import append, packed

_TYPE = re.compile(r"[a-z][a-z0-9 ]*\[\]")
_INTEGERS = ("buffer_size", "segments", "seed", "total_rows")
_LISTS = ("dependent_varname", "independent_varname", "dependent_vartype")


def create(db: Database, output_table: str | None, summary: str | None) -> None:
    """Create an empty packed table and its summary from a JSON text; the caller inserts the buffers later."""
    target = names.target_table(db, output_table, suffixes=(packed.SUMMARY,))
    found = _summary(str(output_table), summary)
    # On a cluster, rows keep the distribution keys of the cluster that packed them. On PostgreSQL a segment's
    # number is its key.
    keys = db.server.distribution_keys(found.segments, Rules())
    own = keys and (found.dist_keys or keys)
    found = replace(found, dist_keys=own)
    output = packed.PackedOutput(
        target,
        found.dependent_varname,
        found.independent_varname,
        segments=found.segments,
        dist_keys=own,
        weighted=found.weight_varname is not None,
    )
    names.check_free(db, target.schema, output.partitions, "partition")
    # Other class values are stored as text: a domain's check runs code, and an enum may not exist here.
    known = names.built_in_types(db, list(filter(_TYPE.fullmatch, found.class_value_types.values())))
    for column, kind in found.class_value_types.items():
        found.class_value_types[column] = kind if kind in known else "text[]"
    packed.create(db, output, f"Rows of {found.source_table}, packed elsewhere for {found.segments} segments")
    packed.write_summary(db, output, found, f"How {output_table} was packed")


def _summary(output_table: str, text: str | None) -> packed.PackedSummary:
    given = _read(text)
    dependents = given["dependent_varname"]
    columns = [name + packed.CLASS_VALUES for name in dependents]
    types = given.get("class_value_types")
    if not isinstance(types, Mapping):
        raise _wrong("class_value_types", types, "an object with the type of each column of class values")
    return packed.PackedSummary(
        source_table=str(given.get("source_table", "")),
        output_table=output_table,
        dependent_varname=dependents,
        independent_varname=given["independent_varname"],
        dependent_vartype=given["dependent_vartype"],
        class_values=[_class_values(given, column) for column in columns],
        buffer_size=given["buffer_size"],
        normalizing_const=_number(given, "normalizing_const"),
        num_classes=_num_classes(given, len(dependents)),
        distribution_rules="all_segments",
        internal_gpu_config="all_segments",
        segments=given["segments"],
        seed=given["seed"],
        total_rows=given["total_rows"],
        class_counts=[_class_counts(given, name + packed.CLASS_COUNTS) for name in dependents],
        class_value_types={column: str(types.get(column, "text[]")) for column in columns},
        dist_keys=_dist_keys(given),
        features=_features(given),
        weight_varname=_weight(given),
        versions=append.read(given.get(append.VERSIONS[0])),
    )


def _read(text: str | None) -> dict[str, Any]:
    given = read_object(text or "null", "the fields of the summary", _HINT)
    for key in _INTEGERS:
        value = given.get(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong(key, value, "an integer")
    if not 1 <= given["segments"] <= 10_000:
        raise _wrong("segments", given["segments"], "an integer from 1 to 10000")
    for key in _LISTS:
        if not _is_list_of(given.get(key), str) or not given[key]:
            raise _wrong(key, given.get(key), "a list of strings")
    made = [*given["dependent_varname"], *given["independent_varname"]]
    if len(set(made)) < len(made) or any(len(name.encode()) > names.LONGEST - 13 for name in made):
        raise CerebroError(
            f"{made} cannot be the names of packed columns", hint="Use short names, each of them once."
        )
    return given


def _is_list_of(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)


def _number(given: Mapping[str, Any], key: str) -> float:
    value = given.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e308:
        raise _wrong(key, value, "a number above 0")
    return float(value)


def _class_values(given: Mapping[str, Any], column: str) -> list[str | None] | None:
    values = given.get(column)
    if values is None or (isinstance(values, list) and all(v is None or isinstance(v, str) for v in values)):
        return values
    raise _wrong(column, values, "a list of strings, or null")


def _class_counts(given: Mapping[str, Any], column: str) -> list[int] | None:
    values = given.get(column)
    if values is None or (
        isinstance(values, list) and all(type(v) is int and 0 <= v < 2**62 for v in values)
    ):
        return values
    raise _wrong(column, values, "a list of numbers, or null")


def _features(given: Mapping[str, Any]) -> Specification | None:
    """Return the feature specification in the given summary, or None if there is none."""
    value = given.get(packed.FEATURES[0])
    return None if value is None else read_specification(json.dumps(value))


def _weight(given: Mapping[str, Any]) -> str | None:
    value = given.get("weight_varname")
    if value is not None and not isinstance(value, str):
        raise _wrong("weight_varname", value, "the name of a column, or null")
    return value


def _dist_keys(given: Mapping[str, Any]) -> list[int] | None:
    """Return the distribution keys in the given summary, one per segment, or None if there are none."""
    values = given.get("__dist_keys__")
    if values is None:
        return None
    known = range(packed.KEYS)
    if (
        not isinstance(values, list)
        or not all(isinstance(value, int) and value in known for value in values)
        or not len(values) == len(set(values)) == given["segments"]
    ):
        wanted = f"{given['segments']} numbers below {packed.KEYS}, each once"
        raise _wrong("__dist_keys__", values, wanted)
    return values


def _num_classes(given: Mapping[str, Any], dependents: int) -> list[int | None]:
    values = given.get("num_classes")
    if not isinstance(values, list) or len(values) != dependents:
        raise _wrong("num_classes", values, f"a list of {dependents} numbers or nulls")
    if not all(v is None or (isinstance(v, int) and not isinstance(v, bool) and v > 0) for v in values):
        raise _wrong("num_classes", values, f"a list of {dependents} numbers or nulls")
    return values


def _wrong(key: str, value: object, expected: str) -> CerebroError:
    return CerebroError(f"{key} in the summary is {json.dumps(value)[:80]}, not {expected}", hint=_HINT)


_HINT = "The summary of a table that was packed here is an example."
