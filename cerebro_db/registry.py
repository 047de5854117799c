"""Registered models: versions that never change, and the aliases that point at them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_db import judged, models, saved, stored
from cerebro_db.frames import frame
from cerebro_db.link import Row
from cerebro_db.statements import call, call_rows

if TYPE_CHECKING:
    import pandas

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

    def importance(self, model: str, source: str, **options: Any) -> pandas.DataFrame:
        """Return by how much a model gets worse without each column; the options are those of the server."""
        return frame(judged.importance(self._db, model, source, options), judged.IMPORTANCE)

    def evaluate_by(self, model: str, source: str, by: Sequence[str]) -> pandas.DataFrame:
        """Evaluate a model on all rows of a table, and on the parts that have the same values in columns."""
        return frame(judged.evaluate_by(self._db, model, source, by), judged.PARTS)

    def get(self, reference: str, custom_objects: Mapping[str, Any] | None = None) -> Any:
        """Return a version as a live Keras model, not compiled. It takes the right to read the model."""
        return self._restore(self._read(reference), custom_objects)

    def save(self, reference: str, path: str | Path, custom_objects: Mapping[str, Any] | None = None) -> Path:
        """Write a version to a folder, which `cerebro_db.load_model` reads; or to a file.

        A file is `.keras` or `.onnx`; what its columns became is written beside it.
        """
        found, path = self._read(reference), Path(path)
        if path.is_dir() or not path.suffix:
            return saved.save(found, self._checked(found), path)
        features = found["features"]
        described = None if features is None else {**features, "classes": found["about"]["class_values"]}
        return models.save(self._restore(found, custom_objects), path, described)

    def _checked(self, found: Row) -> str:
        """Return the net, which somebody else may have registered, as the server has checked it."""
        return stored.checked(self._db, json.dumps(found["model_arch"]))

    def _restore(self, found: Row, custom_objects: Mapping[str, Any] | None) -> Any:
        return models.restore(self._checked(found), bytes(found["model_weights"]), custom_objects or {})

    def _read(self, reference: str) -> Row:
        return self._db.rows(call_rows("read_model", reference))[0]


def list_models(db: Server) -> list[Row]:
    """Return the registered models, by name."""
    return db.look(f"SELECT {', '.join(MODELS)} FROM cerebro.models ORDER BY name")


def list_versions(db: Server, name: str) -> list[Row]:
    """Return the versions of a model, the newest first."""
    return db.look(
        f"SELECT {', '.join(VERSIONS)} FROM cerebro.model_versions WHERE name = %s ORDER BY version DESC",
        name,
    )
