"""Saves models to folders, and loads them to predict without a database.

A folder has `model.json`, which describes the net, its inputs and its outputs, and `weights.npy`. Neither
file contains code, and both are checked as untrusted input when they are read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cerebro_db import shared
from cerebro_db.errors import CerebroError
from cerebro_db.link import Row
from cerebro_db.saved_models import NetsOfGroups, SavedClassifier, SavedNet, SavedRegressor, told

FORMAT = 1
_MODEL, _WEIGHTS = "model.json", "weights.npy"
# The columns of a row of models of groups that describe its group.
_OF_GROUP = ("group_by", "group", "mst_key", "metrics")


def save(found: Sequence[Row], checked: Callable[[Row], str], folder: Path) -> Path:
    """Write a version of a registered model to a folder, and return the folder.

    `found` has the rows of `cerebro.read_model`: one row, or for models of groups one for each group.
    `checked` returns the architecture of a row as the server has checked it.
    """
    weights = b"".join(bytes(row["model_weights"]) for row in found)
    about = found[0]["about"]
    document = {
        "format": FORMAT,
        "model": found[0]["reference"],
        **(_groups(found, checked) if "group_by" in about else _net(found[0], checked(found[0]))),
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    # Weights are written first: without model.json a folder is no model, and its digest names the weights.
    for name, data in ((_WEIGHTS, _as_array_file(weights)), (_MODEL, text.encode())):
        part = folder / f"{name}.part"
        part.write_bytes(data)
        os.replace(part, folder / name)
    return folder


def _net(row: Row, architecture: str) -> dict[str, Any]:
    return {
        "architecture": json.loads(architecture),
        "compile_params": row["compile_params"],
        "fit_params": row["fit_params"],
        "about": {key: value for key, value in row["about"].items() if key not in _OF_GROUP},
        "features": row["features"],
    }


def _groups(found: Sequence[Row], checked: Callable[[Row], str]) -> dict[str, Any]:
    """Return the description of models of groups: each net once, and for each group its net and metrics."""
    one_of = {str(row["about"]["mst_key"]): row for row in found}
    return {
        "group_by": found[0]["about"]["group_by"],
        "nets": {key: _net(row, checked(row)) for key, row in one_of.items()},
        "groups": [
            {
                "group": row["about"]["group"],
                "net": str(row["about"]["mst_key"]),
                "numbers": len(bytes(row["model_weights"])) // 4,
                "metrics": row["about"]["metrics"],
            }
            for row in found
        ],
    }


def _as_array_file(weights: bytes) -> bytes:
    """Return the bytes of a NumPy file (.npy) for 32-bit floats, without using NumPy."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(weights) // 4},), }}"
    # The header and the ten bytes before it have a multiple of 64 bytes; the last is a line feed.
    header = header.ljust(-(-(len(header) + 11) // 64) * 64 - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + weights


def load_model(
    folder: str | Path, custom_objects: Mapping[str, Any] | None = None
) -> SavedClassifier | SavedRegressor:
    """Load a model from a folder that `db.models.save` or `cerebro export` has written.

    `custom_objects` maps the names of layers that are registered in the database to their classes. Keras must
    be installed for such layers, and for nets that the client cannot compute with NumPy.
    """
    path, known = Path(folder), custom_objects or {}
    found = read_document(path)
    weights = read_weights(path, found.get("weights_sha256"))
    portable = shared.portable()
    with told(portable):
        nets = _read_groups(portable, path, found, weights, known)
        net = _read_net(portable, path, found, weights, known) if nets is None else nets
        output = net.output
    kind = SavedRegressor if output.values is None else SavedClassifier
    return kind(str(found.get("model")), net, output)


def _read_net(
    portable: Any, folder: Path, found: Mapping[str, Any], weights: bytes, known: Mapping[str, Any]
) -> SavedNet:
    fields = ("architecture", "compile_params", "about", "features")
    architecture, compile_params, about, features = (found.get(name) for name in fields)
    if not isinstance(architecture, dict) or not isinstance(about, dict):
        raise no_model(folder, "it describes no net")
    model = portable.read(architecture, weights, str(compile_params), about, features, known)
    return SavedNet(portable, model, weights, known)


def _read_groups(
    portable: Any, folder: Path, found: Mapping[str, Any], weights: bytes, known: Mapping[str, Any]
) -> NetsOfGroups | None:
    """Return the nets of models of groups, or None if the folder holds a single model."""
    if "group_by" not in found:
        return None
    try:
        nets, first = list[tuple[Mapping[str, Any] | None, SavedNet]](), 0
        for one in found["groups"]:
            last = first + 4 * int(one["numbers"])
            net = _read_net(portable, folder, found["nets"][one["net"]], weights[first:last], known)
            nets.append((one["group"], net))
            first = last
        return NetsOfGroups(found["group_by"], nets)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise no_model(folder, f"its groups cannot be read, {error!r}") from None


def read_document(folder: Path) -> dict[str, Any]:
    """Return the content of a folder's `model.json`; raise CerebroError if it cannot be read."""
    path = folder / _MODEL
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise no_model(folder, f"it has no {_MODEL}") from None
    except (ValueError, RecursionError) as error:
        raise no_model(folder, f"{_MODEL} cannot be read, {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        version = found.get("format") if isinstance(found, dict) else None
        raise no_model(folder, f"its format is {json.dumps(version)[:40]}, and this client reads {FORMAT}")
    return found


def read_weights(folder: Path, digest: object) -> bytes:
    """Return the weights in a folder; raise CerebroError if they do not have the SHA-256 digest `digest`."""
    import numpy as np

    try:
        values = np.load(folder / _WEIGHTS, allow_pickle=False)
        if not isinstance(values, np.ndarray):
            raise ValueError("it holds several arrays")
    except (OSError, ValueError, EOFError, MemoryError) as error:
        raise no_model(folder, f"{_WEIGHTS} cannot be read, {error}") from None
    weights = values.tobytes()
    if values.dtype != np.dtype("<f4") or hashlib.sha256(weights).hexdigest() != digest:
        raise no_model(folder, f"{_WEIGHTS} does not hold the weights that {_MODEL} was written with")
    return weights


def no_model(folder: Path, problem: str) -> CerebroError:
    """Return the error which says that a folder has no readable model, and why (`problem`)."""
    return CerebroError(
        f"{folder} holds no model that can be read: {problem}",
        hint="db.models.save('name@alias', folder) and cerebro export name@alias FOLDER write one.",
    )
