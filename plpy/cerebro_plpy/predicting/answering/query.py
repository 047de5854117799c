"""cerebro.predict_query: returns the rows of a query with their predictions, a batch at a time.

The server keeps the rows: Python gets only the fields that the net needs. Python returns arrays of
predictions, which the server joins to the rows.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cerebro_plpy import memory
from cerebro_plpy.database import Database
from cerebro_plpy.engine.checks.architecture import Shape
from cerebro_plpy.errors import NOT_SUPPORTED, NULL_NOT_ALLOWED, UNDEFINED_COLUMN, CerebroError
from cerebro_plpy.packing.columns import inputs, sources
from cerebro_plpy.packing.columns.grammar import Item
from cerebro_plpy.packing.faults import Faults
from cerebro_plpy.packing.rows import reading
from cerebro_plpy.predicting import choices, group_holders, models
from cerebro_plpy.predicting.answering import grouped
from cerebro_plpy.predicting.answering.net import AnsweringNet
from cerebro_plpy.predicting.group_holders import GroupsHolder
from cerebro_plpy.predicting.outputs import Output
from cerebro_plpy.predicting.trained import find_model, tell_of_forecast
from cerebro_plpy.segment.cancel import ticker
from cerebro_plpy.store import session
from cerebro_plpy.store.models import predictions
from cerebro_plpy.store.models.predictions import QueryRows
from cerebro_plpy.store.packed import packed
from cerebro_plpy.threads import Threads

# class, probability, prediction of each row
BatchAnswer = tuple[list[str | None] | None, list[float | None] | None, list[float | None] | None]
# How many readers, and bytes of their models, are kept while a statement runs: its queries may be nested.
KEPT_READERS, KEPT_BYTES = 64, 1 << 30
# The most bytes of rows and of inputs in a batch: the server collects rows and fields in arrays, of at most
# 1 GB each.
BATCH_BYTES = 64 << 20


# The outputs for the rows, and, of models of groups, whether each row has an answer (None: all have).
NetReplies = tuple[np.ndarray, Sequence[bool] | None]
AskNet = Callable[[list[np.ndarray], Sequence[Any], Callable[[], None]], NetReplies]


class Reader:
    """The model of a running statement, and how fields of the statement's rows become inputs of the model."""

    def __init__(
        self,
        parts: Sequence[reading.PackedPart],
        inputs: Sequence[Shape],
        divisor: float,
        answer: AskNet,
        output: Output,
        nbytes: int,
    ) -> None:
        self.parts, self.divisor, self.answer, self.output = parts, divisor, answer, output
        # The shapes that the net takes for a row, and how many rows a batch has.
        self.inputs, self.batch = inputs, _batch_rows(inputs)
        self.nbytes = nbytes
        # When the client's statement began, and the role whose statement it is: the session may have another
        # role when a batch comes.
        self.began, _, self.user, *_ = session.statement()


class _Readers(dict[str, Reader]):
    """The readers of running statements, the newest last.

    The key is a random ticket, which the statement contains.
    """

    def add(self, ticket: str, reader: Reader) -> None:
        """Add a reader, after the readers of earlier statements and those beyond the limits are dropped.

        A statement of the client ends before the next begins, but its queries may be nested in each other:
        the newest one has ended, unless this one is nested in it.
        """
        for known in [key for key, one in self.items() if one.began != reader.began]:
            del self[known]
        while len(self) > 1 and (
            len(self) >= KEPT_READERS or sum(one.nbytes for one in self.values()) + reader.nbytes > KEPT_BYTES
        ):
            self.popitem()
        self[ticket] = reader


def statement(db: Database, model: str | None, query: str | None, row_type: int, mst_key: int | None) -> str:
    """Make the model ready, and return the SQL statement that adds predictions to the rows of the query."""
    db.server.check_predicts_in_queries()
    if model is None or query is None or not query.strip():
        raise CerebroError("model or query is NULL", sqlstate=NULL_NOT_ALLOWED)
    rows = predictions.query_rows(db, query, row_type)
    groups = group_holders.find_groups(db, model, mst_key)
    if groups is None:
        reader = _of_all(db, model, mst_key, rows)
    else:
        grouped.check_columns(groups.models, packed.columns_of(db, rows.columns), rows.columns)
        reader = _of_groups(db, groups, rows)
    ticket = secrets.token_hex(16)
    memory.get_instance(_Readers).add(ticket, reader)
    known = packed.columns_of(db, rows.columns)
    fields = reading.fields(reader.parts)
    if groups is None:
        return predictions.query_statement(rows, fields, ticket, (reader.batch, BATCH_BYTES))
    key, joined = groups.models.key_of_rows(known)
    return predictions.query_statement(rows, fields, ticket, (reader.batch, BATCH_BYTES), key, joined=joined)


def _of_all(db: Database, name: str, mst_key: int | None, rows: QueryRows) -> Reader:
    """Return a reader in which one model answers for every row."""
    found = find_model(db, name, mst_key)
    # This raises an error if the model table is not a plain table.
    found.holder.mark(db, found.mst_key)
    model = models.trained(db, found)
    with tell_of_forecast(db, found.holder):
        parts = _parts(db, model, rows)
        net = AnsweringNet(db, model, model.input_shapes)
        output = _only_output(name, model.outputs(net.described))
    net.load()
    count = models.count_sessions(db)

    def answer(inputs: list[np.ndarray], keys: Sequence[Any], tick: Callable[[], None]) -> NetReplies:
        (result,) = net.answer(inputs, Threads(count, tick))
        return result.reshape(len(result), -1), None

    return Reader(parts, net.described.inputs, model.divisor, answer, output, nbytes=net.nbytes)


