"""Classes for models that were loaded from a folder: with one net, or with a net for each group."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timezone
from decimal import Decimal, InvalidOperation
from typing import Any

from cerebro_db import models
from cerebro_db.errors import CerebroError
from cerebro_db.statements import is_missing

# The number of rows predicted at a time.
_BATCH = 1024


@contextmanager
def told(portable: Any) -> Iterator[None]:
    """Raise errors of the server's package, within the block, as the client's CerebroError."""
    try:
        yield
    except portable.CerebroError as error:
        raise CerebroError(
            error.message, detail=error.detail, hint=error.hint, sqlstate=error.sqlstate
        ) from None


class SavedNet:
    """A net that is computed with NumPy if possible, else with Keras."""

    def __init__(self, portable: Any, model: Any, weights: bytes, custom: Mapping[str, Any]) -> None:
        self.portable, self.model = portable, model
        self._weights, self._custom = weights, custom
        self._keras: Any = None
        plain = model.plain
        if plain is not None and plain.is_light:
            self.outputs, self.output_names = plain.described.outputs, plain.described.output_names
            self.input_shape = plain.described.inputs[0]
        else:
            net = self._by_keras()
            self.outputs = tuple(tuple(one.shape[1:]) for one in net.outputs)
            self.output_names = tuple(net.output_names)
            self.input_shape = tuple(net.inputs[0].shape[1:])

    def _by_keras(self) -> Any:
        if self._keras is None:
            self._keras = models.restore(self.model.architecture, self._weights, self._custom)
        return self._keras

    @property
    def columns(self) -> list[str]:
        return self.model.columns

    @functools.cached_property
    def output(self) -> Any:
        """The object that turns the net's raw output into class probabilities or quantities."""
        return self.model.output(self)

    def answers(self, rows: Any) -> list[Any]:
        """Return the class probabilities or the predicted quantities of the rows, an array for each batch."""
        return [self.output.read(self._answer(inputs)) for inputs in self._batches(rows)]

    def _batches(self, rows: Any) -> Iterator[list[Any]]:
        import numpy as np

        if isinstance(rows, np.ndarray):
            for first in range(0, len(rows), _BATCH):
                yield self.model.take(rows[first : first + _BATCH], self.input_shape)
            return
        count, columns = _columns(rows, self.columns)
        for first in range(0, count, _BATCH):
            part = {name: values[first : first + _BATCH] for name, values in columns.items()}
            yield self.model.encode(part, self.input_shape)

    def _answer(self, inputs: list[Any]) -> Any:
        if self._keras is None:
            try:
                return self.model.plain(inputs)[0]
            except self.portable.NotHere:
                # The values need an engine, for example where NumPy would compute something else.
                pass
        return self._by_keras().predict_on_batch(inputs if len(inputs) > 1 else inputs[0])


