"""Greenplum: what a session on the coordinator does so that a process of its own on a segment can work.

It says where states lie; it asks as the caller, with every command, what a partition consists of. Rows and
states do not pass through it: the process reads them where they are.
"""

from __future__ import annotations

import base64
import json
import math
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from functools import partial
from typing import Any, TypeVar

from cerebro_plpy.database import Database
from cerebro_plpy.errors import INTERNAL, CerebroError
from cerebro_plpy.planner import routes
from cerebro_plpy.segment import commands
from cerebro_plpy.segment.rows import TableSource, datasets
from cerebro_plpy.segment.supply import Direct, Facts
from cerebro_plpy.store import errands, links, measurements, partitions, places, runs, state_rows

Request = Mapping[str, Any]
What = list[Any]
Place = tuple[str, str, int]
K = TypeVar("K")
T = TypeVar("T")
C = TypeVar("C", bound=dict[Any, Any] | set[Any])
# What a process lacks it is given; a command needs no more than a few things one after the other.
_MOST_TURNS = 100
# So often the caller looks at a partition, if it is in use all the time: a look is dear on a cluster.
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Look:
    """Statements by which the caller sees what partitions are."""

    role: str
    statements: Sequence[str]


@dataclass(frozen=True)
class Work:
    """A statement of the owner's that gives one text; it writes nothing."""

    statement: str
    given: Any


@dataclass(frozen=True)
class Write:
    """A statement of the owner's that gives nothing."""

    statement: str
    given: Any


Step = Look | Work | Write
Steps = Generator[Step, Any, Mapping[str, Any]]
Errand = Callable[[Database, str, Request, bool], Steps]

# What stays the same for a whole run, of one run at a time.
_facts: dict[tuple[int, int], Facts] = {}
_has_weights: dict[tuple[int, int], bool] = {}
_keys: dict[tuple[int, int], int] = {}
_sources: dict[tuple[int, Place], TableSource] = {}
# By partition, when the caller looked at it last and what it saw.
_seen: dict[tuple[int, Place], tuple[float, str | None]] = {}
# The keys beside which a process of this session has worked since it gave back the last run's rows.
_at_work: set[int] = set()
# For each segment a key whose rows lie there.
_near: list[int] = []
# The configs of a run of which the process beside a key has been told.
_told: set[tuple[int, int, int]] = set()
# By key, how the process beside it finds the server of each of the run's segments.
_servers: dict[tuple[int, int], list[Any]] = {}


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


def carry_out(db: Database, name: str, request: Request) -> Mapping[str, Any]:
    """Do what needs an engine beside the rows that it is about, in the transaction that is under way."""
    if name not in ERRANDS:
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
        case Look(role, statements):
            return db.as_caller(role, lambda: [partitions.look_by(db, s) for s in statements])
        case Work(statement, given):
            return db.as_owner(lambda: errands.find(db, statement, json.dumps(given)))
        case Write(statement, given):
            return db.as_owner(lambda: errands.write(db, statement, json.dumps(given)))


def _tell(db: Database, name: str, request: Request) -> Mapping[str, Any]:
    """Have a segment's process do what needs nothing but an engine."""
    if name == "give_back":
        return _give_back(db, request)
    segment = request.get("segment", 0)
    if segment >= len(_near):
        _near[:] = places.keys(db, segment + 1)
    head, _ = places.exchange(db, _near[segment], name, {"request": request}, [])
    for line in head["told"]:
        db.notice(line)
    return head["result"]


def _give_back(db: Database, request: Request) -> Mapping[str, Any]:
    """Wherever a process of this session has worked for the run, it lets go of the run's rows."""
    while _at_work:
        places.exchange(db, _at_work.pop(), "give_back", {"request": request}, [])
    return {}


def steps_of(db: Database, name: str, request: Request, commits: bool = True) -> Steps:
    """What has to be done for a command; whoever carries the statements out sends the replies.

    The process on the segment `commits` what it makes, or it belongs to the transaction under way here.
    """
    return ERRANDS[name](db, name, request, commits)


