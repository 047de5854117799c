"""Spreads the features of a graph's nodes along its edges, hop by hop, and finds what a change reaches.

In a hop, each node gets a weighted sum of its neighbours' features, as the hop before has left them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import sparse

from cerebro_plpy.errors import OUT_OF_RANGE, CerebroError
from cerebro_plpy.threads import Threads, Tick

MEAN, SUM, SYMMETRIC = "mean", "sum", "symmetric"
WAYS = (MEAN, SUM, SYMMETRIC)
# The number of columns that all threads together sum at a time, in double precision, and the most threads.
_BLOCK, _MOST_THREADS = 16, 4
# The number of hops of an error or a class, and the largest correction, as a multiple of the error that
# arrived.
_ROUNDS, _MOST_TIMES = 50, 1000.0


@dataclass(frozen=True)
class NumberedEdges:
    """Edges between numbered nodes: source and target, each edge's weight, and the number of its kind."""

    source: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    kind: np.ndarray

    def __len__(self) -> int:
        return len(self.source)

    def choose_kind(self, number: int) -> NumberedEdges:
        own = self.kind == number
        return NumberedEdges(self.source[own], self.target[own], self.weight[own], self.kind[own])


def build_matrix(nodes: int, edges: NumberedEdges, aggregate: str) -> sparse.csr_array:
    """Return the matrix by which a hop multiplies the features: it has a row for each receiving node.

    Several edges between two nodes count as one, with the sum of their weights. `mean` divides by the sum of
    a node's weights. `symmetric` lets an edge lead both ways, adds an edge from each node to itself, and
    divides by the square roots of the sums at both ends.
    """
    # Sums of weights do not depend on the order in which the server gave the edges.
    ends, weight = edges.target * nodes + edges.source, edges.weight
    same = not len(weight) or np.ptp(weight) == 0
    order = np.argsort(ends) if same else np.lexsort((weight, ends))
    places = (edges.target[order], edges.source[order])
    matrix = sparse.coo_array((edges.weight[order], places), shape=(nodes, nodes)).tocsr()
    if aggregate == SUM:
        return matrix
    if aggregate == MEAN:
        return sparse.diags_array(_invert_sums(matrix)) @ matrix
    both = matrix.maximum(matrix.T) + sparse.eye_array(nodes, format="csr")
    root = sparse.diags_array(np.sqrt(_invert_sums(both)))
    return (root @ both @ root).tocsr()


def _invert_sums(matrix: sparse.csr_array) -> np.ndarray:
    """Return 1 divided by the sum of each row of the matrix; 0 for a node without edges."""
    with np.errstate(over="ignore"):
        sums = matrix.sum(axis=1)
    # One divided by infinity would be the zero of a node without edges.
    if not np.isfinite(sums).all():
        raise CerebroError(
            "the weights of a node's edges add up to more than double precision holds",
            hint="Divide all weights by the same number in a view.",
            sqlstate=OUT_OF_RANGE,
        )
    with np.errstate(over="ignore"):
        return np.divide(1.0, sums, out=np.zeros_like(sums, dtype=float), where=sums > 0)


def propagate(
    matrix: sparse.csr_array, features: np.ndarray, hops: int, teleport: float, threads: Threads
) -> Iterator[np.ndarray]:
    """Yield the features after each hop.

    In each hop, the share `teleport` comes from the original features.
    """
    reached = features
    for _ in range(hops):
        reached = make_hop(matrix, reached, features, teleport, threads)
        yield reached


def make_hop(
    matrix: sparse.csr_array, reached: np.ndarray, features: np.ndarray, teleport: float, threads: Threads
) -> np.ndarray:
    """Return the features after one more hop.

    `reached` are the features after the hop before, and `features` the original ones. Each column is summed
    by itself, in the order of the edges, so the number of threads changes no bit.
    """
    made = np.empty((len(features), reached.shape[1]), reached.dtype)
    count = max(1, min(threads.count, _MOST_THREADS))
    width = _BLOCK // count

    def sum_block(start: int, tick: Tick) -> None:
        tick()
        block = slice(start, start + width)
        # A number beyond single precision becomes infinite, for which callers raise an error.
        with np.errstate(over="ignore", invalid="ignore"):
            summed = matrix @ reached[:, block].astype(np.float64)
            made[:, block] = (1 - teleport) * summed + teleport * features[:, block]

    starts = range(0, reached.shape[1], width)
    Threads(count, threads.tick).run([partial(sum_block, start) for start in starts])
    return made


