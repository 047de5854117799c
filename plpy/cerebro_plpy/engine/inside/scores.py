"""Scores of a net's output that can be explained: a quantity, or the logarithm of a class's odds.

The odds of a class are its probability divided by the probability of all other classes. `given` is 1 at the
place of the class, and 0 elsewhere.
"""

from __future__ import annotations

from typing import Any

from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.backends.interfaces import ScoreOf

# The least probability that counts; and how close a single probability may come to 0 and 1.
_LEAST, _NEAREST = 1e-30, 1e-7
# Subtracted from a logit, it takes the logit out of a sum of exponentials.
_OUT = 1e9


def quantity(output: Any, given: Any) -> Any:
    return _ops().reshape(output, (-1,))


def odds_of_probabilities(output: Any, given: Any) -> Any:
    ops = _ops()
    chosen, others = ops.sum(output * given, axis=-1), ops.sum(output * (1 - given), axis=-1)
    return ops.log(ops.maximum(chosen, _LEAST)) - ops.log(ops.maximum(others, _LEAST))


def odds_of_probability(output: Any, given: Any) -> Any:
    """Return the log odds of one of two classes: of the second if `given` is 1, of the first if it is 0.

    The output is the probability of the second class.
    """
    ops = _ops()
    share = ops.clip(output[:, 0], _NEAREST, 1 - _NEAREST)
    return (ops.log(share) - ops.log(1 - share)) * (2 * given[:, 0] - 1)


def odds_of_logits(output: Any, given: Any) -> Any:
    ops = _ops()
    return ops.sum(output * given, axis=-1) - ops.logsumexp(output - _OUT * given, axis=-1)


def odds_of_logit(output: Any, given: Any) -> Any:
    """Return the log odds of one of two classes: of the second if `given` is 1, of the first if it is 0.

    The output is the logit of the second class.
    """
    return output[:, 0] * (2 * given[:, 0] - 1)


def chosen(output: Any, given: Any) -> Any:
    """Return the value of the output at the place where `given` is 1: a quantity, or a class's log odds."""
    return _ops().sum(output * given, axis=-1)


def make_squared_error(unit: float) -> ScoreOf:
    """Return a function for the squared difference between answer and label, both measured in `unit`."""

    def squared_error(output: Any, given: Any) -> Any:
        return _ops().square((_ops().reshape(output, (-1,)) - given[:, 0]) / unit)

    return squared_error


def make_log_loss(odds: ScoreOf) -> ScoreOf:
    """Return a function for minus the logarithm of a class's probability; `odds` computes its log odds."""

    def log_loss(output: Any, given: Any) -> Any:
        return _ops().softplus(-odds(output, given))

    return log_loss


def _ops() -> Any:
    return runtime.keras().ops
