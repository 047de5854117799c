"""Registered models: versions that never change, and the aliases that point at them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_db import brought, judged, models, saved, stored
from cerebro_db.errors import CerebroError
from cerebro_db.frames import frame
from cerebro_db.link import Row
from cerebro_db.statements import call, call_rows

if TYPE_CHECKING:
    import pandas

    from cerebro_db.plots import Picture
    from cerebro_db.protocols import Server

DEFAULT = "default"
MODELS = (
    "name", "owner", "default_version", "versions", "newest_version", "aliases", "at", "privilege",
    "granted_to",
)  # fmt: skip
VERSIONS = (
    "name", "version", "aliases", "comment", "tags", "metrics", "compile_params", "fit_params", "lineage",
    "weights_bytes", "digest", "registered_by", "at", "privilege",
)  # fmt: skip
HISTORY = ("name", "at", "event", "alias", "version", "role")


class RegisteredModels:
    """The registered models that you may use. A reference is name, name@alias or name@version."""

    def __init__(self, db: Server) -> None:
        self._db = db

    def list(self) -> pandas.DataFrame:
        """Return the models as a data frame."""
        return frame(list_models(self._db), MODELS)

    def versions(self, name: str) -> pandas.DataFrame:
        """Return the versions of a model as a data frame."""
        return frame(list_versions(self._db, name), VERSIONS)

    def history(self, name: str) -> pandas.DataFrame:
        """Return what became of a model: versions that came and went, and where its aliases pointed."""
        query = f"SELECT {', '.join(HISTORY)} FROM cerebro.model_history WHERE name = %s ORDER BY event_id"
        return frame(self._db.look(query, name), HISTORY)

    def register(
        self,
        model_table: str,
        name: str,
        mst_key: int | None = None,
        *,
        comment: str | None = None,
        tags: Mapping[str, Any] | None = None,
    ) -> int:
        """Keep a model of a table, by default its best, as a new version; return the version's number."""
        statement = call("register", model_table, name, mst_key, comment=comment, tags=tags)
        return self._db.rows(statement)[0]["register"]

    def alias(self, name: str, alias: str, version: int | None) -> None:
        """Have an alias point at a version, or remove it if the version is None."""
        if version is None:
            self._db.rows(call("drop_alias", name, alias))
        else:
            self._db.rows(call("set_alias", name, alias, version))

    def promote(
        self,
        name: str,
        version: int,
        alias: str = DEFAULT,
        *,
        if_better_on: str | None = None,
        metric: str | None = None,
    ) -> Row:
        """Have an alias point at a version; with a packed table, only if that has less error on its rows.

        Return what decided: `promoted`, `candidate`, `previous`, `measured`, `value`, `previous_value`, and
        `gain`, by how much the error is less, between `gain_low` and `gain_high`.
        """
        decided = call_rows("promote", name, version, alias, if_better_on=if_better_on, metric=metric)
        return self._db.rows(decided)[0]

    def retrain(
        self,
        name: str,
        source: str | None = None,
        budget: str | None = None,
        promote: str = "if_better",
        alias: str = DEFAULT,
        options: Mapping[str, Any] | None = None,
    ) -> Row:
        """Train a model anew, by default on the same table as before, and register the next version.

        Return `version`, whether it was `promoted`, and what decided: `previous`, `measured`, `value`,
        `previous_value`, `judged_rows` and `reason`.
        """
        decided = call_rows(
            "retrain", name, source=source, budget=budget, promote=promote, alias=alias, options=options
        )
        return self._db.rows(decided)[0]

    def rollback(self, name: str, alias: str = DEFAULT) -> int:
        """Have an alias point where it pointed before; return that version."""
        return self._db.rows(call("rollback", name, alias))[0]["rollback"]

    def drop(self, name: str, version: int | None = None) -> None:
        """Remove a version that no alias points at, or without a version the whole model."""
        self._db.rows(call("unregister", name) if version is None else call("drop_version", name, version))

    def grant(self, name: str, role: str, privilege: str) -> None:
        """Let a role predict with a model, read it or manage it; public is every role."""
        self._db.rows(call("grant_model", name, role, privilege))

    def set_owner(self, name: str, role: str) -> None:
        """Give a model to another role."""
        self._db.rows(call("set_model_owner", name, role))

    def revoke(self, name: str, role: str) -> None:
        """Take back what a role was granted on a model."""
        self._db.rows(call("revoke_model", name, role))

    def check(self, model: str, source: str, thresholds: Mapping[str, Any] | None = None) -> pandas.DataFrame:
        """Compare the rows of a table with a model's training rows, one finding a row."""
        return frame(judged.check(self._db, model, source, thresholds), judged.CHECKED)

    def worst_rows(self, model: str, source: str, limit: int = 20) -> pandas.DataFrame:
        """Return the rows of a table that a model answers worst."""
        return frame(judged.worst_rows(self._db, model, source, limit), judged.WORST)

    def explain(
        self, model: str, source: str, id_column: str, ids: Sequence[Any], top: int | None = 5
    ) -> pandas.DataFrame:
        """Predict the rows of a table with these ids, and return the columns that add most to each answer."""
        return frame(judged.explain(self._db, model, source, id_column, ids, top=top), judged.EXPLAINED)

    def explain_forecast(
        self,
        name: str,
        which: Mapping[str, Any] | None = None,
        horizon: int | None = None,
        top: int | None = 5,
    ) -> pandas.DataFrame:
        """Return what adds most to each step of a forecast; `which` has the columns that name the series."""
        return frame(judged.explain_forecast(self._db, name, which, horizon, top=top), judged.STEPS)

    def importance(self, model: str, source: str, **options: Any) -> pandas.DataFrame:
        """Return by how much a model gets worse without each column; the options are those of the server."""
        return frame(judged.importance(self._db, model, source, options), judged.IMPORTANCE)

    def plot_importance(self, model: str, source: str, **options: Any) -> Picture:
        """Draw what `importance` returns as bars; in a notebook the picture shows itself."""
        from cerebro_db import plots

        return plots.importance(judged.importance(self._db, model, source, options), f"What {model} goes by")

    def plot_explanation(
        self, model: str, source: str, id_column: str, row: Any, top: int | None = None
    ) -> Picture:
        """Draw what the columns of one row add to its answer as bars."""
        from cerebro_db import plots

        found = judged.explain(self._db, model, source, id_column, [row], top=top)
        if not found:
            raise CerebroError(f"{source} has no row whose {id_column} is {row}")
        said = found[0]["prediction"] if found[0]["class"] is None else found[0]["class"]
        return plots.explanation(found, f"{model} says {said} of {id_column} {row}")

    def evaluate_by(self, model: str, source: str, by: Sequence[str]) -> pandas.DataFrame:
        """Evaluate a model on all rows of a table, and on the parts that have the same values in columns."""
        return frame(judged.evaluate_by(self._db, model, source, by), judged.PARTS)

    def get(self, reference: str, custom_objects: Mapping[str, Any] | None = None) -> Any:
        """Return a version as a live Keras model, not compiled. It takes the right to read the model."""
        return self._restore(self._read_one(reference), custom_objects)

    def save(self, reference: str, path: str | Path, custom_objects: Mapping[str, Any] | None = None) -> Path:
        """Write a version to a folder, which `cerebro_db.load_model` reads; or to a file.

        A file is `.keras` or `.onnx`; what its columns became is written beside it.
        """
        path = Path(path)
        if path.is_dir() or not path.suffix:
            rows = self._read(reference)
            self._check_no_forecast(rows[0]["reference"])
            return saved.save(rows, self._checked, path)
        found = self._read_one(reference)
        features = found["features"]
        described = None if features is None else {**features, "classes": found["about"]["class_values"]}
        return models.save(self._restore(found, custom_objects), path, described)

    def load(
        self,
        folder: str | Path,
        name: str,
        *,
        comment: str | None = None,
        tags: Mapping[str, Any] | None = None,
    ) -> int:
        """Register the model in a folder that `save` has written, here or for another database.

        Return the number of the new version.
        """
        return brought.register(self._db, Path(folder), name, comment=comment, tags=tags)

    def to_mlflow(self, name: str, tracking_uri: str, experiment: str | None = None) -> dict[int, int]:
        """Write the versions and aliases of a model to MLflow's registry; those that are there stay.

        Return the number that each version has there. It takes the right to read the model.
        """
        from cerebro_db import mlflow_models

        known, versions = name.lower(), list_versions(self._db, name.lower())[::-1]
        return mlflow_models.export(self.save, known, versions, tracking_uri, experiment)

    def from_mlflow(self, name: str, tracking_uri: str, into: str | None = None) -> dict[int, int]:
        """Register the versions that `to_mlflow` has written, and set their aliases; those here stay.

        Return the number that each of MLflow's versions has here.
        """
        from cerebro_db import mlflow_models

        here = (into or name).lower()
        return mlflow_models.bring(self._db, name, tracking_uri, here, list_versions(self._db, here))

    def _checked(self, found: Row) -> str:
        """Return the net, which somebody else may have registered, as the server has checked it."""
        return stored.checked(self._db, json.dumps(found["model_arch"]))

    def _restore(self, found: Row, custom_objects: Mapping[str, Any] | None) -> Any:
        return models.restore(self._checked(found), bytes(found["model_weights"]), custom_objects or {})

    def _check_no_forecast(self, reference: str) -> None:
        """Refuse a version whose answers take more than its net, by its name and number."""
        name, _, version = reference.partition("@")
        lineages = (row["lineage"] for row in list_versions(self._db, name) if row["version"] == int(version))
        if any("forecast" in (lineage or ()) for lineage in lineages):
            raise CerebroError(
                f"{reference} is a forecast, which answers in the database alone",
                detail="It reads the newest rows of its series there.",
                hint=f"db.forecast('{reference}') has its forecasts. A file such as net.keras holds its net.",
                shell=f"cerebro forecast {reference} has its forecasts.",
                sqlstate="0A000",
            )

    def _read(self, reference: str) -> Sequence[Row]:
        return self._db.rows(call_rows("read_model", reference))

    def _read_one(self, reference: str) -> Row:
        """Return a version that is one model."""
        found = self._read(reference)
        if "group_by" in found[0]["about"]:
            raise CerebroError(
                f"{reference} has a net for each of {len(found)} groups",
                hint="db.models.save writes them to a folder, which cerebro_db.load_model reads.",
                shell="cerebro export writes them to a folder, which cerebro_db.load_model reads.",
            )
        return found[0]


def list_models(db: Server) -> list[Row]:
    """Return the registered models, by name."""
    return db.look(f"SELECT {', '.join(MODELS)} FROM cerebro.models ORDER BY name")


def list_versions(db: Server, name: str) -> list[Row]:
    """Return the versions of a model, the newest first."""
    return db.look(
        f"SELECT {', '.join(VERSIONS)} FROM cerebro.model_versions WHERE name = %s ORDER BY version DESC",
        name,
    )
