"""A session on a cluster notices that its connection to a process on another node was closed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cerebro_plpy import memory
from cerebro_plpy.store import sockets

HOSTS = ("127.0.0.1", "127.0.0.2")


@pytest.fixture
def segments() -> Iterator[list[socket.socket]]:
    """Yield the segments' ends of two connections, to servers with the same port on two hosts."""
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.socket()) for _ in HOSTS]
        servers[0].bind((HOSTS[0], 0))
        port = servers[0].getsockname()[1]
        servers[1].bind((HOSTS[1], port))
        ends = []
        for host, server in zip(HOSTS, servers, strict=True):
            server.listen()
            stack.enter_context(socket.create_connection((host, port)))
            ends.append(stack.enter_context(server.accept()[0]))
        sockets.learn_ports([port])
        yield ends
        memory.get_instance(sockets._Ports).discard(port)


def test_a_live_process_on_another_host_does_not_stand_for_a_lost_one(segments: list[socket.socket]) -> None:
    assert not sockets.has_ended_connection()
    segments[0].close()
    assert sockets.has_ended_connection()


def test_connections_of_pythons_own_to_a_node_do_not_count(tmp_path: Path) -> None:
    """Connections that Python code opened are ignored, here one by a Unix socket named after the port."""
    node = tmp_path / ".s.PGSQL.7001"
    sockets.learn_ports([7001])
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(node))
        server.listen()
        client.connect(str(node))
        server.accept()[0].close()
        assert sockets.has_ended_connection()
        sockets.leave_out(client.fileno())
        assert not sockets.has_ended_connection()
        sockets.count_in(client.fileno())
        assert sockets.has_ended_connection()
        sockets.overlook_ended()
        assert not sockets.has_ended_connection()
    memory.get_instance(sockets._Ports).discard(7001)
