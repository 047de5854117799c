"""Configs that share visits against the same configs each by itself: on the digits, and where it pays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import server
import tables
import workloads
from details import Section, Tell
from measure import Spread
from tables import Goal
from workloads import Config, Workload, mlp

FORMS = ("off", "chosen", "exact", "fast")
# Hidden units of nets on the digits, and how many configs of each are trained.
NETS, MEMBERS = ((8,), (32,), (128, 64)), (8, 32)
BATCH, EPOCHS = 16, 5


def fused(repetitions: int, options: str, tell: Tell) -> Section:
    taken = _times(workloads.DIGITS, FORMS[:2], repetitions, options)
    pairs = Spread.of([b / a for a, b in zip(taken["off"], taken["chosen"], strict=True)])
    tell(f"  digits {pairs}")
    seconds = [tables.spread(Spread.of(taken[form])) for form in FORMS[:2]]
    head = ["", "each by itself, seconds", "as the planner chooses, seconds", "chosen ÷ off"]
    text = tables.markdown(head, [["`digits` on JAX", *seconds, tables.spread(pairs)]])
    rows = [_row(units, members, repetitions, options, tell) for units in NETS for members in MEMBERS]
    about = (
        f"\n\nNets on the digits, batches of {BATCH}, {EPOCHS} epochs, warm sessions; configs differ in their"
        " learning rates. Seconds of a run with `fuse` off, and the other forms as a share of that.\n\n"
    )
    text += about + tables.markdown(["hidden units", "configs", "off, seconds", *FORMS[1:]], rows)
    goal = Goal("`digits`: as the planner chooses ÷ each by itself", 1.03, pairs)
    return Section("Many small nets", text, [goal])


def _row(units: Sequence[int], members: int, repetitions: int, options: str, tell: Tell) -> list[str]:
    rates = [0.0005 * 1.1**number for number in range(members)]
    workload = replace(
        workloads.DIGITS,
        name=f"small_{'_'.join(map(str, units))}_{members}",
        nets=[mlp(64, units, 10)],
        configs=[Config(0, rate, BATCH) for rate in rates],
        epochs=EPOCHS,
    )
    taken = _times(workload, FORMS, repetitions, options)
    off = taken["off"]
    shares = [
        tables.spread(Spread.of([b / a for a, b in zip(off, taken[form], strict=True)])) for form in FORMS[1:]
    ]
    found = ["-".join(map(str, units)), str(members), tables.spread(Spread.of(off)), *shares]
    tell(f"  {found}")
    return found


def _times(
    workload: Workload, forms: Sequence[str], repetitions: int, options: str
) -> Mapping[str, list[float]]:
    """Seconds of each form, in turn, in one session."""
    taken: dict[str, list[float]] = {form: [] for form in forms}
    with server.session() as connection:
        server.load(connection, workload)
        server.make_configs(connection, workload)
        server.pack(connection, workload, server.packing_options(workload))
        for number in range(-1, repetitions):
            for form in forms:
                said = {
                    "backend": "jax",
                    **json.loads(options),
                    **({} if form == "chosen" else {"fuse": form}),
                }
                seconds = server.fit(connection, workload, json.dumps(said), validate=False)[1]
                if number >= 0:
                    taken[form].append(seconds)
    return taken
