"""Starts the dashboard: opens its port, prints its address with the token, and serves requests."""

from __future__ import annotations

import secrets
import signal
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from html import escape
from pathlib import Path
from typing import Any

import uvicorn
from sqlalchemy import Engine

from cerebro_db.dashboard.app import make_app
from cerebro_db.dashboard.connections import Connection
from cerebro_db.dashboard.guard import is_loopback
from cerebro_db.terminal import Harmless


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at the port; port 0 means any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host.strip("[]"), port))
    sock.listen()  # who comes before the server is up waits
    return sock


def serve(
    reading: Engine,
    acting: Engine,
    sock: socket.socket,
    host: str,
    token: str | None,
    browse: bool,
    say: Callable[[str], None],
    found_at: str | None = None,
) -> None:
    """Serve the dashboard until Ctrl-C; `found_at` is its address for browsers, if that is another one."""
    port: int = sock.getsockname()[1]
    token, code = token or secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    app = make_app(reading, acting, token, host, port, code if browse else None)
    address = f"http://{_shown(host)}:{port}"
    say(f"the page is at {found_at or address}/?token={token}")
    if not is_loopback(host) and found_at is None:
        say("it is open to other machines, unencrypted: put it behind a proxy with TLS, or use a tunnel")
    say("Ctrl-C ends it; runs go on")
    # The log of requests would have the token in it.
    config = uvicorn.Config(
        app, log_level="error", log_config=_logged(), access_log=False, timeout_graceful_shutdown=1,
        http=Connection, ws="none",
    )  # fmt: skip
    with _way_in(f"{address}/enter?code={code}") if browse else nullcontext():
        uvicorn.Server(config).run(sockets=[sock])


@contextmanager
def _way_in(address: str) -> Iterator[None]:
    """Open `address` in a browser through a private file, as other users can read command lines."""
    # Without this handler, SIGTERM would end the process before the file is removed.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    handle, name = tempfile.mkstemp(prefix="cerebro-", suffix=".html")
    file = Path(name)
    try:
        with open(handle, "w") as written:
            written.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(address)}">\n')
        threading.Timer(0.5, webbrowser.open, [file.as_uri()]).start()
        yield
    finally:
        file.unlink(missing_ok=True)


def _logged() -> dict[str, Any]:
    """Return a logging configuration that sends errors to stderr with control characters spelled out."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"harmless": {"()": Harmless}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "harmless"}},
        "loggers": {"uvicorn": {"handlers": ["stderr"], "propagate": False}},
    }


def _shown(host: str) -> str:
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
