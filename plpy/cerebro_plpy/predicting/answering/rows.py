"""madlib_predict and madlib_predict_byom: predict the rows of a table, and write the predictions to a table.

Both work in the caller's own session, with the caller's rights. They check all arguments before they read a
row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from cerebro_plpy.database import Database, Row
from cerebro_plpy.engine.checks.architecture import DescribedModel
from cerebro_plpy.engine.models.inference import Inference, Loaded, inference
from cerebro_plpy.errors import (
    DUPLICATE_COLUMN,
    NULL_NOT_ALLOWED,
    UNDEFINED_COLUMN,
    WRONG_OBJECT,
    CerebroError,
)
from cerebro_plpy.madlib.nearest import nearest
from cerebro_plpy.packing.columns import inputs, sources
from cerebro_plpy.packing.columns.grammar import parse_items
from cerebro_plpy.packing.faults import Faults
from cerebro_plpy.packing.rows import reading
from cerebro_plpy.predicting import choices, group_holders, models, trained
from cerebro_plpy.predicting.answering import grouped
from cerebro_plpy.predicting.answering.net import AnsweringNet
from cerebro_plpy.predicting.choices import ClassChoice
from cerebro_plpy.predicting.group_holders import GroupsHolder
from cerebro_plpy.predicting.models import GivenModel, Model
from cerebro_plpy.predicting.outputs import Output
from cerebro_plpy.predicting.trained import find_model
from cerebro_plpy.segment.cancel import ticker
from cerebro_plpy.store.models import predictions
from cerebro_plpy.store.models.group_models import ALL_ROWS, GroupModels
from cerebro_plpy.store.names import Table, TargetTable, resolve_table, target_table, tokens
from cerebro_plpy.store.packed import packed
from cerebro_plpy.threads import Threads, Tick

# The ids of some rows, and each output for them.
AnsweredBatch = tuple[list[Any], list[np.ndarray]]


@dataclass(frozen=True)
class Rows:
    """The arguments of madlib_predict and madlib_predict_byom that concern the rows and the result."""

    test_table: str | None
    id_col: str | None
    independent_varname: str | None
    output_table: str | None
    pred_type: str | int | float | None
    use_gpus: bool | None


@dataclass(frozen=True)
class RowSource:
    """The checked rows to predict, and where and how to write their predictions."""

    table: Table
    target: TargetTable
    id_column: packed.SourceColumn
    inputs: Sequence[reading.PackedPart]
    choice: ClassChoice
    use_gpus: bool

    @property
    def expressions(self) -> list[packed.Expression]:
        """The SQL expressions of the id and of the inputs."""
        return [packed.Expression(packed.TEXT, (self.id_column,)), *reading.fields(self.inputs)]

    @property
    def statement(self) -> str:
        """The SQL statement that reads the rows."""
        return packed.select_rows(self.table, self.expressions)


def predict(db: Database, model_table: str | None, mst_key: int | None, *arguments: Any) -> None:
    """Predict with a model that a run has trained, or with models of groups.

    `arguments` are the fields of `Rows`.
    """
    rows = Rows(*arguments)
    groups = group_holders.find_groups(db, model_table, mst_key)
    if groups is not None:
        _predict_groups(db, groups, rows)
        return
    found = find_model(db, model_table, mst_key)
    model = models.trained(db, found)
    _predict(db, model, _source(db, rows, model), found.holder.name)


def predict_byom(
    db: Database, arch_table: str | None, model_id: int | None, described: Sequence[Any], *arguments: Any
) -> None:
    """Predict with an architecture and its stored weights.

    `described` are the fields of `GivenModel`, and `arguments` the fields of `Rows`.
    """
    rows = Rows(*arguments)
    table = resolve_table(db, arch_table, "model architecture table")
    if trained.group_tables(db, table) is not None:
        raise CerebroError(
            f"{table.quoted} holds models of groups, and this call takes a net that was loaded",
            hint="cerebro.madlib_predict predicts each row by the model of its group.",
            sqlstate=WRONG_OBJECT,
        )
    model = models.read_own_model(db, table, model_id, GivenModel(*described))
    _predict(db, model, _source(db, rows, model), table.quoted)


def _source(db: Database, rows: Rows, model: Model) -> RowSource:
    choice = choices.parse(rows.pred_type)
    table = resolve_table(db, rows.test_table, "test table")
    target = target_table(db, rows.output_table)
    known = packed.columns_of(db, table)
    id_column = _id_column(rows.id_col, known, table)
    return RowSource(
        table=table,
        target=target,
        id_column=id_column,
        inputs=_inputs(rows.independent_varname, known, table, model),
        choice=choice,
        use_gpus=bool(rows.use_gpus),
    )


def _inputs(
    listed: str | None, known: dict[str, packed.SourceColumn], table: Table, model: Model
) -> Sequence[reading.PackedPart]:
    """Return the columns to read.

    A model with a feature specification reads its own columns; any other model reads the listed columns.
    """
    if model.features is None:
        return sources.inputs(parse_items(listed, "independent_varname"), known, table.quoted)
    inputs.check_listed(listed, model.features)
    return inputs.parts(model.features, known, table.quoted)


def _id_column(name: str | None, known: dict[str, packed.SourceColumn], table: Table) -> packed.SourceColumn:
    if name is None or not name.strip():
        raise CerebroError("id_col is NULL or empty", sqlstate=NULL_NOT_ALLOWED)
    match tokens(name):
        case [("name", column)] if column in known:
            return known[column]
    match = nearest(name, known)
    raise CerebroError(
        f"id_col {name} is not a column of {table.quoted}",
        hint=f'Did you mean "{match}"? Names with capitals need double quotes.' if match else None,
        sqlstate=UNDEFINED_COLUMN,
    )


@dataclass(frozen=True)
class SettledNet:
    """A net that is ready for rows of known shapes, and its outputs."""

    described: DescribedModel
    outputs: Sequence[Output]
    # The registered functions that the net consists of, with their sources.
    functions: Sequence[Mapping[str, Any]] = ()
    # How the results of each config's nets are read, if configs have different outputs.
    each: Mapping[int, Sequence[Output]] = field(default_factory=dict[int, Sequence[Output]])


@dataclass(frozen=True)
class Prediction:
    """Everything that is needed to turn rows into predictions."""

    model: Model
    source: RowSource
    columns: Sequence[reading.Column]
    net: SettledNet
    output: predictions.PredictionOutput
    sample: Row
    batch_rows: int
    seen: Faults
    about: str


class Predictor(Protocol):
    """A predictor of the rows of a table."""

    @property
    def uses_gpus_here(self) -> bool:
        """Whether the engine of this session should use a GPU."""
        ...

    def predict(self, asked: Prediction) -> None: ...


def _predict(db: Database, model: Model, source: RowSource, model_name: str) -> None:
    predictor = db.server.predictor(source.use_gpus)

    def settle(shapes: Sequence[tuple[int, ...]]) -> SettledNet:
        models.start_engine(db, model.backend, predictor.uses_gpus_here)
        functions = models.take_functions(db, model)
        described = models.described(model, shapes)
        return SettledNet(described, model.outputs(described), functions)

    predictor.predict(_prepare(db, model, source, model_name, settle))


def _prepare(
    db: Database,
    model: Model,
    source: RowSource,
    model_name: str,
    settle: Callable[[Sequence[tuple[int, ...]]], SettledNet],
) -> Prediction:
    """Check that the rows fit the model, and return what is needed to predict.

    `settle` makes the net ready for rows of given shapes.
    """
    sample = packed.first_row(db, source.statement)
    if sample is None:
        raise CerebroError(f"test table {source.table.quoted} has no rows")
    seen = Faults()
    columns = [
        reading.open_column(part=part, sample=value, shape=None, divisor=model.divisor, seed=0, seen=seen)
        for part, value in zip(source.inputs, reading.samples(sample, source.inputs, before=1), strict=True)
    ]
    net = settle([column.shape for column in columns])
    _fit_columns(columns, net.described)
    return Prediction(
        model=model,
        source=source,
        columns=columns,
        net=net,
        output=_output(db, source, net.outputs),
        sample=sample,
        batch_rows=reading.batch_rows(sample, columns),
        seen=seen,
        about=f"Predictions of {model_name} for {source.table.quoted}",
    )


def _predict_groups(db: Database, found: GroupsHolder, rows: Rows) -> None:
    """Predict each row with the model of its group. Rows of a group without a model are left out."""
    kept = grouped.weights(db, found)
    nets = grouped.models_of(db, found, {key for key, _ in kept.values()})
    model = next(iter(nets.values()))
    source = _source(db, rows, model)
    grouped.check_columns(found.models, packed.columns_of(db, source.table), source.table)

    def settle(shapes: Sequence[tuple[int, ...]]) -> SettledNet:
        described = {key: AnsweringNet(db, net, shapes).described for key, net in nets.items()}
        outputs, each = grouped.share_outputs({key: net.outputs(described[key]) for key, net in nets.items()})
        return SettledNet(next(iter(described.values())), outputs, each=each)

    asked = _prepare(db, model, source, found.models.name, settle)
    predictions.create(db, asked.output, source.table, asked.about)
    shapes = tuple(tuple(column.shape) for column in asked.columns)
    each = asked.net.each
    configs = {key: grouped.NetOfConfig(db, net, shapes, each.get(key, ())) for key, net in nets.items()}
    _run_groups(db, asked, found.models, kept, configs)


def _run_groups(
    db: Database,
    asked: Prediction,
    found: GroupModels,
    kept: Mapping[str, tuple[int, bytes]],
    nets: Mapping[int, grouped.NetOfConfig],
) -> None:
    tick, writer = ticker(db), predictions.PredictionWriter(db, asked.output)
    known = packed.columns_of(db, asked.source.table)
    expressions = asked.source.expressions
    names = [f"c{number}" for number in range(1, len(expressions))]
    total = without = 0
    statement = found.statement(asked.source.table, known, expressions)
    for batch in db.scan(statement, *found.parameters, batch=asked.batch_rows):
        values = [[row[name] for row in batch] for name in names]
        read = zip(asked.columns, reading.by_column(values, asked.columns), strict=True)
        inputs = [reading.read_column(column, own, total) for column, own in read]
        total += len(batch)
        parts: list[list[np.ndarray]] = []
        ids: list[Any] = []
        for key, place in grouped.stretches([row[f"c{len(expressions)}"] for row in batch]):
            key = ALL_ROWS if key is None else key
            if key not in kept:
                without += place.stop - place.start
            elif not asked.seen:
                mst_key, weights = kept[key]
                answer = nets[mst_key].answer(weights, asked.batch_rows, tick)
                parts.append(list(answer([array[place] for array in inputs])))
                ids += [row["c0"] for row in batch[place]]
        tick()
        if ids:
            for output, results in zip(asked.net.outputs, zip(*parts, strict=True), strict=True):
                _write(writer, asked.source.choice, output, ids, np.concatenate(results))
    if asked.seen:
        raise asked.seen.error(total)
    if without:
        db.notice(f"{without} of {total} rows are of groups that have no model: they are left out")


def _fit_columns(columns: Sequence[reading.Column], described: DescribedModel) -> None:
    if len(columns) != len(described.inputs):
        raise CerebroError(
            f"independent_varname gives {len(columns)} inputs, the model has {len(described.inputs)}",
            detail=f"The inputs are {', '.join(described.input_names)}.",
            hint="List one column, or one ARRAY[…] of plain columns, for each input.",
        )
    reading.fit_columns(columns, described.inputs)


def _output(db: Database, source: RowSource, outputs: Sequence[Output]) -> predictions.PredictionOutput:
    numbers = [output for output in outputs if output.values is None]
    if source.choice.is_selective and len(numbers) == len(outputs):
        raise CerebroError(
            "pred_type chooses among classes, but this model predicts numbers",
            hint="Leave pred_type out.",
        )
    kind = "double precision" if all(output.width == 1 for output in numbers) else "double precision[]"
    made = predictions.PredictionOutput(
        table=source.target,
        id_name=source.id_column.name,
        id_type=predictions.column_type(db, source.table, source.id_column),
        has_classes=len(numbers) < len(outputs),
        has_rank=source.choice.ranked,
        prediction_type=kind if numbers else None,
    )
    if source.id_column.name in [name for name, _ in made.columns]:
        raise CerebroError(
            f'the output table would have two columns called "{source.id_column.name}"',
            hint="Rename the id column with a view.",
            sqlstate=DUPLICATE_COLUMN,
        )
    return made


class PredictorHere:
    """A predictor that reads, predicts and writes in this session, a batch at a time."""

    def __init__(self, db: Database, use_gpus: bool) -> None:
        self._db, self.uses_gpus_here = db, use_gpus

    def predict(self, asked: Prediction) -> None:
        forward = inference(asked.net.described)
        loaded = forward.load(asked.model.weights())
        predictions.create(self._db, asked.output, asked.source.table, asked.about)
        writer = predictions.PredictionWriter(self._db, asked.output)
        threads = models.open_threads(self._db)
        with closing(threads.stream(_answer_batches(self._db, asked, forward, loaded))) as answered:
            for ids, results in answered:
                for output, result in zip(asked.net.outputs, results, strict=True):
                    _write(writer, asked.source.choice, output, ids, result)


def _answer_batches(
    db: Database, asked: Prediction, forward: Inference, loaded: Loaded
) -> Iterator[Callable[[Tick], AnsweredBatch]]:
    """Read all rows in batches, and yield, for each batch, a function that answers the rows of the batch.

    If a row cannot be used, yield no more functions, read on to count such rows, and raise an error with the
    count.
    """
    tick = ticker(db)
    batch_rows = min(forward.rows, asked.batch_rows)
    total = 0
    names = [f"c{number}" for number in range(1, 1 + len(reading.fields(asked.source.inputs)))]
    for batch in db.scan(asked.source.statement, batch=asked.batch_rows):
        values = [[row[name] for row in batch] for name in names]
        found = zip(asked.columns, reading.by_column(values, asked.columns), strict=True)
        inputs = [reading.read_column(column, own, total) for column, own in found]
        total += len(batch)
        tick()
        if not asked.seen:
            ids = [row["c0"] for row in batch]
            yield partial(_answer_batch, forward, loaded, ids, inputs, batch_rows)
    if asked.seen:
        raise asked.seen.error(total)


def _answer_batch(
    forward: Inference, loaded: Loaded, ids: list[Any], inputs: list[np.ndarray], batch_rows: int, tick: Tick
) -> AnsweredBatch:
    """Return the ids and outputs of a batch of rows. The current thread computes them."""
    return ids, forward.predict_many(loaded, inputs, batch_rows, Threads(1, tick))


def _write(
    writer: predictions.PredictionWriter,
    choice: ClassChoice,
    output: Output,
    ids: list[Any],
    result: np.ndarray,
) -> None:
    flat = result.reshape(len(ids), -1)
    if output.values is None:
        writer.write_values(output.name, ids, flat.ravel().tolist(), output.width)
        return
    likely = choices.probabilities(flat, output.logits, output.is_binary)
    picked = choices.pick(likely[:, : len(output.values)], choice)
    if len(picked.rows) != len(ids) or choice.above is not None:
        ids = [ids[row] for row in picked.rows.tolist()]
    writer.write_classes(
        class_name=output.name,
        values=output.values,
        ids=ids,
        places=picked.places.tolist(),
        probabilities=picked.probabilities.tolist(),
        ranks=picked.ranks.tolist(),
    )
