"""Prepares rows and outputs of a model outside the database, from the values of `cerebro.read_model`.

The client imports this module, so that a saved model makes features and names outputs by the same code as in
the server. The module is pure, and checks all its input as untrusted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from cerebro_plpy.engine.checks import validate
from cerebro_plpy.engine.checks.architecture import canonical
from cerebro_plpy.engine.plain.forward import PlainNet, plain_net
from cerebro_plpy.engine.plain.layers import NotHere
from cerebro_plpy.errors import DATA_CORRUPTED, NOT_SUPPORTED, UNDEFINED_COLUMN, CerebroError
from cerebro_plpy.features import cells
from cerebro_plpy.features.array_rows import ArrayOfRow, fit_shape
from cerebro_plpy.features.rows import RowEncoder
from cerebro_plpy.features.specification import Specification
from cerebro_plpy.features.specification import read as read_specification
from cerebro_plpy.madlib import registered
from cerebro_plpy.madlib.params import reparse_compile
from cerebro_plpy.predicting import outputs
from cerebro_plpy.predicting.outputs import NetOutputs, Output

__all__ = ["CerebroError", "NotHere", "PortableModel", "read"]


class RowsReader(Protocol):
    """An object that converts a row into the arrays of a net's inputs."""

    def encode(self, row: Mapping[str, Any]) -> list[np.ndarray]: ...


@dataclass(frozen=True)
class PortableModel:
    """A model outside the database: its net, its feature specification, and the names of its outputs."""

    # As checked JSON of Keras, with only admitted layers and the registered layers that the caller named.
    architecture: str
    # The net for NumPy, or None if only an engine can compute it.
    plain: PlainNet | None
    features: Specification | None
    about: Mapping[str, Any]
    loss: Any

    @property
    def columns(self) -> list[str]:
        """The names of the columns that a row must have."""
        if self.features is None:
            return list(self.about["independent_varname"])
        return list(self.features.columns)

    def output(self, net: NetOutputs) -> Output:
        """Return the meaning of the net's output: its name, its values, and how to read its numbers."""
        (name,) = self.about["dependent_varname"]
        dependents = outputs.dependents_of(self.about, [self.about["class_values"].get(name)])
        return outputs.settle(net, dependents, self.loss)[0]

    def encode(self, columns: Mapping[str, Sequence[Any]], shape: Sequence[int | None]) -> list[np.ndarray]:
        """Return the net's inputs for rows given as columns; `shape` is the shape of the net's first input.

        Raise an error if a column that the model needs is missing.
        """
        reader: RowsReader
        if self.features is None:
            (name,) = self.columns
            reader = ArrayOfRow(name, shape, self._divisor)
            converters = {name: cells.as_array}
        else:
            reader = RowEncoder(self.features)
            converters = {feature.name: cells.converter(feature) for feature in self.features.features}
        given = [list(map(convert, columns[name])) for name, convert in converters.items() if name in columns]
        names = [name for name in converters if name in columns]
        if not names:
            raise self._no_column()
        rows = [reader.encode(dict(zip(names, row, strict=True))) for row in zip(*given, strict=True)]
        return [np.concatenate(parts) for parts in zip(*rows, strict=True)]

    def take(self, values: np.ndarray, shape: Sequence[int | None]) -> list[np.ndarray]:
        """Return the net's input for rows given as one array; raise an error if the model needs columns."""
        if self.features is not None:
            raise CerebroError(
                "the model was trained on columns, and is given an array",
                hint=f"Give a data frame or a list of dicts with the columns {', '.join(self.columns)}.",
            )
        rows = values.astype(np.float32)
        own = fit_shape(rows.shape[1:], shape, rows.ndim == 2, "the array")
        return [rows.reshape(len(rows), *own) / self._divisor]

    def _no_column(self) -> CerebroError:
        array = "Or give a NumPy array of what was packed, a row for each row."
        return CerebroError(
            f'the rows have no column "{self.columns[0]}", which the model was trained on',
            hint=array if self.features is None else None,
            sqlstate=UNDEFINED_COLUMN,
        )

    @property
    def _divisor(self) -> np.float32:
        return np.float32(self.about.get("normalizing_const") or 1.0)


def read(
    architecture: Mapping[str, Any],
    weights: bytes,
    compile_params: str,
    about: Mapping[str, Any],
    features: Mapping[str, Any] | None,
    known_layers: Iterable[str],
) -> PortableModel:
    """Make a model from its stored parts; of registered layers, it may have only those in `known_layers`."""
    specification = None if features is None else read_specification(json.dumps(features))
    _check(about, specification)
    shapes = None if specification is None else tuple(tuple(one.shape) for one in specification.inputs)
    written = json.dumps(architecture)
    with registered.scope(_named(architecture, frozenset(known_layers))):
        checked = json.dumps(canonical(written, shapes))
        plain = plain_net(written, weights, shapes)
    return PortableModel(checked, plain, specification, about, reparse_compile(compile_params).loss)


def _named(architecture: Mapping[str, Any], known: frozenset[str]) -> list[registered.Function]:
    """Return the registered layers of an architecture whose names are in `known`."""
    layers = validate.registered_layers(architecture).items()
    named = [(name.removeprefix("cerebro>").split("@")[0], digest) for name, digest in layers]
    return [registered.Function(name, registered.LAYER, digest) for name, digest in named if name in known]


def _is_one(value: object) -> bool:
    return isinstance(value, list) and len(cast("list[Any]", value)) == 1


def _check(about: Mapping[str, Any], specification: Specification | None) -> None:
    names, values = about.get("dependent_varname"), about.get("class_values")
    if names is None or not isinstance(values, dict):
        raise CerebroError("the file does not say what the model answers", sqlstate=DATA_CORRUPTED)
    inputs = about.get("independent_varname") if specification is None else [specification]
    if not _is_one(names) or not _is_one(inputs):
        raise CerebroError(
            "the model has several inputs or outputs, with which it cannot answer here",
            hint="Use cerebro.madlib_predict in the database, or save it as .keras.",
            sqlstate=NOT_SUPPORTED,
        )
