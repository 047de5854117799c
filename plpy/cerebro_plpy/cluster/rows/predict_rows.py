"""Predicts one segment's share of a table's rows, in the segment's process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from cerebro_plpy.cluster.protocol import ExpectRows
from cerebro_plpy.cluster.rows import pack_rows
from cerebro_plpy.engine.checks import custom
from cerebro_plpy.engine.checks.architecture import describe
from cerebro_plpy.engine.models.inference import inference
from cerebro_plpy.madlib import registered
from cerebro_plpy.packing.faults import Faults
from cerebro_plpy.packing.rows.reading import by_column
from cerebro_plpy.predicting import choices
from cerebro_plpy.predicting.choices import ClassChoice
from cerebro_plpy.predicting.outputs import Output
from cerebro_plpy.threads import Threads

# id, class_name, class_value, prob, rank, prediction
PredictedRow = tuple[str | None, str, str | None, float | None, int | None, list[float] | None]


class Predicting:
    """A receiver of a scan's rows that predicts them in batches and keeps the predictions."""

    def __init__(
        self,
        asked: ExpectRows,
        sample: Sequence[bytes | None],
        weights: bytes,
        tick: Callable[[], None],
    ) -> None:
        self.faults, self.rows = Faults(), 0
        self._columns = pack_rows.columns_of(asked, sample, self.faults)
        shapes = [tuple(shape) for shape in asked.shapes]
        self._shapes = shapes
        with registered.scope(custom.take(asked.functions)):
            self._forward = inference(describe(asked.model_arch, input_shapes=tuple(shapes)))
        self._loaded = self._forward.load(weights)
        self._outputs = [Output(**output) for output in asked.outputs]
        self._choice = ClassChoice(**asked.choice)
        self._batch = asked.batch_rows
        self._tick = tick
        self._waiting: list[pack_rows.Fields] = []
        self._found: list[tuple[Output, list[str | None], np.ndarray]] = []

    def take(self, fields: pack_rows.Fields) -> None:
        self._waiting.append(fields)
        if len(self._waiting) == self._batch:
            self.finish()

    def finish(self) -> None:
        """Predict the rows received since the last batch."""
        if not self._waiting:
            return
        ids, *values = zip(*self._waiting, strict=True)
        found = by_column(pack_rows.decoded(values, self._columns), self._columns)
        inputs = [self._read(number, own) for number, own in enumerate(found)]
        self.rows += len(ids)
        self._waiting.clear()
        if self.faults:
            return
        texts = [None if own is None else own.decode() for own in ids]
        batch_rows = min(self._forward.rows, self._batch)
        results = self._forward.predict_many(self._loaded, inputs, batch_rows, Threads(1, self._tick))
        self._found += [(o, texts, r) for o, r in zip(self._outputs, results, strict=True)]

    def _read(self, number: int, values: Sequence[Sequence[Any]]) -> np.ndarray:
        column = self._columns[number]
        array = np.empty((len(values[0]), column.stored[1]), np.float32)
        if column.reader is not None:
            column.reader.read(values, array, self.rows + 1)
        return array.reshape(len(array), *self._shapes[number])

    def predictions(self) -> Iterator[PredictedRow]:
        for output, ids, result in self._found:
            flat = result.reshape(len(ids), -1)
            if output.values is None:
                for own, row in zip(ids, flat.tolist(), strict=True):
                    yield own, output.name, None, None, None, row
                continue
            likely = choices.probabilities(flat, output.logits, output.is_binary)
            picked = choices.pick(likely[:, : len(output.values)], self._choice)
            lists = (picked.rows, picked.places, picked.probabilities, picked.ranks)
            for row, place, likelihood, rank in zip(*(a.tolist() for a in lists), strict=True):
                yield ids[row], output.name, output.values[place], likelihood, rank, None

    def close(self) -> None:
        self._found.clear()
