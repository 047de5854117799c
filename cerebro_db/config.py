"""One config of a run, and the model that it has become."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import models, rows
from .errors import CerebroError
from .link import Row
from .packing import Columns
from .statements import names

if TYPE_CHECKING:
    import pandas

    from .run import Run


# The states of a run that is not over.
GOING = ("running", "paused")


class Config:
    """One candidate: an architecture with compile and fit parameters."""

    def __init__(self, run: Run, mst_key: int) -> None:
        self.run = run
        self.mst_key = mst_key

    def __repr__(self) -> str:
        return f"<config {self.mst_key} of run {self.run.run_id}>"

    def info(self) -> Row:
        """Its row of the leaderboard."""
        found = self.run.db.rows(
            "SELECT * FROM cerebro.leaderboard WHERE run_id = %s AND mst_key = %s",
            self.run.run_id,
            self.mst_key,
        )
        if not found:
            raise CerebroError(f"run {self.run.run_id} has no config {self.mst_key}")
        return found[0]

    @property
    def params(self) -> dict[str, Any]:
        """Its compile and fit parameters, as values."""
        texts = self.info()
        return self.run.db.rows(
            "SELECT cerebro.read_params(%s, %s) AS params", texts["compile_params"], texts["fit_params"]
        )[0]["params"]

    def to_keras(self, custom_objects: Mapping[str, Any] | None = None) -> Any:
        """The trained model as a `keras.Model`, compiled, with the state of its optimizer.

        `custom_objects` has what stands here for registered functions, by their names: no source that comes
        from the server is executed.
        """
        stored = self._stored()
        state = self.run.db.rows("SELECT * FROM cerebro.config_state(%s, %s)", self.run.run_id, self.mst_key)
        return models.build(stored["model_arch"], self.params, state, custom_objects or {})

    def save(self, path: str | Path, custom_objects: Mapping[str, Any] | None = None) -> Path:
        """Write the trained model to a file: `.keras`, with its optimizer; or `.onnx`.

        Whoever loads a `.keras` file with a registered layer, loss or metric needs the same `custom_objects`.
        """
        return models.save(self.to_keras(custom_objects), Path(path))

    def predict(self, given: pandas.DataFrame | Any, x: Columns | None = None) -> pandas.DataFrame:
        """Predict rows in the server: a data frame, or an array with the shape of the features.

        `x` names the columns of the frame in the order of packing; it need not be given where the run knows
        them. Gives a frame with the same index: the class and its probability, or the prediction.
        """
        return rows.predict(self, given, x)

    def probabilities(self, given: pandas.DataFrame | Any, x: Columns | None = None) -> pandas.DataFrame:
        """The probability of every class for the same: a column for each class."""
        return rows.probabilities(self, given, x)

    def features(self, x: Columns | None) -> list[str]:
        """The columns that its features are in."""
        wanted = x or self.run.packed.x
        if wanted is not None:
            return [wanted] if isinstance(wanted, str) else [n for item in wanted for n in _flat(item)]
        found = self.run.packed.summary()["independent_varname"]
        if found == ["independent_var"]:
            raise CerebroError(
                f"which columns make the vector that {self.run.packed.table} was packed with is not known",
                hint='Name them in the order of packing: x=["weight", "power"].',
            )
        return found

    def written(self, x: Columns | None) -> str:
        """The same as the server reads it."""
        return names(x or self.run.packed.x or self.features(None))

    def _stored(self) -> Row:
        """Its row of the run's model table."""
        info = self.run.info()
        if info["status"] in GOING:
            raise CerebroError(
                f"run {self.run.run_id} is {info['status']}: its models are there when it is over",
                hint="run.wait() waits for that; run.stop() ends it with what there is.",
            )
        keyed = self.run.db.rows(
            "SELECT FROM pg_catalog.pg_attribute WHERE attrelid = pg_catalog.to_regclass(%s)"
            " AND attname = 'mst_key'",
            info["model_table"],
        )
        found = self.run.db.rows(
            f"SELECT model_arch::text AS model_arch FROM {info['model_table']}"
            + (f" WHERE mst_key = {self.mst_key:d}" if keyed else "")
        )
        if not found:
            raise CerebroError(
                f"{info['model_table']} has no model of config {self.mst_key}",
                hint="run.leaderboard() shows what failed, run.decisions() what was stopped or deleted.",
            )
        return found[0]


def _flat(item: Any) -> list[str]:
    return [item] if isinstance(item, str) else list(item)
