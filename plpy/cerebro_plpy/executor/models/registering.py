"""cerebro.register: keeps a trained model as a version of a registered model, whole and for good."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import INSUFFICIENT_PRIVILEGE, WRONG_STATE, CerebroError
from cerebro_plpy.executor.models import aliases
from cerebro_plpy.forecasting.document import Forecast, read_forecast
from cerebro_plpy.madlib.literal import shorten
from cerebro_plpy.predicting.examining import profiles
from cerebro_plpy.predicting.holders import ModelHolder, RegisteredVersion, TrainedModel
from cerebro_plpy.predicting.trained import check_readable, find_model, resolve
from cerebro_plpy.registry import history, references
from cerebro_plpy.store import names, session
from cerebro_plpy.store.models import model_versions, retraining
from cerebro_plpy.store.models.model_versions import MANAGE, PREDICT
from cerebro_plpy.store.names import check_writable, quote
from cerebro_plpy.store.packed import packed
from cerebro_plpy.store.packed.packed import FEATURES
from cerebro_plpy.store.related import series
from cerebro_plpy.store.runs import results, runs

# What of a summary predicting reads, besides the class values.
_ABOUT = ("dependent_varname", "independent_varname", "num_classes", "normalizing_const", FEATURES[0])
# What of a summary says where a model comes from.
_LINEAGE = ("run_id", "seed", "segments", "name", "description")
_TABLES = ("source_table", "validation_table")
# Of a version's lineage: the call of cerebro.train, for cerebro.retrain.
RECIPE = retraining.RECIPE


def register(
    db: Database,
    model_table: str | None,
    name: str | None,
    mst_key: int | None,
    comment: str | None,
    tags: str | None,
) -> int:
    """Keep a trained model as a new version, and return its number."""
    known = references.check_name(name, "the name of a model")
    said = _read_tags(tags)
    check_writable(db, f"a version of {known}")
    version = add_version(db, known, model_table, mst_key, comment, said)
    _tell(db, known, version)
    return version


def add_version(
    db: Database,
    name: str,
    model_table: str | None,
    mst_key: int | None = None,
    comment: str | None = None,
    tags: Mapping[str, Any] | None = None,
) -> int:
    """Keep a trained model as the next version of a registered model."""
    forecast = _find_forecast(db, model_table)
    if forecast is not None and mst_key is None:
        mst_key = _key_of(str(model_table), forecast)
    found = find_model(db, model_table, mst_key)
    if isinstance(found.holder, RegisteredVersion) and found.holder.found.privilege == PREDICT:
        raise model_versions.may_only_predict(found.holder.name)
    role = session.current_user(db)
    row, data = _version_row(db, found), found.holder.weights(db, found)
    if forecast is not None and forecast.mst_key == found.mst_key:
        row["lineage"] = {**row["lineage"], series.LINEAGE: forecast.as_document()}
    digest = hashlib.sha256(data).hexdigest()
    version = _next_version(db, name, role)
    given = {
        **row,
        "digest": digest,
        "weights_bytes": len(data),
        "comment": comment,
        "tags": tags or {},
        "registered_by": role,
    }
    model_versions.add(db, name, version, given, data)
    model_versions.note(db, name, history.REGISTERED, role, version=version)
    if version == 1:
        aliases.point(db, name, references.DEFAULT, version)
    return version


def _find_forecast(db: Database, model_table: str | None) -> Forecast | None:
    """Return the forecast whose models a table has, if there is one."""
    if model_table is None or references.is_marked(model_table):
        return None
    beside = names.find_table(db, names.with_suffix(model_table, series.SUFFIX), "forecast")
    if beside is None or series.DOCUMENT not in packed.columns_of(db, beside):
        return None
    check_readable(
        db, [beside], instead="Name the model table itself.", why="A version has the forecast that it says."
    )
    return read_forecast(series.read_document(db, beside), beside.quoted)


def _key_of(model_table: str, forecast: Forecast) -> int:
    """Return the config that forecasts; refuse a forecast that needs no model."""
    if forecast.mst_key is None:
        raise CerebroError(
            f"{model_table} forecasts with {forecast.answer}, which is no model to be registered",
            detail="No net was better by more than chance.",
            hint=f"cerebro.forecast('{model_table}') answers without one. To register a net, give its"
            " mst_key.",
            sqlstate=WRONG_STATE,
        )
    return forecast.mst_key


def _read_tags(text: str | None) -> Mapping[str, Any]:
    tags = {} if text is None else json.loads(text)
    if not isinstance(tags, dict):
        raise CerebroError(f"tags is {shorten(str(text), 80)}", hint='Give a JSON object: {"team": "risk"}.')
    return tags


def _next_version(db: Database, name: str, role: str) -> int:
    """Return the number of a model's next version, once the model is there and the caller may add to it."""
    if not model_versions.lock(db, name):
        model_versions.begin(db, name, role)
        model_versions.lock(db, name)
    if model_versions.privilege(db, name) != MANAGE:
        raise CerebroError(
            f"the name {name} is taken by a registered model to which you may add no version",
            hint="Take another name, or have its owner grant that:"
            f" SELECT cerebro.grant_model('{name}', '{role}', 'manage').",
            sqlstate=INSUFFICIENT_PRIVILEGE,
        )
    return model_versions.last_version(db, name) + 1


