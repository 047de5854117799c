"""Features that are propagated along edges are the same as by products with dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.relations.propagation import (
    MEAN,
    SUM,
    SYMMETRIC,
    WAYS,
    KnownClasses,
    NumberedEdges,
    build_matrix,
    correct_and_smooth,
    find_digests,
    find_touched,
    propagate,
)
from cerebro_plpy.threads import Threads

NODES, EDGES, WIDTH = 60, 300, 19


def edges_of(source: np.ndarray, target: np.ndarray, weight: np.ndarray) -> NumberedEdges:
    return NumberedEdges(source, target, weight, np.zeros(len(source), np.int32))


def hops(
    source: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray,
    x: np.ndarray,
    how: str,
    teleport: float = 0.0,
    threads: int = 1,
) -> list[np.ndarray]:
    matrix = build_matrix(len(x), edges_of(source, target, weight), how)
    return list(propagate(matrix, x, 2, teleport, Threads(threads, lambda: None)))


def dense(source: np.ndarray, target: np.ndarray, weight: np.ndarray, nodes: int, how: str) -> np.ndarray:
    """Return the dense matrix by which one hop along the edges multiplies the features."""
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
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("width", [1, 16, 21])
def test_threads_change_no_bit(width: int) -> None:
    rng = np.random.default_rng(8)
    source, target = rng.integers(0, NODES, EDGES), rng.integers(0, NODES, EDGES)
    weight, x = rng.uniform(0.1, 3, EDGES), rng.normal(size=(NODES, width)).astype(np.float32)
    alone = hops(source, target, weight, x, MEAN, 0.25)
    for threads in (2, 3, 8):
        beside = hops(source, target, weight, x, MEAN, 0.25, threads)
        assert [one.tobytes() for one in beside] == [one.tobytes() for one in alone]


@pytest.mark.parametrize("how", WAYS)
def test_the_order_of_the_edges_has_no_say(how: str) -> None:
    rng = np.random.default_rng(4)
    source, target = rng.integers(0, 9, EDGES), rng.integers(0, 9, EDGES)
    weight, x = rng.uniform(0.1, 3, EDGES), rng.normal(size=(9, 3)).astype(np.float32)
    other = rng.permutation(EDGES)
    first, second = (hops(source[o], target[o], weight[o], x, how) for o in (np.arange(EDGES), other))
    assert [one.tobytes() for one in first] == [one.tobytes() for one in second]


def test_the_nodes_around_tell_what_the_node_does_not() -> None:
    """Features of two communities are mostly noise, but after two hops they tell the communities apart."""
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


@pytest.mark.parametrize("teleport", [0.0, 0.25])
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("seed", range(4))
def test_exactly_the_nodes_that_changes_reach_become_others(seed: int, how: str, teleport: float) -> None:
    """Edges are added, removed and reweighted and a node changes: only nodes within two hops change."""
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, NODES, 60), rng.integers(0, NODES, 60)
    weight, x = rng.uniform(0.1, 3, 60), rng.normal(size=(NODES, 2)).astype(np.float32)
    keep = np.arange(60) != 7
    later = edges_of(
        np.append(source[keep], 5),
        np.append(target[keep], 9),
        np.append(weight[keep] + (keep.cumsum()[keep] == 3), 2),
    )
    other = x.copy()
    other[11] += 1
    labels = rng.permutation(NODES)
    digests = [find_digests(labels, one, 1, how)[:, 0] for one in (edges_of(source, target, weight), later)]
    before = hops(source, target, weight, x, how, teleport)
    after = hops(later.source, later.target, later.weight, other, how, teleport)
    touched = find_touched(
        build_matrix(NODES, later, how),
        digests[0] != digests[1],
        (x != other).any(axis=1),
        hops=2,
        both_ends=how == SYMMETRIC,
        keeps=teleport > 0,
    )
    for first, second, reached in zip(before, after, touched, strict=True):
        others = (first != second).any(axis=1)
        assert not (others & ~reached).any() and 0 < reached.sum() < NODES * 0.7
        # A mean of one value is that, whatever the weight; and nodes that no edge reaches have sums of 0.
        assert how == MEAN or (how == SUM and not teleport) or (others == reached).all()


def test_edges_have_the_same_digest_whatever_their_order_and_the_numbers_of_nodes() -> None:
    rng = np.random.default_rng(2)
    edges, labels = edges_of(rng.integers(0, 9, 50), rng.integers(0, 9, 50), rng.random(50)), np.arange(9)
    found = find_digests(labels, edges, 1, SYMMETRIC)
    order, moved = rng.permutation(50), rng.permutation(9)
    other = edges_of(moved[edges.source][order], moved[edges.target][order], edges.weight[order])
    again = find_digests(np.argsort(moved), other, 1, SYMMETRIC)
    assert np.array_equal(found, again[moved])
    assert len(np.unique(found)) == 9


def test_correct_and_smooth_is_that_of_the_paper() -> None:
    """The result equals the paper's formula in SciPy, with a scale of the correction for each node."""
    rng = np.random.default_rng(6)
    a, b = rng.integers(0, NODES, EDGES), rng.integers(0, NODES, EDGES)
    answers = rng.dirichlet(np.ones(3), NODES)
    known = rng.random(NODES) < 0.4
    truth = np.where(known[:, None], np.eye(3)[rng.integers(0, 3, NODES)], 0)
    matrix = build_matrix(NODES, edges_of(a, b, np.ones(EDGES)), SYMMETRIC)
    alone = Threads(1, lambda: None)
    found = correct_and_smooth(matrix, KnownClasses(answers, known, truth), 0.7, 0.9, alone)

    counted = sparse.coo_array((np.ones(EDGES), (b, a)), shape=(NODES, NODES)).tocsr()
    plain = counted.maximum(counted.T) + sparse.eye_array(NODES)
    roots = sparse.diags_array(1 / np.sqrt(plain.sum(axis=1)))
    steps = roots @ plain @ roots
    errors = np.where(known[:, None], truth - answers, 0)
    spread = errors
    for _ in range(50):
        spread = np.clip(0.7 * (steps @ spread) + 0.3 * errors, -1, 1)
    usual = np.abs(errors[known]).sum() / known.sum()
    scale = usual / np.abs(spread).sum(axis=1, keepdims=True)
    scale[~np.isfinite(scale) | (scale > 1000)] = 1
    begins = np.where(known[:, None], truth, answers + scale * spread)
    wanted = begins
    for _ in range(50):
        wanted = np.clip(0.9 * (steps @ wanted) + 0.1 * begins, 0, 1)
    np.testing.assert_allclose(found, wanted / wanted.sum(axis=1, keepdims=True), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("how", [MEAN, SYMMETRIC])
def test_weights_that_add_up_to_infinity_are_refused(how: str) -> None:
    """Such a sum is infinite, and 1/infinity would give the node the weight 0, as if it had no edges."""
    ends = np.array([0, 1, 0]), np.array([2, 2, 1])
    with pytest.raises(CerebroError, match="more than double precision holds"):
        build_matrix(3, edges_of(*ends, np.full(3, 1.7e308)), how)
