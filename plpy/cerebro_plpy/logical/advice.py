"""Advice on a run, from the losses of its configs after each epoch. A run without a problem gets none."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# The shares of a loss by which it must change to count as grown or shrunk, and below which losses are alike.
GROWN, SHRUNK, ALIKE = 0.05, 0.05, 0.01
# A loss that is this many times the least one is more than noise in training.
_FAR = 2.0
# The failure of a config whose loss became no number (segment/visits.py writes it).
_NO_NUMBER = re.compile(r"the loss became \S+ on segment \d+ in epoch (\d+)")
# The least number of points of a curve, and of configs that are compared.
_POINTS, _CONFIGS = 3, 3


@dataclass(frozen=True)
class LossCurve:
    """The losses of a config on its training rows, or on its validation rows, by epoch."""

    epochs: Sequence[int]
    losses: Sequence[float]

    @property
    def least(self) -> int:
        """The place of the smallest loss; of several equal losses, the first."""
        return min(range(len(self.losses)), key=lambda place: (self.losses[place], place))


@dataclass(frozen=True)
class ConfigCurves:
    """The losses of a config on its training rows, and on validation rows if there are any."""

    mst_key: int
    training: LossCurve | None
    validation: LossCurve | None
    # Why the config failed, if it did.
    failure: str | None = None

    @property
    def deciding(self) -> LossCurve | None:
        return self.validation or self.training


class Advice(NamedTuple):
    """A finding on a config, with the first epoch that shows it, and advice.

    If `mst_key` is None, the finding is on all configs together.
    """

    mst_key: int | None
    finding: str
    epoch: int | None
    advice: str


def advise(configs: Sequence[ConfigCurves], *, keeps_best: bool) -> list[Advice]:
    """Return the findings on each config, and then the findings on all configs together.

    With `keeps_best`, overfitting is not reported: it does no harm, since each config keeps its best epoch.
    """
    found = [
        one for config in configs for one in _of_config(config, _last_epoch(configs), keeps_best=keeps_best)
    ]
    return [*found, *_of_all(configs)]


def _last_epoch(configs: Sequence[ConfigCurves]) -> int:
    return max((one.deciding.epochs[-1] for one in configs if one.deciding), default=0)


def _of_config(config: ConfigCurves, last: int, *, keeps_best: bool) -> Iterator[Advice]:
    deciding = config.deciding
    diverged = _failed_in(config)
    if deciding is not None and diverged is None:
        diverged = _diverged(config.training or deciding)
    if diverged is not None:
        advice = "Try a tenth of the learning rate, or clipnorm=1.0 in the optimizer."
        yield Advice(config.mst_key, "the loss diverges", diverged, advice)
        return
    if deciding is None:
        return
    since = None if keeps_best else _overfits(config)
    if since is not None:
        advice = (
            "Take the state of the best epoch: options => '{\"restore_best\": true}'. Try more dropout,"
            " weight decay or a narrower net."
        )
        yield Advice(config.mst_key, "it learns the training rows by heart", since, advice)
    elif deciding.epochs[-1] == last and _still_falls(deciding):
        yield Advice(
            config.mst_key,
            "the loss still falls at the end",
            last,
            f"Train for {2 * last} epochs, or try a larger learning rate.",
        )


def _failed_in(config: ConfigCurves) -> int | None:
    """Return the epoch in which a config failed because its loss was no number; None if it did not."""
    found = _NO_NUMBER.search(config.failure or "")
    return int(found[1]) if found else None


def _diverged(curve: LossCurve) -> int | None:
    for epoch, loss in zip(curve.epochs, curve.losses, strict=True):
        if not math.isfinite(loss):
            return epoch
    last = curve.losses[-1]
    is_far = last > _FAR * max(curve.losses[curve.least], 0.0) and last > curve.losses[0]
    return curve.epochs[curve.least + 1] if is_far and curve.least + 1 < len(curve.epochs) else None


def _overfits(config: ConfigCurves) -> int | None:
    """Return the epoch since which the validation loss grows while the training loss falls, or None."""
    own, other = config.training, config.validation
    if own is None or other is None or len(other.losses) < _POINTS:
        return None
    least = other.losses[other.least]
    grows = other.losses[-1] > least + GROWN * abs(least)
    return other.epochs[other.least] if grows and own.losses[-1] < own.losses[0] else None


def _still_falls(curve: LossCurve) -> bool:
    if len(curve.losses) < _POINTS or curve.least != len(curve.losses) - 1:
        return False
    before = curve.losses[-1 - max(1, len(curve.losses) // 3)]
    return before - curve.losses[-1] > SHRUNK * abs(before)


def _of_all(configs: Sequence[ConfigCurves]) -> Iterator[Advice]:
    curves = [one.deciding for one in configs if one.deciding]
    least = [curve.losses[curve.least] for curve in curves]
    finite = [loss for loss in least if math.isfinite(loss)]
    if len(finite) >= _CONFIGS and max(finite) - min(finite) <= ALIKE * abs(min(finite)):
        advice = "Let learning rates differ by factors of ten, and the nets in width and depth."
        yield Advice(None, "all configs are alike", None, advice)
