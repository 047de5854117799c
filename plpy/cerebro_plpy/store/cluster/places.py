"""SQL that finds the segments of a Greenplum cluster, and that sends work and rows to a segment's process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from cerebro_plpy import memory
from cerebro_plpy.database import Database, as_owner, kept_for_call
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.store.cluster import messages
from cerebro_plpy.store.dialect import HEAP
from cerebro_plpy.store.models.predictions import PredictionOutput as PredictionTable
from cerebro_plpy.store.names import Table, quote
from cerebro_plpy.store.packed.packed import BUFFER, FOLD, GROUPS, KEY, SHAPE, Expression, PackedOutput
from cerebro_plpy.store.packed.partitions import Columns


@kept_for_call
def primaries(db: Database) -> int:
    """Return the number of segments in the cluster."""
    rows = db.query(
        "SELECT count(*) AS number FROM pg_catalog.gp_segment_configuration WHERE content >= 0 AND role = 'p'"
    )
    return rows[0]["number"]


@dataclass(frozen=True)
class Primary:
    """A segment of the cluster, and the GPUs that its server may use. Its host has `peers` segments, numbered
    from 0: this one has the number `place`."""

    dbid: int
    content: int
    host: str
    place: int
    peers: int
    gpus: Sequence[Mapping[str, Any]]


def cluster(db: Database, facts: bool = True) -> list[Primary]:
    """Return the segments of the cluster; without `facts`, GPUs are not looked up, and the lists of them are
    empty."""
    # Each segment looks for GPUs itself, since its server decides which GPUs its processes see.
    found = _facts(db) if facts else {}
    rows = db.query(
        "SELECT dbid::integer AS dbid, content::integer AS content, hostname AS host,"
        " (row_number() OVER (PARTITION BY hostname ORDER BY content) - 1)::integer AS place,"
        " (count(*) OVER (PARTITION BY hostname))::integer AS peers"
        " FROM pg_catalog.gp_segment_configuration WHERE content >= 0 AND role = 'p' ORDER BY content"
    )
    return [
        Primary(
            dbid=row["dbid"],
            content=row["content"],
            host=row["host"],
            place=row["place"],
            peers=row["peers"],
            gpus=found.get(row["content"], {}).get("devices", []),
        )
        for row in rows
    ]


@dataclass(frozen=True)
class Processors:
    """The number of a host's cores, and the number of segments on the host."""

    cores: int
    segments: int


class _Cores(dict[str, int]):
    """The number of cores of each host that has segments, which a session looks up only once."""


def processors(db: Database) -> list[Processors]:
    """Return the number of cores and of segments of each host that has segments. No segment is asked if all
    are on the coordinator's host."""
    rows = db.query(
        "SELECT hostname AS host, (count(*) FILTER (WHERE content >= 0))::integer AS segments,"
        " bool_or(content < 0) AS own FROM pg_catalog.gp_segment_configuration WHERE role = 'p'"
        " GROUP BY hostname ORDER BY hostname"
    )
    known = memory.get_instance(_Cores)
    others = [row["host"] for row in rows if not row["own"]]
    if not known:
        known.update({row["host"]: len(os.sched_getaffinity(0)) for row in rows if row["own"]})
    if not known.keys() >= set(others):
        known.update({host: facts["cores"] for host, facts in hosts(db).items()})
    return [Processors(known[row["host"]], row["segments"]) for row in rows if row["segments"]]


def lies_as_packed(db: Database, table: Table) -> bool:
    """Return whether a table is stored as packed tables are, as a heap distributed by its column of keys, so
    that each segment's process finds its rows there."""
    return bool(
        db.query(
            "SELECT FROM pg_catalog.pg_class AS c JOIN gp_distribution_policy AS p ON p.localoid = c.oid"
            " JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attname = $2"
            " LEFT JOIN pg_catalog.pg_am AS m ON m.oid = c.relam WHERE c.oid = $1 AND p.policytype = 'p'"
            " AND p.distkey::text = a.attnum::text AND coalesce(m.amname, 'heap') = 'heap'",
            ["oid", "name"],
            [table.oid, KEY],
        )
    )


def hosts(db: Database) -> dict[str, dict[str, Any]]:
    """Return the facts of each host that has segments, such as its cores and GPUs; one segment of each host
    finds them."""
    rows = db.query(
        "SELECT hostname AS host, min(content)::integer AS content FROM pg_catalog.gp_segment_configuration"
        " WHERE content >= 0 AND role = 'p' GROUP BY hostname ORDER BY hostname"
    )
    found = _facts(db, [row["content"] for row in rows])
    return {row["host"]: found[row["content"]] for row in rows}


