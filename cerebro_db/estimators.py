"""Estimators for scikit-learn: `fit` begins a run, and the trained model stays in the database."""

from __future__ import annotations

import json
import os
import secrets
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg2

from cerebro_db import frames
from cerebro_db.database import Database, connect
from cerebro_db.errors import CerebroError, needs
from cerebro_db.link import open_link
from cerebro_db.packing import Packed
from cerebro_db.run import Run
from cerebro_db.statements import call, identifier

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        check_array,
        check_consistent_length,
        check_is_fitted,
        column_or_1d,
        validate_data,
    )
except ImportError:
    raise needs("sklearn", "scikit-learn, whose manners these estimators have,") from None

if TYPE_CHECKING:
    from typing import Self

_MAY_NOT, _IS_THERE = "42501", "42P06"
# Finds the run by its model table, whose name is unique.
_FORGET = """
SELECT cerebro.forget(run_id) FROM cerebro.runs
WHERE (pg_catalog.parse_ident(model_table))[2] OPERATOR(pg_catalog.=) %s
"""
# Suffixes of the tables that a run leaves, with all configs of a grid or with a search.
_LEFT = ("", "_info", "_summary", "_configs", "_configs_summary", "_best", "_best_summary")
# With fewer rows, the loss is too noisy to decide when to stop.
FEWEST_HELD = 10
# A function that returns an architecture for a number of features and a number of outputs.
Build = Callable[[int, int], Any]


