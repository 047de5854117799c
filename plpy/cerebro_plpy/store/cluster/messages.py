"""Messages between a session on the coordinator and a segment's process: one JSON object and raw bytes.

A message that does not fit into a field goes in several pieces.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Part = bytes | memoryview
# The commands that announce more pieces of a message, and that ask for the rest of an answer.
MORE, REST = "more", "rest"
# A field holds 1 GB at most, and a statement's parameters are copied several times on their way.
PIECE_BYTES = 128 << 20
_LENGTH = struct.Struct("<Q")


def pack(head: Mapping[str, Any], parts: Sequence[Part]) -> Iterator[bytes]:
    """Yield the pieces of a message, at least one."""
    text = json.dumps({**head, "sizes": [len(part) for part in parts]}).encode()
    gathered: list[Part] = [_LENGTH.pack(len(text)), text]
    size = 0
    for part in parts:
        if size and size + len(part) > PIECE_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
        gathered.append(part)
        size += len(part)
    yield b"".join(gathered)


def unpack(pieces: Sequence[bytes]) -> tuple[dict[str, Any], list[memoryview]]:
    """Take a message apart; the parts share its memory, and none is cut between two pieces."""
    head, start = _head(pieces[0])
    views = [memoryview(pieces[0])[start:], *map(memoryview, pieces[1:])]
    parts = []
    for size in head.pop("sizes"):
        if size > len(views[0]):
            views.pop(0)
        parts.append(views[0][:size])
        views[0] = views[0][size:]
    return head, parts


def is_whole(pieces: Sequence[bytes]) -> bool:
    """Return whether these are all pieces of a message."""
    head, start = _head(pieces[0])
    return sum(head["sizes"]) == sum(map(len, pieces)) - start


def _head(first: bytes) -> tuple[dict[str, Any], int]:
    """Return the head of a message, and the offset of its parts."""
    start = _LENGTH.size + _LENGTH.unpack_from(first)[0]
    return json.loads(first[_LENGTH.size : start]), start
