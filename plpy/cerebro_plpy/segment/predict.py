"""madlib_predict and madlib_predict_byom: a table of rows in, a table of predictions out, as a stream.

It all happens in the caller's own session and with the caller's rights. Every argument is checked before a
row is read.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cerebro_plpy.database import Database, Row
from cerebro_plpy.engine import runtime
from cerebro_plpy.engine.architecture import Architecture
from cerebro_plpy.engine.inference import Inference, Loaded, inference
from cerebro_plpy.errors import (
    DUPLICATE_COLUMN,
    NULL_NOT_ALLOWED,
    UNDEFINED_COLUMN,
    WRONG_STATE,
    CerebroError,
)
from cerebro_plpy.madlib.nearest import nearest
from cerebro_plpy.packing import parallel, reading, share, sources
from cerebro_plpy.packing.columns import parse_items
from cerebro_plpy.packing.faults import Faults
from cerebro_plpy.planner import gpus
from cerebro_plpy.segment import predict_choice, predict_models
from cerebro_plpy.segment.cancel import ticker
from cerebro_plpy.segment.predict_choice import Choice
from cerebro_plpy.segment.predict_models import Find, Given, Model
from cerebro_plpy.segment.predict_outputs import Output
from cerebro_plpy.store import packed, places, predictions, session
from cerebro_plpy.store.dialect import is_greenplum
from cerebro_plpy.store.names import Table, TargetTable, resolve_table, target_table, tokens


@dataclass(frozen=True)
class Rows:
    """What both functions are told of the rows and of the result, as it comes."""

    test_table: str | None
    id_col: str | None
    independent_varname: str | None
    output_table: str | None
    pred_type: str | int | float | None
    use_gpus: bool | None
    search_path: str


@dataclass(frozen=True)
class Source:
    """The rows to be read, checked."""

    table: Table
    target: TargetTable
    id_column: packed.SourceColumn
    inputs: list[sources.Part]
    choice: Choice
    use_gpus: bool

    @property
    def statement(self) -> str:
        """The statement that reads id and inputs."""
        identity = packed.Expression(packed.TEXT, (self.id_column,))
        return packed.select_rows(self.table, [identity, *(part.expression for part in self.inputs)])


def predict(db: Database, model_table: str | None, mst_key: int | None, rows: Rows, find: Find) -> None:
    """Predict with a model that a run has made; `find` looks it up."""
    found = find(db, model_table, mst_key, rows.search_path)
    model = predict_models.trained(db, found)
    _predict(db, model, _source(db, rows), found.table.quoted)


def predict_byom(
    db: Database, arch_table: str | None, model_id: int | None, rows: Rows, given: Given
) -> None:
    """Predict with an architecture that was stored with its weights."""
    table = resolve_table(db, arch_table, rows.search_path, "model architecture table")
    model = predict_models.own(db, table, model_id, given)
    _predict(db, model, _source(db, rows), table.quoted)


def _source(db: Database, rows: Rows) -> Source:
    choice = predict_choice.parse(rows.pred_type)
    table = resolve_table(db, rows.test_table, rows.search_path, "test table")
    target = target_table(db, rows.output_table, rows.search_path)
    if session.read_only(db):
        raise CerebroError("the output table cannot be made in a read-only transaction", sqlstate=WRONG_STATE)
    known = packed.columns_of(db, table)
    id_column = _id_column(rows.id_col, known, table)
    items = parse_items(rows.independent_varname, "independent_varname")
    inputs = sources.inputs(items, known, table.quoted)
    return Source(table, target, id_column, inputs, choice, bool(rows.use_gpus))


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
class _Job:
    """Everything that is needed to turn rows into predictions."""

    source: Source
    columns: Sequence[reading.Column]
    forward: Inference
    loaded: Loaded
    outputs: Sequence[Output]
    batch_rows: int
    seen: Faults


def _predict(db: Database, model: Model, source: Source, model_name: str) -> None:
    sample = packed.first_row(db, source.statement)
    if sample is None:
        raise CerebroError(f"test table {source.table.quoted} has no rows")
    seen = Faults()
    columns = [
        reading.open_column(part, sample[f"c{number}"], None, model.divisor, 0, seen)
        for number, part in enumerate(source.inputs, 1)
    ]
    # On Greenplum this session only says what the model is: its host need not have a GPU.
    shares = _gpus(db) if source.use_gpus and is_greenplum(db) else ()
    predict_models.start_engine(db, model.backend, source.use_gpus and not is_greenplum(db))
    functions = predict_models.take_functions(db, model)
    described = predict_models.described(model, [column.shape for column in columns])
    _fit_columns(columns, described)
    outputs = model.outputs(described)
    output = _output(db, source, outputs)
    batch_rows = reading.batch_rows(sample)
    about = f"Predictions of {model_name} for {source.table.quoted}"
    if is_greenplum(db):
        _predict_on_segments(
            db, shares, model, source, columns, described, outputs, output, sample, about, functions
        )
        return
    forward = inference(described)
    job = _Job(source, columns, forward, forward.load(model.weights()), outputs, batch_rows, seen)
    predictions.create(db, output, source.table, about)
    _run(db, job, predictions.Writer(db, output))


def _gpus(db: Database) -> Sequence[gpus.Share]:
    """What the process of each segment of the cluster has, in their order; an error if one has none."""
    cluster = places.cluster(db)
    shares = gpus.deal(cluster)
    for line in gpus.crowded(cluster):
        db.warning(line)
    return shares


def _predict_on_segments(
    db: Database,
    shares: Sequence[gpus.Share],
    model: Model,
    source: Source,
    columns: Sequence[reading.Column],
    described: Architecture,
    outputs: Sequence[Output],
    output: predictions.Output,
    sample: Row,
    about: str,
    functions: Sequence[Mapping[str, Any]],
) -> None:
    """Greenplum: all segments predict their rows at once, and write the predictions where the rows are."""
    ticket = secrets.token_hex(16)
    fields = [sample[f"c{n}"] for n in range(1, len(columns) + 1)]
    backend = runtime.backend()
    engine = {
        "backend": backend,
        "threads": runtime.threads_of(backend),
        "use_gpus": source.use_gpus,
    }
    request = {
        "ticket": ticket,
        "engine": engine,
        "seed": 0,
        "columns": [share.describe(column.part, None, model.divisor) for column in columns],
        "shapes": [list(column.shape) for column in columns],
        "model_arch": model.model_arch,
        "functions": functions,
        "outputs": [asdict(o) for o in outputs],
        "choice": asdict(source.choice),
        "batch_rows": reading.batch_rows(sample),
    }
    sent = [*fields, model.weights()]
    statement = source.statement
    expressions = [
        packed.Expression(packed.TEXT, (source.id_column,)),
        *(p.expression for p in source.inputs),
    ]

    def expect() -> None:
        for key, own in zip(places.keys(db, len(shares)), shares, strict=True):
            places.exchange(db, key, "take_gpu", {"request": own.told()}, [])
        places.exchange_all(db, "expect_rows", {"request": request}, sent)

    try:
        parallel.hand_out(db, source.table, statement, expressions, ticket, expect)
        told = places.exchange_all(db, "predict_rest", {"request": {"ticket": ticket}}, [])
        seen = Faults()
        for segment, (head, _) in enumerate(told):
            seen.join(head["result"]["faults"], segment)
        if seen:
            raise seen.error(sum(head["result"]["rows"] for head, _ in told))
        predictions.create(db, output, source.table, about)
        places.write_predictions(db, output, ticket)
    finally:
        places.exchange_all(db, "close", {"request": {"ticket": ticket}}, [])
        places.drop_temporary(db)


def _fit_columns(columns: Sequence[reading.Column], described: Architecture) -> None:
    if len(columns) != len(described.inputs):
        raise CerebroError(
            f"independent_varname gives {len(columns)} inputs, the model has {len(described.inputs)}",
            detail=f"The inputs are {', '.join(described.input_names)}.",
            hint="List one column, or one ARRAY[…] of plain columns, for each input.",
        )
    for column, wanted in zip(columns, described.inputs, strict=True):
        is_flat = column.part.is_bytea or len(column.shape) == 1
        column.shape = predict_models.fit_shape(column.shape, wanted, is_flat, f'column "{column.part.name}"')


def _output(db: Database, source: Source, outputs: Sequence[Output]) -> predictions.Output:
    numbers = [output for output in outputs if output.values is None]
    if source.choice.is_selective and len(numbers) == len(outputs):
        raise CerebroError(
            "pred_type chooses among classes, but this model predicts numbers",
            hint="Leave pred_type out.",
        )
    kind = "double precision" if all(output.width == 1 for output in numbers) else "double precision[]"
    made = predictions.Output(
        source.target,
        source.id_column.name,
        predictions.column_type(db, source.table, source.id_column),
        len(numbers) < len(outputs),
        source.choice.ranked,
        kind if numbers else None,
    )
    if source.id_column.name in [name for name, _ in made.columns]:
        raise CerebroError(
            f'the output table would have two columns called "{source.id_column.name}"',
            hint="Rename the id column with a view.",
            sqlstate=DUPLICATE_COLUMN,
        )
    return made


def _run(db: Database, job: _Job, writer: predictions.Writer) -> None:
    """Read, predict and write a batch at a time; rows that cannot be used are counted to the end."""
    tick = ticker(db)
    batch_rows = min(job.forward.rows, job.batch_rows)
    total = 0
    for batch in db.scan(job.source.statement, batch=job.batch_rows):
        inputs = [_read(column, batch, number, total) for number, column in enumerate(job.columns, 1)]
        total += len(batch)
        if not job.seen:
            results = job.forward.predict_many(job.loaded, inputs, batch_rows, tick)
            ids = [row["c0"] for row in batch]
            for output, result in zip(job.outputs, results, strict=True):
                _write(writer, job.source.choice, output, ids, result)
    if job.seen:
        raise job.seen.error(total)


def _read(column: reading.Column, batch: list[Row], number: int, before: int) -> np.ndarray:
    values = np.empty((len(batch), column.stored[1]), np.float32)
    name = f"c{number}"
    if column.reader is not None:
        column.reader.read([row[name] for row in batch], values, before + 1)
    return values.reshape(len(batch), *column.shape)


def _write(
    writer: predictions.Writer, choice: Choice, output: Output, ids: list[Any], result: np.ndarray
) -> None:
    flat = result.reshape(len(ids), -1)
    if output.values is None:
        writer.write_values(output.name, ids, flat.ravel().tolist(), output.width)
        return
    likely = predict_choice.probabilities(flat, output.logits, output.is_binary)
    picked = predict_choice.pick(likely[:, : len(output.values)], choice)
    if len(picked.rows) != len(ids) or choice.above is not None:
        ids = [ids[row] for row in picked.rows.tolist()]
    writer.write_classes(
        output.name, output.values, ids, picked.places.tolist(), picked.probabilities.tolist(),
        picked.ranks.tolist(),
    )  # fmt: skip
