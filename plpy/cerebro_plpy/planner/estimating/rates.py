"""Estimates the seconds of each part of a run from measurements of earlier runs, else from shipped constants.

A mini-batch takes  sum over families of layers of (a * batch size * operations per row)
                    + b * layers + c * steps of recurrence + d * parameters + e * values in outputs + f.

The coefficients are fitted, never below zero, to what this server has measured, for each engine and number of
threads. A kind of config that was measured itself takes its measured time. Estimates change no bits: they
only order visits and are shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

import numpy as np

from cerebro_plpy.planner.estimating import constants
from cerebro_plpy.planner.estimating.work import EVALUATION_BATCH, ConfigKind

FAMILIES = ("dense", "convolution", "recurrent", "attention", "embedding")
MEASURED, FITTED, SCALED, SHIPPED = "measured", "fitted", "scaled", "shipped"
# A range goes from the estimate divided by this to the estimate multiplied by it.
SPREAD = {MEASURED: 1.3, FITTED: 1.4, SCALED: 1.6, SHIPPED: 2.0}
# Coefficients are fitted only to this many kinds or more.
LEAST_KINDS = 4


@dataclass(frozen=True)
class Observation:
    """The measurements of one kind of config in one run; seconds are for a mini-batch, visit or start."""

    host: str
    backend: str
    threads: int
    kind: str
    architecture: str
    batch_size: int
    work: Mapping[str, float]
    parameters: int
    state_bytes: int
    visits: int
    batch_seconds: float
    compile_seconds: float | None
    write_seconds: float
    # From the end of a session's visit to the beginning of its next one, if this need not wait.
    rest_seconds: float
    evaluation_seconds: float | None
    # For one MB of rows.
    read_seconds: float | None


@dataclass(frozen=True)
class Estimated:
    """An estimated number of seconds, with its source: measured, fitted, scaled or shipped."""

    seconds: float
    source: str


def features(work: Mapping[str, float], parameters: int, batch: int) -> np.ndarray:
    """Return the terms of a mini-batch, such as its operations, whose coefficients are in seconds."""
    arithmetic = [work.get(family, 0.0) * batch for family in FAMILIES]
    rest = [
        work.get("layers", 0.0),
        work.get("steps", 0.0),
        float(parameters),
        work.get("numbers", 0.0) * batch,
    ]
    return np.array([*arithmetic, *rest, 1.0])


def fit(rows: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Return the coefficients, none below 0, that fit `seconds` with least squares of relative errors.

    The method is coordinate descent.
    """
    scale = np.maximum(np.abs(rows).max(axis=0), 1e-30)
    weighted = rows / scale / seconds[:, None]
    # A small ridge term, so that terms which cannot be told apart share what they explain.
    gram = weighted.T @ weighted + 1e-6 * np.eye(rows.shape[1])
    aim = weighted.sum(axis=0)
    found = np.zeros(rows.shape[1])
    for _ in range(300):
        for column in range(len(found)):
            rest = aim[column] - gram[column] @ found + gram[column, column] * found[column]
            found[column] = max(0.0, rest / gram[column, column])
    return found / scale


@dataclass(frozen=True)
class _BatchOf:
    """Mini-batches of training or of evaluation: their size, shipped costs and measured seconds."""

    shipped: Mapping[str, Sequence[float]]
    # The number of rows, if it is always the same.
    batch: int | None

    def size(self, batch_size: int) -> int:
        return batch_size if self.batch is None else self.batch

    def took(self, of: Observation) -> float | None:
        return of.batch_seconds if self.batch is None else of.evaluation_seconds


_TRAINING, _EVALUATION = _BatchOf(constants.TRAINING, None), _BatchOf(constants.EVALUATION, EVALUATION_BATCH)


def _nothing() -> None:
    """Do nothing. This is the default of `Rates.tick`."""