class _Estimator(BaseEstimator):
    """The base class of CerebroClassifier and CerebroRegressor.

    `fit` loads the rows into the database, packs them, and drops the unpacked table. Packed tables and models
    in the database are removed by `close`, at the end of a `with` block, when the estimator is
    garbage-collected, or when the program ends. After `keep`, or once the estimator was pickled, they stay.
    """

    # The activation of the last layer, and the grid's values for keys that the caller does not give.
    _activation: str
    _defaults: Mapping[str, Any]
    # Removes the tables and the run of the fit.
    _left: weakref.finalize[Any, Any] | None = None

    def __init__(
        self,
        db: str | Database = "postgresql://",
        *,
        model: Build | Any = None,
        hidden: Sequence[int] = (100,),
        grid: Mapping[str, Any] | None = None,
        columns: str | Mapping[str, Any] | None = None,
        epochs: int = 200,
        patience: int | None = 10,
        validation_fraction: float = 0.1,
        scale: bool = True,
        search: Any = None,
        configs: int | None = None,
        options: Mapping[str, Any] | None = None,
        random_state: int | None = None,
    ) -> None:
        self.db = db
        self.model = model
        self.hidden = hidden
        self.grid = grid
        self.columns = columns
        self.epochs = epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.scale = scale
        self.search = search
        self.configs = configs
        self.options = options
        self.random_state = random_state

    def _checked(self, x: Any, y: Any, **how: Any) -> tuple[Any, Any]:
        """Return X and y after scikit-learn's checks; X is numbers, or a data frame of mixed columns."""
        self.mixed_ = _is_mixed(x) or self.columns is not None
        if not self.mixed_:
            numbers: Any = validate_data(self, x, y, dtype="float64", multi_output=False, **how)
            return numbers
        if not isinstance(x, frames.library().DataFrame):
            raise CerebroError(
                f"columns says what the columns of a data frame become, and X is {type(x).__name__}"
            )
        validate_data(self, x, y, skip_check_array=True)
        check_consistent_length(x, y)
        # The checks that all scikit-learn estimators make: one label for each row, and none missing.
        kind: Any = "float64" if how else None
        y = check_array(column_or_1d(y, warn=True), ensure_2d=False, dtype=kind, input_name="y")
        return x.reset_index(drop=True), y

    def _train(
        self, x: Any, y: Any, outputs: int, labels: Mapping[str, Any], classes: Any | None = None
    ) -> None:
        """Load and pack the rows, train, and set the attributes that `predict` needs."""
        self.scaler_ = StandardScaler().fit(x) if self.scale and not self.mixed_ else None
        x = self._scaled(x)
        held = self._held_out(len(y), classes)
        self.close()
        with _opened(self.db) as given:
            base = f"{_own_schema(given)}fit_{secrets.token_hex(5)}"
            # Architectures go into a table of the estimator's own, over the same connections.
            db = given.with_architectures(f"{base}_nets")
            self._left = weakref.finalize(self, _remove, self.db, base, os.getpid())
            try:
                self._fit_in(db, base, x, y, held, outputs, labels)
            except BaseException:
                # The tables of a failed fit are useless.
                self.close()
                raise

    def _fit_in(
        self, db: Database, base: str, x: Any, y: Any, held: Any, outputs: int, labels: Mapping[str, Any]
    ) -> None:
        said = {"columns": self.columns or "auto"} if self.mixed_ else {}
        packed = _packed(db, base, x[~held], y[~held], **labels, **said)
        validation = _packed(db, f"{base}_held", x[held], y[held], like=packed) if held.any() else None
        run = self._fit_run(db, packed, validation, x.shape[1], outputs)
        self.run_id_, self.models_ = run.run_id, run.info()["model_table"]
        best = run.best()
        self.best_key_, self.best_params_ = best.mst_key, best.params
        self.best_score_ = best.info()["value"]

    def _scaled(self, x: Any) -> Any:
        return x if self.scaler_ is None else self.scaler_.transform(x)

    def _held_out(self, rows: int, classes: Any | None) -> Any:
        """Return a mask of the rows to validate on instead of training; no rows if they would be too few."""
        held = np.zeros(rows, bool)
        count = int(rows * self.validation_fraction)
        if not self._stops_early() or count < FEWEST_HELD:
            return held
        fitting = classes is not None and count >= len(np.unique(classes)) and np.bincount(classes).min() > 1
        _, picked = train_test_split(
            np.arange(rows),
            test_size=count,
            random_state=self.random_state,
            stratify=classes if fitting else None,
        )
        held[picked] = True
        if classes is not None:
            # A class whose rows would all be held out could not be learned.
            for one in np.setdiff1d(classes, classes[~held]):
                held[np.flatnonzero(classes == one)[0]] = False
        return held

    def _stops_early(self) -> bool:
        """Return whether `patience` stops configs; a search method such as ASHA stops configs by itself."""
        return self.patience is not None and self.search in (None, "random")

    def _fit_run(
        self, db: Database, packed: Packed, validation: Packed | None, features: int, outputs: int
    ) -> Run:
        grid = {**self._defaults, **(self.grid or {})}
        if "model" in grid:
            return self._call(db, packed, validation, grid)
        added = self._nets(db, packed, features, outputs)
        # The run has its own copy of the architectures.
        try:
            return self._call(db, packed, validation, {**grid, "model": added})
        finally:
            for net in added:
                db.architectures.remove(net)

    def _nets(self, db: Database, packed: Packed, features: int, outputs: int) -> Sequence[int]:
        """Add the nets to train to the table of architectures, and return their model_ids."""
        line = self.model if _is_line(self.model) else None
        if self.model is None and self.mixed_:
            line = ", ".join(f"Dense({units}, activation='relu')" for units in self.hidden)
        if line is not None:
            return db.rows(call("load_net", db.architectures.table, packed.table, line))[0]["load_net"]
        if self.mixed_ and _is_recipe(self.model):
            raise CerebroError(
                "model is a function of the number of features, and the frame has columns of many kinds",
                hint="""Give a line of layers, "Dense(64, 'relu')", or a name: 'tabular'.""",
            )
        return [db.architectures.add(self._architecture(features, outputs))]

    def _call(self, db: Database, packed: Packed, validation: Packed | None, grid: Mapping[str, Any]) -> Run:
        early = {"patience": self.patience, "restore_best": True} if self._stops_early() else {}
        return db.fit(
            packed,
            grid,
            epochs=self.epochs,
            validation=validation,
            search=self.search,
            configs=self.configs,
            seed=self.random_state,
            name=type(self).__name__,
            wait=True,
            **{**early, **(self.options or {})},
        )

    def _architecture(self, features: int, outputs: int) -> Any:
        if self.model is None:
            return json.dumps(_mlp(features, self.hidden, outputs, self._activation))
        return self.model(features, outputs) if _is_recipe(self.model) else self.model

    def _predicted(self, x: Any, how: str) -> Any:
        check_is_fitted(self)
        if self.mixed_:
            # This checks the names of the columns; the server checks their types.
            values = validate_data(self, x, reset=False, skip_check_array=True)
        else:
            values = validate_data(self, x, reset=False, dtype="float64")
        with _opened(self.db) as db:
            config = Run(db, self.run_id_).config(self.best_key_)
            return getattr(config, how)(self._scaled(values))

    def close(self) -> None:
        """Remove everything that `fit` left in the database: packed tables, models, and states of the run."""
        if self._left is not None:
            self._left()

    def keep(self) -> str:
        """Let everything that `fit` left in the database stay there; return the name of the model table."""
        check_is_fitted(self)
        if self._left is not None:
            self._left.detach()
        return self.models_

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getstate__(self) -> Any:
        """Return the state to pickle; from now on keep the tables, which the unpickled estimator needs."""
        if self._left is not None:
            self._left.detach()
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_left"}


