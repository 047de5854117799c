"""One function per SQL wrapper; the only module that holds plpy.

Errors leave here with their SQLSTATE, DETAIL and HINT. Everything heavy is imported by the function that
needs it, so that a session which only packs rows never loads Keras.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import plpy  # provided by the server, inside a backend only

from cerebro_plpy.database import Row
from cerebro_plpy.errors import INSUFFICIENT_PRIVILEGE, CerebroError, from_statement, printable
from cerebro_plpy.segment import cancel, commands
from cerebro_plpy.store import gangs, session

T = TypeVar("T")

_plans: dict[tuple[str, tuple[str, ...]], Any] = {}
_pending: list[Callable[[], None]] = []


class Session:
    """The caller's own backend: `Database` over plpy."""

    def query(self, sql: str, types: Sequence[str] = (), values: Sequence[object] = ()) -> list[Row]:
        return _carefully(lambda: list(plpy.execute(_plan(sql, types), list(values))))

    def scan(
        self, sql: str, types: Sequence[str] = (), values: Sequence[object] = (), *, batch: int = 1000
    ) -> Iterator[list[Row]]:
        cursor = _carefully(lambda: plpy.cursor(_plan(sql, types), list(values)))
        while rows := _carefully(lambda: cursor.fetch(batch)):
            yield list(rows)
        cursor.close()

    def notice(self, message: str) -> None:
        _say(plpy.notice, message)

    def warning(self, message: str) -> None:
        _say(plpy.warning, message)

    def look_for_cancel(self) -> None:
        _say(plpy.log, "cerebro: a run is told of something, a cancel perhaps")

    def as_owner(self, work: Callable[[], T]) -> T:
        return _through(lambda: self.query(session.AS_OWNER), work)

    def as_caller(self, role: str, work: Callable[[], T]) -> T:
        return work()


class SegmentSession(Session):
    """A segment session's backend, logged in as the extension's owner."""

    def as_owner(self, work: Callable[[], T]) -> T:
        return work()

    def as_caller(self, role: str, work: Callable[[], T]) -> T:
        """Work as the caller, who may only read; nothing that it brings about stays.

        A deferred trigger or a cursor WITH HOLD would else run at COMMIT, with the rights of the owner.
        """
        guard = session.make_guard(self, role)

        def look() -> T:
            self.query(session.become(role))
            return _through(lambda: self.query(guard), work)

        try:
            return _undone(look)
        finally:
            self.query(session.BECOME_OWNER)


class DrivingSession(Session):
    """The session behind a run in the background: logged in as the extension's owner, it is the run's caller
    from the first to the last, inside a guard that writes. What may run code of a user's goes through
    `as_caller`, a guard in the guard; nothing that it brings about stays."""

    def __init__(self, role: str) -> None:
        own = SegmentSession()
        self._role = role
        self._reads, self._writes = session.make_guard(own, role), session.make_guard(own, role, writes=True)

    def drive(self, work: Callable[[], T]) -> T:
        self.query(session.become(self._role))
        try:
            return _through(lambda: self.query(self._writes), work)
        finally:
            self.query(session.BECOME_OWNER)

    def as_caller(self, role: str, work: Callable[[], T]) -> T:
        return _undone(lambda: _through(lambda: self.query(self._reads), work))


class _Undo(Exception):
    """Raised to roll a subtransaction back that has done what it was for."""


def _undone(work: Callable[[], T]) -> T:
    """Do work of which nothing stays."""
    try:
        with plpy.subtransaction():
            raise _Undo(work())
    except _Undo as undo:
        return undo.args[0]
    finally:
        session.let_cancels_wait()


def _carefully(work: Callable[[], T]) -> T:
    """Run a statement; an error of it becomes ours."""
    if session.must_look():
        Session().look_for_cancel()
    gangs.refuse_without_segments()
    try:
        return work()
    except plpy.SPIError as error:
        raise from_statement(error) from None
    finally:
        session.let_cancels_wait()


def _say(way: Callable[[str], None], message: str) -> None:
    """The server looks for a cancel whenever it says something, and gives it as a `plpy.Error`."""
    try:
        way(message)
    except plpy.Error as said:
        raise CerebroError(str(said), detail=said.detail, hint=said.hint, sqlstate=said.sqlstate) from None


def _plan(sql: str, types: Sequence[str]) -> Any:
    """Prepare each statement once per session; DDL, each of which is another, is not kept."""
    key = (sql, tuple(types))
    plan = _plans.get(key) or plpy.prepare(sql, list(types))
    if types or sql.startswith(session.REPEATED):
        _plans[key] = plan
    return plan