@dataclass(frozen=True)
class Rates:
    """The times of work on one host with a number of threads.

    A host without measurements uses those of the other hosts.
    """

    observations: Sequence[Observation]
    host: str
    threads: int
    # Called while a run is simulated, which may take a while, to look for a cancel.
    tick: Callable[[], None] = _nothing

    def batch(self, kind: ConfigKind) -> Estimated:
        """Return the estimated time of a mini-batch in training."""
        exact = self._exact(kind)
        if exact is not None:
            return Estimated(exact.batch_seconds, self._measured)
        return self._estimated(kind, _TRAINING)

    def evaluation_batch(self, kind: ConfigKind) -> Estimated:
        exact = self._alike(kind)
        if exact is not None and exact.evaluation_seconds is not None:
            return Estimated(exact.evaluation_seconds, self._measured)
        return self._estimated(kind, _EVALUATION)

    def compiling(self, kind: ConfigKind) -> Estimated:
        # Among kinds that share a net, the first in a session compiles all of it.
        own = self._find_observed(kind)
        same = [o.compile_seconds for o in own if o.architecture == kind.architecture]
        if found := [seconds for seconds in same if seconds is not None]:
            return Estimated(max(found), self._measured)
        base, each = constants.COMPILING[kind.backend]
        shipped = base + each * kind.work.get("layers", 0.0)
        known = [
            o.compile_seconds / (base + each * o.work.get("layers", 0.0))
            for o in own
            if o.compile_seconds is not None
        ]
        return Estimated(shipped * median(known), SCALED) if known else Estimated(shipped, SHIPPED)

    def writing(self, kind: ConfigKind) -> Estimated:
        exact = self._alike(kind)
        if exact is not None:
            return Estimated(exact.write_seconds, self._measured)
        shipped = constants.WRITING + constants.WRITING_BYTE * kind.state_bytes
        known = [
            o.write_seconds / (constants.WRITING + constants.WRITING_BYTE * o.state_bytes) for o in self._here
        ]
        return Estimated(shipped * median(known), SCALED) if known else Estimated(shipped, SHIPPED)

    def resting(self) -> Estimated:
        known = [o.rest_seconds for o in self._here]
        return Estimated(median(known), self._measured) if known else Estimated(constants.RESTING, SHIPPED)

    def reading(self) -> Estimated:
        """Return the estimated time of reading one MB of rows."""
        known = [o.read_seconds for o in self._here if o.read_seconds is not None]
        return Estimated(median(known), self._measured) if known else Estimated(constants.READING, SHIPPED)

    def starting(self, backends: Sequence[str]) -> Estimated:
        """Return the estimated time of starting a segment's sessions with their engines."""
        return Estimated(sum(constants.STARTING[name] for name in backends) * self._speed, SHIPPED)

    def visits(self, backends: Sequence[str]) -> int:
        return sum(o.visits for o in self._here if o.backend in backends and o.threads == self.threads)

    @cached_property
    def _fitted(self) -> dict[tuple[str, int | None], np.ndarray]:
        """A cache of coefficients for training and for evaluation, by engine: fitting takes milliseconds."""
        return {}

    def on(self, host: str) -> Rates:
        """Return the rates of another host, from the same measurements."""
        if host != self.host and host not in self._others:
            self._others[host] = replace(self, host=host)
        return self if host == self.host else self._others[host]

    @cached_property
    def _others(self) -> dict[str, Rates]:
        return {}

    @cached_property
    def _here(self) -> Sequence[Observation]:
        return [o for o in self.observations if o.host == self.host] or self.observations

    @cached_property
    def _measured(self) -> str:
        """The source of measured values: `measured`, or `scaled` if this host has no measurements."""
        return MEASURED if any(o.host == self.host for o in self.observations) else SCALED

    def _find_observed(self, kind: ConfigKind) -> list[Observation]:
        return [o for o in self._here if (o.backend, o.threads) == (kind.backend, self.threads)]

    @cached_property
    def _speed(self) -> float:
        """The factor by which this host is slower than the host where the shipped constants were measured."""
        known = [o.batch_seconds / _shipped_of(_TRAINING, o) for o in self._here]
        return median(known) if known else 1.0

    def _exact(self, kind: ConfigKind) -> Observation | None:
        return next((o for o in reversed(self._find_observed(kind)) if o.kind == kind.name), None)

    def _alike(self, kind: ConfigKind) -> Observation | None:
        """Return the newest observation of the kind, else of its net with another batch size, else None."""
        exact = self._exact(kind)
        if exact is not None:
            return exact
        return next(
            (o for o in reversed(self._find_observed(kind)) if o.architecture == kind.architecture), None
        )

    def _estimated(self, kind: ConfigKind, of: _BatchOf) -> Estimated:
        """Return the time of a mini-batch of an unmeasured kind, estimated from the measured kinds.

        With enough kinds, fitted coefficients are corrected by the error for the most similar kind.
        """
        shipped = self._shipped(of, kind)
        seen = list({o.kind: o for o in self._find_observed(kind) if of.took(o)}.values())
        if not seen:
            return Estimated(shipped * self._speed, SCALED if self._here else SHIPPED)
        took = np.array([max(of.took(o) or 0.0, 1e-7) for o in seen])
        if len(seen) < LEAST_KINDS:
            here = [_shipped_of(of, o) for o in seen]
            return Estimated(shipped * float(np.median(took / np.array(here))), SCALED)
        rows = np.array([features(o.work, o.parameters, of.size(o.batch_size)) for o in seen])
        wanted = features(kind.work, kind.parameters, of.size(kind.batch_size))
        if (kind.backend, of.batch) not in self._fitted:
            self._fitted[kind.backend, of.batch] = fit(rows, took)
        coefficients = self._fitted[kind.backend, of.batch]
        distances = np.abs(np.log1p(rows) - np.log1p(wanted)).sum(axis=1)
        near = int(np.argmin(distances))
        said = float(rows[near] @ coefficients)
        # The more similar the kind, the more of its error is applied.
        trust = 1 / (1 + float(distances[near]))
        correction = float(took[near] / said) ** trust if said > 0 else 1.0
        return Estimated(float(wanted @ coefficients) * correction, FITTED)

    def _shipped(self, of: _BatchOf, kind: ConfigKind) -> float:
        """Return the seconds of a kind's mini-batch, computed with the shipped constants."""
        parts = features(kind.work, kind.parameters, of.size(kind.batch_size))
        return _by_constants(of.shipped[kind.backend], parts, self.threads)


def _shipped_of(of: _BatchOf, seen: Observation) -> float:
    """Return the seconds of a measured kind's mini-batch, computed with the shipped constants."""
    parts = features(seen.work, seen.parameters, of.size(seen.batch_size))
    return _by_constants(of.shipped[seen.backend], parts, seen.threads)


def _by_constants(coefficients: Sequence[float], parts: np.ndarray, threads: int) -> float:
    """Return the seconds computed with these coefficients; threads share only the arithmetic."""
    costs = parts * np.array(coefficients)
    shared = costs[: len(FAMILIES)].sum() / threads**constants.SHARING
    return float(max(shared + costs[len(FAMILIES) :].sum(), 1e-7))


def spread(found: Sequence[tuple[float, str]]) -> float:
    """Return the uncertainty of a sum of seconds as a factor, weighted by the share of each source."""
    total = sum(seconds for seconds, _ in found)
    if total <= 0:
        return 1.0
    return math.exp(sum(seconds * math.log(SPREAD[source]) for seconds, source in found) / total)
