"""The live page closes a connection whose client reads nothing, and serves one whose client reads slowly."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvicorn
from cerebro_db.dashboard import connections
from cerebro_db.dashboard.serve import listen
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

SECONDS = 1.0
MEGABYTES = 20
GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(MEGABYTES * 16):
            yield bytes(2**16)

    answers: dict[str, Response] = {
        "/whole": Response(bytes(MEGABYTES * 2**20)),
        "/parts": StreamingResponse(parts()),
        "/short": PlainTextResponse("x" * 1_000),
    }
    await answers[Request(scope).url.path](scope, receive, send)


@pytest.fixture(scope="module")
def server() -> Iterator[uvicorn.Server]:
    with pytest.MonkeyPatch.context() as patch, listen("127.0.0.1", 0) as sock:
        patch.setattr(connections, "SECONDS", SECONDS)
        server = uvicorn.Server(
            uvicorn.Config(app, http=connections.Connection, lifespan="off", log_level="error")
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield server
        server.should_exit = server.force_exit = True
        thread.join()


@contextmanager
def asking(server: uvicorn.Server, sent: bytes) -> Iterator[socket.socket]:
    with socket.socket() as connection:
        # Otherwise the operating system would buffer most of the answer.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        connection.connect(server.servers[0].sockets[0].getsockname())
        connection.sendall(sent)
        yield connection


def ends(server: uvicorn.Server) -> bool:
    """Return whether the server gets a connection, and ends it although the client reads nothing."""
    deadline, begun = time.monotonic() + 10 * SECONDS, False
    while time.monotonic() < deadline:
        time.sleep(0.01)
        begun = begun or bool(server.server_state.connections)
        if begun and not server.server_state.connections:
            return True
    return False


@pytest.mark.parametrize(
    "sent",
    [GET % b"/whole", GET % b"/parts", (GET % b"/short") * 300 + GET % b"/parts", GET % b"/parts" + GET[:20]],
    ids=["at once", "in parts", "after others", "before half a request"],
)
def test_who_reads_nothing_is_not_waited_for(server: uvicorn.Server, sent: bytes) -> None:
    with asking(server, sent):
        assert ends(server)


@pytest.mark.parametrize("path", [b"/whole", b"/parts"])
def test_who_reads_slowly_gets_everything(server: uvicorn.Server, path: bytes) -> None:
    found = 0
    with asking(server, GET % path) as connection:
        while part := connection.recv(2 * 2**20, socket.MSG_WAITALL):
            found += len(part)
            time.sleep(0.3 * SECONDS)
    assert found > MEGABYTES * 2**20
