"""The layer that Keras lacks and that comes with this package, under a name that Keras cannot mistake."""

from __future__ import annotations

from typing import Any

from cerebro_plpy import memory
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.madlib.layers import MEMBERS, MEMBERS_REGISTERED


class _Made:
    """The class of this process, once it is made."""

    members: type | None = None


def is_members(found: dict[str, Any]) -> bool:
    """Return whether a serialized object says that it is the layer."""
    return found["class_name"] == MEMBERS and found.get("registered_name") == MEMBERS_REGISTERED


def objects() -> dict[str, Any]:
    """Return the class by its registered name; it is made with the engine that runs."""
    made = memory.get_instance(_Made)
    made.members = made.members or _make_members()
    return {MEMBERS_REGISTERED: made.members}


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
