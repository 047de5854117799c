"""Connects a command to the database that `--dsn` or the PG* variables name, as psql does."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cerebro_db.cli.exits import NoServer
from cerebro_db.terminal import Harmless, harmless

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cerebro_db.database import Database

_WAITS = re.compile(r"cerebro\.wait\((\d+)\) waits for it")
_CALL = re.compile(r"\bcerebro\.(resume|stop|forget)\((\d+)\)")

C = TypeVar("C", bound=Callable[..., Any])

# How long until a server that vanished without a word is noticed.
CONNECT_SECONDS = 10
SILENCE_MILLISECONDS = 20_000


def connected(command: C) -> C:
    """Add the option `--dsn`, which names the database, to a command."""
    return click.option(
        "--dsn",
        metavar="DSN",
        default="",
        callback=_without_password,
        help="Database, as postgresql://user@host/name or 'host=… dbname=…'; else the PG* variables decide.",
    )(command)


def _without_password(_context: click.Context, _option: click.Parameter, dsn: str) -> str:
    """Return the DSN; raise BadParameter if it has a password, which every user of the machine could see."""
    import psycopg2.extensions

    # SQLAlchemy's way to name a driver in an address, which libpq does not know.
    dsn = dsn.replace("postgresql+psycopg2://", "postgresql://", 1)
    try:
        parts = psycopg2.extensions.parse_dsn(dsn)
    except psycopg2.ProgrammingError:
        # psycopg2's message would repeat parts of the text, such as a misplaced password.
        raise click.BadParameter(
            "it is not the address of a database; write postgresql://user@host/name or 'host=… dbname=…'"
        ) from None
    if "password" in parts:
        raise click.BadParameter(
            "it has a password, which others could read here; set PGPASSWORD, or keep it in ~/.pgpass"
        )
    return dsn


def without_password(_context: click.Context, _option: click.Parameter, address: str | None) -> str | None:
    """Return MLflow's address; raise BadParameter if it has a password, which every user could see."""
    from urllib.parse import parse_qs, urlsplit

    try:
        parts = urlsplit(address or "")
        secret = "@" in parts.netloc and ":" in parts.netloc.rpartition("@")[0]
    except ValueError:
        raise click.BadParameter("it is not an address") from None
    if secret or "password" in parse_qs(parts.query):
        raise click.BadParameter(
            "it has a password, which others could read here;"
            " set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    return address


def make_engine(dsn: str, name: str = "cerebro", spare: int = 4) -> Engine:
    """Return an engine that tests each connection before use, so that it survives a restart of the server."""
    import psycopg2
    from sqlalchemy import create_engine

    def connect() -> psycopg2.extensions.connection:
        return psycopg2.connect(
            dsn,
            fallback_application_name=name,
            connect_timeout=CONNECT_SECONDS,
            tcp_user_timeout=SILENCE_MILLISECONDS,
            keepalives_idle=CONNECT_SECONDS,
        )

    return create_engine(
        "postgresql+psycopg2://", creator=connect, pool_pre_ping=True, pool_size=1, max_overflow=spare
    )


def open_database(dsn: str, architectures: str = "nets") -> Database:
    """Return the database once its server has answered; `architectures` names its table of architectures."""
    from sqlalchemy.exc import OperationalError

    from cerebro_db.database import Database
    from cerebro_db.link import EngineLink

    engine = make_engine(dsn)
    try:
        engine.connect().close()
    except OperationalError as error:
        raise NoServer(
            "no server accepts the connection",
            str(error.orig).strip(),
            "Name the database with --dsn, or with PGHOST, PGPORT, PGUSER and PGDATABASE.",
        ) from None
    _let_be_heard()
    return Database(EngineLink(engine, owned=True), architectures)


class InCommands(Harmless):
    """A log formatter that replaces SQL in the server's messages by commands, such as `cerebro watch 7`."""

    def format(self, record: logging.LogRecord) -> str:
        said = super().format(record)
        return _CALL.sub(r"cerebro \1 \2", _WAITS.sub(r"cerebro watch \1 follows it", said))


def _let_be_heard() -> None:
    """Print the server's notices and warnings to stderr."""
    notices = logging.getLogger("cerebro_db")
    if not notices.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(InCommands("NOTICE:  %(message)s"))
        notices.addHandler(handler)
        notices.setLevel(logging.INFO)

    def show(message: Warning | str, *_where: object) -> None:
        click.secho("WARNING:  ", fg="yellow", err=True, nl=False)
        click.echo(harmless(message), err=True)

    warnings.showwarning = show  # pyright: ignore[reportAttributeAccessIssue]
