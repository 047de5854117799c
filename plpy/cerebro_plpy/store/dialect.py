"""The SQL that differs between Greenplum and PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cerebro_plpy import memory
from cerebro_plpy.database import Database
from cerebro_plpy.store import names

# Greenplum and its heirs have this setting, whatever their banners say. On PostgreSQL no role can make it.
HAS_SEGMENTS = "pg_catalog.current_setting('gp_role', true) IS NOT NULL"


class _Dialect:
    """Whether the server is Greenplum, which is looked up once in each process."""

    is_greenplum: bool | None = None


def is_greenplum(db: Database) -> bool:
    server = memory.get_instance(_Dialect)
    if server.is_greenplum is None:
        row = db.query(f"SELECT {HAS_SEGMENTS} AS is_greenplum")[0]
        server.is_greenplum = row["is_greenplum"]
    return bool(server.is_greenplum)


# Statements here are made for PostgreSQL's own planner, and small tables need no statistics at once.
_SESSION_SETTINGS = {"optimizer": "off", "gp_autostats_mode": "none"}


def session_settings(db: Database) -> Mapping[str, str]:
    return _SESSION_SETTINGS if is_greenplum(db) else {}


# Follows the columns of a CREATE TABLE: our tables are heaps, whatever the default of the session is.
HEAP = " USING heap"


def distributed(db: Database, how: str) -> str:
    """Return the DISTRIBUTED clause of a CREATE TABLE, such as ` DISTRIBUTED RANDOMLY` for `how` RANDOMLY;
    empty on PostgreSQL."""
    return f" DISTRIBUTED {how}" if is_greenplum(db) else ""


def literal(value: str | float | Sequence[str | float]) -> str:
    """Return a value in SQL as a user would write it: a list as ARRAY[…], and a text with quotes in it
    between $$, unless it contains $$."""
    if isinstance(value, str):
        # A dollar at the end would be read as the first one of the end.
        if "'" in value and "$$" not in f"{value}$":
            return f"$${value}$$"
        return names.literal(value)
    return str(value) if isinstance(value, float | int) else f"ARRAY[{', '.join(map(literal, value))}]"


def call_text(function: str, arguments: Sequence[str]) -> str:
    """Return the statement that calls one of the extension's functions, as a user would write it."""
    return f"SELECT cerebro.{function}({', '.join(arguments)});"
