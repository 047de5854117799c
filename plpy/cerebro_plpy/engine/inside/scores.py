"""Scores of a net's output that can be explained: a quantity, or the logarithm of a class's odds.

The odds of a class are its probability by that of all others. `given` has a one at the place of the class.
"""

from __future__ import annotations

from typing import Any

from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.backends.interfaces import ScoreOf

# Below this no probability counts, and of one alone none as close to 1.
_LEAST, _NEAREST = 1e-30, 1e-7
# Takes a logit out of a sum of exponentials.
_OUT = 1e9


def quantity(output: Any, given: Any) -> Any:
    return _ops().reshape(output, (-1,))


def odds_of_probabilities(output: Any, given: Any) -> Any:
    ops = _ops()
    chosen, others = ops.sum(output * given, axis=-1), ops.sum(output * (1 - given), axis=-1)
    return ops.log(ops.maximum(chosen, _LEAST)) - ops.log(ops.maximum(others, _LEAST))


def odds_of_probability(output: Any, given: Any) -> Any:
    """Return the odds of one of two classes, of which the output has the second one's probability."""
    ops = _ops()
    share = ops.clip(output[:, 0], _NEAREST, 1 - _NEAREST)
    return (ops.log(share) - ops.log(1 - share)) * (2 * given[:, 0] - 1)


def odds_of_logits(output: Any, given: Any) -> Any:
    ops = _ops()
    return ops.sum(output * given, axis=-1) - ops.logsumexp(output - _OUT * given, axis=-1)


def odds_of_logit(output: Any, given: Any) -> Any:
    """Return the odds of one of two classes, of which the output has the second one's logit."""
    return output[:, 0] * (2 * given[:, 0] - 1)


def chosen(output: Any, given: Any) -> Any:
    """Return the number at the place of the one: a quantity, or the odds of a class among several."""
    return _ops().sum(output * given, axis=-1)


def make_squared_error(unit: float) -> ScoreOf:
    """Return the square of by how many such units a quantity is off."""

    def squared_error(output: Any, given: Any) -> Any:
        return _ops().square((_ops().reshape(output, (-1,)) - given[:, 0]) / unit)

    return squared_error


def make_log_loss(odds: ScoreOf) -> ScoreOf:
    """Return minus the logarithm of the probability that these are the odds of."""

    def log_loss(output: Any, given: Any) -> Any:
        return _ops().softplus(-odds(output, given))

    return log_loss


def _ops() -> Any:
    return runtime.keras().ops
