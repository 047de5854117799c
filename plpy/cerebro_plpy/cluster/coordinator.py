"""What a session on the coordinator does so that a process of its own on a segment can work.

It finds what the process lacks (protocol.py): what the run is, where states lie, and, as the caller, what a
partition consists of. Rows and states do not pass through here: the process reads them where they are.
"""

from __future__ import annotations

import base64
import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from typing import Any, TypeVar

from cerebro_plpy import memory
from cerebro_plpy.cluster.protocol import Given, Left, Order, Reply, What
from cerebro_plpy.cluster.told import PartitionPlace
from cerebro_plpy.database import Database
from cerebro_plpy.errors import INTERNAL, CerebroError
from cerebro_plpy.segment import commands
from cerebro_plpy.segment.commands import CommandRequest
from cerebro_plpy.segment.rows import Layout, TableSource, datasets, layout
from cerebro_plpy.segment.supply import Facts, TableSupply
from cerebro_plpy.store import measurements, partitions, runs, state_rows
from cerebro_plpy.store.cluster import places, servers, statements
from cerebro_plpy.store.writing import TELL, write

K = TypeVar("K")
T = TypeVar("T")
C = TypeVar("C", bound=dict[Any, Any])
# What a process lacks it is given; a command needs no more than a few things one after the other.
_MOST_TURNS = 100


@dataclass(frozen=True)
class Look:
    """Statements by which the caller sees what partitions are, beside the rows of a key."""

    role: str
    key: int
    statements: Sequence[str]


@dataclass(frozen=True)
class Find:
    """A statement of the owner's that gives one text; it writes nothing."""

    statement: str
    given: Any


@dataclass(frozen=True)
class Write:
    """A statement of the owner's that gives nothing."""

    statement: str
    given: Any


Step = Look | Find | Write
Steps = Generator[Step, Any, Mapping[str, Any]]
Stepwise = Callable[[Database, str, CommandRequest, bool], Steps]


class Known:
    """What this session knows of a run, of one at a time, and of where its processes are."""

    def __init__(self) -> None:
        self.facts: dict[tuple[int, int], Facts] = {}
        self.layouts: dict[tuple[int, tuple[str, str]], Layout] = {}
        self.sources: dict[tuple[int, PartitionPlace], TableSource] = {}
        # By partition, what the caller saw of it when he looked last.
        self.seen: dict[tuple[int, PartitionPlace], str | None] = {}
        # By key, the configs of a run of which the process beside it has been told.
        self.told: dict[tuple[int, int], set[int]] = {}
        # The keys beside which a process of this session has worked since it gave back the last run's rows.
        self.at_work: set[int] = set()
        # For each segment a key whose rows lie there.
        self.near: list[int] = []


def _kept(cache: dict[tuple[int, K], T], run_id: int, key: K, find: Callable[[], T]) -> T:
    """What stays the same for a whole run, found once; of one run at a time."""
    if (run_id, key) not in cache:
        _of_run(cache, run_id)[run_id, key] = find()
    return cache[run_id, key]


def _of_run(cache: C, run_id: int) -> C:
    """A cache whose places begin with a run's number, without what another run has left there."""
    if cache and next(iter(cache))[0] != run_id:
        cache.clear()
    return cache


def carry_out(db: Database, name: str, request: CommandRequest) -> Mapping[str, Any]:
    """Do what needs an engine beside the rows that it is about, in the transaction that is under way."""
    if name in _ABOUT_SEGMENTS:
        return _ABOUT_SEGMENTS[name](db)
    if name not in STEPWISE:
        return _tell(db, name, request)
    steps, reply = steps_of(db, name, request, commits=False), None
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


def _tell(db: Database, name: str, request: CommandRequest) -> Mapping[str, Any]:
    """Have a segment's process do what needs nothing but an engine."""
    if name == "give_back":
        return _give_back(db, request)
    segment = request.get("segment", 0)
    known = memory.of(Known)
    if segment >= len(known.near):
        known.near = places.keys(db, segment + 1)
    head, _ = places.exchange(db, known.near[segment], name, {"request": request}, [])
    for line in head["told"]:
        db.notice(line)
    return head["result"]


def _give_back(db: Database, request: CommandRequest) -> Mapping[str, Any]:
    """Wherever a process of this session has worked for the run, it lets go of the run's rows."""
    at_work = memory.of(Known).at_work
    while at_work:
        places.exchange(db, at_work.pop(), "give_back", {"request": request}, [])
    return {}


def steps_of(db: Database, name: str, request: CommandRequest, commits: bool = True) -> Steps:
    """What has to be done for a command; whoever carries the statements out sends the replies.

    The process on the segment `commits` what it makes, or it belongs to the transaction under way here.
    """
    return STEPWISE[name](db, name, request, commits)


