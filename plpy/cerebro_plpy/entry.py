"""One function per SQL wrapper.

Errors leave here with their SQLSTATE, DETAIL and HINT. Everything heavy is imported by the function that
needs it, so that a session which only packs rows never loads Keras.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import plpy  # provided by the server, inside a backend only

from cerebro_plpy.backend import (
    DrivingSession,
    SegmentSession,
    Session,
    is_busy,
    is_looking,
    pending,
    set_looking,
)
from cerebro_plpy.errors import INSUFFICIENT_PRIVILEGE, READ_ONLY_TRANSACTION, CerebroError, printable
from cerebro_plpy.madlib import registered
from cerebro_plpy.segment import cancel, commands
from cerebro_plpy.store import interrupts, session
from cerebro_plpy.store.cluster import gangs

if TYPE_CHECKING:
    from cerebro_plpy.executor.begin import Call

T = TypeVar("T")
P = ParamSpec("P")


def _report(error: CerebroError) -> Any:
    """The exception that PL/Python turns into an error with these fields; its name starts the message."""
    report = type("cerebro", (plpy.Error,), {"__module__": "__main__"})(printable(error.message))
    report.sqlstate = error.sqlstate
    report.detail = error.detail and printable(error.detail)
    report.hint = error.hint and printable(error.hint)
    return report


def _answer(work: Callable[[], T], known: Sequence[registered.Function] = ()) -> T:
    """Leave the package: its own errors become PostgreSQL's. A call has to ask for registered functions."""
    interrupts.let_cancels_wait()
    try:
        with registered.scope(known):
            return work()
    except CerebroError as error:
        raise _report(error) from None


def run_pending() -> None:
    """The body of the functions that exist to change rights."""
    if not pending:
        raise _report(
            CerebroError("this function is for the extension's own use", sqlstate=INSUFFICIENT_PRIVILEGE)
        )
    _answer(pending.pop(), registered.known())


def segment(command: str, request: str) -> str:
    """What a segment session does; other sessions see at once what it is."""
    asked = json.loads(request)
    own = SegmentSession(asked.pop("look_seconds", 0))
    session.set_application_name(own, command, asked)

    def carry_out() -> Mapping[str, Any]:
        if command == "drive":
            return _drive(asked, own.look_seconds)
        with cancel.interruptible(cancel.ticker(own), is_busy if own.server.may_signal else None):
            return commands.run(own, command, asked)

    return json.dumps(_answer(carry_out))


def on_segment(command: str, message: bytes) -> bytes:
    """What a segment's own process does on Greenplum."""
    from cerebro_plpy.cluster import process

    return _answer(lambda: process.answer(SegmentSession(), command, message))


def work(order: str) -> str:
    """What a segment's own process does about a config."""
    from cerebro_plpy.cluster import process

    return _answer(lambda: process.work(SegmentSession(), order))


def begin_command(command: str, request: str) -> Sequence[str | None]:
    """What a segment session has to do first; `go_on` tells what comes then."""
    from cerebro_plpy.cluster import procedure

    asked = json.loads(request)
    own = SegmentSession(asked.pop("look_seconds", 0))

    def begin() -> Sequence[str | None]:
        with cancel.interruptible(cancel.ticker(own)):
            return procedure.begin(own, command, asked, own.look_seconds)

    return _next(begin)


def show(name: str) -> bool:
    """Tell other sessions what this one is at."""
    _end_look()
    session.show(name)
    return True


def go_on(found: str | None) -> Sequence[str | None]:
    from cerebro_plpy.cluster import procedure

    return _next(lambda: procedure.go_on(found))


def _next(find: Callable[[], Sequence[str | None]]) -> Sequence[str | None]:
    """Give the next thing to do, which may be to read as the run's caller."""
    _end_look()
    order = _answer(find)
    if order[0] == "look":
        set_looking(True)
        interrupts.begin_limit(json.loads(order[1] or "0"))
    return order


def _end_look() -> None:
    """What the caller's code has left here goes, also when an error of its own was the end of it."""
    if is_looking():
        set_looking(False)
        interrupts.end_limit()
        interrupts.drop_own_locks()


