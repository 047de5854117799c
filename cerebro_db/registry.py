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
        """Return the registered models as a data frame."""
        return frame(list_models(self._db), MODELS)

    def versions(self, name: str) -> pandas.DataFrame:
        """Return the versions of a model as a data frame."""
        return frame(list_versions(self._db, name), VERSIONS)

    def history(self, name: str) -> pandas.DataFrame:
        """Return the history of a model: versions registered and dropped, and aliases moved and dropped."""
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
        """Register a model of a model table, by default its best; return the new version's number."""
        statement = call("register", model_table, name, mst_key, comment=comment, tags=tags)
        return self._db.rows(statement)[0]["register"]

    def alias(self, name: str, alias: str, version: int | None) -> None:
        """Make an alias point at a version, or drop the alias if `version` is None."""
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
        """Make an alias point at a version; with `if_better_on`, do so only if the version is better.

        `if_better_on` is a packed table: the version must have less error on its rows than the version that
        the alias points at. Return `promoted`, `candidate`, `previous`, `measured`, `value`,
        `previous_value`, and `gain`, by how much the error is less, between `gain_low` and `gain_high`.
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
        """Train a registered model again, by default on the same table, and register the next version.

        Return `version`, whether the alias points at it now (`promoted`), and what decided this: `previous`,
        `measured`, `value`, `previous_value`, `judged_rows` and `reason`.
        """
        decided = call_rows(
            "retrain", name, source=source, budget=budget, promote=promote, alias=alias, options=options
        )
        return self._db.rows(decided)[0]

    def rollback(self, name: str, alias: str = DEFAULT) -> int:
        """Make an alias point at the version that it pointed at before; return the number of this version."""
        return self._db.rows(call("rollback", name, alias))[0]["rollback"]

    def drop(self, name: str, version: int | None = None) -> None:
        """Remove a version of a model that no alias points at, or, without `version`, the whole model."""
        self._db.rows(call("unregister", name) if version is None else call("drop_version", name, version))

    def grant(self, name: str, role: str, privilege: str) -> None:
        """Grant a role the privilege predict, read or manage on a model; the role public means every role."""
        self._db.rows(call("grant_model", name, role, privilege))

    def set_owner(self, name: str, role: str) -> None:
        """Make another role the owner of a model."""
        self._db.rows(call("set_model_owner", name, role))

    def revoke(self, name: str, role: str) -> None:
        """Revoke the privilege that `grant` granted to a role on a model."""
        self._db.rows(call("revoke_model", name, role))

    def check(self, model: str, source: str, thresholds: Mapping[str, Any] | None = None) -> pandas.DataFrame:
        """Compare the rows of a table with a model's training rows; return a row for each finding."""
        return frame(judged.check(self._db, model, source, thresholds), judged.CHECKED)

    def worst_rows(self, model: str, source: str, limit: int = 20) -> pandas.DataFrame:
        """Return the rows of a table on which a model has the greatest loss, the worst first."""
        return frame(judged.worst_rows(self._db, model, source, limit), judged.WORST)

    def explain(
        self, model: str, source: str, id_column: str, ids: Sequence[Any], top: int | None = 5
    ) -> pandas.DataFrame:
        """Predict the rows with these ids, and return the `top` columns that add most to each prediction."""
        return frame(judged.explain(self._db, model, source, id_column, ids, top=top), judged.EXPLAINED)

    def explain_forecast(
        self,
        name: str,
        which: Mapping[str, Any] | None = None,
        horizon: int | None = None,
        top: int | None = 5,
    ) -> pandas.DataFrame:
        """Return the `top` values and columns that add most to each step of a forecast of one series."""
        return frame(judged.explain_forecast(self._db, name, which, horizon, top=top), judged.STEPS)

    def importance(self, model: str, source: str, **options: Any) -> pandas.DataFrame:
        """Return how much each column is worth to a model; `options` are those of `cerebro.importance`."""
        return frame(judged.importance(self._db, model, source, options), judged.IMPORTANCE)

    def plot_importance(self, model: str, source: str, **options: Any) -> Picture:
        """Draw what `importance` returns as bars; in a notebook the picture shows itself."""
        from cerebro_db import plots

        return plots.importance(judged.importance(self._db, model, source, options), f"What {model} goes by")

    def plot_explanation(
        self, model: str, source: str, id_column: str, row: Any, top: int | None = None
    ) -> Picture:
        """Draw how much each column of one row adds to the model's prediction for this row, as bars."""
        from cerebro_db import plots

        found = judged.explain(self._db, model, source, id_column, [row], top=top)
        if not found:
            raise CerebroError(f"{source} has no row whose {id_column} is {row}")
        said = found[0]["prediction"] if found[0]["class"] is None else found[0]["class"]
        return plots.explanation(found, f"{model} says {said} of {id_column} {row}")

    def evaluate_by(self, model: str, source: str, by: Sequence[str]) -> pandas.DataFrame:
        """Evaluate a model on all rows of a table, and on each part with equal values in the columns `by`."""
        return frame(judged.evaluate_by(self._db, model, source, by), judged.PARTS)

    def get(self, reference: str, custom_objects: Mapping[str, Any] | None = None) -> Any:
        """Return a version as an uncompiled `keras.Model`; the caller needs the privilege read on it."""
        return self._restore(self._read_one(reference), custom_objects)

    def save(self, reference: str, path: str | Path, custom_objects: Mapping[str, Any] | None = None) -> Path:
        """Write a version to a folder, for `cerebro_db.load_model`, or to a `.keras` or `.onnx` file.

        If columns were packed as they are, a file beside the model's says what each column became.
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
        """Register the model in a folder that `save` has written, from this or another database.

        Return the number of the new version.
        """
        return brought.register(self._db, Path(folder), name, comment=comment, tags=tags)

    def to_mlflow(self, name: str, tracking_uri: str, experiment: str | None = None) -> dict[int, int]:
        """Write the versions and aliases of a model to MLflow's registry, except versions that it has.

        Return the number in MLflow of each version. The caller needs the privilege read on the model.
        """
        from cerebro_db import mlflow_models

        known, versions = name.lower(), list_versions(self._db, name.lower())[::-1]
        return mlflow_models.export(self.save, known, versions, tracking_uri, experiment)

    def from_mlflow(self, name: str, tracking_uri: str, into: str | None = None) -> dict[int, int]:
        """Register the versions that `to_mlflow` has written, except known ones, and set their aliases.

        Return the number in this database of each version, by its number in MLflow.
        """
        from cerebro_db import mlflow_models

        here = (into or name).lower()
        return mlflow_models.bring(self._db, name, tracking_uri, here, list_versions(self._db, here))

    def _checked(self, found: Row) -> str:
        """Return a version's architecture as the server has checked it; other roles may have written it."""
        return stored.checked(self._db, json.dumps(found["model_arch"]))

    def _restore(self, found: Row, custom_objects: Mapping[str, Any] | None) -> Any:
        return models.restore(self._checked(found), bytes(found["model_weights"]), custom_objects or {})

    def _check_no_forecast(self, reference: str) -> None:
        """Raise CerebroError if a version is a forecast, which needs the rows in the database."""
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
        """Return the row of a version that has one net; raise CerebroError if it has a net for each group."""
        found = self._read(reference)
        if "group_by" in found[0]["about"]:
            raise CerebroError(
                f"{reference} has a net for each of {len(found)} groups",
                hint="db.models.save writes them to a folder, which cerebro_db.load_model reads.",
                shell="cerebro export writes them to a folder, which cerebro_db.load_model reads.",
            )
        return found[0]


def list_models(db: Server) -> list[Row]:
    """Return the rows of the registered models that the caller may use, sorted by name."""
    return db.look(f"SELECT {', '.join(MODELS)} FROM cerebro.models ORDER BY name")


def list_versions(db: Server, name: str) -> list[Row]:
    """Return the rows of a model's versions, the newest first."""
    return db.look(
        f"SELECT {', '.join(VERSIONS)} FROM cerebro.model_versions WHERE name = %s ORDER BY version DESC",
        name,
    )
