"""Measures configs that share visits (option `fuse`) against the same configs in visits of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import server
import tables
import workloads
from details import Section, Tell
from measure import Spread
from tables import Goal
from workloads import Config, Workload, mlp

# By engine: TensorFlow has no batched arithmetic.
FORMS = {"tensorflow": ("off", "chosen", "exact"), "jax": ("off", "chosen", "exact", "fast")}
# Hidden units of nets on the digits, and how many configs of each are trained.
NETS, MEMBERS = ((8,), (32,), (128, 64)), (8, 32)
BATCH, EPOCHS = 16, 5


def fused(repetitions: int, options: str, tell: Tell) -> Section:
    goals, rows, small = [], [], []
    for engine, forms in FORMS.items():
        taken = _times(workloads.DIGITS, engine, forms[:2], repetitions, options)
        pairs = Spread.from_values([b / a for a, b in zip(taken["off"], taken["chosen"], strict=True)])
        tell(f"  digits {engine} {pairs}")
        seconds = [tables.spread(Spread.from_values(taken[form])) for form in forms[:2]]
        rows.append([f"`digits` on {engine}", *seconds, tables.spread(pairs)])
        goals.append(Goal(f"`digits` on {engine}: as the planner chooses ÷ each by itself", 1.03, pairs))
        for units, members in product(NETS, MEMBERS):
            small.append(_row(engine, units, members, repetitions, options, tell))
    head = ["", "each by itself, seconds", "as the planner chooses, seconds", "chosen ÷ off"]
    about = (
        f"\n\nNets on the digits, batches of {BATCH}, {EPOCHS} epochs, warm sessions; configs differ in their"
        " learning rates. Seconds of a run with `fuse` off, and the other forms as a share of that.\n\n"
    )
    text = tables.markdown(head, rows) + about
    text += tables.markdown(["engine", "hidden units", "configs", "off, seconds", *FORMS["jax"][1:]], small)
    return Section("Many small nets", text, goals)


def _row(
    engine: str, units: Sequence[int], members: int, repetitions: int, options: str, tell: Tell
) -> list[str]:
    rates = [0.0005 * 1.1**number for number in range(members)]
    workload = replace(
        workloads.DIGITS,
        name=f"small_{'_'.join(map(str, units))}_{members}",
        nets=[mlp(64, units, 10)],
        configs=[Config(0, rate, BATCH) for rate in rates],
        epochs=EPOCHS,
    )
    forms = FORMS[engine]
    taken = _times(workload, engine, forms, repetitions, options)
    off = taken["off"]
    shares = [
        tables.spread(Spread.from_values([b / a for a, b in zip(off, taken[form], strict=True)]))
        for form in forms[1:]
    ]
    found = [engine, "-".join(map(str, units)), str(members), tables.spread(Spread.from_values(off)), *shares]
    tell(f"  {found}")
    return [*found, *[""] * (len(FORMS["jax"]) - len(forms))]


def _times(
    workload: Workload, engine: str, forms: Sequence[str], repetitions: int, options: str
) -> Mapping[str, list[float]]:
    """Return the seconds of runs with each form of `fuse`; the forms take turns in one session."""
    taken: dict[str, list[float]] = {form: [] for form in forms}
    with server.session() as connection:
        server.load(connection, workload)
        server.make_configs(connection, workload)
        server.pack(connection, workload, server.packing_options(workload))
        for number in range(-1, repetitions):
            for form in forms:
                said = {
                    "backend": engine,
                    **json.loads(options),
                    **({} if form == "chosen" else {"fuse": form}),
                }
                seconds = server.fit(connection, workload, json.dumps(said), validate=False)[1]
                if number >= 0:
                    taken[form].append(seconds)
    return taken
