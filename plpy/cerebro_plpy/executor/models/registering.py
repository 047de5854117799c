"""cerebro.register: store a trained model permanently, as a version of a registered model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import INSUFFICIENT_PRIVILEGE, CerebroError
from cerebro_plpy.executor.models import aliases, lineage, registering_groups
from cerebro_plpy.forecasting.document import Forecast, read_forecast
from cerebro_plpy.madlib.literal import shorten
from cerebro_plpy.predicting import group_holders
from cerebro_plpy.predicting.answering import forecasts
from cerebro_plpy.predicting.examining import profiles
from cerebro_plpy.predicting.holders import RegisteredVersion, TrainedModel, may_only_predict
from cerebro_plpy.predicting.trained import check_readable, find_model, resolve
from cerebro_plpy.registry import history, references
from cerebro_plpy.store import session
from cerebro_plpy.store.models import model_versions
from cerebro_plpy.store.models.model_versions import MANAGE
from cerebro_plpy.store.names import check_writable, quote
from cerebro_plpy.store.related import series
from cerebro_plpy.store.runs import results


def register(
    db: Database,
    model_table: str | None,
    name: str | None,
    mst_key: int | None,
    comment: str | None,
    tags: str | None,
) -> int:
    """Store a trained model as a new version of a registered model; return the number of the version."""
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
    """Store a trained model as the next version of a registered model, which is created if it does not exist.

    Return the number of the version.
    """
    forecast = _find_forecast(db, model_table)
    kept = forecast if forecast is not None and mst_key in (None, forecast.mst_key) else None
    if kept is not None:
        # If baselines alone answer, the best net is stored beside them.
        mst_key = kept.mst_key
    groups = group_holders.find_groups(db, model_table, mst_key) if forecast is None else None
    if groups is None:
        found = find_model(db, model_table, mst_key, takes_forecast=True)
        row, data = _one_model(db, found)
        if kept is not None:
            row["lineage"] = {**row["lineage"], series.LINEAGE: kept.as_document()}
    else:
        row, data = registering_groups.describe_version(db, groups)
    role = session.current_user(db)
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
    """Return the forecast to which a model table belongs, or None if it belongs to none."""
    if model_table is None or references.is_marked(model_table):
        return None
    beside = forecasts.find_description(db, model_table)
    if beside is None:
        return None
    check_readable(
        db, [beside], instead="Name the model table itself.", why="A version has the forecast that it says."
    )
    return read_forecast(series.read_document(db, beside), beside.quoted)


def _read_tags(text: str | None) -> Mapping[str, Any]:
    tags = {} if text is None else json.loads(text)
    if not isinstance(tags, dict):
        raise CerebroError(f"tags is {shorten(str(text), 80)}", hint='Give a JSON object: {"team": "risk"}.')
    return tags


def _next_version(db: Database, name: str, role: str) -> int:
    """Return the number of a model's next version, after locking the model, which is created if necessary.

    Raise an error if the caller may not add a version.
    """
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


def _one_model(db: Database, found: TrainedModel) -> tuple[dict[str, Any], bytes]:
    """Return the row that stores a version with one model, and separately the weights."""
    holder, summary = found.holder, found.holder.summary(db)
    if may_only_predict(holder):
        raise model_versions.may_only_predict(holder.name)
    known = profiles.find_profile(db, found)
    about = {
        "model_id": found.selected.model_id,
        **lineage.describe_rows(db, holder, summary),
        "profile": None if known is None else known.as_json(),
    }
    row = {
        "model_arch": found.stored.model_arch,
        "compile_params": found.selected.compile_params,
        "fit_params": found.selected.fit_params,
        "backend": found.backend,
        "about": json.dumps(about),
        **_origin(db, found, summary),
    }
    return row, holder.weights(db, found)


def _origin(db: Database, found: TrainedModel, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics and the lineage of a model."""
    holder, row = found.holder, summary
    if isinstance(holder, RegisteredVersion):
        return lineage.describe_copy(db, holder)
    if found.mst_key is not None:
        table = holder.weights_table(db)
        row = results.config_row(db, quote(table.schema, table.name + "_info"), found.mst_key)
    return {
        "metrics": lineage.describe_measured(row, summary),
        "lineage": lineage.describe_origin(db, holder.name, summary, found.mst_key),
    }


def _tell(db: Database, name: str, version: int) -> None:
    """Send a notice if the model's name alone does not mean the new version."""
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