class _Errand(ABC):
    """One command about one config on one segment."""

    def __init__(self, db: Database, name: str, request: Request, commits: bool) -> None:
        self._db, self._name, self._request, self._commits = db, name, request, commits
        self._run_id, self._mst_key, self._epoch = request["run_id"], request["mst_key"], request["epoch"]
        self._direct = Direct(db)
        self._facts = self._find_facts(self._run_id, self._mst_key)
        self._run = self._facts.run
        self._key = self._key_of(request["segment"])
        self._places: list[Place] = []
        self._looked: set[Place] = set()

    def steps(self) -> Steps:
        segment = self._request["segment"]
        self._places = [(self._run.owner, table, segment) for table in self._tables()]
        now = time.monotonic()
        yield from self._look([p for p in self._places if now - self._seen_at(p) >= _LOOK_SECONDS])
        answer = yield from self._insist([*self._news(), *(self._lie() if self._commits else ())])
        for line in answer["told"]:
            self._db.notice(line)
        yield from self._write(answer["left"])
        return answer["result"]

    def _look(self, places: Sequence[Place]) -> Generator[Step, Any, None]:
        """Have the caller look at partitions."""
        if not places:
            return
        now = time.monotonic()
        found = yield Look(self._run.owner, [self._source(place).looking for place in places])
        seen = _of_run(_seen, self._run_id)
        seen.update({(self._run_id, place): (now, look) for place, look in zip(places, found, strict=True)})
        self._looked.update(places)

    def _looks(self) -> list[Any]:
        seen = {place: _seen[self._run_id, place][1] for place in self._places}
        return [{"what": ["look", *place], "value": look} for place, look in seen.items()]

    def _to_ask(self) -> Mapping[str, Any] | None:
        """Of the partitions that the caller saw a moment ago it is asked whether he may still read them."""
        tables = [table for _, table, _ in set(self._places) - self._looked]
        return {"role": self._run.owner, "tables": tables} if tables else None

    def _news(self) -> list[Any]:
        """What the process is bound to ask for at the first command about a config."""
        told, new = _of_run(_told, self._run_id), (self._run_id, self._key, self._mst_key)
        if new in told:
            return []
        told.add(new)
        facts = ["facts", self._run_id, self._mst_key]
        return [{"what": facts, "value": self._find(*facts)[0]}, *self._first()]

    def _first(self) -> list[Any]:
        """What else it needs where the config begins with this command."""
        return []

    def _seen_at(self, place: Place) -> float:
        return _seen.get((self._run_id, place), (-math.inf, None))[0]

    def _insist(self, given: list[Any]) -> Generator[Step, Any, Mapping[str, Any]]:
        """Have the process do it, with all that it turns out to lack."""
        order = {"command": self._name, "request": self._request, "place": self._key}
        order |= {"commits": self._commits}
        _at_work.add(self._key)
        for turn in range(_MOST_TURNS):
            order |= {"first": turn == 0, "given": [*self._looks(), *given], "may_read": self._to_ask()}
            answer = json.loads((yield Work(errands.work(self._key), order)))
            if "error" in answer:
                raise CerebroError(**answer["error"])
            if "lacking" not in answer:
                return answer
            if answer["lacking"] == ["right"]:
                yield from self._look(self._places)
            else:
                self._supply(answer["lacking"])
        raise CerebroError("a segment's process does not keep what it is given", sqlstate=INTERNAL)

    @abstractmethod
    def _tables(self) -> list[str]:
        """The packed tables that the process reads."""

    @abstractmethod
    def _lie(self) -> list[Any]:
        """What the process takes from where it lies, and where that is."""

    def _write(self, left: Mapping[str, Sequence[Mapping[str, Any]]]) -> Generator[Step, Any, None]:
        """What the process has not committed."""
        for visit in left["visits"]:
            _, parts = places.exchange(self._db, self._key, "left", {"request": {}}, [])
            self._db.as_owner(partial(links.write_visit, self._db, visit, parts))
        if left["evaluations"]:
            self._db.as_owner(lambda: links.write_evaluations(self._db, left["evaluations"]))
        for measured in left["metrics"]:
            yield Write(errands.write_metric(self._run_id, self._mst_key), measured)

    def _state(self, step: int) -> list[Any]:
        """Where a config's state after a step lies."""
        if step == (self._facts.config.source_step or 0):
            return []
        at = self._servers()[self._segment_of(step)]
        return [{"what": ["state", self._run_id, self._mst_key, step], "value": {"at": at}}]

    def _servers(self) -> list[Any]:
        """How the process finds what lies with each of the run's segments."""
        return _kept(_servers, self._run_id, self._key, self._find_servers)

    def _find_servers(self) -> list[Any]:
        keys = [self._key_of(segment) for segment in range(self._run.segments)]
        return links.where(self._db, self._key, keys)

    def _segment_of(self, step: int) -> int:
        """Where a step's visit was made."""
        epoch, stop = routes.place_of(step, self._run.segments)
        whole_epoch = self._facts.config.epochs_before + epoch
        return routes.route(self._run.seed, whole_epoch, self._mst_key, self._run.segments)[stop]

    def _key_of(self, segment: int) -> int:
        """The distribution key of a segment's rows."""
        place = self._run.owner, self._run.source_table, segment
        return _kept(_keys, self._run_id, segment, lambda: self._source(place).key)

    def _find_facts(self, run_id: int, mst_key: int) -> Facts:
        if (run_id, mst_key) not in _facts:
            # Those of all configs, since every statement of Python's is told to every segment.
            found = self._direct.all_facts(run_id)
            _of_run(_facts, run_id).update({(run_id, key): facts for key, facts in found.items()})
        return _facts[run_id, mst_key]

    def _source(self, place: Place) -> TableSource:
        return _kept(_sources, self._run_id, place, lambda: TableSource(self._db, *place))

    def _supply(self, what: What) -> None:
        """Give the process what it asks for, out of turn: it is new, or its run is."""
        kind, *arguments = what
        if kind == "rows":
            self._load(*arguments)
            return
        value, parts = self._find(kind, *arguments)
        head = {"request": {"what": what, "value": value}}
        places.exchange(self._db, self._key, "give", head, parts)

    def _find(self, kind: str, *arguments: Any) -> tuple[Any, list[bytes]]:
        match kind:
            case "facts":
                facts = self._find_facts(*arguments)
                return [asdict(facts.run), asdict(facts.config), facts.model_arch], []
            case "weights":
                found = self._direct.weights(*arguments)
                return None, [] if found is None else [found]
            case "state":
                # Where it lies may be another server by now.
                _servers.clear()
                return None, self._db.as_owner(lambda: state_rows.parts(self._db, *arguments))
            case "evaluations":
                _servers.clear()
                return self._measured(*arguments), []
            case "digest":
                return self._source((arguments[0], arguments[1], arguments[2])).digest(), []
        raise CerebroError(f"a segment's process asks for {kind}", sqlstate=INTERNAL)

    def _measured(self, *place: int) -> Mapping[str, Sequence[str]]:
        found = {
            dataset: self._db.as_owner(partial(measurements.read_evaluations, self._db, *place, dataset))
            for dataset in datasets(self._run)
        }
        return {dataset: [base64.b64encode(data).decode() for data in of] for dataset, of in found.items()}

    def _load(self, role: str, table: str, segment: int, in_memory: bool) -> None:
        """Have the process read a partition, with the caller's rights."""
        place = role, table, segment
        source, (version, buffers) = self._source(place), partitions.parse(_seen[self._run_id, place][1])
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
        self._db.as_caller(role, lambda: places.send_buffers(self._db, table, source.key, columns, ticket))
        places.exchange(self._db, self._key, "loaded", {"request": {"ticket": ticket}}, [])


