"""The interface `Server` to the operations that differ between PostgreSQL, Citus and Greenplum.

`postgresql.py`, `citus/server.py` and `cluster/server.py` implement it. `backend.py` chooses one of them, and
all other code uses `Database.server` without asking which server it is.
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
        """The class of topology for a run with segment sessions."""
        ...

    def places_for_work(self) -> int:
        """Return how many segments can work at the same time on this server."""
        ...

    def usual_threads(self, segments: int, at_a_time: int | None) -> int:
        """Return how many threads a segment of a run gets, if at most `at_a_time` segments work at once."""
        ...

    def rules(self, distribution_rules: str | None) -> Rules:
        """Return the segments to which rows are dealt, as the argument distribution_rules says."""
        ...

    def ignore_rules(self, distribution_rules: str | None) -> None:
        """Send a notice that distribution_rules is ignored, if the caller might not expect it."""
        ...

    def distribution_keys(self, segments: int, rules: Rules) -> list[int] | None:
        """Return the distribution key of each segment's rows; None if the server distributes no rows."""
        ...

    def rows(self, job: Job, columns: Sequence[Column], seen: Faults, parts: PartsRead | None) -> PackedRows:
        """Return an object that reads, sorts and deals the rows of a packing job."""
        ...

    def check_lies_as_packed(self, table: Table, what: str) -> None:
        """Raise an error if a table's rows are not where segments look for the rows of packed tables."""
        ...

    def host_facts(self) -> Mapping[str, Mapping[str, Any]]:
        """Return facts about each host of the server, such as its cores and GPUs, by name."""
        ...

    def segment_hosts(self, summary: PackedSummary) -> Sequence[str]:
        """Return the host of each segment of a packed table, in segment order."""
        ...

    def seats(self, summary: PackedSummary, alone: bool) -> Sequence[Place] | None:
        """Return the host and GPUs of each of a packed table's segments; None if the server knows of no GPUs.

        If `alone`, one session does the work of all segments.
        """
        ...

    def predictor(self, use_gpus: bool) -> Predictor:
        """Return an object that predicts the rows of a table."""
        ...

    def check_call(self, name: str) -> None:
        """Raise an error if the call cannot be carried out on this node of a cluster."""
        ...

    def check_predicts_in_queries(self) -> None:
        """Raise an error if this server cannot predict inside a query."""
        ...

    @property
    def may_signal(self) -> bool:
        """Whether a signal handler may look for a cancel while a session works."""
        ...

    def find_absence_hint(self) -> str | None:
        """Return a hint for a query whose model is not on this node of a cluster, or None."""
        ...

    @property
    def shares_frozen(self) -> bool:
        """Whether frozen weights are stored once for all states of a run, and not within each state."""
        ...

    @property
    def hands_rows(self) -> bool:
        """Whether the caller's session can pass rows in a file to sessions that do not see its tables."""
        ...

    @property
    def makes_tables_first(self) -> bool:
        """Whether a run creates its result tables before it trains, so that no one else takes their names."""
        ...

    def carry_out(self, sent: Sent) -> Mapping[str, Any]:
        """Carry out a command that needs more than tables, such as an engine; return its answer."""
        ...

    def lacks(self) -> Sequence[str] | None:
        """Return what the checks of a session need and this Greenplum server lacks; None on other servers."""
        ...

    def refused_logins(self, topology: Topology) -> Sequence[tuple[int, int]] | None:
        """Return pairs of segments: a server that refuses logins, and a process that it refuses.

        Return None if segments have no servers of their own.
        """
        ...
