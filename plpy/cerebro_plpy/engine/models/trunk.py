"""The trunk of a model: the part whose output no training changes, so that it need be computed only once.

It consists of layers that are frozen or have no weights, that draw nothing at random, and whose inputs come
from such layers alone. Where it is cut off, a head remains that trains on what leaves it (`cut.py`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from cerebro_plpy.engine.checks import hub
from cerebro_plpy.engine.models import counting, frozen


@dataclass(frozen=True)
class TrunkLayer:
    """A layer of a trunk, or an input of the model."""

    name: str
    # The places in the trunk of those whose outputs it takes; whether a layer outside takes its own.
    sources: tuple[int, ...]
    leaves: bool
    # What one row costs, by family of layers, and how many numbers it becomes.
    work: dict[str, float]
    numbers: int


def layers(model: Any) -> list[TrunkLayer]:
    """Return the layers of the trunk, each behind its sources; none if it holds nothing but inputs."""
    inside = _inside(model)
    places = {id(operation): place for place, operation in enumerate(inside)}
    outside = _taken_outside(model, places)
    found = [
        TrunkLayer(
            name=operation.name,
            sources=tuple(places[id(source)] for source in _sources(_node(model, operation))),
            leaves=id(operation) in outside,
            work=dict(counting.work(_leaves(operation))),
            numbers=_numbers(operation),
        )
        for operation in inside
    ]
    return found if any(one.sources for one in found) else []


def leaving(model: Any, names: Collection[str]) -> list[Any]:
    """Return the tensors that leave these layers, which must hold the sources of each of them."""
    chosen = [operation for operation in _graph(model).operations if operation.name in names]
    places = {id(operation): place for place, operation in enumerate(chosen)}
    outside = _taken_outside(model, places)
    return [output(model, one) for one in chosen if id(one) in outside]


def operations(model: Any) -> list[Any]:
    """Return all operations of a model's graph, its inputs among them."""
    return list(_graph(model).operations)


def sources(model: Any, operation: Any) -> list[Any]:
    """Return the operations whose outputs another one takes; none if the model uses it several times."""
    node = _node(model, operation)
    return [] if node is None else _sources(node)


def output(model: Any, operation: Any) -> Any:
    """Return the tensor that an operation gives in the model, which uses it once."""
    return _node(model, operation).output_tensors[0]


def call_again(model: Any, operation: Any, tensors: Mapping[int, Any]) -> Any:
    """Return an operation's output for other tensors, by the ids of those that it takes in the model."""
    arguments, named = _node(model, operation).arguments.fill_in(tensors)
    return operation(*arguments, **named)


def takers(model: Any, source: Any) -> list[str]:
    """Return the names of the operations that take another's output."""
    return [node.operation.name for node in _nodes(model) if any(one is source for one in _sources(node))]


def _graph(model: Any) -> Any:
    """Return the model's graph, which a Sequential has inside."""
    return getattr(model, "_functional", None) or model


def _inside(model: Any) -> list[Any]:
    unchanged = frozen.frozen(model)
    # An output of the model stays with what is compared with the labels.
    ends = {id(tensor._keras_history.operation) for tensor in _graph(model).outputs}
    found: dict[int, Any] = {}
    for operation in _graph(model).operations:
        node = _node(model, operation)
        if node is None or len(node.output_tensors) != 1 or id(operation) in ends:
            continue
        if None in node.output_tensors[0].shape[1:]:
            # Nobody knows how much room it would take.
            continue
        if all(id(source) in found for source in _sources(node)) and _stays(operation, unchanged):
            found[id(operation)] = operation
    return list(found.values())


def _nodes(model: Any) -> list[Any]:
    return [node for nodes in _graph(model)._nodes_by_depth.values() for node in nodes]


def _node(model: Any, operation: Any) -> Any:
    """Return the only place where the model uses an operation; None if there are several."""
    nodes = [node for node in _nodes(model) if node.operation is operation]
    return nodes[0] if len(nodes) == 1 else None


def _sources(node: Any) -> list[Any]:
    return list({id(t): t._keras_history.operation for t in node.input_tensors}.values())


def _taken_outside(model: Any, inside: Collection[int]) -> set[int]:
    graph = _graph(model)
    taken = {id(tensor._keras_history.operation) for tensor in graph.outputs}
    for node in _nodes(model):
        if id(node.operation) not in inside:
            taken |= {id(source) for source in _sources(node)}
    return taken & set(inside)


def _stays(operation: Any, unchanged: Collection[int]) -> bool:
    """Return whether an operation gives the same for the same rows in every step of training."""
    parts = [operation]
    if hasattr(operation, "_flatten_layers"):
        parts = list(operation._flatten_layers(include_self=True, recursive=True))
    return all(_part_stays(part, unchanged) for part in parts)


def _part_stays(part: Any, unchanged: Collection[int]) -> bool:
    if not hub.is_known(type(part)):
        return False
    # A mask goes beside the output, and would be lost with the layer that makes it.
    makes_mask = bool(getattr(part, "mask_zero", False)) or type(part).__name__ == "Masking"
    adds_loss = getattr(part, "activity_regularizer", None) is not None
    keeps_state = bool(getattr(part, "stateful", False))
    if makes_mask or adds_loss or keeps_state or _draws(part):
        return False
    if type(part).__name__ == "Normalization":
        # Its statistics are no weights that train; `adapt` alone fills them in.
        return True
    own = getattr(part, "_trainable_variables", []), getattr(part, "_non_trainable_variables", [])
    return all(id(variable) in unchanged for variables in own for variable in variables)


def _draws(part: Any) -> bool:
    """Return whether a part draws at random; recurrent cells have a generator whether they draw or not."""
    drops = [getattr(part, name, None) for name in ("dropout", "recurrent_dropout")]
    if all(isinstance(rate, int | float) for rate in drops):
        return any(drops)
    return bool(getattr(part, "_seed_generators", ())) or hasattr(part, "seed_generator")


def _leaves(operation: Any) -> list[Any]:
    nested = getattr(operation, "layers", None)
    return [operation] if nested is None else [leaf for one in nested for leaf in _leaves(one)]


def _numbers(operation: Any) -> int:
    return math.prod(d or 1 for d in operation.output.shape[1:])