def take_buffer(*arguments: Any) -> int:
    from cerebro_plpy.cluster import process

    return _answer(lambda: process.take_buffer(*arguments))


def take_row(*arguments: Any) -> int:
    from cerebro_plpy.cluster import pack_rows

    return _answer(lambda: pack_rows.take_row(*arguments))


def give_pieces(ticket: str) -> Iterator[tuple[Any, ...]]:
    from cerebro_plpy.cluster import pack_rows

    return _answer(lambda: pack_rows.found(ticket, pack_rows.RowShare).pieces())


def give_predictions(ticket: str) -> Iterator[tuple[Any, ...]]:
    from cerebro_plpy.cluster import pack_rows
    from cerebro_plpy.cluster.predict_rows import Predicting

    return _answer(lambda: pack_rows.found(ticket, Predicting).predictions())


def join_pieces(*arguments: Any) -> list[bytes]:
    from cerebro_plpy.cluster import pack_rows

    return _answer(lambda: pack_rows.join(*arguments))


def _drive(asked: Mapping[str, Any], look_seconds: int) -> Mapping[str, Any]:
    """Stand behind a run that was begun by a session which need not be there any more."""
    from cerebro_plpy.executor import resume as executor

    driving = DrivingSession(asked["role"], look_seconds)
    driving.drive(lambda: executor.drive(driving, asked["run_id"], look_seconds))
    return {}


