"""SQL about a Citus cluster: whether the extension is distributed, the workers, and where rows lie."""

from __future__ import annotations

import ctypes
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cerebro_plpy import memory
from cerebro_plpy.database import Database, Row, as_owner, kept_for_call
from cerebro_plpy.errors import SEGMENT_GONE, CerebroError
from cerebro_plpy.store import sockets
from cerebro_plpy.store.names import Table, literal

_SERVER = ctypes.PyDLL(None)
# Citus is loaded with the server, or not at all.
_IS_LOADED = hasattr(_SERVER, "CitusHasBeenLoaded")
# The beginnings of SQLSTATEs that mean a lost node: connections fail, or a server is stopped or is starting.
_NODE_GONE = ("08", "57P0")
# The beginnings of messages that come without an SQLSTATE of their own: of libpq, of a session whose server
# was killed, and of one that had kept a connection.
_ENDED = (
    "server closed the connection unexpectedly",
    "SSL connection has been closed unexpectedly",
    "SSL SYSCALL error",
    "could not receive data from server",
    "could not send data to server",
    "postmaster was shut down",
    "failure on connection marked as essential",
)
_HINT = "Try again when all nodes answer, in a new session if need be. A run goes on with cerebro.resume."
# Packed tables are distributed like this one, so that states lie beside the rows that they were made of.
_LIKE = "cerebro._state"
# So many numbers for each segment, and so many more, are enough for each shard to have some of them.
_KEYS_FOR_EACH, _KEYS = 8, 1024
# The rows that the views of runs read, by the name that `_read_from_workers` has for them. The last digits
# of a sum of seconds depend on their order.
_VISIBLE = {
    "visits": "SELECT v.* FROM cerebro._visit AS v WHERE v.run_id = ANY ($1)"
    " ORDER BY v.run_id, v.mst_key, v.step",
    "evaluations": "SELECT e.run_id, e.mst_key, e.epoch, e.segment, e.seconds FROM cerebro._evaluation AS e"
    " WHERE e.run_id = ANY ($1) ORDER BY e.run_id, e.mst_key, e.epoch, e.segment, e.dataset",
    "states": "SELECT s.run_id, s.mst_key, s.step, sum(octet_length(s.data)) AS bytes"
    " FROM cerebro._state AS s WHERE s.run_id = ANY ($1) GROUP BY s.run_id, s.mst_key, s.step",
}


class _Distributed:
    """Whether the extension's tables are distributed; a session looks this up until it finds that they
    are."""

    known = False


def is_distributed(db: Database) -> bool:
    """Return whether the extension's tables are distributed over the workers of a Citus cluster."""
    if not _IS_LOADED:
        return False
    found = memory.get_instance(_Distributed)
    if not found.known and _is_laid_out(db):
        found.known = True
        _learn_ports(db)
    return found.known


@kept_for_call
def _is_laid_out(db: Database) -> bool:
    return is_installed(db) and _is_spread(db, _LIKE)


def refuse_without_nodes() -> None:
    """Raise an error if this transaction involves other nodes and one of them has ended its connection.

    Each statement of PL/Python begins a subtransaction, which Citus announces to these nodes. If one of them
    cannot be told, Citus' error jumps over Python's frames.
    """
    if not (_IS_LOADED and sockets.knows_ports()):
        return
    if not _has_remote_transactions():
        sockets.overlook_ended()
    elif sockets.has_ended_connection():
        raise CerebroError(
            "a node of the cluster has ended a connection of this session",
            hint=_HINT,
            sqlstate=SEGMENT_GONE,
        )


@functools.lru_cache(maxsize=1)
def _remote_transactions() -> ctypes.c_void_p:
    return ctypes.c_void_p.in_dll(_SERVER, "InProgressTransactions")


def _has_remote_transactions() -> bool:
    """Return whether this transaction involves other nodes: Citus' list of their transactions is not
    empty."""
    ring = _remote_transactions()
    return ring.value not in (None, ctypes.addressof(ring))


def judge(error: CerebroError) -> CerebroError:
    """Return the error, unless it means that a node of the cluster is lost: then return an error with the
    SQLSTATE after which a visit is repeated."""
    is_gone = error.sqlstate.startswith(_NODE_GONE) or error.message.startswith(_ENDED)
    if not _IS_LOADED or not is_gone:
        return error
    return CerebroError(
        "a node of the cluster does not answer", detail=error.message, hint=_HINT, sqlstate=SEGMENT_GONE
    )


