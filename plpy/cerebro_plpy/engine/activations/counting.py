"""Counts how many numbers per row a net keeps for the backward pass."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cerebro_plpy.engine.activations import blocks
from cerebro_plpy.engine.activations.blocks import LayerUse


@dataclass(frozen=True)
class NetUses:
    """The uses of layers in a model, or in a model inside it, with the names of the layers."""

    # The names of the models that contain it, the outermost first.
    within: tuple[str, ...]
    names: tuple[str, ...]
    uses: tuple[LayerUse, ...]
    outputs: frozenset[int]


def uses_of(model: Any) -> tuple[NetUses, ...]:
    """Return the uses of layers whose outputs a backward pass needs: none before the first trained layer."""
    return tuple(_uses(model, (), begins=False))


def _uses(model: Any, within: tuple[str, ...], *, begins: bool) -> Iterator[NetUses]:
    """Yield the uses of layers in a model and in each model inside it.

    `within` has the names of the models around the model, the outermost first. `begins` says whether the
    backward pass needs gradients of the model's inputs.
    """
    functional = getattr(model, "_functional", None) or model
    sloped: set[int] = {id(tensor) for tensor in functional.inputs} if begins else set()
    names: list[str] = []
    uses: list[LayerUse] = []
    for node in blocks.nodes_of(functional):
        layer = node.operation
        takes = any(id(tensor) in sloped for tensor in node.input_tensors)
        if not takes and not getattr(layer, "trainable_variables", None):
            continue
        sloped.update(id(tensor) for tensor in node.outputs)
        use = blocks.step_of(node, again=True)
        if blocks.is_model(layer):
            yield from _uses(layer, (*within, layer.name), begins=takes)
            # The inner model is counted by itself.
            use = replace(use, keeps=0, again=False)
        names.append(layer.name)
        uses.append(use)
    yield NetUses(within, tuple(names), tuple(uses), frozenset(id(tensor) for tensor in functional.outputs))


def count_kept(
    nets: Sequence[NetUses], recompute: bool | Collection[str] = False, never: Collection[str] = ()
) -> int:
    """Return how many numbers per row the nets keep for the backward pass.

    `recompute` says which layers are computed again: all, none, or the layers and models with these names.
    Layers in `never` are not computed again.
    """
    return sum(_count(net, recompute, never) for net in nets)


def _count(net: NetUses, recompute: bool | Collection[str], never: Collection[str]) -> int:
    if recompute is False:
        return sum(use.keeps for use in net.uses)
    # All layers if `recompute` is true, or names a model that contains them.
    named = None if recompute is True or any(name in recompute for name in net.within) else recompute
    chosen = [
        replace(use, again=use.again and name not in never and (named is None or name in named))
        for name, use in zip(net.names, net.uses, strict=True)
    ]
    kept, largest = 0, 0
    for block in blocks.choose(chosen, net.outputs):
        inside = chosen[block.first : block.last]
        own = sum(use.keeps for use in inside)
        made = {t: n for use in inside for t, n in zip(use.makes, use.sizes, strict=True)}
        kept += sum(made[tensor] for tensor in block.leaves) if block.again else own
        largest = max(largest, own if block.again else 0)
    return kept + largest
