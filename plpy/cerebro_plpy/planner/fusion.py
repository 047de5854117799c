"""Decides which configs of a run share visits, and in which form they train there.

The forms are one by one, as one program with the same bits (`exact`), and batched (`fast`). A program must
first be compiled, and constants decide whether that pays. Except in the batched form, which a caller must
ask for, a config gets the same bits as in a run of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from cerebro_plpy.logical.options import EXACT, FAST, OFF
from cerebro_plpy.planner.bundles import MOST_TOGETHER, most_together
from cerebro_plpy.planner.estimating.rates import Rates
from cerebro_plpy.planner.estimating.work import ConfigKind, RunWork, digest
from cerebro_plpy.planner.units import Alike

JAX, TENSORFLOW = "jax", "tensorflow"
# The overhead of a visit is worth saving if the visit itself takes no longer than this.
SHORT_SECONDS = 0.1
# One program is no faster for larger nets: the state of Adam has three times as many numbers.
MOST_WEIGHTS = 20_000
# For larger nets, the batched form is slower than one after the other.
MOST_BATCHED_WEIGHTS = 4096
# How many visits of a segment pay for a program for many states, by the engines that have such programs.
# JAX takes a second or two to compile it, and saves a fraction of a millisecond each time; TensorFlow takes a
# third of a second, and saves four milliseconds.
PROGRAM_VISITS = {JAX: 2000, TENSORFLOW: 50}
# Layers that XLA computes with other bits within a loop, or that are loops themselves.
_UNSTACKED = ("convolution", "recurrent")


@dataclass(frozen=True)
class FormChoice:
    """The form in which a config trains with others, and its reason; no form if it shares no visit."""

    form: str | None
    reason: str


@dataclass(frozen=True)
class FusionFacts:
    """The facts of a run that decide the form, such as the option `fuse` and the rows of a segment."""

    asked: str | None
    rows: int
    segments: int
    epochs: int
    threads: int
    host: str
    # Whether all rows are within the budget of memory, wherever they lie.
    in_memory: bool
    averages: bool = False
    # Why all nets of the run train by themselves.
    alone: str | None = None

    def choose(self, kind: ConfigKind, alike: int | None) -> FormChoice:
        """Return the form for a kind of config.

        `alike` is the number of configs of one program and one route, None if a search decides it later.
        """
        if self.asked == OFF:
            return FormChoice(None, "option fuse is off")
        if self.alone is not None:
            return FormChoice(None, self.alone)
        if kind.trunk is not None:
            return FormChoice(None, "its frozen layers are computed once")
        if kind.thaws:
            return FormChoice(None, "more of its layers train from some epoch on")
        if kind.backend not in PROGRAM_VISITS:
            there = self.choose(replace(kind, backend=JAX), alike).form
            instead = "" if there is None else f"; {' and '.join(PROGRAM_VISITS)} would train them together"
            return FormChoice(None, f"{kind.backend} trains one net at a time{instead}")
        if kind.parameters > MOST_WEIGHTS:
            return FormChoice(None, f"more than {MOST_WEIGHTS:,} weights")
        if self.asked == FAST:
            why = self.why_not_batched(kind)
            if why is not None:
                return FormChoice(EXACT, f"not {FAST}: {why}")
            return FormChoice(FAST, "asked for: the same bits every time, other last bits than alone")
        if self.asked == EXACT:
            return FormChoice(EXACT, "asked for")
        if alike is not None and alike < 2:
            return FormChoice(None, "no other config of its kind is on its route")
        batches = kind.passes * -(-int(self.rows * kind.share) // kind.batch_size)
        if batches * Rates((), self.host, self.threads).batch(kind).seconds > SHORT_SECONDS:
            return FormChoice(None, f"a visit takes longer than {SHORT_SECONDS} s")
        if alike is None:
            return FormChoice(OFF, "how many configs are of its kind depends on the search")
        if alike * self.epochs < PROGRAM_VISITS[kind.backend]:
            return FormChoice(OFF, "too few visits for a program of their own")
        return FormChoice(EXACT, f"{alike * self.epochs:,} small visits of a segment pay for a program")

    def why_not_batched(self, kind: ConfigKind) -> str | None:
        """Return the reason why a kind of config cannot train in the batched form, or None."""
        if kind.backend != JAX:
            return f"{kind.backend} has no such form"
        if kind.parameters > MOST_BATCHED_WEIGHTS:
            return f"more than {MOST_BATCHED_WEIGHTS:,} weights, for which it is slower"
        if any(kind.work.get(family) for family in _UNSTACKED):
            return "convolutions and recurrent layers have no such form"
        if not self.in_memory:
            return "the rows exceed memory_mb"
        if self.averages:
            return "the run averages states"
        return None


def facts_of(work: RunWork, asked: str | None, *, alone: str | None = None) -> FusionFacts:
    everything = sum(work.segment_bytes(segment) for segment in range(work.segments))
    return FusionFacts(
        asked=asked,
        rows=max(work.rows),
        segments=work.segments,
        epochs=work.epochs,
        threads=work.threads,
        host=work.host_of(0),
        in_memory=everything <= work.memory_mb * 2**20,
        averages=work.average_from is not None,
        alone=alone,
    )


def program(kind: ConfigKind, epochs_before: int = 0) -> str:
    """Return a digest of what configs in one visit must share: code, fit parameters, and order of rows.

    `epochs_before` is the number of epochs that the config has trained before this run.
    """
    return digest(kind.name, kind.fit, str(epochs_before))


def lanes(kinds: Mapping[int, ConfigKind], segments: int) -> Counter[tuple[str, int]]:
    """Return the number of configs of each program in each lane; configs of a lane have the same route."""
    return Counter((program(kind), key % segments) for key, kind in kinds.items())


def alike(facts: FusionFacts, kind: ConfigKind, beside: int | None, epochs_before: int = 0) -> Alike | None:
    """Return the mark of a config of this kind: configs with equal marks may train in one visit.

    Return None if the config shares no visit. `beside` is the number of configs with its program and route.
    `epochs_before` is as in `program`.
    """
    form = facts.choose(kind, beside).form
    return None if form is None else Alike(program(kind, epochs_before), form)


def bundles(work: RunWork, asked: str | None, *, alone: str | None = None) -> Iterator[Mapping[str, object]]:
    """Yield a description of each program: its configs, how many share a visit, the form, the reason.

    `asked` is the option `fuse`. `alone`, if given, is the reason why each config of the run trains by
    itself.
    """
    facts, counts = facts_of(work, asked, alone=alone), lanes(work.kinds, work.segments)
    by_program: dict[str, list[int]] = {}
    for key, kind in work.kinds.items():
        by_program.setdefault(program(kind), []).append(key)
    in_lane = Counter(key % work.segments for key in work.kinds)
    for name, keys in by_program.items():
        lane = max((key % work.segments for key in keys), key=lambda lane: counts[name, lane])
        choice = facts.choose(work.kinds[keys[0]], counts[name, lane])
        most = most_together(counts[name, lane], in_lane[lane], work.segments)
        together = 1 if choice.form is None else min(most, MOST_TOGETHER)
        yield {
            "Configs": keys,
            "Together": together,
            "Form": "alone" if choice.form is None else "one by one" if choice.form == OFF else choice.form,
            "Reason": choice.reason,
        }
