"""Finds the temperature of an ensemble: the number by which all its log-probabilities are divided.

After Guo and others (2017). The temperature makes an ensemble more or less sure. It changes no order of
classes.
"""

from __future__ import annotations

import math

import numpy as np

from cerebro_plpy.predicting.examining.scoring import LEAST

# No probability becomes less than its square, before all add up to 1 again: rows that are all answered
# rightly would have it shrink without end. And answers do not become alike without end.
COLDEST, HOTTEST = 0.5, 5.0
# The share of the range with the least loss that each round keeps.
_GOLDEN = (math.sqrt(5) - 1) / 2
_ROUNDS = 30


def temper(answers: np.ndarray, temperature: float) -> np.ndarray:
    """Return the probabilities of an ensemble at a temperature, given its plain probabilities."""
    powers = _powers(answers, temperature)
    return powers / powers.sum(axis=1, keepdims=True)


def find_temperature(answers: np.ndarray, truth: np.ndarray) -> float:
    """Return the temperature with the least log loss, between COLDEST and HOTTEST.

    The loss has only one minimum over the logarithm of the temperature, since it is convex in 1 /
    temperature.
    """
    low, high = math.log(COLDEST), math.log(HOTTEST)
    logs = _logs(answers)
    for _ in range(_ROUNDS):
        width = _GOLDEN * (high - low)
        if _loss(logs, truth, math.exp(high - width)) <= _loss(logs, truth, math.exp(low + width)):
            high = low + width
        else:
            low = high - width
    return math.exp((low + high) / 2)


def _logs(answers: np.ndarray) -> np.ndarray:
    logs = np.log(answers + LEAST)
    return logs - logs.max(axis=1, keepdims=True)


def _powers(answers: np.ndarray, temperature: float) -> np.ndarray:
    return np.exp(_logs(answers) / temperature)


def _loss(logs: np.ndarray, truth: np.ndarray, temperature: float) -> float:
    scaled = logs / temperature
    return float((np.log(np.exp(scaled).sum(axis=1)) - (scaled * truth).sum(axis=1)).mean())