class _ConfigCommand(ABC):
    """One command about one config on one segment."""

    def __init__(self, db: Database, name: str, request: CommandRequest, commits: bool) -> None:
        self._db, self._name, self._request, self._commits = db, name, request, commits
        self._run_id, self._mst_key = request["run_id"], request["mst_key"]
        self._lacking: What | None = request.get("lacking")
        self._direct = TableSupply(db)
        self._known = memory.of(Known)
        self._run = self._find_facts(self._run_id, self._mst_key).run
        self._key = self._key_of(request["segment"])

    def steps(self) -> Steps:
        answer = yield from self._insist()
        yield from self._write(Left(**(answer.left or {})))
        # With the key the process is reached without this.
        return {**(answer.result or {}), **({"key": self._key} if self._commits else {})}

    def _insist(self) -> Generator[Step, Any, Reply]:
        """Have the process do it, with all that it turns out to lack."""
        request = {name: value for name, value in self._request.items() if name != "lacking"}
        order = Order(self._name, request, self._key, self._commits)
        self._known.at_work.add(self._key)
        given = yield from self._first()
        for turn in range(_MOST_TURNS):
            asked = replace(order, first=turn == 0, given=given)
            reply = Reply(**json.loads((yield Find(statements.work(self._key), asdict(asked)))))
            if reply.error is not None:
                raise CerebroError(**reply.error)
            if reply.lacking is None:
                return reply
            given = yield from self._supply(reply.lacking)
        raise CerebroError("a segment's process does not keep what it is given", sqlstate=INTERNAL)

    def _first(self) -> Generator[Step, Any, list[Given]]:
        """What the process is bound to ask for, or has asked for already."""
        told = _kept(self._known.told, self._run_id, self._key, set)
        if not told:
            return [*self._about_run(), *(yield from self._look())]
        given = [] if self._mst_key in told else self._about_config(self._mst_key)
        if self._lacking is not None and self._lacking[0] == "look":
            given += yield from self._look()
        return given

    def _look(self) -> Generator[Step, Any, list[Given]]:
        """Have the caller look at the partitions that the process is to read."""
        places = [(self._run.owner, table, self._request["segment"]) for table in self._tables()]
        if not places:
            return []
        found = yield Look(self._run.owner, self._key, [self._source(place).looking for place in places])
        looks = dict(zip(places, found, strict=True))
        _of_run(self._known.seen, self._run_id).update(
            {(self._run_id, place): look for place, look in looks.items()}
        )
        return [("look", place, look) for place, look in looks.items()]

    def _about_run(self) -> list[Given]:
        """What stays the same while it goes on, and all configs that it has so far."""
        run = self._run_id
        known = {key: facts for (_, key), facts in self._known.facts.items()}
        _kept(self._known.told, run, self._key, set).update(known)
        has_weights = runs.has_weights(self._db, run)
        about = {"run": asdict(self._run), "has_weights": has_weights, **_as_told(known.values())}
        return [("run", [run], about), self._where()]

    def _about_config(self, mst_key: int) -> list[Given]:
        _kept(self._known.told, self._run_id, self._key, set).add(mst_key)
        return [("config", [self._run_id], _as_told([self._find_facts(self._run_id, mst_key)]))]

    def _where(self) -> Given:
        """How the process finds what lies with each of the run's segments."""
        keys = [self._key_of(segment) for segment in range(self._run.segments)]
        return "servers", [self._run_id], servers.where(self._db, self._key, keys)

    @abstractmethod
    def _tables(self) -> list[str]:
        """The packed tables that the process reads."""

    def _write(self, left: Left) -> Generator[Step, Any, None]:
        """What the process has not committed."""
        for visit in left.visits:
            _, parts = places.exchange(self._db, self._key, "left", {"request": {}}, [])
            servers.write_visit(self._db, visit, parts)
        if left.evaluations:
            servers.write_evaluations(self._db, left.evaluations)
        for measured in left.metrics:
            yield Write(statements.write_metric(self._run_id, self._mst_key), measured)

    def _key_of(self, segment: int) -> int:
        """The distribution key of a segment's rows."""
        return self._layout(self._run.owner, self._run.source_table).keys[segment]

    def _find_facts(self, run_id: int, mst_key: int) -> Facts:
        if (run_id, mst_key) not in self._known.facts:
            # Those of all configs, since every statement of Python's is told to every segment.
            found = self._direct.all_facts(run_id)
            _of_run(self._known.facts, run_id).update({(run_id, key): facts for key, facts in found.items()})
        return self._known.facts[run_id, mst_key]

    def _source(self, place: PartitionPlace) -> TableSource:
        known = self._layout(*place[:2])
        return _kept(self._known.sources, self._run_id, place, partial(TableSource, self._db, *place, known))

    def _layout(self, role: str, table: str) -> Layout:
        def find() -> Layout:
            return self._db.as_caller(role, layout, self._db, table)

        return _kept(self._known.layouts, self._run_id, (role, table), find)

    def _supply(self, what: What) -> Generator[Step, Any, list[Given]]:
        """What the process lacks: what it keeps comes with the command, the rest goes to it at once."""
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
            case "state":
                self._give(what, None, state_rows.parts(self._db, *arguments))
                # Where it was not found may be another server by now.
                given = [self._where()]
            case "evaluations":
                self._give(what, self._measured(*arguments), [])
                given = [self._where()]
            case "digest":
                self._give(what, self._source((arguments[0], arguments[1], arguments[2])).digest(), [])
            case _:
                raise CerebroError(f"a segment's process asks for {kind}", sqlstate=INTERNAL)
        return given

    def _give(self, what: What, value: Any, parts: Sequence[bytes]) -> None:
        places.exchange(self._db, self._key, "give", {"request": {"what": what, "value": value}}, parts)

    def _measured(self, run_id: int, mst_key: int, epoch: int) -> Mapping[str, Sequence[str]]:
        found = {
            dataset: measurements.read_evaluations(self._db, run_id, mst_key, epoch, dataset)
            for dataset in datasets(self._run)
        }
        return {dataset: [base64.b64encode(data).decode() for data in of] for dataset, of in found.items()}

    def _load(self, role: str, table: str, segment: int, in_memory: bool) -> None:
        """Have the process read a partition, with the caller's rights."""
        place = role, table, segment
        source, (version, buffers) = (
            self._source(place),
            partitions.parse(self._known.seen[self._run_id, place]),
        )
        ticket, columns = secrets.token_hex(16), source.layout.columns
        expected = {
            "ticket": ticket,
            "role": role,
            "table": table,
            "segment": segment,
            "version": version,
            "buffers": [astuple(buffer) for buffer in buffers],
            "kinds": [None] * len(columns.independent) + list(source.layout.kinds),
            "in_memory": in_memory,
        }
        places.exchange(self._db, self._key, "expect", {"request": expected}, [])
        self._db.as_caller(role, places.send_buffers, self._db, table, source.key, columns, ticket)
        places.exchange(self._db, self._key, "loaded", {"request": {"ticket": ticket}}, [])


