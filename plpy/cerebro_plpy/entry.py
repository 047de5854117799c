"""One function per SQL wrapper.

Everything heavy is imported by the function that needs it, so that a session which only packs rows never
loads Keras.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cerebro_plpy.backend import DrivingSession, SegmentSession, Session, backend, is_busy
from cerebro_plpy.commands import Drive, Sent
from cerebro_plpy.doors import end_look, internal, public, report, run_pending
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.segment import cancel, handlers
from cerebro_plpy.store import interrupts, session

if TYPE_CHECKING:
    from cerebro_plpy.executor.begin import RunCall
    from cerebro_plpy.predicting.one import Kept

__all__ = ["run_pending"]


@internal
def segment(command: str, request: str) -> str:
    """Carry out a command in a segment session; other sessions see at once what it is."""
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
    """Answer a message to a segment's own process on Greenplum."""
    from cerebro_plpy.cluster import process

    return process.answer(SegmentSession(), command, message)


@internal
def work(order: str) -> str:
    """Carry out an order about a config in a segment's own process on Greenplum."""
    from cerebro_plpy.cluster import process

    return process.work(SegmentSession(), order)


@internal
def begin_command(command: str, request: str) -> Sequence[str | None]:
    """Begin a command step by step and return the first thing to do; `go_on` returns the next."""
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
    """Tell other sessions what this one is doing."""
    end_look()
    session.show(name)
    return True


@internal
def go_on(found: str | None) -> Sequence[str | None]:
    from cerebro_plpy.cluster import procedure

    end_look()
    return _next(procedure.go_on(found))


def _next(order: Sequence[str | None]) -> Sequence[str | None]:
    """Return the next thing to do; begin a look if that is to read as the run's caller."""
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
    from cerebro_plpy.cluster import pack_rows

    return pack_rows.take_row(*arguments)


@internal
def give_pieces(ticket: str) -> Iterator[tuple[Any, ...]]:
    from cerebro_plpy.cluster import pack_rows

    return pack_rows.find_taker(ticket, pack_rows.RowShare).pieces()


@internal
def give_predictions(ticket: str) -> Iterator[tuple[Any, ...]]:
    from cerebro_plpy.cluster import pack_rows
    from cerebro_plpy.cluster.predict_rows import Predicting

    return pack_rows.find_taker(ticket, Predicting).predictions()


@internal
def join_pieces(*arguments: Any) -> list[bytes]:
    from cerebro_plpy.cluster import pack_rows

    return pack_rows.join(*arguments)


def _drive(asked: Drive, look_seconds: int) -> None:
    """Drive a run that was begun by a session which need not be there any more."""
    from cerebro_plpy.executor import resume as executor

    driving = DrivingSession(asked.role, look_seconds)
    driving.drive(partial(executor.drive, driving, asked.run_id, look_seconds))


@public
def prepare(what: str, *arguments: Any) -> int | None:
    """Make a table to train on, or one to make it from, or add rows to it."""
    from cerebro_plpy.packing import append, empty, preprocess, split, windows

    makes = {
        "training": preprocess.pack_training,
        "validation": preprocess.pack_validation,
        "empty": empty.create,
        "split": split.train_test_split,
        "windows": windows.create,
        "append": append.append_rows,
    }
    return makes[what](Session(), *arguments)


@public
def describe_columns(source_table: str | None, options: str | None) -> Iterator[tuple[Any, ...]]:
    from cerebro_plpy.packing import describe

    return describe.describe(Session(), source_table, options)


@internal
def array_to_bytes(values: Sequence[float | None], dtype: str) -> bytes:
    from cerebro_plpy.packing import read

    return read.array_to_bytes(values, dtype)


@internal
def bytes_to_array(data: bytes, dtype: str) -> list[float]:
    from cerebro_plpy.packing import read

    return read.bytes_to_array(data, dtype)


@public
def load_keras_model(*arguments: Any) -> None:
    from cerebro_plpy.executor import tables

    tables.load_model(Session(), *arguments)


