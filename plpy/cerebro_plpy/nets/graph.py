"""Builds the JSON of a functional Keras model, layer by layer; what is left out has Keras' defaults."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_plpy.madlib.layers import FUNCTIONS, MEMBERS, MEMBERS_REGISTERED, OPERATIONS, TAKE

LONGEST_NAME = 60
# Modules and registered names of the operations and of our own layer, which keras.layers does not have.
_PLACES = {**dict.fromkeys((TAKE, *FUNCTIONS), (OPERATIONS, None)), MEMBERS: (None, MEMBERS_REGISTERED)}


def initializer(kind: str, **config: float) -> Mapping[str, Any]:
    """Return a Keras initializer as JSON, for example `initializer("Constant", value=0.5)`."""
    seed = {} if kind == "Constant" else {"seed": None}
    return {
        "module": "keras.initializers",
        "class_name": kind,
        "config": {**seed, **config},
        "registered_name": None,
    }


@dataclass(frozen=True)
class LayerOutput:
    """An output of a layer: the layer's name, and the number of dimensions of one row (`rank`).

    A layer that is used several times has one node for each use, and one use may return several tensors.
    `node` is the number of the use, and `tensor` the number of the tensor, both from 0.
    """

    name: str
    rank: int
    node: int = 0
    tensor: int = 0

    @property
    def history(self) -> list[str | int]:
        return [self.name, self.node, self.tensor]


class Graph:
    """A functional model that is built layer by layer."""

    def __init__(self) -> None:
        self._layers: list[dict[str, Any]] = []
        self._inputs: list[str] = []
        self._count: dict[str, int] = {}
        self._adopted: set[str] = set()

    def input(self, shape: Sequence[int]) -> LayerOutput:
        """Add an input whose rows have the given shape, and return its output."""
        node = self.add("InputLayer", [], len(shape), {"batch_shape": [None, *shape], "dtype": "float32"})
        self._inputs.append(node.name)
        return node

    def input_at(self, number: int, rank: int) -> LayerOutput:
        """Return the output of the input with this number, from 0; its rows have `rank` dimensions."""
        return LayerOutput(self._inputs[number], rank)

    def is_input(self, node: LayerOutput) -> bool:
        return node.name in self._inputs

    def layer(self, kind: str, *sources: LayerOutput, rank: int | None = None, **config: Any) -> LayerOutput:
        """Add a layer of class `kind` that takes the outputs `sources`, and return its output.

        The layer's output has `rank` dimensions per row; without `rank`, as many as the first source has.
        """
        return self.add(kind, list(sources), sources[0].rank if rank is None else rank, config)

    def adopt(self, layers: Sequence[dict[str, Any]], *, as_inputs: bool = False) -> None:
        """Add layers of another model, given as JSON, without changing them.

        With `as_inputs`, the layers are also inputs of this model.
        """
        self._layers += layers
        self._adopted |= {layer["name"] for layer in layers}
        if as_inputs:
            self._inputs += [layer["name"] for layer in layers]

    def add(
        self, kind: str, sources: Sequence[LayerOutput], rank: int, given: Mapping[str, Any]
    ) -> LayerOutput:
        """Add a layer like `layer`; its config may have any names."""
        config = dict(given)
        number = self._count[kind] = self._count.get(kind, 0) + 1
        name = self._free(str(config.pop("name", "") or f"{kind.lower()}_{number}"))
        tensors = [
            {
                "class_name": "__keras_tensor__",
                "config": {"shape": [None], "dtype": "float32", "keras_history": source.history},
            }
            for source in sources
        ]
        merges = kind in ("Concatenate", "Add", "Multiply", "Average")
        takes = [config.pop("indices")] if kind == TAKE and "indices" in config else []
        called = [{"args": [tensors] if merges else [*tensors, *takes], "kwargs": {}}] if sources else []
        module, registered = _PLACES.get(kind, ("keras.layers", None))
        self._layers.append(
            {
                "module": module,
                "class_name": kind,
                "config": {"name": name, **config},
                "registered_name": registered,
                "name": name,
                "inbound_nodes": called,
            }
        )
        return LayerOutput(name, rank)

    def _free(self, name: str) -> str:
        """Return `name`, or `name` with a number added if an adopted layer already has this name."""
        if name not in self._adopted:
            return name
        free = next(f"{name}_{n}" for n in itertools.count(2) if f"{name}_{n}" not in self._adopted)
        self._adopted.add(free)
        return free

    def as_json(self, outputs: Sequence[LayerOutput], called: str) -> str:
        """Return the JSON of the model, named `called`, with underscores in place of special characters."""
        config = {
            "name": re.sub(r"[^A-Za-z0-9.]+", "_", called).strip("_")[:LONGEST_NAME] or "net",
            "trainable": True,
            "layers": self._layers,
            "input_layers": [[name, 0, 0] for name in self._inputs],
            "output_layers": [node.history for node in outputs],
        }
        return json.dumps(
            {
                "module": "keras.src.models.functional",
                "class_name": "Functional",
                "config": config,
                "registered_name": None,
            }
        )
