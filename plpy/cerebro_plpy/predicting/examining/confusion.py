"""cerebro.confusion_matrix: compares a model's predictions for the rows of a packed table with the labels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.engine.checks.architecture import DescribedModel
from cerebro_plpy.engine.models.data import Dataset
from cerebro_plpy.errors import NOT_SUPPORTED, CerebroError
from cerebro_plpy.predicting import belonging, choices, models
from cerebro_plpy.predicting.answering.net import AnsweringNet
from cerebro_plpy.predicting.outputs import Output
from cerebro_plpy.predicting.trained import find_model
from cerebro_plpy.segment.rows import TableSource, layout
from cerebro_plpy.store import session
from cerebro_plpy.store.models import predictions
from cerebro_plpy.store.names import resolve_table
from cerebro_plpy.store.packed import packed

# label, what is predicted, how many rows
MatrixCell = tuple[str | None, str | None, int]


def confusion(
    db: Database, model: str | None, packed_table: str | None, mst_key: int | None
) -> list[MatrixCell]:
    """Return the number of rows for each pair of a label and a predicted class that occurs.

    Without an `mst_key`, the best config predicts.
    """
    table = resolve_table(db, packed_table, "packed table")
    summary = packed.summary(db, table.schema, table.name)
    belonging.refuse_features(summary, table.quoted)
    found = find_model(db, model, mst_key)
    trained = models.trained(db, found)
    labels = summary.class_values[0]
    if len(summary.class_values) != 1 or labels is None:
        raise CerebroError(
            f"{table.quoted} has no single label with classes",
            hint="Compare numbers by their differences: cerebro.madlib_predict gives the predictions.",
            sqlstate=NOT_SUPPORTED,
        )
    belonging.check(db, found.holder, summary, table.quoted)
    net = AnsweringNet(db, trained, summary.input_shapes, summary.total_rows)
    _check_inputs(net.described, summary, table.quoted)
    output = _output(trained.outputs(net.described), model)
    threads = models.open_threads(db)
    counts = np.zeros((len(labels), len(output.values or ())), np.int64)
    for rows in _buffers(db, table.quoted, len(summary.keys)):
        (result,) = net.answer(rows.inputs, threads)
        likely = choices.probabilities(result, output.logits, output.is_binary)[:, : counts.shape[1]]
        np.add.at(counts, (rows.targets[0].values.argmax(axis=1), choices.find_likeliest(likely)), 1)
    (shown,) = predictions.class_values(
        db, resolve_table(db, summary.quoted, "summary"), summary.dependent_varname
    )
    named, predicted = shown or labels, output.values or []
    return [(named[y], predicted[p], int(counts[y, p])) for y, p in np.argwhere(counts)]


def _buffers(db: Database, table: str, segments: int) -> Iterator[Dataset]:
    role = session.current_user(db)
    known = db.as_caller(role, layout, db, table)
    for segment in range(segments):
        source = TableSource(db, role, table, segment, known)
        for number in range(len(source.look()[1])):
            yield source.load(number)


def _check_inputs(described: DescribedModel, summary: packed.PackedSummary, table: str) -> None:
    stored = [tuple(shape) for shape in summary.input_shapes]
    wanted = list(described.inputs)
    if len(stored) == len(wanted) and all(map(_fits, stored, wanted)):
        return
    raise CerebroError(
        f"the rows of {table} have the shapes {stored}, the model's inputs {wanted}",
        hint="Name the table that the model trained on, or one that was packed as its validation table.",
    )


def _fits(stored: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(stored) == len(wanted) and all(w in (None, s) for s, w in zip(stored, wanted, strict=True))


def _output(outputs: list[Output], model: str | None) -> Output:
    if len(outputs) != 1 or outputs[0].values is None:
        raise CerebroError(f"{model} has no single output with classes", sqlstate=NOT_SUPPORTED)
    return outputs[0]
