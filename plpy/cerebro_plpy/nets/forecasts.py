"""Nets that continue a window of numbers: NLinear, DLinear, and a net of blocks like NHITS."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cerebro_plpy.errors import DATATYPE_MISMATCH, CerebroError
from cerebro_plpy.nets.fitting import NetOutput, NetRows, branches, flattened
from cerebro_plpy.nets.graph import Graph, LayerOutput

# The moving average that DLinear takes for the trend.
TREND = 25
# For each block, the number of values that it pools, and of forecast values for each number that it gives.
BLOCKS = ((4, 4), (2, 2), (1, 1))


def make_nlinear(graph: Graph, wanted: NetRows, given: Mapping[str, Any]) -> LayerOutput:
    """Add layers that subtract the window's last value from each of its values.

    Return the result, concatenated with the other inputs.
    """
    window, others = _inputs(graph, wanted)
    return _beside(graph, _less(graph, window, _last(graph, window, wanted)), others)


def make_dlinear(graph: Graph, wanted: NetRows, given: Mapping[str, Any]) -> LayerOutput:
    """Add layers that split the window, less its last value, into a moving average and the rest.

    Return both parts, concatenated with the other inputs.
    """
    window, others = _inputs(graph, wanted)
    window = _less(graph, window, _last(graph, window, wanted))
    width = _width(wanted)
    column = graph.layer("Reshape", window, rank=2, target_shape=[width, 1])
    size = min(TREND, width)
    trend = graph.layer("AveragePooling1D", column, pool_size=size, strides=1, padding="same")
    trend = graph.layer("Flatten", trend, rank=1)
    return _beside(graph, trend, [_less(graph, window, trend), *others])


def make_nhits(graph: Graph, wanted: NetRows, given: Mapping[str, Any]) -> LayerOutput:
    """Add blocks of layers, and return the numbers that each contributes to the forecast, concatenated.

    Each block pools fewer values than the block before it, and gets the window without the part that the
    blocks before it have explained.
    """
    window, others = _inputs(graph, wanted)
    rest = _less(graph, window, _last(graph, window, wanted))
    width, horizon = _width(wanted), max(output.width for output in wanted.outputs)
    knots = []
    for number, (pooled, sparse) in enumerate(BLOCKS, 1):
        size = min(pooled, width)
        column = graph.layer("Reshape", rest, rank=2, target_shape=[width, 1])
        column = graph.layer("MaxPooling1D", column, pool_size=size, strides=size, padding="same")
        node = _beside(graph, graph.layer("Flatten", column, rank=1), others)
        for _ in range(given["depth"]):
            node = graph.layer("Dense", node, units=given["width"], activation=given["activation"])
            node = graph.layer("Dropout", node, rate=given["dropout"])
        knots.append(graph.layer("Dense", node, units=math.ceil(horizon / sparse)))
        if number < len(BLOCKS):
            rest = _less(graph, rest, graph.layer("Dense", node, units=width))
    return _beside(graph, knots[0], knots[1:])


def continue_last(
    graph: Graph, node: LayerOutput, wanted: NetRows, given: Mapping[str, Any]
) -> list[LayerOutput]:
    """Add an output for each label: the last value of the window plus the change that the net predicts."""
    window = graph.input_at(0, rank=1)
    return [_continued(graph, node, window, wanted, output) for output in wanted.outputs]


def _continued(
    graph: Graph, node: LayerOutput, window: LayerOutput, wanted: NetRows, output: NetOutput
) -> LayerOutput:
    if output.is_classes:
        raise CerebroError(
            f'"{output.name}" is of classes, and a window is continued by numbers',
            hint='Write {"task": "regression"} when you pack, or choose another net.',
            sqlstate=DATATYPE_MISMATCH,
        )
    flat = flattened(graph, node)
    # Before it learns, it answers with the last value.
    change = graph.layer("Dense", flat, units=output.width, kernel_initializer="zeros")
    named = output.label if len(output.shape) < 2 else ""
    head = graph.layer("Add", change, _last(graph, window, wanted), name=named)
    if len(output.shape) > 1:
        head = graph.layer("Reshape", head, rank=len(output.shape), target_shape=list(output.shape))
    return head


def _inputs(graph: Graph, wanted: NetRows) -> tuple[LayerOutput, list[LayerOutput]]:
    """Return the window, which is the first input, and the other inputs, flattened."""
    window, *others = branches(graph, wanted)
    if len(wanted.inputs[0]) != 1:
        raise CerebroError(
            f"the first input has rows of shape {list(wanted.inputs[0])}, and a window has one dimension",
            sqlstate=DATATYPE_MISMATCH,
        )
    return window, [flattened(graph, node) for node in others]


def _width(wanted: NetRows) -> int:
    return wanted.inputs[0][0]


def _last(graph: Graph, window: LayerOutput, wanted: NetRows) -> LayerOutput:
    width = _width(wanted)
    column = graph.layer("Reshape", window, rank=2, target_shape=[width, 1])
    last = graph.layer("Cropping1D", column, cropping=[width - 1, 0])
    return graph.layer("Flatten", last, rank=1)


def _less(graph: Graph, node: LayerOutput, other: LayerOutput) -> LayerOutput:
    return graph.layer("Add", node, graph.layer("Rescaling", other, scale=-1.0, offset=0.0))


def _beside(graph: Graph, node: LayerOutput, others: Sequence[LayerOutput]) -> LayerOutput:
    return graph.layer("Concatenate", node, *others) if others else node
