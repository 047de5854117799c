"""Implements `server.Server` for Citus, where a segment's session is on the worker that has its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cerebro_plpy.errors import NOT_SUPPORTED, WRONG_OBJECT, CerebroError
from cerebro_plpy.postgresql import PostgreSQL
from cerebro_plpy.store import citus

if TYPE_CHECKING:
    from cerebro_plpy.commands import Sent
    from cerebro_plpy.packing.job import Rules
    from cerebro_plpy.planner.gpus import Place
    from cerebro_plpy.store.names import Table
    from cerebro_plpy.store.packed.packed import PackedSummary
    from cerebro_plpy.topology.local import LocalTopology

# The calls that queries make on workers, and those that only look at the server.
_ON_ALL_NODES = (
    "predict_query",
    "explain_predict",
    "_related_statement",
    "_visible_rows",
    "version",
    "diagnose",
)


class Citus(PostgreSQL):
    @property
    def segment_sessions(self) -> type[LocalTopology]:
        from cerebro_plpy.citus.sessions import CitusTopology

        return CitusTopology

    def places_for_work(self) -> int:
        hosts = {facts["host"]: facts["cores"] for facts in citus.facts(self._db).values()}
        return max(len(citus.workers(self._db)), sum(hosts.values()))

    def distribution_keys(self, segments: int, rules: Rules) -> list[int] | None:
        return citus.keys(self._db, segments)

    def check_lies_as_packed(self, table: Table, what: str) -> None:
        if not citus.lies_as_packed(self._db, table):
            raise CerebroError(
                f"{what} {table.quoted} does not lie on the workers as packed tables do",
                detail="It was packed before cerebro.distribute(), or is a copy.",
                hint="Pack the rows again.",
                sqlstate=WRONG_OBJECT,
            )

    def segment_hosts(self, summary: PackedSummary) -> Sequence[str]:
        known = citus.facts(self._db)
        return [known[one.host, one.port]["host"] for one in citus.nodes_of(self._db, summary.keys)]

    def host_facts(self) -> Mapping[str, Mapping[str, Any]]:
        return {facts["host"]: facts for facts in citus.facts(self._db).values()}

    def seats(self, summary: PackedSummary, alone: bool) -> Sequence[Place] | None:
        return None

    def check_call(self, name: str) -> None:
        if name not in _ON_ALL_NODES and not citus.is_coordinator(self._db):
            raise CerebroError(
                "this is a worker",
                detail=f"Runs and models are on the coordinator; {name} knows nothing of them here.",
                hint="Connect to the coordinator.",
                sqlstate=NOT_SUPPORTED,
            )

    def check_predicts_in_queries(self) -> None:
        citus.let_worker_read(self._db)

    def find_absence_hint(self) -> str | None:
        if citus.is_coordinator(self._db):
            return None
        return (
            "The query has sent this row's call to a worker, and the model is on the coordinator. Use"
            " cerebro.predict_query, or hold the rows back: FROM (SELECT * FROM customers OFFSET 0) AS c,"
            " cerebro.predict('model', c). docs/citus.md says how workers predict."
        )

    def carry_out(self, sent: Sent) -> Mapping[str, Any]:
        from cerebro_plpy.citus.supply import CitusSupply
        from cerebro_plpy.commands import Reach
        from cerebro_plpy.segment import handlers

        if isinstance(sent.command, Reach):
            citus.reach(self._db)
            return {}
        return handlers.work(CitusSupply(self._db), sent, self._db.notice)

    @property
    def shares_frozen(self) -> bool:
        # Each worker would have to read the frozen weights from the coordinator.
        return False

    @property
    def hands_rows(self) -> bool:
        return False