class CerebroClassifier(ClassifierMixin, _Estimator):
    """A classifier that is the best config of a run.

    `model` is an architecture, a function that returns an architecture for the number of features and of
    classes, a line of layers ("Dense(64, 'relu')"), or the name of a net ("tabular"). By default it is a
    multilayer perceptron with the `hidden` units. `grid` is the grid for `Database.fit`.

    A data frame with columns that are not numbers is packed as it is: the server turns text, dates,
    categories and missing values into features. `columns` says which features, as in `Database.pack`. With
    "auto", frames of numbers are packed in this way too, and may have missing numbers.

    Other features are scaled to mean 0 and variance 1, unless `scale` is false. A config trains for at most
    `epochs`. It stops when its loss on `validation_fraction` of the rows has not improved in `patience`
    epochs, and its best epoch counts. If these rows would be too few, all rows are trained on, and the loss
    on them decides. With `patience` None every config trains for all epochs, on all rows.
    """

    _activation = "softmax"
    _defaults = {
        "loss": "sparse_categorical_crossentropy",
        "optimizer": "Adam",
        "learning_rate": 0.001,
        "batch_size": 32,
    }

    def fit(self, X: Any, y: Any) -> CerebroClassifier:
        """Train the configs of the grid, keep the best one, and return the estimator."""
        x, y = self._checked(X, y)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        width = max(2, len(self.classes_))
        self._train(x, codes, width, {"num_classes": [width]}, codes)
        return self

    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each class, in the order of `classes_`."""
        found = self._predicted(X, "probabilities")
        return found[[str(code) for code in range(len(self.classes_))]].to_numpy()

    def predict(self, X: Any) -> Any:
        """Return the most probable class of each row."""
        found = self.predict_proba(X)
        # NaN counts as less than any number, as on the server.
        return self.classes_[np.where(np.isnan(found), -np.inf, found).argmax(axis=1)]


class CerebroRegressor(RegressorMixin, _Estimator):
    """A regressor that is the best config of a run; its parameters are those of CerebroClassifier.

    With `scale`, the targets are scaled to mean 0 and variance 1 too, and predictions are scaled back.
    """

    _activation = "linear"
    _defaults = {"loss": "mse", "optimizer": "Adam", "learning_rate": 0.001, "batch_size": 32}

    def fit(self, X: Any, y: Any) -> CerebroRegressor:
        """Train the configs of the grid, keep the best one, and return the estimator."""
        x, y = self._checked(X, y, y_numeric=True)
        targets: Any = y.astype("float64").reshape(-1, 1)
        self.target_scaler_ = StandardScaler().fit(targets) if self.scale else None
        if self.target_scaler_ is not None:
            targets = self.target_scaler_.transform(targets)
        self._train(x, np.ravel(targets), 1, {"task": "regression"})
        return self

    def predict(self, X: Any) -> Any:
        """Return the predicted number for each row."""
        found = self._predicted(X, "predict")["prediction"].to_numpy()
        if self.target_scaler_ is None:
            return found
        return np.ravel(self.target_scaler_.inverse_transform(found.reshape(-1, 1)))


def _own_schema(db: Database) -> str:
    """Return "estimators_<role>." for the names of tables, or "" if the role may not create this schema."""
    role = db.look("SELECT CURRENT_USER::pg_catalog.text AS role")[0]["role"]
    name = identifier(f"estimators_{role}")
    has = "SELECT pg_catalog.has_schema_privilege(pg_catalog.to_regnamespace(%s), 'CREATE') AS may"
    if not db.look(has, name)[0]["may"]:
        try:
            db.rows(f"CREATE SCHEMA {name}")
        except CerebroError as error:
            if error.sqlstate not in (_MAY_NOT, _IS_THERE):
                raise
            return ""
    return f"{name}."


def _remove(given: str | Database, base: str, process: int) -> None:
    """Remove a fit's run and tables, except in a forked process; ignore errors of the database."""
    if os.getpid() != process:
        return
    packed = [f"{base}_packed", f"{base}_held_packed"]
    made = [base, f"{base}_held", f"{base}_nets", *packed, *(f"{name}_summary" for name in packed)]
    made += [f"{base}_packed_models{suffix}" for suffix in _LEFT]
    models = f"{base}_packed_models"
    opened = open_link(given) if isinstance(given, str) else given
    # The client's own calls would each start a thread, which is impossible at the end of a program.
    with (
        suppress(CerebroError, psycopg2.Error),
        opened.session() as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SET LOCAL client_min_messages = error")
        cursor.execute(_FORGET, (models.rpartition(".")[2],))
        cursor.execute(f"DROP TABLE IF EXISTS {', '.join(made)}")
    if opened is not given:
        opened.close()


def _packed(db: Database, base: str, x: Any, y: Any, **how: Any) -> Packed:
    """Load rows into a table, pack it, and drop it; return the packed table."""
    rows, inputs, label = {"x": x, "y": y}, "x", "y"
    if isinstance(x, frames.library().DataFrame):
        x, inputs = x.rename(columns=str), "*"
        while label in x.columns:
            label += "_"
        rows = x.assign(**{label: y})
    db.load(base, rows)
    try:
        return db.pack(base, x=inputs, y=label, into=f"{base}_packed", **how)
    finally:
        db.rows(f"DROP TABLE {base}")


def _is_mixed(x: Any) -> bool:
    """Return whether x is a data frame with columns that are neither numbers nor booleans."""
    if not isinstance(x, frames.library().DataFrame):
        return False
    return x.select_dtypes(exclude=["number", "bool"]).shape[1] > 0


def _is_line(model: Any) -> bool:
    """Return whether `model` is a line of layers or the name of a net, and not an architecture as JSON."""
    return isinstance(model, str) and not model.lstrip().startswith("{")


def _is_recipe(model: Any) -> bool:
    """Return whether `model` is a function that makes architectures; a Keras model, also callable, is not."""
    return callable(model) and not hasattr(model, "to_json")


class _opened:
    """A context manager for a Database, which closes the Database only if it was given as an address."""

    def __init__(self, db: str | Database) -> None:
        self._given = db

    def __enter__(self) -> Database:
        self._db = connect(self._given) if isinstance(self._given, str) else self._given
        return self._db

    def __exit__(self, *error: object) -> None:
        if self._db is not self._given:
            self._db.close()


def _mlp(features: int, hidden: Sequence[int], outputs: int, activation: str) -> dict[str, Any]:
    """Return the JSON of a multilayer perceptron as Keras would write it; Keras need not be installed."""
    layers = [_layer("InputLayer", batch_shape=[None, features])]
    layers += [_layer("Dense", units=units, activation="relu") for units in hidden]
    layers.append(_layer("Dense", units=outputs, activation=activation))
    return {"module": "keras", "class_name": "Sequential", "config": {"name": "mlp", "layers": layers}}


def _layer(kind: str, **config: Any) -> dict[str, Any]:
    return {"module": "keras.layers", "class_name": kind, "config": config}
