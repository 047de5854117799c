"""Maps of images: draws as a PNG how much each pixel adds to a score. Pure."""

from __future__ import annotations

import struct
import zlib

import numpy as np

# The color of the pixel that adds most, or takes most; other pixels are paler, and white adds nothing.
FOR, AGAINST = (178, 24, 43), (33, 102, 172)
# The most channels of an image.
_MOST_CHANNELS = 4


def is_map(shape: tuple[int, ...]) -> bool:
    """Return whether an input of this shape is an image: two dimensions, or three with at most 4 channels."""
    return len(shape) == 2 or (len(shape) == 3 and shape[2] <= _MOST_CHANNELS)


def draw_map(parts: np.ndarray) -> bytes:
    """Return a PNG of the image's size, in which red pixels raise the score and blue pixels lower it.

    `parts` is what each number of the image adds to the score.
    """
    sums = parts.reshape(*parts.shape[:2], -1).sum(axis=2)
    most = np.abs(sums).max(initial=0.0)
    shares = sums / most if most > 0 and np.isfinite(most) else np.zeros(sums.shape)
    ends = np.where(shares[..., np.newaxis] > 0, FOR, AGAINST)
    pixels = np.rint(255 + np.abs(shares)[..., np.newaxis] * (ends - 255.0)).astype(np.uint8)
    return _png(pixels)


def _png(pixels: np.ndarray) -> bytes:
    height, width, _ = pixels.shape
    # Each line begins with the number of its filter, 0 for none.
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    # Three channels of eight bits.
    header = struct.pack(">II", width, height) + bytes([8, 2, 0, 0, 0])
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
