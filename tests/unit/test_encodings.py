"""Numbers encoded piece by piece equal those of the package rtdl_num_embeddings.

Its values were recorded with version 0.0.11, of which `compute_bins(x, n_bins=8)` makes the edges and
`PiecewiseLinearEncoding` the values.
"""

from __future__ import annotations

import numpy as np
import pytest

from cerebro_plpy.engine.plain.forward import plain_net
from cerebro_plpy.nets import members
from cerebro_plpy.nets.graph import Graph

PIECES = 8
RANDOM = np.random.RandomState(5)
NUMBERS = np.c_[RANDOM.normal(size=200), np.round(RANDOM.exponential(size=200), 1)].astype(np.float32)
EDGES = (
    [
        -2.8596880435943604, -1.0009586811065674, -0.5920782089233398, -0.28877073526382446,
        -0.0014530329499393702, 0.39914244413375854, 0.7316466569900513, 1.1568117141723633,
        2.5208077430725098,
    ],
    [
        0.0, 0.10000000149011612, 0.30000001192092896, 0.4000000059604645, 0.6000000238418579, 0.9375,
        1.399999976158142, 2.200000047683716, 6.5,
    ],
)  # fmt: skip
# By row and number: the share of the last piece that the number has entered, and the number of that piece.
ENTERED = (
    [(5, 0.12656991183757782), (1, 0.4999999403953552)],
    [(2, 0.861198902130127), (5, 0.13513517379760742)],
    [(7, 0.9339905977249146), (7, 0.1395348459482193)],
    [(3, 0.1276586949825287), (1, 0.9999999403953552)],
)


def test_the_edges_are_the_quantiles_of_the_package() -> None:
    for column, edges in zip(NUMBERS.T, EDGES, strict=True):
        assert members._edges(column, PIECES) == pytest.approx(edges, rel=1e-6)


def test_each_number_is_encoded_as_by_the_package() -> None:
    graph = Graph()
    node = members._in_pieces(graph, graph.input([2]), [np.array(edges) for edges in EDGES], PIECES)
    # With these weights, the encoding itself comes out.
    weights = [np.tile(np.eye(PIECES)[:, None], (1, 2, 1)), np.zeros((2, PIECES))]
    data = b"".join(array.astype("<f4").tobytes() for array in weights)
    net = plain_net(graph.as_json([node], "encoding"), data)
    assert net is not None
    (found,) = net([NUMBERS[:4]])
    wanted = np.zeros((4, 2, PIECES))
    for row, pair in enumerate(ENTERED):
        for number, (piece, share) in enumerate(pair):
            wanted[row, number, :piece] = 1
            wanted[row, number, piece] = share
    np.testing.assert_allclose(found.reshape(4, 2, PIECES), wanted, atol=1e-6)