def _facts(db: Database, contents: Sequence[int] | None = None) -> dict[int, dict[str, Any]]:
    rows = db.query(
        "SELECT gp_segment_id AS content, cerebro._host_facts() AS facts"
        " FROM gp_dist_random('pg_catalog.gp_id') WHERE $1::integer[] IS NULL OR gp_segment_id = ANY ($1)",
        ["integer[]"],
        [None if contents is None else list(contents)],
    )
    return {row["content"]: json.loads(row["facts"]) for row in rows}


@as_owner
def contents(db: Database, keys: Sequence[int]) -> list[int]:
    """Return, for each distribution key, the number (content) of the cluster's segment that has its rows."""
    rows = db.query(
        "SELECT dist_key, gp_segment_id AS content FROM cerebro._segment_key WHERE dist_key = ANY ($1)",
        ["integer[]"],
        [list(keys)],
    )
    found = {row["dist_key"]: row["content"] for row in rows}
    return [found[key] for key in keys]


@dataclass(frozen=True)
class Address:
    """The address of a segment's primary server; `named_alone` if no other server has its host name and
    port."""

    host: str
    address: str
    port: int
    named_alone: bool = True


def servers(db: Database, keys: Sequence[int]) -> list[Address]:
    """Return, for each distribution key, the address of the segment's server that has its rows."""
    rows = db.query(
        "SELECT content::integer AS content, hostname AS host, address, port,"
        " count(*) OVER (PARTITION BY hostname, port) = 1 AS named_alone"
        " FROM pg_catalog.gp_segment_configuration WHERE content >= 0 AND role = 'p'"
    )
    found = {
        row["content"]: Address(row["host"], row["address"], row["port"], row["named_alone"]) for row in rows
    }
    return [found[content] for content in contents(db, keys)]


def dbids(db: Database, table: Table) -> list[int]:
    """Return the numbers of servers (dbid) that a user's table of distribution rules lists."""
    return [row["dbid"] for row in db.query(f"SELECT dbid::integer AS dbid FROM {table.quoted} ORDER BY 1")]


def reach(db: Database) -> int:
    """Return the number of the cluster's segments, each of which must answer; raise an error if one is
    down."""
    return db.query("SELECT count(*) AS number FROM gp_dist_random('pg_catalog.gp_id')")[0]["number"]


def keys(db: Database, segments: int, contents: Sequence[int] | None = None) -> list[int]:
    """Return a distribution key for each of `segments` segments of a packed table; the keys take turns over
    the cluster's segments, or over those in `contents`."""
    return list(_keys(db, segments, None if contents is None else tuple(contents)))


@kept_for_call
@as_owner
def _keys(db: Database, segments: int, contents: tuple[int, ...] | None) -> Sequence[int]:
    rows = db.query(
        "SELECT k.dist_key FROM (SELECT dist_key, gp_segment_id AS content, row_number() OVER"
        "   (PARTITION BY gp_segment_id ORDER BY dist_key) AS turn FROM cerebro._segment_key) AS k"
        " WHERE $2::integer[] IS NULL OR k.content = ANY ($2) ORDER BY k.turn, k.content LIMIT $1",
        ["integer", "integer[]"],
        [segments, None if contents is None else list(contents)],
    )
    return [row["dist_key"] for row in rows]


@as_owner
def exchange(
    db: Database, key: int, command: str, head: Mapping[str, Any], parts: Sequence[bytes]
) -> tuple[dict[str, Any], list[memoryview]]:
    """Send a command to this session's process on the segment that has the rows of `key`; return its
    answer."""
    *before, last = messages.pack(head, parts)
    for piece in before:
        _send(db, key, messages.MORE, piece)
    return _opened(_all_pieces(db, key, _send(db, key, command, last)))


@as_owner
def exchange_all(
    db: Database, command: str, head: Mapping[str, Any], parts: Sequence[bytes]
) -> list[tuple[dict[str, Any], list[memoryview]]]:
    """Send a command to this session's processes on all segments; return the answers in the segments'
    order."""
    piece = b"".join(messages.pack(head, parts))
    own = keys(db, primaries(db))
    rows = db.query(
        "SELECT gp_segment_id AS content, cerebro._on_segment($1, $2) AS answer"
        " FROM gp_dist_random('pg_catalog.gp_id')",
        ["text", "bytea"],
        [command, piece],
    )
    first = [row["answer"] for row in sorted(rows, key=itemgetter("content"))]
    return [_opened(_all_pieces(db, key, answer)) for key, answer in zip(own, first, strict=True)]


