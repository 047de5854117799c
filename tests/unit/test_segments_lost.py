"""A session on Greenplum sees that it has lost a process on a segment."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from cerebro_plpy import memory
from cerebro_plpy.store.cluster import gangs

HOSTS = ("127.0.0.1", "127.0.0.2")


@pytest.fixture
def segments() -> Iterator[list[socket.socket]]:
    """The segments' ends of connections to two hosts, whose servers have the same port."""
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
        memory.get_instance(gangs._Ports).add(port)
        yield ends
        memory.get_instance(gangs._Ports).discard(port)


def test_a_live_process_on_another_host_does_not_stand_for_a_lost_one(segments: list[socket.socket]) -> None:
    assert not gangs._has_ended_connection()
    segments[0].close()
    assert gangs._has_ended_connection()
