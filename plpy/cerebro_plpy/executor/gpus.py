"""GPUs: those of each host as a table, and those that a run's segments are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cerebro_plpy.database import Database
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.executor import request as requests
from cerebro_plpy.planner import gpus
from cerebro_plpy.store import places, results, session
from cerebro_plpy.store.dialect import is_greenplum
from cerebro_plpy.store.names import target_table
from cerebro_plpy.store.packed import PackedSummary

# Both tell what the driver lists, each in the words that MADlib has for it.
_DESCRIBED = {
    "tensorflow": "device: {index}, name: {name}, pci bus id: {bus}",
    "nvidia": "GPU {index}: {name} (UUID: {id})",
}


def write_configuration(db: Database, table: str | None, source: str | None, search_path: str) -> None:
    """Make a table of the GPUs of the hosts that have any."""
    requests.check_writable(db)
    described = _DESCRIBED.get((source or "tensorflow").strip().lower())
    if described is None:
        raise CerebroError(
            f"source has to be one of tensorflow or nvidia, not {source}",
            hint="Leave it out: both list the same GPUs.",
        )
    target = target_table(db, table, search_path)
    found = places.hosts(db) if is_greenplum(db) else {gpus.HERE: session.host_facts(db)}
    rows = [
        (host, described.format(**gpu)) for host, facts in sorted(found.items()) for gpu in facts["devices"]
    ]
    results.create_gpu_configuration(db, target, rows)


def of_segments(
    db: Database, use_gpus: bool, packed: PackedSummary, alone: bool
) -> bool | tuple[gpus.Share, ...]:
    """What each segment of a run has; true where only the engine can know whether there is a GPU.

    On PostgreSQL a session that is `alone` plays all segments.
    """
    if not use_gpus:
        return False
    seats = _on_cluster(db, packed.keys) if is_greenplum(db) else _here(db, 1 if alone else packed.segments)
    if seats is None:
        return True
    shares = gpus.deal(seats)
    for line in gpus.crowded(seats):
        db.warning(line)
    return shares


def _on_cluster(db: Database, keys: Sequence[int]) -> Sequence[gpus.Place]:
    known = {primary.content: primary for primary in places.cluster(db)}
    return [known[content] for content in places.contents(db, keys)]


def _here(db: Database, segments: int) -> Sequence[gpus.Place] | None:
    found: Sequence[Mapping[str, Any]] = session.host_facts(db)["devices"]
    return [gpus.Seat(gpus.HERE, n, n, segments, found) for n in range(segments)] if found else None
