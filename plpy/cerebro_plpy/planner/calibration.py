"""What a run's visits tell of the kinds of its configs: seconds of a mini-batch, of compiling, and so on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from cerebro_plpy.planner.work import EVALUATION_BATCH, ConfigKind


@dataclass(frozen=True)
class VisitTime:
    """A visit in the log; moments are seconds since 1970."""

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
    """What measuring a config on one segment's rows of one table took, the quickest time."""

    mst_key: int
    segment: int
    dataset: str
    least: float
    # All times together.
    seconds: float


@dataclass(frozen=True)
class KindTimes:
    """What was measured of one kind."""

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
    """Of each kind that was seen when its code was there already. `visits` are in the order of beginning."""
    known = [v for v in visits if v.mst_key in kinds and v.rows]
    rest, read = _rest(known), _reading(known, row_bytes)
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
        over = [v.train_seconds - each * _batches(v, kind) for v in first]
        found.append(
            KindTimes(
                kind=kind,
                visits=len(own),
                state_bytes=own[-1].state_bytes,
                batch_seconds=max(each, 1e-7),
                # A session that had compiled it before began at once.
                compile_seconds=_compiling([s for s in over if s > 3 * each]),
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
    """Those of a session that has compiled the kind, and the first of each session."""
    usual: list[VisitTime] = []
    first: dict[int, VisitTime] = {}
    for visit in visits:
        if visit.pid in first:
            usual.append(visit)
        else:
            first[visit.pid] = visit
    return usual, list(first.values())


def _compiling(seconds: Sequence[float]) -> float | None:
    return median(seconds) if seconds else None


def _rest(visits: Sequence[VisitTime]) -> float:
    """From one visit's end to the next one's beginning, where the session had not to wait for it."""
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


def _reading(visits: Sequence[VisitTime], row_bytes: float) -> float | None:
    """Seconds for a MB of rows: the first visit of a session to a segment reads them."""
    first: dict[tuple[int, int], VisitTime] = {}
    for visit in visits:
        first.setdefault((visit.pid, visit.segment), visit)
    megabytes = sum(v.rows for v in first.values()) * row_bytes / 2**20
    return sum(v.read_seconds for v in first.values()) / megabytes if megabytes else None


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
