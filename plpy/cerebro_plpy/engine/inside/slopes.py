"""The slopes of a net's score: its derivatives by the inputs.

For codes, which are integers that stand for categories, they are the derivatives by the codes' vectors in an
Embedding.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cerebro_plpy.engine.backends import runtime
from cerebro_plpy.engine.backends.interfaces import ScoreOf, Slope
from cerebro_plpy.engine.checks.architecture import DescribedModel
from cerebro_plpy.engine.models import trunk
from cerebro_plpy.engine.models.inference import Loaded, inference, pad
from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError

# The most points in one call; large nets take fewer. Where each number of points needs its own program, calls
# are filled up to one of these two numbers.
FEW, MOST_ROWS = 32, 256
# Layers whose output jumps where their input changes.
_OF_CODES = (
    "CategoryEncoding",
    "Discretization",
    "Embedding",
    "TokenAndPositionEmbedding",
    "ReversibleEmbedding",
)


@dataclass(frozen=True)
class Opening:
    """A place where numbers enter a net: an input, or the vectors that an Embedding has for its codes.

    `table` is the place of these vectors among the net's variables.
    """

    input: int
    table: int | None = None


class Slopes:
    """The slopes of one score of an architecture, for any weights; a slope is a derivative of the score."""

    def __init__(self, described: DescribedModel, score: ScoreOf) -> None:
        self.net = inference(described)
        model = self.net.model
        embeddings = _embeddings(model)
        head, tensors = model, list(model.inputs)
        if embeddings:
            names = [_source(tensor).name for tensor in tensors]
            tensors = trunk.leaving(model, [*names, *(layer.name for layer in embeddings)])
            head = runtime.keras().Model(tensors, model.outputs)
        places = {id(variable): place for place, variable in enumerate(self.net.variables)}
        inputs = {id(_source(tensor)): number for number, tensor in enumerate(model.inputs)}
        self.openings = [_opening(model, _source(tensor), inputs, places) for tensor in tensors]
        self._variables = [
            places[id(variable)] for variable in (*head.trainable_variables, *head.non_trainable_variables)
        ]
        shapes = [tuple(tensor.shape[1:]) for tensor in tensors]
        self._slope = runtime.get_keras_backend().make_slope(head, shapes, score)
        self.rows = min(MOST_ROWS, self.net.rows)
        self._fixed = runtime.get_keras_backend().fixed_rows
        self.output_width = int(model.outputs[0].shape[-1])

    def takers(self, number: int) -> list[str]:
        """Return the names of the layers that take input `number`; none if only Embeddings take it."""
        model = self.net.model
        source = _source(model.inputs[number])
        return [] if Opening(number) not in self.openings else trunk.takers(model, source)

    def bound(self, loaded: Loaded) -> BoundSlopes:
        return BoundSlopes(self, loaded)

    def bind(self, loaded: Loaded) -> Slope:
        """Return a function that computes scores and slopes of one model.

        Its arguments are a list with an array of points for each opening, and the numbers `given` to the
        score.
        """
        slope = self._slope([loaded.tensors[place] for place in self._variables])

        def at(points: list[np.ndarray], given: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
            rows = wanted = len(points[0])
            if self._fixed:
                wanted = min(self.rows, FEW if rows <= FEW else MOST_ROWS)
            marks = np.repeat(given[np.newaxis], wanted, axis=0)
            scores, slopes = slope([pad(array, wanted) for array in points], marks)
            return scores[:rows], [one[:rows] for one in slopes]

        return at


@functools.lru_cache(maxsize=16)
def slopes(described: DescribedModel, score: ScoreOf) -> Slopes:
    """Return the slopes of a score of an architecture; calls with equal arguments share them."""
    return Slopes(described, score)


class BoundSlopes:
    """The slopes of one score, for the weights of one model; a slope is a derivative of the score."""

    def __init__(self, net: Slopes, loaded: Loaded) -> None:
        self._net, self._loaded, self._slope = net, loaded, net.bind(loaded)
        self.rows, self.openings, self.width = net.rows, net.openings, net.output_width
        self._tables = {
            one.table: runtime.to_numpy(loaded.tensors[one.table])
            for one in net.openings
            if one.table is not None
        }

    def answer(self, inputs: list[np.ndarray]) -> np.ndarray:
        """Return the only output of the net for a few rows."""
        return self._net.net.predict(self._loaded, inputs)[0]

    def at(self, points: Sequence[np.ndarray], given: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return scores and slopes at some points, which may be at most `self.rows`."""
        return self._slope(list(points), given)

    def enter(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the numbers that the first row has at each opening."""
        return [self._enter(one, inputs[one.input][0]) for one in self.openings]

    def _enter(self, one: Opening, row: np.ndarray) -> np.ndarray:
        return row if one.table is None else self._tables[one.table][row.astype(np.int64)]

    def enter_mean(
        self, inputs: Sequence[np.ndarray], shares: Sequence[np.ndarray | None]
    ) -> list[np.ndarray]:
        """Return the numbers of the mean row at each opening.

        `inputs` is the mean row. `shares` has for each input the share of each code among the rows, with the
        shape (codes, places), or None: with shares, the mean of the codes' vectors is returned.
        """
        found = []
        for one, entered in zip(self.openings, self.enter([row[np.newaxis] for row in inputs]), strict=True):
            known = shares[one.input]
            if one.table is not None and known is not None:
                entered = np.einsum("kp,kd->pd", known, self._tables[one.table][: len(known)])
            found.append(entered.astype(np.float32))
        return found

    def leave(self, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return, for each number of the inputs, the sum of the numbers in `parts` that belong to it.

        `parts` has an array for each opening; all numbers of a code's vector belong to the code.
        """
        found: dict[int, np.ndarray] = {}
        for one, part in zip(self.openings, parts, strict=True):
            own = part if one.table is None else part.sum(axis=-1)
            found[one.input] = found.get(one.input, 0) + own
        return [found[number] for number in sorted(found)]


def _source(tensor: Any) -> Any:
    return tensor._keras_history.operation


def _opening(model: Any, operation: Any, inputs: dict[int, int], places: dict[int, int]) -> Opening:
    if id(operation) in inputs:
        return Opening(inputs[id(operation)])
    (source,) = trunk.sources(model, operation)
    return Opening(inputs[id(source)], places[id(operation.embeddings)])


def _embeddings(model: Any) -> list[Any]:
    """Return a model's Embeddings; raise an error if codes are used in any other place.

    An Embedding must take an input of the model as it is.
    """
    inputs = {id(_source(tensor)) for tensor in model.inputs}
    found = []
    for operation in trunk.operations(model):
        coded = [type(part).__name__ for part in _parts(operation) if type(part).__name__ in _OF_CODES]
        if not coded:
            continue
        sources = trunk.sources(model, operation)
        if type(operation).__name__ != "Embedding" or [id(one) in inputs for one in sources] != [True]:
            raise _not_explained(operation.name, f"it makes other numbers of codes ({coded[0]})")
        if operation.mask_zero:
            raise _not_explained(operation.name, "it has mask_zero")
        if operation.quantization_mode is not None or operation.lora_enabled:
            raise _not_explained(operation.name, "its vectors are not kept as they are")
        found.append(operation)
    return found


def _parts(operation: Any) -> Iterator[Any]:
    if hasattr(operation, "_flatten_layers"):
        yield from operation._flatten_layers(include_self=True, recursive=True)
    else:
        yield operation


def _not_explained(layer: str, why: str) -> CerebroError:
    return CerebroError(
        f'layer "{layer}" cannot be explained: {why}',
        detail="The prediction does not change steadily with what goes into it. Only an Embedding that takes"
        " an input as it is can be left out of that.",
        hint="cerebro.importance works with any net.",
        sqlstate=NOT_SUPPORTED,
    )
