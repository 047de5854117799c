"""What Greenplum writes otherwise than PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping

from cerebro_plpy.database import Database

# A process never changes its server.
_known: list[bool] = []


def is_greenplum(db: Database) -> bool:
    if not _known:
        row = db.query("SELECT pg_catalog.version() LIKE '%Greenplum%' AS is_greenplum")[0]
        _known.append(row["is_greenplum"])
    return _known[0]


# Statements here are made for PostgreSQL's own planner, and small tables need no statistics at once.
_SESSION_SETTINGS = {"optimizer": "off", "gp_autostats_mode": "none"}


def session_settings(db: Database) -> Mapping[str, str]:
    return _SESSION_SETTINGS if is_greenplum(db) else {}


# Behind the columns of a CREATE TABLE: ours are that, whatever a session or a database has for its default.
HEAP = " USING heap"


def distributed(db: Database, how: str) -> str:
    """The end of a CREATE TABLE: where its rows lie. `how` is BY (column), RANDOMLY or REPLICATED."""
    return f" DISTRIBUTED {how}" if is_greenplum(db) else ""
