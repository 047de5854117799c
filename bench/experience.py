"""Measures how many visits the option `experience` saves in searches on one table after another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

import numpy as np
import real
import server
import tables
from details import Section, Tell
from measure import Spread
from tables import Goal

# The most rows of each table; and a search with random configs, with the same epochs on every table.
MOST_ROWS = 2_000
METHOD, METHOD_PARAMS = "asha", "num_configs=12, num_iterations=9, min_iterations=1, eta=3"
NETS: real.Nets = (("linear", None), ("tabular", {"width": [64, 128]}), ("tabm", {"width": [64, 128]}))
FIT = "{'batch_size': [16, 64, 256]}"
# A search is as good as the other once its best loss is this close to that of the other.
CLOSE = 1.005
MODELS = "experience"
PACKED = f"{MODELS}_packed"


@dataclass(frozen=True)
class Course:
    """The progress of a search: the best loss on held-out rows after each number of visits."""

    visits: Sequence[int]
    best: Sequence[float]

    def visits_until(self, loss: float) -> int | None:
        """Return the number of visits after which a loss was reached; None if it never was."""
        return next((n for n, best in zip(self.visits, self.best, strict=True) if best <= loss), None)


def experience(tell: Tell) -> Section:
    """Search on each table with and without the experience of the searches on the tables before it."""
    lines: list[list[str]] = []
    shares: list[float] = []
    losses: list[float] = []
    for place, source in enumerate(real.SOURCES):
        rows = real.load(source)
        with_it, without = (_search(rows, place, knows=knows) for knows in (True, False))
        aim = without.best[-1] * CLOSE
        ours, theirs = with_it.visits_until(aim), without.visits_until(aim)
        if place:
            # A search that never reaches the loss counts with all its visits; its loss shows the difference.
            shares.append((ours or with_it.visits[-1]) / (theirs or 1))
            losses.append(with_it.best[-1] / without.best[-1])
        lines.append(
            [rows.name, str(theirs), "never" if ours is None else str(ours)]
            + [f"{course.best[-1]:.4g}" for course in (without, with_it)]
        )
        tell(f"  {' '.join(lines[-1])}")
    saved = geometric_mean(shares)
    lines.append(["*after the first*, mean ratio", "1", f"{saved:.2f}", "1", f"{geometric_mean(losses):.3f}"])
    head = ["table", "visits without", "visits with experience", "best loss without", "with experience"]
    goals = [Goal("visits with experience ÷ without", 0.8, Spread.from_values([saved]))]
    return Section("Experience", tables.markdown(head, lines), goals)


def _search(rows: real.Rows, place: int, *, knows: bool) -> Course:
    names = [f"{PACKED}{end}" for end in ("", "_summary", "_validation", "_validation_summary")]
    ends = ("", "_info", "_summary", "_nets", "_best", "_best_summary", "_rows")
    names += [f"{MODELS}{end}" for end in ends]
    with server.session() as connection:
        server.drop(connection, names)
        made = real.prepare(connection, MODELS, rows, MOST_ROWS, {"validation": 0.2}, NETS)
        return _run(connection, rows, made, place, knows=knows)


def _run(connection: Any, rows: real.Rows, models: list[int], place: int, *, knows: bool) -> Course:
    loss = "'categorical_crossentropy'" if rows.classes else "'mse'"
    rates = "[{'optimizer': ['Adam'], 'learning_rate': [0.0001, 0.1, 'log']}]"
    server.query(
        connection,
        "SELECT cerebro.madlib_automl(%s, %s, %s, %s, %s, %s, %s, %s, %s, random_state => %s,"
        " validation_table => %s, metrics_compute_frequency => 1, options => %s)",
        (
            PACKED, MODELS, f"{MODELS}_nets", f"{MODELS}_best", models,
            f"{{'loss': [{loss}], 'optimizer_params_list': {rates}}}", FIT, METHOD, METHOD_PARAMS, place + 1,
            f"{PACKED}_validation", json.dumps({"seed": place, "experience": knows, "restore_best": True}),
        ),
    )  # fmt: skip
    found = server.query(
        connection,
        "SELECT (SELECT count(*) FROM cerebro.visits AS v WHERE v.run_id = m.run_id AND v.ended_at <= m.at),"
        f" m.value FROM cerebro.metrics AS m WHERE m.run_id = (SELECT run_id FROM {MODELS}_summary)"
        " AND m.dataset = 'validation' AND m.metric = 'loss' AND m.value < 'inf' ORDER BY m.at",
    )
    best = np.minimum.accumulate([value for _, value in found])
    return Course([int(count) for count, _ in found], best.tolist())