@kept_for_call
def is_installed(db: Database) -> bool:
    """Return whether this database has the extension Citus, so that tables in it may consist of shards."""
    if not _IS_LOADED:
        return False
    row = db.query("SELECT pg_catalog.to_regclass('pg_catalog.pg_dist_node') IS NOT NULL AS there")[0]
    return bool(row["there"])


def _is_spread(db: Database, table: str) -> bool:
    return bool(
        db.query("SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = $1", ["regclass"], [table])
    )


def has_shards(db: Database, table: Table) -> bool:
    """Return whether a table consists of shards; if so, rows of different shards may have the same place
    (ctid)."""
    return is_installed(db) and _is_spread(db, table.quoted)


@dataclass(frozen=True)
class Worker:
    """A worker node, by the address at which the other nodes reach it."""

    host: str
    port: int


def _learn_ports(db: Database) -> None:
    """Let `refuse_without_nodes` recognize the connections to nodes, by the nodes' ports."""
    rows = db.query("SELECT DISTINCT nodeport AS port FROM pg_catalog.pg_dist_node")
    sockets.learn_ports(row["port"] for row in rows)


@kept_for_call
def workers(db: Database) -> Sequence[Worker]:
    """Return the workers that are to store shards, in the order in which they were added to the cluster."""
    _learn_ports(db)
    rows = db.query(
        "SELECT nodename::text AS host, nodeport AS port FROM pg_catalog.pg_dist_node"
        " WHERE noderole = 'primary' AND isactive AND shouldhaveshards ORDER BY nodeid"
    )
    return [Worker(**row) for row in rows]


def conninfo(db: Database) -> str:
    """Return the connection settings with which nodes connect to each other, such as `sslmode=require`."""
    return db.query("SELECT pg_catalog.current_setting('citus.node_conninfo') AS info")[0]["info"]


_SHARD_OF = "pg_catalog.get_shard_id_for_distribution_column"


@as_owner
def keys(db: Database, segments: int) -> list[int]:
    """Return a distribution key for each of `segments` segments; the keys take turns over the workers and
    their shards."""
    rows = db.query(
        "SELECT w.key FROM (SELECT s.key, s.shard, p.groupid, row_number() OVER"
        "   (PARTITION BY p.groupid ORDER BY s.turn, s.shard) AS turn FROM"
        "   (SELECT k.key, k.shard, row_number() OVER (PARTITION BY k.shard ORDER BY k.key) AS turn FROM"
        f"     (SELECT n AS key, {_SHARD_OF}($1, n) AS shard"
        "      FROM pg_catalog.generate_series(0, $2) AS n) AS k) AS s"
        "   JOIN pg_catalog.pg_dist_placement AS p ON p.shardid = s.shard) AS w"
        " JOIN pg_catalog.pg_dist_node AS n ON n.groupid = w.groupid AND n.noderole = 'primary'"
        " ORDER BY w.turn, n.nodeid LIMIT $3",
        ["regclass", "integer", "integer"],
        [_LIKE, _KEYS + _KEYS_FOR_EACH * segments, segments],
    )
    return [row["key"] for row in rows]


@as_owner
def nodes_of(db: Database, keys: Sequence[int]) -> list[Worker]:
    """Return the worker on which the rows of each distribution key lie."""
    rows = db.query(
        "SELECT n.nodename::text AS host, n.nodeport AS port"
        " FROM pg_catalog.unnest($2) WITH ORDINALITY AS k (key, turn)"
        f" JOIN pg_catalog.pg_dist_placement AS p ON p.shardid = {_SHARD_OF}($1, k.key)"
        " JOIN pg_catalog.pg_dist_node AS n ON n.groupid = p.groupid AND n.noderole = 'primary'"
        " ORDER BY k.turn",
        ["regclass", "integer[]"],
        [_LIKE, list(keys)],
    )
    return [Worker(**row) for row in rows]


def lay_out(db: Database, table: str, key: str | None = None) -> None:
    """Distribute a new table over the Citus cluster, if there is one. The column `key` has the rows'
    distribution keys: a row is stored on the worker that stores the states with the same key. Without `key`,
    each node gets a copy of the table."""
    if is_distributed(db) and not _is_temporary(db, table):
        if key is None:
            db.query("SELECT pg_catalog.create_reference_table($1::regclass)", ["text"], [table])
        else:
            db.query(
                "SELECT pg_catalog.create_distributed_table($1::regclass, $2, colocate_with => $3)",
                ["text", "text", "text"],
                [table, key, _LIKE],
            )


