"""Implements `server.Server` for PostgreSQL, where segments are sessions of one server."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cerebro_plpy.database import Database

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


class PostgreSQL:
    def __init__(self, db: Database) -> None:
        self._db = db

    @property
    def segment_sessions(self) -> type[LocalTopology]:
        from cerebro_plpy.topology.local import LocalTopology

        return LocalTopology

    def places_for_work(self) -> int:
        return len(os.sched_getaffinity(0))

    def usual_threads(self, segments: int, at_a_time: int | None) -> int:
        return max(1, self.places_for_work() // min(segments, at_a_time or segments))

    def rules(self, distribution_rules: str | None) -> Rules:
        from cerebro_plpy.packing.job import Rules

        self.ignore_rules(distribution_rules)
        return Rules()

    def ignore_rules(self, distribution_rules: str | None) -> None:
        from cerebro_plpy.packing.job import ALL_SEGMENTS

        if distribution_rules not in (None, ALL_SEGMENTS):
            self._db.notice(
                f"distribution_rules {distribution_rules} is ignored on PostgreSQL:"
                " rows are dealt to all segments"
            )

    def distribution_keys(self, segments: int, rules: Rules) -> list[int] | None:
        return None

    def rows(self, job: Job, columns: Sequence[Column], seen: Faults, parts: PartsRead | None) -> PackedRows:
        from cerebro_plpy.packing.pack import RowsHere

        return RowsHere(self._db, job, columns, seen, parts)

    def check_lies_as_packed(self, table: Table, what: str) -> None:
        """Do nothing: on one server, rows cannot be in a wrong place."""

    def host_facts(self) -> Mapping[str, Mapping[str, Any]]:
        from cerebro_plpy.planner.gpus import HERE
        from cerebro_plpy.store import session

        return {HERE: session.host_facts(self._db)}

    def segment_hosts(self, summary: PackedSummary) -> Sequence[str]:
        from cerebro_plpy.planner.gpus import HERE

        return [HERE] * summary.segments

    def seats(self, summary: PackedSummary, alone: bool) -> Sequence[Place] | None:
        from cerebro_plpy.planner.gpus import HERE, Seat
        from cerebro_plpy.store import session

        found: Sequence[Mapping[str, Any]] = session.host_facts(self._db)["devices"]
        segments = 1 if alone else summary.segments
        return [Seat(HERE, n, n, segments, found) for n in range(segments)] if found else None

    def predictor(self, use_gpus: bool) -> Predictor:
        from cerebro_plpy.predicting.answering.rows import PredictorHere

        return PredictorHere(self._db, use_gpus)

    def check_call(self, name: str) -> None:
        """Do nothing: one server carries out all calls."""

    def check_predicts_in_queries(self) -> None:
        """Do nothing: on PostgreSQL a query can always predict."""

    def find_absence_hint(self) -> str | None:
        return None

    @property
    def may_signal(self) -> bool:
        return True

    @property
    def shares_frozen(self) -> bool:
        return True

    @property
    def hands_rows(self) -> bool:
        from cerebro_plpy.store.runs.handed import can_hand

        return can_hand()

    @property
    def makes_tables_first(self) -> bool:
        return True

    def carry_out(self, sent: Sent) -> Mapping[str, Any]:
        from cerebro_plpy.segment import handlers
        from cerebro_plpy.segment.supply import TableSupply

        return handlers.work(TableSupply(self._db), sent, self._db.notice)

    def lacks(self) -> Sequence[str] | None:
        return None

    def refused_logins(self, topology: Topology) -> Sequence[tuple[int, int]] | None:
        return None
