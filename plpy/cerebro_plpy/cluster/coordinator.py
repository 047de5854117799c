"""The coordinator's side of a command that a process on a segment carries out.

The session sends what the process lacks (protocol.py): the facts of the run, the servers that have states
and, read with the caller's rights, the buffers of a partition. The process gets rows and states without them
passing through the coordinator.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from cerebro_plpy import memory
from cerebro_plpy.cluster.protocol import (
    EndLoad,
    ExpectBuffers,
    Give,
    GiveLeft,
    Given,
    Left,
    LogIn,
    Order,
    Reply,
    What,
    tell,
)
from cerebro_plpy.cluster.told import PartitionPlace
from cerebro_plpy.commands import (
    BesideRows,
    Command,
    ConfigCommand,
    Evaluate,
    GiveBack,
    Reach,
    Sent,
    TryLogins,
    Visit,
    VisitBundle,
)
from cerebro_plpy.database import Database
from cerebro_plpy.errors import INTERNAL, CerebroError
from cerebro_plpy.segment import handlers
from cerebro_plpy.segment.rows import Layout, TableSource, layout, tables
from cerebro_plpy.segment.supply import Facts, TableSupply
from cerebro_plpy.store.cluster import places, servers, statements
from cerebro_plpy.store.packed import partitions
from cerebro_plpy.store.runs import measurements, runs, starting_weights, state_rows
from cerebro_plpy.store.writing import write

K = TypeVar("K")
T = TypeVar("T")
C = TypeVar("C", bound=dict[Any, Any])
# How often a process may lack something in one command; a command needs only a few things.
_MOST_TURNS = 100
# The kinds of things that visits and evaluations of a run make.
_MADE = ("state", "states", "evaluations")


@dataclass(frozen=True)
class Look:
    """A step of a command: statements that list the buffers of partitions, run with the caller's rights."""

    role: str
    key: int
    statements: Sequence[str]


@dataclass(frozen=True)
class Find:
    """A step of a command: a statement, run as the extension's owner, that only returns one text."""

    statement: str
    given: Any


@dataclass(frozen=True)
class Write:
    """A step of a command: a statement, run as the extension's owner, that writes rows and returns none."""

    statement: str
    given: Any


Step = Look | Find | Write
Steps = Generator[Step, Any, Mapping[str, Any]]


class Known:
    """A cache of the facts of one run at a time, and of which processes this session has used."""

    def __init__(self) -> None:
        self.facts: dict[tuple[int, int], Facts] = {}
        self.layouts: dict[tuple[int, tuple[str, str]], Layout] = {}
        self.sources: dict[tuple[int, PartitionPlace], TableSource] = {}
        # The buffers of each partition, as the caller last listed them.
        self.seen: dict[tuple[int, PartitionPlace], str | None] = {}
        # By run and distribution key, the configs that the process on the key's segment was told of.
        self.told: dict[tuple[int, int], set[int]] = {}
        # The distribution keys whose processes have worked since the rows of the last run were dropped.
        self.at_work: set[int] = set()
        # For each segment, a distribution key whose rows are on it.
        self.near: list[int] = []


def _kept(cache: dict[tuple[int, K], T], run_id: int, key: K, find: Callable[[], T]) -> T:
    """Return a fact of a run from the cache; call `find` if it is not there. Drop facts of other runs."""
    if (run_id, key) not in cache:
        _of_run(cache, run_id)[run_id, key] = find()
    return cache[run_id, key]


def _of_run(cache: C, run_id: int) -> C:
    """Return the cache, whose keys begin with a `run_id`; empty it first if it has entries of another run."""
    if cache and next(iter(cache))[0] != run_id:
        cache.clear()
    return cache


def carry_out(db: Database, sent: Sent) -> Mapping[str, Any]:
    """Carry out a command that needs segments' processes, in the current transaction; return its answer."""
    match sent.command:
        case Reach():
            return {"segments": places.reach(db)}
        case TryLogins():
            return {"refused": _refused_logins(db)}
        case GiveBack():
            return _give_back(db, sent)
    if not sent.way.stepwise:
        return _tell(db, sent)
    steps, reply = steps_of(db, sent, commits=False), None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as end:
            return end.value
        reply = _do(db, step)


