"""Measure everything and write it into docs/performance.md. `make bench`, or `make bench-quick` for less.

What was measured is kept in `measured.json`, part by part: a part that is measured anew takes its own place
in the report and leaves the others, each with the day, the machine and the commit that it was measured on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path

import accuracy
import cold
import columns
import compare
import details
import experience
import folds
import forecasting
import fused
import graphs
import groups
import growth
import headline
import living
import million
import portfolio
import related
import rivals
import server
import tables
import transfer
import workloads
from details import Section
from measure import Spread
from tables import Goal

HERE = Path(__file__).resolve().parent
REPORT, KEPT = HERE.parent / "docs" / "performance.md", HERE / "measured.json"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
JOBS = ("digits", "images", "wide")
# The parts that are measured by --quick, in under five minutes.
QUICK = ("digits", "packing", "prediction")
# The parts that are run once, without a warm-up.
ONCE = ("headline", "experience", "portfolio")
PARTS = (
    *JOBS,
    "headline",
    "cold",
    "time",
    "hop",
    "packing",
    *columns.PARTS,
    "accuracy",
    "real",
    "autogluon",
    "realmlp",
    "tabm",
    "portfolio",
    "experience",
    "million",
    "forecasts",
    "series",
    "related",
    "graphs",
    "living",
    "prediction",
    "streaming",
    "folds",
    "fused",
    "groups",
    *transfer.PARTS,
    "growth",
)


def main() -> None:
    arguments = _arguments()
    kept = {} if arguments.quick or not KEPT.exists() else read(KEPT.read_text())
    tell("making a database of the benchmark's own")
    server.make_database()
    try:
        parts = _parts(arguments)
        for name in [name for name in PARTS if name in arguments.only and name in parts]:
            tell(f"{name} (load {os.getloadavg()[0]:.2f})")
            kept[name] = replace(parts[name](), about=_about(arguments, name))
            if arguments.write:
                KEPT.write_text(json.dumps({n: asdict(s) for n, s in kept.items()}, indent=1) + "\n")
    finally:
        server.drop_database()
    text = report([kept[name] for name in PARTS if name in kept])
    print(text)
    if arguments.write:
        write(text)


def read(text: str) -> dict[str, Section]:
    """Return the sections that were measured before, by part, from the text of `measured.json`."""
    found = json.loads(text)
    for section in found.values():
        section["goals"] = [
            Goal(**{**goal, "reached": Spread(**goal["reached"])}) for goal in section["goals"]
        ]
    return {name: Section(**section) for name, section in found.items()}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="some tables, fewer rows, one repetition: under five minutes"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, help="some of the tables")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--rows", type=int, help="at most so many rows of each workload")
    parser.add_argument("--fit-options", default='{"seed": 42}', help="options of our fit calls, as JSON")
    parser.add_argument(
        "--no-search", dest="search", action="store_false", help="take bare Keras' known best settings"
    )
    parser.add_argument("--no-write", dest="write", action="store_false", help="print only")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.repetitions, arguments.search, arguments.write = 1, False, False
    arguments.only = arguments.only or (QUICK if arguments.quick else PARTS)
    json.loads(arguments.fit_options)
    return arguments


def tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _parts(arguments: argparse.Namespace) -> dict[str, Callable[[], Section]]:
    count, options = arguments.repetitions, arguments.fit_options
    parts: dict[str, Callable[[], Section]] = {name: lambda name=name: _job(name, arguments) for name in JOBS}
    parts["packing"] = lambda: details.packing(count, tell)
    for name, measure in columns.PARTS.items():
        if name != "memory" or not arguments.quick:
            parts[name] = lambda measure=measure: measure(min(3, count), tell)
    parts["prediction"] = lambda: details.prediction(
        min(3, count), details.PREDICTED_ROWS // (10 if arguments.quick else 1), tell
    )
    parts["hop"] = lambda: details.hops(count, tell)
    if not arguments.quick:
        parts["headline"] = lambda: headline.headline(options, tell)
        parts["cold"] = lambda: cold.cold(min(3, count), tell)
        parts["accuracy"] = lambda: accuracy.accuracy(tell)
        parts["million"] = lambda: million.million(tell)
        parts["real"] = lambda: rivals.compare_with_peers(count, tell)
        if rivals.has_rivals():
            parts["autogluon"] = lambda: rivals.compare_with_autogluon(count, tell)
            parts["realmlp"] = lambda: rivals.compare_with_net(rivals.REALMLP, count, tell)
            parts["tabm"] = lambda: rivals.compare_with_net(rivals.TABM, count, tell)
        parts["portfolio"] = lambda: portfolio.portfolio(tell)
        parts["experience"] = lambda: experience.experience(tell)
        parts["related"] = lambda: related.related("1 minute", tell)
        parts["living"] = lambda: living.living(min(3, count), tell)
        parts["graphs"] = lambda: graphs.graphs(tell)
        parts["forecasts"] = lambda: forecasting.forecasting("1 minute", tell)
        parts["series"] = lambda: forecasting.series(tell)
        parts["time"] = lambda: details.where_time_goes(count, options, tell)
        parts["streaming"] = lambda: details.streaming(count, options, tell)
        parts["folds"] = lambda: folds.folds(min(3, count), options, tell)
        parts["fused"] = lambda: fused.fused(min(3, count), options, tell)
        parts["groups"] = lambda: groups.groups(min(3, count), options, tell)
        for name, part in transfer.PARTS.items():
            parts[name] = lambda part=part: part(min(3, count), options, tell)
        parts["growth"] = lambda: growth.growth(min(3, count), options, tell)
    return parts


def _job(name: str, arguments: argparse.Namespace) -> Section:
    most = workloads.QUICK_ROWS[name] if arguments.quick else workloads.ALL[name].rows
    workload = workloads.named(name, min(most, arguments.rows or most))
    found = compare.compare(workload, arguments.repetitions, arguments.search, arguments.fit_options, tell)
    about = workload.about + (
        f"; here {workload.rows} rows" if workload.rows < workloads.ALL[name].rows else ""
    )
    if found.disturbed:
        about += f". The machine was busy otherwise before {found.disturbed} of the runs"
    return Section(f"Whole jobs: `{name}`", f"{about}.\n\n{compare.table(found)}", compare.goals(found))


def report(sections: Sequence[Section]) -> str:
    goals = [goal for section in sections for goal in section.goals]
    parts = ["### Goals", tables.goals(goals)]
    for section in sections:
        parts += [f"### {section.title}", section.text, f"*{section.about}*"]
    return "\n\n".join(parts)


def _about(arguments: argparse.Namespace, part: str) -> str:
    with closing(server.connect("postgres")) as connection:
        version = server.value(connection, "SHOW server_version").split()[0]
        settings = server.query(
            connection,
            "SELECT string_agg(name || '=' || setting, ', ' ORDER BY name) FROM pg_settings WHERE name IN"
            " ('fsync', 'synchronous_commit', 'wal_level', 'full_page_writes')",
        )[0][0]
    packages = ", ".join(
        f"{name} {metadata.version(name)}" for name in ("tensorflow-cpu", "keras", "jax", "ray")
    )
    machine = f"{os.cpu_count()} cores ({_processor()}), Linux {platform.release().split('-')[0]}"
    server_side = f"PostgreSQL {version} ({settings}), Python {platform.python_version()}"
    rounds = f"{arguments.repetitions} repetitions after a warm-up (one of those who take long)"
    rounds = "Each once" if part in ONCE else rounds
    day = time.strftime("%Y-%m-%d")
    return f"{day}, {machine}, {server_side}, {packages}; commit {_commit()}. {rounds}."


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _commit() -> str:
    ended = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout.strip() or "unknown"


def write(text: str) -> None:
    """Write the tables between the two marks in the report; the text outside the marks stays."""
    before, _, rest = REPORT.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    REPORT.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


if __name__ == "__main__":
    main()
