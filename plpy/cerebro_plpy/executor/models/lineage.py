"""Describes the origin of a registered version: its run, tables, and versions of packages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cerebro_plpy.database import Database, word
from cerebro_plpy.errors import INSUFFICIENT_PRIVILEGE, CerebroError
from cerebro_plpy.predicting.holders import ModelHolder, RegisteredVersion
from cerebro_plpy.store import names, session
from cerebro_plpy.store.models import retraining
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.runs import results, runs

# The columns of a summary that say where a model comes from.
_LINEAGE = ("run_id", "seed", "segments", "name", "description", results.FOLDS[0])
_TEXTS = ("name", "description")
TABLES = {"training": "source_table", "validation": "validation_table"}
# The part of a version's lineage that has the call of cerebro.train, for cerebro.retrain.
RECIPE = retraining.RECIPE

# The columns of a summary that predicting reads, besides the class values.
_ABOUT = ("dependent_varname", "independent_varname", "num_classes", "normalizing_const", packed.FEATURES[0])


def describe_rows(db: Database, holder: ModelHolder, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about rows that predicting needs, such as column names and class values."""
    return {
        "summary": {key: summary[key] for key in _ABOUT if key in summary},
        "class_values": holder.class_values(db, summary["dependent_varname"]),
    }


def describe_copy(db: Database, holder: RegisteredVersion) -> dict[str, Any]:
    """Return the metrics and the lineage of a version that is copied to another registered model."""
    held = holder.read(db)
    lineage = {**json.loads(held.lineage), "copied_from": holder.name}
    if isinstance(lineage.get(RECIPE), dict) and held.registered_by != session.current_user(db):
        lineage[RECIPE] = retraining.sign(lineage[RECIPE], held.registered_by)
    return {"metrics": json.loads(held.metrics), "lineage": lineage}


def describe_origin(
    db: Database, table: str, summary: Mapping[str, Any], mst_key: int | None
) -> dict[str, Any]:
    """Return the lineage of a model that a run has trained: its tables, run and software versions."""
    return {
        "model_table": _lasting(table),
        "mst_key": mst_key,
        **{key: word(str(summary[key])) if key in _TEXTS else summary[key] for key in _known(summary)},
        **{key: _kept_table(summary, key) for key in TABLES.values()},
        **_of_run(db, summary.get("run_id")),
        **_recipe(db, summary),
        "versions": {"cerebro": session.version(db), **session.server_versions(db), **_engines(db)},
    }


def _known(summary: Mapping[str, Any]) -> list[str]:
    return [key for key in _LINEAGE if summary.get(key) is not None]


def describe_measured(row: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the last loss and metric on training rows and on validation rows, each with the rows' table.

    An ensemble of folds is validated on all rows, each answered by models that have not seen it.
    """
    kinds = row.get("metrics_type") or [None]
    in_folds = summary.get(results.FOLDS[0]) is not None
    return {
        what: {
            "rows": _kept_table(summary, TABLES["training"] if in_folds else table),
            "loss": row[f"{what}_loss_final"],
            "metric": kinds[0],
            "value": row.get(f"{what}_metrics_final"),
        }
        for what, table in TABLES.items()
        if row.get(f"{what}_loss_final") is not None
    }


def _kept_table(summary: Mapping[str, Any], column: str) -> str | None:
    """Return the table that a summary names in `column`, or None if the table is temporary."""
    return _lasting(results.named_table(summary, column))


def _lasting(table: str | None) -> str | None:
    """Return the name of a table, or None if the table is temporary, such as a table of a retraining."""
    return None if table is None or names.is_temporary(table) else table


def _recipe(db: Database, summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a mapping with the recipe of the cerebro.train call that packed the rows; empty without one."""
    found = retraining.find_recipe(db, summary)
    return {RECIPE: found} if found else {}


def _engines(db: Database) -> Mapping[str, str]:
    return session.host_facts(db)["engines"]


def _of_run(db: Database, run_id: int | None) -> Mapping[str, Any]:
    """Return the versions of packed tables that a run has read, if the run is the caller's."""
    try:
        run = runs.own_run(db, run_id, session.current_user(db), members=True)
    except CerebroError as error:
        if error.sqlstate == INSUFFICIENT_PRIVILEGE:
            return {}
        raise
    read = json.loads(run.packed_versions)
    found = {table: facts["version"] for table, facts in read.items() if _lasting(table) is not None}
    return {"packed_versions": found}
