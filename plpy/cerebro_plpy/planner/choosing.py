"""Chooses what a call leaves open: engines, threads, and how often configs are evaluated.

Bits depend on engines and threads, so these are chosen by the shipped constants and the facts of the call,
never by measurements. How often configs are evaluated changes no weight, so measurements of this server
decide it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cerebro_plpy.logical.budget import Aim
from cerebro_plpy.planner.estimating.estimates import Estimate, estimate
from cerebro_plpy.planner.estimating.rates import Observation, Rates
from cerebro_plpy.planner.estimating.simulation import COMPILE, MB, TRAIN, Prices
from cerebro_plpy.planner.estimating.work import RunWork

# The largest number of visits for which a candidate is simulated.
PLAYED_VISITS = 160
# The numbers of epochs after which metrics may be computed; otherwise, only at the end.
FREQUENCIES = (1, 2, 5, 10, 20, 50, 100)


@dataclass(frozen=True)
class Choosable:
    """The choices that a call leaves open: engines, numbers of threads, and the frequency of evaluation.

    With fewer than two engines in `backends`, configs keep their engines. `measures` is True if the
    frequency is open, and `aim` has limits of time and memory.
    """

    backends: Sequence[str]
    threads: Sequence[int]
    measures: bool = False
    aim: Aim | None = None


@dataclass(frozen=True)
class Settled:
    """A choice of an engine for each architecture, with the estimate of the run."""

    backends: Mapping[int, str]
    estimate: Estimate

    @property
    def threads(self) -> int:
        return self.estimate.work.threads

    @property
    def frequency(self) -> int:
        return self.estimate.work.frequency


def choose(work: RunWork, among: Choosable, observed: Sequence[Observation]) -> tuple[Settled, bool]:
    """Return the best choice within the limits of `among.aim`, and True.

    It is the fastest choice that fits memory, with the most frequent evaluation that the time allows. If
    no choice is within the limits, return the nearest one and False.
    """
    aim = among.aim or Aim()
    facts = list(_candidates(work, among))
    small = [each for each in facts if fits_memory(each.estimate, aim)]
    if not small:
        return min(facts, key=lambda each: _memory(each.estimate)), False
    best = min(small, key=lambda each: each.estimate.seconds)
    if aim.within is None:
        return best, True
    for frequency in _frequencies(best.estimate.work, among.measures):
        known = _known(best, frequency, observed)
        if known.seconds <= aim.within:
            return replace(best, estimate=known), True
    return replace(best, estimate=_known(best, work.frequency, observed)), False


def fits_memory(found: Estimate, aim: Aim) -> bool:
    return aim.memory_mb is None or _memory(found) <= aim.memory_mb * MB


def _memory(found: Estimate) -> int:
    return found.session_bytes * found.work.sessions


def _frequencies(work: RunWork, open_to: bool) -> list[int]:
    """Return the frequencies of evaluation to try, beginning with the most frequent evaluation.

    If `open_to` is False, the call has chosen the frequency, and it is the only one.
    """
    return [*(each for each in FREQUENCIES if open_to and each < work.epochs), work.frequency]


def _known(choice: Settled, frequency: int, observed: Sequence[Observation]) -> Estimate:
    work = replace(choice.estimate.work, frequency=frequency)
    return estimate(work, Rates(observed, work.host_of(0), work.threads), PLAYED_VISITS)


def _candidates(work: RunWork, among: Choosable) -> Iterator[Settled]:
    """Yield estimated choices: one engine for all architectures, or the cheapest engine for each of them."""
    now = {kind.model_id: kind.backend for kind in work.kinds.values()}
    for threads in among.threads:
        # Assume cold sessions, because the facts of the call do not say whether they are warm.
        cold = replace(work, threads=threads, warm=False, compiled=frozenset())
        rates = Rates((), work.host_of(0), threads)
        options = [now]
        if len(among.backends) > 1:
            options = [dict.fromkeys(now, backend) for backend in among.backends]
            own = cheapest_engines(cold, among.backends, rates)
            options += [own] if own not in options else []
        for backends in options:
            yield Settled(backends, estimate(cold.on(backends), rates, PLAYED_VISITS))


def cheapest_engines(work: RunWork, backends: Sequence[str], rates: Rates) -> dict[int, str]:
    """Return the cheapest engine for each architecture; among equals, the first in `backends`."""
    models = sorted({kind.model_id for kind in work.kinds.values()})
    costs = {backend: _seconds_by_model(work, backend, rates) for backend in backends}
    return {
        model: min(backends, key=lambda backend: sum(costs[backend][model], start=0.0)) for model in models
    }


def by_engine(backends: Mapping[int, str]) -> str:
    """Return the name of the only engine, or a list of engines with the architectures that each trains."""
    names = sorted(set(backends.values()))
    if len(names) == 1:
        return names[0]
    models = {name: [str(model) for model in sorted(backends) if backends[model] == name] for name in names}
    return ", ".join(f"{name} for model {', '.join(own)}" for name, own in models.items())


def break_even(work: RunWork, model_id: int, backend: str, rates: Rates) -> float | None:
    """Return after how many epochs `backend` saves time on an architecture, or None if it never does.

    The engine that trains the architecture now is the measure: `backend` needs additional time to compile,
    which is divided by the time that it saves in each epoch.
    """
    own = next(kind.backend for kind in work.kinds.values() if kind.model_id == model_id)
    compiling, training = _seconds_by_model(work, backend, rates)[model_id]
    compiling_now, training_now = _seconds_by_model(work, own, rates)[model_id]
    saved = (training_now - training) / work.epochs
    return max(0.0, compiling - compiling_now) / saved if saved > 0 else None


def _seconds_by_model(work: RunWork, backend: str, rates: Rates) -> Mapping[int, tuple[float, float]]:
    """Return the seconds to compile and the seconds to train for each architecture, with one engine."""
    models = {kind.model_id for kind in work.kinds.values()}
    there = work.on(dict.fromkeys(models, backend))
    prices = Prices(there, rates)
    found = dict.fromkeys(models, (0.0, 0.0))
    code = set(work.compiled)
    for kind in there.kinds.values():
        seconds = prices.seconds(kind, 0)
        batches = sum(there.visit_batches(kind, s) for s in range(there.segments))
        compiling, training = found[kind.model_id]
        if there.needs_code(kind, code):
            compiling += seconds[COMPILE] * there.sessions
        code.add(kind.code)
        found[kind.model_id] = compiling, training + seconds[TRAIN] * batches * there.epochs
    return found