def _through(door: Callable[[], object], work: Callable[[], T]) -> T:
    """Run work inside the SQL function behind `door`, whose rights are other than ours.

    The function finds the work in `_pending`; an error comes back as it was, since one that passed
    through SQL would lose its class.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    _pending.append(run)
    try:
        door()
    finally:
        # A door that did not open must not leave work behind for the next to go through it.
        _pending[:] = [other for other in _pending if other is not run]
    if errors:
        raise errors[0]
    return results[0]


def _report(error: CerebroError) -> Any:
    """The exception that PL/Python turns into an error with these fields; its name starts the message."""
    report = type("cerebro", (plpy.Error,), {"__module__": "__main__"})(printable(error.message))
    report.sqlstate = error.sqlstate
    report.detail = error.detail and printable(error.detail)
    report.hint = error.hint and printable(error.hint)
    return report


def _answer(work: Callable[[], T]) -> T:
    """Leave the package: its own errors become PostgreSQL's."""
    session.let_cancels_wait()
    try:
        return work()
    except CerebroError as error:
        raise _report(error) from None


def run_pending() -> None:
    """The body of the functions that exist to change rights."""
    if not _pending:
        raise _report(
            CerebroError("this function is for the extension's own use", sqlstate=INSUFFICIENT_PRIVILEGE)
        )
    _answer(_pending.pop())


def segment(command: str, request: str) -> str:
    """What a segment session does; other sessions see at once what it is."""
    asked = json.loads(request)
    own = SegmentSession()
    session.set_application_name(own, command, asked)

    def carry_out() -> Mapping[str, Any]:
        if command == "drive":
            return _drive(asked)
        with cancel.interruptible(cancel.ticker(own)):
            return commands.run(own, command, asked)

    return json.dumps(_answer(carry_out))


def on_segment(command: str, parcel: bytes) -> bytes:
    """What a segment's own process does on Greenplum."""
    from cerebro_plpy.segment import outpost

    return _answer(lambda: outpost.answer(SegmentSession(), command, parcel))


def work(order: str) -> str:
    """What a segment's own process does about a config."""
    from cerebro_plpy.segment import outpost

    return _answer(lambda: outpost.work(SegmentSession(), order))


def begin_errand(command: str, request: str) -> Sequence[str | None]:
    """What a segment session has to do first; `go_on` tells what comes then."""
    from cerebro_plpy.segment import relay

    own = SegmentSession()

    def begin() -> Sequence[str | None]:
        with cancel.interruptible(cancel.ticker(own)):
            return relay.begin(own, command, json.loads(request))

    return _answer(begin)


def show(name: str) -> bool:
    """Tell other sessions what this one is at."""
    session.show(name)
    return True


def go_on(found: str | None) -> Sequence[str | None]:
    from cerebro_plpy.segment import relay

    return _answer(lambda: relay.go_on(found))


def take_buffer(*arguments: Any) -> int:
    from cerebro_plpy.segment import outpost

    return _answer(lambda: outpost.take_buffer(*arguments))


def take_row(*arguments: Any) -> int:
    from cerebro_plpy.packing import share

    return _answer(lambda: share.take_row(*arguments))


def give_pieces(ticket: str) -> Iterator[tuple[Any, ...]]:
    from cerebro_plpy.packing import share

    return _answer(lambda: share.found(ticket, share.Share).pieces())


def give_predictions(ticket: str) -> Iterator[tuple[Any, ...]]:
    from cerebro_plpy.packing import share
    from cerebro_plpy.segment.predict_share import Predicting

    return _answer(lambda: share.found(ticket, Predicting).predictions())


def join_pieces(*arguments: Any) -> list[bytes]:
    from cerebro_plpy.packing import share

    return _answer(lambda: share.join(*arguments))