@public
def net(what: str, *arguments: Any) -> Any:
    """Make or show a net, by the function of `nets` with this name."""
    from cerebro_plpy.executor import nets

    return getattr(nets, what)(Session(), *arguments)


@public
def features(what: str, *arguments: Any) -> int:
    """Make or refresh a table of what frozen layers make of packed rows."""
    from cerebro_plpy.predicting import features as stored

    calls = {"materialize": stored.materialize, "refresh": stored.refresh}
    return calls[what](Session(), *arguments)


@public
def judge(what: str, *arguments: Any) -> Any:
    """Compare a model's answers with what is true of a table's rows, or make one ready to explain them."""
    from cerebro_plpy.predicting import judging

    return judging.CALLS[what](Session(), *arguments)


@public
def delete_keras_model(*arguments: Any) -> None:
    from cerebro_plpy.executor import tables

    tables.delete_model(Session(), *arguments)


@public
def load_model_selection_table(*arguments: Any) -> None:
    from cerebro_plpy.executor import tables

    tables.load_selection(Session(), *arguments)


@public
def generate_model_configs(*arguments: Any) -> None:
    from cerebro_plpy.executor import tables

    tables.generate_configs(Session(), *arguments)


@public
def function(what: str, *arguments: Any) -> Any:
    from cerebro_plpy.executor import function_calls

    return function_calls.CALLS[what](Session(), *arguments)


@public
def registry(what: str, *arguments: Any) -> Any:
    from cerebro_plpy.executor import registry_calls

    return registry_calls.CALLS[what](Session(), *arguments)


@public
def hyperband_schedule(*arguments: Any) -> None:
    from cerebro_plpy.executor import tables

    tables.write_schedule(Session(), *arguments)


@public
def gpu_configuration(*arguments: Any) -> None:
    from cerebro_plpy.executor import gpus

    gpus.write_configuration(Session(), *arguments)


def _begin(call: Callable[..., RunCall], arguments: Sequence[Any]) -> None:
    from cerebro_plpy.executor import begin

    begin.begin(Session(), call(*arguments))


@public
def fit_multiple_model(*arguments: Any) -> None:
    from cerebro_plpy.executor.fit import FitCall

    _begin(FitCall, arguments)


@public
def automl(*arguments: Any) -> None:
    from cerebro_plpy.executor.automl import AutomlCall

    _begin(AutomlCall, arguments)


@public
def fit(*arguments: Any) -> None:
    from cerebro_plpy.executor import begin, single

    db = Session()
    begin.begin(db, single.call(db, arguments))


@public
def train(*arguments: Any) -> Iterator[tuple[Any, ...]]:
    from cerebro_plpy.executor import train as executor

    return iter(executor.train(Session(), executor.TrainCall(*arguments)))


@public
def ensemble(*arguments: Any) -> Iterator[tuple[Any, ...]]:
    from cerebro_plpy.executor import ensemble as executor

    return iter(executor.ensemble(Session(), executor.EnsembleCall(*arguments)))


@public
def prepare_train(*arguments: Any) -> str:
    from cerebro_plpy.executor import train as executor

    return executor.prepare(Session(), executor.TrainCall(*arguments))


@public
def evaluate(*arguments: Any) -> None:
    from cerebro_plpy.executor import evaluate as executor

    executor.evaluate(Session(), executor.EvaluateCall(*arguments))


@public
def explain(what: str, *arguments: Any) -> list[Any]:
    """Return the plan of a run that has not begun, or of one that has, or advice on one."""
    from cerebro_plpy.executor import advising, explain, explain_run

    ways = {"fit": explain.fit, "automl": explain.automl, "run": explain_run.explain_run}
    return {**ways, "advice": advising.advise}[what](Session(), *arguments)


@public
def forget(run_id: int | None) -> None:
    from cerebro_plpy.executor import resume as executor

    executor.forget(Session(), run_id)


