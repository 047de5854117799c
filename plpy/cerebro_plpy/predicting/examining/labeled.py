"""Reads rows whose label is known, as inputs of a model, to compare the model's answers with the labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from itertools import compress
from typing import NamedTuple, Protocol

import numpy as np

from cerebro_plpy.database import Database, Row
from cerebro_plpy.engine.checks.architecture import Shape
from cerebro_plpy.errors import DATATYPE_MISMATCH, INTERNAL, NOT_SUPPORTED, WRONG_STATE, CerebroError
from cerebro_plpy.features.encode import read_decimal
from cerebro_plpy.packing.columns import inputs, sources
from cerebro_plpy.packing.columns.grammar import Item
from cerebro_plpy.packing.faults import Faults
from cerebro_plpy.packing.rows import reading
from cerebro_plpy.predicting import group_holders, models, trained
from cerebro_plpy.predicting.answering import grouped
from cerebro_plpy.predicting.answering.net import AnsweringNet
from cerebro_plpy.predicting.examining import scoring
from cerebro_plpy.predicting.group_holders import TableOfGroups, VersionOfGroups
from cerebro_plpy.predicting.holders import ModelHolder, TrainedModel
from cerebro_plpy.predicting.outputs import Output
from cerebro_plpy.segment.cancel import ticker
from cerebro_plpy.store.names import Table, resolve_table
from cerebro_plpy.store.packed import packed, source_rows
from cerebro_plpy.store.packed.groups import KEY_TEXT
from cerebro_plpy.store.packed.packed import Expression, SourceColumn
from cerebro_plpy.threads import Threads

# The models that a judge has: one of all rows, or those of groups.
JudgedModel = TrainedModel | TableOfGroups | VersionOfGroups
# The column of group keys, for rows that are read with them.
_KEY = SourceColumn(
    name=KEY_TEXT, element="text", is_array=False, base_type="text", shown_type="text", sortable=True
)

# The numbers that the texts of booleans are learned as.
_OF_BOOLEANS: Mapping[str | None, str] = {"true": "1", "false": "0"}


@dataclass(frozen=True)
class LabeledRows:
    """Some rows: their inputs, and their labels as numbers (`truth`) and as texts.

    `texts` has the further columns, as text, that the caller of `find_judge` wanted. For models of groups,
    `groups` has the key of each row's group.
    """

    inputs: list[np.ndarray]
    truth: np.ndarray
    labels: list[str | None]
    texts: list[tuple[str | None, ...]]
    groups: list[str | None] = field(default_factory=list)


class SomeRows(NamedTuple):
    """Some rows: their inputs, their labels, and further columns as text. A missing label is None."""

    inputs: list[np.ndarray]
    labels: list[str | None]
    texts: list[tuple[str | None, ...]]
    groups: list[str | None]


class RowNets(Protocol):
    """One net that answers all rows, or the nets of groups, which answer the rows of their groups."""

    def count_strange(self, groups: Sequence[str | None]) -> int:
        """Return the number of rows whose group has no model of its own."""
        ...

    def has_model(self, group: str | None) -> bool:
        """Return whether a model answers the rows of a group."""
        ...

    def answer(
        self, inputs: Sequence[np.ndarray], groups: Sequence[str | None], tick: Callable[[], None]
    ) -> np.ndarray: ...


@dataclass(frozen=True)
class OneNet:
    """One net that answers all rows."""

    net: AnsweringNet

    def count_strange(self, groups: Sequence[str | None]) -> int:
        return 0

    def has_model(self, group: str | None) -> bool:
        return True

    def answer(
        self, inputs: Sequence[np.ndarray], groups: Sequence[str | None], tick: Callable[[], None]
    ) -> np.ndarray:
        (result,) = self.net.answer(inputs, Threads(1, tick))
        return result


@dataclass(frozen=True)
class NetsOfGroups:
    """The nets of groups. Each answers the rows of its group."""

    nets: grouped.Answers
    width: int

    def count_strange(self, groups: Sequence[str | None]) -> int:
        return sum(self.nets.find_own(group) is None for group in groups)

    def has_model(self, group: str | None) -> bool:
        return self.nets.has_model(group)

    def answer(
        self, inputs: Sequence[np.ndarray], groups: Sequence[str | None], tick: Callable[[], None]
    ) -> np.ndarray:
        return self.nets.answer_rows(inputs, groups, self.width, tick)[0]


@dataclass(frozen=True)
class Judge:
    """A model that is ready to answer the rows of a table, and the column with the labels of the rows."""

    db: Database
    found: JudgedModel
    model: models.Model
    output: Output
    table: Table
    columns: Sequence[reading.Column]
    batch_rows: int
    # None where a table without labels will do.
    label: SourceColumn | None
    # What is read of each row besides its label and its inputs.
    texts: Sequence[Expression]
    nets: RowNets
    seen: Faults
    tick: Callable[[], None]

    @property
    def holder(self) -> ModelHolder:
        return self.found.holder

    @property
    def grouped_by(self) -> str | None:
        """The names of the group columns, joined to one name; None if one model answers all rows."""
        return None if isinstance(self.found, TrainedModel) else self.found.models.shown_columns

    @property
    def is_classes(self) -> bool:
        return self.output.values is not None

    def read(self, most: int | None = None, seed: int = 0) -> Iterator[LabeledRows]:
        """Yield the rows whose label the model knows: all, or a random sample of `most` rows.

        Rows of groups without a model are left out.
        """
        label = self._needed_label
        table = self.table if self.has_null_class else source_rows.with_values(self.table, label)
        if most is not None:
            table = source_rows.draw_rows(table, most, seed)
        total = read = without = 0
        for batch in self._scan(table, [Expression(packed.TEXT, (label,))]):
            named = [row for row in batch if self.knows(row["c0"])]
            groups = self._groups(named, 1)
            answered = [self.nets.has_model(key) for key in groups]
            known, groups = list(compress(named, answered)), list(compress(groups, answered))
            arrays = self._inputs(known, 1, read)
            total, read, without = total + len(batch), read + len(known), without + len(named) - len(known)
            self.tick()
            if known and not self.seen:
                labels = [row["c0"] for row in known]
                yield LabeledRows(arrays, self.truth(labels), labels, self._texts(known, 1), groups)
        self._finish(total, read, without)

    def read_all(self) -> Iterator[SomeRows]:
        """Yield all rows of the table, with or without a label."""
        label = [] if self.label is None else [Expression(packed.TEXT, (self.label,))]
        first, read = len(label), 0
        for batch in self._scan(self.table, label):
            arrays = self._inputs(batch, first, read)
            read += len(batch)
            self.tick()
            if not self.seen:
                labels = [row["c0"] if label else None for row in batch]
                yield SomeRows(arrays, labels, self._texts(batch, first), self._groups(batch, first))
        if self.seen:
            raise self.seen.error(read)

    def _scan(self, table: Table, label: Sequence[Expression]) -> Iterator[list[Row]]:
        expressions = [*label, *self.texts, *reading.fields([column.part for column in self.columns])]
        if isinstance(self.found, TrainedModel):
            return self.db.scan(packed.select_rows(table, expressions), batch=self.batch_rows)
        models_of_groups = self.found.models
        table = models_of_groups.with_keys(table, packed.columns_of(self.db, table))
        statement = packed.select_rows(table, [*expressions, Expression(packed.TEXT, (_KEY,))])
        return self.db.scan(statement, *models_of_groups.parameters, batch=self.batch_rows)

    def _texts(self, rows: Sequence[Row], first: int) -> list[tuple[str | None, ...]]:
        """Return the further columns of some rows as text. Field `first` has the first of these columns."""
        return [tuple(row[f"c{first + n}"] for n in range(len(self.texts))) for row in rows]

    def _groups(self, rows: Sequence[Row], first: int) -> list[str | None]:
        """Return the key of each row's group, which is the last field.

        If one net answers all rows, return Nones.
        """
        if isinstance(self.found, TrainedModel):
            return [None] * len(rows)
        name = f"c{first + len(self.texts) + self._fields}"
        return [row[name] for row in rows]

    @property
    def _fields(self) -> int:
        """The number of fields from which the inputs are read."""
        return len(reading.fields([column.part for column in self.columns]))

    def _inputs(self, rows: Sequence[Row], first: int, before: int) -> list[np.ndarray]:
        """Return the decoded inputs of some rows. The input fields follow the text fields.

        `first` is the number of the first text field, and `before` the number of rows that were read before.
        """
        first += len(self.texts)
        values = [[row[f"c{number}"] for row in rows] for number in range(first, first + self._fields)]
        given = zip(self.columns, reading.by_column(values, self.columns), strict=True)
        return [reading.read_column(column, own, before) for column, own in given]

    @property
    def _needed_label(self) -> SourceColumn:
        if self.label is None:
            raise CerebroError(f"{self.table.quoted} has no labels", sqlstate=INTERNAL)
        return self.label

    def _finish(self, total: int, read: int, without: int) -> None:
        if self.seen:
            raise self.seen.error(read)
        label = self._needed_label.name
        if without and not read:
            raise CerebroError(
                f"{self.holder.name} has a model for none of the groups of {total} rows"
                f" of {self.table.quoted}",
                hint="Give rows of groups that it was trained on.",
                sqlstate=WRONG_STATE,
            )
        if not read:
            raise CerebroError(
                f'the model knows the label "{label}" of none of {total} rows of {self.table.quoted}',
                hint="Give rows whose label is one that it was trained on.",
                sqlstate=WRONG_STATE,
            )
        if read + without < total:
            few = f"{total - read - without} of {total} rows are left out"
            self.db.notice(f'{few}: the model does not know their "{label}"')
        if without:
            self.db.notice(f"{without} of {total} rows are of groups that have no model: they are left out")

    def knows(self, label: str | None) -> bool:
        """Return whether the model can predict a label."""
        if label is None:
            return self.has_null_class
        return self.output.values is None or self._find_place(label) is not None

    @property
    def has_null_class(self) -> bool:
        """Whether the model can predict that a label is NULL."""
        return self.output.values is not None and None in self.output.values

    @cached_property
    def _places(self) -> Mapping[str | None, int]:
        return {value: place for place, value in enumerate(self.output.values or ())}

    @cached_property
    def _places_by_number(self) -> Mapping[Decimal, int]:
        """The place of each class that is a number, if labels are numbers: 1, 1.0 and 1.00 are one class."""
        if self.label is None or self.label.element not in sources.NUMBERS:
            return {}
        found = {read_decimal(value): place for value, place in self._places.items() if value is not None}
        return {number: place for number, place in found.items() if number is not None}

    def _find_place(self, label: str | None) -> int | None:
        """Return the place of a label among the classes; None if it is none of them."""
        if label in self._places or label is None or not self._places_by_number:
            return self._places.get(label)
        number = read_decimal(label)
        return None if number is None else self._places_by_number.get(number)

    def truth(self, labels: Sequence[str | None]) -> np.ndarray:
        """Return the labels as numbers.

        For classes, each row has a one at the place of its class; for quantities, each row has its quantity.
        """
        if self.output.values is None:
            numbers = [_OF_BOOLEANS.get(label, label) for label in labels]
            return np.array(numbers, np.float64).reshape(-1, 1)
        places = np.array([self._find_place(label) for label in labels], np.intp)
        return np.eye(len(self.output.values))[places]

    def measure(
        self, metrics: Sequence[str], labels: Sequence[str | None], answers: np.ndarray
    ) -> list[np.ndarray]:
        """Return the error of each row by each metric. Of a class that the model lacks, it is the worst."""
        known = np.array([self.knows(label) for label in labels], bool)
        truth = self.truth(list(compress(labels, known)))
        found = [np.full(len(known), scoring.WORST.get(metric, np.nan)) for metric in metrics]
        for metric, errors in zip(metrics, found, strict=True):
            errors[known] = scoring.EACH[metric](answers[known], truth)
        return found

    def choose_answered(self, rows: SomeRows) -> SomeRows:
        """Return the rows without the rows of groups that have no model."""
        if isinstance(self.found, TrainedModel):
            return rows
        places = [place for place, group in enumerate(rows.groups) if self.nets.has_model(group)]
        return SomeRows(
            [array[places] for array in rows.inputs],
            [rows.labels[place] for place in places],
            [rows.texts[place] for place in places],
            [rows.groups[place] for place in places],
        )

    def answer(self, arrays: Sequence[np.ndarray], groups: Sequence[str | None] = ()) -> np.ndarray:
        """Return the probability of each class, or the predicted quantity, for each row.

        If models of groups answer, `groups` has the key of each row's group.
        """
        return self.output.read(self.nets.answer(arrays, groups, self.tick))

    def find_places(self) -> Mapping[str, list[tuple[int, slice]]]:
        """Return, for each source column, the places in the inputs of the numbers that it became.

        A place is the number of an input, and the slice of this input's numbers for one row.
        """
        if self.model.features is None:
            return {column.part.name: [(number, slice(None))] for number, column in enumerate(self.columns)}
        found: dict[str, list[tuple[int, slice]]] = {}
        for number, one in enumerate(self.model.features.inputs):
            first = 0
            for feature in one.features:
                alone = len(one.features) == 1
                part = slice(None) if alone else slice(first, first + feature.width)
                found.setdefault(feature.name, []).append((number, part))
                first += feature.width
        return found


def find_judge(
    db: Database,
    name: str | None,
    rows: str | Table | None,
    mst_key: int | None,
    keys: Sequence[str] = (),
    *,
    whole_rows: bool = False,
    needs_label: bool = True,
    takes_groups: bool = False,
) -> Judge:
    """Return a model that is ready to answer the rows of a table or view.

    If `needs_label`, the table must have a label to compare answers with. The judge also reads the columns
    `keys` as text and, if `whole_rows`, each row as JSON without its bytea columns. With `takes_groups`, the
    name may mean models of groups, and the model of a row's group answers for the row; without it, such a
    name raises an error.
    """
    groups = group_holders.find_groups(db, name, mst_key) if takes_groups else None
    found = groups or trained.find_model(db, name, mst_key)
    table = rows if isinstance(rows, Table) else resolve_table(db, rows, "table of rows")
    known = packed.columns_of(db, table)
    seen = Faults()
    if isinstance(found, TrainedModel):
        answers, model = None, models.trained(db, found)
    else:
        grouped.check_columns(found.models, known, table)
        answers = grouped.Answers(db, found)
        model = answers.any_model
    with trained.tell_of_forecast(db, found.holder):
        columns, batch_rows = _open_columns(db, model, table, known, seen)
        nets, outputs, shapes = _find_nets(db, model, answers, [column.shape for column in columns])
        reading.fit_columns(columns, shapes)
        output = _only_output(outputs, str(name))
        has_label = needs_label or output.name in known
        label = _find_label(db, output, known, table, needs_label) if has_label else None
    if isinstance(nets, OneNet):
        nets.net.load()
    texts = [Expression(packed.TEXT, (sources.find_column(key, known, table.quoted),)) for key in keys]
    if whole_rows:
        shown = [column for column in known.values() if column.element != "bytea"]
        texts.append(Expression(packed.ROW, tuple(shown)))
    return Judge(
        db=db,
        found=found,
        model=model,
        output=output,
        table=table,
        columns=columns,
        batch_rows=batch_rows,
        label=label,
        texts=texts,
        nets=nets,
        seen=seen,
        tick=ticker(db),
    )


def check_columns(db: Database, name: str, table: Table) -> None:
    """Raise an error if the table lacks a column of the model, or has it with another type.

    Also raise an error if the model has no label that this module can compare.
    """
    found, known = trained.find_model(db, name, None), packed.columns_of(db, table)
    _open_columns(db, models.trained(db, found), table, known, Faults())
    labels = found.holder.summary(db)["dependent_varname"]
    for label, values in zip(labels, found.holder.class_values(db, labels), strict=True):
        if values is None:
            _check_number(sources.find_column(label, known, table.quoted), table)


def _only_output(outputs: Sequence[Output], name: str) -> Output:
    if len(outputs) != 1 or (outputs[0].values is None and outputs[0].width > 1):
        raise CerebroError(
            f"{name} has several outputs, and this function takes a model with one",
            hint="cerebro.madlib_evaluate measures all of them on a packed table.",
            sqlstate=NOT_SUPPORTED,
        )
    return outputs[0]


def _find_label(
    db: Database, output: Output, known: Mapping[str, SourceColumn], table: Table, needs_label: bool
) -> SourceColumn | None:
    """Return the column with the labels; None if it has no numbers to compare and `needs_label` is false."""
    label = sources.find_column(output.name, known, table.quoted)
    if output.values is not None or _is_number(label):
        return label
    if needs_label:
        _check_number(label, table)
    found = f'column "{label.name}" of {table.quoted} is {label.shown_type}'
    db.notice(f"{found}: answers are not compared with it")
    return None


def _is_number(label: SourceColumn) -> bool:
    return not label.is_array and label.element in (*sources.NUMBERS, "bool")


def _check_number(label: SourceColumn, table: Table) -> None:
    if not _is_number(label):
        raise CerebroError(
            f'column "{label.name}" of {table.quoted} is {label.shown_type}, and not a number with which'
            " the model's answers can be compared",
            hint="Learn a number, or cast the column in a view.",
            sqlstate=DATATYPE_MISMATCH,
        )


def _find_nets(
    db: Database, model: models.Model, answers: grouped.Answers | None, shapes: Sequence[Sequence[int]]
) -> tuple[RowNets, Sequence[Output], Sequence[Shape]]:
    """Return what answers rows whose inputs have these shapes, the outputs that it gives, and its inputs."""
    if answers is not None:
        outputs = answers.settle_outputs(shapes)
        return NetsOfGroups(answers, outputs[0].width), outputs, answers.inputs
    net = AnsweringNet(db, model, shapes)
    return OneNet(net), model.outputs(net.described), net.described.inputs


def _open_columns(
    db: Database, model: models.Model, table: Table, known: Mapping[str, SourceColumn], seen: Faults
) -> tuple[list[reading.Column], int]:
    """Return the model's columns of a table, and the number of rows to fetch at a time."""
    parts: Sequence[reading.PackedPart] = (
        sources.inputs([Item((name,), False) for name in model.independents], known, table.quoted)
        if model.features is None
        else inputs.parts(model.features, known, table.quoted)
    )
    sample = packed.first_row(db, packed.select_rows(table, reading.fields(parts)))
    if sample is None:
        raise CerebroError(f"{table.quoted} has no rows", sqlstate=WRONG_STATE)
    columns = [
        reading.open_column(part=part, sample=value, shape=None, divisor=model.divisor, seed=0, seen=seen)
        for part, value in zip(parts, reading.samples(sample, parts), strict=True)
    ]
    return columns, reading.batch_rows(sample, columns)
