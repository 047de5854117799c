"""Measures a net for each of 10,000 groups, from a plain table to predictions, against Python loops."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import jobs
import numpy as np
import server
import tables
from details import Section, Tell
from joblib import Parallel, delayed
from measure import PeakMemory, Spread
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from tables import Goal

GROUPS, ROWS, FEATURES, UNITS, EPOCHS, BATCH = 10_000, 100, 10, 16, 5, 10
# The loops are measured on so many groups, and their time is multiplied to that of all groups.
LOOPED, LOOPED_KERAS = 1_000, 300
FEW, MANY = 1_000, 100_000
PROCESSES = 2
OURS, FAST, SKLEARN, KERAS = "cerebro", "cerebro, `fuse: fast`", "scikit-learn", "Keras"
STEPS = ("packing", "load_net", "configs", "fit", "predicting")
_MADE = (
    "CREATE TABLE grouped AS SELECT i AS id, i % {groups} AS grp, ARRAY(SELECT sin(i * 0.37 + j * 1.7"
    " + i % {groups})::real FROM generate_series(1, {features}) AS j) AS x,"
    " (sin(i * 0.37 + 1.7 + i % {groups}) + sin(i * 0.37 + 3.4 + i % {groups}) > 0)::integer AS y"
    " FROM generate_series(0, {rows} - 1) AS i"
)
_COMPILED = "loss='categorical_crossentropy', optimizer='Adam(learning_rate=0.01)', metrics=['accuracy']"


def groups(repetitions: int, options: str, tell: Tell) -> Section:
    ways = {OURS: options, FAST: json.dumps({**json.loads(options), "fuse": "fast"})}
    taken: dict[str, list[float]] = {name: [] for name in (*ways, SKLEARN, KERAS)}
    x, y = _made(GROUPS)
    for _ in range(repetitions):
        for name, given in ways.items():
            taken[name].append(sum(_ours(given).values()))
        taken[SKLEARN].append(_loop(x, y) * GROUPS / LOOPED)
        taken[KERAS].append(_keras_loop(x[:LOOPED_KERAS], y[:LOOPED_KERAS]) * GROUPS / LOOPED_KERAS)
        tell(f"  groups { {name: round(found[-1], 1) for name, found in taken.items()} }")
    pairs = {
        (name, loop): Spread.from_values([a / b for a, b in zip(taken[name], taken[loop], strict=True)])
        for name in ways
        for loop in (SKLEARN, KERAS)
    }
    rows = [
        [name, tables.spread(Spread.from_values(found), 1)]
        + [tables.spread(pairs[name, loop], 3) if name in ways else "" for loop in (SKLEARN, KERAS)]
        for name, found in taken.items()
    ]
    about = (
        f"{GROUPS:,} groups of {ROWS} rows: a net of {UNITS} hidden units for each, {EPOCHS} epochs, batches"
        f" of {BATCH}, then predictions for all rows. The loops have {PROCESSES} processes and were measured"
        f" on {LOOPED:,} groups (scikit-learn's `MLPClassifier`) and {LOOPED_KERAS} (Keras: one model,"
        " compiled once, set back for each group).\n\n"
    )
    text = about + tables.markdown(["", "seconds", f"÷ {SKLEARN}", f"÷ {KERAS}"], rows)
    goals = [
        Goal(f"{GROUPS:,} groups, {name} ÷ a loop of {loop}", goal, pairs[name, loop])
        for name, loop, goal in ((OURS, SKLEARN, 0.25), (FAST, SKLEARN, 0.15), (OURS, KERAS, 0.02))
    ]
    more, growth = _grown(options, tell)
    return Section("A net for each group", f"{text}\n\n{more}", [*goals, *growth])


def _grown(options: str, tell: Tell) -> tuple[str, list[Goal]]:
    """Measure the time for each group and the server's memory, with 1,000, 10,000 and 100,000 groups."""
    rows, each, memory = [], {}, {}
    for count in (FEW, GROUPS, MANY):
        _made(count)
        with closing(server.connect()) as connection:
            roots = {server.server_process(connection)}
        with PeakMemory(lambda roots=roots: roots) as peak:
            steps = _ours(options)
        each[count], memory[count] = sum(steps.values()) / count, sum(peak.peak)
        cells = [f"{1000 * each[count]:.2f}", *(f"{seconds:.1f}" for seconds in steps.values())]
        rows.append([f"{count:,}", *cells, tables.size(memory[count])])
        tell(f"  {rows[-1]}")
    head = [
        "groups",
        "milliseconds for each",
        *(f"{step}, seconds" for step in STEPS),
        "memory, all processes",
    ]
    return tables.markdown(head, rows), [
        Goal(f"memory with {GROUPS:,} groups, GB", 1.5, Spread.from_values([memory[GROUPS] / 1e9])),
        Goal(
            f"a group among {MANY:,} ÷ one among {FEW:,}", 1.1, Spread.from_values([each[MANY] / each[FEW]])
        ),
    ]


