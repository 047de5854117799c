"""Checks that each layer of a functional model has sources and leads to an output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from cerebro_plpy import errors
from cerebro_plpy.errors import CerebroError


def check(config: dict[str, Any]) -> None:
    """Raise an error if a layer has no source or leads to no output, in a model or a model inside it.

    The limits on a model do not count such layers. But Keras makes their weights, and even computes layers
    that take no tensor of the model. Keras' own to_json never writes such layers.
    """
    for model in _models(config):
        _check_model(model)


def _models(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        if isinstance(found.get("layers"), list) and "output_layers" in found:
            yield found
        for item in found.values():
            yield from _models(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _models(item)


def _check_model(model: dict[str, Any]) -> None:
    layers = [layer for layer in model["layers"] if isinstance(layer, dict)]
    known = {str(layer.get("name")): layer for layer in layers}
    sources: dict[str, set[str]] = {}
    for name, layer in known.items():
        nodes = [set(_names(node, known)) for node in layer.get("inbound_nodes") or []]
        is_input = layer.get("class_name") == "InputLayer"
        if not is_input and not all(nodes):
            raise _refused(name, "Nothing that comes out of another layer goes into it.")
        sources[name] = set().union(*nodes)
    reached, waiting = set[str](), set(_names(model["output_layers"], known))
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= sources[name] - reached
    for name, layer in known.items():
        if name not in reached and layer.get("class_name") != "InputLayer":
            raise _refused(name, "None of the model's outputs comes from it.")


def _names(value: Any, known: dict[str, Any]) -> Iterator[str]:
    """Yield the names of known layers in references to tensors, `[name, node, tensor]`, within a value."""
    if isinstance(value, dict):
        for item in cast("dict[str, Any]", value).values():
            yield from _names(item, known)
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        if len(items) >= 3 and isinstance(items[0], str) and items[0] in known and isinstance(items[1], int):
            yield items[0]
        for item in items:
            yield from _names(item, known)


def _refused(name: str, reason: str) -> CerebroError:
    return CerebroError(
        f'the layer "{name}" is not connected',
        detail=reason,
        hint="Leave it out: model.to_json() writes no such layers.",
        sqlstate=errors.NOT_SUPPORTED,
    )