def _do(db: Database, step: Step) -> Any:
    match step:
        case Look(role, _, looks):
            return db.as_caller(role, lambda: [partitions.look_by(db, s) for s in looks])
        case Find(statement, given):
            return statements.find(db, statement, json.dumps(given))
        case Write(statement, given):
            return write(db, [(statement, given)])


def _tell(db: Database, sent: Sent) -> Mapping[str, Any]:
    """Send a command that needs only an engine to a segment's process; return its answer."""
    segment = sent.command.segment if isinstance(sent.command, BesideRows) else 0
    known = memory.get_instance(Known)
    if segment >= len(known.near):
        known.near = places.keys(db, segment + 1)
    answer = tell(db, known.near[segment], sent)
    for line in answer.told:
        db.notice(line)
    return answer.result


def _give_back(db: Database, sent: Sent) -> Mapping[str, Any]:
    """Have each process of this session that has worked for the run drop the run's rows."""
    at_work = memory.get_instance(Known).at_work
    while at_work:
        tell(db, at_work.pop(), sent)
    return {}


def _refused_logins(db: Database) -> list[tuple[int, int]]:
    """Return pairs of segment numbers: a server that refuses logins, and a process that it refuses."""
    keys = places.keys(db, places.primaries(db))
    refused: list[tuple[int, int]] = []
    for number, key in enumerate(keys):
        found = tell(db, key, LogIn(where=servers.where(db, key, keys)))
        refused += [(other, number) for other in found.result]
    return refused


def steps_of(db: Database, sent: Sent, lacking: What | None = None, commits: bool = True) -> Steps:
    """Return the steps of a command, as a generator to which the result of each step must be sent.

    `lacking` is what the process on the segment lacked if it was sent the command before. If `commits`, the
    process commits its results; otherwise this session stores them in its current transaction.
    """
    if isinstance(sent.command, ConfigCommand):
        return _CommandForConfig(db, sent, sent.command, lacking, commits).steps()
    return _written(db, sent.command)


def _written(db: Database, command: Command) -> Steps:
    """Yield the statements of a command that writes rows of runs; `cerebro._command`, in SQL, can run them.

    If Python ran them, they would be in a subtransaction. In early versions of Greenplum 7, rows that a
    subtransaction wrote may be lost, and rows that it deleted may come back (docs/greenplum.md).
    """
    work = handlers.WRITING[type(command)](db, command)
    try:
        while True:
            for statement, given in next(work):
                yield Write(statement, given)
    except StopIteration as end:
        return end.value


