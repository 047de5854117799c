"""Computes a model's forward pass in the caller's session.

NumPy computes it if it is fast enough for the net and the rows; else an engine does.
"""

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
from cerebro_plpy.store import session
from cerebro_plpy.threads import Threads, Tick

# The rows that NumPy answers at a time.
ROWS = 1024
# The most work beyond an engine's (`PlainNet.work` times rows) that takes no longer than to start an engine.
MOST_WORK = 2_000_000_000


class AnsweringNet:
    """A model that is ready to answer rows whose inputs have the given shapes.

    An engine starts only if NumPy cannot compute the net, or would take too long for the expected number of
    rows.
    """

    def __init__(
        self, db: Database, model: models.Model, shapes: Sequence[Sequence[int]], rows: int | None = None
    ) -> None:
        self._db, self._model, self._shapes = db, model, shapes
        plain: PlainNet | None = None
        # The weights are kept until an engine has loaded them, so that large weights are read once.
        self._weights: bytes | None = None
        if not models.runs_engine():
            self._weights = model.weights()
            plain = plain_net(model.model_arch, self._weights, tuple(tuple(shape) for shape in shapes))
        self._plain = plain if plain is not None and _is_worth(plain, rows) else None
        self.described = self._describe_by_engine() if self._plain is None else self._plain.described

    def answer(self, inputs: Sequence[np.ndarray], threads: Threads) -> list[np.ndarray]:
        """Return the outputs of the net for any number of rows, as float32."""
        given = list(inputs)
        if self._plain is not None:
            try:
                return _join(threads.run(_split(self._plain, given)))
            except NotHere:
                # The rows may be those of a query, which has its own search_path.
                with session.own_names(self._db):
                    self.described, self._plain = self._describe_by_engine(), None
        forward, loaded = self.loaded
        return forward.predict_many(loaded, given, forward.rows, threads)

    @cached_property
    def loaded(self) -> tuple[Inference, Loaded]:
        """The compiled net of the engine, and the weights that the engine has loaded."""
        forward = inference(self.described)
        weights, self._weights = self._weights, None
        return forward, forward.load(self._model.weights() if weights is None else weights)

    def load(self) -> None:
        """Load the weights into the engine now, if an engine answers, instead of at the first row."""
        if self._plain is None:
            _ = self.loaded

    @property
    def nbytes(self) -> int:
        """The bytes that the loaded weights take."""
        return self.loaded[1].nbytes if self._plain is None else self._plain.nbytes

    def _describe_by_engine(self) -> DescribedModel:
        return models.describe_by_engine(self._db, self._model, self._shapes)


def answer_packed(db: Database, model: models.Model, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of a net, as float32, for inputs in the form of packed rows."""
    shapes = [rows.shape[1:] for rows in inputs]
    return AnsweringNet(db, model, shapes, len(inputs[0])).answer(inputs, models.open_threads(db))


def _is_worth(plain: PlainNet, rows: int | None) -> bool:
    """Return whether NumPy computes this number of rows before an engine could start and compute them."""
    if rows is None:
        return plain.work == 0
    return plain.is_light and plain.work * rows <= MOST_WORK


def _split(plain: PlainNet, inputs: Sequence[np.ndarray]) -> list[Callable[[Tick], list[np.ndarray]]]:
    """Cut the rows into blocks of at most ROWS rows; return a function for each block that answers it."""
    starts = range(0, len(inputs[0]), ROWS)
    return [partial(_answer_part, plain, [rows[at : at + ROWS] for rows in inputs]) for at in starts]


def _answer_part(plain: PlainNet, inputs: list[np.ndarray], tick: Tick) -> list[np.ndarray]:
    found = plain(inputs)
    tick()
    return found


def _join(parts: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    return [np.concatenate(same) for same in zip(*parts, strict=True)]
