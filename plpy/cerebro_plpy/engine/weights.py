"""Weights in MADlib's form: the flat float32 arrays of all of a model's weights, one after the other."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.checks import architecture, lora
from cerebro_plpy.engine.models.inference import split

# Layers of the same new net begin with the same weights, whenever it is made.
SEED = 0


def place_weights(model: Any, weights: bytes) -> dict[int, np.ndarray]:
    """Return the arrays in `weights` by their places among the weights of the model.

    If `weights` has the size of the net without adapters, the places of the adapters are left out.
    """
    shapes = [tuple(int(d) for d in weight.shape) for weight in model.weights]
    places = list(range(len(shapes)))
    adapters = lora.adapters(model)
    if len(weights) == 4 * lora.base_size(shapes, adapters):
        places = [place for place in places if place not in lora.added(adapters)]
    return dict(zip(places, split(weights, tuple(shapes[place] for place in places)), strict=True))


def graft_weights(base_json: str, weights: bytes, model_json: str, names: Collection[str]) -> bytes:
    """Return weights for a net: trained ones for the layers in `names`, newly drawn ones for all others.

    `base_json` and `weights` are the trained net, and `model_json` is the new one. `names` may contain
    operations between layers, which have no weights.
    """
    with runtime.generators_kept():
        base = architecture.build(base_json)
        runtime.seed_generators(SEED)
        model = architecture.build(model_json)
    given = place_weights(base, weights)
    places = {id(weight): place for place, weight in enumerate(base.weights)}
    taken: dict[int, np.ndarray] = {}
    for name in {layer.name for layer in base.layers} & set(names):
        pairs = zip(model.get_layer(name).weights, base.get_layer(name).weights, strict=True)
        taken |= {id(own): given[places[id(other)]] for own, other in pairs if places[id(other)] in given}
    arrays = [taken.get(id(weight), runtime.to_numpy(weight)) for weight in model.weights]
    return b"".join(np.ascontiguousarray(array, "<f4").tobytes() for array in arrays)
