"""SQL that reaches single segments of a Greenplum cluster."""

from __future__ import annotations

from collections.abc import Sequence

from cerebro_plpy.database import Database
from cerebro_plpy.store.names import quote
from cerebro_plpy.store.packed import BUFFER, KEY, SHAPE
from cerebro_plpy.store.partitions import Columns


def primaries(db: Database) -> int:
    """How many segments the cluster has."""
    rows = db.query(
        "SELECT count(*) AS number FROM pg_catalog.gp_segment_configuration WHERE content >= 0 AND role = 'p'"
    )
    return rows[0]["number"]


def keys(db: Database, segments: int, contents: Sequence[int] | None = None) -> list[int]:
    """A distribution key for each of so many segments, dealt to the cluster's in turn, or to some of them."""
    rows = db.as_owner(
        lambda: db.query(
            "SELECT k.dist_key FROM (SELECT dist_key, gp_segment_id AS content, row_number() OVER"
            "   (PARTITION BY gp_segment_id ORDER BY dist_key) AS turn FROM cerebro._segment_key) AS k"
            " WHERE $2::integer[] IS NULL OR k.content = ANY ($2) ORDER BY k.turn, k.content LIMIT $1",
            ["integer", "integer[]"],
            [segments, None if contents is None else list(contents)],
        )
    )
    return [row["dist_key"] for row in rows]


def send(db: Database, key: int, command: str, parcel: bytes) -> bytes:
    """Have the process of this session that stands beside a key's rows do something."""
    return db.query(
        # The key is written out: a statement with a parameter in its place may go to every segment.
        f"SELECT cerebro._on_segment($1, $2) AS answer FROM cerebro._segment_key WHERE dist_key = {int(key)}",
        ["text", "bytea"],
        [command, parcel],
    )[0]["answer"]


def send_buffers(db: Database, table: str, key: int, columns: Columns, ticket: str) -> None:
    """Hand a partition's buffers to the process beside them; only numbers come here."""
    names = [*columns.independent, *columns.dependent]
    shapes = ", ".join(f"array_to_json({quote(name + SHAPE)})" for name in names)
    db.query(
        f"SELECT cerebro._take_buffer($1, {quote(BUFFER)}, '[' || concat_ws(',', {shapes}) || ']',"
        f" ARRAY[{', '.join(quote(name) for name in names)}]) FROM {table} WHERE {KEY} = {int(key)}",
        ["text"],
        [ticket],
    )