def _send(db: Database, key: int, command: str, piece: bytes) -> bytes:
    return db.query(
        # The key is written out: a statement with a parameter in its place may go to every segment.
        f"SELECT cerebro._on_segment($1, $2) AS answer FROM cerebro._segment_key WHERE dist_key = {int(key)}",
        ["text", "bytea"],
        [command, piece],
    )[0]["answer"]


def _all_pieces(db: Database, key: int, first: bytes) -> list[bytes]:
    pieces = [first]
    while not messages.is_whole(pieces):
        pieces.append(_send(db, key, messages.REST, b""))
    return pieces


def _opened(pieces: Sequence[bytes]) -> tuple[dict[str, Any], list[memoryview]]:
    """Return the head and the parts of an answer, given its pieces; if the answer is an error, raise it
    here."""
    head, parts = messages.unpack(pieces)
    if "error" in head:
        error = dict(head["error"])
        raise CerebroError(error.pop("message"), **error)
    return head, parts


def send_buffers(db: Database, table: str, key: int, columns: Columns, ticket: str) -> None:
    """Pass a partition's buffers to this session's process on the segment that has them, so that they do not
    leave the segment; `ticket` names the job that they are for."""
    names = [*columns.independent, *columns.dependent]
    shapes = ", ".join(f"array_to_json({quote(name + SHAPE)})" for name in names)
    db.query(
        f"SELECT cerebro._take_buffer($1, {quote(BUFFER)}, '[' || concat_ws(',', {shapes}) || ']',"
        f" ARRAY[{', '.join(quote(name) for name in names)}]) FROM {table} WHERE {KEY} = {int(key)}"
        f"{columns.bound}",
        ["text"],
        [ticket],
    )


def is_spread(db: Database, table: Table) -> bool:
    """Return whether a table is distributed over the segments, so that each segment scans its own rows."""
    return bool(
        db.query(
            "SELECT FROM pg_catalog.gp_distribution_policy WHERE localoid = $1 AND policytype = 'p'",
            ["oid"],
            [table.oid],
        )
    )


_STAGE, _PIECES, _SENT = "_cerebro_rows", "_cerebro_pieces", "_cerebro_sent"


def stage(db: Database, statement: str) -> str:
    """Store the rows of the query `statement` in a temporary table on all segments; return the statement that
    reads this table."""
    _drop(db, _STAGE)
    db.query(f"CREATE TEMPORARY TABLE {_STAGE}{HEAP} AS {statement} DISTRIBUTED RANDOMLY")
    return f"SELECT * FROM pg_temp.{_STAGE}"


def drop_temporary(db: Database) -> None:
    """Drop the temporary tables that packing has made."""
    _drop(db, _STAGE, _PIECES, _SENT)


def _drop(db: Database, *tables: str) -> None:
    there = db.query(
        "SELECT t.name FROM pg_catalog.unnest($1) AS t (name)"
        " WHERE pg_catalog.to_regclass(t.name) IS NOT NULL",
        ["text[]"],
        [[f"pg_temp.{table}" for table in tables]],
    )
    if there:
        db.query(f"DROP TABLE {', '.join(row['name'] for row in there)}")


def _create_pieces(db: Database, table: str, how: str) -> str:
    """Create a temporary table for pieces of buffers, and return its name. Its columns are not compressed,
    since pieces are encoded already."""
    columns = "dist_key integer, buffer_id integer, places bytea, fields bytea[]"
    # At once: the segments are told of the beginning and the end of each statement of Python's.
    db.query(
        f"CREATE TEMPORARY TABLE {table} ({columns}){HEAP} DISTRIBUTED {how};"
        f"ALTER TABLE pg_temp.{table} ALTER places SET STORAGE EXTERNAL, ALTER fields SET STORAGE EXTERNAL"
    )
    return f"pg_temp.{table}"


