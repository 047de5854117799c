"""Registers models that were saved to a folder, in this database or in another one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_db import saved
from cerebro_db.errors import CerebroError
from cerebro_db.statements import Raw, call, identifier, literal

if TYPE_CHECKING:
    from cerebro_db.protocols import Server

# The session's own tables, which the transaction drops: what is registered stands by itself.
_MODEL = "cerebro_brought"
# What was measured, by its column in the summary of a table of one model.
_MEASURED = ("training", "validation")


def register(
    db: Server,
    folder: Path,
    name: str,
    *,
    comment: str | None = None,
    tags: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> int:
    """Register the model in a folder as a new version, and return the version's number.

    The server takes it as it takes any table of the caller's, whatever the folder says.
    """
    found = saved.read_document(folder)
    if "group_by" in found:
        raise CerebroError(
            f"{folder} holds models of groups, which are registered from a table of models alone",
            hint="cerebro_db.load_model answers with them where they are.",
        )
    weights = saved.read_weights(folder, found.get("weights_sha256"))
    about = found.get("about")
    if not isinstance(about, dict) or not isinstance(found.get("architecture"), dict):
        raise saved.no_model(folder, "it describes no net")
    if not isinstance(about.get("class_values") or {}, dict):
        raise saved.no_model(folder, "its class values are no object")
    origin = {"model": found.get("model"), "weights_sha256": found.get("weights_sha256")}
    given = {**(tags or {}), "brought_from": origin}
    columns = _summary(found, about, metrics or {})
    parts = [
        f"CREATE TEMPORARY TABLE {_MODEL} ON COMMIT DROP AS"
        " SELECT %s::pg_catalog.bytea AS model_weights, %s::pg_catalog.json AS model_arch",
        f"CREATE TEMPORARY TABLE {_MODEL}_summary ON COMMIT DROP AS SELECT {columns}",
        call("register", f"pg_temp.{_MODEL}", name, comment=comment, tags=given),
    ]
    return db.transaction(parts, weights, json.dumps(found["architecture"]))[0]["register"]


def _summary(found: Mapping[str, Any], about: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    """Write the columns of the summary of a table of one model, with the folder's values."""
    classes: Mapping[str, Any] = about.get("class_values") or {}
    columns = {
        "dependent_varname": _array(about.get("dependent_varname"), "text"),
        "independent_varname": _array(about.get("independent_varname"), "text"),
        "num_classes": _array(about.get("num_classes"), "int4"),
        "normalizing_const": Raw(f"{literal(about.get('normalizing_const'))}::pg_catalog.float4"),
        "model_id": Raw("1"),
        "compile_params": Raw(f"{literal(str(found.get('compile_params')))}::pg_catalog.text"),
        "fit_params": Raw(f"{literal(str(found.get('fit_params')))}::pg_catalog.text"),
        "feature_specification": Raw(f"{literal(found.get('features'))}::pg_catalog.jsonb"),
        **{f"{name}_class_values": _array(values, "text") for name, values in classes.items()},
        **_measured(metrics),
    }
    return ", ".join(f"{value} AS {identifier(name)}" for name, value in columns.items())


def _array(values: object, kind: str) -> Raw:
    """Write an array, which has its type also where it is empty or NULL."""
    return Raw(f"{literal(list(values) if isinstance(values, list) else None)}::pg_catalog.{kind}[]")


def _measured(metrics: Mapping[str, Any]) -> dict[str, Raw]:
    found: dict[str, Raw] = {}
    for what in _MEASURED:
        own = metrics.get(what)
        if not isinstance(own, dict):
            continue
        for key, column in (("loss", f"{what}_loss_final"), ("value", f"{what}_metrics_final")):
            found[column] = Raw(f"{literal(own.get(key))}::pg_catalog.float8")
        if own.get("metric"):
            found["metrics_type"] = _array([own["metric"]], "text")
    return found
