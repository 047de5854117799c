"""Makes a model ready to answer for one row at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.engine.checks.architecture import DescribedModel
from cerebro_plpy.engine.models.inference import Predict, inference
from cerebro_plpy.engine.plain.forward import PlainNet, plain_net
from cerebro_plpy.engine.plain.layers import NotHere, Size
from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.features.array_rows import ArrayOfRow
from cerebro_plpy.features.rows import RowEncoder, parse
from cerebro_plpy.predicting import models
from cerebro_plpy.predicting.answering.net import MOST_WORK
from cerebro_plpy.predicting.holders import ModelMark
from cerebro_plpy.predicting.outputs import Output
from cerebro_plpy.store import session

# class, probability, prediction
RowAnswer = tuple[str | None, float | None, float | None]
Features = list[Any] | bytes


class RowInputs(Protocol):
    """A converter of rows, given as JSON, into a net's inputs."""

    def parse(self, text: str) -> Any: ...

    def encode(self, row: Mapping[str, Any]) -> list[np.ndarray]: ...


class RowExplainer(Protocol):
    """A model that is ready to explain its answers (`explained.py`)."""

    def explain(self, given: Mapping[str, Any], inputs: list[np.ndarray], most: int | None) -> list[Any]:
        """Return what each column of a row adds to its answer.

        Return at most `most` columns; None means all.
        """
        ...


@dataclass
class Kept:
    """A model ready to answer, with its last row and answer.

    The last answer is kept because `(f(x)).*` calls the function once for each column of the result.
    """

    forward: Predict
    nbytes: int
    model: models.Model
    wanted: tuple[int | None, ...]
    divisor: np.float32
    output: Output
    # Digests of the registered layers that the model consists of.
    functions: tuple[str, ...] = ()
    last: tuple[Features, RowAnswer] | None = field(default=None)
    # A mark of what the model was read from, by which a later change is noticed.
    version: ModelMark | None = None
    # The converter of rows into inputs; None if the model answers arrays.
    rows: RowInputs | None = None
    # Whether the model was trained on columns (it has a feature specification).
    by_columns: bool = False
    # The last statement that has checked that the model is unchanged and the caller may use it.
    looked: session.Moment | None = None
    explainer: RowExplainer | None = None

    def parse(self, row: str) -> Any:
        """Return a row that is given as JSON, decoded as the model's inputs need it."""
        return parse(row) if self.rows is None else self.rows.parse(row)


def make(
    db: Database,
    name: str,
    model: models.Model,
    sample: Callable[[], np.ndarray] | None,
    *,
    by_engine: bool,
    encoder: RowEncoder | None = None,
) -> Kept:
    """Return the model, ready to answer arrays like `sample()`.

    If `sample` is None, it answers rows given as JSON, which `encoder` encodes, if one is there already. With
    `by_engine`, an engine answers even where NumPy could.
    """
    shapes = _shapes(model, sample)
    by_engine = by_engine or models.runs_engine()
    plain = None if by_engine else plain_net(model.model_arch, model.weights(), shapes)
    described = plain.described if plain else _described(db, model, shapes)
    outputs = model.outputs(described)
    several = len(described.inputs) != 1 and model.features is None
    if several or len(outputs) != 1 or (outputs[0].values is None and outputs[0].width > 1):
        raise CerebroError(
            f"{name} has several inputs or outputs, which cerebro.predict does not support",
            hint="Use cerebro.madlib_predict.",
            sqlstate=NOT_SUPPORTED,
        )
    call, nbytes = (_for_few(plain), plain.nbytes) if plain else _compiled(described, model)
    return Kept(
        forward=call,
        nbytes=nbytes,
        model=model,
        wanted=described.inputs[0],
        divisor=np.float32(model.divisor),
        output=outputs[0],
        functions=described.functions,
        rows=(encoder or _rows(model, described)) if sample is None else None,
        by_columns=model.features is not None,
    )


def _rows(model: models.Model, described: DescribedModel) -> RowInputs:
    if model.features is not None:
        return RowEncoder(model.features)
    return ArrayOfRow(model.independents[0], described.inputs[0], np.float32(model.divisor))


def _shapes(model: models.Model, sample: Callable[[], np.ndarray] | None) -> tuple[Size, ...]:
    """Return the shapes of a row's inputs, for an architecture that does not fix them."""
    if model.features is not None or sample is None:
        return model.input_shapes
    return (sample().shape,)


def _described(db: Database, model: models.Model, shapes: Sequence[Size]) -> DescribedModel:
    """Describe the model by an engine. Starting the engine may take seconds."""
    with session.own_names(db):
        return models.describe_by_engine(db, model, shapes)


def _for_few(plain: PlainNet) -> Predict:
    """Return a function that computes the net by NumPy, and for a heavy net only in its first calls.

    Later calls raise NotHere: for so many rows, an engine is faster, although it has to start first.
    """
    if plain.is_light:
        return plain
    left = itertools.repeat(None, MOST_WORK // plain.work)

    def answer(inputs: list[np.ndarray]) -> list[np.ndarray]:
        for _ in left:
            return plain(inputs)
        raise NotHere

    return answer


def _compiled(described: DescribedModel, model: models.Model) -> tuple[Predict, int]:
    forward = inference(described)
    weights = model.weights()
    loaded = forward.load(weights)
    return forward.bound(loaded, weights), loaded.nbytes
