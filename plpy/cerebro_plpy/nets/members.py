"""Builds the net `tabm`: many members that share nearly all weights, on numbers encoded piece by piece.

After TabM (Gorishniy and others, 2024): each member has its own factors on the inputs and its own output
layer, and learns by its own error. The net answers with the mean of the members' answers. Numbers are encoded
by their position between quantiles of the training rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cerebro_plpy.madlib.layers import MEMBERS, TAKE
from cerebro_plpy.nets.fitting import NetOutput, NetRows, branches, flattened, in_unit, joined, widths
from cerebro_plpy.nets.graph import Graph, LayerOutput, initializer

# The most pieces times columns of an input: the architecture has two numbers for each of them.
MOST_PIECES = 16_384
# A column with no more edges than this has one piece, and is not encoded.
LEAST_PIECES = 2
# Two quantiles are different if they are further apart than this share of the range of a number's values.
CLOSEST = 1e-5
# No value lies beyond this edge, so the share of a piece that begins there is always 0.
_BEYOND = 1e30


def make(graph: Graph, wanted: NetRows, given: Mapping[str, Any]) -> LayerOutput:
    """Add the hidden layers, and return the output of the last one: for each row, one vector per member."""
    parts, width = [], 0
    for number, (node, own) in enumerate(zip(branches(graph, wanted), widths(wanted), strict=True)):
        if graph.is_input(node) and node.rank == 1:
            found, own = _encoded(graph, node, own, wanted.values(number), given)
            parts += found
        else:
            parts.append(flattened(graph, node))
        width += own
    node = joined(graph, parts)
    members = given["members"]
    node = graph.layer(
        "EinsumDense", node, rank=2, equation="bi,ki->bki", output_shape=[members, width],
        kernel_initializer=initializer("RandomNormal", stddev=1.0),
    )  # fmt: skip
    for _ in range(given["depth"]):
        node = graph.layer("Dense", node, units=given["width"], activation=given["activation"])
        node = graph.layer("Dropout", node, rate=given["dropout"])
    return node


def heads(graph: Graph, node: LayerOutput, wanted: NetRows, given: Mapping[str, Any]) -> list[LayerOutput]:
    """Add an output for each label; its answer is the mean of the members' answers."""
    return [_head(graph, node, output, given) for output in wanted.outputs]


def _head(graph: Graph, node: LayerOutput, output: NetOutput, given: Mapping[str, Any]) -> LayerOutput:
    near = 1 / math.sqrt(given["width"])
    node = graph.layer(
        "EinsumDense", node, equation="bkw,kwo->bko", output_shape=[given["members"], output.width],
        bias_axes="ko", kernel_initializer=initializer("RandomUniform", minval=-near, maxval=near),
    )  # fmt: skip
    node = graph.layer(MEMBERS, node, classes=output.is_classes)
    if output.is_classes:
        node = graph.layer("Softmax", node)
    own = "" if output.moments else output.label
    return in_unit(graph, graph.layer("GlobalAveragePooling1D", node, rank=1, name=own), output)


def _encoded(
    graph: Graph, node: LayerOutput, width: int, values: np.ndarray, given: Mapping[str, Any]
) -> tuple[list[LayerOutput], int]:
    """Return outputs for the columns of an input, and the number of values per row in all of them.

    Columns with more than two different values are encoded piece by piece; other columns stay as they are.
    """
    most = min(given["pieces"], MOST_PIECES // max(1, values.shape[1]))
    edges = [_edges(column, most) for column in values.T]
    cut = [place for place, found in enumerate(edges) if len(found) > LEAST_PIECES]
    if not cut:
        return [node], width
    left = [place for place in range(len(edges)) if place not in cut]
    numbers = graph.layer(TAKE, node, indices=cut, axis=1) if left else node
    found = [_in_pieces(graph, numbers, [edges[place] for place in cut], given["embedding"])]
    width = len(left) + len(cut) * given["embedding"]
    return [graph.layer(TAKE, node, indices=left, axis=1), *found] if left else found, width


def _edges(values: np.ndarray, pieces: int) -> np.ndarray:
    """Return the quantiles of a column that bound its pieces, leaving out quantiles that are nearly equal."""
    found = np.quantile(values, np.linspace(0, 1, pieces + 1))
    apart = np.diff(found, prepend=-np.inf) > CLOSEST * (found[-1] - found[0])
    return found[apart]


def _in_pieces(graph: Graph, node: LayerOutput, edges: Sequence[np.ndarray], width: int) -> LayerOutput:
    """Add layers that encode each number as a vector of `width` values, by its share of each piece.

    A number's share of a piece is 0 below the piece and 1 above it; within the piece, it grows from 0 to 1.
    """
    pieces = max(map(len, edges)) - 1
    begins = np.full((pieces, len(edges)), _BEYOND)
    widths = np.ones((pieces, len(edges)))
    for place, found in enumerate(edges):
        begins[: len(found) - 1, place] = found[:-1]
        widths[: len(found) - 1, place] = np.diff(found)
    node = graph.layer("RepeatVector", node, rank=2, n=pieces)
    node = graph.layer(
        "Normalization", node, axis=[1, 2], mean=begins.tolist(), variance=np.square(widths).tolist()
    )
    node = graph.layer("ReLU", node, max_value=1.0)
    near = 1 / math.sqrt(pieces)
    node = graph.layer(
        "EinsumDense", node, equation="btf,tfd->bfd", output_shape=[len(edges), width], bias_axes="fd",
        kernel_initializer=initializer("RandomUniform", minval=-near, maxval=near),
    )  # fmt: skip
    return graph.layer("Flatten", node, rank=1)
