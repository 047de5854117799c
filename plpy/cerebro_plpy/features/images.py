"""Decodes JPEG and PNG images: checks their size first, and reads in pieces so that a cancel can act."""

from __future__ import annotations

import io
import struct
import warnings
from typing import TYPE_CHECKING

import numpy as np

from cerebro_plpy import memory
from cerebro_plpy.errors import WRONG_STATE, CerebroError
from cerebro_plpy.features.specification import Image

if TYPE_CHECKING:
    from PIL import Image as pillow

# As many as a camera of today has; a decoded one takes four bytes a pixel for a moment.
MOST_PIXELS = 64_000_000
# A JPEG cannot be longer. Each row of an image takes memory beside its pixels.
MOST_SIDE = 65_535
# A JPEG may go over its pixels as often as it has scans. Cameras and editors make up to about ten.
MOST_SCANNED = 16 * MOST_PIXELS
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
FORMATS = ("JPEG", "PNG")
_JPEG, _SCAN = b"\xff\xd8", b"\xff\xda"


class NoImageError(Exception):
    """Raised for bytes that are not an image, or not an image that can be used."""


class _Pieces(io.BytesIO):
    """The bytes of an image as a file; each read first looks for a cancel.

    If `scans` is True, a read ends at the next scan of a JPEG, so that it looks for a cancel before each
    scan.
    """

    scans = False

    def read(self, size: int | None = -1, /) -> bytes:
        memory.get_instance(memory.Pause).take()
        found = super().read(size)
        # The marker of a scan stays in one piece with what is before it.
        end = found.find(_SCAN) + len(_SCAN) if self.scans else 0
        if end >= len(_SCAN) and end < len(found):
            self.seek(end - len(found), io.SEEK_CUR)
            return found[:end]
        return found


def decode(way: Image, data: bytes, out: np.ndarray) -> None:
    """Write an image into the flat array `out`, resized (bilinear) if it has another size."""
    try:
        from PIL import Image as pillow
        from PIL import UnidentifiedImageError
    except ImportError:
        raise CerebroError(
            "decoding images needs the Python package Pillow",
            hint="Install it for this Python: pip install pillow. On a server, make deploy does.",
            sqlstate=WRONG_STATE,
        ) from None
    rows, columns, channels = way.decode
    pieces = _Pieces(data)
    try:
        with warnings.catch_warnings(action="ignore"):
            found = pillow.open(pieces, formats=FORMATS)
            _check(found.width, found.height, data)
            pieces.scans = data.startswith(_JPEG)
            image = _eight_bits(found).convert(MODES[channels])
    except UnidentifiedImageError:
        raise NoImageError("is neither JPEG nor PNG") from None
    except (pillow.DecompressionBombError, *_DAMAGED) as error:
        raise NoImageError(f"cannot be decoded: {error or type(error).__name__}") from None
    if image.size != (columns, rows):
        image = image.resize((columns, rows), pillow.Resampling.BILINEAR)
    np.divide(np.asarray(image, np.float32).reshape(-1), np.float32(way.divide), out=out)


# The errors of Python's libraries for a damaged file.
_DAMAGED = (
    OSError,
    SyntaxError,
    ValueError,
    LookupError,
    AssertionError,
    ArithmeticError,
    TypeError,
    struct.error,
)


def _check(width: int, height: int, data: bytes) -> None:
    """Raise an error if an image, by its header, would take too much memory or time."""
    if width * height > MOST_PIXELS:
        raise NoImageError(f"has {width} x {height} pixels, more than {MOST_PIXELS}")
    if max(width, height) > MOST_SIDE:
        raise NoImageError(f"has {width} x {height} pixels, and no side may have more than {MOST_SIDE}")
    scans = data.count(_SCAN) if data.startswith(_JPEG) else 1
    if scans * width * height > MOST_SCANNED:
        raise NoImageError(
            f"has {scans} scans of {width} x {height} pixels, more than {MOST_SCANNED} pixels in all"
        )


def _eight_bits(image: pillow.Image) -> pillow.Image:
    """Return an image with the upper 8 bits of 16 bits of grey; other images are unchanged.

    Pillow does the same for 16 bits of colour, but its convert() turns grey above 255 into white.
    """
    if not image.mode.startswith("I;16"):
        return image
    from PIL import Image as pillow

    return pillow.fromarray((np.asarray(image) >> 8).astype(np.uint8))
