"""Determines the classes of labels after all rows are read, and encodes labels as one-hot vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.errors import INTERNAL, CerebroError
from cerebro_plpy.packing.columns.sources import ONE_HOT
from cerebro_plpy.packing.job import Job
from cerebro_plpy.packing.rows.labels import one_hot
from cerebro_plpy.packing.rows.reading import Column, place_of_labels
from cerebro_plpy.store.packed import classes as stored


@dataclass
class Labels:
    """The classes of one dependent column.

    `values` has the class values in order, and `width` is the number of classes. Labels get codes while rows
    are read; `places` has the place among `values` for each code.
    """

    values: list[str | None] | None
    width: int | None
    places: np.ndarray | None = None

    def counts(self, column: Column) -> list[int] | None:
        """Return how many rows each class has; a one-hot row counts for the class of its first 1."""
        if self.width is None:
            return None
        if self.places is None:
            found = column.counts
        else:
            found = np.bincount(self.places, column.counts, minlength=self.width)
        return [int(n) for n in found] + [0] * (self.width - len(found))


def encode(array: np.ndarray, column: Column, labels: Sequence[Labels], index: int) -> np.ndarray:
    """Return the values of a column as the packed table stores them: class labels as one-hot vectors."""
    if column.classes is None:
        return array.reshape(len(array), *column.shape)
    label = labels[index]
    if label.places is None or label.width is None:
        raise CerebroError("classes are not settled", sqlstate=INTERNAL)
    return one_hot(label.places[array[:, 0]], label.width)


def settle(db: Database, job: Job, index: int, column: Column) -> Labels:
    """Return the classes of one dependent column in order; raise an error if the job does not allow them."""
    if column.classes is None:
        width = column.shape[-1] if column.part.kind == ONE_HOT else None
        _check_width(job, index, column, width)
        # One-hot rows may stand for the classes of training rows that were packed by their labels.
        return Labels(job.class_values[index] if job.is_validation else None, width)
    labels = column.classes.labels
    if job.is_validation:
        same = job.class_types[index] == f"{column.labels.base_type}[]"
        compared = column.labels.base_type if same else "text"
        known = job.class_values[index]
        if job.takes_new_classes and known is not None:
            known = _with_new(db, column, labels, known, compared)
        return _known_labels(db, column, labels, known, compared)
    texts = [label for label in labels if label is not None]
    has_null = len(texts) < len(labels)
    places = {
        text: place + has_null
        for text, place in stored.class_positions(db, column.labels.base_type, texts).items()
    }
    if has_null:
        db.notice(f'column "{column.part.name}" is NULL in some rows: NULL is a class of its own, the first')
    distinct = has_null + len(set(places.values()))
    width = job.num_classes[index] or distinct
    if width < distinct:
        raise CerebroError(
            f'num_classes is {width}, but column "{column.part.name}" has {distinct} distinct values',
            hint="It must be equal to or greater than the number of distinct class values.",
        )
    values: list[str | None] = [None] * width
    for text in sorted(places, reverse=True):
        values[places[text]] = text
    return Labels(values, width, place_of_labels(labels, places, 0))


def _with_new(
    db: Database,
    column: Column,
    labels: Sequence[str | None],
    values: list[str | None],
    compared: str,
) -> list[str | None]:
    """Return the class `values` of a packed table, with the new ones among `labels` in its free places.

    Places are free if `num_classes` was greater than the number of classes when the table was packed.
    Labels are compared with classes as values of the type `compared`.
    """
    texts = [label for label in labels if label is not None]
    known = stored.known_positions(db, compared, texts, values)
    places = stored.class_positions(db, compared, [text for text in texts if text not in known])
    # Texts that are the same value of the type, as 1 and 01 may be, are one class.
    fresh = list({place: text for text, place in sorted(places.items(), reverse=True)}.items())
    used = max(place for place, value in enumerate(values, 1) if value is not None or place == 1)
    if None in labels and values[0] is not None:
        raise _new_classes(column, ["NULL"], values, "NULL can only be the first class.")
    if len(fresh) > len(values) - used:
        shown = sorted(text for _, text in fresh)
        raise _new_classes(column, shown, values, f"There is room for {len(values) - used} more.")
    added = [text for _, text in sorted(fresh)]
    if added:
        db.notice(f'column "{column.part.name}" has new classes: {", ".join(added[:10])}')
    return [*values[:used], *added, *[None] * (len(values) - used - len(added))]


def _new_classes(
    column: Column, found: Sequence[str], values: Sequence[str | None], room: str
) -> CerebroError:
    known = ", ".join("NULL" if value is None else value for value in values[:100])
    return CerebroError(
        f'column "{column.part.name}" has class values that the packed table does not have:'
        f" {', '.join(found[:10])}",
        detail=f"The packed table has {known}. {room}",
        hint="Leave such rows out with a view, or pack all rows again; num_classes leaves room for classes.",
    )


def _check_width(job: Job, index: int, column: Column, width: int | None) -> None:
    given = job.num_classes[index]
    if given is not None and given != width:
        what = f"vectors of {width}" if width else "numbers, not classes"
        raise CerebroError(f'num_classes is {given}, but column "{column.part.name}" holds {what}')


def _known_labels(
    db: Database,
    column: Column,
    labels: Sequence[str | None],
    values: list[str | None] | None,
    compared: str,
) -> Labels:
    """Return the labels of validation rows as places among the training table's class `values`.

    Labels are compared with classes as values of the type `compared`. Raise an error if a label is no
    class.
    """
    if values is None:
        raise CerebroError(
            f'column "{column.part.name}" has classes, but the training table was packed without classes',
            sqlstate=INTERNAL,
        )
    texts = [label for label in labels if label is not None]
    places = stored.known_positions(db, compared, texts, values)
    null_place = values.index(None) if None in values[:1] else None
    strange = [label for label in labels if (null_place is None if label is None else label not in places)]
    if strange:
        shown = ", ".join("NULL" if label is None else label for label in sorted(strange, key=str)[:10])
        raise CerebroError(
            f'column "{column.part.name}" has class values that the training table does not have: {shown}',
            detail=f"The training table has {', '.join('NULL' if v is None else v for v in values[:100])}.",
            hint="Validation rows may have only classes of the training rows: leave the others out, or hold"
            ' out a share of each class: options => \'{"validation": {"share": 0.2, "stratify": true}}\'.',
        )
    return Labels(values, len(values), place_of_labels(labels, places, null_place))
