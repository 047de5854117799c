"""Greenplum: a segment's own process, which has rows, models and an engine but may read no table.

It is told to carry out a command and is given what the command needs. Where something lacks it says so, and
is told again with that in hand: nothing has been done then that a second time could spoil.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from cerebro_plpy.engine.data import Dataset
from cerebro_plpy.engine.state import State, of_config
from cerebro_plpy.errors import ADMIN_SHUTDOWN, QUERY_CANCELED, WRONG_STATE, CerebroError
from cerebro_plpy.segment import cancel, commands, shares
from cerebro_plpy.segment.loading import Load
from cerebro_plpy.segment.supply import EvaluationRow, Facts
from cerebro_plpy.store import errands, measurements, parcels, partitions, runs

Place = tuple[str, str, int]
Part = bytes | memoryview
Ticker = Callable[[], Callable[[], None]]


class Lacking(Exception):
    """What a command needs and was not given."""

    def __init__(self, kind: str, *arguments: Any) -> None:
        super().__init__(kind, *arguments)
        self.what = [kind, *arguments]


class _Given:
    """What a command was given, by what it is; more comes when it says what it lacks."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Any, Sequence[Part]]] = {}

    def clear(self) -> None:
        self._found.clear()

    def add(self, what: Sequence[Any], value: Any, parts: Sequence[Part]) -> None:
        self._found[json.dumps(what)] = value, parts

    def value(self, kind: str, *arguments: Any) -> Any:
        return self._find(kind, *arguments)[0]

    def parts(self, kind: str, *arguments: Any) -> Sequence[Part]:
        return self._find(kind, *arguments)[1]

    def _find(self, kind: str, *arguments: Any) -> tuple[Any, Sequence[Part]]:
        key = json.dumps([kind, *arguments])
        if key not in self._found:
            raise Lacking(kind, *arguments)
        return self._found[key]


_given = _Given()
_loads: dict[str, Load] = {}
_loaded: dict[Place, Load] = {}
_incoming: list[bytes] = []
_outgoing: list[bytes] = []
_left_parts: list[bytes] = []


class ShippedSource:
    """A partition whose rows the session on the coordinator has this process read."""

    def __init__(self, role: str, table: str, segment: int) -> None:
        self._place = (role, table, segment)

    def look(self) -> tuple[object, list[partitions.Buffer]]:
        return partitions.parse(_given.value("look", *self._place))

    def digest(self) -> str:
        return _given.value("digest", *self._place)

    def load(self, number: int) -> Dataset:
        raise CerebroError("a segment's process has its partition whole", sqlstate=WRONG_STATE)

    def load_all(self, within_budget: bool) -> Dataset | None:
        """Rows beyond the budget stand in a file without a name: the system reads them as they are needed."""
        load = _loaded.pop(self._place, None)
        if load is None or load.version != self.look()[0]:
            raise Lacking("rows", *self._place, within_budget)
        return load.dataset()


class Supplied:
    """What came with the command; what it makes is sent back."""

    def __init__(self, ticker: Ticker) -> None:
        self._ticker = ticker
        self.left: list[Mapping[str, Any]] = []

    def ticker(self) -> Callable[[], None]:
        return self._ticker()

    def facts(self, run_id: int, mst_key: int) -> Facts:
        run, config, model_arch = _given.value("facts", run_id, mst_key)
        return Facts(runs.RunRow(**run), runs.ConfigRow(**config), model_arch)

    def weights(self, run_id: int, model_id: int, mst_key: int) -> bytes | None:
        found = _given.parts("weights", run_id, model_id, mst_key)
        return bytes(found[0]) if found else None

    def state(self, run_id: int, mst_key: int, step: int) -> State:
        return of_config(_given.parts("state", run_id, mst_key, step), run_id, mst_key, step)

    def source(self, role: str, table: str, segment: int) -> ShippedSource:
        return ShippedSource(role, table, segment)

    def evaluations(self, run_id: int, mst_key: int, epoch: int, dataset: str) -> Sequence[bytes]:
        return [bytes(part) for part in _given.parts("evaluations", run_id, mst_key, epoch, dataset)]

    def leave_visit(self, visit: runs.VisitRow, parts: Iterable[bytes], ends_epoch: bool) -> int:
        """The state stays here until the statement comes that writes it down."""
        _left_parts[:] = parts
        size = sum(map(len, _left_parts))
        fields = asdict(replace(visit, state_bytes=size))
        self.left.append({**fields, "parts": len(_left_parts), "ends_epoch": ends_epoch})
        return size

    def leave_evaluation(self, evaluation: EvaluationRow) -> None:
        data = base64.b64encode(evaluation.data).decode()
        self.left.append({**vars(evaluation), "data": data})

    def leave_metrics(
        self, run_id: int, mst_key: int, epoch: int, dataset: str, values: Sequence[measurements.Measured]
    ) -> None:
        for position, value in enumerate(values):
            self.left.append({"epoch": epoch, "dataset": dataset, "position": position, **asdict(value)})


