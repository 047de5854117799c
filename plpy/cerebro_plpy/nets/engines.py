"""Choose the engine of nets for which nobody names one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

from cerebro_plpy.madlib.layers import is_windowed, layers

_OF_DENSE: Final = "jax"


def choose_engine(nets: Iterable[str], installed: Sequence[str]) -> str:
    """Return the engine that nets, given as JSON, are to train on, among those that are installed.

    JAX trains nets of dense layers, and loads what earlier sessions have compiled. Convolutions and recurrent
    layers are faster on the first of the others.
    """
    windowed = any(is_windowed(layer["class_name"]) for net in nets for layer in layers(json.loads(net)))
    return _OF_DENSE if _OF_DENSE in installed and not windowed else installed[0]
