"""The process of a segment on Greenplum, which has rows, models and an engine but may read no table.

It receives a command with what the command needs. If something is missing, it replies so before it changes
anything, and the session sends the command again. Over its own connections it reads states from the servers
that store them, and commits its results (connections.py).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from cerebro_plpy import memory
from cerebro_plpy.cluster import connections
from cerebro_plpy.cluster.protocol import (
    MESSAGES,
    EndLoad,
    ExpectBuffers,
    Give,
    GiveLeft,
    Lacking,
    Left,
    LogIn,
    Message,
    Order,
    Reply,
    Where,
)
from cerebro_plpy.cluster.rows import row_commands
from cerebro_plpy.cluster.rows.loading import Load
from cerebro_plpy.cluster.told import CoordinatorClock, Looks, PartitionPlace, RunTold, Seen
from cerebro_plpy.commands import Sent, StartEngine
from cerebro_plpy.database import Database
from cerebro_plpy.engine.models.data import Dataset
from cerebro_plpy.engine.state import State, of_config, to_parts, whole
from cerebro_plpy.errors import QUERY_CANCELED, WRONG_STATE, CerebroError
from cerebro_plpy.segment import cancel, handlers
from cerebro_plpy.segment.supply import Facts
from cerebro_plpy.store import interrupts
from cerebro_plpy.store.cluster import messages
from cerebro_plpy.store.cluster.messages import Part
from cerebro_plpy.store.runs import measurements, runs
from cerebro_plpy.store.writing import as_given


class _Received:
    """The values that were sent with the current command, by kind and arguments, each with its bytes."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Any, Sequence[Part]]] = {}

    def clear(self) -> None:
        self._found.clear()

    def add(self, what: Sequence[Any], value: Any, parts: Sequence[Part]) -> None:
        self._found[json.dumps(what)] = value, parts

    def get(self, kind: str, *arguments: Any) -> tuple[Any, Sequence[Part]] | None:
        return self._found.get(json.dumps([kind, *arguments]))

    def find(self, kind: str, *arguments: Any) -> tuple[Any, Sequence[Part]]:
        found = self.get(kind, *arguments)
        if found is None:
            raise Lacking(kind, *arguments)
        return found


class _ProcessMemory:
    """The memory of this process: facts of the run, loaded partitions, pieces of messages, and results."""

    def __init__(self) -> None:
        self.given = _Received()
        self.looks = Looks()
        self.clock = CoordinatorClock()
        # The run that this process works for: at most one.
        self.runs: dict[int, RunTold] = {}
        self.loads: dict[str, Load] = {}
        self.loaded: dict[PartitionPlace, Load] = {}
        self.incoming: list[bytes] = []
        self.outgoing: list[bytes] = []
        # The parts of the states that the last visit made, if this process does not commit them.
        self.left_parts: list[bytes] = []


def _known() -> _ProcessMemory:
    return memory.get_instance(_ProcessMemory)


class ShippedSource:
    """A source of a partition whose rows the session on the coordinator sends to this process."""

    def __init__(self, db: Database, role: str, table: str, segment: int) -> None:
        self._db, self._place = db, (role, table, segment)

    def look(self) -> Seen:
        return _known().looks.look(self._db, self._place)

    def digest(self) -> str:
        return _known().given.find("digest", *self._place)[0]

    def load(self, number: int) -> Dataset:
        raise CerebroError("a segment's process has its partition whole", sqlstate=WRONG_STATE)

    def load_all(self, within_budget: bool) -> Dataset | None:
        """Return the rows; raise Lacking if this process has not loaded the version that the caller sees.

        `within_budget` says whether the rows fit into the run's `memory_mb`. If they do not, they are in an
        unnamed file that is mapped into memory.
        """
        load = _known().loaded.pop(self._place, None)
        if load is None or load.version != self.look()[0]:
            raise Lacking("rows", *self._place, within_budget)
        return load.dataset()


