"""Checks that packed rows have the columns, scaling and classes of the rows that a model was trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import NOT_SUPPORTED, WRONG_STATE, CerebroError
from cerebro_plpy.features import specification
from cerebro_plpy.madlib.literal import shorten
from cerebro_plpy.predicting import models
from cerebro_plpy.predicting.holders import ModelHolder, may_only_predict
from cerebro_plpy.store.models import predictions
from cerebro_plpy.store.names import resolve_table
from cerebro_plpy.store.packed.packed import PackedSummary


def check(db: Database, model: ModelHolder, rows: PackedSummary, name: str) -> None:
    """Raise an error if a packed table has other columns, scaling or classes than the model's training rows.

    To a caller who may only predict, the error shows no more of the training rows than predictions do.
    """
    row, shows = model.summary(db), not may_only_predict(model)
    for problem in _problems(db, model, row, rows, shows):
        source = f", {row['source_table']}" if shows and row.get("source_table") else ""
        raise CerebroError(
            f"{name} was not packed as the rows that {model.name} was trained on: {problem}",
            detail="The model would take its rows for others, and every figure would be wrong.",
            hint=f"Pack the rows with cerebro.validation_preprocessor_dl and the training table{source};"
            " cerebro.evaluate_by measures a model on rows as they are.",
            sqlstate=WRONG_STATE,
        )


def refuse_features(rows: PackedSummary, name: str) -> None:
    """Raise an error if a table holds the outputs of a net's layers in place of the rows that a net takes."""
    if rows.stored is None:
        return
    raise CerebroError(
        f"{name} holds outputs of layer {shorten(rows.stored.layer, 63)}, and this call takes rows",
        detail=f"It was made of {rows.stored.source_table} by cerebro.materialize_features.",
        hint=f"Name {rows.stored.source_table}, which has the same labels.",
        sqlstate=NOT_SUPPORTED,
    )


def _problems(
    db: Database, model: ModelHolder, row: Mapping[str, Any], rows: PackedSummary, shows: bool
) -> Iterator[str]:
    """Yield the differences between the packed table and the training rows that would change an answer.

    A model of an earlier release does not store every fact; a fact that is missing counts as no difference.
    """
    other = specification.difference(models.features_of(row), rows.features, shows_own=shows)
    if other is not None:
        yield other
    divisor = row.get("normalizing_const")
    if divisor is not None and divisor != rows.normalizing_const:
        own = f"not {divisor:g}" if shows else "and another one there"
        yield f"normalizing_const is {rows.normalizing_const:g}, {own}"
    names: list[str] = row["dependent_varname"]
    if len(names) != len(rows.dependent_varname):
        yield f"it has {len(rows.dependent_varname)} labels, not {len(names)}"
        return
    packed_in = resolve_table(db, rows.quoted, "summary of the packed table")
    expected = model.class_values(db, names)
    found = predictions.class_values(db, packed_in, rows.dependent_varname)
    for label, own, given in zip(names, expected, found, strict=True):
        # Rows that were one-hot when they were packed have no names of classes.
        if own is not None and given is not None and own != given:
            yield f"the classes of {label} are {shorten(given)}, not {shorten(own)}"
