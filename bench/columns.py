"""Measures mixed columns that are packed as they are: packing, its memory, and predictions in queries."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import server
import tables
from details import Section, Tell
from measure import Spread
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from tables import Goal

ROWS, PREDICTED, WIDTH = 300_000, 100_000, 2000
# Numbers with NULLs, categories of few and of many values, dates; with words they cost more.
MIXED = """CREATE TABLE mixed AS
SELECT i AS id,
       CASE WHEN i % 17 > 0 THEN 18 + i % 60 END AS age,
       CASE WHEN i % 11 > 0 THEN ((i::bigint * 7919) % 90000) / 7.0::float8 END AS income,
       1e9::float8 + (i * 31) % 1000 AS far,
       'city ' || (i::bigint * i) % 200 AS city,
       (ARRAY['free', 'basic', 'pro', NULL])[1 + i % 4] AS plan,
       (i * 7) % 12 AS level,
       '2020-01-01'::date + (i * 13) % 1500 AS joined,
       '1999-12-31 23:59Z'::timestamptz + (i * 77) * interval '1 min' AS seen,
       i % 3 = 0 AS active,
       'The quick,  brown Fox jumps ' || i % 5000 || ' times over ' || i % 300 || ' lazy dogs' AS note,
       CASE WHEN (i * 37) % 60 > 32 THEN 'yes' ELSE 'no' END AS gone
  FROM generate_series(1, {rows}) AS i"""
ROW_BY_ROW = "SELECT count(p.class) FROM mixed AS m, cerebro.predict('{model}'::regclass, m) AS p"
AS_QUERY = (
    "SELECT count(class) FROM cerebro.predict_query('{model}'::regclass, 'SELECT * FROM mixed', NULL::mixed)"
)
PLAIN = ["age", "income", "far", "city", "plan", "level", "joined", "seen", "active"]


def packing(repetitions: int, tell: Tell) -> Section:
    """Measure packing mixed columns with `auto`, including their statistics.

    The other ways are COPY to /dev/null, and pandas with scikit-learn, which leave words out.
    """
    ways = {"without words": PLAIN, "with words": [*PLAIN, "note"]}
    rows, goals = [], []
    encoded, beside = [], []
    with server.session() as connection:
        make(connection, ROWS)
        for name, columns in ways.items():
            copies, packs = [], []
            for number in range(-1, repetitions):
                copy, pack = _copied(connection, columns), _packed(connection, columns)
                if number >= 0:
                    copies.append(copy)
                    packs.append(pack)
                if number >= 0 and columns == PLAIN:
                    encoded.append(_encode_exported(connection))
                    beside.append(pack / encoded[-1])
            pairs = Spread.from_values([a / b for a, b in zip(packs, copies, strict=True)])
            rows += [
                [f"COPY, {name}", tables.spread(Spread.from_values(copies)), ""],
                [f"packing, {name}", tables.spread(Spread.from_values(packs)), tables.spread(pairs)],
            ]
            goals.append(Goal(f"packing mixed columns {name} ÷ COPY to /dev/null", 2.0, pairs))
        rows.append(
            ["pandas and scikit-learn, without words", tables.spread(Spread.from_values(encoded)), ""]
        )
        ratio = Spread.from_values(beside)
        goals.append(Goal("packing mixed columns ÷ pandas and scikit-learn on exported rows", 0.5, ratio))
    tell(f"  packing mixed columns {rows}")
    return Section(
        "Packing mixed columns", tables.markdown([f"{ROWS:,} rows", "seconds", "÷ COPY"], rows), goals
    )


def make(connection: Any, rows: int) -> None:
    server.drop(connection, ["mixed"])
    server.query(connection, MIXED.format(rows=rows))
    server.query(connection, "VACUUM ANALYZE mixed")


def _copied(connection: Any, columns: list[str]) -> float:
    clock = time.perf_counter()
    server.query(connection, f"COPY mixed ({', '.join([*columns, 'gone'])}) TO '/dev/null'")
    return time.perf_counter() - clock


def _encode_exported(connection: Any) -> float:
    """Export the columns without words and encode them by pandas and scikit-learn; return the seconds."""
    clock = time.perf_counter()
    text = io.StringIO()
    with closing(connection.cursor()) as cursor:
        cursor.copy_expert(f"COPY mixed ({', '.join(PLAIN)}) TO STDOUT (FORMAT csv, HEADER)", text)
    text.seek(0)
    found = pd.read_csv(text, parse_dates=["joined", "seen"])
    for name in ("joined", "seen"):
        for part in ("month", "weekday", "hour"):
            found[f"{name}_{part}"] = getattr(found[name].dt, part)
        found[name] = found[name].astype("int64") / 8.64e13
    found["active"] = found["active"] == "t"
    numbers = [name for name in found if name not in ("city", "plan")]
    scaled = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    encode = ColumnTransformer(
        [
            ("numbers", scaled, numbers),
            ("few", OneHotEncoder(sparse_output=False), ["plan"]),
            ("many", OrdinalEncoder(), ["city"]),
        ]
    )
    np.asarray(encode.fit_transform(found), np.float32)
    return time.perf_counter() - clock


def _packed(connection: Any, columns: list[str]) -> float:
    server.drop(connection, ["mixed_packed", "mixed_packed_summary"])
    clock = time.perf_counter()
    server.query(
        connection,
        "SELECT cerebro.training_preprocessor_dl('mixed', 'mixed_packed', 'gone', %s,"
        """ options => '{"columns": "auto", "segments": 2}')""",
        (", ".join(columns),),
    )
    return time.perf_counter() - clock


def predicting(repetitions: int, tell: Tell) -> Section:
    """Measure predictions in a query over many rows: of a small net, and of an ensemble of eight."""
    found: dict[str, Spread] = {}
    goals = []
    with server.session() as connection:
        _model(connection)
        _ensemble(connection)
        for model, what, by_row, by_query in (
            ("mixed_models", "", 20_000, 150_000),
            ("mixed_ensemble", ", ensemble of 8", 5_000, 50_000),
        ):
            ways = {
                f"cerebro.predict(model, row){what}": (ROW_BY_ROW, by_row),
                f"cerebro.predict_query{what}": (AS_QUERY, by_query),
            }
            speeds: dict[str, list[float]] = {name: [] for name in ways}
            for number in range(-1, repetitions):
                for name, (query, _) in ways.items():
                    clock = time.perf_counter()
                    server.query(connection, query.format(model=model))
                    if number >= 0:
                        speeds[name].append(PREDICTED / (time.perf_counter() - clock))
            found |= {name: Spread.from_values(speed) for name, speed in speeds.items()}
            for name, (_, least) in ways.items():
                goals.append(Goal(f"{name}: rows per second", least, found[name], False))
    tell(f"  predicting {found}")
    rows = [[name, tables.spread(speed, 0)] for name, speed in found.items()]
    head = [f"{PREDICTED:,} rows of mixed columns", "rows per second"]
    return Section("Predictions in queries", tables.markdown(head, rows), goals)


def _ensemble(connection: Any) -> None:
    """Make an ensemble of eight nets of the kind `tabular`: one for each of eight folds."""
    names = ("held", "held_validation", "tabular", "tabular_mst", "one", "ensemble")
    made = [f"mixed_{name}" for name in names]
    server.drop(connection, [f"{name}{end}" for name in made for end in ("", "_info", "_summary")])
    for statement in (
        f"SELECT cerebro.training_preprocessor_dl('mixed', 'mixed_held', 'gone', '{', '.join(PLAIN)}',"
        """ options => '{"columns": "auto", "segments": 2, "validation": 0.2}')""",
        "SELECT cerebro.load_net('mixed_tabular', 'mixed_held', 'tabular')",
        "SELECT cerebro.load_model_selection_table('mixed_tabular', 'mixed_tabular_mst', ARRAY[1],"
        " ARRAY[$$loss='categorical_crossentropy', optimizer='adam', metrics=['accuracy']$$],"
        " ARRAY['batch_size=256'])",
        "SELECT cerebro.madlib_fit_multiple_model('mixed_held', 'mixed_one', 'mixed_tabular_mst', 1,"
        " validation_table => 'mixed_held_validation')",
        "SELECT count(*) FROM cerebro.ensemble('mixed_one', 'mixed_ensemble', options => '{\"folds\": 8}')",
    ):
        server.query(connection, statement)


def _model(connection: Any) -> None:
    server.drop(connection, ["mixed_packed", "mixed_packed_summary", "mixed_nets", "mixed_nets_summary"])
    make(connection, PREDICTED)
    _packed(connection, PLAIN)
    server.query(
        connection,
        "SELECT cerebro.load_net('mixed_nets', 'mixed_packed', $$Dense(64, 'relu'), Dense(32, 'relu')$$)",
    )
    server.drop(connection, ["mixed_models", "mixed_models_info", "mixed_models_summary"])
    server.query(
        connection,
        "SELECT cerebro.madlib_fit('mixed_packed', 'mixed_models', 'mixed_nets', 1,"
        " $$loss='categorical_crossentropy', optimizer='adam', metrics=['accuracy']$$,"
        " $$batch_size=256$$, 1)",
    )


def memory(tell: Tell) -> Section:
    """Measure the memory of a session that packs 3 GB with `memory_mb` 256."""
    rows = 3_000_000_000 // (4 * WIDTH)
    with closing(server.connect()) as connection:
        server.drop(connection, ["huge", "huge_packed", "huge_packed_summary"])
        server.query(connection, "CREATE TABLE huge (age integer, city text, x real[], y boolean)")
        # Stored uncompressed, since these constant arrays would be compressed to almost nothing.
        server.query(connection, "ALTER TABLE huge ALTER COLUMN x SET STORAGE EXTERNAL")
        server.query(
            connection,
            f"INSERT INTO huge SELECT 18 + i % 60, 'city ' || i % 40, array_fill(i::real, ARRAY[{WIDTH}]),"
            f" i % 2 = 0 FROM generate_series(1, {rows}) AS i",
        )
        (size,) = server.query(connection, "SELECT pg_table_size('huge')")[0]
        pid = connection.info.backend_pid
        before = _peak(pid, reset=True)
        clock = time.perf_counter()
        server.query(
            connection,
            "SELECT cerebro.training_preprocessor_dl('huge', 'huge_packed', 'y', 'age, city, x',"
            """ options => '{"columns": "auto", "segments": 2, "memory_mb": 256}')""",
        )
        seconds = time.perf_counter() - clock
        added = _peak(pid) - before
        server.drop(connection, ["huge", "huge_packed", "huge_packed_summary"])
    tell(f"  memory {added} of {size} in {seconds}")
    text = f"A table of {tables.size(size)} is packed in {seconds:.0f} s, which takes {tables.size(added)}."
    goal = Goal(
        "packing 3 GB of mixed columns with memory_mb 256: MB that the session takes",
        512,
        Spread.from_values([added / 1e6]),
    )
    return Section("Memory of packing", text, [goal])


def _peak(pid: int, reset: bool = False) -> int:
    """Return the peak of a process' memory, except shared memory; with `reset`, start a new peak first."""
    if reset:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return 1024 * (int(fields["VmHWM"].split()[0]) - int(fields["RssShmem"].split()[0]))


PARTS: dict[str, Callable[[int, Tell], Section]] = {
    "columns": packing,
    "queries": predicting,
    "memory": lambda _, tell: memory(tell),
}
