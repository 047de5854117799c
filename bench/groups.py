"""A net for each of many groups, from a plain table to predictions, against a loop of scikit-learn's."""

from __future__ import annotations

import json
import time
import warnings
from typing import Any

import numpy as np
import server
import tables
from details import Section, Tell
from joblib import Parallel, delayed
from measure import Spread
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from tables import Goal

GROUPS, ROWS, FEATURES, UNITS, EPOCHS, BATCH = 10_000, 100, 10, 16, 5, 10
# Of so many groups the loop is measured, and its time taken for as many more.
LOOPED = 1_000
PROCESSES = 2
_MADE = (
    "CREATE TABLE grouped AS SELECT i AS id, i % {groups} AS grp, ARRAY(SELECT sin(i * 0.37 + j * 1.7"
    " + i % {groups})::real FROM generate_series(1, {features}) AS j) AS x,"
    " (sin(i * 0.37 + 1.7 + i % {groups}) + sin(i * 0.37 + 3.4 + i % {groups}) > 0)::integer AS y"
    " FROM generate_series(0, {rows} - 1) AS i"
)
_COMPILED = "loss='categorical_crossentropy', optimizer='Adam(learning_rate=0.01)', metrics=['accuracy']"


def groups(repetitions: int, options: str, tell: Tell, count: int = GROUPS) -> Section:
    ours, theirs = [], []
    with server.session() as connection:
        server.query(connection, _MADE.format(groups=count, features=FEATURES, rows=count * ROWS))
        x, y = _exported(connection, min(count, LOOPED))
    for _ in range(repetitions):
        ours.append(_ours(options))
        theirs.append(_loop(x, y) * count / len(x))
        tell(f"  groups {ours[-1]:.1f} {theirs[-1]:.1f}")
    pairs = Spread.of([a / b for a, b in zip(ours, theirs, strict=True)])
    times = [tables.spread(Spread.of(one)) for one in (ours, theirs)]
    head = ["", "cerebro, seconds", f"scikit-learn, {PROCESSES} processes, seconds", "cerebro ÷ scikit-learn"]
    row = [f"{count} groups of {ROWS} rows", *times, tables.spread(pairs)]
    about = (
        f"A net of {UNITS} hidden units for each group, {EPOCHS} epochs, batches of {BATCH}, then predictions"
        f" for all rows. scikit-learn was measured on {len(x)} groups.\n\n"
    )
    goal = Goal(f"{count} groups ÷ a loop of scikit-learn's", 0.15, pairs)
    return Section("A net for each group", about + tables.markdown(head, [row]), [goal])


def _exported(connection: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    rows = server.query(connection, "SELECT x, y FROM grouped WHERE grp < %s ORDER BY grp, id", [count])
    x, y = (np.array(column) for column in zip(*rows, strict=True))
    return x.astype(np.float32).reshape(count, ROWS, FEATURES), y.reshape(count, ROWS)


def _ours(options: str) -> float:
    """Seconds of everything, in a session of its own."""
    made = ("packed", "packed_summary", "packed_groups", "nets", "configs", "configs_summary")
    left = ("models", "models_info", "models_summary", "predicted")
    with server.session() as connection:
        started = time.perf_counter()
        for statement, values in _statements(options):
            server.query(connection, statement, values)
        seconds = time.perf_counter() - started
        server.drop(connection, [f"grouped_{name}" for name in (*made, *left)])
    return seconds


def _statements(options: str) -> list[tuple[str, list[object]]]:
    fitted = json.dumps({"backend": "jax", **json.loads(options)})
    return [
        ("SELECT cerebro.training_preprocessor_dl('grouped', 'grouped_packed', 'y', 'x', options => %s)",
         [json.dumps({"group_by": "grp", "segments": PROCESSES})]),
        ("SELECT cerebro.load_net('grouped_nets', 'grouped_packed', %s)",
         [f"Dense({UNITS}, activation='relu')"]),
        ("SELECT cerebro.load_model_selection_table('grouped_nets', 'grouped_configs', ARRAY[1],"
         " ARRAY[%s]::varchar[], ARRAY[%s]::varchar[])", [_COMPILED, f"batch_size={BATCH}"]),
        ("SELECT cerebro.madlib_fit_multiple_model('grouped_packed', 'grouped_models', 'grouped_configs', %s,"
         " options => %s)", [EPOCHS, fitted]),
        ("SELECT cerebro.madlib_predict('grouped_models', 'grouped', 'id', 'x', 'grouped_predicted',"
         " 'response')", []),
    ]  # fmt: skip


def _loop(x: np.ndarray, y: np.ndarray) -> float:
    started = time.perf_counter()
    Parallel(n_jobs=PROCESSES)(delayed(_one)(*group) for group in zip(x, y, strict=True))
    return time.perf_counter() - started


def _one(x: np.ndarray, y: np.ndarray) -> Any:
    net = MLPClassifier(hidden_layer_sizes=(UNITS,), max_iter=EPOCHS, learning_rate_init=0.01, random_state=1)
    net.set_params(batch_size=BATCH)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return net.fit(x, y).predict(x)
