"""Find out whether another node of the cluster has ended a connection that the server opened to it.

A statement that the server announces to such a node would notice it too, but the server's error could jump
over Python's frames.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import stat
import termios
from collections.abc import Iterable, Sequence
from contextlib import suppress

from cerebro_plpy import memory

_ENDED = select.POLLRDHUP | select.POLLHUP | select.POLLERR
# The host and port of a node; of a Unix socket its path, which ends with the port.
_Peer = tuple[str, int] | str


class _Ports(set[int]):
    """The ports of the cluster's nodes."""


class _Own(set[int]):
    """The descriptors of connections that Python opened.

    They are not checked here, since Python raises an ordinary error if it uses one that has ended.
    """


class _Overlooked(set[int]):
    """The descriptors of ended connections to ignore: they ended while the transaction involved no other
    node."""


def leave_out(descriptor: int) -> None:
    """Exclude a connection of Python's from the checks, until `count_in` is called for its descriptor."""
    memory.get_instance(_Own).add(descriptor)


def count_in(descriptor: int) -> None:
    """Check a descriptor again, since from now on it may belong to a connection of the server."""
    memory.get_instance(_Own).discard(descriptor)


def learn_ports(ports: Iterable[int]) -> None:
    """Remember the ports of the cluster's nodes, by which connections to nodes are recognized."""
    memory.get_instance(_Ports).update(ports)


def knows_ports() -> bool:
    return bool(memory.get_instance(_Ports))


def overlook_ended() -> None:
    """Ignore all connections that have ended so far. Call this while the transaction involves no other node:
    then the server notices the loss by itself when it needs a connection."""
    memory.get_instance(_Overlooked).clear()
    memory.get_instance(_Overlooked).update(_ended_among(_list_descriptors()))


def has_ended_connection() -> bool:
    """Return whether a node has ended a connection that the server still relies on.

    An ended connection does not count if the server has read everything from it and has another one to the
    same node: then the server has given it up already.
    """
    descriptors, overlooked = _list_descriptors(), memory.get_instance(_Overlooked)
    ended = _ended_among(descriptors)
    # Another connection may have got the descriptor since.
    overlooked &= ended
    ended -= overlooked | memory.get_instance(_Own)
    # Before each statement: what is not the rule may take its time.
    if not ended:
        return False
    nodes: dict[int, _Peer] = {}
    for descriptor in set(descriptors) - memory.get_instance(_Own):
        with suppress(OSError):
            node = _find_node(descriptor)
            if node is not None:
                nodes[descriptor] = node
    # Nodes on several hosts have the same ports.
    alive = {node for descriptor, node in nodes.items() if descriptor not in ended}
    return any(nodes[one] not in alive or _has_unread(one) for one in ended & nodes.keys())


def _find_node(descriptor: int) -> _Peer | None:
    """Return the node that a connection leads to, or None if it leads to no node; raise OSError if the
    descriptor has no connection."""
    there = socket.socket(fileno=descriptor)
    try:
        peer = there.getpeername()
    finally:
        # It is the server's own.
        there.detach()
    node = peer[:2] if isinstance(peer, tuple) else os.fsdecode(peer)
    port = str(node[1]) if isinstance(node, tuple) else node.rpartition(".")[2]
    return node if port in map(str, memory.get_instance(_Ports)) else None


def _list_descriptors() -> Sequence[int]:
    return [int(name) for name in os.listdir("/proc/self/fd")]


def _ended_among(descriptors: Sequence[int]) -> set[int]:
    asked = select.poll()
    for descriptor in descriptors:
        asked.register(descriptor, select.POLLRDHUP)
    ended = (descriptor for descriptor, event in asked.poll(0) if event & _ENDED)
    # The server has a pipe that nobody reads.
    return {descriptor for descriptor in ended if stat.S_ISSOCK(os.fstat(descriptor).st_mode)}


def _has_unread(descriptor: int) -> bool:
    """Return whether a connection has data that has not been read, such as the message that its process was
    ended."""
    return any(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))
