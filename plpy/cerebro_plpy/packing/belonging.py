"""Checks that a validation table belongs to a training table."""

from __future__ import annotations

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.features import specification
from cerebro_plpy.madlib.literal import shorten
from cerebro_plpy.store.packed.packed import PackedSummary


def check(training: str, ours: PackedSummary, validation: str, theirs: PackedSummary) -> None:
    """Raise an error unless a validation table has the training table's shapes, segments and classes.

    Columns may have other names, but must hold the same things in the same order.
    """
    problem = _problem(ours, theirs)
    if problem is not None:
        raise CerebroError(
            f"validation table {validation} does not fit source table {training}: {problem}",
            hint="Pack it with cerebro.validation_preprocessor_dl and this source table.",
        )


def _problem(ours: PackedSummary, theirs: PackedSummary) -> str | None:
    for what in ("input_shapes", "target_shapes", "segments", "num_classes", "normalizing_const"):
        if getattr(ours, what) != getattr(theirs, what):
            return _instead(what, getattr(theirs, what), getattr(ours, what))
    other = specification.difference(ours.features, theirs.features)
    if other is not None:
        return other
    for what in ("independent_varname", "dependent_varname"):
        own, given = getattr(ours, what), getattr(theirs, what)
        if own != given and sorted(own) == sorted(given):
            return _instead(what, given, own)
    for own, given in zip(ours.class_values, theirs.class_values, strict=True):
        # Rows that were one-hot when they were packed have no names of classes.
        if own is not None and given is not None and own != given:
            return _instead("the list of classes", given, own)
    return None


def _instead(what: str, found: object, expected: object) -> str:
    return f"{what} is {shorten(found)}, not {shorten(expected)}"
