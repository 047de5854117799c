"""Repeats the measurements of the paper on Model Hopper Parallelism, as ratios to our own figures."""

from __future__ import annotations

from contextlib import closing
from statistics import geometric_mean

import contenders
import server
import tables
from contenders import ALLREDUCE, AS_IT_COMES, AVERAGING, OURS, OURS_FIRST, RAY, SEQUENTIAL
from details import Section, Tell
from jobs import Settings
from measure import Outcome
from workloads import named

WORKLOADS = ("digits", "images", "wide")
# Hours for an epoch of 16 configs on eight workers, and GB stored, of ImageNet and of Criteo, as in section 6
# of "Cerebro: A Data System for Optimized Deep Learning Model Selection" by Nakandala, Zhang and Kumar, PVLDB
# 13(11), 2020.
CEREBRO = ((1.77, 250), (3.40, 400))
PAPER = {
    AVERAGING: ("TensorFlow, model averaging", ((1.97, 250), (3.84, 400))),
    ALLREDUCE: ("Horovod", ((5.42, 250), (14.06, 400))),
    RAY: ("Celery", ((1.72, 2000), (3.95, 3200))),
}
ROWS = {
    SEQUENTIAL: "sequential",
    AS_IT_COMES: "export and train, one process per core",
    RAY: "task-parallel (Ray Tune)",
    AVERAGING: "model averaging",
    ALLREDUCE: "all-reduce",
}


def headline(options: str, tell: Tell) -> Section:
    """Run each strategy, such as hopping or model averaging, once on each workload."""
    measured = {name: _measure(name, options, tell) for name in WORKLOADS}
    head = ["", *[f"`{name}`: time" for name in WORKLOADS], "stored", "moved", "paper: time", "paper: stored"]
    lines = [["Model Hopper Parallelism (ours)", *["1"] * (len(head) - 1)]]
    lines += [_row(measured, name) for name in ROWS]
    return Section("Beside the paper", tables.markdown(head, lines))


def _measure(name: str, options: str, tell: Tell) -> dict[str, Outcome]:
    workload = named(name)
    with closing(server.connect()) as connection:
        server.load(connection, workload)
        server.make_configs(connection, workload)
    found: dict[str, Outcome] = {}
    for contender in contenders.field(Settings(), options):
        if contender.name != contenders.BEST:
            found.update(contender.run(workload, False).outcomes)
    seconds = {strategy: round(outcome.warm_seconds, 2) for strategy, outcome in found.items()}
    tell(f"  {name}: {seconds}")
    return found


def _row(measured: dict[str, dict[str, Outcome]], name: str) -> list[str]:
    pairs = [(found[name], found[OURS]) for found in measured.values()]
    times = [f"{theirs.warm_seconds / ours.warm_seconds:.2f}" for theirs, ours in pairs]
    # The second job of a session replaces the tables of the first, so the first shows what is stored.
    stored = geometric_mean([found[name].stored / found[OURS_FIRST].stored for found in measured.values()])
    moved = geometric_mean([theirs.moved / ours.moved for theirs, ours in pairs]) if pairs[0][0].moved else 0
    return [ROWS[name], *times, f"{stored:.2f}", f"{moved:.2f}" if moved else "0", *_paper(name)]


def _paper(name: str) -> list[str]:
    if name not in PAPER:
        return ["", ""]
    system, figures = PAPER[name]
    ratios = [(hours / ours[0], size / ours[1]) for (hours, size), ours in zip(figures, CEREBRO, strict=True)]
    times, stored = (" and ".join(f"{ratio:.2f}" for ratio in each) for each in zip(*ratios, strict=True))
    return [f"{times} ({system})", stored]
