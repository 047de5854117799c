"""Compares cerebro.train with other systems on real tables: trees, nets, and AutoGluon with as much time.

Each trial is kept in `trials.json` when it ends, and is not measured again while its contender's version is
the same. So a comparison that takes hours can be measured in several runs.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import contenders
import numpy as np
import real
import server
import tables
from details import Section, Tell
from measure import PeakMemory, Spread
from real import Rows
from sklearn.model_selection import train_test_split
from tables import Goal
from trials import Trial, Trials

HERE = Path(__file__).resolve().parent
HELD_OUT, BUDGET_SECONDS, BEHIND = 0.2, 60, 0.005
BEST, ENSEMBLE = "best config", "ensemble"
PEERS = ("CatBoost", "LightGBM", "HistGradientBoosting", "MLP")
# These need PyTorch, and so an environment of their own.
RIVALS = ("AutoGluon", "RealMLP-TD", "TabM-D")
PACKAGES = {
    "CatBoost": "catboost",
    "LightGBM": "lightgbm",
    "HistGradientBoosting": "scikit-learn",
    "MLP": "scikit-learn",
    "AutoGluon": "autogluon.tabular",
    "RealMLP-TD": "pytabkit",
    "TabM-D": "pytabkit",
}
# The difference of two means is noise if it is smaller than so many of its standard errors.
NOISE = 2.0


@dataclass(frozen=True)
class Task:
    """The rows of a table, and which of them a contender sees: others for each seed."""

    rows: Rows
    seed: int

    def split(self) -> tuple[np.ndarray, np.ndarray]:
        stratify = self.rows.y if self.rows.classes else None
        found: Any = train_test_split(
            np.arange(len(self.rows.y)), test_size=HELD_OUT, random_state=self.seed, stratify=stratify
        )
        return found[0], found[1]


def compare_with_peers(seeds: int, tell: Tell) -> Section:
    """Measure cerebro.train, trees and scikit-learn's net on all tables."""
    everything = _measure((BEST, ENSEMBLE, *PEERS), seeds, tell)
    goals = _goals(everything, range(seeds))
    return Section("Real tables", _report(everything, (BEST, ENSEMBLE, *PEERS), range(seeds)), goals)


def compare_with_rivals(seeds: int, tell: Tell) -> Section:
    """Measure AutoGluon, RealMLP and TabM on all tables, and compare them with what cerebro.train reached."""
    everything = _measure(RIVALS, seeds, tell)
    names = (ENSEMBLE, *RIVALS, "CatBoost")
    text = _report(everything, names, range(seeds))
    goals = _rival_goals(everything, names, range(seeds))
    return Section("Real tables, other nets and AutoGluon", text, goals)


def _measure(names: Sequence[str], seeds: int, tell: Tell) -> list[Rows]:
    """Measure what is missing of the contenders' trials, and return all tables."""
    everything = [real.load(source) for source in real.SOURCES]
    kept, versions = Trials.read(), {name: _version(name) for name in names}
    # By seeds first: a comparison that is cut short has all tables.
    for seed in range(seeds):
        for rows in everything:
            missing = [name for name in names if not kept.has(name, rows.name, seed, versions[name])]
            # One call trains both of ours.
            for name in [name for name in missing if name != BEST]:
                for trial in _run_contender(Task(rows, seed), name):
                    kept.keep(trial)
            if missing:
                found = [one for name in names for one in kept.of(name, rows.name, [seed])]
                tell(f"  {rows.name}, seed {seed}: { {one.contender: round(one.score, 4) for one in found} }")
    return everything


def _run_contender(task: Task, name: str) -> list[Trial]:
    return list(_ours(task)) if name == ENSEMBLE else [_theirs(task, name)]


def _version(name: str) -> str:
    """Return the version of a contender: that of its package, or of the server's code."""
    if name in (BEST, ENSEMBLE):
        trees = _run(["git", "rev-parse", "HEAD:plpy", "HEAD:sql"]).split()
        return " ".join(tree[:10] for tree in trees)
    asked = f"from importlib.metadata import version; print(version({PACKAGES[name]!r}))"
    return _run([_python(name), "-c", asked]).strip()


