"""Builds the first layers of the net `graph`: a weighted sum of blocks of columns.

After SIGN (Frasca and others, 2020): cerebro.propagate makes columns by hops along the edges of a graph. In a
hop, each row gets a sum over its neighbours. A block is the columns that one hop has made, or the columns
that no hop has made. Each block has a dense layer, and the weights of the sum of blocks are learned.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from cerebro_plpy.features.specification import FeatureInput
from cerebro_plpy.madlib.layers import TAKE
from cerebro_plpy.nets.fitting import NetRows, branches, flattened, joined
from cerebro_plpy.nets.graph import Graph, LayerOutput, initializer

_HOP = re.compile(r"_\d+$")
# All columns that no hop has made.
OWN = ""


def weigh_blocks(graph: Graph, wanted: NetRows, given: Mapping[str, Any]) -> LayerOutput:
    """Add a dense layer for each block, and return the weighted sum of their outputs."""
    found = []
    for nodes in _blocks(graph, wanted).values():
        node = graph.layer(
            "Dense", joined(graph, nodes), units=given["width"], activation=given["activation"]
        )
        node = graph.layer("Dropout", node, rate=given["dropout"])
        found.append(graph.layer("Reshape", node, rank=2, target_shape=[given["width"], 1]))
    if len(found) == 1:
        return flattened(graph, found[0])
    node = graph.layer("Concatenate", *found)
    # At first, all blocks count the same.
    same = initializer("Constant", value=1 / len(found))
    node = graph.layer("Dense", node, units=1, use_bias=False, kernel_initializer=same, name="hops")
    return flattened(graph, node)


def _blocks(graph: Graph, wanted: NetRows) -> dict[str, list[LayerOutput]]:
    """Return the columns of each block, flattened; without a feature specification, each input is a block."""
    nodes = [flattened(graph, node) for node in branches(graph, wanted)]
    found: dict[str, list[LayerOutput]] = {}
    if wanted.features is None:
        return {str(number): [node] for number, node in enumerate(nodes)}
    columns = [feature.name for feature in wanted.features.features]
    for node, one in zip(nodes, wanted.features.inputs, strict=True):
        places = _places(one, columns)
        for block, taken in places.items():
            part = node if len(places) == 1 else graph.layer(TAKE, node, indices=taken, axis=1)
            found.setdefault(block, []).append(part)
    return found


def _places(one: FeatureInput, columns: Sequence[str]) -> dict[str, list[int]]:
    """Return the positions of each block's columns within one input."""
    found: dict[str, list[int]] = {}
    first = 0
    for feature in one.features:
        places = range(first, first + feature.width)
        found.setdefault(find_block(feature.name, columns), []).extend(places)
        first += feature.width
    return found


def find_block(name: str, columns: Sequence[str]) -> str:
    """Return the block of a column, for example `cites_1` for `x_cites_1`; `OWN` if no hop has made it."""
    if not _HOP.search(name):
        return OWN
    bases = [base for base in columns if name.startswith(f"{base}_")]
    return name[len(max(bases, key=len)) + 1 :] if bases else OWN
