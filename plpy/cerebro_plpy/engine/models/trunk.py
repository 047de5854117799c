"""The trunk of a model: the layers whose outputs no training changes, so that they can be computed once.

It consists of layers that are frozen or have no weights, that draw nothing at random, and whose inputs come
from such layers alone. The other layers are the head, which trains on the outputs of the trunk (`cut.py`).
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
    # The places of its sources in the trunk; whether a layer outside the trunk takes its output.
    sources: tuple[int, ...]
    leaves: bool
    # The work for one row, by family of layers, and how many numbers its output has.
    work: dict[str, float]
    numbers: int


def layers(model: Any) -> list[TrunkLayer]:
    """Return the layers of a model's trunk, each after its sources; none if the trunk has only inputs."""
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
    """Return those outputs of the layers `names` that other layers take, or that are outputs of the model.

    The names must include the sources of each of the layers.
    """
    chosen = [operation for operation in _graph(model).operations if operation.name in names]
    places = {id(operation): place for place, operation in enumerate(chosen)}
    outside = _taken_outside(model, places)
    return [output(model, one) for one in chosen if id(one) in outside]


def operations(model: Any) -> list[Any]:
    """Return all operations of a model's graph, its inputs among them."""
    return list(_graph(model).operations)


def sources(model: Any, operation: Any) -> list[Any]:
    """Return the operations whose outputs an operation takes; none if the model uses it several times."""
    node = _node(model, operation)
    return [] if node is None else _sources(node)


def output(model: Any, operation: Any) -> Any:
    """Return the output tensor of an operation that the model uses once."""
    return _node(model, operation).output_tensors[0]


def call_again(model: Any, operation: Any, tensors: Mapping[int, Any]) -> Any:
    """Return an operation's output for other inputs: `tensors` has them by the ids of its usual inputs."""
    arguments, named = _node(model, operation).arguments.fill_in(tensors)
    return operation(*arguments, **named)


def takers(model: Any, source: Any) -> list[str]:
    """Return the names of the operations in a model that take the output of `source`."""
    return [node.operation.name for node in _nodes(model) if any(one is source for one in _sources(node))]


def _graph(model: Any) -> Any:
    """Return the functional graph of a model, which a Sequential has inside."""
    return getattr(model, "_functional", None) or model


def _inside(model: Any) -> list[Any]:
    unchanged = frozen.frozen(model)
    # An output of the model is compared with the labels, and so belongs to the head.
    ends = {id(tensor._keras_history.operation) for tensor in _graph(model).outputs}
    found: dict[int, Any] = {}
    for operation in _graph(model).operations:
        node = _node(model, operation)
        if node is None or len(node.output_tensors) != 1 or id(operation) in ends:
            continue
        if None in node.output_tensors[0].shape[1:]:
            # The room that its outputs would take is not known.
            continue
        if all(id(source) in found for source in _sources(node)) and _stays(operation, unchanged):
            found[id(operation)] = operation
    return list(found.values())


def _nodes(model: Any) -> list[Any]:
    return [node for nodes in _graph(model)._nodes_by_depth.values() for node in nodes]


def _node(model: Any, operation: Any) -> Any:
    """Return the node at which the model uses an operation; None if there are several nodes or none."""
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
    """Return whether an operation's output for a row is the same in every step of training."""
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
    """Return whether a layer draws random numbers; recurrent cells have a generator even if they do not."""
    drops = [getattr(part, name, None) for name in ("dropout", "recurrent_dropout")]
    if all(isinstance(rate, int | float) for rate in drops):
        return any(drops)
    return bool(getattr(part, "_seed_generators", ())) or hasattr(part, "seed_generator")


def _leaves(operation: Any) -> list[Any]:
    nested = getattr(operation, "layers", None)
    return [operation] if nested is None else [leaf for one in nested for leaf in _leaves(one)]


def _numbers(operation: Any) -> int:
    return math.prod(d or 1 for d in operation.output.shape[1:])