def _is_temporary(db: Database, table: str) -> bool:
    rows = db.query(
        "SELECT relpersistence = 't' AS temporary FROM pg_catalog.pg_class WHERE oid = $1::regclass",
        ["text"],
        [table],
    )
    return bool(rows[0]["temporary"])


def lies_as_packed(db: Database, table: Table) -> bool:
    """Return whether a table is distributed as packed tables are, so that segment sessions find its rows.

    A temporary table counts too: only this session can see it, and has its rows.
    """
    return _is_temporary(db, table.quoted) or bool(
        db.query(
            "SELECT FROM pg_catalog.pg_dist_partition AS p"
            " JOIN pg_catalog.pg_dist_partition AS s USING (colocationid)"
            " WHERE p.logicalrelid = $1 AND s.logicalrelid = $2::regclass",
            ["oid", "text"],
            [table.oid, _LIKE],
        )
    )


@kept_for_call
@as_owner
def facts(db: Database) -> Mapping[tuple[str, int], Mapping[str, Any]]:
    """Return the facts of the host of each node with shards, such as its cores and GPUs, by the node's host
    name and port.

    Raise an error if such a node does not answer.
    """
    rows = db.query(
        "SELECT n.nodename::text AS host, n.nodeport AS port, r.success, r.result FROM"
        f" pg_catalog.run_command_on_all_nodes({literal('SELECT cerebro._host_facts()')}) AS r"
        " JOIN pg_catalog.pg_dist_node AS n USING (nodeid) WHERE n.shouldhaveshards OR EXISTS"
        " (SELECT FROM pg_catalog.pg_dist_placement AS p JOIN pg_catalog.pg_dist_shard AS s USING (shardid)"
        f" WHERE p.groupid = n.groupid AND s.logicalrelid = {literal(_LIKE)}::regclass)"
    )
    _check_answers(rows)
    return {(row["host"], row["port"]): json.loads(row["result"]) for row in rows}


@as_owner
def reach(db: Database) -> None:
    """Raise an error unless every node of the cluster answers this one."""
    rows = db.query(
        "SELECT n.nodename::text AS host, n.nodeport AS port, r.success, r.result"
        " FROM pg_catalog.run_command_on_all_nodes('SELECT 1') AS r"
        " JOIN pg_catalog.pg_dist_node AS n USING (nodeid)"
    )
    _check_answers(rows)


def _check_answers(answers: Sequence[Row]) -> None:
    away = [f"{row['host']}:{row['port']}: {row['result']}" for row in answers if not row["success"]]
    if away:
        raise CerebroError(f"no answer from {'; '.join(away)}", hint=_HINT, sqlstate=SEGMENT_GONE)


@kept_for_call
def is_coordinator(db: Database) -> bool:
    """Return whether this session is on the coordinator."""
    return bool(db.query("SELECT FROM pg_catalog.pg_dist_local_group WHERE groupid = 0"))


def let_worker_read(db: Database) -> None:
    """Let the part of a query that runs on a worker read a model's tables, of which each node has a copy."""
    if not is_coordinator(db):
        db.query("SELECT pg_catalog.set_config('citus.allow_nested_distributed_execution', 'on', TRUE)")


def ask_coordinator(db: Database, name: str, request: str) -> Mapping[str, Any]:
    """Have a session on the coordinator carry out a command in a transaction of its own, and return the
    result."""
    statement = f"SELECT cerebro._segment({literal(name)}, {literal(request)})"
    row = db.query(
        "SELECT success, result FROM pg_catalog.run_command_on_coordinator($1)", ["text"], [statement]
    )[0]
    if not row["success"]:
        raise CerebroError(row["result"], hint=_HINT, sqlstate=SEGMENT_GONE)
    return json.loads(row["result"])


@as_owner
def read_visible(db: Database, wanted: str, role: str) -> list[str]:
    """Return the visits, evaluations or states, as `wanted` says, of all runs that a role may see, as JSON.

    A role may see the runs that the view _visible_run shows it.
    """
    runs = db.query(
        "SELECT run_id FROM cerebro._run WHERE kind <> 'evaluation'"
        " AND (pg_has_role($1::name, owner, 'USAGE') OR pg_has_role($1::name, 'pg_monitor', 'USAGE'))",
        ["text"],
        [role],
    )
    # The JSON is made here: on a worker a row is one of a shard.
    found = db.query(
        f"SELECT cerebro._json(r)::text AS row FROM ({_VISIBLE[wanted]} OFFSET 0) AS r",
        ["bigint[]"],
        [[run["run_id"] for run in runs]],
    )
    return [row["row"] for row in found]