def _drive(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """Stand behind a run that was begun by a session which need not be there any more."""
    from cerebro_plpy.executor import resume as executor

    driving = DrivingSession(asked["role"])
    driving.drive(lambda: executor.drive(driving, asked["run_id"]))
    return {}


def _run_inline(command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a segment session would do, in the caller's own; through JSON, so that both are given the same."""
    return commands.run(Session(), command, json.loads(json.dumps(request)))


_INTERNAL = {*globals()}


def training_preprocessor_dl(*arguments: Any) -> None:
    from cerebro_plpy.packing import preprocess

    _answer(lambda: preprocess.pack_training(Session(), *arguments))


def validation_preprocessor_dl(*arguments: Any) -> None:
    from cerebro_plpy.packing import preprocess

    _answer(lambda: preprocess.pack_validation(Session(), *arguments))


def create_packed_table(*arguments: Any) -> None:
    from cerebro_plpy.packing import empty

    _answer(lambda: empty.create(Session(), *arguments))


def array_to_bytes(values: Sequence[float | None], dtype: str) -> bytes:
    from cerebro_plpy.packing import read

    return _answer(lambda: read.array_to_bytes(values, dtype))


def bytes_to_array(data: bytes, dtype: str) -> list[float]:
    from cerebro_plpy.packing import read

    return _answer(lambda: read.bytes_to_array(data, dtype))


def load_keras_model(*arguments: Any) -> None:
    from cerebro_plpy.executor import tables

    _answer(lambda: tables.load_model(Session(), _run_inline, *arguments))


def delete_keras_model(*arguments: Any) -> None:
    from cerebro_plpy.executor import tables

    _answer(lambda: tables.delete_model(Session(), *arguments))


def load_model_selection_table(*arguments: Any) -> None:
    from cerebro_plpy.executor import tables

    _answer(lambda: tables.load_selection(Session(), *arguments))


def generate_model_configs(*arguments: Any) -> None:
    from cerebro_plpy.executor import tables

    _answer(lambda: tables.generate_configs(Session(), *arguments))


def hyperband_schedule(*arguments: Any) -> None:
    from cerebro_plpy.executor import tables

    _answer(lambda: tables.write_schedule(Session(), *arguments))


def gpu_configuration(*arguments: Any) -> None:
    from cerebro_plpy.executor import gpus

    _answer(lambda: gpus.write_configuration(Session(), *arguments))


def fit_multiple_model(*arguments: Any) -> None:
    from cerebro_plpy.executor import fit

    _answer(lambda: fit.fit_multiple(Session(), fit.FitCall(*arguments), _run_inline))


def automl(*arguments: Any) -> None:
    from cerebro_plpy.executor import automl as executor

    _answer(lambda: executor.automl(Session(), executor.AutomlCall(*arguments), _run_inline))


def fit(*arguments: Any) -> None:
    from cerebro_plpy.executor import single

    _answer(lambda: single.fit_single(Session(), single.SingleCall(*arguments), _run_inline))


def evaluate(*arguments: Any) -> None:
    from cerebro_plpy.executor import evaluate as executor

    _answer(lambda: executor.evaluate(Session(), executor.EvaluateCall(*arguments), _run_inline))


def forget(run_id: int | None) -> None:
    from cerebro_plpy.executor import resume as executor

    _answer(lambda: executor.forget(Session(), run_id))


def resume(run_id: int | None, search_path: str) -> None:
    from cerebro_plpy.executor import resume as executor
    from cerebro_plpy.executor import steer

    def go_on() -> None:
        if not steer.unpause(Session(), run_id):
            executor.resume(Session(), run_id, search_path, _run_inline)

    _answer(go_on)


def ask(what: str, *arguments: Any) -> None:
    """Ask something of a run that goes on in another session, by one of the functions that are named so."""
    from cerebro_plpy.executor import steer

    _answer(lambda: getattr(steer, what)(Session(), *arguments))


def clone_config(*arguments: Any) -> int:
    from cerebro_plpy.executor import steer

    return _answer(lambda: steer.clone_config(Session(), _run_inline, *arguments))


def add_space(*arguments: Any) -> list[int]:
    from cerebro_plpy.executor import steer

    return _answer(lambda: steer.add_space(Session(), _run_inline, *arguments))


def add_configs(*arguments: Any) -> list[int]:
    from cerebro_plpy.executor import steer

    return _answer(lambda: steer.add_configs(Session(), _run_inline, *arguments))


def config_state(run_id: int | None, mst_key: int | None) -> Iterator[tuple[Any, ...]]:
    from cerebro_plpy.executor import states

    return _answer(lambda: states.newest(Session(), run_id, mst_key))


def read_params(compile_params: str, fit_params: str) -> str:
    from cerebro_plpy.madlib import render

    return _answer(lambda: render.to_plain_json(compile_params, fit_params))


def last_run() -> int:
    from cerebro_plpy.executor import run as executor

    return _answer(lambda: executor.last_run(Session()))


def wait(run_id: int | None, timeout: str | None) -> str:
    from cerebro_plpy.executor import steer

    return _answer(lambda: steer.wait(Session(), run_id, timeout))


def diagnose() -> list[tuple[Any, ...]]:
    from dataclasses import astuple

    from cerebro_plpy.executor import diagnose as executor

    return _answer(lambda: [astuple(finding) for finding in executor.diagnose(Session())])


def predict(model_table: str | None, mst_key: int | None, *rows: Any) -> None:
    from cerebro_plpy.executor.evaluate import trained_model
    from cerebro_plpy.segment import predict as predictor

    _answer(lambda: predictor.predict(Session(), model_table, mst_key, predictor.Rows(*rows), trained_model))


def predict_byom(arch_table: str | None, model_id: int | None, given: tuple[Any, ...], *rows: Any) -> None:
    from cerebro_plpy.segment import predict as predictor

    _answer(
        lambda: predictor.predict_byom(
            Session(), arch_table, model_id, predictor.Rows(*rows), predictor.Given(*given)
        )
    )


def predict_one(model: str | None, mst_key: int | None, features: Any) -> tuple[Any, ...]:
    from cerebro_plpy.executor.evaluate import trained_model
    from cerebro_plpy.segment import predict_one as predictor

    return _answer(lambda: predictor.predict(Session(), model, mst_key, features, trained_model))


def _public(function: Callable[..., T]) -> Callable[..., T]:
    """Where it cannot be carried out it says so before it loads anything; no cancel leaves half a library."""

    def begun(*arguments: Any) -> T:
        _answer(lambda: function.__name__ in _WITHOUT_STATEMENTS or gangs.check(Session()))
        return function(*arguments)

    return begun


_WITHOUT_STATEMENTS = {"array_to_bytes", "bytes_to_array", "read_params", "predict_one"}
globals().update({name: _public(globals()[name]) for name in {*globals()} - _INTERNAL if name[0] != "_"})
