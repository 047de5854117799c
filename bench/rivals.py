"""Compares cerebro.train with other systems on real tables: trees, nets, and AutoGluon with as much time.

Each trial is kept in `trials.json` when it ends, and is not measured again while its contender's version is
the same. So a comparison that takes hours can be measured in several runs.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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
from peer_tables import PACKAGES
from real import Rows
from sklearn.model_selection import train_test_split
from tables import Goal
from trials import Trial, Trials

HERE = Path(__file__).resolve().parent
HELD_OUT, BUDGET_SECONDS, BEHIND = 0.2, 60, 0.005
# The longest time of a call on such a table, and the share of its budget.
MOST_SECONDS, MOST_OF_BUDGET = 90, 1.2
BEST, ENSEMBLE = "best config", "ensemble"
PEERS = ("CatBoost", "LightGBM", "HistGradientBoosting", "MLP")
# These need PyTorch, and so an environment of their own.
AUTOGLUON, REALMLP, TABM = "AutoGluon", "RealMLP-TD", "TabM-D"
# Code that no server of one machine runs.
ELSEWHERE = tuple(f"plpy/cerebro_plpy/{name}" for name in ("citus/", "cluster/", "store/citus"))
# The difference of two means is noise if it is smaller than so many of its standard errors.
NOISE = 2.0


@dataclass(frozen=True)
class Task:
    """A contender's task: the rows of a table, of which it sees others for each seed."""

    rows: Rows
    seed: int
    contender: str
    version: str

    @cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """The places of the rows that the contender sees, and of those that it answers."""
        stratify = self.rows.y if self.rows.classes else None
        found: Any = train_test_split(
            np.arange(len(self.rows.y)), test_size=HELD_OUT, random_state=self.seed, stratify=stratify
        )
        return found[0], found[1]

    def judge(self, answers: np.ndarray, seconds: float, memory: int) -> Trial:
        """Return the trial of a contender that has answered the rows that it has not seen."""
        unseen = self.places[1]
        return Trial(
            contender=self.contender,
            table=self.rows.name,
            seed=self.seed,
            version=self.version,
            score=self.rows.score(answers, unseen),
            other=self.rows.score_otherwise(answers, unseen),
            seconds=seconds,
            memory=memory,
        )


@dataclass(frozen=True)
class Comparison:
    """The trials of some contenders on all tables."""

    tables: Sequence[Rows]
    names: Sequence[str]
    seeds: Sequence[int]
    kept: Trials

    def list_trials(self, name: str, rows: Rows) -> list[Trial]:
        return self.kept.list_trials(name, rows.name, self.seeds)

    def mean_score(self, name: str, rows: Rows) -> float:
        return mean(trial.score for trial in self.list_trials(name, rows))

    @cached_property
    def ranks(self) -> Mapping[str, list[int]]:
        """The rank of each contender on each table, by its mean log loss or R²."""
        found: dict[str, list[int]] = {name: [] for name in self.names}
        for rows in self.tables:
            sign = 1 if rows.classes else -1
            scores = {name: sign * self.mean_score(name, rows) for name in self.names}
            for rank, name in enumerate(sorted(self.names, key=scores.__getitem__), 1):
                found[name].append(rank)
        return found


def compare_with_peers(seeds: int, tell: Tell) -> Section:
    """Measure cerebro.train, trees and scikit-learn's net on all tables."""
    names = (BEST, ENSEMBLE, *PEERS)
    everything = [real.load(source) for source in real.SOURCES]
    found = Comparison(everything, names, range(seeds), _measure(everything, names, seeds, tell))
    return Section("Real tables", _report(found), _goals(found))


