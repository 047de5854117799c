"""Estimates a whole run: its time, waiting, memory, and the bytes of its states and of the log.

Only a part of a long run is simulated, and the result is scaled to the whole run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cerebro_plpy.memory import LARGE_BYTES
from cerebro_plpy.planner.estimating import constants, group_work
from cerebro_plpy.planner.estimating.rates import SPREAD, Rates, spread
from cerebro_plpy.planner.estimating.simulation import (
    COMPILE,
    MB,
    MEASURE,
    ONCE,
    READ,
    REST,
    TRAIN,
    WRITE,
    Played,
    Prices,
    configs_of,
    plan_of,
    play,
)
from cerebro_plpy.planner.estimating.work import ConfigKind, RunWork

# The most visits and configs for which a plan is played: the user wants an answer at once.
MOST_VISITS, MOST_CONFIGS = 800, 40
# If one epoch has more visits, the run is counted and not simulated.
MOST_PLAYED = 2000
# The log has a state once more, cut in rows with a head each; and the row of its visit.
LOG_FACTOR, VISIT_LOG, EVALUATION_LOG = 1.1, 1500, 900
# States of a config that are kept while it trains: `Plan.needed_steps`, and what waits to be removed.
STATES_AT_ONCE = 4
# Copies of a state that a session holds: as it was read, in the net, gradients, updates, being cut, sent. A
# large one that trains by itself moves: it is in the net, with gradients and memory that the engine keeps.
STATES_IN_A_VISIT, LARGE_STATES_IN_A_VISIT = 6, 3
# Copies of frozen weights that a session holds: as they were read, and in the net.
FROZEN_IN_A_SESSION = 2


@dataclass(frozen=True)
class Estimate:
    """The estimate of a run: its seconds, with a range from `low` to `high`, its memory and disk space."""

    work: RunWork
    played: Played
    seconds: float
    low: float
    high: float
    starting: float
    # Before the first visit and after the last: checks, the run's rows, result tables.
    around: float
    first_leaderboard: float | None
    bound: float
    longest: tuple[int, float] | None
    waiting: float
    sources: frozenset[str]
    # The seconds of training that each config saves if frozen layers are computed once.
    saved: Mapping[int, float]

    @property
    def frozen_bytes(self) -> int:
        """The bytes of the weights that no training changes, which are stored once."""
        given = self.work.given_weights
        owners = {(k.model_id, None if k.model_id in given else key): k for key, k in self.work.kinds.items()}
        return sum(kind.frozen_bytes for kind in owners.values())

    @property
    def states_kept(self) -> int:
        each = sum(kind.state_bytes for kind in self.work.kinds.values())
        return each * self.work.models + self.frozen_bytes

    @property
    def states_peak(self) -> int:
        """The most bytes of states, together with the models that are written at the end of the run."""
        kinds, models = self.work.kinds.values(), self.work.models
        states = STATES_AT_ONCE * sum(kind.state_bytes for kind in kinds) * models + self.frozen_bytes
        return states + sum(kind.weight_bytes for kind in kinds) * models

    @property
    def log_bytes(self) -> int:
        kinds, count = self.work.kinds, len(self.work.kinds)
        if not count:
            return 0
        state = sum(kind.state_bytes for kind in kinds.values()) / count
        weights = sum(kind.weight_bytes for kind in kinds.values()) * self.work.models + self.frozen_bytes
        evaluations = self.played.evaluations * EVALUATION_LOG
        written = self.played.visits if self.played.states_written is None else self.played.states_written
        if self.work.groups is None:
            evaluations *= self.work.segments + 1
        return int(written * (state * LOG_FACTOR + VISIT_LOG) + evaluations + weights * LOG_FACTOR)

    @property
    def core_seconds(self) -> float:
        """The seconds of all cores together, if all threads of a busy session are at work."""
        return self.played.busy * self.work.threads

    @property
    def gpu_seconds(self) -> float:
        return self.played.busy if self.work.use_gpus else 0.0

    @property
    def moved_bytes(self) -> int:
        """The bytes of all states that visits make."""
        kinds = self.work.kinds.values()
        mean = sum(kind.state_bytes for kind in kinds) / len(kinds) if kinds else 0.0
        return int(mean * self.played.visits)

    @property
    def session_bytes(self) -> int:
        """The most bytes that a segment's sessions take: engines, nets, rows, states and activations."""
        work = self.work
        rows = max((work.segment_bytes(s) for s in range(work.segments)), default=0)
        own = sum(constants.SESSION_MB[name] for name in work.backends) * MB
        kinds = {kind.name: kind.backend for kind in work.kinds.values()}
        own += sum(constants.COMPILED_MB[backend] for backend in kinds.values()) * MB
        together = 1 if work.groups is None else max(1, work.groups.largest_bundle)
        states = max(
            (
                _states_in_a_visit(kind.state_bytes, together)
                + work.step_bytes(kind) * together
                + FROZEN_IN_A_SESSION * kind.frozen_bytes
                for kind in work.kinds.values()
            ),
            default=0,
        )
        kept = min(rows * -(-work.segments // work.sessions), work.memory_mb * MB)
        features = max((work.feature_bytes(s) for s in range(work.segments)), default=0)
        features *= -(-work.segments // work.sessions)
        return int(own + kept * len(work.backends) + states + features)


def _states_in_a_visit(state_bytes: int, together: int) -> int:
    """Return the bytes that states take in a visit in which `together` configs train."""
    moves = together == 1 and state_bytes > LARGE_BYTES
    return (LARGE_STATES_IN_A_VISIT if moves else STATES_IN_A_VISIT) * state_bytes * together


def estimate(work: RunWork, rates: Rates, most_visits: int = MOST_VISITS) -> Estimate:
    """Return the estimate of a run in which all configs train to the end.

    Of a long run, only about `most_visits` visits are simulated, and the result is scaled.
    """
    if work.groups is not None:
        return summarize(work, rates, group_work.counted(work, work.groups, rates))
    sample = _sample(work, rates)
    visits = max(1, len(sample.kinds) * work.segments)
    if visits > MOST_PLAYED:
        return summarize(work, rates, _unplayed(work, rates))
    epochs = min(work.epochs, max(1, most_visits // visits))
    part = replace(sample, frequency=min(work.frequency, epochs) if epochs < work.epochs else work.frequency)
    prices = Prices(part, rates)
    played = play(
        plan_of(part, configs_of(part, prices, epochs), epochs), part, prices, part.kinds.__getitem__
    )
    if len(sample.kinds) < len(work.kinds) or epochs < work.epochs:
        full = _counted(work, rates)
        full.seconds = full.busy / work.sessions / max(1 - played.waiting(part.sessions), 1e-6)
        full.first_measured = played.first_measured
        if played.first_measured is not None and part.frequency != work.frequency:
            # Then both the part and the whole run are first evaluated at their end.
            full.first_measured = full.seconds * played.first_measured / played.seconds
        played = full
    return summarize(work, rates, played)


def summarize(work: RunWork, rates: Rates, played: Played) -> Estimate:
    """Return the estimate of a run, computed from its simulated or counted work."""
    start = 0.0 if work.warm else rates.starting(work.backends).seconds
    each = constants.AROUND_CONFIG if work.groups is None else constants.AROUND_GROUP * work.models
    around = constants.AROUND + each * len(work.kinds)
    sources = _sources(work, rates, played)
    factor = spread(sources)
    # With groups, no config has a chain of its own.
    chains = {key: _chain(work, key, played) for key in work.kinds if work.groups is None}
    longest = max(chains.items(), key=lambda one: one[1], default=None)
    bound = max(played.busy / work.sessions, longest[1] if longest else 0.0)
    # A start is as uncertain as the shipped constants are.
    own = SPREAD["shipped"] if start else 1.0
    return Estimate(
        work=work,
        played=played,
        seconds=start + around + played.seconds,
        low=start / own + (around + played.seconds) / factor,
        high=start * own + (around + played.seconds) * factor,
        starting=start,
        around=around,
        first_leaderboard=None if played.first_measured is None else start + played.first_measured,
        bound=start + around + bound,
        longest=longest,
        waiting=played.waiting(work.sessions),
        sources=_weighty(sources),
        saved={key: _saved(work, kind, rates) for key, kind in work.kinds.items() if kind.whole is not None},
    )


def _saved(work: RunWork, kind: ConfigKind, rates: Rates) -> float:
    batches = sum(work.visit_batches(kind, s) * count for s, count in work.alike.items()) * work.epochs
    whole = rates.batch(kind.whole or kind).seconds
    return max(0.0, whole - rates.batch(kind).seconds) * batches


def _weighty(sources: Sequence[tuple[float, str]]) -> frozenset[str]:
    """Return the sources, such as `measured`, on which at least a twentieth of the time is based."""
    by_source: dict[str, float] = {}
    for seconds, source in sources:
        by_source[source] = by_source.get(source, 0.0) + seconds
    least = 0.05 * sum(by_source.values())
    return frozenset(source for source, seconds in by_source.items() if seconds >= least)


def _sample(work: RunWork, rates: Rates) -> RunWork:
    """Return the work with only some of its configs, chosen evenly from the cheapest to the dearest."""
    if len(work.kinds) <= MOST_CONFIGS:
        return work
    prices = Prices(work, rates)
    keys = sorted(work.kinds, key=lambda key: (prices.visit_seconds(work.kinds[key]), key))
    step = len(keys) / MOST_CONFIGS
    chosen = sorted({keys[int(number * step)] for number in range(MOST_CONFIGS)})
    return replace(work, kinds={key: work.kinds[key] for key in chosen})


def _unplayed(work: RunWork, rates: Rates) -> Played:
    """Return the counted work of a run that has too many visits to be simulated.

    Its time is near the lower bound, which no order of visits can beat.
    """
    found = _counted(work, rates)
    longest = max(_chain(work, key, found) for key in work.kinds)
    found.seconds = max(found.busy / work.sessions, longest)
    found.first_measured = found.seconds * min(work.frequency, work.epochs) / work.epochs
    return found


def _counted(work: RunWork, rates: Rates) -> Played:
    """Return the work of a run, counted without regard to the order of visits."""
    full, prices = Played(), Prices(work, rates)
    full.visits = len(work.kinds) * work.segments * work.epochs
    full.evaluations = len(work.kinds) * -(-work.epochs // work.frequency)
    code = set(work.compiled)
    times, measures = work.epochs, -(-work.epochs // work.frequency)
    for key, kind in work.kinds.items():
        spent = dict.fromkeys((TRAIN, WRITE, REST, MEASURE), 0.0)
        # The merge of what was measured is done by one of them.
        spent[MEASURE] = prices.seconds(kind, 0)[MEASURE] * measures
        spent[REST] = prices.seconds(kind, 0)[REST] * measures
        for segment, count in work.alike.items():
            seconds = prices.seconds(kind, segment)
            spent[TRAIN] += seconds[TRAIN] * work.visit_batches(kind, segment) * times * count
            spent[WRITE] += seconds[WRITE] * times * count
            spent[REST] += seconds[REST] * (times + measures) * count
            spent[MEASURE] += seconds[MEASURE] * work.evaluation_batches(segment) * measures * count
        full.spent |= {(key, activity): seconds for activity, seconds in spent.items()}
        if work.needs_code(kind, code):
            full.spent[key, COMPILE] = prices.seconds(kind, 0)[COMPILE] * work.sessions
            full.spent[key, ONCE] = sum(
                prices.seconds(kind, s)[ONCE] * work.evaluation_batches(s) * n for s, n in work.alike.items()
            )
        code.add(kind.code)
        rates.tick()
    first = next(iter(work.kinds))
    again = full.visits / work.segments if work.streams else 1
    full.spent[first, READ] = again * sum(
        prices.seconds(work.kinds[first], s)[READ] * work.segment_bytes(s) / MB * count
        for s, count in work.alike.items()
    )
    return full


def _chain(work: RunWork, key: int, played: Played) -> float:
    """Return the seconds of a config's visits, one after another; evaluations may go on beside visits.

    In epochs whose states are averaged, all segments train the config at once.
    """
    found = sum(played.spent.get((key, activity), 0.0) for activity in (TRAIN, WRITE, REST, COMPILE, ONCE))
    if work.average_from is None:
        return found
    averaged = max(0, work.epochs - work.average_from + 1) / work.epochs
    return found * (1 - averaged + averaged / work.sessions)


def _sources(work: RunWork, rates: Rates, played: Played) -> Sequence[tuple[float, str]]:
    """Return the seconds of each activity of each config, with the source of the estimate."""
    found: list[tuple[float, str]] = []
    for key, kind in work.kinds.items():
        for activity, known in (
            (TRAIN, rates.batch(kind)),
            (MEASURE, rates.evaluation_batch(kind)),
            (COMPILE, rates.compiling(kind)),
            (WRITE, rates.writing(kind)),
            (REST, rates.resting()),
            (READ, rates.reading()),
        ):
            seconds = played.spent.get((key, activity), 0.0)
            if seconds:
                found.append((seconds, known.source))
    return found