def _version_row(db: Database, found: TrainedModel) -> dict[str, Any]:
    """Return all of a version that is no weights; refuse what no function predicts with."""
    holder, summary = found.holder, found.holder.summary(db)
    known = profiles.find_profile(db, found)
    about = {
        "model_id": found.selected.model_id,
        "summary": {key: summary[key] for key in _ABOUT if key in summary},
        "class_values": holder.class_values(db, summary["dependent_varname"]),
        "profile": None if known is None else known.as_json(),
    }
    return {
        "model_arch": found.stored.model_arch,
        "compile_params": found.selected.compile_params,
        "fit_params": found.selected.fit_params,
        "backend": found.backend,
        "about": json.dumps(about),
        **_origin(db, holder, found, summary),
    }


def _origin(
    db: Database, holder: ModelHolder, found: TrainedModel, summary: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what was measured and where the model comes from."""
    if isinstance(holder, RegisteredVersion):
        held = holder.read(db)
        lineage = {**json.loads(held.lineage), "copied_from": holder.name}
        return {"metrics": json.loads(held.metrics), "lineage": lineage}
    lineage = {
        "model_table": holder.name,
        "mst_key": found.mst_key,
        **{key: summary[key] for key in _LINEAGE if summary.get(key) is not None},
        **{key: results.named_table(summary, key) for key in _TABLES},
        **_of_run(db, found.run_id),
        **_recipe(db, summary),
        "versions": {"cerebro": session.version(db), **session.server_versions(db), **_engines(db)},
    }
    return {"metrics": _measured(db, holder, found, summary), "lineage": lineage}


def _measured(
    db: Database, holder: ModelHolder, found: TrainedModel, summary: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the last measurements on each kind of rows, with the table that holds them."""
    row = summary
    if found.mst_key is not None:
        table = holder.weights_table(db)
        info = quote(table.schema, table.name + "_info")
        row = results.config_row(db, info, found.mst_key)
    kinds = row.get("metrics_type") or [None]
    return {
        what: {
            "rows": results.named_table(summary, table),
            "loss": row[f"{what}_loss_final"],
            "metric": kinds[0],
            "value": row.get(f"{what}_metrics_final"),
        }
        for what, table in zip(("training", "validation"), _TABLES, strict=True)
        if row.get(f"{what}_loss_final") is not None
    }


def _recipe(db: Database, summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the call of cerebro.train, if the rows were packed by one."""
    table = names.find_table(db, results.named_table(summary, "source_table"))
    beside = table and names.find_table(db, quote(table.schema, table.name + packed.SUMMARY))
    found = beside and retraining.recipe(db, beside)
    return {RECIPE: json.loads(found)} if found else {}


def _engines(db: Database) -> Mapping[str, str]:
    return session.host_facts(db)["engines"]


def _of_run(db: Database, run_id: int | None) -> Mapping[str, Any]:
    """Return the versions of the packed tables that a run of the caller's has read."""
    try:
        run = runs.own_run(db, run_id, session.current_user(db), members=True)
    except CerebroError as error:
        if error.sqlstate == INSUFFICIENT_PRIVILEGE:
            return {}
        raise
    read = json.loads(run.packed_versions)
    return {"packed_versions": {table: facts["version"] for table, facts in read.items()}}


def _tell(db: Database, name: str, version: int) -> None:
    """Say what the name alone means where that may surprise."""
    meant = resolve(db, name)
    if not isinstance(meant, RegisteredVersion):
        db.notice(
            f"this is {name}@{version}; {name} alone means the model table {meant.name},"
            f" and {name}@{references.DEFAULT} the registered model"
        )
    elif meant.found.version != version:
        db.notice(
            f"this is {name}@{version}; {name} alone still means {meant.name}, until cerebro.set_alias"
            f" moves its alias {references.DEFAULT}"
        )
