"""Models away from the database: a folder with all that predicting takes, and its reader.

The folder has `model.json`, which says what the net, its inputs and its answers are, and `weights.npy`.
Neither holds code, and both are read as a stranger's.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cerebro_db import models, shared
from cerebro_db.errors import CerebroError
from cerebro_db.link import Row

FORMAT = 1
_MODEL, _WEIGHTS = "model.json", "weights.npy"
# Rows that are answered at a time.
_BATCH = 1024

Answer = Callable[[list[Any]], Any]


def save(found: Row, architecture: str, folder: Path) -> Path:
    """Write a version to a folder; `found` is what `cerebro.read_model` returns, the architecture checked."""
    weights = bytes(found["model_weights"])
    document = {
        "format": FORMAT,
        "model": found["reference"],
        "architecture": json.loads(architecture),
        "compile_params": found["compile_params"],
        "fit_params": found["fit_params"],
        "about": found["about"],
        "features": found["features"],
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    # The weights first: a folder without its description is no model, and a digest in it says whose they are.
    for name, data in ((_WEIGHTS, _as_array_file(weights)), (_MODEL, text.encode())):
        part = folder / f"{name}.part"
        part.write_bytes(data)
        os.replace(part, folder / name)
    return folder


def _as_array_file(weights: bytes) -> bytes:
    """Return 32-bit floats as a file of NumPy's, which can be written without NumPy."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(weights) // 4},), }}"
    # Its length with the ten bytes before it is a multiple of 64, and its last character ends a line.
    header = header.ljust(-(-(len(header) + 11) // 64) * 64 - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + weights


def load_model(
    folder: str | Path, custom_objects: Mapping[str, Any] | None = None
) -> SavedClassifier | SavedRegressor:
    """Read a model from a folder that `db.models.save` or `cerebro export` has written.

    `custom_objects` has the layers that are registered in the database, by their names. Keras is needed for
    these, and for nets that NumPy does not compute.
    """
    path, known = Path(folder), custom_objects or {}
    found = _read(path)
    portable = shared.portable()
    weights = _read_weights(path, found.get("weights_sha256"))
    with _told(portable):
        fields = ("architecture", "compile_params", "about", "features")
        architecture, compile_params, about, features = (found.get(name) for name in fields)
        if not isinstance(architecture, dict) or not isinstance(about, dict):
            raise _no_model(path, "it describes no net")
        model = portable.read(architecture, weights, str(compile_params), about, features, known)
        net = _Net(portable, model, weights, known)
        output = model.output(net)
    kind = SavedRegressor if output.values is None else SavedClassifier
    return kind(str(found.get("model")), net, output)


def _read(folder: Path) -> dict[str, Any]:
    path = folder / _MODEL
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _no_model(folder, f"it has no {_MODEL}") from None
    except (ValueError, RecursionError) as error:
        raise _no_model(folder, f"{_MODEL} cannot be read, {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        version = found.get("format") if isinstance(found, dict) else None
        raise _no_model(folder, f"its format is {json.dumps(version)[:40]}, and this client reads {FORMAT}")
    return found


def _read_weights(folder: Path, digest: object) -> bytes:
    import numpy as np

    try:
        values = np.load(folder / _WEIGHTS, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise _no_model(folder, f"{_WEIGHTS} cannot be read, {error}") from None
    weights = values.tobytes()
    if values.dtype != np.dtype("<f4") or hashlib.sha256(weights).hexdigest() != digest:
        raise _no_model(folder, f"{_WEIGHTS} does not hold the weights that {_MODEL} was written with")
    return weights


def _no_model(folder: Path, problem: str) -> CerebroError:
    return CerebroError(
        f"{folder} holds no model that can be read: {problem}",
        hint="db.models.save('name@alias', folder) and cerebro export name@alias FOLDER write one.",
    )


@contextmanager
def _told(portable: Any) -> Iterator[None]:
    """Turn errors of the server's code into the client's."""
    try:
        yield
    except portable.CerebroError as error:
        raise CerebroError(
            error.message, detail=error.detail, hint=error.hint, sqlstate=error.sqlstate
        ) from None


class _Net:
    """A net that NumPy computes where it can, and else Keras."""

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

    def answer(self, inputs: list[Any]) -> Any:
        """Return what the net answers for a batch."""
        if self._keras is None:
            try:
                return self.model.plain(inputs)[0]
            except self.portable.NotHere:
                # Values of which an engine makes something else.
                pass
        return self._by_keras().predict_on_batch(inputs if len(inputs) > 1 else inputs[0])


class _SavedModel:
    """A model that was saved to a folder."""

    def __init__(self, name: str, net: _Net, output: Any) -> None:
        self.name = name
        self._net, self._output = net, output

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def columns(self) -> list[str]:
        """The columns that the rows must have."""
        return self._net.model.columns

    def _answers(self, rows: Any) -> Any:
        """Return the probabilities of the classes, or the quantities, of all rows."""
        import numpy as np

        with _told(self._net.portable):
            parts = [self._output.read(self._net.answer(inputs)) for inputs in self._batches(rows)]
        width = self._output.width if self._output.values is None else len(self._output.values)
        return np.concatenate([np.zeros((0, width)), *parts])

    def _batches(self, rows: Any) -> Iterator[list[Any]]:
        import numpy as np

        model, shape = self._net.model, self._net.input_shape
        if isinstance(rows, np.ndarray):
            for first in range(0, len(rows), _BATCH):
                yield model.take(rows[first : first + _BATCH], shape)
            return
        count, columns = _columns(rows, self.columns)
        for first in range(0, count, _BATCH):
            part = {name: values[first : first + _BATCH] for name, values in columns.items()}
            yield model.encode(part, shape)


def _columns(rows: Any, wanted: Sequence[str]) -> tuple[int, dict[str, list[Any]]]:
    """Return how many rows there are, and the wanted columns that they have."""
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
        """Return the probability of each class, for each row of a data frame or a list of dicts."""
        return self._answers(rows)

    def predict(self, rows: Any) -> Any:
        """Return the most probable class of each row."""
        return self.classes_[self._answers(rows).argmax(axis=1)]


class SavedRegressor(_SavedModel):
    """A model of a quantity that was saved to a folder."""

    def predict(self, rows: Any) -> Any:
        """Return the prediction for each row of a data frame or a list of dicts."""
        found = self._answers(rows)
        return found[:, 0] if found.shape[1] == 1 else found
