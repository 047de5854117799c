"""List the GPUs of each host in a table, and distribute the GPUs among the segments of a run."""

from __future__ import annotations

from cerebro_plpy.database import Database
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.planner import gpus
from cerebro_plpy.store.names import target_table
from cerebro_plpy.store.packed.packed import PackedSummary
from cerebro_plpy.store.runs import results

# Both describe the GPUs that the driver lists, in the two formats of MADlib.
_DESCRIBED = {
    "tensorflow": "device: {index}, name: {name}, pci bus id: {bus}",
    "nvidia": "GPU {index}: {name} (UUID: {id})",
}


def write_configuration(db: Database, table: str | None, source: str | None) -> None:
    """Create a table with a row for each GPU of each host."""
    described = _DESCRIBED.get((source or "tensorflow").strip().lower())
    if described is None:
        raise CerebroError(
            f"source has to be one of tensorflow or nvidia, not {source}",
            hint="Leave it out: both list the same GPUs.",
        )
    target = target_table(db, table)
    found = db.server.host_facts()
    rows = [
        (host, described.format(**gpu)) for host, facts in sorted(found.items()) for gpu in facts["devices"]
    ]
    results.create_gpu_configuration(db, target, rows)


def of_segments(
    db: Database, use_gpus: bool, packed: PackedSummary, alone: bool
) -> bool | tuple[gpus.GpuShare, ...]:
    """Return for each segment its share of a GPU; False without GPUs.

    Return True if only the engine can find out whether there is a GPU. `alone` says that one session does
    the work of all segments.
    """
    if not use_gpus:
        return False
    seats = db.server.seats(packed, alone)
    if seats is None:
        return True
    shares = gpus.deal(seats)
    for line in gpus.crowded(seats):
        db.warning(line)
    return shares
