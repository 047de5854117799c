"""Makes a model compute blocks of layers again in the backward pass, instead of keeping their outputs.

A block is a function of the tensors that enter it and of the variables that it changes. Both times it gets
the same values of these: so Dropout draws the same numbers the second time, and BatchNormalization counts a
mini-batch once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from cerebro_plpy.engine.activations import blocks
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.backends.interfaces import Entering


def apply(model: Any, names: Collection[str] | None, kept: Collection[str]) -> None:
    """Make the model compute the layers `names` again where this saves memory; None means all layers.

    The names may include models inside the model, with all their layers. Layers in `kept` are not computed
    again.
    """
    for inner in _nested(model):
        inside = names is None or inner.name in names
        apply(inner, None if inside else names, kept)
    functional = getattr(model, "_functional", None) or model
    nodes = blocks.nodes_of(functional)
    steps = [blocks.step_of(node, _may(node.operation, names, kept)) for node in nodes]
    parts = blocks.choose(steps, {id(tensor) for tensor in functional.outputs})
    if any(part.again for part in parts):
        functional.call = partial(_call, functional, functional.call, nodes, parts)


def _may(layer: Any, names: Collection[str] | None, kept: Collection[str]) -> bool:
    named = names is None or layer.name in names
    return named and layer.name not in kept and not blocks.is_model(layer)


def _nested(model: Any) -> list[Any]:
    return [layer for layer in model.layers if blocks.is_model(layer)]


def _call(
    functional: Any,
    usual: Callable[..., Any],
    nodes: Sequence[Any],
    parts: Sequence[blocks.LayerBlock],
    inputs: Any,
    training: bool | None = None,
    mask: Any = None,
    **others: Any,
) -> Any:
    """Call a model as Keras does, but in training compute it block by block.

    `usual` is Keras' own call; `nodes` are the uses of layers, and `parts` the blocks.
    """
    if not training:
        return usual(inputs, training=training, mask=mask, **others)
    keras = runtime.keras()
    given = functional._standardize_inputs(inputs)
    for tensor, of in zip(given, keras.tree.flatten(mask) if mask is not None else [], strict=False):
        _set_mask(tensor, of)
    tensors = {id(x): y for x, y in zip(functional.inputs, given, strict=True)}
    context = {"training": True, **others}
    for part in parts:
        run = partial(run_nodes, nodes[part.first : part.last], context)
        if part.again:
            _run_again(run, nodes[part.first : part.last], part, tensors)
        else:
            run(tensors)
    found = [tensors[id(x)] for x in functional.outputs]
    return found[0] if len(found) == 1 else keras.tree.pack_sequence_as(functional._outputs_struct, found)


def run_nodes(nodes: Sequence[Any], context: dict[str, Any], tensors: dict[int, Any]) -> None:
    """Compute layers one by one as Keras' `Functional.call` does, and add their outputs to `tensors`.

    `context` has the arguments with which the model was called, such as `training`.
    """
    for node in nodes:
        args, kwargs = node.arguments.fill_in(tensors)
        known = getattr(node.operation, "_call_context_args", {})
        kwargs.update({name: value for name, value in context.items() if name in known and value is not None})
        outputs = node.operation(*args, **kwargs)
        tensors.update(
            (id(x), y) for x, y in zip(node.outputs, runtime.keras().tree.flatten(outputs), strict=True)
        )


def _run_again(
    run: Callable[[dict[int, Any]], None],
    nodes: Sequence[Any],
    part: blocks.LayerBlock,
    tensors: dict[int, Any],
) -> None:
    """Compute a block that the backward pass computes again, and assign the variables that it changes.

    `run` computes the block `part`, and adds the outputs of its layers to `tensors`.
    """
    keras = runtime.keras()
    stateless = keras.src.backend.common.stateless_scope.in_stateless_scope()
    changing = _variables(nodes, trainable=False)
    # Outside of a stateless scope, engines find slopes only for variables that are read where they are used.
    told = [*changing, *(_variables(nodes, trainable=True) if stateless else [])]
    taken = [tensors[key] for key in part.enters]
    changed: list[Any] = []

    def compute(given: Entering) -> tuple[list[Any], list[Any]]:
        for tensor, mask in zip(given.tensors, given.masks, strict=True):
            _set_mask(tensor, mask)
        own = dict(zip(part.enters, given.tensors, strict=True))
        with keras.StatelessScope(
            list(zip(told, given.values, strict=True)), initialize_variables=False
        ) as scope:
            before = dict(scope.state_mapping)
            run(own)
        changed[:] = [v for v in changing if scope.get_current_value(v) is not before[id(v)]]
        left = [own[key] for key in part.leaves]
        return left, [[scope.get_current_value(v) for v in changed], list(map(_mask, left))]

    # A variable of TensorFlow is read when it is used, and by the second time it has changed.
    values = [v.value if stateless else keras.ops.copy(v.value) for v in told]
    given = Entering(taken, list(map(_mask, taken)), values)
    left, (new, masks) = runtime.get_keras_backend().compute_again(compute, given)
    for variable, value in zip(changed, new, strict=True):
        variable.assign(value)
    for key, tensor, mask in zip(part.leaves, left, masks, strict=True):
        _set_mask(tensor, mask)
        tensors[key] = tensor


def _variables(nodes: Sequence[Any], *, trainable: bool) -> list[Any]:
    """Return the trainable variables of layers, or their other variables, which include seeds."""
    which = "trainable_variables" if trainable else "non_trainable_variables"
    found = {id(v): v for node in nodes for v in getattr(node.operation, which, [])}
    return list(found.values())


def _mask(tensor: Any) -> Any:
    return runtime.keras().src.backend.get_keras_mask(tensor)


def _set_mask(tensor: Any, mask: Any) -> None:
    if mask is not None:
        runtime.keras().src.backend.set_keras_mask(tensor, mask)
