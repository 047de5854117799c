"""Runs featuretools' dfs on the tables of `related.py`, to compare it with `cerebro.relate`.

The arguments are a folder of CSV files and the names of aggregates. It prints the seconds, the number of
features, and the peak of memory in MB.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import featuretools as ft  # pyright: ignore[reportMissingImports]: it is in an environment of its own
import pandas as pd

TIMES = {"weather": ["hour"], "flights": ["at", "landed", "hour"], "drawn": ["time"]}
PARENTS = (
    ("airlines", "carrier", "carrier"),
    ("planes", "tailnum", "tailnum"),
    ("airports", "faa", "origin"),
    ("airports", "faa", "dest"),
    ("weather", "key", "weather"),
)


def main(folder: str, aggregates: list[str]) -> None:
    found = {
        file.stem: pd.read_csv(file, parse_dates=TIMES.get(file.stem)) for file in Path(folder).glob("*.csv")
    }
    for name, key in (("weather", "key"), ("flights", "weather")):
        found[name][key] = found[name]["origin"] + found[name]["hour"].astype(str)
    entities = ft.EntitySet("flights")
    for name, key, without in (
        ("airlines", "carrier", []),
        ("airports", "faa", []),
        ("planes", "tailnum", []),
        ("weather", "key", ["origin", "hour"]),
        ("flights", "id", ["hour", "at"]),
    ):
        entities.add_dataframe(
            dataframe_name=name,
            dataframe=found[name].drop(columns=without),
            index=key,
            time_index="landed" if name == "flights" else None,
        )
    for parent, key, column in PARENTS:
        entities.add_relationship(parent, key, "flights", column)
    began = time.perf_counter()
    made, _ = ft.dfs(
        entityset=entities,
        target_dataframe_name="flights",
        agg_primitives=aggregates,
        trans_primitives=[],
        max_depth=2,
        cutoff_time=found["drawn"],
        include_cutoff_time=False,
        n_jobs=1,
    )
    seconds = time.perf_counter() - began
    print(json.dumps([seconds, made.shape[1], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