def compare_with_autogluon(seeds: int, tell: Tell) -> Section:
    """Measure AutoGluon on all tables, and compare it with what cerebro.train reached."""
    found = _compare_with(AUTOGLUON, seeds, tell)
    ours, theirs = found.ranks[ENSEMBLE], found.ranks[AUTOGLUON]
    apart = _in_errors([own - other for own, other in zip(ours, theirs, strict=True)])
    goal = _goal("real tables: mean rank less AutoGluon's, in standard errors", NOISE, apart)
    return Section("Real tables, AutoGluon", _report(found), [goal])


def compare_with_net(name: str, seeds: int, tell: Tell) -> Section:
    """Measure a net of another package on all tables, and compare it with what cerebro.train reached."""
    found = _compare_with(name, seeds, tell)
    ours, *others = (mean(found.ranks[name]) for name in found.names)
    goal = _goal(f"real tables: mean rank less the best one, beside {name}", 0, ours - min(others))
    return Section(f"Real tables, {name}", _report(found), [goal])


def has_rivals() -> bool:
    """Return whether the environment of AutoGluon, RealMLP and TabM is installed."""
    return Path(_python(AUTOGLUON)).exists()


def _compare_with(rival: str, seeds: int, tell: Tell) -> Comparison:
    everything = [real.load(source) for source in real.SOURCES]
    kept = _measure(everything, [rival], seeds, tell)
    return Comparison(everything, (ENSEMBLE, rival, *PEERS), range(seeds), kept)


def _measure(everything: Sequence[Rows], names: Sequence[str], seeds: int, tell: Tell) -> Trials:
    """Measure what is missing of the contenders' trials, and return all trials."""
    kept, versions = Trials.read(), {name: _version(name) for name in names}
    # By seeds first: a comparison that is cut short has all tables.
    for seed in range(seeds):
        for rows in everything:
            missing = [name for name in names if not kept.has(name, rows.name, seed, versions[name])]
            # One call trains both of ours.
            for name in [name for name in missing if name != BEST]:
                task = Task(rows, seed, name, versions[name])
                for trial in _run_ours(task) if name == ENSEMBLE else [_run_peer(task)]:
                    kept.keep(trial)
            if missing:
                found = [one for name in names for one in kept.list_trials(name, rows.name, [seed])]
                tell(f"  {rows.name}, seed {seed}: { {one.contender: round(one.score, 4) for one in found} }")
    return kept


def _version(name: str) -> str:
    """Return the version of a contender: that of its package, or of the server's code."""
    if name in (BEST, ENSEMBLE):
        listed = _run(["git", "ls-tree", "-r", "--full-tree", "HEAD", "plpy", "sql"]).splitlines()
        here = [line for line in listed if not line.partition("\t")[2].startswith(ELSEWHERE)]
        return hashlib.sha256("\n".join(here).encode()).hexdigest()[:20]
    asked = f"from importlib.metadata import version; print(version({PACKAGES[name]!r}))"
    return _run([_python(name), "-c", asked]).strip()


def _python(name: str) -> str:
    venv = "venv-rivals" if name in (AUTOGLUON, REALMLP, TABM) else "venv-bench"
    return str(HERE.parent / ".local" / venv / "bin" / "python")


def _run(words: Sequence[str]) -> str:
    return subprocess.run(words, cwd=HERE, capture_output=True, text=True, check=True).stdout


def _run_ours(task: Task) -> Iterator[Trial]:
    made = [f"real{end}" for end in ("", "_info", "_summary", "_nets", "_best", "_best_summary")]
    made += [f"real_packed{end}" for end in ("", "_summary", "_validation", "_validation_summary")]
    made += ["real_ensemble", "real_ensemble_summary", "real_seen", "real_unseen"]
    rows, (seen, unseen) = task.rows, task.places
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
        yield replace(task, contender=name).judge(found, seconds, memory)


def _run_peer(task: Task) -> Trial:
    rows, name, (seen, unseen) = task.rows, task.contender, task.places
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
        if fit.returncode:
            raise subprocess.CalledProcessError(fit.returncode, words)
        told = json.loads(said.splitlines()[-1])
        answers = np.load(folder / "answers.npy")
    # A short fit ends before it is looked at: then the largest size that the process itself has seen counts.
    return task.judge(answers, told["seconds"], sum(peak.peak) or told["memory"])


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