def work(order: str, parts: Sequence[bytes | None] | None, ticker: Ticker) -> str:
    """Carry out a command about a config; the answer says what is left to be written down, or what lacks."""
    asked = json.loads(order)
    if asked["first"]:
        _given.clear()
    _left_parts.clear()
    for given in asked["given"]:
        _given.add(given["what"], given["value"], ())
    there = [part for part in parts or () if part is not None]
    each = len(there) // max(1, len(asked["sent"]))
    for number, what in enumerate(asked["sent"]):
        # Of a very large state not all may be there; it is asked for like anything that lacks.
        if there and (what[0] != "state" or each < errands.MOST_PARTS):
            _given.add(what, None, there[number * each : (number + 1) * each])
    return json.dumps(_work(asked, ticker))


def _work(asked: Mapping[str, Any], ticker: Ticker) -> Mapping[str, Any]:
    supply = Supplied(ticker)
    told: list[str] = []
    try:
        with cancel.interruptible(ticker()):
            result = commands.work(supply, asked["command"], asked["request"], told.append)
    except Lacking as lacking:
        return {"lacking": lacking.what}
    except CerebroError as error:
        _given.clear()
        return {"error": _described(error)}
    _given.clear()
    return {"result": result, "told": told, "left": supply.left}


def _described(error: CerebroError) -> Mapping[str, Any]:
    """An error as the coordinator is told of it; a cancel is the server's own to tell."""
    if error.sqlstate == QUERY_CANCELED:
        raise error
    return vars(error)


def left_part(number: int) -> bytes:
    """A part of the state that the last visit made; it need not be kept here any longer."""
    if number >= len(_left_parts):
        raise CerebroError(
            "the process that has trained is not there any more",
            detail="Its segment has another in its place.",
            sqlstate=ADMIN_SHUTDOWN,
        )
    part, _left_parts[number] = _left_parts[number], b""
    return part


def answer(command: str, piece: bytes, ticker: Ticker) -> bytes:
    """Take a piece of a parcel; at the last one do what it says, and give the first piece of the answer."""
    if command == "more":
        _incoming.append(piece)
        return b""
    if command == "rest":
        return _outgoing.pop(0)
    pieces = [*_incoming, piece]
    _incoming.clear()
    _outgoing[:] = _answer(command, pieces, ticker)
    return _outgoing.pop(0)


def _answer(command: str, pieces: Sequence[bytes], ticker: Ticker) -> list[bytes]:
    head, parts = parcels.unpack(pieces)
    request, told = head["request"], list[str]()
    sent: list[bytes] = []
    try:
        with cancel.interruptible(ticker()):
            if command in shares.COMMANDS:
                result, sent = shares.COMMANDS[command](request, parts, ticker)
            elif command in _ORDERS:
                result = _ORDERS[command](request, parts)
            else:
                result = commands.work(Supplied(ticker), command, request, told.append)
    except CerebroError as error:
        return list(parcels.pack({"error": _described(error)}, []))
    return list(parcels.pack({"result": result, "told": told}, sent))


def _give(request: Mapping[str, Any], parts: Sequence[memoryview]) -> None:
    """Keep what a command that waits has asked for."""
    _given.add(request["what"], request["value"], parts)


def _expect(request: Mapping[str, Any], parts: Sequence[memoryview]) -> None:
    """Make ready for the rows of a partition."""
    _loads.clear()
    _loads[request["ticket"]] = Load(request)


def _loaded_whole(request: Mapping[str, Any], parts: Sequence[memoryview]) -> None:
    load = _loads.pop(request["ticket"])
    load.check()
    _loaded[load.place] = load


_ORDERS = {"give": _give, "expect": _expect, "loaded": _loaded_whole}


def take_buffer(ticket: str, buffer_id: int, shapes: str, fields: Sequence[bytes]) -> int:
    """Put a buffer of the load that is under way in its place."""
    load = _loads.get(ticket)
    if load is None:
        raise CerebroError(
            "no load is under way in this process",
            detail="This function is for the extension's own use.",
            sqlstate=WRONG_STATE,
        )
    load.take(buffer_id, json.loads(shapes), fields)
    return len(fields)
