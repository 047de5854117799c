"""Measures the time of calls on a registered model: explanations, importance and checks."""

from __future__ import annotations

import json
import time
from typing import Any

import server
import tables
from details import Section, Tell
from measure import Spread, wait_until_quiet
from tables import Goal

FEATURES, EXPLAINED = 64, 2_000
WIDE = ", ".join(f"(random() * 2 - 1)::real AS f{number}" for number in range(FEATURES))
CHECKED = 1_000_000
NUMBERS, KINDS = 14, 4
# With the answer there are twenty columns.
COLUMNS = ", ".join(
    [f"(random() * 2 - 1)::real AS n{number}" for number in range(NUMBERS)]
    + ["(random() * 5000)::integer AS whole"]
    + [f"'v' || (random() * {10 ** (1 + number % 3)})::integer AS k{number}" for number in range(KINDS)]
)
TRAIN = {"nets": ["tabular"], "configs": 1, "epochs": 2, "seed": server.SEED, "folds": False, "single": True}
ONE_CORE = ("('segments', '1')", "('threads', '1')")


def living(repetitions: int, tell: Tell) -> Section:
    """Measure each call with one segment and one thread, after a first call that is not counted."""
    with server.session() as connection:
        server.query(connection, "SELECT setseed(0.5)")
        server.query(connection, f"INSERT INTO cerebro.settings VALUES {', '.join(ONE_CORE)}")
        server.query(
            connection,
            "CREATE TABLE wide AS SELECT f0 + f1 * f2 > 0 AS answer, f.* FROM"
            f" (SELECT i AS id, {WIDE} FROM generate_series(1, {EXPLAINED}) AS i) AS f",
        )
        register(connection, "wide")
        explaining = measure(
            connection,
            "SELECT count(*) FROM wide AS w, cerebro.explain_predict('wide@1', w, 5) AS e",
            repetitions,
            tell,
        )
        weighing = measure(
            connection, "SELECT count(*) FROM cerebro.importance('wide@1', 'wide')", repetitions, tell
        )
        server.query(
            connection,
            "CREATE TABLE later AS SELECT n0 + n1 * n2 > 0 AS answer, c.* FROM"
            f" (SELECT {COLUMNS} FROM generate_series(1, {CHECKED})) AS c",
        )
        server.query(connection, "CREATE TABLE earlier AS SELECT * FROM later LIMIT 20000")
        server.query(connection, "ANALYZE later")
        register(connection, "earlier")
        checking = measure(
            connection, "SELECT count(*) FROM cerebro.check('earlier@1', 'later')", repetitions, tell
        )
        server.query(connection, "DELETE FROM cerebro.settings WHERE name IN ('segments', 'threads')")
    slow, fast = EXPLAINED / explaining.high, EXPLAINED / explaining.low
    rate = Spread(EXPLAINED / explaining.median, slow, fast, explaining.count)
    lines = [
        [f"`explain_predict`, {EXPLAINED:,} rows of {FEATURES} features", tables.spread(explaining)],
        [f"`importance`, the same rows, {FEATURES} columns", tables.spread(weighing)],
        [f"`check`, {CHECKED:,} rows of 20 columns, labels among them", tables.spread(checking)],
    ]
    goals = [
        Goal("explanations: rows a second, one core", 200, rate, False),
        Goal("check of a million rows: seconds, one core", 10, checking),
    ]
    return Section("Registered models", tables.markdown(["", "seconds"], lines), goals)


def register(connection: Any, source: str) -> None:
    """Train a small net on a table, and register it under the table's name."""
    options = {**TRAIN, "exclude": ["id"]} if source == "wide" else TRAIN
    server.query(
        connection,
        "SELECT cerebro.train(%s, 'answer', %s, '1 minute', %s)",
        (source, f"{source}_model", json.dumps(options)),
    )
    server.query(connection, "SELECT cerebro.register(%s, %s)", (f"{source}_model", source))


def measure(connection: Any, statement: str, repetitions: int, tell: Tell) -> Spread:
    """Run a statement once more than `repetitions`; return the seconds of all calls except the first."""
    found = []
    for _ in range(repetitions + 1):
        wait_until_quiet()
        clock = time.perf_counter()
        server.query(connection, statement)
        found.append(time.perf_counter() - clock)
    tell(f"  {found[1:]}: {statement}")
    return Spread.from_values(found[1:])