def _of_groups(db: Database, found: GroupsHolder, rows: QueryRows) -> Reader:
    """Return a reader in which the model of a row's group answers for the row."""
    nets = grouped.Answers(db, found)
    model = nets.any_model
    output = _only_output(found.models.name, nets.settle_outputs(model.input_shapes))

    def answer(inputs: list[np.ndarray], keys: Sequence[Any], tick: Callable[[], None]) -> NetReplies:
        results, answered = nets.answer_rows(inputs, keys, output.width, tick)
        return results, answered.tolist()

    nbytes = sum(len(data) for data in nets.weights.values())
    return Reader(_parts(db, model, rows), nets.inputs, model.divisor, answer, output, nbytes=nbytes)


def _batch_rows(inputs: Sequence[Shape]) -> int:
    """Return how many rows a batch has, for a net that takes inputs of these shapes for a row."""
    numbers = sum(math.prod(length or 1 for length in shape) for shape in inputs)
    return max(1, min(grouped.BATCH, BATCH_BYTES // (4 * max(1, numbers))))


def _only_output(name: str, outputs: Sequence[Output]) -> Output:
    if len(outputs) != 1 or (outputs[0].values is None and outputs[0].width > 1):
        raise CerebroError(
            f"{name} has several outputs", hint="Use cerebro.madlib_predict.", sqlstate=NOT_SUPPORTED
        )
    return outputs[0]


def _parts(db: Database, model: models.Model, rows: QueryRows) -> Sequence[reading.PackedPart]:
    # The query may have columns that the row type lacks: they are not read.
    known, named = packed.columns_of(db, rows.columns), f'the row type "{rows.columns.name}"'
    if model.features is not None:
        return inputs.parts(model.features, known, named)
    missing = [name for name in model.independents if name not in known]
    if missing:
        raise CerebroError(
            f'{named} lacks the column "{missing[0]}"',
            hint="Give the type of a table or view that has the columns of the training table.",
            sqlstate=UNDEFINED_COLUMN,
        )
    return sources.inputs([Item((name,), False) for name in model.independents], known, named)


def batch(
    db: Database, ticket: str, data: list[bytes | None] | None, texts: list[str | None] | None, rows: int
) -> BatchAnswer:
    """Return the predictions for a batch of rows. Raise an error if the ticket does not belong to the caller.

    `data` has the fields of bytes, and `texts` the fields of text and, last, the keys of groups. Each has the
    values of its first field for all rows, then those of its second, and so on.
    """
    reader = memory.get_instance(_Readers).get(ticket)
    if reader is None or reader.user != session.statement()[2]:
        raise CerebroError("this function is for the extension's own use", sqlstate="42501")
    given = _fields(reader.parts, data, texts, rows)
    seen = Faults()
    samples = iter(given)
    arrays = []
    for part, wanted in zip(reader.parts, reader.inputs, strict=True):
        own = [next(samples) for _ in part.expressions]
        arrays.append(_read(part, own, wanted, reader.divisor, seen))
    if seen:
        raise seen.error(rows)
    result, answered = reader.answer(arrays, (texts or ())[-rows:], ticker(db))
    return _answers(reader.output, result, answered)


def _fields(
    parts: Sequence[reading.PackedPart],
    data: list[bytes | None] | None,
    texts: list[str | None] | None,
    rows: int,
) -> list[Sequence[Any]]:
    """Return the values of each field. Fields of bytes are in `data`, fields of text in `texts`."""
    at = {True: 0, False: 0}
    found: list[Sequence[Any]] = []
    for expression in reading.fields(parts):
        values: Sequence[Any] = (texts if expression.is_text else data) or ()
        first = at[expression.is_text]
        found.append(values[first : first + rows])
        at[expression.is_text] += rows
    return found


def _read(
    part: reading.PackedPart, fields: Sequence[Sequence[Any]], wanted: Shape, divisor: float, seen: Faults
) -> np.ndarray:
    sample = next((value for value in fields[0] if value is not None), None)
    column = reading.open_column(part=part, sample=sample, shape=None, divisor=divisor, seed=0, seen=seen)
    reading.fit_columns([column], [wanted])
    values = np.empty((len(fields[0]), column.stored[1]), np.float32)
    if column.reader is not None:
        column.reader.read(fields, values, 1)
    return values.reshape(len(values), *column.shape)


def _answers(output: Output, result: np.ndarray, answered: Sequence[bool] | None) -> BatchAnswer:
    if output.values is None:
        return None, None, _or_null(result[:, 0].astype(np.float64), answered)
    likely = choices.probabilities(result, output.logits, output.is_binary)[:, : len(output.values)]
    places = choices.find_likeliest(likely)
    names = _or_null(np.array(output.values, object)[places], answered)
    return names, _or_null(likely[np.arange(len(likely)), places], answered), None


def _or_null(values: np.ndarray, answered: Sequence[bool] | None) -> list[Any]:
    if answered is None:
        return values.tolist()
    return [value if is_one else None for value, is_one in zip(values.tolist(), answered, strict=True)]
