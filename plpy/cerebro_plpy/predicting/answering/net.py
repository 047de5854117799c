"""A model's forward pass in the caller's session: by NumPy if that is enough, else by an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.engine.checks.architecture import DescribedModel
from cerebro_plpy.engine.models.inference import Inference, Loaded, inference
from cerebro_plpy.engine.plain.forward import PlainNet, plain_net
from cerebro_plpy.engine.plain.layers import NotHere
from cerebro_plpy.predicting import models
from cerebro_plpy.threads import Threads, Tick

# The most rows that are answered at a time.
MOST_ROWS = 1024
# What NumPy may work beyond an engine, which takes as long to come up.
MOST_WORK = 2_000_000_000


class AnsweringNet:
    """A model that is ready to answer rows. An engine comes up only for nets that NumPy does not compute."""

    def __init__(
        self,
        db: Database,
        model: models.Model,
        shapes: Sequence[Sequence[int]],
        *,
        plain: PlainNet | None,
        weights: bytes | None,
        most_rows: int,
        uses_gpus: bool,
    ) -> None:
        self._db, self._model, self._shapes, self._plain = db, model, shapes, plain
        # They are kept until an engine has them, so that large ones are read once.
        self._weights = weights
        self._most_rows, self._uses_gpus = most_rows, uses_gpus
        self.described = self._describe_by_engine() if plain is None else plain.described

    def answer(self, inputs: Sequence[np.ndarray], threads: Threads) -> list[np.ndarray]:
        """Return the outputs for any number of rows, as float32."""
        given = list(inputs)
        if self._plain is not None:
            try:
                return _join(threads.run(self._split(self._plain, given)))
            except NotHere:
                self._leave_to_engine()
        return self._answer_by_engine(given, threads)

    def answer_apart(self, inputs: Sequence[np.ndarray], tick: Tick) -> list[np.ndarray] | None:
        """Return the same in a thread that may not ask the server.

        Return None where an engine must come up first, which it does in `answer`.
        """
        plain, given = self._plain, list(inputs)
        if plain is not None:
            try:
                return _join([call(tick) for call in self._split(plain, given)])
            except NotHere:
                return None
        return self._answer_by_engine(given, Threads(1, tick))

    @cached_property
    def loaded(self) -> tuple[Inference, Loaded]:
        """The compiled net of the engine, with the weights."""
        forward = inference(self.described)
        weights, self._weights = self._weights, None
        return forward, forward.load(self._model.weights() if weights is None else weights)

    def load(self) -> None:
        """Have all that it takes to answer, before a row is read."""
        if self._plain is None:
            _ = self.loaded

    def _split(self, plain: PlainNet, inputs: list[np.ndarray]) -> list[Callable[[Tick], list[np.ndarray]]]:
        """Return the calls that answer the rows, a few in each."""
        size = self._most_rows
        starts = range(0, len(inputs[0]), size)
        return [partial(_answer_part, plain, [rows[at : at + size] for rows in inputs]) for at in starts]

    def _answer_by_engine(self, inputs: list[np.ndarray], threads: Threads) -> list[np.ndarray]:
        forward, loaded = self.loaded
        return forward.predict_many(loaded, inputs, min(forward.rows, self._most_rows), threads)

    def _leave_to_engine(self) -> None:
        self.described = self._describe_by_engine()
        # Other threads see the engine only when it is ready.
        _ = self.loaded
        self._plain = None

    def _describe_by_engine(self) -> DescribedModel:
        return models.describe_by_engine(self._db, self._model, self._shapes, uses_gpus=self._uses_gpus)


def open_net(
    db: Database,
    model: models.Model,
    shapes: Sequence[Sequence[int]],
    *,
    rows: int | None = None,
    most_rows: int = MOST_ROWS,
    by_engine: bool = False,
    uses_gpus: bool = False,
) -> AnsweringNet:
    """Make a model ready for rows whose inputs have these shapes, at most `most_rows` at a time.

    The number of all rows may be given, if it is known.
    """
    plain, weights = None, None
    if not by_engine and not models.runs_engine():
        weights = model.weights()
        plain = plain_net(model.model_arch, weights, tuple(tuple(shape) for shape in shapes))
        if plain is not None and not _is_worth(plain, rows):
            plain = None
    return AnsweringNet(
        db, model, shapes, plain=plain, weights=weights, most_rows=most_rows, uses_gpus=uses_gpus
    )


def answer_packed(db: Database, model: models.Model, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return a net's outputs for packed rows, as float32."""
    shapes = [rows.shape[1:] for rows in inputs]
    return open_net(db, model, shapes, rows=len(inputs[0])).answer(inputs, models.open_threads(db))


def _is_worth(plain: PlainNet, rows: int | None) -> bool:
    """Return whether NumPy computes so many rows before an engine would have come up and done the same."""
    if rows is None:
        return plain.work == 0
    return plain.is_light and plain.work * rows <= MOST_WORK


def _answer_part(plain: PlainNet, inputs: list[np.ndarray], tick: Tick) -> list[np.ndarray]:
    found = plain(inputs)
    tick()
    return found


def _join(parts: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    return [np.concatenate(same) for same in zip(*parts, strict=True)]
