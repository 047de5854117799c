"""Defines `Members`, a layer that Keras lacks, under a registered name that Keras does not use."""

from __future__ import annotations

from typing import Any

from cerebro_plpy import memory
from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.madlib.layers import MEMBERS, MEMBERS_REGISTERED


class _Made:
    """Keeps the class `Members` for this process; `members` is None until the class is made."""

    members: type | None = None


def is_members(found: dict[str, Any]) -> bool:
    """Return whether a serialized object claims to be the layer `Members` of this package."""
    return found["class_name"] == MEMBERS and found.get("registered_name") == MEMBERS_REGISTERED


def objects() -> dict[str, Any]:
    """Return a dictionary with the class `Members` under its registered name.

    The class is made at the first call, since its base class comes from the engine that runs.
    """
    made = memory.get_instance(_Made)
    made.members = made.members or _make_members()
    return {MEMBERS_REGISTERED: made.members}


def is_own(kind: type) -> bool:
    return kind.__module__ == __name__


def _make_members() -> type:
    keras = runtime.keras()
    ops = keras.ops

    class Members(keras.layers.Layer):
        """A layer that passes on members' answers, and makes each member learn by its own error.

        Its input has the shape (row, member, number). In training, the layer replaces each member's answer by
        the mean of all answers, and adds a loss: the mean of the members' losses minus the loss of the mean
        answer, for crossentropy of logits or for squared errors. The total loss of the net is then the mean
        of the members' losses. Row weights do not change the loss that the layer adds.
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
