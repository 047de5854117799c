"""Slopes of a net's score equal a plain calculation, also by the embedding vectors of categories."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import nets
from cerebro_plpy.engine.backends.interfaces import ScoreOf
from cerebro_plpy.engine.checks import architecture
from cerebro_plpy.engine.inside import scores
from cerebro_plpy.engine.inside.slopes import BoundSlopes, Slopes
from cerebro_plpy.engine.models.inference import inference
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.explaining.path import ENOUGH, attribute

pytestmark = pytest.mark.usefixtures("engine")

RANDOM = np.random.default_rng(4)
FEATURES, UNITS, CLASSES = 5, 8, 3


def bound(text: str, score: ScoreOf, weights: list[np.ndarray]) -> BoundSlopes:
    described = architecture.describe(text)
    data = b"".join(one.astype("<f4").tobytes() for one in weights)
    return Slopes(described, score).bound(inference(described).load(data))


def drawn(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [RANDOM.normal(size=shape).astype(np.float32) for shape in shapes]


def dense(outputs: int) -> list[np.ndarray]:
    return drawn((FEATURES, UNITS), (UNITS,), (UNITS, outputs), (outputs,))


def plain(
    weights: list[np.ndarray], way: Callable[[np.ndarray], np.ndarray], start: Any, end: Any, shares: Any
) -> Any:
    """Return the integrated gradients of a net with one hidden layer, computed step by step in NumPy."""
    first, bias, second, last = (one.astype(float) for one in weights)

    def score(row: np.ndarray) -> tuple[float, np.ndarray]:
        inside = row @ first + bias
        value = np.maximum(inside, 0) @ second + last
        by_value = np.array(
            [(way(value + h)[0] - way(value - h)[0]) / 2e-6 for h in 1e-6 * np.eye(len(value))]
        )
        return way(value)[0], first @ ((inside > 0) * (second @ by_value))

    slopes = np.array([score(start + share * (end - start))[1] for share in shares])
    steps = np.diff(shares)[:, np.newaxis]
    return (end - start) * (steps * (slopes[1:] + slopes[:-1]) / 2).sum(axis=0)


def odds(place: int, value: np.ndarray) -> np.ndarray:
    return np.array([value[place] - np.log(np.exp(np.delete(value, place)).sum())])


WAYS = {
    "a quantity": (1, "linear", scores.quantity, [1], lambda value: value),
    "probabilities": (CLASSES, "softmax", scores.odds_of_probabilities, [0, 1, 0], partial(odds, 1)),
    "logits": (CLASSES, "linear", scores.odds_of_logits, [0, 0, 1], partial(odds, 2)),
    "the second of two": (1, "sigmoid", scores.odds_of_probability, [1], lambda value: value),
    "the first of two": (1, "sigmoid", scores.odds_of_probability, [0], lambda value: -value),
    "the first of two, as logit": (1, "linear", scores.odds_of_logit, [0], lambda value: -value),
    "a class of its own": (CLASSES, "linear", scores.chosen, [0, 1, 0], lambda value: value[1:]),
}


@pytest.mark.parametrize(("outputs", "activation", "score", "given", "way"), WAYS.values(), ids=WAYS)
def test_parts_are_those_of_a_plain_calculation(
    outputs: int, activation: str, score: ScoreOf, given: list[int], way: Callable[[np.ndarray], np.ndarray]
) -> None:
    weights = dense(outputs)
    net = bound(nets.mlp(FEATURES, UNITS, outputs, activation), score, weights)
    start, end = drawn((FEATURES,), (FEATURES,))
    marks = np.array(given, np.float32)
    asked = []

    def at(points: Any) -> Any:
        asked.extend(points[0])
        return net.at(points, given=marks)

    found = attribute(at, [start], net.enter([end[np.newaxis]]), net.rows)
    shares = np.sort((np.array(asked) - start) @ (end - start) / np.square(end - start).sum())
    (parts,) = net.leave(found.parts)
    assert parts == pytest.approx(plain(weights, way, start, end, shares), abs=1e-4)
    difference = found.score - found.baseline
    assert difference == pytest.approx(parts.sum(), rel=2 * ENOUGH)
    exact = plain(weights, way, start, end, np.linspace(0, 1, 20_000))
    assert parts == pytest.approx(exact, abs=3 * ENOUGH * abs(difference))


def embedding() -> str:
    return nets.sequential(
        [2],
        nets.layer("Embedding", input_dim=6, output_dim=3),
        nets.layer("Flatten"),
        nets.layer("Dense", units=1),
    )


def test_codes_are_explained_by_their_vectors() -> None:
    """The net is linear, so what each embedded code adds to the score can be computed directly."""
    table, kernel, bias = drawn((6, 3), (6, 1), (1,))
    net = bound(embedding(), scores.quantity, [table, kernel, bias])
    shares = np.zeros((6, 2))
    shares[1, 0], shares[2:4, 1] = 1.0, 0.5
    start = net.enter_mean([np.zeros(2, np.float32)], [shares])
    end = net.enter([np.array([[4, 5]], np.float32)])
    found = attribute(partial(net.at, given=np.ones(1, np.float32)), start, end, net.rows)
    (parts,) = net.leave(found.parts)
    moved = table[[4, 5]] - np.stack([table[1], table[2:4].mean(axis=0)])
    assert parts == pytest.approx((moved.ravel() * kernel[:, 0]).reshape(2, 3).sum(axis=1), abs=1e-5)
    assert found.score == pytest.approx(net.answer([np.array([[4, 5]], np.float32)])[0, 0], abs=1e-5)


REFUSED = {
    "mask": nets.sequential(
        [2],
        nets.layer("Embedding", input_dim=6, output_dim=3, mask_zero=True),
        nets.layer("GlobalAveragePooling1D"),
        nets.layer("Dense", units=1),
    ),
    "codes": nets.sequential(
        [1], nets.layer("CategoryEncoding", num_tokens=3, output_mode="one_hot"), nets.layer("Dense", units=1)
    ),
    "behind": nets.sequential(
        [2],
        nets.layer("Reshape", target_shape=[2]),
        nets.layer("Embedding", input_dim=6, output_dim=3),
        nets.layer("Flatten"),
        nets.layer("Dense", units=1),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_layer_that_jumps_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(CerebroError, match='layer "(embedding|categoryencoding)_[12]" cannot') as caught:
        Slopes(architecture.describe(REFUSED[name]), scores.quantity)
    assert caught.value.sqlstate == "0A000"