class ToldSupply:
    """Gives a command in a segment's process what it needs, and takes its results.

    It reads what the process was sent, or reads over the process's connections to segments' servers. If
    `commits`, it commits all results except metrics. Otherwise it leaves all results to the session that sent
    the order, because they belong to that session's transaction.
    """

    def __init__(self, db: Database, key: int = 0, commits: bool = True) -> None:
        self._db, self._key, self._commits = db, key, commits
        self.connections = connections.Connections(db, partial(interrupts.tick, db))
        self._measured: dict[int, Mapping[str, Sequence[bytes]]] = {}
        self.left = Left()

    def ticker(self) -> Callable[[], None]:
        return cancel.ticker(self._db)

    def facts(self, run_id: int, mst_key: int) -> Facts:
        if run_id not in _known().runs:
            raise Lacking("run", run_id)
        return _known().runs[run_id].facts(mst_key)

    def weights(self, run_id: int, model_id: int, mst_key: int) -> bytes | None:
        if not _known().runs[run_id].has_weights:
            return None
        _, found = _known().given.find("weights", run_id, model_id, mst_key)
        return bytes(found[0]) if found else None

    def state(self, run_id: int, mst_key: int, step: int) -> State:
        what = "state", run_id, mst_key, step
        given = _known().given.get(*what)
        parts = given[1] if given else self._lying_state(run_id, mst_key, step)
        if not parts and given is None:
            raise Lacking(*what)
        return of_config(parts or (), run_id, mst_key, step)

    def _lying_state(self, run_id: int, mst_key: int, step: int) -> Sequence[Part] | None:
        where = _known().runs[run_id].where(mst_key, step) if run_id in _known().runs else None
        if where is None or not self._commits:
            return None
        return self.connections.state(*where, run_id, mst_key, step)

    def source(self, run: runs.RunRow, table: str, segment: int) -> ShippedSource:
        return ShippedSource(self._db, run.owner, table, segment)

    def evaluations(self, run_id: int, mst_key: int, epoch: int, dataset: str) -> Sequence[bytes]:
        what = "evaluations", run_id, mst_key, epoch
        given = _known().given.get(*what)
        if given is not None:
            return [base64.b64decode(data) for data in given[0][dataset]]
        if mst_key not in self._measured and self._commits:
            servers = _known().runs[run_id].servers
            self._measured[mst_key] = self.connections.evaluations(servers, run_id, mst_key, epoch) or {}
        if not self._measured.get(mst_key):
            raise Lacking(*what)
        return self._measured[mst_key].get(dataset, ())

    def leave_visit(self, visit: runs.VisitRow, state: State) -> int:
        # States are stored whole, since frozen arrays would have to be on each server.
        kept = list(to_parts(whole(state)))
        size = sum(map(len, kept))
        row = self._as_given(visit, size)
        if self._commits:
            self.connections.write_visits([row], [kept], _known().clock.now)
        else:
            self.left.visits.append(row)
            self.left.parts.append(len(kept))
            _known().left_parts = kept
        return size

    def _as_given(self, visit: runs.VisitRow, size: int) -> dict[str, Any]:
        began = visit.started_at + _known().clock.ahead
        return as_given(replace(visit, state_bytes=size, place=self._key, started_at=began))

    def bundle(self, run_id: int, keys: Sequence[int]) -> Sequence[runs.ConfigRow]:
        return [self.facts(run_id, key).config for key in keys]

    def own_weights(self, run_id: int, keys: Sequence[int]) -> Mapping[int, bytes]:
        if not _known().runs[run_id].has_weights:
            return {}
        found, parts = _known().given.find("own_weights", run_id, *keys)
        return {key: bytes(data) for key, data in zip(found, parts, strict=True)}

    def states(self, run_id: int, keys: Sequence[int], step: int) -> Sequence[State]:
        # A warm start may name another run, of which this process knows no facts.
        here = run_id in _known().runs
        if here and self.facts(run_id, keys[0]).config.group_id is None:
            # States of configs that hop are on the servers of the segments that made them.
            return [self.state(run_id, key, step) for key in keys]
        what = "states", run_id, step, *keys
        given = _known().given.get(*what)
        if given is not None:
            rest = iter(given[1])
            found = {key: [next(rest) for _ in range(count)] for key, count in given[0]}
        else:
            found = self.connections.states(run_id, keys, step) if self._commits else None
            if found is None or len(found) < len(keys):
                raise Lacking(*what)
        return [of_config(found.get(key, ()), run_id, key, step) for key in keys]

    def leave_bundle(self, visits: Sequence[runs.VisitRow], states: Sequence[tuple[int, State]]) -> int:
        kept = [list(to_parts(whole(state))) for _, state in states]
        sizes = [sum(map(len, parts)) for parts in kept]
        rows = [self._as_given(visit, size) for visit, size in zip(visits, sizes, strict=True)]
        if self._commits:
            self.connections.write_visits(rows, kept, _known().clock.now)
        else:
            self.left.visits.extend(rows)
            self.left.parts.extend(map(len, kept))
            _known().left_parts = [part for parts in kept for part in parts]
        return sum(sizes)

    def leave_evaluation(self, evaluation: measurements.EvaluationRow) -> None:
        self.left.evaluations.append(as_given(replace(evaluation, place=self._key)))

    def leave_metrics(self, measured: Sequence[measurements.Measured]) -> None:
        self.left.metrics.extend(as_given(row) for row in measured)

    def finish(self) -> None:
        """Write all evaluations of the command in one transaction, if this process commits."""
        if self._commits and self.left.evaluations:
            self.connections.write_evaluations(self.left.evaluations)
            self.left.evaluations.clear()


def work(db: Database, order: str) -> str:
    """Carry out an order, given as JSON; return the `Reply` as JSON.

    An order with the key "bound" only sets a time limit for the statements that follow.
    """
    asked = json.loads(order)
    interrupts.end_bound()
    if "bound" in asked:
        if asked["bound"] is not None:
            interrupts.begin_bound(asked["bound"])
        return "{}"
    told = Order.from_fields(asked)
    if told.first:
        _known().given.clear()
        _known().looks.begin()
    for kind, arguments, value in told.given:
        _TAKEN[kind](arguments, value)
    _known().clock.hear(asked["at"])
    return _work(db, told).as_json()


