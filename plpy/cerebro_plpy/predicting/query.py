"""cerebro.predict_query: the rows of a query with their predictions, a batch at a time.

The rows themselves stay with the server: what comes here are the fields that the net needs. What goes back
are arrays, which the server puts beside the rows again.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np

from cerebro_plpy import memory
from cerebro_plpy.database import Database
from cerebro_plpy.engine.inference import Inference, Loaded, inference
from cerebro_plpy.errors import NOT_SUPPORTED, NULL_NOT_ALLOWED, UNDEFINED_COLUMN, CerebroError
from cerebro_plpy.packing import inputs, reading, sources
from cerebro_plpy.packing.columns import Item
from cerebro_plpy.packing.faults import Faults
from cerebro_plpy.predicting import choices, models
from cerebro_plpy.predicting.outputs import Output
from cerebro_plpy.predicting.trained import find_model
from cerebro_plpy.segment.cancel import ticker
from cerebro_plpy.store import packed, predictions, session
from cerebro_plpy.store.predictions import QueryRows

# class, probability, prediction of each row
BatchAnswer = tuple[list[str | None] | None, list[float] | None, list[float] | None]
BATCH = 4096
KEPT = 8


class Reader:
    """The model of the statement that is under way, and how its rows are read."""

    def __init__(
        self, parts: Sequence[reading.PackedPart], forward: Inference, loaded: Loaded, output: Output
    ) -> None:
        self.parts, self.forward, self.loaded, self.output = parts, forward, loaded, output
        self.divisor, self.rows = 1.0, 0
        # Whose statement it is: the session may be another role's by the time a batch comes.
        self.user = session.statement()[2]


class _Readers(dict[str, Reader]):
    """By the tickets that their statements carry, the newest last."""


def statement(db: Database, model: str | None, query: str | None, row_type: int, mst_key: int | None) -> str:
    """The statement that gives the query's rows with their predictions; the model is ready for it."""
    db.server.check_predicts_in_queries()
    if model is None or query is None or not query.strip():
        raise CerebroError("model or query is NULL", sqlstate=NULL_NOT_ALLOWED)
    rows = predictions.query_rows(db, query, row_type)
    found = find_model(db, model, mst_key, best=True)
    predictions.version(db, found.table, found.mst_key)
    trained = models.trained(db, found)
    parts = _parts(db, trained, rows)
    models.start_engine(db, trained.backend, False)
    models.take_functions(db, trained)
    shapes = [] if trained.features is None else [one.shape for one in trained.features.inputs]
    described = models.described(trained, shapes)
    outputs = trained.outputs(described)
    if len(outputs) != 1 or (outputs[0].values is None and outputs[0].width > 1):
        raise CerebroError(
            f"{model} has several outputs", hint="Use cerebro.madlib_predict.", sqlstate=NOT_SUPPORTED
        )
    forward = inference(described)
    reader = Reader(parts, forward, forward.load(trained.weights()), outputs[0])
    reader.divisor = trained.divisor
    # A cursor may hold one open while another begins; a few are kept.
    readers, ticket = memory.of(_Readers), secrets.token_hex(16)
    while len(readers) >= KEPT:
        del readers[next(iter(readers))]
    readers[ticket] = reader
    return predictions.query_statement(rows, reading.fields(parts), ticket, BATCH)


def _parts(db: Database, model: models.Model, rows: QueryRows) -> Sequence[reading.PackedPart]:
    known = packed.columns_of(db, rows.columns)
    if model.features is not None:
        return inputs.parts(model.features, known, "the query")
    missing = [name for name in model.independents if name not in known]
    if missing:
        raise CerebroError(
            f'the query lacks the column "{missing[0]}"',
            hint="Name its columns as those of the training table.",
            sqlstate=UNDEFINED_COLUMN,
        )
    return sources.inputs([Item((name,), False) for name in model.independents], known, "the query")


def batch(
    db: Database, ticket: str, data: list[bytes | None] | None, texts: list[str | None] | None, rows: int
) -> BatchAnswer:
    """Predict some rows, whose fields come one after the other."""
    reader = memory.of(_Readers).get(ticket)
    if reader is None or reader.user != session.statement()[2]:
        raise CerebroError("this function is for the extension's own use", sqlstate="42501")
    given = _fields(reader.parts, data, texts, rows)
    seen = Faults()
    samples = iter(given)
    arrays = []
    for part in reader.parts:
        own = [next(samples) for _ in part.expressions]
        arrays.append(_read(part, own, reader.divisor, seen))
    if seen:
        raise seen.error(rows)
    reader.rows += rows
    size = min(reader.forward.rows, BATCH)
    (result,) = reader.forward.predict_many(reader.loaded, arrays, size, ticker(db))
    return _answers(reader.output, result.reshape(rows, -1))


def _fields(
    parts: Sequence[reading.PackedPart],
    data: list[bytes | None] | None,
    texts: list[str | None] | None,
    rows: int,
) -> list[Sequence[Any]]:
    """The values of each field: bytes and texts come apart."""
    at = {True: 0, False: 0}
    found: list[Sequence[Any]] = []
    for expression in reading.fields(parts):
        values: Sequence[Any] = (texts if expression.is_text else data) or ()
        first = at[expression.is_text]
        found.append(values[first : first + rows])
        at[expression.is_text] += rows
    return found


def _read(
    part: reading.PackedPart, fields: Sequence[Sequence[Any]], divisor: float, seen: Faults
) -> np.ndarray:
    sample = next((value for value in fields[0] if value is not None), None)
    column = reading.open_column(part=part, sample=sample, shape=None, divisor=divisor, seed=0, seen=seen)
    values = np.empty((len(fields[0]), column.stored[1]), np.float32)
    if column.reader is not None:
        column.reader.read(fields, values, 1)
    return values.reshape(len(values), *column.shape)


def _answers(output: Output, result: np.ndarray) -> BatchAnswer:
    if output.values is None:
        return None, None, result[:, 0].astype(np.float64).tolist()
    likely = choices.probabilities(result, output.logits, output.is_binary)[:, : len(output.values)]
    places = likely.argmax(axis=1)
    names = np.array(output.values, object)[places].tolist()
    return names, likely[np.arange(len(likely)), places].tolist(), None
