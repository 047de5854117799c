"""Layers that Keras lacks and that come with this package, under names that Keras cannot mistake."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from cerebro_plpy import memory
from cerebro_plpy.engine import runtime

PACKAGE = "cerebro"
MEMBERS = "Members"
LAYERS = frozenset({MEMBERS})


class _Made(dict[str, Any]):
    """The classes that this process has made, by registered name."""


def registered_name(name: str) -> str:
    return f"{PACKAGE}>{name}"


def pin(found: dict[str, Any]) -> bool:
    """Rewrite a layer of these in its one form; return whether it is one."""
    name = found["class_name"]
    if not isinstance(name, str) or found.get("registered_name") != registered_name(name):
        return False
    if name not in LAYERS:
        return False
    found["module"] = None
    return True


def objects(names: Collection[str]) -> dict[str, Any]:
    """Return the classes of these registered names; they are made with the engine that runs."""
    made = memory.get_instance(_Made)
    for name in set(names) - set(made):
        made[name] = _make_members()
    return {name: made[name] for name in names}


def is_own(kind: type) -> bool:
    return kind.__module__ == __name__


def _make_members() -> type:
    keras = runtime.keras()
    ops = keras.ops

    class Members(keras.layers.Layer):
        """Hand on the answers of members (row, member, number), so that each learns by its own error.

        In training each member's answer is their mean, and the layer adds the loss by which the mean of the
        members' losses exceeds that of their mean: crossentropy of logits, or squares of numbers. So a loss
        behind it is that of the average member. Rows' weights do not reach what the layer adds.
        """

        def __init__(self, classes: bool = True, **given: Any) -> None:
            super().__init__(**given)
            if not isinstance(classes, bool):
                raise ValueError(f"classes of {MEMBERS} is {classes!r}, not true or false")
            self.classes = classes

        def call(self, inputs: Any, training: bool = False) -> Any:
            if not training:
                return inputs
            mean = ops.mean(inputs, axis=1, keepdims=True)
            if self.classes:
                own = ops.mean(ops.logsumexp(inputs, axis=2), axis=1)
                apart = own - ops.logsumexp(mean, axis=(1, 2))
            else:
                apart = ops.mean(ops.square(inputs - mean), axis=(1, 2))
            self.add_loss(ops.mean(apart))
            return mean + ops.zeros_like(inputs)

        def build(self, input_shape: Any) -> None:
            if len(input_shape) != 3:
                raise ValueError(f"{MEMBERS} wants rows of (members, numbers), not of {input_shape[1:]}")
            self.built = True

        def compute_output_shape(self, input_shape: Any) -> Any:
            return input_shape

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "classes": self.classes}

    Members.__qualname__ = MEMBERS
    return Members
