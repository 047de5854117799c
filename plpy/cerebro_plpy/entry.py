"""The Python functions that the extension's SQL functions call.

Most SQL functions use `call`. The others are for rows in queries and for segment sessions. Each function
imports the heavy modules that it needs itself, so that a session that only packs rows never loads Keras.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterator, Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cerebro_plpy.backend import DrivingSession, SegmentSession, Session, backend, is_busy
from cerebro_plpy.calls import find_call
from cerebro_plpy.commands import Drive, Sent
from cerebro_plpy.doors import end_look, internal, public, report, run_pending
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.segment import cancel, handlers
from cerebro_plpy.store import interrupts, session

if TYPE_CHECKING:
    from cerebro_plpy.predicting.answering.one import Kept

__all__ = ["run_pending"]


@internal
def segment(command: str, request: str) -> str:
    """Carry out a command in a segment session and return the answer as JSON.

    Meanwhile the session's `application_name` shows the command to other sessions.
    """
    backend().called_at = time.monotonic()
    sent = Sent.from_request(command, json.loads(request))
    own = SegmentSession(sent.look_seconds)
    session.set_application_name(own, sent.shown())
    if isinstance(sent.command, Drive):
        _drive(sent.command, own.look_seconds)
        return "{}"
    with cancel.interruptible(cancel.ticker(own), is_busy if own.server.may_signal else None):
        return json.dumps(handlers.carry_out(own, sent))


@internal
def on_segment(command: str, message: bytes) -> bytes:
    """Pass a piece of a message to a segment's process on Greenplum; return a piece of the answer."""
    from cerebro_plpy.cluster import process

    return process.answer(SegmentSession(), command, message)


@internal
def work(order: str) -> str:
    """Carry out an order (`cluster/protocol.py`) in a segment's process on Greenplum; return the reply."""
    from cerebro_plpy.cluster import process

    return process.work(SegmentSession(), order)


@internal
def begin_command(command: str, request: str) -> Sequence[str | None]:
    """Begin a command that the procedure `cerebro._command` carries out on Greenplum, one task at a time.

    Return the first task; `go_on` returns the later ones.
    """
    from cerebro_plpy.cluster import procedure

    end_look()
    backend().called_at = time.monotonic()
    asked = json.loads(request)
    lacking = asked.pop("lacking", None)
    sent = Sent.from_request(command, asked)
    own = SegmentSession(sent.look_seconds)
    with cancel.interruptible(cancel.ticker(own)):
        return _next(procedure.begin(own, sent, lacking))


@internal
def show(name: str) -> bool:
    """Set this session's `application_name`, which other sessions see, to `name`; return True."""
    end_look()
    session.show(name)
    return True


@internal
def go_on(found: str | None) -> Sequence[str | None]:
    from cerebro_plpy.cluster import procedure

    end_look()
    return _next(procedure.go_on(found))


def _next(order: Sequence[str | None]) -> Sequence[str | None]:
    """Return the task `order`; if it reads with the rights of the run's caller, begin its time limit."""
    if order[0] == "look":
        backend().looking = True
        interrupts.begin_limit(json.loads(order[1] or "0"))
    return order


@internal
def take_buffer(*arguments: Any) -> int:
    from cerebro_plpy.cluster import process

    return process.take_buffer(*arguments)


@internal
def take_row(*arguments: Any) -> int:
    from cerebro_plpy.cluster.rows import pack_rows

    return pack_rows.take_row(*arguments)


@internal
def give_pieces(ticket: str) -> Iterator[tuple[Any, ...]]:
    from cerebro_plpy.cluster.rows import pack_rows

    return pack_rows.find_taker(ticket, pack_rows.RowShare).pieces()


@internal
def give_predictions(ticket: str) -> Iterator[tuple[Any, ...]]:
    from cerebro_plpy.cluster.rows import pack_rows
    from cerebro_plpy.cluster.rows.predict_rows import Predicting

    return pack_rows.find_taker(ticket, Predicting).predictions()


