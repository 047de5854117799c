"""Reads rows whose label is known, as a model takes them: to compare its answers with what is true."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cerebro_plpy.database import Database
from cerebro_plpy.engine.inference import Inference, Loaded, inference
from cerebro_plpy.errors import DATATYPE_MISMATCH, NOT_SUPPORTED, WRONG_STATE, CerebroError
from cerebro_plpy.packing import inputs, reading, sources
from cerebro_plpy.packing.columns import Item
from cerebro_plpy.packing.faults import Faults
from cerebro_plpy.predicting import choices, models, trained
from cerebro_plpy.predicting.outputs import Output
from cerebro_plpy.segment.cancel import ticker
from cerebro_plpy.store import packed, source_rows
from cerebro_plpy.store.names import Table, resolve_table
from cerebro_plpy.store.packed import SourceColumn


@dataclass(frozen=True)
class LabeledRows:
    """Some rows: the inputs, what is true of them, and the texts of further columns."""

    inputs: list[np.ndarray]
    truth: np.ndarray
    keys: list[tuple[str | None, ...]]


@dataclass(frozen=True)
class Judge:
    """A model that is ready to answer the rows of a table, and where their labels are."""

    db: Database
    model: models.Model
    output: Output
    table: Table
    columns: Sequence[reading.Column]
    texts: Sequence[SourceColumn]
    forward: Inference
    loaded: Loaded
    seen: Faults
    tick: Callable[[], None]

    @property
    def is_classes(self) -> bool:
        return self.output.values is not None

    def read(self, most: int | None = None, seed: int = 0) -> Iterator[LabeledRows]:
        """Yield the rows whose label the model knows: all, or so many that chance chooses."""
        expressions = _expressions(self.texts, [column.part for column in self.columns])
        table = source_rows.with_values(self.table, self.texts[0])
        if most is not None:
            table = source_rows.draw_rows(table, most, seed)
        statement = packed.select_rows(table, expressions)
        fields = [f"c{number}" for number in range(len(self.texts), len(expressions))]
        total = read = 0
        for batch in self.db.scan(statement, batch=reading.BATCH_ROWS):
            known = [row for row in batch if self._knows(row["c0"])]
            values = [[row[name] for row in known] for name in fields]
            given = zip(self.columns, reading.by_column(values, self.columns), strict=True)
            arrays = [reading.read_column(column, own, read) for column, own in given]
            total, read = total + len(batch), read + len(known)
            self.tick()
            if known and not self.seen:
                truth = self._truth([row["c0"] for row in known])
                keys = [tuple(row[f"c{n}"] for n in range(1, len(self.texts))) for row in known]
                yield LabeledRows(arrays, truth, keys)
        self._finish(total, read)

    def _finish(self, total: int, read: int) -> None:
        if self.seen:
            raise self.seen.error(read)
        label = self.texts[0].name
        if not read:
            raise CerebroError(
                f'the model knows the label "{label}" of none of {total} rows of {self.table.quoted}',
                hint="Give rows whose label is one that it was trained on.",
                sqlstate=WRONG_STATE,
            )
        if read < total:
            few = f"{total - read} of {total} rows are left out"
            self.db.notice(f'{few}: the model does not know their "{label}"')

    def _knows(self, label: str | None) -> bool:
        return label is not None and (self.output.values is None or label in self.output.values)

    def _truth(self, labels: Sequence[str]) -> np.ndarray:
        """Return a one at the place of each row's class, or the quantities."""
        if self.output.values is None:
            return np.array(labels, np.float64).reshape(-1, 1)
        places = {value: place for place, value in enumerate(self.output.values)}
        return np.eye(len(places))[[places[label] for label in labels]]

    def answer(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Return the probability of each class, or the predicted quantity, for each row."""
        (result,) = self.forward.predict_many(self.loaded, list(arrays), self.forward.rows, self.tick)
        flat = result.reshape(len(result), -1)
        if self.output.values is None:
            return flat.astype(np.float64)
        found = choices.probabilities(flat, self.output.logits, self.output.is_binary)
        return found[:, : len(self.output.values)]

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
    db: Database, name: str | None, table_name: str | None, mst_key: int | None, keys: Sequence[str] = ()
) -> Judge:
    """Make a model ready for a table or view that has its columns and its label; `keys` are read as well."""
    if trained.group_tables(db, name) is not None:
        raise CerebroError(
            f"{name} holds models of groups", hint="Name a model of all rows.", sqlstate=NOT_SUPPORTED
        )
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
    label, *texts = [sources.find_column(key, known, table.quoted) for key in (outputs[0].name, *keys)]
    if outputs[0].values is None and label.element not in (*sources.INTEGERS, *sources.FLOATS):
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
        texts=[label, *texts],
        forward=forward,
        loaded=forward.load(model.weights()),
        seen=seen,
        tick=ticker(db),
    )


def _expressions(
    texts: Sequence[SourceColumn], parts: Sequence[reading.PackedPart]
) -> list[packed.Expression]:
    return [*(packed.Expression(packed.TEXT, (column,)) for column in texts), *reading.fields(parts)]


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