def _python(name: str) -> str:
    venv = "venv-rivals" if name in RIVALS else "venv-bench"
    return str(HERE.parent / ".local" / venv / "bin" / "python")


def _run(words: Sequence[str]) -> str:
    return subprocess.run(words, cwd=HERE, capture_output=True, text=True, check=True).stdout


def _ours(task: Task) -> Iterator[Trial]:
    made = [f"real{end}" for end in ("", "_info", "_summary", "_nets", "_best", "_best_summary")]
    made += [f"real_packed{end}" for end in ("", "_summary", "_validation", "_validation_summary")]
    made += ["real_ensemble", "real_ensemble_summary", "real_seen", "real_unseen"]
    rows, (seen, unseen) = task.rows, task.split()
    with contenders.watched(memory=True) as peak, server.session() as connection:
        server.drop(connection, made)
        real.copy(connection, "real_seen", rows, seen)
        real.copy(connection, "real_unseen", rows, unseen)
        clock = time.perf_counter()
        server.query(
            connection,
            """SELECT * FROM cerebro.train('real_seen', 'target', 'real', options => format(
               '{"seed": %%s, "exclude": ["place"]}', %s)::jsonb)""",
            (task.seed + 1,),
        )
        seconds = time.perf_counter() - clock
        answers = {
            name: _predicted(connection, model, rows, len(unseen))
            for name, model in ((BEST, "real"), (ENSEMBLE, "real_ensemble"))
        }
    memory = sum(peak.peak) if peak else 0
    for name, found in answers.items():
        yield _trial(task, name, found, seconds, memory)


def _theirs(task: Task, name: str) -> Trial:
    rows, (seen, unseen) = task.rows, task.split()
    with tempfile.TemporaryDirectory(prefix="cerebro-bench-") as made:
        folder = Path(made)
        for part, places in (("seen", seen), ("unseen", unseen)):
            rows.x.iloc[places].assign(target=rows.y[places]).to_csv(folder / f"{part}.csv", index=False)
        (folder / "about.json").write_text(json.dumps({"numbers": rows.numbers, "classes": rows.classes}))
        words = [_python(name), "-W", "ignore", str(HERE / "peer_tables.py"), name, made]
        words += [str(task.seed), str(BUDGET_SECONDS)]
        with (
            subprocess.Popen(words, stdout=subprocess.PIPE) as fit,
            PeakMemory(lambda: {fit.pid}) as peak,
        ):
            said = fit.communicate()[0].decode()
        told = json.loads(said.splitlines()[-1])
        answers = np.load(folder / "answers.npy")
    # A short fit ends before it is looked at: then the largest size that the process itself has seen counts.
    return _trial(task, name, answers, told["seconds"], sum(peak.peak) or told["memory"])


def _trial(task: Task, name: str, answers: np.ndarray, seconds: float, memory: int) -> Trial:
    _, unseen = task.split()
    return Trial(
        contender=name,
        table=task.rows.name,
        seed=task.seed,
        version=_version(name),
        score=task.rows.score(answers, unseen),
        other=task.rows.score_otherwise(answers, unseen),
        seconds=seconds,
        memory=memory,
    )


def _predicted(connection: Any, model: str, rows: Rows, count: int) -> np.ndarray:
    told = server.query(
        connection,
        "SELECT p.prediction, p.probabilities FROM real_unseen AS r, cerebro.predict(%s::regclass, r) AS p"
        " ORDER BY r.place",
        (model,),
    )
    if rows.classes is None:
        return np.array([float(value) for value, _ in told])
    found = np.zeros((count, rows.classes))
    for place, (_, shares) in enumerate(told):
        for kind, share in shares.items():
            found[place, int(kind)] = share
    return found


