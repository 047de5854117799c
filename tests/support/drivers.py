"""The drivers by which applications, scripts and BI tools connect, each with its default settings."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import psycopg
import psycopg2
import pytest
import sqlalchemy
from sqlalchemy.engine import URL

JDBC = Path("/usr/share/java/postgresql.jar")
ODBC = "PostgreSQL Unicode"
Row = tuple[Any, ...]


class Session(Protocol):
    """A connection by any driver, in the driver's default transaction mode."""

    def rows(self, query: str) -> list[Row]: ...

    def commit(self) -> None: ...

    def close(self) -> None: ...


class DbApi:
    """A session by psycopg2, psycopg 3 or ODBC: the first statement opens a transaction, commit() ends it."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def rows(self, query: str) -> list[Row]:
        cursor = self.connection.cursor()
        cursor.execute(query)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def commit(self) -> None:
        self.connection.commit()

    def close(self) -> None:
        self.connection.close()


class Alchemy:
    """A session by SQLAlchemy, which begins a transaction at the first statement."""

    def __init__(self, dbname: str) -> None:
        place = URL.create("postgresql+psycopg2", os.environ["PGUSER"], database=dbname)
        self._engine = sqlalchemy.create_engine(place)
        self._connection = self._engine.connect()

    def rows(self, query: str) -> list[Row]:
        found = self._connection.execute(sqlalchemy.text(query))
        return [tuple(row) for row in found] if found.returns_rows else []

    def commit(self) -> None:
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()
        self._engine.dispose()


class Jdbc:
    """A session by JDBC, where every statement is a transaction of its own."""

    def __init__(self, port: int, dbname: str) -> None:
        import jpype

        manager = jpype.JClass("java.sql.DriverManager")
        self.connection = manager.getConnection(
            f"jdbc:postgresql://127.0.0.1:{port}/{dbname}", os.environ["PGUSER"], ""
        )

    def rows(self, query: str) -> list[Row]:
        statement = self.connection.createStatement()
        if not statement.execute(query):
            return []
        result = statement.getResultSet()
        columns = range(1, result.getMetaData().getColumnCount() + 1)
        found = []
        while result.next():
            found.append(tuple(_as_python(result.getObject(column)) for column in columns))
        return found

    def commit(self) -> None:
        """Do nothing: JDBC has committed each statement already."""

    def close(self) -> None:
        self.connection.close()


def _as_python(value: Any) -> Any:
    """Return a Java string or number as a Python value, and an object of any other class unchanged."""
    import jpype

    if isinstance(value, jpype.JString):
        return str(value)
    if isinstance(value, jpype.JClass("java.lang.Number")):
        return float(value.doubleValue()) if "." in str(value) else int(value.longValue())
    return value


def odbc(dbname: str) -> Any:
    import pyodbc

    place = f"Servername={os.environ['PGHOST']};Port={os.environ['PGPORT']};UID={os.environ['PGUSER']}"
    return pyodbc.connect(f"DRIVER={{{ODBC}}};{place};Database={dbname}")


def need_odbc() -> None:
    try:
        import pyodbc
    except ImportError as error:
        pytest.skip(f"no ODBC driver manager ({error}): run tools/setup drivers")
    if ODBC not in pyodbc.drivers():
        pytest.skip(f"no ODBC driver {ODBC!r}: run tools/setup drivers")


def need_jdbc() -> None:
    """Start the Java virtual machine unless it already runs; skip the test if Java or JDBC is missing."""
    import jpype

    if jpype.isJVMStarted():
        return
    if not JDBC.exists():
        pytest.skip(f"no JDBC driver {JDBC}: run tools/setup drivers")
    try:
        jpype.startJVM("-Xmx64m", classpath=[str(JDBC)])
    except jpype.JVMNotFoundException:
        pytest.skip("no Java: run tools/setup drivers")


@contextmanager
def tcp_port() -> Iterator[int]:
    """Forward a TCP port to the Unix socket of the tests' server, and yield the port.

    JDBC needs this, because it cannot connect to Unix sockets.
    """
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(_forward, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield server.sockets[0].getsockname()[1]
    asyncio.run_coroutine_threadsafe(_end(server), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def _end(server: asyncio.Server) -> None:
    """Close the TCP server and all open connections; otherwise asyncio would warn during a later test."""
    server.close()
    forwards = asyncio.all_tasks() - {asyncio.current_task()}
    for forward in forwards:
        forward.cancel()
    await asyncio.gather(*forwards, return_exceptions=True)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    there = await asyncio.open_unix_connection(f"{os.environ['PGHOST']}/.s.PGSQL.{os.environ['PGPORT']}")
    await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while part := await reader.read(65536):
            writer.write(part)
            await writer.drain()
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def opener(name: str, dbname: str, port: int) -> Session:
    """Open a session with the driver `name`: "odbc", "jdbc", "psycopg2", "psycopg" or else SQLAlchemy."""
    match name:
        case "odbc":
            return DbApi(odbc(dbname))
        case "jdbc":
            return Jdbc(port, dbname)
        case "psycopg2":
            return DbApi(psycopg2.connect(dbname=dbname))
        case "psycopg":
            return DbApi(psycopg.connect(dbname=dbname))
        case _:
            return Alchemy(dbname)
