"""Starting points: nets of useful size that a caller names, such as `tabular`, fitted to a packed table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_plpy.errors import DATATYPE_MISMATCH, CerebroError
from cerebro_plpy.logical.options import Validator, integer, number, one_of, read_object
from cerebro_plpy.madlib.nearest import unknown
from cerebro_plpy.nets import choices, forecasts, hops, line, members, periodic
from cerebro_plpy.nets.fitting import NetRows, branches, flattened, heads, joined
from cerebro_plpy.nets.graph import Graph, LayerOutput
from cerebro_plpy.nets.joining import TrainedLayers

ACTIVATIONS = ("relu", "gelu", "silu", "selu", "elu", "tanh")
Parameters = Mapping[str, Any]


def _share(key: str, value: object) -> float:
    found = number(0.0)(key, value)
    if found >= 1:
        raise CerebroError(f"option {key} is {found:g}", detail="It must be below 1.")
    return found


CHECKS: Mapping[str, Validator] = {
    "width": integer(1, 65536),
    "depth": integer(1, 64),
    "members": integer(2, 256),
    "pieces": integer(2, 1024),
    "embedding": integer(1, 1024),
    "frequencies": integer(1, 1024),
    "spread": number(0.0),
    "dropout": _share,
    "activation": one_of(*ACTIVATIONS),
}


def _usual_heads(graph: Graph, node: LayerOutput, wanted: NetRows, given: Parameters) -> list[LayerOutput]:
    return heads(graph, node, wanted)


@dataclass(frozen=True)
class StartingPoint:
    """A net that a caller can name: the defaults of its parameters, and the functions that build it."""

    defaults: Parameters
    make: Callable[[Graph, NetRows, Parameters], LayerOutput]
    heads: Callable[[Graph, LayerOutput, NetRows, Parameters], list[LayerOutput]] = _usual_heads


def _linear(graph: Graph, wanted: NetRows, given: Parameters) -> LayerOutput:
    return joined(graph, branches(graph, wanted))


def _block(graph: Graph, node: LayerOutput, given: Parameters) -> LayerOutput:
    """Add normalization and dense layers, and add the input of these layers to their output."""
    inner = graph.layer("LayerNormalization", node)
    inner = graph.layer("Dense", inner, units=given["width"], activation=given["activation"])
    inner = graph.layer("Dropout", inner, rate=given["dropout"])
    inner = graph.layer("Dense", inner, units=given["width"])
    return graph.layer("Add", node, inner)


def _blocks(graph: Graph, node: LayerOutput, given: Parameters) -> LayerOutput:
    node = graph.layer("Dense", flattened(graph, node), units=given["width"], activation=given["activation"])
    for _ in range(given["depth"]):
        node = _block(graph, node, given)
    return graph.layer("LayerNormalization", node)


def _tabular(graph: Graph, wanted: NetRows, given: Parameters) -> LayerOutput:
    flat = [flattened(graph, node) for node in branches(graph, wanted)]
    return _blocks(graph, joined(graph, flat), given)


def _graph(graph: Graph, wanted: NetRows, given: Parameters) -> LayerOutput:
    return _blocks(graph, hops.weigh_blocks(graph, wanted, given), given)


def _text(graph: Graph, wanted: NetRows, given: Parameters) -> LayerOutput:
    """Add convolutions over words with the maximum of each filter, and dense layers behind them."""
    found = []
    for node in branches(graph, wanted, words=True):
        if node.rank == 2:
            config = {"filters": given["width"], "kernel_size": 3, "padding": "same"}
            node = graph.layer("Conv1D", node, activation=given["activation"], **config)
            node = graph.layer("GlobalMaxPooling1D", node, rank=1)
        found.append(flattened(graph, node))
    node = joined(graph, found)
    for _ in range(given["depth"]):
        node = graph.layer("Dropout", node, rate=given["dropout"])
        node = graph.layer("Dense", node, units=given["width"], activation=given["activation"])
    return node


def _image(graph: Graph, wanted: NetRows, given: Parameters) -> LayerOutput:
    """Add blocks of convolution, normalization and pooling, in which filters double from block to block."""
    found = []
    for node in branches(graph, wanted):
        if node.rank == 3:
            for number in range(given["depth"]):
                filters = given["width"] * 2**number
                node = graph.layer("Conv2D", node, filters=filters, kernel_size=[3, 3], padding="same")
                node = graph.layer("BatchNormalization", node)
                node = graph.layer("Activation", node, activation=given["activation"])
                node = graph.layer("MaxPooling2D", node, pool_size=[2, 2], padding="same")
            node = graph.layer("GlobalAveragePooling2D", node, rank=1)
        found.append(flattened(graph, node))
    return graph.layer("Dropout", joined(graph, found), rate=given["dropout"])


def _series(graph: Graph, wanted: NetRows, given: Parameters) -> LayerOutput:
    """Add convolutions whose dilation doubles each time, and add the input of each to its output."""
    found = []
    for node in branches(graph, wanted, words=True):
        if node.rank == 2:
            node = graph.layer("Conv1D", node, filters=given["width"], kernel_size=1)
            for number in range(given["depth"]):
                config = {"filters": given["width"], "kernel_size": 3, "padding": "same"}
                inner = graph.layer("LayerNormalization", node)
                inner = graph.layer(
                    "Conv1D", inner, activation=given["activation"], dilation_rate=2**number, **config
                )
                inner = graph.layer("Dropout", inner, rate=given["dropout"])
                node = graph.layer("Add", node, inner)
            node = graph.layer("GlobalAveragePooling1D", node, rank=1)
        found.append(flattened(graph, node))
    return joined(graph, found)


_DENSE = {"width": 64, "depth": 2, "dropout": 0.1, "activation": "relu"}
_PERIODIC = {"width": 256, "depth": 3, "dropout": 0.15, "activation": "selu"}
_MEMBERS = {**_DENSE, "width": 96, "members": 16, "pieces": 24, "embedding": 12}
POINTS: Mapping[str, StartingPoint] = {
    "linear": StartingPoint({}, _linear),
    "tabular": StartingPoint(_DENSE, _tabular),
    "tabm": StartingPoint(_MEMBERS, members.make, members.heads),
    "realmlp": StartingPoint({**_PERIODIC, "frequencies": 16, "embedding": 3, "spread": 0.1}, periodic.make),
    "graph": StartingPoint({**_DENSE, "depth": 1, "dropout": 0.3}, _graph),
    "text": StartingPoint({**_DENSE, "depth": 1}, _text),
    "image": StartingPoint({"width": 16, "depth": 3, "dropout": 0.2, "activation": "relu"}, _image),
    "series": StartingPoint({"width": 32, "depth": 4, "dropout": 0.1, "activation": "relu"}, _series),
    "nlinear": StartingPoint({}, forecasts.make_nlinear, forecasts.continue_last),
    "dlinear": StartingPoint({}, forecasts.make_dlinear, forecasts.continue_last),
    "nhits": StartingPoint(
        {"width": 64, "depth": 2, "dropout": 0.1, "activation": "relu"},
        forecasts.make_nhits,
        forecasts.continue_last,
    ),
}
NEEDS = {
    "image": (3, "three dimensions, as images have"),
    "series": (2, "two dimensions, as series have"),
}
MOST = 1000
# Keras averages maps of at most three dimensions.
MOST_AVERAGED = 4


def is_title(title: str) -> bool:
    """Return whether a net's title is that of a starting point; any other title is a line of layers."""
    return title.split(" ")[0] in POINTS