class _Visit(_Errand):
    def _tables(self) -> list[str]:
        return [self._run.source_table]

    def _lie(self) -> list[Any]:
        return self._state(self._step - 1)

    def _first(self) -> list[Any]:
        """Weights that there are go by another way."""
        config = self._facts.config
        if self._step - 1 != (config.source_step or 0) or self._has_weights():
            return []
        return [{"what": ["weights", self._run_id, config.model_id, self._mst_key], "value": None}]

    def _has_weights(self) -> bool:
        find = partial(runs.has_weights, self._db, self._run_id)
        return _kept(_has_weights, self._run_id, 0, lambda: self._db.as_owner(find))

    @property
    def _step(self) -> int:
        return routes.step_of(self._epoch, self._request["stop"], self._run.segments)


class _Evaluate(_Errand):
    def _tables(self) -> list[str]:
        return list(datasets(self._run).values())

    def _lie(self) -> list[Any]:
        return self._state(self._epoch * self._run.segments)


class _Merge(_Errand):
    def _tables(self) -> list[str]:
        return []

    def _lie(self) -> list[Any]:
        what = ["evaluations", self._run_id, self._mst_key, self._epoch]
        return [{"what": what, "value": {"at": self._servers()}}]


def _with(errand: type[_Errand]) -> Errand:
    return lambda db, name, request, commits: errand(db, name, request, commits).steps()


def _drop_states(db: Database, name: str, request: Request, commits: bool) -> Steps:
    """Remove what nobody needs any more, by a statement that is no subtransaction.

    What a subtransaction has deleted may come back in early versions of Greenplum 7 (docs/greenplum.md).
    """
    yield Write(errands.DROP_STATES, commands.stale_states(request))
    return {}


# What comes again and again in a run.
ERRANDS: Mapping[str, Errand] = {
    "visit": _with(_Visit),
    "evaluate": _with(_Evaluate),
    "merge": _with(_Merge),
    "drop_states": _drop_states,
}
