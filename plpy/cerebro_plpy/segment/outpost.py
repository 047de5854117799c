"""Greenplum: a segment's own process, which has rows, models and an engine but may read no table.

It is told to carry out a command and is given what the command needs. Where something lacks it says so, and
is told again with that in hand: nothing has been done then that a second time could spoil.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cerebro_plpy.engine.data import Dataset
from cerebro_plpy.engine.state import State, of_config
from cerebro_plpy.errors import QUERY_CANCELED, WRONG_STATE, CerebroError
from cerebro_plpy.segment import commands, shares
from cerebro_plpy.segment.loading import Load
from cerebro_plpy.segment.supply import EvaluationRow, Facts
from cerebro_plpy.store import measurements, parcels, partitions, runs

Place = tuple[str, str, int]
Ticker = Callable[[], Callable[[], None]]


class Lacking(Exception):
    """What a command needs and was not given."""

    def __init__(self, kind: str, *arguments: Any) -> None:
        super().__init__(kind, *arguments)
        self.what = [kind, *arguments]


class _Given:
    """What came with the command that is under way, by what it is."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Any, list[memoryview]]] = {}

    def fill(self, given: Sequence[Mapping[str, Any]], parts: Sequence[memoryview]) -> None:
        self._found.clear()
        rest = iter(parts)
        for item in given:
            own = [next(rest) for _ in range(item["parts"])]
            self._found[json.dumps(item["what"])] = item["value"], own

    def value(self, kind: str, *arguments: Any) -> Any:
        return self._find(kind, *arguments)[0]

    def parts(self, kind: str, *arguments: Any) -> list[memoryview]:
        return self._find(kind, *arguments)[1]

    def _find(self, kind: str, *arguments: Any) -> tuple[Any, list[memoryview]]:
        key = json.dumps([kind, *arguments])
        if key not in self._found:
            raise Lacking(kind, *arguments)
        return self._found[key]


_given = _Given()
_loads: dict[str, Load] = {}
_loaded: dict[Place, Load] = {}
_incoming: list[bytes] = []
_outgoing: list[bytes] = []


class ShippedSource:
    """A partition whose rows the session on the coordinator has this process read."""

    def __init__(self, role: str, table: str, segment: int) -> None:
        self._place = (role, table, segment)

    def look(self) -> tuple[object, list[partitions.Buffer]]:
        version, buffers = _given.value("look", *self._place)
        return version, [partitions.Buffer(*buffer) for buffer in buffers]

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
        self.left: list[tuple[str, Mapping[str, Any], list[bytes]]] = []

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
        kept = list(parts)
        self.left.append(("visit", {"visit": asdict(visit), "ends_epoch": ends_epoch}, kept))
        return sum(map(len, kept))

    def leave_evaluation(self, evaluation: EvaluationRow) -> None:
        self.left.append(("evaluation", {**vars(evaluation), "data": None}, [evaluation.data]))

    def leave_metrics(
        self, run_id: int, mst_key: int, epoch: int, dataset: str, values: Sequence[measurements.Measured]
    ) -> None:
        place = {"run_id": run_id, "mst_key": mst_key, "epoch": epoch, "dataset": dataset}
        self.left.append(("metrics", {**place, "values": [asdict(value) for value in values]}, []))


def answer(command: str, piece: bytes, ticker: Ticker, interruptible: Callable[[], Any]) -> bytes:
    """Take a piece of a parcel; at the last one do what it says, and give the first piece of the answer."""
    if command == "more":
        _incoming.append(piece)
        return b""
    if command == "rest":
        return _outgoing.pop(0)
    pieces = [*_incoming, piece]
    _incoming.clear()
    _outgoing[:] = _answer(command, pieces, ticker, interruptible)
    return _outgoing.pop(0)


def _answer(
    command: str, pieces: Sequence[bytes], ticker: Ticker, interruptible: Callable[[], Any]
) -> list[bytes]:
    head, parts = parcels.unpack(pieces)
    supply = Supplied(ticker)
    told: list[str] = []
    found: dict[str, Any] = {"pid": os.getpid()}
    _given.fill(head.get("given", []), parts)
    try:
        with interruptible():
            if command in shares.COMMANDS:
                result, sent = shares.COMMANDS[command](head["request"], parts, ticker)
                return list(parcels.pack({**found, "result": result}, sent))
            found["result"] = _carry_out(command, supply, head["request"], told.append)
    except Lacking as lacking:
        return list(parcels.pack({**found, "lacking": lacking.what}, []))
    except CerebroError as error:
        if error.sqlstate == QUERY_CANCELED:
            raise
        return list(parcels.pack({**found, "error": vars(error)}, []))
    finally:
        _given.fill([], [])
    left = [{"kind": kind, "fields": fields, "parts": len(own)} for kind, fields, own in supply.left]
    return list(
        parcels.pack({**found, "told": told, "left": left}, [p for _, _, own in supply.left for p in own])
    )


def _carry_out(
    command: str, supply: Supplied, request: Mapping[str, Any], tell: Callable[[str], None]
) -> Mapping[str, Any]:
    if command == "expect":
        _loads.clear()
        _loads[request["ticket"]] = Load(request)
        return {}
    if command == "loaded":
        load = _loads.pop(request["ticket"])
        load.check()
        _loaded[load.place] = load
        return {}
    return commands.work(supply, command, request, tell)


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
