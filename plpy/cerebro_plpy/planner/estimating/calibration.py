"""Computes from a run's visits how long each kind of config takes: to train a mini-batch, to compile, etc."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from cerebro_plpy.planner.estimating.work import EVALUATION_BATCH, ConfigKind

# With fewer rows than this, the time of reading cannot be told from chance.
LEAST_READ_MB = 4


@dataclass(frozen=True)
class VisitTime:
    """The times of a visit from the log; `began` is in seconds since 1970."""

    mst_key: int
    segment: int
    rows: int
    state_bytes: int
    read_seconds: float
    train_seconds: float
    write_seconds: float
    pid: int
    began: float

    @property
    def ended(self) -> float:
        return self.began + self.read_seconds + self.train_seconds + self.write_seconds


@dataclass(frozen=True)
class EvaluationTime:
    """The times of a config's evaluations on one segment's rows of a table: least, largest and sum."""

    mst_key: int
    segment: int
    dataset: str
    least: float
    most: float
    # All times together.
    seconds: float


@dataclass(frozen=True)
class KindTimes:
    """The times measured for one kind of config."""

    kind: ConfigKind
    visits: int
    state_bytes: int
    batch_seconds: float
    compile_seconds: float | None
    write_seconds: float
    rest_seconds: float
    evaluation_seconds: float | None
    read_seconds: float | None


def calibrate(
    kinds: Mapping[int, ConfigKind],
    visits: Sequence[VisitTime],
    evaluations: Sequence[EvaluationTime],
    rows: Mapping[str, Sequence[int]],
    row_bytes: float,
) -> list[KindTimes]:
    """Return the times of each kind of config that has visits after its code was compiled.

    `visits` must be in the order in which they began. `rows` has the numbers of rows of the segments, by
    table as in `EvaluationTime.dataset`.
    """
    known = [v for v in visits if v.mst_key in kinds and v.rows]
    rest, read = _rest(known), _reading(known, kinds, row_bytes)
    first_measuring = _first_measuring(kinds, evaluations)
    by_kind: dict[str, list[VisitTime]] = defaultdict(list)
    for visit in known:
        by_kind[kinds[visit.mst_key].name].append(visit)
    found: list[KindTimes] = []
    for own in by_kind.values():
        kind = kinds[own[0].mst_key]
        usual, first = _apart(own)
        if not usual:
            continue
        each = median(v.train_seconds / _batches(v, kind) for v in usual)
        over = [v.train_seconds - each * _batches(v, kind) + _building(v, usual) for v in first]
        found.append(
            KindTimes(
                kind=kind,
                visits=len(own),
                state_bytes=own[-1].state_bytes,
                batch_seconds=max(each, 1e-7),
                # Leave out sessions that had compiled the code before.
                compile_seconds=_compiling([s for s in over if s > 3 * each], first_measuring[kind.compiled]),
                write_seconds=median(v.write_seconds for v in own),
                rest_seconds=rest,
                evaluation_seconds=_evaluating(kind, kinds, evaluations, rows),
                read_seconds=read,
            )
        )
    return found


def _batches(visit: VisitTime, kind: ConfigKind) -> int:
    return kind.passes * -(-visit.rows // kind.batch_size)


def _apart(visits: Sequence[VisitTime]) -> tuple[list[VisitTime], list[VisitTime]]:
    """Return the visits that are not the first of their session, and the first visit of each session."""
    usual: list[VisitTime] = []
    first: dict[int, VisitTime] = {}
    for visit in visits:
        if visit.pid in first:
            usual.append(visit)
        else:
            first[visit.pid] = visit
    return usual, list(first.values())


def _compiling(seconds: Sequence[float], measuring: float) -> float | None:
    return median(seconds) + measuring if seconds else None


def _first_measuring(
    kinds: Mapping[int, ConfigKind], evaluations: Sequence[EvaluationTime]
) -> Mapping[str, float]:
    """Return by how many seconds the first evaluation of each compiled net exceeds its shortest one.

    Kinds of configs that share a compiled net also share these seconds, which are divided by their number.
    """
    over: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for evaluation in evaluations:
        if evaluation.mst_key in kinds:
            segments = over[kinds[evaluation.mst_key].compiled]
            segments[evaluation.segment] = max(
                segments[evaluation.segment], evaluation.most - evaluation.least
            )
    sharing = Counter({kind.name: kind.compiled for kind in kinds.values()}.values())
    return defaultdict(float, {c: median(s.values()) / sharing[c] for c, s in over.items()})


def _rest(visits: Sequence[VisitTime]) -> float:
    """Return the usual seconds between two visits of a session that has work: the lower quartile."""
    gaps: list[float] = []
    last: dict[int, VisitTime] = {}
    for visit in visits:
        before = last.get(visit.pid)
        if before is not None:
            gaps.append(max(0.0, visit.began - before.ended))
        last[visit.pid] = visit
    if len(gaps) < 4:
        return min(gaps, default=0.0)
    return quantiles(gaps, n=4)[0]


def _building(first: VisitTime, usual: Sequence[VisitTime]) -> float:
    """Return the seconds that a session's first visit of a kind takes to build the net."""
    return max(0.0, first.read_seconds - median(v.read_seconds for v in usual))


def _reading(visits: Sequence[VisitTime], kinds: Mapping[int, ConfigKind], row_bytes: float) -> float | None:
    """Return the seconds to read a MB of rows, or None if there are too few rows to measure it.

    A session reads the rows only in its very first visit. When it first trains another kind of config, it
    does all other work of a first visit, so the difference is the time of reading.
    """
    firsts: dict[int, dict[str, VisitTime]] = defaultdict(dict)
    for visit in visits:
        firsts[visit.pid].setdefault(kinds[visit.mst_key].name, visit)
    found: list[float] = []
    for own in firsts.values():
        first, *others = own.values()
        megabytes = first.rows * row_bytes / 2**20
        if others and megabytes >= LEAST_READ_MB:
            found.append(max(0.0, first.read_seconds - median(v.read_seconds for v in others)) / megabytes)
    return median(found) if found else None


def _evaluating(
    kind: ConfigKind,
    kinds: Mapping[int, ConfigKind],
    evaluations: Sequence[EvaluationTime],
    rows: Mapping[str, Sequence[int]],
) -> float | None:
    each = [
        e.least / batches
        for e in evaluations
        if e.mst_key in kinds
        and kinds[e.mst_key].compiled == kind.compiled
        and (batches := -(-rows[e.dataset][e.segment] // EVALUATION_BATCH))
    ]
    return median(each) if each else None
