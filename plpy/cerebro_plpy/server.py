"""The interface to what PostgreSQL, Citus and Greenplum each do in their own way.

`backend` chooses once, and a `Database` says what was chosen: nobody else asks which server this is.
`postgresql.py` answers for PostgreSQL, `citus/server.py` for Citus, `cluster/server.py` for Greenplum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

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


class Server(Protocol):
    @property
    def segment_sessions(self) -> type[LocalTopology]:
        """The topology of a run that has segment sessions."""
        ...

    def places_for_work(self) -> int:
        """Return how many segments can be at work at the same time."""
        ...

    def usual_threads(self, segments: int, at_a_time: int | None) -> int:
        """Return the threads that each of a run's segments may have, where so many configs train at once."""
        ...

    def rules(self, distribution_rules: str | None) -> Rules:
        """Return the segments of the server that rows are to be dealt to."""
        ...

    def ignore_rules(self, distribution_rules: str | None) -> None:
        """Tell the caller that rules do not count, if a call with rules might expect them to."""
        ...

    def distribution_keys(self, segments: int, rules: Rules) -> list[int] | None:
        """Return the keys by which the rows of each segment are distributed; None if nothing is."""
        ...

    def rows(self, job: Job, columns: Sequence[Column], seen: Faults, parts: PartsRead | None) -> PackedRows:
        """Return an object that reads, sorts and deals the rows that are to be packed."""
        ...

    def check_lies_as_packed(self, table: Table, what: str) -> None:
        """Refuse a table whose rows are not where segments look for those of a packed one."""
        ...

    def host_facts(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the facts of each host of the server."""
        ...

    def segment_hosts(self, summary: PackedSummary) -> Sequence[str]:
        """Return the host of each segment of a packed table."""
        ...

    def seats(self, summary: PackedSummary, alone: bool) -> Sequence[Place] | None:
        """Return the places of a packed table's segments, with their GPUs; None if only the engine knows of
        any. A session that is `alone` plays all segments."""
        ...

    def predictor(self, use_gpus: bool) -> Predictor:
        """Return a predictor of a table's rows."""
        ...

    def check_predicts_in_queries(self) -> None:
        """Refuse to predict inside a query if this server cannot."""
        ...

    @property
    def may_signal(self) -> bool:
        """Whether a signal may look for a cancel while a session works."""
        ...

    def find_absence_hint(self) -> str | None:
        """Return what to do if a query finds no model here, where that is not what the error says."""
        ...

    @property
    def shares_frozen(self) -> bool:
        """Whether what is frozen stands once for all states of a run; else each state is whole."""
        ...

    @property
    def hands_rows(self) -> bool:
        """Whether a session can hand rows to segment sessions that do not see its tables."""
        ...

    @property
    def makes_tables_first(self) -> bool:
        """Whether a run makes its tables before it trains, so that nobody else takes their names."""
        ...

    def carry_out(self, sent: Sent) -> Mapping[str, Any]:
        """Carry out a command that takes more than the tables."""
        ...

    def lacks(self) -> Sequence[str] | None:
        """Return what a cluster's server lacks of what its sessions are checked by; None on PostgreSQL."""
        ...

    def refused_logins(self, topology: Topology) -> Sequence[tuple[int, int]] | None:
        """Return which segments' servers refuse which others' processes; None if segments have no servers."""
        ...
