"""Maps of images: how much each place adds to a score, as a PNG. Pure."""

from __future__ import annotations

import struct
import zlib

import numpy as np

# What the place with the greatest part is drawn in; others are paler, and what adds nothing is white.
FOR, AGAINST = (178, 24, 43), (33, 102, 172)
# The most channels of an image.
_MOST_CHANNELS = 4


def is_map(shape: tuple[int, ...]) -> bool:
    """Return whether numbers of this shape are the pixels of an image."""
    return len(shape) == 2 or (len(shape) == 3 and shape[2] <= _MOST_CHANNELS)


def draw_map(parts: np.ndarray) -> bytes:
    """Return a PNG of as many pixels as the image has: red speaks for the answer, blue against it."""
    sums = parts.reshape(*parts.shape[:2], -1).sum(axis=2)
    most = np.abs(sums).max(initial=0.0)
    shares = sums / most if most > 0 and np.isfinite(most) else np.zeros(sums.shape)
    ends = np.where(shares[..., np.newaxis] > 0, FOR, AGAINST)
    pixels = np.rint(255 + np.abs(shares)[..., np.newaxis] * (ends - 255.0)).astype(np.uint8)
    return _png(pixels)


def _png(pixels: np.ndarray) -> bytes:
    height, width, _ = pixels.shape
    # Each line begins with the number of its filter, which is none.
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    # Three channels of eight bits.
    header = struct.pack(">II", width, height) + bytes([8, 2, 0, 0, 0])
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