def nets(text: str, given: str | None, wanted: NetRows) -> list[tuple[str, str]]:
    """Return the title and the JSON of each net that `text` stands for: a name or a line of layers.

    `given` is a JSON object of parameters for a net that is named. It may list values: `{"width": [64, 128]}`
    stands for two nets.
    """
    name = text.strip()
    if name not in POINTS:
        return [(title, _from_line(line, wanted)) for title, line in _find_lines(name, given)]
    point = POINTS[name]
    rank, what = NEEDS.get(name, (0, ""))
    if rank and all(len(shape) != rank for shape in wanted.inputs):
        raise CerebroError(
            f"'{name}' needs an input of {what}",
            detail=f"The inputs are {', '.join(map(str, map(list, wanted.inputs)))}.",
            sqlstate=DATATYPE_MISMATCH,
        )
    found = []
    for chosen in _combinations(name, point, given):
        graph = Graph()
        node = point.make(graph, wanted, chosen)
        shown = " ".join([name, *(f"{key}={value}" for key, value in chosen.items())])
        found.append((shown, graph.as_json(point.heads(graph, node, wanted, chosen), shown)))
    return found


def check(text: str, given: str | None) -> None:
    """Raise an error if `text` names no net, or `given` has parameters that the net does not have."""
    name = text.strip()
    if name in POINTS:
        _combinations(name, POINTS[name], given)
    else:
        for _, made in _find_lines(name, given):
            line.layers(made)


def _find_lines(name: str, given: str | None) -> Sequence[tuple[str, str]]:
    """Return the title and the text of each line of layers that `name`, which is no starting point, means."""
    if name.isidentifier():
        raise unknown(f"no net is called {name}", name, sorted(POINTS))
    if given is not None:
        raise CerebroError("params are for nets by name alone", hint=f"Names: {_NAMES}.")
    return choices.find_lines(name)


def nets_on_layer(text: str, begin: Callable[[], TrainedLayers], wanted: NetRows) -> list[tuple[str, str]]:
    """Return the title and the JSON of each net that a line of layers makes on top of trained layers."""
    found = []
    for title, own in choices.find_lines(text.strip()):
        made, begun = line.layers(own), begin()
        graph, node = begun.graph, begun.last
        if 1 < node.rank <= MOST_AVERAGED and made[0][0] in line.OF_VECTORS:
            node = graph.layer(f"GlobalAveragePooling{node.rank - 1}D", node, rank=1)
        shown = f"{title} on {begun.last.name}"
        found.append((shown, graph.as_json(heads(graph, line.add(graph, node, made), wanted), shown)))
    return found


def _from_line(text: str, wanted: NetRows) -> str:
    made, graph = line.layers(text), Graph()
    node = joined(graph, branches(graph, wanted, words=made[0][0] in line.SEQUENTIAL))
    return graph.as_json(heads(graph, line.add(graph, node, made), wanted), text)


def _combinations(name: str, point: StartingPoint, given: str | None) -> list[Parameters]:
    """Return one dictionary of parameters for each net that `given` stands for.

    `given` is a JSON object; where it lists several values, there is a net for each combination of values.
    Other parameters have their defaults.
    """
    said = {} if given is None else read_object(given, "params", 'Write {"width": [64, 128]}.')
    lists: dict[str, list[Any]] = {}
    for key, value in {**point.defaults, **said}.items():
        if key not in point.defaults:
            raise unknown(f"'{name}' has no parameter {key}", key, sorted(point.defaults))
        values = value if isinstance(value, list) else [value]
        lists[key] = [CHECKS[key](key, one) for one in values]
    count = math.prod(map(len, lists.values()))
    if not 0 < count <= MOST:
        raise CerebroError(f"params give {count} nets, which must be from 1 to {MOST}")
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]


_NAMES = ", ".join(POINTS)
