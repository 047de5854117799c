"""Copies versions and aliases of registered models to an MLflow model registry, and back."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_db import brought, exports
from cerebro_db.errors import CerebroError
from cerebro_db.link import Row
from cerebro_db.statements import call

if TYPE_CHECKING:
    from cerebro_db.protocols import Server

_FOLDER, _VERSION = "model", "version.json"
# Tags of a version in MLflow, by which a later export recognizes the version.
_NUMBER, _DIGEST = "cerebro.version", "cerebro.digest"
# The tags of a version in this database that hold its number in MLflow and the run that wrote it there.
_THERE, _RUN = "mlflow_version", "mlflow_run"
# How MLflow finds what reads the folder: mlflow.pyfunc.load_model("models:/churn@champion").
_MLMODEL = """flavors:
  python_function:
    loader_module: cerebro_db.mlflow_models
"""
_KEPT = ("version", "comment", "tags", "metrics", "lineage", "registered_by")


def _load_pyfunc(path: str) -> Any:
    """Load the model in a folder. MLflow finds this function by its name."""
    from cerebro_db.saved import load_model

    return load_model(path)


def export(
    save: Callable[[str, Path], Path],
    name: str,
    versions: Sequence[Row],
    tracking_uri: str,
    experiment: str | None,
) -> dict[int, int]:
    """Write those versions of a model that MLflow lacks to its registry, and set the aliases there.

    `save` writes a version to a folder. Return the number in MLflow of each version, by its number in this
    database.
    """
    if not versions:
        raise CerebroError(
            f"there is no registered model {name} that you may use", hint="db.models.list() shows those."
        )
    with exports.tracking_store(tracking_uri) as client:
        _make_model(client, name)
        numbers = _present(client, name)
        for row in versions:
            key = (str(row["version"]), str(row["digest"]))
            if key not in numbers:
                number = exports.experiment_in(client, experiment)
                numbers[key] = _write(save, client, number, row)
        found = {row["version"]: numbers[str(row["version"]), str(row["digest"])] for row in versions}
        for row in versions:
            for alias in row["aliases"]:
                client.set_registered_model_alias(name, alias, str(found[row["version"]]))
    return found


def _make_model(client: Any, name: str) -> None:
    if not client.search_registered_models(filter_string=f"name = '{name}'"):
        client.create_registered_model(name)


def _present(client: Any, name: str) -> dict[tuple[str, str], int]:
    return {
        (one.tags.get(_NUMBER, ""), one.tags.get(_DIGEST, "")): int(one.version)
        for one in client.search_model_versions(f"name = '{name}'")
    }


def _write(save: Callable[[str, Path], Path], client: Any, experiment: str, row: Row) -> int:
    """Write a version to MLflow as a run with metrics and files, register it, and return its number there."""
    reference = f"{row['name']}@{row['version']}"
    tags = {_NUMBER: str(row["version"]), _DIGEST: str(row["digest"])}
    run_id = client.create_run(experiment, run_name=reference, tags=tags).info.run_id
    for what, own in row["metrics"].items():
        for key in ("loss", "value"):
            if own.get(key) is not None:
                name = own["metric"] if key == "value" else key
                # NaN and infinity come as text.
                client.log_metric(run_id, f"{what}_{name}", float(own[key]))
    with tempfile.TemporaryDirectory() as made:
        folder = save(reference, Path(made) / _FOLDER)
        kept = {key: row[key] for key in _KEPT}
        (folder / _VERSION).write_text(json.dumps(kept, ensure_ascii=False, default=str), encoding="utf-8")
        (folder / "MLmodel").write_text(_MLMODEL, encoding="utf-8")
        client.log_artifacts(run_id, str(folder), _FOLDER)
    client.set_terminated(run_id)
    source = f"{client.get_run(run_id).info.artifact_uri}/{_FOLDER}"
    made_there = client.create_model_version(
        row["name"], source, run_id, tags=tags, description=row["comment"] or ""
    )
    return int(made_there.version)


def bring(db: Server, name: str, tracking_uri: str, into: str, versions: Sequence[Row]) -> dict[int, int]:
    """Register those versions of MLflow's model `name` that this database lacks, and set the aliases.

    `versions` has the rows of the versions in this database. Return the number in this database of each
    version, by its number in MLflow.
    """
    with exports.tracking_store(tracking_uri) as client:
        found = sorted(client.search_model_versions(f"name = '{name}'"), key=lambda one: int(one.version))
        if not found:
            raise CerebroError(f"MLflow has no registered model {name}")
        known = _brought(versions)
        numbers: dict[int, int] = {}
        for one in found:
            numbers[int(one.version)] = known.get(one.run_id) or _register(db, client, one, into)
        aliases: Mapping[str, Any] = client.get_registered_model(name).aliases
    for alias, version in aliases.items():
        if int(version) not in numbers:
            raise CerebroError(f"alias {alias} in MLflow points at version {version}, which is not there")
        db.rows(call("set_alias", into, alias, numbers[int(version)]))
    return {int(one.version): numbers[int(one.version)] for one in found}


def _brought(versions: Sequence[Row]) -> dict[str, int]:
    """Return the numbers of the versions that came from MLflow, by the runs that wrote them there.

    Numbers in MLflow do not tell versions apart: another registry begins with 1 as well.
    """
    found = [(row["tags"].get(_RUN), row["version"]) for row in versions]
    # Users may set a tag of this name to any value.
    return {run: version for run, version in found if isinstance(run, str)}


def _register(db: Server, client: Any, version: Any, into: str) -> int:
    with tempfile.TemporaryDirectory() as made:
        try:
            if not version.run_id:
                raise ValueError("it belongs to no run")
            if not client.list_artifacts(version.run_id, _FOLDER):
                raise ValueError(f"its run has no folder {_FOLDER}")
            folder = Path(client.download_artifacts(version.run_id, _FOLDER, made))
            kept = json.loads((folder / _VERSION).read_text(encoding="utf-8"))
            if not all(isinstance(one, dict) for one in (kept, kept["tags"], kept["metrics"])):
                raise ValueError(f"{_VERSION} has not what it should")
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise CerebroError(
                f"version {version.version} in MLflow was not written by cerebro",
                detail=str(error),
                hint="db.models.to_mlflow writes versions that can be brought back.",
            ) from None
        tags = {**kept["tags"], _THERE: int(version.version), _RUN: version.run_id}
        lineage = {"lineage": kept["lineage"]} if kept.get("lineage") else {}
        return brought.register(
            db,
            folder,
            into,
            comment=version.description or None,
            tags={**tags, **lineage},
            metrics=kept["metrics"],
        )