def find_digests(labels: np.ndarray, edges: NumberedEdges, kinds: int, aggregate: str) -> np.ndarray:
    """Return a digest of the edges of each kind that each node has: an array (nodes, kinds).

    A later call compares the digests to see which nodes' edges have changed. `labels` identify the nodes in
    both calls: a node keeps its label, even if its number changes.
    """
    found = np.zeros((len(labels), kinds), np.uint64)
    weights = _mix(np.ascontiguousarray(edges.weight, np.float64).view(np.uint64))
    known = _mix(labels.astype(np.uint64))
    np.add.at(found, (edges.target, edges.kind), _mix(known[edges.source] ^ weights))
    if aggregate == SYMMETRIC:
        np.add.at(found, (edges.source, edges.kind), _mix(~known[edges.target] ^ weights))
    return found.view(np.int64)


def _mix(values: np.ndarray) -> np.ndarray:
    """Return a hash of each value; similar values have very different hashes."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def find_touched(
    matrix: sparse.csr_array,
    edges: np.ndarray,
    features: np.ndarray,
    *,
    hops: int,
    both_ends: bool,
    keeps: bool,
) -> list[np.ndarray]:
    """Return, for each hop, which nodes get other features than before a change.

    `edges` marks the nodes whose edges changed, `features` the nodes whose own features changed. With
    `both_ends`, a change in a node's edges also changes what all its neighbours get from it. With `keeps`,
    each hop adds a share of the node's own features.
    """
    pattern = sparse.csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), matrix.shape)
    stays = edges | features if keeps else edges
    touched, found = features, list[np.ndarray]()
    for _ in range(hops):
        given = touched | edges if both_ends else touched
        touched = stays | (pattern @ given.astype(np.float64) > 0)
        found.append(touched)
    return found


@dataclass(frozen=True)
class KnownClasses:
    """The answers of a model for all nodes, and the true classes of the nodes whose class is known."""

    answers: np.ndarray
    is_known: np.ndarray
    truth: np.ndarray


def correct_and_smooth(
    matrix: sparse.csr_array, given: KnownClasses, correct: float, smooth: float, threads: Threads
) -> np.ndarray:
    """Return the probabilities after Correct and Smooth (Huang and others, 2020).

    First the errors of the known nodes spread along the edges and correct the answers of the other nodes.
    Then the known classes and the corrected answers spread. `correct` and `smooth` are the shares that a node
    gets from its neighbours.
    """
    known = given.is_known[:, None]
    errors = np.where(known, given.truth - given.answers, 0.0)
    spread = _spread(matrix, errors, correct, -1.0, threads)
    usual = np.abs(errors[given.is_known]).sum(axis=1).mean()
    sizes = np.abs(spread).sum(axis=1, keepdims=True)
    times = np.divide(usual, sizes, out=np.ones_like(sizes), where=sizes > 0)
    corrected = given.answers + np.where(times > _MOST_TIMES, 1.0, times) * spread
    found = _spread(matrix, np.where(known, given.truth, corrected), smooth, 0.0, threads)
    totals = found.sum(axis=1, keepdims=True)
    return np.divide(found, totals, out=given.answers.copy(), where=totals > 0)


def _spread(
    matrix: sparse.csr_array, values: np.ndarray, share: float, least: float, threads: Threads
) -> np.ndarray:
    found = values
    for _ in range(_ROUNDS):
        found = np.clip(make_hop(matrix, found, values, 1 - share, threads), least, 1.0)
    return found