class NetsOfGroups:
    """A net for each group. Rows of any other group are predicted by the net of all rows, if there is one."""

    def __init__(
        self, types: Mapping[str, str], nets: Sequence[tuple[Mapping[str, Any] | None, SavedNet]]
    ) -> None:
        self._types = types
        self._of_all = next((net for group, net in nets if group is None), None)
        self._nets = {self._key(group): net for group, net in nets if group is not None}
        self._any = nets[0][1]
        self.portable = self._any.portable

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys([*self._types, *self._any.columns]))

    @property
    def output(self) -> Any:
        """The object that turns the raw output of any of the nets into class probabilities or quantities."""
        return self._any.output

    def answers(self, rows: Any) -> list[Any]:
        """Return one array of class probabilities or quantities, with NaN for rows that no net predicts."""
        import numpy as np

        if isinstance(rows, np.ndarray):
            raise CerebroError(
                "the model has a net for each group, and an array says no group",
                hint=f"Give a data frame or a list of dicts with {', '.join(self._types)}.",
            )
        count, columns = _columns(rows, self.columns)
        missing = [name for name in self._types if name not in columns]
        if missing:
            raise CerebroError(f'the rows have no column "{missing[0]}", which says what group a row is of')
        places: dict[SavedNet, list[int]] = {}
        for place in range(count):
            key = self._key({name: columns[name][place] for name in self._types})
            net = self._nets.get(key, self._of_all)
            if net is not None:
                places.setdefault(net, []).append(place)
        found: Any = None
        for net, own in places.items():
            given = [{name: values[place] for name, values in columns.items()} for place in own]
            answered = np.concatenate(net.answers(given))
            found = np.full((count, answered.shape[1]), np.nan) if found is None else found
            found[own] = answered
        if found is None:
            width = self.output.width if self.output.values is None else len(self.output.values)
            found = np.full((count, width), np.nan)
        return [found]

    def _key(self, group: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(_comparable(group[name], kind) for name, kind in self._types.items())


def _comparable(value: Any, kind: str) -> Any:
    """Convert a value of the SQL type `kind` so that equal values compare equal, such as 3 and "3"."""
    if is_missing(value):
        return None
    try:
        if kind in ("smallint", "integer", "bigint") or kind.startswith("numeric"):
            return Decimal(str(value))
        if kind in ("real", "double precision"):
            return float(value)
        if kind == "date" or kind.startswith("timestamp"):
            return _moment(value, kind)
    except (ValueError, InvalidOperation):
        return str(value)
    if kind == "boolean":
        return bool(value)
    return str(value).rstrip(" ") if kind.startswith("character(") else str(value)


def _moment(value: Any, kind: str) -> datetime:
    if isinstance(value, date) and not isinstance(value, datetime):
        value = value.isoformat()
    found = datetime.fromisoformat(value if isinstance(value, str) else value.isoformat())
    if not kind.endswith("with time zone"):
        return found.replace(tzinfo=None)
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)


class _SavedModel:
    """A model that was saved to a folder."""

    def __init__(self, name: str, net: SavedNet | NetsOfGroups, output: Any) -> None:
        self.name = name
        self._net, self._output = net, output

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def columns(self) -> list[str]:
        """The names of the columns that rows to predict must have."""
        return self._net.columns

    def _answers(self, rows: Any) -> Any:
        """Return the class probabilities or the predicted quantities of all rows, as one array."""
        import numpy as np

        with told(self._net.portable):
            parts = self._net.answers(rows)
        width = self._output.width if self._output.values is None else len(self._output.values)
        return np.concatenate([np.zeros((0, width)), *parts])


def _columns(rows: Any, wanted: Sequence[str]) -> tuple[int, dict[str, list[Any]]]:
    """Return the number of rows, and the values of each wanted column that the rows have."""
    if hasattr(rows, "columns"):
        return len(rows), {name: list(rows[name]) for name in wanted if name in rows.columns}
    if isinstance(rows, Mapping | str) or not all(isinstance(row, Mapping) for row in rows):
        raise CerebroError(
            "rows are a data frame or a list of dicts, one for each row",
            hint="For a model that was trained on one column of arrays, also a NumPy array.",
        )
    present = [name for name in wanted if all(name in row for row in rows)]
    return len(rows), {name: [row[name] for row in rows] for name in present}


class SavedClassifier(_SavedModel):
    """A classifier that was saved to a folder. `classes_` has the class values, as text."""

    @property
    def classes_(self) -> Any:
        """The class values, in the order of `predict_proba`."""
        import numpy as np

        return np.array(self._output.values, object)

    def predict_proba(self, rows: Any) -> Any:
        """Return the probability of each class, for each row of a data frame or a list of dicts.

        The probabilities are NaN for rows whose group has no model.
        """
        return self._answers(rows)

    def predict(self, rows: Any) -> Any:
        """Return the most probable class of each row, or None for rows whose group has no model."""
        import numpy as np

        found = self._answers(rows)
        lacks = np.isnan(found)
        # NaN counts as less than any number, as on the server.
        said = self.classes_[np.where(lacks, -np.inf, found).argmax(axis=1)]
        said[lacks.all(axis=1)] = None
        return said


class SavedRegressor(_SavedModel):
    """A regression model that was saved to a folder."""

    def predict(self, rows: Any) -> Any:
        """Return the prediction for each row of a data frame or a list of dicts."""
        found = self._answers(rows)
        return found[:, 0] if found.shape[1] == 1 else found