class _Visit(_ConfigCommand):
    def _tables(self) -> list[str]:
        return [self._run.source_table]


class _Evaluate(_ConfigCommand):
    def _tables(self) -> list[str]:
        return list(datasets(self._run).values())


class _Merge(_ConfigCommand):
    def _tables(self) -> list[str]:
        return []


def _as_told(facts: Iterable[Facts]) -> Mapping[str, Any]:
    """Configs, and their architectures and functions, each of which stands there once."""
    found = list(facts)
    nets = {one.config.model_id: one.model_arch for one in found}
    return {
        "configs": [asdict(one.config) for one in found],
        "nets": list(nets.items()),
        "functions": list(found[-1].functions) if found else [],
    }


def _with(command: type[_ConfigCommand]) -> Stepwise:
    return lambda db, name, request, commits: command(db, name, request, commits).steps()


def _drop_states(db: Database, name: str, request: CommandRequest, commits: bool) -> Steps:
    """Remove what nobody needs any more, by a statement that is no subtransaction.

    What a subtransaction has deleted may come back in early versions of Greenplum 7 (docs/greenplum.md).
    """
    yield Write(state_rows.DROP_STATES, commands.stale_states(request))
    return {}


def _tell_epochs(db: Database, name: str, request: CommandRequest, commits: bool) -> Steps:
    yield Write(TELL, runs.told(request["run_id"], "epoch", commands.ended_epochs(request)))
    return {}


def _written(steps: Callable[[Database, CommandRequest], commands.Writes]) -> Stepwise:
    """What writes rows of runs, by statements that are no subtransactions.

    What one has written may be lost in early versions of Greenplum 7 (docs/greenplum.md).
    """

    def carry_out(db: Database, name: str, request: CommandRequest, commits: bool) -> Steps:
        work = steps(db, request)
        try:
            while True:
                for statement, given in next(work):
                    yield Write(statement, given)
        except StopIteration as end:
            return end.value

    return carry_out


def _reach(db: Database) -> Mapping[str, Any]:
    return {"segments": places.reach(db)}


def _try_logins(db: Database) -> Mapping[str, Any]:
    """Which segments' servers do not let which others' processes in, as pairs of their numbers."""
    keys = places.keys(db, places.primaries(db))
    refused: list[tuple[int, int]] = []
    for number, key in enumerate(keys):
        where = {"request": {"where": servers.where(db, key, keys)}}
        refused += [(other, number) for other in places.exchange(db, key, "log_in", where, [])[0]["result"]]
    return {"refused": refused}


_ABOUT_SEGMENTS: Mapping[str, Callable[[Database], Mapping[str, Any]]] = {
    "reach": _reach,
    "try_logins": _try_logins,
}
# What comes again and again in a run, and what writes its rows.
STEPWISE: Mapping[str, Stepwise] = {
    **{name: _written(steps) for name, steps in commands.WRITING.items()},
    "visit": _with(_Visit),
    "evaluate": _with(_Evaluate),
    "merge": _with(_Merge),
    "drop_states": _drop_states,
    "tell_epochs": _tell_epochs,
}
