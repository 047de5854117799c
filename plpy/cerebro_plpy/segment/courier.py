"""Greenplum: a session on the coordinator has a segment's process carry out a command.

The session reads what the command needs and writes what it leaves, in the transaction of the command. Rows
do not pass through it: the process reads them on its segment.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import INTERNAL, CerebroError
from cerebro_plpy.planner import routes
from cerebro_plpy.segment.rows import TableSource, datasets
from cerebro_plpy.segment.supply import Direct, EvaluationRow, Facts
from cerebro_plpy.store import measurements, places, runs

Request = Mapping[str, Any]
What = Sequence[Any]
# What a process lacks it is given; a command needs no more than a few things one after the other.
_MOST_TURNS = 100
# To look at a table with its caller's rights takes as many statements as all else in a visit.
LOOK_SECONDS = 1.0

_facts: dict[tuple[int, int], Facts] = {}
_keys: dict[tuple[int, int], int] = {}
_looks: dict[tuple[int, str, str, int], tuple[float, Any]] = {}
# The state that a process of this session made last, which it still has.
_newest: dict[int, What] = {}


def carry_out(db: Database, name: str, request: Request) -> Mapping[str, Any]:
    """Do what needs an engine beside the rows that it is about."""
    return _Errand(db, name, request).run()


class _Errand:
    def __init__(self, db: Database, name: str, request: Request) -> None:
        self._db, self._name, self._request = db, name, request
        self._direct = Direct(db)
        self._sources: dict[tuple[str, str, int], TableSource] = {}
        self._key = self._find_key()

    def run(self) -> Mapping[str, Any]:
        given = [(what, *self._give(what)) for what in self._likely()]
        for _ in range(_MOST_TURNS):
            head, parts = self._send(self._name, self._request, given)
            if "lacking" not in head:
                return self._take(head, parts)
            what = head["lacking"]
            if what[0] == "rows":
                self._load(*what[1:])
            else:
                given.append((what, *self._give(what)))
        raise CerebroError("a segment's process does not keep what it is given", sqlstate=INTERNAL)

    def _find_key(self) -> int:
        """The distribution key of the rows that the command is about."""
        run_id, segment = self._request.get("run_id"), self._request.get("segment", 0)
        if run_id is None:
            return places.keys(self._db, segment + 1)[segment]
        if (run_id, segment) not in _keys:
            if any(known != run_id for known, _ in _keys):
                _keys.clear()
            run = self._run()
            _keys[run_id, segment] = self._source(run.owner, run.source_table, segment).key
        return _keys[run_id, segment]

    def _run(self) -> runs.RunRow:
        return self._find_facts(self._request["run_id"], self._request["mst_key"]).run

    def _find_facts(self, run_id: int, mst_key: int) -> Facts:
        if (run_id, mst_key) not in _facts:
            if any(known != run_id for known, _ in _facts):
                _facts.clear()
            _facts[run_id, mst_key] = self._direct.facts(run_id, mst_key)
        return _facts[run_id, mst_key]

    def _source(self, role: str, table: str, segment: int) -> TableSource:
        place = role, table, segment
        if place not in self._sources:
            self._sources[place] = TableSource(self._db, *place)
        return self._sources[place]

    def _likely(self) -> list[What]:
        """What a process that is warm will ask for."""
        name, request = self._name, self._request
        if name not in ("visit", "evaluate", "merge"):
            return []
        run_id, mst_key, epoch = request["run_id"], request["mst_key"], request["epoch"]
        facts = self._find_facts(run_id, mst_key)
        run = facts.run
        tables = datasets(run)
        if name == "merge":
            return [("evaluations", run_id, mst_key, epoch, dataset) for dataset in tables]
        used = [run.source_table] if name == "visit" else list(tables.values())
        looks = [("look", run.owner, table, request["segment"]) for table in used]
        step = (
            routes.step_of(epoch, request["stop"], run.segments) - 1
            if name == "visit"
            else epoch * run.segments
        )
        state = ("state", run_id, mst_key, step)
        if step == (facts.config.source_step or 0) or _newest.get(self._key) == state:
            return list(looks)
        return [*looks, state]

    def _give(self, what: What) -> tuple[Any, list[bytes]]:
        """Read what a process needs: a JSON value, raw bytes, or both."""
        kind, *arguments = what
        match kind:
            case "facts":
                facts = self._find_facts(*arguments)
                return [asdict(facts.run), asdict(facts.config), facts.model_arch], []
            case "weights":
                found = self._direct.weights(*arguments)
                return None, [] if found is None else [found]
            case "state":
                return None, self._db.as_owner(lambda: runs.state_parts(self._db, *arguments))
            case "look":
                version, buffers = self._look(*arguments)
                return [version, [astuple(b) for b in buffers]], []
            case "digest":
                return self._source(*arguments).digest(), []
            case "evaluations":
                return None, list(self._direct.evaluations(*arguments))
        raise CerebroError(f"a segment's process asks for {kind}", sqlstate=INTERNAL)

    def _look(self, role: str, table: str, segment: int) -> tuple[Any, list[Any]]:
        """What a partition consists of, or did a moment ago: the rows of a process stay what they were."""
        place = self._request["run_id"], role, table, segment
        at, found = _looks.get(place, (0.0, None))
        if found is None or time.monotonic() - at > LOOK_SECONDS:
            if any(known[0] != place[0] for known in _looks):
                _looks.clear()
            found = self._source(role, table, segment).look()
            _looks[place] = time.monotonic(), found
        return found

    def _load(self, role: str, table: str, segment: int, in_memory: bool) -> None:
        """Have the process read a partition, with the caller's rights."""
        source = self._source(role, table, segment)
        version, buffers = self._look(role, table, segment)
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
        self._order("expect", expected)
        self._db.as_caller(role, lambda: places.send_buffers(self._db, table, source.key, columns, ticket))
        self._order("loaded", {"ticket": ticket})

    def _order(self, name: str, request: Request) -> None:
        self._send(name, request, [])

    def _send(
        self, name: str, request: Request, given: Sequence[tuple[What, Any, list[bytes]]]
    ) -> tuple[dict[str, Any], list[memoryview]]:
        listed = [{"what": what, "value": value, "parts": len(parts)} for what, value, parts in given]
        head = {"request": request, "given": listed}
        sent = [part for _, _, parts in given for part in parts]
        return places.exchange(self._db, self._key, name, head, sent)

    def _take(self, head: Mapping[str, Any], parts: Sequence[memoryview]) -> Mapping[str, Any]:
        """Write what the process has left, and give its result."""
        for line in head["told"]:
            self._db.notice(line)
        rest = iter(parts)
        for left in head["left"]:
            own = [bytes(next(rest)) for _ in range(left["parts"])]
            self._write(left["kind"], left["fields"], own)
        return head["result"]

    def _write(self, kind: str, fields: Mapping[str, Any], parts: list[bytes]) -> None:
        if kind == "visit":
            visit = runs.VisitRow(**fields["visit"])
            self._direct.leave_visit(visit, parts, fields["ends_epoch"])
            _newest[self._key] = ("state", visit.run_id, visit.mst_key, visit.step)
        elif kind == "evaluation":
            self._direct.leave_evaluation(EvaluationRow(**{**fields, "data": parts[0]}))
        else:
            values = [measurements.Measured(**value) for value in fields["values"]]
            self._direct.leave_metrics(**{**fields, "values": values})
