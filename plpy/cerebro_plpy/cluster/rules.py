"""The argument distribution_rules: to which segments of a Greenplum cluster rows are dealt."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_plpy.database import Database
from cerebro_plpy.errors import UNDEFINED_COLUMN, WRONG_STATE, CerebroError
from cerebro_plpy.packing.job import ALL_SEGMENTS, Rules
from cerebro_plpy.store import names
from cerebro_plpy.store.cluster import places

_GPUS = "gpu_segments"


def read(db: Database, text: str | None) -> Rules:
    """Return the segments that distribution_rules names: all_segments, gpu_segments, or a table of dbids."""
    if text is None or text.strip().lower() == ALL_SEGMENTS:
        return Rules()
    if text.strip().lower() == _GPUS:
        return _rules(db, _with_gpus(db))
    table = names.resolve_table(db, text, "table of distribution_rules")
    if names.find_missing_columns(db, table, ["dbid"]):
        raise CerebroError(
            f"{table.quoted} has no column dbid",
            hint="distribution_rules is 'all_segments', 'gpu_segments', or the name of a table with a column"
            " dbid, as in gp_segment_configuration.",
            sqlstate=UNDEFINED_COLUMN,
        )
    return _rules(db, _chosen(db, table))


def _with_gpus(db: Database) -> list[places.Primary]:
    found = [primary for primary in places.cluster(db) if primary.gpus]
    if not found:
        raise CerebroError(
            "no GPUs are configured on hosts",
            hint="cerebro.segments_ready() shows what each segment has.",
            sqlstate=WRONG_STATE,
        )
    return found


def _chosen(db: Database, table: names.Table) -> list[places.Primary]:
    dbids = places.dbids(db, table)
    known = {primary.dbid: primary for primary in places.cluster(db, facts=False)}
    if len(set(dbids)) < len(dbids):
        raise CerebroError(f"{table.quoted} names a dbid more than once")
    unknown = [dbid for dbid in dbids if dbid not in known]
    if unknown or not dbids:
        what = f"dbid {unknown[0]}, which is no primary segment's" if unknown else "no dbid at all"
        raise CerebroError(
            f"{table.quoted} names {what}",
            hint="gp_segment_configuration has them: those whose content is 0 or more and whose role is p.",
        )
    return [known[dbid] for dbid in dbids]


def _rules(db: Database, chosen: Sequence[places.Primary]) -> Rules:
    ordered = sorted(chosen, key=lambda primary: primary.content)
    contents = [primary.content for primary in ordered]
    return Rules(contents, _listed([primary.dbid for primary in ordered]), _listed(contents))


def _listed(numbers: Sequence[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"