def hand_out_rows(db: Database, statement: str, expressions: Sequence[Expression], ticket: str) -> int:
    """Pass the rows of a statement to this session's processes on the segments that have them, for the job
    that `ticket` names; return how many rows were passed in all."""
    fields = ", ".join(
        f"convert_to(s.c{n}, 'UTF8')" if expression.is_text else f"s.c{n}"
        for n, expression in enumerate(expressions)
    )
    # The function is called where the scan is: an argument of the aggregate would be computed here if the
    # planner knows that there are few rows, and gathers them.
    return db.query(
        "SELECT COALESCE(sum(t.taken), 0)::bigint AS number"
        f" FROM (SELECT cerebro._take_row($1, ARRAY[{fields}]::bytea[]) AS taken"
        f" FROM ({statement}) AS s OFFSET 0) AS t",
        ["text"],
        [ticket],
    )[0]["number"]


def send_pieces(db: Database, ticket: str) -> None:
    """Have each segment's process write the pieces of buffers that it has made for the job `ticket`, and move
    each piece to the segment to which its buffer belongs."""
    _drop(db, _PIECES, _SENT)
    pieces = _create_pieces(db, _PIECES, "RANDOMLY")
    # The processes that hold the rows write these themselves: nothing moves.
    db.query(
        f"INSERT INTO {pieces} SELECT (s.piece).dist_key, (s.piece).buffer_id, (s.piece).places,"
        " (s.piece).fields FROM (SELECT cerebro._give_pieces($1) AS piece"
        " FROM gp_dist_random('pg_catalog.gp_id') OFFSET 0) AS s",
        ["text"],
        [ticket],
    )
    db.query(f"INSERT INTO {_create_pieces(db, _SENT, 'BY (dist_key)')} SELECT * FROM {pieces}")


def join_pieces(
    db: Database,
    output: PackedOutput,
    shapes: Sequence[Sequence[int]],
    widths: Sequence[int],
    parts: Sequence[int | list[list[int]] | None],
    buffers_before: int,
) -> None:
    """Join the pieces into buffers of the packed table, on the segments to which the buffers belong.

    If the rows are in folds or groups, `parts` has the fold or the groups of each new buffer. The new buffers
    are numbered from `buffers_before`.
    """
    columns = "".join(f", {quote(name)}, {quote(name + SHAPE)}" for name in output.columns)
    fields = "".join(
        f", s.fields[{n}], ARRAY[s.number{''.join(f', {int(size)}' for size in shape)}]"
        for n, shape in enumerate(shapes, 1)
    )
    column = part = ""
    if output.folded or output.grouped:
        column = f", {FOLD if output.folded else GROUPS}"
        kind = "integer" if output.folded else "integer[]"
        part = f", ($2[s.buffer_id + 1 - {int(buffers_before)}])::{kind}"
    db.query(
        f"INSERT INTO {output.table.quoted} ({KEY}{columns}, {BUFFER}{column})"
        f" SELECT s.dist_key{fields}, s.buffer_id{part} FROM (SELECT p.dist_key, p.buffer_id,"
        " (sum(octet_length(p.places)) / 4)::integer AS number,"
        " cerebro._join_pieces($1, array_agg(p.places), array_agg(p.fields)) AS fields"
        f" FROM pg_temp.{_SENT} AS p GROUP BY p.dist_key, p.buffer_id OFFSET 0) AS s",
        ["integer[]", *(["text[]"] if part else [])],
        [list(widths), *([[_as_text(one) for one in parts]] if part else [])],
    )


def _as_text(part: int | list[list[int]] | None) -> str | None:
    """Return a buffer's fold, or its array of groups, as text in the server's form; None if it has
    neither."""
    return None if part is None else str(part).replace("[", "{").replace("]", "}")


def write_predictions(db: Database, output: PredictionTable, ticket: str) -> None:
    """Have each segment's process insert the predictions that it has made for the job `ticket` into the table
    of predictions."""
    picked = {"prediction": "(s.p).prediction"}
    if output.prediction_type == "double precision":
        picked["prediction"] = "(s.p).prediction[1]"
    names = [name for name, _ in output.columns]
    fields = ", ".join(picked.get(name, f"(s.p).{name}") for name in names)
    db.query(
        f"INSERT INTO {output.table.quoted} ({', '.join([quote(output.id_name), *names])})"
        f" SELECT (s.p).id::{output.id_type}, {fields} FROM (SELECT cerebro._give_predictions($1) AS p"
        " FROM gp_dist_random('pg_catalog.gp_id') OFFSET 0) AS s",
        ["text"],
        [ticket],
    )