def _take_run(arguments: Sequence[Any], value: Mapping[str, Any]) -> None:
    _known().runs.clear()
    _known().looks.clear()
    _known().clock.forget()
    known = _known().runs[arguments[0]] = RunTold(runs.RunRow(**value["run"]), value["has_weights"])
    known.add(value["configs"], value["nets"], value["functions"])


def _take_config(arguments: Sequence[Any], value: Mapping[str, Any]) -> None:
    _known().runs[arguments[0]].add(**value)


def _take_servers(arguments: Sequence[Any], value: Sequence[Where]) -> None:
    _known().runs[arguments[0]].servers = value


def _take_look(arguments: Sequence[Any], value: str | None) -> None:
    role, table, segment = arguments
    _known().looks.add((role, table, segment), value)


# Facts that are sent with a command and kept for later commands, by kind.
_TAKEN: Mapping[str, Callable[[Sequence[Any], Any], None]] = {
    "run": _take_run,
    "config": _take_config,
    "servers": _take_servers,
    "look": _take_look,
}


def _work(db: Database, order: Order) -> Reply:
    supply = ToldSupply(db, order.key, order.commits)
    try:
        with cancel.interruptible(supply.ticker()):
            result = handlers.work(supply, handlers.with_own_gpu(order.sent), db.notice)
        supply.finish()
    except Lacking as lacking:
        return Reply(lacking=lacking.what)
    except CerebroError as error:
        _known().given.clear()
        return Reply(error=_described(error))
    _known().given.clear()
    return Reply(result, asdict(supply.left))


def _described(error: CerebroError) -> Mapping[str, Any]:
    """Return the fields of an error, to be sent to the coordinator; if it is a cancel, raise it instead."""
    if error.sqlstate == QUERY_CANCELED:
        raise error
    return error.arguments


def answer(db: Database, name: str, piece: bytes) -> bytes:
    """Receive a piece of a message. After the last, carry out the message; return its answer's first piece.

    A call with the name `messages.REST` returns the next piece of the answer.
    """
    interrupts.end_bound()
    if name == messages.MORE:
        _known().incoming.append(piece)
        return b""
    if name == messages.REST:
        return _known().outgoing.pop(0)
    pieces = [*_known().incoming, piece]
    _known().incoming.clear()
    _known().outgoing = _answer(db, name, pieces)
    return _known().outgoing.pop(0)


def _answer(db: Database, name: str, pieces: Sequence[bytes]) -> list[bytes]:
    head, parts = messages.unpack(pieces)
    told, supply = list[str](), ToldSupply(db)
    sent: list[bytes] = []
    try:
        with cancel.interruptible(supply.ticker()):
            if name in MESSAGES:
                result, sent = _take(supply, MESSAGES[name].from_fields(head["request"]), parts)
            else:
                result = _carry_out(supply, Sent.from_request(name, head["request"]), told.append)
    except CerebroError as error:
        return list(messages.pack({"error": _described(error)}, []))
    return list(messages.pack({"result": result, "told": told}, sent))


def _carry_out(supply: ToldSupply, sent: Sent, tell: Callable[[str], None]) -> handlers.CommandResult:
    if isinstance(sent.command, StartEngine) and sent.command.commits:
        # So that a process that cannot write its results fails before it makes any.
        supply.connections.log_in()
    return handlers.work(supply, sent, tell)


def _take(supply: ToldSupply, message: Message, parts: Sequence[Part]) -> row_commands.RowReply:
    known = _known()
    match message:
        case Give(what=what, value=value):
            known.given.add(what, value, parts)
        case ExpectBuffers(ticket=ticket):
            known.loads.clear()
            known.loads[ticket] = Load(message)
        case EndLoad(ticket=ticket):
            load = known.loads.pop(ticket)
            load.check()
            known.loaded[load.place] = load
        case LogIn(where=where):
            return supply.connections.refused(where), []
        case GiveLeft():
            left = known.left_parts.copy()
            known.left_parts.clear()
            return None, left
        case _:
            return row_commands.ABOUT_ROWS[type(message)](message, parts, supply.ticker)
    return None, []


def take_buffer(ticket: str, buffer_id: int, shapes: str, fields: Sequence[bytes]) -> int:
    """Add a buffer to the partition that is being loaded under this ticket; return the number of its fields.

    Raise an error if this process loads no partition under the ticket.
    """
    load = _known().loads.get(ticket)
    if load is None:
        raise CerebroError(
            "no load is under way in this process",
            detail="This function is for the extension's own use.",
            sqlstate=WRONG_STATE,
        )
    load.take(buffer_id, json.loads(shapes), fields)
    return len(fields)
