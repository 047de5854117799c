"""Implements `server.Server` for Greenplum, where each segment is a server with its own processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import WRONG_OBJECT, CerebroError
from cerebro_plpy.store.cluster import before_statement, gangs, places

if TYPE_CHECKING:
    from cerebro_plpy.commands import Sent
    from cerebro_plpy.packing.dividing.parts import PartsRead
    from cerebro_plpy.packing.faults import Faults
    from cerebro_plpy.packing.job import Job, Rules
    from cerebro_plpy.packing.pack import PackedRows
    from cerebro_plpy.packing.rows.reading import Column
    from cerebro_plpy.planner.gpus import Place
    from cerebro_plpy.predicting.answering.rows import Predictor
    from cerebro_plpy.store.names import Table
    from cerebro_plpy.store.packed.packed import PackedSummary
    from cerebro_plpy.topology import Topology
    from cerebro_plpy.topology.local import LocalTopology


class Greenplum:
    def __init__(self, db: Database) -> None:
        self._db = db

    @property
    def segment_sessions(self) -> type[LocalTopology]:
        from cerebro_plpy.cluster.sessions import GreenplumTopology

        return GreenplumTopology

    def places_for_work(self) -> int:
        return places.primaries(self._db)

    def usual_threads(self, segments: int, at_a_time: int | None) -> int:
        return threads_on(places.processors(self._db), segments, at_a_time)

    def rules(self, distribution_rules: str | None) -> Rules:
        from cerebro_plpy.cluster import rules

        return rules.read(self._db, distribution_rules)

    def ignore_rules(self, distribution_rules: str | None) -> None:
        """Ignore the rules: validation rows always go to the segments of the training rows."""

    def distribution_keys(self, segments: int, rules: Rules) -> list[int] | None:
        return places.keys(self._db, segments, rules.contents)

    def rows(self, job: Job, columns: Sequence[Column], seen: Faults, parts: PartsRead | None) -> PackedRows:
        from cerebro_plpy.cluster.rows.pack import RowsOnSegments

        return RowsOnSegments(self._db, job, columns, seen, parts)

    def check_lies_as_packed(self, table: Table, what: str) -> None:
        if not places.lies_as_packed(self._db, table):
            raise CerebroError(
                f"{what} {table.quoted} does not lie on the segments as packed tables do",
                detail="They are heap tables that are distributed by __dist_key__;"
                " this may be a copy of one.",
                hint="Copy it, with its summary beside it: CREATE TABLE … USING heap"
                f" AS SELECT * FROM {table.quoted} DISTRIBUTED BY (__dist_key__)",
                sqlstate=WRONG_OBJECT,
            )

    def host_facts(self) -> Mapping[str, Mapping[str, Any]]:
        return places.hosts(self._db)

    def segment_hosts(self, summary: PackedSummary) -> Sequence[str]:
        known = {primary.content: primary.host for primary in places.cluster(self._db, facts=False)}
        return [known[content] for content in places.contents(self._db, summary.keys)]

    def seats(self, summary: PackedSummary, alone: bool) -> Sequence[Place] | None:
        known = {primary.content: primary for primary in places.cluster(self._db)}
        return [known[content] for content in places.contents(self._db, summary.keys)]

    def predictor(self, use_gpus: bool) -> Predictor:
        from cerebro_plpy.cluster.rows.predict import PredictorOnSegments

        return PredictorOnSegments(self._db, use_gpus)

    def check_call(self, name: str) -> None:
        """Do nothing: `doors` refuses calls in the processes of segments."""

    def check_predicts_in_queries(self) -> None:
        gangs.refuse_predicting()

    def find_absence_hint(self) -> str | None:
        return None

    @property
    def may_signal(self) -> bool:
        # The signal handler would run inside hooks that the server calls (store/cluster/uncancelled.py).
        return False

    @property
    def shares_frozen(self) -> bool:
        # A process writes only at its own segment's server, so each server would need the frozen weights.
        return False

    @property
    def hands_rows(self) -> bool:
        return False

    @property
    def makes_tables_first(self) -> bool:
        # Early versions of Greenplum 7 may lose the catalog rows of a table that a function has made, as long
        # as its transaction goes on (docs/greenplum.md, "A fault of early versions").
        return False

    def carry_out(self, sent: Sent) -> Mapping[str, Any]:
        from cerebro_plpy.cluster import coordinator

        return coordinator.carry_out(self._db, sent)

    def lacks(self) -> Sequence[str] | None:
        return before_statement.lacks()

    def refused_logins(self, topology: Topology) -> Sequence[tuple[int, int]] | None:
        from cerebro_plpy.commands import TryLogins

        return topology.command(TryLogins())["refused"]


def threads_on(hosts: Sequence[places.Processors], segments: int, at_a_time: int | None) -> int:
    """Return the threads per segment with which no host has more threads at work than cores.

    Segments of a run are dealt evenly to hosts; `at_a_time` is how many of them work at once, if limited.
    """
    total = sum(host.segments for host in hosts)
    busy = [min(-(-segments * host.segments // total), at_a_time or segments) for host in hosts]
    return max(1, min(host.cores // number for host, number in zip(hosts, busy, strict=True)))
