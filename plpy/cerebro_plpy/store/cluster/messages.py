"""Messages between a session on the coordinator and a segment's process: a JSON object and parts of bytes.

The JSON object is the head of the message. A field of a row has a limited length, so a long message is sent
in several pieces.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Part = bytes | memoryview
# The commands that announce more pieces of a message, and that ask for the rest of an answer.
MORE, REST = "more", "rest"
# A field holds at most 1 GB, and the server copies a statement's parameters several times.
PIECE_BYTES = 128 << 20
_LENGTH = struct.Struct("<Q")


def pack(head: Mapping[str, Any], parts: Sequence[Part]) -> Iterator[bytes]:
    """Yield the pieces of a message that has this head and these parts; there is at least one piece."""
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
    """Return the head and the parts of a message, given all its pieces; each part is a view of a piece's
    memory."""
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
    """Return whether these pieces are the whole message; if not, more pieces must be fetched."""
    head, start = _head(pieces[0])
    return sum(head["sizes"]) == sum(map(len, pieces)) - start


def _head(first: bytes) -> tuple[dict[str, Any], int]:
    """Return a message's head, read from the first piece, and the offset in this piece at which the parts
    begin."""
    start = _LENGTH.size + _LENGTH.unpack_from(first)[0]
    return json.loads(first[_LENGTH.size : start]), start