def _report(everything: Sequence[Rows], names: Sequence[str], seeds: Sequence[int]) -> str:
    """Return tables with log loss or R², and with accuracy or RMSE, of all contenders on all tables."""
    kept = Trials.read()
    parts = []
    for label, pick in (
        (("log loss", "R²"), lambda trial: trial.score),
        (("accuracy", "RMSE"), lambda trial: trial.other),
    ):
        lines = [
            [f"{rows.name} ({label[0] if rows.classes else label[1]})", f"{len(rows.y):,}"]
            + [_shown([pick(trial) for trial in kept.of(name, rows.name, seeds)]) for name in names]
            for rows in everything
        ]
        parts.append((["table", "rows", *names], lines))
    ranks = _ranks(everything, names, seeds)
    parts[0][1].append(["*mean rank*", "", *[f"{mean(ranks[name]):.2f}" for name in names]])
    every = {name: [one for rows in everything for one in kept.of(name, rows.name, seeds)] for name in names}
    seconds = [f"{mean(one.seconds for one in every[name]):.1f}" for name in names]
    memory = [tables.size(max(one.memory for one in every[name])) for name in names]
    parts[1][1].extend([["*seconds*", "", *seconds], ["*peak memory*", "", *memory]])
    return "\n\n".join(tables.markdown(head, lines) for head, lines in parts)


def _shown(values: Sequence[float]) -> str:
    digits = 4 if max(map(abs, values), default=0.0) < 10 else 1
    many = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):,.{digits}f}{many}" if values else ""


def _ranks(everything: Sequence[Rows], names: Sequence[str], seeds: Sequence[int]) -> Mapping[str, list[int]]:
    """Return the rank of each contender on each table, by its mean log loss or R²."""
    found: dict[str, list[int]] = {name: [] for name in names}
    for rows in everything:
        scores = {name: _mean(rows, name, seeds) * (1 if rows.classes else -1) for name in names}
        for rank, name in enumerate(sorted(names, key=scores.__getitem__), 1):
            found[name].append(rank)
    return found


def _mean(rows: Rows, name: str, seeds: Sequence[int]) -> float:
    return mean(trial.score for trial in Trials.read().of(name, rows.name, seeds))


def _goals(everything: Sequence[Rows], seeds: Sequence[int]) -> list[Goal]:
    """Return the goals: on what share of the tables the ensemble is about as good as CatBoost and the net."""
    kinds = [rows for rows in everything if rows.classes]
    numbers = [rows for rows in everything if not rows.classes]
    ours, theirs = (
        {rows.name: _mean(rows, name, seeds) for rows in everything} for name in (ENSEMBLE, "CatBoost")
    )
    good = mean(ours[rows.name] <= theirs[rows.name] for rows in kinds)
    near = mean(ours[rows.name] >= theirs[rows.name] - BEHIND for rows in numbers)
    behind = sum(_is_behind(rows, "MLP", seeds) for rows in everything)
    return [
        _goal("tables with log loss at or below CatBoost's", 2 / 3, good, at_most=False),
        _goal(f"tables with R² at most {BEHIND} below CatBoost's", 6 / 7, near, at_most=False),
        _goal("tables on which scikit-learn's net is better by more than noise", 0, behind),
    ]


def _rival_goals(everything: Sequence[Rows], names: Sequence[str], seeds: Sequence[int]) -> list[Goal]:
    """Return the goals: no net is ahead in mean rank, and AutoGluon is not ahead by more than noise."""
    ranks = _ranks(everything, names, seeds)
    nets = min(mean(ranks[name]) for name in names if name not in (ENSEMBLE, "AutoGluon"))
    apart = [ours - theirs for ours, theirs in zip(ranks[ENSEMBLE], ranks["AutoGluon"], strict=True)]
    error = stdev(apart) / len(apart) ** 0.5
    return [
        _goal("real tables: mean rank less the best one but AutoGluon's", 0, mean(ranks[ENSEMBLE]) - nets),
        _goal("real tables: mean rank less AutoGluon's, in standard errors", NOISE, mean(apart) / error),
    ]


def _goal(what: str, goal: float, reached: float, *, at_most: bool = True) -> Goal:
    return Goal(what, goal, Spread.from_values([reached]), at_most)


def _is_behind(rows: Rows, name: str, seeds: Sequence[int]) -> bool:
    """Return whether a contender is better than the ensemble on a table, by more than noise."""
    kept, sign = Trials.read(), 1 if rows.classes else -1
    pairs = zip(kept.of(ENSEMBLE, rows.name, seeds), kept.of(name, rows.name, seeds), strict=True)
    apart = [sign * (ours.score - theirs.score) for ours, theirs in pairs]
    return mean(apart) > NOISE * stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else mean(apart) > 0
