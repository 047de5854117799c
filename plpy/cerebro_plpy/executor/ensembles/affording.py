"""Chooses how many configs are trained in folds, by the time that their earlier training took."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from cerebro_plpy.database import Database, Row
from cerebro_plpy.executor.ensembles.candidates import Candidate
from cerebro_plpy.executor.ensembles.contest import Contest
from cerebro_plpy.logical.metrics import Direction, direction
from cerebro_plpy.madlib.params import parse_fit, reparse_compile
from cerebro_plpy.store import names
from cerebro_plpy.store.runs import rates, results

# A config trains this many times as long as up to its best epoch.
MORE_EPOCHS = 1.25
# If time is short, the first config trains for this share of the worthwhile epochs at least.
LEAST_EPOCHS = 0.5


@dataclass(frozen=True)
class FoldedTraining:
    """The configs to train in folds, and their number of epochs.

    `least_seconds` is the time of the first config alone: a notice names it if no config can be trained.
    """

    candidates: Sequence[Candidate]
    epochs: int
    least_seconds: float


@dataclass(frozen=True)
class PastTraining:
    """The earlier training of a config: how many epochs are worth training again, and the seconds of each.

    Epochs long after the best one are not worthwhile.
    """

    worthwhile: int
    seconds: float


def afford(
    db: Database, contest: Contest, candidates: Sequence[Candidate], times: float, seconds: int | None
) -> FoldedTraining:
    """Return the candidates that can be trained in folds within `seconds`, and for how many epochs.

    `times` is how many epochs of the earlier training take as long as one epoch of all folds together.
    """
    past = _past(db, contest, candidates)
    places, epochs = choose(past, times, seconds)
    return FoldedTraining([candidates[place] for place in places], epochs, _seconds(past[:1], times))


def choose(past: Sequence[PastTraining], times: float, seconds: int | None) -> tuple[list[int], int]:
    """Return the indexes in `past` of the configs for which `seconds` suffice, and their number of epochs.

    The first config has priority: if there is no time for all of its epochs, it alone trains for as many as
    there is time for. If these are too few, none is chosen.
    """
    if past and seconds is not None and _seconds(past[:1], times) > seconds:
        epochs = math.floor(seconds / (times * past[0].seconds))
        return ([0], epochs) if epochs >= LEAST_EPOCHS * past[0].worthwhile else ([], 0)
    chosen: list[int] = []
    for place in range(len(past)):
        together = [past[one] for one in (*chosen, place)]
        if seconds is None or _seconds(together, times) <= seconds:
            chosen.append(place)
    return chosen, max((past[place].worthwhile for place in chosen), default=0)


def _seconds(past: Sequence[PastTraining], times: float) -> float:
    return times * max(one.worthwhile for one in past) * sum(one.seconds for one in past)


def _past(db: Database, contest: Contest, candidates: Sequence[Candidate]) -> list[PastTraining]:
    table = contest.best.holder.weights_table(db)
    info, run_id = names.quote(table.schema, table.name + "_info"), int(contest.about.get("run_id") or 0)
    seconds = seconds_per_epoch(rates.visits(db, run_id), rates.evaluations(db, run_id))
    measured = contest.about.get("metrics_iters")
    rows = {
        one.key: {"metrics_iters": measured, **results.config_row(db, info, one.key)} for one in candidates
    }
    return [read_past(row, seconds.get(key, 0.0), by_loss=contest.goes_by_loss) for key, row in rows.items()]


def seconds_per_epoch(visits: Sequence[Row], evaluations: Sequence[Row]) -> Mapping[int, float]:
    """Return the seconds that an epoch of each config takes, with its evaluation, while all sessions work.

    Work that is done only once, such as compiling, is not counted.
    """
    trained: dict[tuple[int, int], list[float]] = defaultdict(list)
    for visit in visits:
        taken = sum(visit[part] for part in ("read_seconds", "train_seconds", "write_seconds"))
        trained[visit["mst_key"], visit["segment"]].append(taken)
    sessions = len({visit["pid"] for visit in visits})
    found: dict[int, float] = defaultdict(float)
    for (key, _), taken in trained.items():
        found[key] += median(taken) / sessions
    for measured in evaluations if sessions else ():
        found[measured["mst_key"]] += measured["least"] / sessions
    return found


def read_past(row: Mapping[str, Any], seconds: float, *, by_loss: bool) -> PastTraining:
    """Return the earlier training of a config, from its row in the info table.

    `seconds` are the seconds of one of its epochs.
    """
    losses = row.get("validation_loss") or [None]
    epochs = row.get("metrics_iters") or range(1, len(losses) + 1)
    best = _best_place(losses, "min")
    if not by_loss and (values := row.get("validation_metrics")):
        best = max(best, _best_place(values, direction(reparse_compile(row["compile_params"]))))
    # A config that lowers its learning rate (anneal_at) trains until the rate is down.
    ends = [end for end in parse_fit(row.get("fit_params") or "").anneal_at or () if end >= epochs[best]]
    return PastTraining(min(epochs[-1], *ends[:1] or [math.ceil(MORE_EPOCHS * epochs[best])]), seconds)


def _best_place(values: Sequence[float | str | None], way: Direction) -> int:
    """Return the index of the largest value if `way` is "max", else of the smallest.

    Return the last index if none of the values is a number. Infinity is a text in JSON.
    """
    sign = -1 if way == "max" else 1
    known = [(sign * value, place) for place, value in enumerate(values) if isinstance(value, int | float)]
    return min(known)[1] if known else len(values) - 1
