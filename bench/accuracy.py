"""Measures the accuracy of one `cerebro.train` statement beside scikit-learn's net on the same rows."""

from __future__ import annotations

import time
import warnings
from statistics import mean, stdev
from typing import Any

import pandas as pd
import server
import tables
from details import Section, Tell
from measure import Spread
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from tables import Goal

SEEDS, ROWS, BUDGET = range(1, 6), 5000, "1 minute"
NUMBERS, CATEGORIES = ["age", "income", "calls", "days"], ["city", "plan", "active"]
# Whether a client leaves depends on several columns together and on chance; a third of them leave.
CLIENTS = """CREATE TABLE clients AS
WITH dice AS (
    SELECT i, array_agg((hashint8extended(i, seed) & 1048575) / 1048576.0 ORDER BY seed) AS d
    FROM generate_series(1, {rows}) AS i, generate_series(1, 7) AS seed GROUP BY i
), people AS (
    SELECT i AS id, (18 + 60 * d[1])::integer AS age, exp(9 + 2 * d[2]) AS income,
           (12 * d[3] * d[3])::integer AS calls, 1 + (40 * d[4])::integer AS city,
           1 + (3 * d[5])::integer % 3 AS plan, i % 3 = 0 AS active,
           (1023 * d[6])::integer AS since, d[7] AS luck
    FROM dice
)
SELECT id, CASE WHEN id % 9 > 0 THEN age END AS age, CASE WHEN id % 13 > 0 THEN income END AS income, calls,
       'city ' || city AS city, (ARRAY['free', 'basic', 'pro'])[plan] AS plan, active,
       '2022-01-01'::date + since AS joined,
       CASE WHEN 1 / (1 + exp(-(4 * sin(age / 8.0) + 0.5 * (calls - 4) * (plan - 2) + 1.5 * sin(city)
                               - since / 400.0 + CASE WHEN active THEN -1.5 ELSE 0.5 END)))
                 > luck THEN 'yes' ELSE 'no' END AS gone
FROM people"""


def accuracy(tell: Tell) -> Section:
    """Measure balanced accuracy on a fifth of the rows, held out from training, for each of several seeds."""
    ours: list[float] = []
    theirs: list[float] = []
    with_all: list[float] = []
    seconds: list[float] = []
    with server.session() as connection:
        server.drop(connection, ["clients"])
        server.query(connection, CLIENTS.format(rows=ROWS))
        for seed in SEEDS:
            found = _one_statement(connection, seed)
            ours.append(found[0])
            seconds.append(found[1])
            all_rows, fewer = _scikit_learn(connection, seed)
            with_all.append(all_rows)
            theirs.append(fewer)
            tell(f"  {seed}: ours {ours[-1]:.3f} in {seconds[-1]:.0f} s, theirs {fewer:.3f}, {all_rows:.3f}")
    rows = [
        [name, f"{mean(found):.3f} ± {stdev(found):.3f}"]
        for name, found in (
            ("cerebro.train, which holds a fifth of the rows out to choose by", ours),
            ("MLPClassifier on a ColumnTransformer, without a fifth of the rows", theirs),
            ("the same with all of them", with_all),
        )
    ]
    text = tables.markdown([f"{ROWS:,} rows, {len(SEEDS)} seeds", "balanced accuracy"], rows)
    behind = Spread.from_values([100 * (b - a) for a, b in zip(ours, theirs, strict=True)])
    goal = Goal("points of balanced accuracy that cerebro.train is behind MLPClassifier", 1.0, behind)
    return Section("One statement beside scikit-learn", text, [goal])


def _rows_of(part: str, seed: int) -> str:
    sign = "=" if part == "test" else "<>"
    return f"SELECT * FROM clients WHERE (hashint8extended(id, {100 + seed}) & 1023) % 5 {sign} 0"


def _one_statement(connection: Any, seed: int) -> tuple[float, float]:
    names = [f"learned{kind}{end}" for kind in _MADE for end in ("", "_summary")]
    server.drop(connection, names)
    server.query(connection, f"CREATE OR REPLACE VIEW known AS {_rows_of('training', seed)}")
    clock = time.perf_counter()
    server.query(
        connection,
        "SELECT count(*) FROM cerebro.train('known', 'gone', 'learned', %s, %s)",
        (BUDGET, f'{{"seed": {seed}}}'),
    )
    took = time.perf_counter() - clock
    found = server.query(
        connection,
        f"SELECT t.gone, p.class FROM ({_rows_of('test', seed)}) AS t, cerebro.predict('learned', t) AS p",
    )
    return float(balanced_accuracy_score(*zip(*found, strict=True))), took


def _scikit_learn(connection: Any, seed: int) -> tuple[float, float]:
    """Return the accuracy of nets trained on all rows not held out, and on four fifths of these rows."""
    columns = [name for (name,) in server.query(connection, _NAMES)]
    known, unseen = (
        pd.DataFrame(server.query(connection, _rows_of(part, seed)), columns=columns)
        for part in ("training", "test")
    )
    for frame in (known, unseen):
        frame["days"] = pd.to_datetime(frame["joined"]).astype("int64") / 86400e9
    features = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), NUMBERS),
            ("categories", OneHotEncoder(handle_unknown="ignore"), CATEGORIES),
        ]
    )
    fewer, _ = train_test_split(known, test_size=0.2, random_state=seed, stratify=known["gone"])
    scores: list[float] = []
    for rows in (known, pd.DataFrame(fewer)):
        net = make_pipeline(features, MLPClassifier(random_state=seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            net.fit(rows, rows["gone"])
        scores.append(float(balanced_accuracy_score(unseen["gone"], net.predict(unseen))))
    return scores[0], scores[1]


_MADE = ("", "_info", "_best", "_packed", "_packed_validation", "_nets")
_NAMES = (
    "SELECT attname::text FROM pg_attribute"
    " WHERE attrelid = 'clients'::regclass AND attnum > 0 ORDER BY attnum"
)
