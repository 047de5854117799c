"""Models that were never trained, what Keras predicts with them, and calls that are wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from trial import ADAM, Trial

# Arguments of madlib_predict, the SQLSTATE and the message that they are refused with.
WRONG = {
    "a key for a single model": ("one, new, id, x, out, prob, f, 1", "22023", "mst_key 1 was given"),
    "no key for many models": ("many, new, id, x, out", "22023", "mst_key is missing"),
    "a key that is not there": ("many, new, id, x, out, prob, f, 9", "22023", "mst_key 9 is not in"),
    "no such model table": ("nowhere, new, id, x, out", "42P01", "nowhere"),
    "not a model table": ("rows, new, id, x, out", "42P01", "rows_summary"),
    "no info": ("alone, new, id, x, out, prob, f", "42P01", "alone_info"),
    "no weights in it": ("odd, new, id, x, out", "42703", "no column model_weights"),
    "no model": ("failed, new, id, x, out, prob, f, 2", "55000", "config 2 of .* has no model: it failed"),
    "no such rows": ("one, nowhere, id, x, out", "42P01", "test table"),
    "no such id": ("one, new, ident, x, out", "42703", "id_col ident"),
    "an id that is code": ("one, new, id + 1, x, out", "42703", "id_col"),
    "no such input": ("one, new, id, z, out", "42703", 'column "z"'),
    "an input of another type": ("one, odd, id, t, out", "42804", "cannot be an input"),
    "too many inputs": ("one, odd, id, 'x, x2', out", "22023", "2 inputs, the model has 1"),
    "rows of another shape": ("one, odd, id, short, out", "22023", "shape"),
    "the result is there": ("one, new, id, x, rows", "42P07", "already exists"),
    "a temporary result": ("one, new, id, x, pg_temp.out", "0A000", "temporary"),
    "an unknown kind": ("one, new, id, x, out, best", "22023", "pred_type cannot be 'best'"),
    "no classes at all": ("one, new, id, x, out, 0", "22023", "pred_type cannot be 0"),
    "a certainty": ("one, new, id, x, out, 1.0", "22023", "pred_type cannot be 1.0"),
    "a negative fraction": ("one, new, id, x, out, -0.5", "22023", "pred_type cannot be -0.5"),
    "classes of numbers": ("number, new, id, x, out, 2", "22023", "predicts numbers"),
    "other classes": ("fewer, new, id, x, out", "22023", "2 class values, but the model gives 3"),
    "other weights": ("broken, new, id, x, out", "22023", "model_weights has 8 bytes"),
    "NULL rows": ("one, odd, id, gone, out", "22004", "is NULL in 1 of 2 rows"),
    "rows of several lengths": ("one, odd, id, ragged, out", "22023", "another shape"),
    "NaN": ("one, odd, id, nan, out", "22023", "NaN or infinity"),
    "no rows": ("one, nothing, id, x, out", "22023", "has no rows"),
    "the name of the id": ("one, odd, prob, x, out", "42701", "two columns"),
}


def outputs(model_arch: str, weights: bytes, *inputs: np.ndarray) -> list[np.ndarray]:
    """What Keras' own predict gives."""
    model = keras.models.model_from_json(model_arch)
    flat, start = np.frombuffer(weights, "<f4"), 0
    arrays = []
    for array in model.get_weights():
        arrays.append(flat[start : start + array.size].reshape(array.shape))
        start += array.size
    model.set_weights(arrays)
    given: Any = list(inputs)
    found = model.predict(given if len(given) > 1 else given[0], verbose=0)
    return found if isinstance(found, list) else [found]


def random_weights(model_arch: str, seed: int = 1) -> bytes:
    random = np.random.default_rng(seed)
    shapes = [array.shape for array in keras.models.model_from_json(model_arch).get_weights()]
    return b"".join(random.normal(scale=0.5, size=shape).astype("<f4").tobytes() for shape in shapes)


def store(
    trial: Trial, name: str, model_arch: str, weights: bytes, *, classes: Sequence[str] | None, **more: Any
) -> None:
    """A single model's tables with the columns that matter."""
    trial.sql(f"CREATE TABLE {name} (model_weights bytea, model_arch json)")
    trial.sql(f"INSERT INTO {name} VALUES (%s, %s)", weights, model_arch)
    row = {
        "dependent_varname": ["y"],
        "num_classes": [len(classes) if classes else None],
        "normalizing_const": 1.0,
        "model_id": 1,
        "compile_params": ADAM,
        "fit_params": "batch_size=32",
        "backend": "tensorflow",
        **more,
    }
    trial.sql(
        f"CREATE TABLE {name}_summary AS SELECT r.*, %s::text[] AS y_class_values, NULL::bigint AS run_id"
        " FROM json_to_record(%s) AS r (dependent_varname text[], num_classes integer[],"
        " normalizing_const real, model_id integer, compile_params text, fit_params text, backend text)",
        None if classes is None else list(classes), json.dumps(row),
    )  # fmt: skip