@public
def resume(run_id: int | None) -> None:
    from cerebro_plpy.executor import resume as executor
    from cerebro_plpy.executor import steer

    if not steer.unpause(Session(), run_id):
        executor.resume(Session(), run_id)


@public
def ask(what: str, *arguments: Any) -> None:
    """Ask something of a run that goes on in another session, by the function of `steer` with this name."""
    from cerebro_plpy.executor import steer

    getattr(steer, what)(Session(), *arguments)


@public
def bring_in(what: str, *arguments: Any) -> Any:
    """Bring configs into a run that goes on in another session."""
    from cerebro_plpy.executor import steer

    return steer.BRINGS_IN[what](Session(), *arguments)


@public
def config_state(run_id: int | None, mst_key: int | None) -> Iterator[tuple[Any, ...]]:
    from cerebro_plpy.executor import states

    return states.newest(Session(), run_id, mst_key)


@internal
def read_params(compile_params: str, fit_params: str) -> str:
    from cerebro_plpy.madlib import render

    return render.to_plain_json(compile_params, fit_params)


@public
def last_run() -> int:
    from cerebro_plpy.executor import run as executor

    return executor.last_run(Session())


@public
def wait(run_id: int | None, timeout: str | None) -> str:
    from cerebro_plpy.executor import steer

    return steer.wait(Session(), run_id, timeout)


@public
def version() -> str:
    from cerebro_plpy.executor import diagnose as executor

    return executor.versions(Session())


@public
def diagnose() -> list[tuple[Any, ...]]:
    from cerebro_plpy.executor import diagnose as executor

    return [astuple(finding) for finding in executor.diagnose(Session())]


@public
def predict(model_table: str | None, mst_key: int | None, *rows: Any) -> None:
    from cerebro_plpy.predicting import rows as predictor

    predictor.predict(Session(), model_table, mst_key, predictor.Rows(*rows))


@public
def predict_byom(arch_table: str | None, model_id: int | None, given: tuple[Any, ...], *rows: Any) -> None:
    from cerebro_plpy.predicting import rows as predictor

    predictor.predict_byom(
        Session(), arch_table, model_id, predictor.Rows(*rows), predictor.GivenModel(*given)
    )


def predict_one(model: str | int | None, mst_key: int | None, features: Any) -> tuple[Any, ...]:
    """Predict a row that is an array. Only the first one of a statement runs statements of its own."""
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


@public
def predict_statement(*arguments: Any) -> str:
    from cerebro_plpy.predicting import query as predictor

    return predictor.statement(Session(), *arguments)


@internal
def predict_batch(*arguments: Any) -> tuple[Any, ...]:
    from cerebro_plpy.predicting import query as predictor

    return predictor.batch(Session(), *arguments)


def predict_row(model: str | int | None, row: str | None, mst_key: int | None) -> tuple[Any, ...]:
    """Predict a row. Only the first one of a statement runs statements of its own."""
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
    """Return the model that a reference means, and keep it for the rows to come."""
    _check_predicts()
    kept = _model_of_rows(model, mst_key, features, by_engine=by_engine)
    _predictor_of_rows().remember(model, mst_key, kept, by_row=features is None)
    return kept


@internal
def explain_row(*asked: Any) -> Sequence[tuple[Any, ...]]:
    from cerebro_plpy.predicting import explained

    return explained.explain_row(partial(judge, "explained"), *asked)


@functools.cache
def _predictor_of_rows() -> ModuleType:
    """Import the predictor once: an import, which looks for a cancel, costs more than a small net."""
    from cerebro_plpy.predicting import one as predictor

    return predictor


@internal
def _check_predicts() -> None:
    """Refuse where no function may predict inside a query, and say what to use instead."""
    Session().server.check_predicts_in_queries()


@public
def _model_of_rows(
    model: str | int | None, mst_key: int | None, features: Any, *, by_engine: bool = False
) -> Kept:
    return _predictor_of_rows().make_ready(Session(), model, mst_key, features, by_engine=by_engine)
