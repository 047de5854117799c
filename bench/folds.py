"""Measures cross-validated runs against plain runs on the same rows."""

from __future__ import annotations

import json

import server
import tables
import workloads
from details import Section, Tell
from measure import Spread
from tables import Goal
from workloads import Workload

FOLDS = 5


def folds(repetitions: int, options: str, tell: Tell) -> Section:
    rows, goals = [], []
    for workload in (workloads.DIGITS, workloads.IMAGES):
        plain, crossed = _times(workload, repetitions, options)
        pairs = Spread.from_values([b / a for a, b in zip(plain, crossed, strict=True)])
        times = [tables.spread(Spread.from_values(one)) for one in (plain, crossed)]
        rows.append([f"`{workload.name}`", *times, tables.spread(pairs)])
        tell(f"  {rows[-1]}")
        goals.append(Goal(f"`{workload.name}`: {FOLDS} folds ÷ plain run", 1.1 * (FOLDS - 1), pairs))
    head = ["", "plain run, seconds", f"{FOLDS} folds, seconds", "folds ÷ plain"]
    return Section("Cross-validation", tables.markdown(head, rows), goals)


def _times(workload: Workload, repetitions: int, options: str) -> tuple[list[float], list[float]]:
    """Return the seconds of plain and of cross-validated runs, which take turns in one session."""
    plain: list[float] = []
    crossed: list[float] = []
    with server.session() as connection:
        server.load(connection, workload)
        server.make_configs(connection, workload)
        packing = {**json.loads(server.packing_options(workload)), "folds": FOLDS}
        server.pack(connection, workload, json.dumps(packing))
        validated = json.dumps({**json.loads(options), "cross_validate": True})
        for number in range(-1, repetitions):
            for seconds, said in ((plain, options), (crossed, validated)):
                taken = server.fit(connection, workload, said, validate=False)[1]
                if number >= 0:
                    seconds.append(taken)
    return plain, crossed
