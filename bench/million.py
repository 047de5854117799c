"""Measures large tables: whether `cerebro.train` keeps its budget, and its log loss beside LightGBM's."""

from __future__ import annotations

import io
import json
import time
import warnings
from contextlib import closing
from typing import Any

import pandas as pd
import server
import tables
from contenders import watched
from details import Section, Tell
from lightgbm import LGBMClassifier  # pyright: ignore[reportMissingImports]: in the benchmark's environment alone
from measure import Spread, wait_until_quiet
from sklearn.metrics import log_loss
from tables import Goal

SIZES, UNSEEN = (100_000, 300_000, 1_000_000, 5_000_000), 50_000
SECONDS = 60
KINDS = ("k1", "k2", "k3", "k4", "k5")
# Ten numbers, two of them with NULLs, two integers, five texts of few and many values, and a moment.
COLUMNS = """
SELECT i AS id, n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, w1, w2,
       'v' || w1 % 7 AS k1, 'v' || w2 % 40 AS k2, 'v' || (w1 * w2) % 300 AS k3, 'v' || w2 % 3 AS k4,
       'v' || w1 % 12 AS k5,
       timestamptz '2024-01-01 00:00Z' + w1 * interval '1 hour' AS seen,
       CASE WHEN random() < 1 / (1 + exp(-4 * (n1 * n2 + sin(3 * n3) + abs(n4) - 1 + (w1 % 7 - 3) * 0.4 * n5
            + (w2 % 3 - 1) * 0.8))) THEN 'yes' ELSE 'no' END AS answer
  FROM (SELECT i, normal() AS n1, normal() AS n2, normal() AS n3, normal() AS n4, normal() AS n5,
               normal() AS n6, normal() AS n7, exp(normal()) AS n8,
               CASE WHEN random() < 0.9 THEN normal() END AS n9,
               CASE WHEN random() < 0.8 THEN normal() END AS n10,
               (random() * 5000)::int AS w1, (random() * 900)::int AS w2
          FROM generate_series(1, {rows}) AS i) AS drawn"""
NORMAL = """CREATE OR REPLACE FUNCTION normal() RETURNS real LANGUAGE sql VOLATILE AS
$$SELECT (sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()))::real$$"""
MADE = [
    f"large{end}{more}"
    for end in ("", "_info", "_nets", "_best", "_packed", "_packed_validation", "_ensemble")
    for more in ("", "_summary")
]


def million(tell: Tell) -> Section:
    """Measure seconds, memory and the log loss on unseen rows, of `cerebro.train` and of LightGBM."""
    lines, goals = [], []
    with server.session() as connection:
        server.query(connection, NORMAL)
        server.query(connection, "SELECT setseed(0.5)")
        server.drop(connection, ["unseen"])
        server.query(connection, f"CREATE TABLE unseen AS {COLUMNS.format(rows=UNSEEN)}")
    for rows in SIZES:
        wait_until_quiet()
        with watched(memory=True) as peak:
            packing, searching, ours, net = _train(rows)
        exporting, fitting, theirs = _lightgbm()
        seconds = [packing, searching, exporting, fitting]
        shown = [*[f"{each:.1f}" for each in seconds], f"{ours:.4f}", f"{theirs:.4f}"]
        lines.append([f"{rows:,}", *shown, tables.size(sum(peak.peak) if peak else 0), net])
        tell(f"  {lines[-1]}")
        over = Spread.from_values([(packing + searching) / SECONDS])
        goals.append(Goal(f"{rows:,} rows, a budget of {SECONDS} s: seconds of the call ÷ it", 1.1, over))
        behind = Spread.from_values([ours / theirs])
        goals.append(Goal(f"{rows:,} rows: log loss ÷ LightGBM's", 1.02, behind))
    head = [
        "rows", "all but the search, s", "search, s", "export, s", "LightGBM, s",
        "log loss of the ensemble", "of LightGBM", "memory of the server", "best net",
    ]  # fmt: skip
    return Section("Large tables", tables.markdown(head, lines), goals)


def _train(rows: int) -> tuple[float, float, float, str]:
    """Run `cerebro.train`; return the seconds outside and within its search, its log loss and best net."""
    with server.session() as connection:
        server.drop(connection, [*MADE, "train_on"])
        server.query(connection, f"CREATE TABLE train_on AS {COLUMNS.format(rows=rows)}")
        server.query(connection, "ANALYZE train_on")
        clock = time.perf_counter()
        board = server.query(
            connection,
            "SELECT net FROM cerebro.train('train_on', 'answer', 'large', %s, %s)",
            (f"{SECONDS} s", json.dumps({"exclude": ["id"]})),
        )
        taken = time.perf_counter() - clock
        searching = server.value(
            connection,
            "SELECT extract(epoch FROM max(started_at + train_seconds * interval '1 s') - min(started_at))"
            " FROM cerebro.visits WHERE run_id = (SELECT run_id FROM large_summary)",
        )
        told = server.query(
            connection,
            "SELECT (u.answer = 'yes')::int, p.probabilities->>'yes'"
            " FROM unseen u, cerebro.predict('large_ensemble', u) p",
        )
    loss = log_loss([int(truth) for truth, _ in told], [float(share) for _, share in told])
    return taken - float(searching), float(searching), float(loss), board[0][0]


def _lightgbm() -> tuple[float, float, float]:
    """Return the seconds to export the same rows and to fit LightGBM, and its log loss."""
    with server.session() as connection:
        clock = time.perf_counter()
        train = _export(connection, "train_on")
        exported = time.perf_counter()
        unseen = _export(connection, "unseen")
    names = [name for name in train if name not in ("id", "answer")]
    types = {name: pd.CategoricalDtype(sorted(train[name].unique())) for name in KINDS}
    fitting = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LGBMClassifier(verbose=-1).fit(train[names].astype(types), train["answer"])
    fitted = time.perf_counter()
    shares: Any = model.predict_proba(unseen[names].astype(types))
    return exported - clock, fitted - fitting, float(log_loss(unseen["answer"] == "yes", shares[:, 1]))


def _export(connection: Any, table: str) -> pd.DataFrame:
    text = io.StringIO()
    with closing(connection.cursor()) as cursor:
        cursor.copy_expert(f"COPY {table} TO STDOUT (FORMAT csv, HEADER)", text)
    text.seek(0)
    found = pd.read_csv(text)
    found["seen"] = pd.to_datetime(found["seen"], utc=True, format="ISO8601").astype("int64") / 1e9
    return found
