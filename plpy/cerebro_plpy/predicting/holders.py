"""Holders of trained models: result tables of runs, and versions of registered models.

Code that predicts need not know which of the two it uses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from cerebro_plpy.database import Database, as_owner
from cerebro_plpy.engine import state as states
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.features import profile
from cerebro_plpy.features.profile import Profile
from cerebro_plpy.store import session
from cerebro_plpy.store.models import model_versions, models, predictions
from cerebro_plpy.store.names import Table, quote, resolve_table
from cerebro_plpy.store.runs import results, state_rows

ClassValues = list[list[str | None] | None]


class ModelMark(Protocol):
    """A mark of a model. It shows whether the model has changed since it was read."""

    def is_unchanged(self, db: Database) -> bool: ...


class ModelHolder(Protocol):
    """A result table or a registered version that holds trained models, and facts on their training rows."""

    @property
    def name(self) -> str:
        """The name that messages show for the holder."""
        ...

    def weights_table(self, db: Database) -> Table:
        """Return the table that stores the weights."""
        ...

    def summary(self, db: Database) -> Mapping[str, Any]:
        """Return the summary of the run that trained the models: it describes their inputs and outputs."""
        ...

    def class_values(self, db: Database, names: Sequence[str]) -> ClassValues:
        """Return the class values of each named dependent variable; None for a variable without classes."""
        ...

    def weights(self, db: Database, found: TrainedModel) -> bytes: ...

    def mark(self, db: Database, mst_key: int | None) -> ModelMark:
        """Return a mark by which a later call sees whether the model has changed."""
        ...


@dataclass(frozen=True)
class TrainedModel:
    """A trained model, and the result table or registered version that holds it."""

    holder: ModelHolder
    mst_key: int | None
    selected: models.Selected
    stored: results.Stored
    run_id: int | None
    backend: str | None


@dataclass(frozen=True)
class RowMark:
    """A mark of the row of a model table from which a model was read."""

    version: predictions.ModelVersion

    def is_unchanged(self, db: Database) -> bool:
        return predictions.unchanged(db, self.version)


@dataclass(frozen=True)
class ResultTable:
    """A model table with its summary, read with the caller's rights."""

    table: Table

    @property
    def name(self) -> str:
        return self.table.quoted

    def weights_table(self, db: Database) -> Table:
        return self.table

    def summary(self, db: Database) -> Mapping[str, Any]:
        return results.summary_row(db, self._summary(db).quoted)

    def class_values(self, db: Database, names: Sequence[str]) -> ClassValues:
        return predictions.class_values(db, self._summary(db), names)

    def _summary(self, db: Database) -> Table:
        return resolve_table(db, quote(self.table.schema, self.table.name + "_summary"), "model summary")

    def weights(self, db: Database, found: TrainedModel) -> bytes:
        """Return the weights of a model.

        Weights too large for a field of the table are read from the last state of the run.
        """
        if found.stored.has_weights:
            key_column = None if found.mst_key is None else "mst_key"
            return results.weights_from(db, self.table.quoted, key_column, found.mst_key)
        role, key, run_id = session.current_user(db), found.selected.mst_key, found.run_id
        weights = _weights_of_state(db, run_id, key, role) if run_id is not None else None
        if weights is None:
            raise CerebroError(
                f"{self.table.quoted} has no weights for this model, and the state of its run is gone",
                detail="Weights too large for a field are kept with the run, for its owner.",
                sqlstate=WRONG_STATE,
            )
        return weights

    def mark(self, db: Database, mst_key: int | None) -> ModelMark:
        return RowMark(predictions.version(db, self.table, mst_key))


@as_owner
def _weights_of_state(db: Database, run_id: int, mst_key: int, role: str) -> bytes | None:
    steps = {row["mst_key"]: row["step"] for row in state_rows.newest(db, run_id, role)}
    if mst_key not in steps:
        return None
    frozen = states.finder(partial(state_rows.frozen, db, run_id))
    return states.weights(states.from_parts(state_rows.read(db, run_id, mst_key, steps[mst_key]), frozen))


@dataclass(frozen=True)
class VersionMark:
    """A mark of a registered version.

    It always shows the version as unchanged, because no version ever changes.
    """

    def is_unchanged(self, db: Database) -> bool:
        return True


@dataclass(frozen=True)
class RegisteredVersion:
    """A version of a registered model, read with the owner's rights for a caller who may use it."""

    name: str
    found: model_versions.UsableVersion

    def weights_table(self, db: Database) -> Table:
        return resolve_table(db, model_versions.WEIGHTS)

    def read(self, db: Database) -> model_versions.StoredVersion:
        """Return everything that the version stores, except the weights."""
        return model_versions.read(db, self.found.version_id)

    def summary(self, db: Database) -> Mapping[str, Any]:
        return json.loads(self.read(db).about)["summary"]

    def class_values(self, db: Database, names: Sequence[str]) -> ClassValues:
        return json.loads(self.read(db).about)["class_values"]

    def profile(self, db: Database) -> Profile | None:
        """Return the profile of the training rows that was stored at registration; None if there is none."""
        found = json.loads(self.read(db).about).get("profile")
        return None if found is None else profile.read(found)

    def weights(self, db: Database, found: TrainedModel) -> bytes:
        return model_versions.weights(db, self.found.version_id)

    def mark(self, db: Database, mst_key: int | None) -> ModelMark:
        return VersionMark()


def may_only_predict(holder: ModelHolder) -> bool:
    """Return whether the caller may predict with the held models but see nothing else of them."""
    return isinstance(holder, RegisteredVersion) and holder.found.privilege == model_versions.PREDICT
