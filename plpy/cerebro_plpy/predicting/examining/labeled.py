"""Reads rows whose label is known, as a model takes them: to compare its answers with what is true."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cerebro_plpy.database import Database, Row
from cerebro_plpy.engine.models.inference import Inference, Loaded, inference
from cerebro_plpy.errors import DATATYPE_MISMATCH, INTERNAL, NOT_SUPPORTED, WRONG_STATE, CerebroError
from cerebro_plpy.packing.columns import inputs, sources
from cerebro_plpy.packing.columns.grammar import Item
from cerebro_plpy.packing.faults import Faults
from cerebro_plpy.packing.rows import reading
from cerebro_plpy.predicting import models, trained
from cerebro_plpy.predicting.outputs import Output
from cerebro_plpy.segment.cancel import ticker
from cerebro_plpy.store.names import Table, resolve_table
from cerebro_plpy.store.packed import packed, source_rows
from cerebro_plpy.store.packed.packed import Expression, SourceColumn


@dataclass(frozen=True)
class LabeledRows:
    """Some rows: the inputs, what is true of them, as numbers and as it was read, and further texts."""

    inputs: list[np.ndarray]
    truth: np.ndarray
    labels: list[str]
    texts: list[tuple[str | None, ...]]


@dataclass(frozen=True)
class Judge:
    """A model that is ready to answer the rows of a table, and where their labels are."""

    db: Database
    model: models.Model
    output: Output
    table: Table
    columns: Sequence[reading.Column]
    # None where a table without labels will do.
    label: SourceColumn | None
    # What is read of each row besides its label and its inputs.
    texts: Sequence[Expression]
    forward: Inference
    loaded: Loaded
    seen: Faults
    tick: Callable[[], None]

    @property
    def is_classes(self) -> bool:
        return self.output.values is not None

    def read(self, most: int | None = None, seed: int = 0) -> Iterator[LabeledRows]:
        """Yield the rows whose label the model knows: all, or so many that chance chooses."""
        label = self._needed_label
        table = source_rows.with_values(self.table, label)
        if most is not None:
            table = source_rows.draw_rows(table, most, seed)
        before = [Expression(packed.TEXT, (label,)), *self.texts]
        total = read = 0
        for batch in self._scan(table, before):
            known = [row for row in batch if self.knows(row["c0"])]
            arrays = self._inputs(known, len(before), read)
            total, read = total + len(batch), read + len(known)
            self.tick()
            if known and not self.seen:
                labels = [row["c0"] for row in known]
                texts = [tuple(row[f"c{n}"] for n in range(1, len(before))) for row in known]
                yield LabeledRows(arrays, self.truth(labels), labels, texts)
        self._finish(total, read)

    def read_all(self) -> Iterator[tuple[list[np.ndarray], list[str | None], list[tuple[str | None, ...]]]]:
        """Yield the inputs of all rows, with their labels, None where there is none, and their texts."""
        label = [] if self.label is None else [Expression(packed.TEXT, (self.label,))]
        before = [*label, *self.texts]
        read = 0
        for batch in self._scan(self.table, before):
            arrays = self._inputs(batch, len(before), read)
            read += len(batch)
            self.tick()
            if not self.seen:
                texts = [tuple(row[f"c{n}"] for n in range(len(label), len(before))) for row in batch]
                yield arrays, [row["c0"] if label else None for row in batch], texts
        if self.seen:
            raise self.seen.error(read)

    def _scan(self, table: Table, before: Sequence[Expression]) -> Iterator[list[Row]]:
        expressions = [*before, *reading.fields([column.part for column in self.columns])]
        return self.db.scan(packed.select_rows(table, expressions), batch=reading.BATCH_ROWS)

    def _inputs(self, rows: Sequence[Row], first: int, before: int) -> list[np.ndarray]:
        """Decode the inputs of some rows, whose fields begin with the number `first`."""
        count = len(reading.fields([column.part for column in self.columns]))
        values = [[row[f"c{number}"] for row in rows] for number in range(first, first + count)]
        given = zip(self.columns, reading.by_column(values, self.columns), strict=True)
        return [reading.read_column(column, own, before) for column, own in given]

    @property
    def _needed_label(self) -> SourceColumn:
        if self.label is None:
            raise CerebroError(f"{self.table.quoted} has no labels", sqlstate=INTERNAL)
        return self.label

    def _finish(self, total: int, read: int) -> None:
        if self.seen:
            raise self.seen.error(read)
        label = self._needed_label.name
        if not read:
            raise CerebroError(
                f'the model knows the label "{label}" of none of {total} rows of {self.table.quoted}',
                hint="Give rows whose label is one that it was trained on.",
                sqlstate=WRONG_STATE,
            )
        if read < total:
            few = f"{total - read} of {total} rows are left out"
            self.db.notice(f'{few}: the model does not know their "{label}"')

    def knows(self, label: str | None) -> bool:
        """Return whether the model can be right about a label."""
        return label is not None and (self.output.values is None or label in self.output.values)

    def truth(self, labels: Sequence[str]) -> np.ndarray:
        """Return a one at the place of each row's class, or the quantities."""
        if self.output.values is None:
            return np.array(labels, np.float64).reshape(-1, 1)
        places = {value: place for place, value in enumerate(self.output.values)}
        return np.eye(len(places))[[places[label] for label in labels]]

    def answer(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Return the probability of each class, or the predicted quantity, for each row."""
        (result,) = self.forward.predict_many(self.loaded, list(arrays), self.forward.rows, self.tick)
        return self.output.read(result)

    def find_places(self) -> Mapping[str, tuple[int, slice]]:
        """Return what each source column became: the number of the input, and which numbers of its rows."""
        if self.model.features is None:
            return {column.part.name: (number, slice(None)) for number, column in enumerate(self.columns)}
        found: dict[str, tuple[int, slice]] = {}
        for number, one in enumerate(self.model.features.inputs):
            first = 0
            for feature in one.features:
                alone = len(one.features) == 1
                found[feature.name] = number, slice(None) if alone else slice(first, first + feature.width)
                first += feature.width
        return found


def find_judge(
    db: Database,
    name: str | None,
    table_name: str | None,
    mst_key: int | None,
    keys: Sequence[str] = (),
    *,
    whole_rows: bool = False,
    needs_label: bool = True,
) -> Judge:
    """Make a model ready for a table or view that has its columns, and its label if that is needed.

    Texts of the columns `keys` are read as well, or of `whole_rows` the JSON, without columns of bytes.
    """
    model = models.trained(db, trained.find_model(db, name, mst_key))
    table = resolve_table(db, table_name, "table of rows")
    known = packed.columns_of(db, table)
    seen = Faults()
    columns = _open_columns(db, model, table, known, seen)
    models.start_engine(db, model.backend, False)
    models.take_functions(db, model)
    described = models.described(model, [column.shape for column in columns])
    outputs = model.outputs(described)
    if len(outputs) != 1 or (outputs[0].values is None and outputs[0].width > 1):
        raise CerebroError(f"{name} has several outputs", sqlstate=NOT_SUPPORTED)
    has_label = needs_label or outputs[0].name in known
    label = sources.find_column(outputs[0].name, known, table.quoted) if has_label else None
    texts = [Expression(packed.TEXT, (sources.find_column(key, known, table.quoted),)) for key in keys]
    if whole_rows:
        shown = [column for column in known.values() if column.element != "bytea"]
        texts.append(Expression(packed.ROW, tuple(shown)))
    if label and outputs[0].values is None and label.element not in (*sources.INTEGERS, *sources.FLOATS):
        raise CerebroError(
            f'column "{label.name}" of {table.quoted} is {label.shown_type}, and the model predicts numbers',
            hint="Cast it in a view.",
            sqlstate=DATATYPE_MISMATCH,
        )
    forward = inference(described)
    return Judge(
        db=db,
        model=model,
        output=outputs[0],
        table=table,
        columns=columns,
        label=label,
        texts=texts,
        forward=forward,
        loaded=forward.load(model.weights()),
        seen=seen,
        tick=ticker(db),
    )


def _open_columns(
    db: Database, model: models.Model, table: Table, known: Mapping[str, SourceColumn], seen: Faults
) -> list[reading.Column]:
    parts: Sequence[reading.PackedPart] = (
        sources.inputs([Item((name,), False) for name in model.independents], known, table.quoted)
        if model.features is None
        else inputs.parts(model.features, known, table.quoted)
    )
    sample = packed.first_row(db, packed.select_rows(table, reading.fields(parts)))
    if sample is None:
        raise CerebroError(f"{table.quoted} has no rows", sqlstate=WRONG_STATE)
    return [
        reading.open_column(part=part, sample=value, shape=None, divisor=model.divisor, seed=0, seen=seen)
        for part, value in zip(parts, reading.samples(sample, parts), strict=True)
    ]
