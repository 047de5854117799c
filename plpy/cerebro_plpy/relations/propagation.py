"""Multiplies a graph's matrix with the nodes' features, hop by hop."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy import sparse

MEAN, SUM, SYMMETRIC = "mean", "sum", "symmetric"
WAYS = (MEAN, SUM, SYMMETRIC)
# Sums are in double precision, so many columns at a time.
_BLOCK = 16


def build_matrix(
    nodes: int, source: np.ndarray, target: np.ndarray, weight: np.ndarray, aggregate: str
) -> sparse.csr_array:
    """Return the matrix by which a hop multiplies the features: a row for each node that receives.

    Edges that stand several times count as one with the sum of their weights. `mean` divides by the sum of a
    node's weights. `symmetric` lets an edge lead both ways, gives each node an edge to itself, and divides by
    the square roots of the sums at both ends.
    """
    # Sums of weights do not depend on the order in which the server gave the edges.
    order = np.lexsort((weight, source, target))
    places = (target[order], source[order])
    matrix = sparse.coo_array((weight[order], places), shape=(nodes, nodes)).tocsr()
    if aggregate == SUM:
        return matrix
    if aggregate == MEAN:
        return sparse.diags_array(_invert(matrix.sum(axis=1))) @ matrix
    both = matrix.maximum(matrix.T) + sparse.eye_array(nodes, format="csr")
    root = sparse.diags_array(np.sqrt(_invert(both.sum(axis=1))))
    return (root @ both @ root).tocsr()


def _invert(sums: np.ndarray) -> np.ndarray:
    """Return 1 divided by each sum; 0 for a node without edges."""
    return np.divide(1.0, sums, out=np.zeros_like(sums, dtype=float), where=sums > 0)


def propagate(
    matrix: sparse.csr_array, features: np.ndarray, hops: int, teleport: float, tick: Callable[[], None]
) -> Iterator[np.ndarray]:
    """Yield what each hop makes of the features; a share `teleport` of the features themselves stays in."""
    reached = features
    for _ in range(hops):
        made = np.empty_like(features)
        for start in range(0, features.shape[1], _BLOCK):
            tick()
            block = slice(start, start + _BLOCK)
            summed = matrix @ reached[:, block].astype(np.float64)
            made[:, block] = (1 - teleport) * summed + teleport * features[:, block]
        reached = made
        yield reached
