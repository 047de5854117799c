"""The variables that an optimizer keeps for each weight, by their names in a state."""

from __future__ import annotations

import re
from collections.abc import Collection

import numpy as np

from cerebro_plpy.engine.state import OPTIMIZER, State


def role_of(name: str) -> str:
    """Return the name of an optimizer's variable without that of the weight that it belongs to.

    Keras numbers variables without an owner anew in each process.
    """
    owner, _, own = name.rpartition("/")
    return f"{owner}/{own.rpartition('_')[2]}" if owner else re.sub(r"_\d+$", "", name)


# Variables that begin as copies of weights: moving averages, and the momentum of one optimizer.
_COPIES = re.compile(r".*/(?P<weight>.*)_average|schedule_free_adam_w/(?P<free>.*)_momentum")


def copy_weights(state: State, places: Collection[int]) -> None:
    """Give those of the optimizer's variables at the given places that begin as copies of weights the values
    that the weights have."""
    weights: dict[str, np.ndarray | None] = {}
    for name, array, kind in zip(state.names, state.arrays, state.kinds, strict=True):
        if kind != OPTIMIZER:
            own = name.replace("/", "_")
            # Two weights of one name cannot be told apart by the names of their variables.
            weights[own] = None if own in weights else array
    for place in places:
        found = _COPIES.fullmatch(state.names[place]) if state.kinds[place] == OPTIMIZER else None
        weight = weights.get(found["weight"] or found["free"]) if found else None
        if weight is not None and weight.shape == state.arrays[place].shape:
            state.arrays[place] = weight.astype(state.arrays[place].dtype)
