"""Starting the page: its connections, its port, its token."""

from __future__ import annotations

import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable

import uvicorn
from sqlalchemy import Engine

from .app import make_app
from .guard import is_loopback


def listen(host: str, port: int) -> socket.socket:
    """Take the port before anything is promised; 0 takes any that is free."""
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
) -> None:
    """Answer until Ctrl-C."""
    port: int = sock.getsockname()[1]
    token = token or secrets.token_urlsafe(32)
    app = make_app(reading, acting, token, host, port)
    address = f"http://{_shown(host)}:{port}/?token={token}"
    say(f"the page is at {address}")
    if not is_loopback(host):
        say("it is open to other machines, unencrypted: put it behind a proxy with TLS, or use a tunnel")
    say("Ctrl-C ends it; runs go on")
    if browse:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    # The log of requests would have the token in it.
    config = uvicorn.Config(app, log_level="error", access_log=False, timeout_graceful_shutdown=1, ws="none")
    uvicorn.Server(config).run(sockets=[sock])


def _shown(host: str) -> str:
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