def _report(found: Comparison) -> str:
    """Return a table with log loss or R² and ranks, and one with accuracy or RMSE, seconds and memory."""
    scores = _lines(found, ("log loss", "R²"), lambda trial: trial.score)
    scores.append(["*mean rank*", "", *[f"{mean(found.ranks[name]):.2f}" for name in found.names]])
    others = _lines(found, ("accuracy", "RMSE"), lambda trial: trial.other)
    every = [[one for rows in found.tables for one in found.list_trials(name, rows)] for name in found.names]
    others.append(["*seconds*", "", *[f"{mean(one.seconds for one in each):.1f}" for each in every]])
    others.append(["*peak memory*", "", *[tables.size(max(one.memory for one in each)) for each in every]])
    head = ["table", "rows", *found.names]
    return f"{tables.markdown(head, scores)}\n\n{tables.markdown(head, others)}"


def _lines(found: Comparison, measures: tuple[str, str], value: Callable[[Trial], float]) -> list[list[str]]:
    """Return a line for each table; `measures` are what `value` is of classes, and of quantities."""
    return [
        [f"{rows.name} ({measures[0] if rows.classes else measures[1]})", f"{len(rows.y):,}"]
        + [_shown([value(trial) for trial in found.list_trials(name, rows)]) for name in found.names]
        for rows in found.tables
    ]


def _shown(values: Sequence[float]) -> str:
    digits = 4 if max(map(abs, values), default=0.0) < 10 else 1
    many = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):,.{digits}f}{many}" if values else ""


def _goals(found: Comparison) -> list[Goal]:
    """Return the goals: on what share of the tables the ensemble is about as good as CatBoost and the net."""
    ahead = {rows.name: _ahead(found, "CatBoost", rows) for rows in found.tables}
    good = mean(mean(ahead[rows.name]) >= 0 for rows in found.tables if rows.classes)
    near = mean(mean(ahead[rows.name]) >= -BEHIND for rows in found.tables if not rows.classes)
    behind = sum(_in_errors(_ahead(found, "MLP", rows)) < -NOISE for rows in found.tables)
    ours = [one for rows in found.tables for one in found.list_trials(ENSEMBLE, rows)]
    quantities = [rows for rows in found.tables if not rows.classes]
    worse = sum(one.score < 0 for rows in quantities for one in found.list_trials(ENSEMBLE, rows))
    longest = max(one.seconds for one in ours)
    return [
        _goal("tables with log loss at or below CatBoost's", 2 / 3, good, at_most=False),
        _goal(f"tables with R² at most {BEHIND} below CatBoost's", 6 / 7, near, at_most=False),
        _goal("tables on which scikit-learn's net is better by more than noise", 0, behind),
        _goal("real tables: answers with a negative R²", 0, worse),
        _goal("real tables: the longest call, seconds", MOST_SECONDS, longest),
        _goal("real tables: the longest call ÷ its budget", MOST_OF_BUDGET, longest / BUDGET_SECONDS),
    ]


def _goal(what: str, goal: float, reached: float, *, at_most: bool = True) -> Goal:
    return Goal(what, goal, Spread.from_values([reached]), at_most)


def _ahead(found: Comparison, name: str, rows: Rows) -> list[float]:
    """Return by how much the ensemble's log loss or R² is better than a contender's, for each seed."""
    sign = -1 if rows.classes else 1
    pairs = zip(found.list_trials(ENSEMBLE, rows), found.list_trials(name, rows), strict=True)
    return [sign * (ours.score - theirs.score) for ours, theirs in pairs]


def _in_errors(apart: Sequence[float]) -> float:
    """Return the mean of differences in its standard errors; 0 if there are too few to know these."""
    error = stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else 0.0
    return mean(apart) / error if error else 0.0
