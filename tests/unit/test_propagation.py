"""Products of a graph's matrix with features, beside the same in dense arrays."""

from __future__ import annotations

import numpy as np
import pytest

from cerebro_plpy.relations.propagation import MEAN, SUM, SYMMETRIC, WAYS, build_matrix, propagate

NODES, EDGES, WIDTH = 60, 300, 19


def hops(
    source: np.ndarray, target: np.ndarray, weight: np.ndarray, x: np.ndarray, how: str, teleport: float = 0.0
) -> list[np.ndarray]:
    matrix = build_matrix(len(x), source, target, weight, how)
    return list(propagate(matrix, x, 2, teleport, lambda: None))


def dense(source: np.ndarray, target: np.ndarray, weight: np.ndarray, nodes: int, how: str) -> np.ndarray:
    """The matrix by which a hop multiplies, edge by edge."""
    found = np.zeros((nodes, nodes))
    for start, end, counts in zip(source, target, weight, strict=True):
        found[end, start] += counts
    if how == SUM:
        return found
    if how == MEAN:
        sums = found.sum(axis=1, keepdims=True)
        return np.divide(found, sums, out=np.zeros_like(found), where=sums > 0)
    found = np.maximum(found, found.T) + np.eye(nodes)
    degrees = found.sum(axis=1)
    return found / np.sqrt(degrees[:, None] * degrees[None, :])


@pytest.mark.parametrize("teleport", [0.0, 0.25])
@pytest.mark.parametrize("how", WAYS)
def test_a_hop_is_the_product(how: str, teleport: float) -> None:
    rng = np.random.default_rng(3)
    # Few targets: some nodes have no edge, and some edges stand twice.
    source, target = rng.integers(0, NODES, EDGES), rng.integers(0, NODES // 2, EDGES)
    weight, x = rng.uniform(0.1, 3, EDGES), rng.normal(size=(NODES, WIDTH)).astype(np.float32)
    matrix, wanted = dense(source, target, weight, NODES, how), x.astype(np.float64)
    for found in hops(source, target, weight, x, how, teleport):
        wanted = (1 - teleport) * matrix @ wanted + teleport * x
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("how", WAYS)
def test_the_order_of_the_edges_has_no_say(how: str) -> None:
    rng = np.random.default_rng(4)
    source, target = rng.integers(0, 9, EDGES), rng.integers(0, 9, EDGES)
    weight, x = rng.uniform(0.1, 3, EDGES), rng.normal(size=(9, 3)).astype(np.float32)
    other = rng.permutation(EDGES)
    first, second = (hops(source[o], target[o], weight[o], x, how) for o in (np.arange(EDGES), other))
    assert [one.tobytes() for one in first] == [one.tobytes() for one in second]


def test_the_nodes_around_tell_what_the_node_does_not() -> None:
    """Two communities, and features that are mostly noise."""
    rng = np.random.default_rng(5)
    group = np.arange(600) % 2
    a, b = rng.integers(0, 600, 50_000), rng.integers(0, 600, 50_000)
    kept = rng.random(50_000) < np.where(group[a] == group[b], 0.25, 0.05)
    x = (group[:, None] + rng.normal(scale=2, size=(600, 1))).astype(np.float32)

    def right(values: np.ndarray) -> float:
        return float(((values[:, 0] > np.median(values)) == group).mean())

    weight = np.ones(kept.sum())
    _, reached = hops(a[kept], b[kept], weight, x, SYMMETRIC)
    assert right(reached) > right(x) + 0.2