def _made(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Create the table of rows for `count` groups; return the rows of the groups that the loops train on."""
    with server.session() as connection:
        server.drop(connection, ["grouped"])
        server.query(connection, _MADE.format(groups=count, features=FEATURES, rows=count * ROWS))
        return _exported(connection, min(count, LOOPED))


def _exported(connection: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    rows = server.query(connection, "SELECT x, y FROM grouped WHERE grp < %s ORDER BY grp, id", [count])
    x, y = (np.array(column) for column in zip(*rows, strict=True))
    return x.astype(np.float32).reshape(count, ROWS, FEATURES), y.reshape(count, ROWS)


def _ours(options: str) -> Mapping[str, float]:
    """Run every step from packing to predicting in a new session; return the seconds of each step."""
    made = ("packed", "packed_summary", "packed_groups", "nets", "configs", "configs_summary")
    left = ("models", "models_info", "models_summary", "predicted")
    seconds: dict[str, float] = {}
    with server.session() as connection:
        for step, (statement, values) in zip(STEPS, _statements(options), strict=True):
            started = time.perf_counter()
            server.query(connection, statement, values)
            seconds[step] = time.perf_counter() - started
        server.drop(connection, [f"grouped_{name}" for name in (*made, *left)])
    return seconds


def _statements(options: str) -> list[tuple[str, list[object]]]:
    return [
        ("SELECT cerebro.training_preprocessor_dl('grouped', 'grouped_packed', 'y', 'x', options => %s)",
         [json.dumps({"group_by": "grp", "segments": PROCESSES})]),
        ("SELECT cerebro.load_net('grouped_nets', 'grouped_packed', %s)",
         [f"Dense({UNITS}, activation='relu')"]),
        ("SELECT cerebro.load_model_selection_table('grouped_nets', 'grouped_configs', ARRAY[1],"
         " ARRAY[%s]::varchar[], ARRAY[%s]::varchar[])", [_COMPILED, f"batch_size={BATCH}"]),
        ("SELECT cerebro.madlib_fit_multiple_model('grouped_packed', 'grouped_models', 'grouped_configs', %s,"
         " options => %s)", [EPOCHS, options]),
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


def _keras_loop(x: np.ndarray, y: np.ndarray) -> float:
    """Train each group with Keras, half of the groups in each process; return the slower process' seconds."""
    halves = [(x[part::PROCESSES], y[part::PROCESSES]) for part in range(PROCESSES)]
    found: Any = Parallel(n_jobs=PROCESSES)(delayed(_keras_groups)(*half) for half in halves)
    return max(found)


def _keras_groups(x: np.ndarray, y: np.ndarray) -> float:
    jobs.set_environment(jobs.Settings(threads=1))
    import keras

    silent: Any = 0
    model = keras.Sequential(
        [keras.Input(x.shape[2:]), keras.layers.Dense(UNITS, "relu"), keras.layers.Dense(2)]
    )
    model.add(keras.layers.Softmax())
    optimizer = keras.optimizers.Adam(0.01)
    model.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])
    model.fit(x[0], y[0], batch_size=BATCH, verbose=silent)
    model.predict(x[0], verbose=silent)
    first, moments = model.get_weights(), [np.zeros(v.shape, v.dtype) for v in optimizer.variables]
    started = time.perf_counter()
    for rows, labels in zip(x, y, strict=True):
        model.set_weights(first)
        for variable, zeros in zip(optimizer.variables, moments, strict=True):
            # The learning rate is also among the optimizer's variables.
            if "learning_rate" not in variable.path:
                variable.assign(zeros)
        model.fit(rows, labels, batch_size=BATCH, epochs=EPOCHS, verbose=silent)
        model.predict(rows, verbose=silent)
    return time.perf_counter() - started