class _CommandForConfig:
    """A command about a config, turned into steps that send orders to the segment's process."""

    def __init__(
        self,
        db: Database,
        sent: Sent,
        command: ConfigCommand,
        lacking: What | None,
        commits: bool,
    ) -> None:
        self._db, self._sent, self._command, self._commits = db, sent, command, commits
        self._run_id, self._mst_key, self._lacking = command.run_id, command.mst_key, lacking
        self._direct = TableSupply(db)
        self._known = memory.get_instance(Known)
        self._run = self._find_facts(self._run_id, self._mst_key).run
        self._key = self._key_of(command.segment)

    def steps(self) -> Steps:
        answer = yield from self._insist()
        yield from self._write_metrics(Left(**(answer.left or {})).metrics)
        # With the key, the driving session can send the next command to the process directly.
        return {**(answer.result or {}), **({"key": self._key} if self._commits else {})}

    def _insist(self) -> Generator[Step, Any, Reply]:
        """Send the order to the process, and supply what it lacks, until it has carried out the order.

        Return its last reply; raise an error if the reply has one.
        """
        self._known.at_work.add(self._key)
        given = yield from self._first()
        for turn in range(_MOST_TURNS):
            order = Order(self._sent, self._key, self._commits, first=turn == 0, given=given)
            reply = yield from self._send_order(order)
            if reply.error is not None:
                raise CerebroError(**reply.error)
            if reply.lacking is None:
                return reply
            given = yield from self._supply(reply.lacking)
        raise CerebroError("a segment's process does not keep what it is given", sqlstate=INTERNAL)

    def _send_order(self, order: Order) -> Generator[Step, Any, Reply]:
        if not self._commits:
            # As the owner once for all statements, since each change of rights is sent to every segment.
            return self._db.as_owner(self._have_done, order)
        return Reply(**json.loads((yield Find(statements.work(self._key), order.as_dict()))))

    def _have_done(self, order: Order) -> Reply:
        """Have the process carry out an order in the current transaction, and store its results.

        If it lacks states or evaluations of this run, supply them and send the order again. Return the reply.
        """
        reply = self._ask(order)
        for _ in range(_MOST_TURNS):
            if reply.lacking is None or reply.lacking[0] not in _MADE:
                break
            self._give_made(reply.lacking)
            reply = self._ask(replace(order, first=False, given=()))
        self._write_made(Left(**(reply.left or {})))
        return reply

    def _ask(self, order: Order) -> Reply:
        found = statements.find(self._db, statements.work(self._key), json.dumps(order.as_dict()))
        return Reply(**json.loads(found))

    def _first(self) -> Generator[Step, Any, list[Given]]:
        """Return the facts to send with the first order: facts that the process does not have yet."""
        told = _kept(self._known.told, self._run_id, self._key, set)
        if not told:
            return [*self._about_run(), *(yield from self._look())]
        given = [] if self._mst_key in told else self._about_config(self._mst_key)
        if self._lacking is not None and self._lacking[0] == "look":
            given += yield from self._look()
        return given

    def _look(self) -> Generator[Step, Any, list[Given]]:
        """Return the list of buffers of each partition that the process needs, read as the run's caller."""
        places = [(self._run.owner, table, self._command.segment) for table in self._tables()]
        if not places:
            return []
        found = yield Look(self._run.owner, self._key, [self._source(place).looking for place in places])
        looks = dict(zip(places, found, strict=True))
        _of_run(self._known.seen, self._run_id).update(
            {(self._run_id, place): look for place, look in looks.items()}
        )
        return [("look", place, look) for place, look in looks.items()]

    def _about_run(self) -> list[Given]:
        """Return the facts of the run: the run, all its configs so far, and the servers of its segments."""
        run = self._run_id
        known = {key: facts for (_, key), facts in self._known.facts.items()}
        _kept(self._known.told, run, self._key, set).update(known)
        has_weights = starting_weights.any_of(self._db, run)
        about = {"run": asdict(self._run), "has_weights": has_weights, **_as_told(known.values())}
        return [("run", [run], about), self._where()]

    def _about_config(self, mst_key: int) -> list[Given]:
        _kept(self._known.told, self._run_id, self._key, set).add(mst_key)
        return [("config", [self._run_id], _as_told([self._find_facts(self._run_id, mst_key)]))]

    def _where(self) -> Given:
        """Return, as a fact for the process, the addresses of the servers of the run's segments."""
        keys = [self._key_of(segment) for segment in range(self._run.segments)]
        return "servers", [self._run_id], servers.where(self._db, self._key, keys)

    def _tables(self) -> list[str]:
        """Return the packed tables whose rows the command needs."""
        match self._command:
            case Visit():
                return [self._run.source_table]
            case VisitBundle(stop=int()):
                return [self._run.source_table]
            case Evaluate() | VisitBundle():
                return tables(self._run)
            case _:
                return []

    def _write_made(self, left: Left) -> None:
        """Store the visits, states and evaluations that the process has not committed."""
        if left.visits:
            parts = iter(tell(self._db, self._key, GiveLeft()).parts)
            for visit, count in zip(left.visits, left.parts, strict=True):
                servers.write_visit(self._db, visit, list(islice(parts, count)))
        if left.evaluations:
            servers.write_evaluations(self._db, left.evaluations)

    def _write_metrics(self, metrics: Sequence[Mapping[str, Any]]) -> Generator[Step, Any, None]:
        if getattr(self._command, "members", ()):
            # One statement for the metrics of many configs, whose rows are on all segments.
            yield Write(measurements.METRIC_ROWS, metrics)
            return
        for measured in metrics:
            yield Write(statements.write_metric(self._run_id, self._mst_key), measured)

    def _key_of(self, segment: int) -> int:
        """Return the distribution key of a segment's rows."""
        return self._layout(self._run.owner, self._run.source_table).keys[segment]

    def _find_facts(self, run_id: int, mst_key: int) -> Facts:
        if (run_id, mst_key) not in self._known.facts:
            # Read the facts of all configs, since each statement of Python is sent to every segment.
            found = self._direct.all_facts(run_id)
            _of_run(self._known.facts, run_id).update({(run_id, key): facts for key, facts in found.items()})
        return self._known.facts[run_id, mst_key]

    def _source(self, place: PartitionPlace) -> TableSource:
        known = self._layout(*place[:2])
        return _kept(self._known.sources, self._run_id, place, partial(TableSource, self._db, *place, known))

    def _layout(self, role: str, table: str) -> Layout:
        def find() -> Layout:
            return self._db.as_caller(role, layout, self._db, table, runs.below(self._run, table))

        return _kept(self._known.layouts, self._run_id, (role, table), find)

    def _supply(self, what: What) -> Generator[Step, Any, list[Given]]:
        """Supply what the process lacks: return facts for the next order; send anything else at once."""
        kind, *arguments = what
        given: list[Given] = []
        match kind:
            case "look":
                given = yield from self._look()
            case "run":
                given = self._about_run()
            case "config":
                given = self._about_config(arguments[1])
            case "rows":
                self._load(*arguments)
            case "weights":
                found = self._direct.weights(*arguments)
                self._give(what, None, [] if found is None else [found])
            case "own_weights":
                own = starting_weights.read_own_weights(self._db, arguments[0], arguments[1:])
                self._give(what, list(own), list(own.values()))
            case "state" | "states" | "evaluations":
                self._give_made(what)
                # A server may have moved to another address since the process was told.
                given = [] if kind == "states" else [self._where()]
            case "digest":
                self._give(what, self._source((arguments[0], arguments[1], arguments[2])).digest(), [])
            case _:
                raise CerebroError(f"a segment's process asks for {kind}", sqlstate=INTERNAL)
        return given

    def _give(self, what: What, value: Any, parts: Sequence[bytes]) -> None:
        tell(self._db, self._key, Give(what=what, value=value), parts)

    def _give_made(self, what: What) -> None:
        """Send the process states or evaluations that the run has stored."""
        kind, *arguments = what
        if kind == "state":
            self._give(what, None, state_rows.parts(self._db, *arguments))
        elif kind == "states":
            of_each = state_rows.parts_of_several(self._db, *arguments[:2], keys=arguments[2:])
            counts = [(key, len(parts)) for key, parts in of_each.items()]
            self._give(what, counts, [part for parts in of_each.values() for part in parts])
        else:
            self._give(what, self._measured(*arguments), [])

    def _measured(self, run_id: int, mst_key: int, epoch: int) -> Mapping[str, Sequence[str]]:
        found = {
            dataset: measurements.read_evaluations(self._db, run_id, mst_key, epoch, dataset)
            for dataset in measurements.DATASETS
        }
        return {dataset: [base64.b64encode(data).decode() for data in of] for dataset, of in found.items()}

    def _load(self, role: str, table: str, segment: int, in_memory: bool) -> None:
        """Send the rows of a partition, read with the caller's rights, to the process."""
        place = role, table, segment
        source, (version, buffers) = (
            self._source(place),
            partitions.parse(self._known.seen[self._run_id, place]),
        )
        ticket, columns = secrets.token_hex(16), source.layout.columns
        expected = ExpectBuffers(
            ticket=ticket,
            role=role,
            table=table,
            segment=segment,
            version=version,
            buffers=[astuple(buffer) for buffer in buffers],
            kinds=[None] * len(columns.independent) + list(source.layout.kinds),
            in_memory=in_memory,
        )
        tell(self._db, self._key, expected)
        self._db.as_caller(role, places.send_buffers, self._db, table, source.key, columns, ticket)
        tell(self._db, self._key, EndLoad(ticket=ticket))


def _as_told(facts: Iterable[Facts]) -> Mapping[str, Any]:
    """Return the facts of configs as JSON for a process, with each architecture and function only once."""
    found = list(facts)
    nets = {one.config.model_id: one.model_arch for one in found}
    return {
        "configs": [asdict(one.config) for one in found],
        "nets": list(nets.items()),
        "functions": list(found[-1].functions) if found else [],
    }
