"""Model tables with random weights, the predictions of Keras for them, and calls that are refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

import nets
import reference
from every_layer import put
from fixtures import Connection, MakeRole, execute
from trial import ADAM, Trial, blobs, rows_of

ROWS, SCALE = 600, 4.0
KINDS = ["Green's", "blue", "red"]
PICTURE = nets.sequential([4, 4], nets.layer("Flatten"), nets.layer("Dense", units=3, activation="softmax"))

# Arguments of madlib_predict, the SQLSTATE and the message that they are refused with.
WRONG = {
    "a key for a single model": ("one, new, id, x, out, prob, f, 2", "22023", "mst_key 2 was given"),
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


_LOADED = """DO LANGUAGE plpython3u $$
    import sys
    plpy.execute("SELECT set_config('test.loaded', '%s', FALSE)" % ('keras' in sys.modules)) $$"""


def has_keras(session: Connection) -> bool:
    """Return whether a session of the server has imported Keras."""
    execute(session, _LOADED)
    return execute(session, "SELECT current_setting('test.loaded')") == [("True",)]


def start_keras(session: Connection, model: str, rows: str) -> None:
    """Start an engine in a session, by explaining the prediction for one row."""
    execute(session, f"SELECT cerebro.explain_predict('{model}', r) FROM (SELECT * FROM {rows} LIMIT 1) AS r")
    assert has_keras(session)


def outputs(model_arch: str, weights: bytes, *inputs: np.ndarray) -> list[np.ndarray]:
    """Return the outputs of a net for `inputs`, one array per output, as Keras' own predict computes them."""
    model = keras.models.model_from_json(model_arch)
    flat, start = np.frombuffer(weights, "<f4"), 0
    arrays = []
    for array in model.get_weights():
        arrays.append(flat[start : start + array.size].reshape(array.shape))
        start += array.size
    put(model, arrays)
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
    """Create a model table of a single model and its summary, with only the columns that predictions read."""
    trial.sql(f"CREATE TABLE {name} (model_weights bytea, model_arch json)")
    trial.sql(f"INSERT INTO {name} VALUES (%s, %s)", weights, model_arch)
    row = {
        "dependent_varname": ["y"],
        "num_classes": [len(classes) if classes else None],
        "normalizing_const": 1.0,
        "model_id": 1,
        "compile_params": ADAM,
        "fit_params": "batch_size=32",
        "backend": reference.BACKEND,
        **more,
    }
    trial.sql(
        f"CREATE TABLE {name}_summary AS SELECT r.*, %s::text[] AS y_class_values, NULL::bigint AS run_id"
        " FROM json_to_record(%s) AS r (dependent_varname text[], num_classes integer[],"
        " normalizing_const real, model_id integer, compile_params text, fit_params text, backend text)",
        None if classes is None else list(classes), json.dumps(row),
    )  # fmt: skip


def train(trial: Trial) -> None:
    """Train two configs as `many` and one as `one`, and create the table `new` of rows to predict."""
    numbered = [(n, x, y) for n, (x, y) in enumerate(rows_of(*blobs(ROWS)), 1)]
    trial.table("rows", "id bigint, x real[], y integer", numbered)
    trial.sql("CREATE TABLE kinds AS SELECT x, (%s::text[])[y + 1] AS kind FROM rows", KINDS)
    trial.pack("kinds", "packed", y="kind", normalizing_const=SCALE)
    trial.model(nets.mlp())
    trial.select("chosen", [1], [ADAM], ["batch_size=32,epochs=1", "batch_size=64,epochs=1"])
    trial.fit("packed", "many", "chosen", 1)
    trial.sql("SELECT cerebro.madlib_fit('packed', 'one', 'arch', 1, %s, 'batch_size=32', 1)", ADAM)
    trial.sql("CREATE TABLE new AS SELECT id, x FROM rows")


def probabilities(trial: Trial, features: np.ndarray) -> np.ndarray:
    """Return the probabilities that Keras predicts with the model of config 2 in the table `many`."""
    return outputs(nets.mlp(), trial.weights("many")[2], features / np.float32(SCALE))[0]


def make_images(trial: Trial) -> np.ndarray:
    """Create a table of images, and return Keras' probability of the predicted class of each image."""
    pixels = np.random.default_rng(3).integers(0, 256, (50, 4, 4), np.uint8)
    trial.table(
        "images",
        "id integer, image bytea, board integer[]",
        [(number, image.tobytes(), image.tolist()) for number, image in enumerate(pixels)],
    )
    scaled = pixels.astype(np.float32) / np.float32(255)
    return outputs(PICTURE, random_weights(PICTURE), scaled)[0].max(axis=1)


def make_large(trial: Trial) -> None:
    """Create `large`, a copy of the model table `many` without weights, which are then read from its run."""
    trial.sql("CREATE TABLE large AS TABLE many; UPDATE large SET model_weights = NULL")
    trial.sql("CREATE TABLE large_info AS TABLE many_info; CREATE TABLE large_summary AS TABLE many_summary")


def ask_as_another(trial: Trial, role: MakeRole, ask: str) -> None:
    """Run the query `ask` as a new role that may read the model table `large` but does not own its run."""
    user = role()
    trial.sql(f"GRANT SELECT ON new, large, large_info, large_summary TO {user}; SET ROLE {user}")
    try:
        trial.value(ask)
    finally:
        trial.sql("RESET ROLE")


def store_by_jax(trial: Trial, features: np.ndarray) -> np.ndarray:
    """Create a model table that names JAX as its engine.

    Return Keras' probability of the predicted class of each row of `features`.
    """
    net = nets.lstm()
    weights = random_weights(net)
    store(trial, "by_jax", net, weights, classes=KINDS, backend="jax")
    return outputs(net, weights, features)[0].max(axis=1)