@internal
def join_pieces(*arguments: Any) -> list[bytes]:
    from cerebro_plpy.cluster.rows import pack_rows

    return pack_rows.join(*arguments)


def _drive(asked: Drive, look_seconds: int) -> None:
    """Drive a run in the background, which another session began."""
    from cerebro_plpy.executor.running import resume as executor

    driving = DrivingSession(asked.role, look_seconds)
    driving.drive(partial(executor.drive, driving, asked.run_id, look_seconds))


@public
def call(name: str, *arguments: Any) -> Any:
    """Carry out a call from SQL by the function that `CALLS` names for it, and return its result."""
    db = Session()
    db.server.check_call(name)
    return find_call(name)(db, *arguments)


@internal
def array_to_bytes(values: Sequence[float | None], dtype: str) -> bytes:
    from cerebro_plpy.packing.rows import read

    return read.array_to_bytes(values, dtype)


@internal
def bytes_to_array(data: bytes, dtype: str) -> list[float]:
    from cerebro_plpy.packing.rows import read

    return read.bytes_to_array(data, dtype)


@internal
def read_params(compile_params: str, fit_params: str) -> str:
    from cerebro_plpy.madlib.spaces import render

    return render.to_plain_json(compile_params, fit_params)


def predict_one(model: str | int | None, mst_key: int | None, features: Any) -> tuple[Any, ...]:
    """Predict a row that is given as an array. Only the first row of a query runs SQL statements."""
    predictor = _predictor_of_rows()
    kept = predictor.ready(model, mst_key, by_row=False)
    try:
        features = predictor.check_features(features)
        if kept is None:
            kept = _ready_model(model, mst_key, features)
        try:
            return predictor.predict_array(kept, model, features)
        except predictor.NotHere:
            kept = _ready_model(model, mst_key, features, by_engine=True)
            return predictor.predict_array(kept, model, features)
    except CerebroError as error:
        raise report(error) from None


@internal
def predict_batch(*arguments: Any) -> tuple[Any, ...]:
    from cerebro_plpy.predicting.answering import query as predictor

    return predictor.batch(Session(), *arguments)


def predict_row(model: str | int | None, row: str | None, mst_key: int | None) -> tuple[Any, ...]:
    """Predict a row that is given as JSON. Only the first row of a query runs SQL statements."""
    predictor = _predictor_of_rows()
    kept = predictor.ready(model, mst_key)
    if kept is None:
        kept = _ready_model(model, mst_key)
    try:
        try:
            return predictor.predict_row(kept, row)
        except predictor.NotHere:
            return predictor.predict_row(_ready_model(model, mst_key, by_engine=True), row)
    except CerebroError as error:
        raise report(error) from None


def _ready_model(
    model: str | int | None, mst_key: int | None, features: Any = None, *, by_engine: bool = False
) -> Kept:
    """Load the model that the reference `model` means, keep it for the next rows of the query, and return it.

    With `features`, the model is made ready for arrays of this shape, otherwise for rows in JSON. With
    `by_engine`, an engine computes its answers; otherwise NumPy does, if it can.
    """
    _check_predicts()
    kept = _model_of_rows(model, mst_key, features, by_engine=by_engine)
    _predictor_of_rows().remember(model, mst_key, kept, by_row=features is None)
    return kept


@internal
def explain_row(*asked: Any) -> Sequence[tuple[Any, ...]]:
    from cerebro_plpy.predicting.examining import explained

    return explained.explain_row(partial(call, "explain_predict"), *asked)


@functools.cache
def _predictor_of_rows() -> ModuleType:
    """Return the module that predicts rows in queries. The result is cached, as an import takes long."""
    from cerebro_plpy.predicting.answering import one as predictor

    return predictor


@internal
def _check_predicts() -> None:
    """Raise an error if this server cannot predict inside a query; its hint says what to use instead."""
    Session().server.check_predicts_in_queries()


@public
def _model_of_rows(
    model: str | int | None, mst_key: int | None, features: Any, *, by_engine: bool = False
) -> Kept:
    return _predictor_of_rows().make_ready(Session(), model, mst_key, features, by_engine=by_engine)
