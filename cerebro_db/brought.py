"""Registers models that were saved to a folder, from this or another database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_db import brought_groups, saved, stored
from cerebro_db.statements import Raw, call, literal, select_list

if TYPE_CHECKING:
    from cerebro_db.protocols import Server

# The name of temporary tables, which are dropped at the end: registered models do not need them.
_MODEL = "cerebro_brought"
# The data sets with metrics, which begin the names of the summary's columns.
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

    The content of the folder is not trusted: the server checks it as it checks any table of the caller.
    """
    found = saved.read_document(folder)
    weights = saved.read_weights(folder, found.get("weights_sha256"))
    origin = {"model": found.get("model"), "weights_sha256": found.get("weights_sha256")}
    given = {**(tags or {}), "brought_from": origin}
    try:
        values, parts = _tables(db, folder, found, weights, metrics or {})
        for net in found["nets"].values() if "group_by" in found else [found]:
            # The server checks each net, so that none with code is registered.
            stored.checked(db, json.dumps(net["architecture"]))
        kept = call("register", f"pg_temp.{_MODEL}", name, comment=comment, tags=given)
        # In the caller's transaction, a second model may need the same table names.
        dropped = f"DROP TABLE {', '.join(f'pg_temp.{_MODEL}{suffix}' for suffix in parts)}"
        return db.transaction([*parts.values(), kept, dropped], *values)[0]["register"]
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        # Raised for values that JSON can hold but the server cannot, and for values that are no numbers.
        raise saved.no_model(folder, f"it says what no database can keep, {error}") from None


def _tables(
    db: Server, folder: Path, found: Mapping[str, Any], weights: bytes, metrics: Mapping[str, Any]
) -> tuple[list[object], dict[str, str]]:
    """Return the parameters and the statements that create the tables of a model.

    The parameters belong to the first statement. Each statement is found by the suffix of its table's name.
    """
    if "group_by" in found:
        groups = brought_groups.read(folder, found, weights)
        types = brought_groups.find_types(db, folder, groups.types)
        # All nets have the same inputs and outputs.
        net = next(iter(found["nets"].values()))
        summary = _summary(net, _read_about(folder, net))
        return groups.values(weights), brought_groups.statements(_MODEL, types, summary)
    summary = _summary(found, _read_about(folder, found))
    columns = {
        "model_id": Raw("1"),
        "compile_params": Raw(f"{literal(str(found.get('compile_params')))}::pg_catalog.text"),
        "fit_params": Raw(f"{literal(str(found.get('fit_params')))}::pg_catalog.text"),
        **summary,
        **_measured(metrics),
    }
    made = f"CREATE TEMPORARY TABLE {_MODEL}"
    return [weights, json.dumps(found["architecture"])], {
        "": f"{made} ON COMMIT DROP AS"
        " SELECT %s::pg_catalog.bytea AS model_weights, %s::pg_catalog.json AS model_arch",
        "_summary": f"{made}_summary ON COMMIT DROP AS SELECT {select_list(columns)}",
    }


def _read_about(folder: Path, net: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the description of a net's inputs and outputs; raise CerebroError if it is not valid."""
    about = net.get("about")
    if not isinstance(about, dict) or not isinstance(net.get("architecture"), dict):
        raise saved.no_model(folder, "it describes no net")
    if not isinstance(about.get("class_values") or {}, dict):
        raise saved.no_model(folder, "its class values are no object")
    return about


def _summary(net: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Raw]:
    """Return the SQL expressions for the columns of a model summary that describe inputs and outputs."""
    classes: Mapping[str, Any] = about.get("class_values") or {}
    return {
        "dependent_varname": _array(about.get("dependent_varname"), "text"),
        "independent_varname": _array(about.get("independent_varname"), "text"),
        "num_classes": _array(about.get("num_classes"), "int4"),
        "normalizing_const": Raw(f"{literal(about.get('normalizing_const'))}::pg_catalog.float4"),
        "feature_specification": Raw(f"{literal(net.get('features'))}::pg_catalog.jsonb"),
        **{f"{name}_class_values": _array(values, "text") for name, values in classes.items()},
    }


def _array(values: object, kind: str) -> Raw:
    """Return the values as an SQL array with its type, which an empty array or NULL needs."""
    return Raw(f"{literal(list(values) if isinstance(values, list) else None)}::pg_catalog.{kind}[]")


def _measured(metrics: Mapping[str, Any]) -> dict[str, Raw]:
    found: dict[str, Raw] = {}
    for what in _MEASURED:
        own = metrics.get(what)
        if not isinstance(own, dict):
            continue
        for key, column in (("loss", f"{what}_loss_final"), ("value", f"{what}_metrics_final")):
            value = None if own.get(key) is None else str(float(own[key]))
            found[column] = Raw(f"{literal(value)}::pg_catalog.float8")
        if own.get("metric"):
            found["metrics_type"] = _array([str(own["metric"])], "text")
    return found