def _run_inline(command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a segment session would do, in the caller's own; through JSON, so that both are given the same."""
    return commands.run(Session(), command, json.loads(json.dumps(request)))


def _public(function: Callable[P, T]) -> Callable[P, T]:
    """A function that runs statements: it says where it may not before it loads anything."""

    @wraps(function)
    def begun(*arguments: P.args, **named: P.kwargs) -> T:
        _answer(_refuse_while_looking)
        _answer(lambda: gangs.check(Session()))
        return function(*arguments, **named)

    return begun


def _refuse_while_looking() -> None:
    """Code behind what is being read may begin nothing and change nothing."""
    if is_looking():
        raise CerebroError(
            "this function cannot be called by code behind a table that a run reads",
            hint="Policies, views and the functions that they call may only read.",
            sqlstate=READ_ONLY_TRANSACTION,
        )


@_public
def prepare(what: str, *arguments: Any) -> None:
    """Make a table to train on, or one to make it from."""
    from cerebro_plpy.packing import empty, preprocess, split

    makes = {
        "training": preprocess.pack_training,
        "validation": preprocess.pack_validation,
        "empty": empty.create,
        "split": split.train_test_split,
    }
    _answer(lambda: makes[what](Session(), *arguments))


def array_to_bytes(values: Sequence[float | None], dtype: str) -> bytes:
    from cerebro_plpy.packing import read

    return _answer(lambda: read.array_to_bytes(values, dtype))


def bytes_to_array(data: bytes, dtype: str) -> list[float]:
    from cerebro_plpy.packing import read

    return _answer(lambda: read.bytes_to_array(data, dtype))


@_public
def load_keras_model(*arguments: Any) -> None:
    from cerebro_plpy.executor import tables

    _answer(lambda: tables.load_model(Session(), _run_inline, *arguments))


@_public
def delete_keras_model(*arguments: Any) -> None:
    from cerebro_plpy.executor import tables

    _answer(lambda: tables.delete_model(Session(), *arguments))


@_public
def load_model_selection_table(*arguments: Any) -> None:
    from cerebro_plpy.executor import tables

    _answer(lambda: tables.load_selection(Session(), *arguments))


@_public
def generate_model_configs(*arguments: Any) -> None:
    from cerebro_plpy.executor import tables

    _answer(lambda: tables.generate_configs(Session(), *arguments))


@_public
def function(what: str, *arguments: Any) -> Any:
    """What concerns registered functions."""
    from cerebro_plpy.executor import function_calls

    return _answer(lambda: function_calls.CALLS[what](Session(), _run_inline, *arguments))


@_public
def hyperband_schedule(*arguments: Any) -> None:
    from cerebro_plpy.executor import tables

    _answer(lambda: tables.write_schedule(Session(), *arguments))


@_public
def gpu_configuration(*arguments: Any) -> None:
    from cerebro_plpy.executor import gpus

    _answer(lambda: gpus.write_configuration(Session(), *arguments))


def _begin(call: Callable[..., Call], arguments: Sequence[Any]) -> None:
    from cerebro_plpy.executor import begin

    _answer(lambda: begin.begin(Session(), call(*arguments), _run_inline))


@_public
def fit_multiple_model(*arguments: Any) -> None:
    from cerebro_plpy.executor.fit import FitCall

    _begin(FitCall, arguments)


@_public
def automl(*arguments: Any) -> None:
    from cerebro_plpy.executor.automl import AutomlCall

    _begin(AutomlCall, arguments)


@_public
def fit(*arguments: Any) -> None:
    from cerebro_plpy.executor.single import SingleCall

    _begin(SingleCall, arguments)


@_public
def evaluate(*arguments: Any) -> None:
    from cerebro_plpy.executor import evaluate as executor

    _answer(lambda: executor.evaluate(Session(), executor.EvaluateCall(*arguments), _run_inline))


@_public
def forget(run_id: int | None) -> None:
    from cerebro_plpy.executor import resume as executor

    _answer(lambda: executor.forget(Session(), run_id))


@_public
def resume(run_id: int | None, search_path: str) -> None:
    from cerebro_plpy.executor import resume as executor
    from cerebro_plpy.executor import steer

    def go_on() -> None:
        if not steer.unpause(Session(), run_id):
            executor.resume(Session(), run_id, search_path, _run_inline)

    _answer(go_on)


@_public
def ask(what: str, *arguments: Any) -> None:
    """Ask something of a run that goes on in another session, by one of the functions that are named so."""
    from cerebro_plpy.executor import steer

    _answer(lambda: getattr(steer, what)(Session(), *arguments))


@_public
def bring_in(what: str, *arguments: Any) -> Any:
    """Bring configs into a run that goes on in another session."""
    from cerebro_plpy.executor import steer

    return _answer(lambda: steer.BRINGS_IN[what](Session(), _run_inline, *arguments))


@_public
def config_state(run_id: int | None, mst_key: int | None) -> Iterator[tuple[Any, ...]]:
    from cerebro_plpy.executor import states

    return _answer(lambda: states.newest(Session(), run_id, mst_key))


def read_params(compile_params: str, fit_params: str) -> str:
    from cerebro_plpy.madlib import render

    return _answer(lambda: render.to_plain_json(compile_params, fit_params))


@_public
def last_run() -> int:
    from cerebro_plpy.executor import run as executor

    return _answer(lambda: executor.last_run(Session()))


@_public
def wait(run_id: int | None, timeout: str | None) -> str:
    from cerebro_plpy.executor import steer

    return _answer(lambda: steer.wait(Session(), run_id, timeout))


@_public
def version() -> str:
    from cerebro_plpy.executor import diagnose as executor

    return _answer(lambda: executor.versions(Session()))


@_public
def diagnose() -> list[tuple[Any, ...]]:
    from cerebro_plpy.executor import diagnose as executor

    return _answer(lambda: [astuple(finding) for finding in executor.diagnose(Session())])


@_public
def predict(model_table: str | None, mst_key: int | None, *rows: Any) -> None:
    from cerebro_plpy.predicting import rows as predictor

    _answer(lambda: predictor.predict(Session(), model_table, mst_key, predictor.Rows(*rows)))


@_public
def predict_byom(arch_table: str | None, model_id: int | None, given: tuple[Any, ...], *rows: Any) -> None:
    from cerebro_plpy.predicting import rows as predictor

    _answer(
        lambda: predictor.predict_byom(
            Session(), arch_table, model_id, predictor.Rows(*rows), predictor.GivenModel(*given)
        )
    )


def predict_one(model: str | None, mst_key: int | None, features: Any) -> tuple[Any, ...]:
    from cerebro_plpy.predicting import one as predictor

    return _answer(lambda: predictor.predict(Session(), model, mst_key, features))
