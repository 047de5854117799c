"""JPEG and PNG decoded, within bounds that hold before a pixel is."""

from __future__ import annotations

import io
import warnings

import numpy as np

from ..errors import WRONG_STATE, CerebroError
from .specification import Image

# As many as a camera of today has; a decoded one takes four bytes a pixel for a moment.
MOST_PIXELS = 64_000_000
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
FORMATS = ("JPEG", "PNG")


class NoImageError(Exception):
    """The bytes are no image that can be used."""


def decode(way: Image, data: bytes, out: np.ndarray) -> None:
    """Write an image into `out`, flat: as it is where it has the size, else resized (bilinear)."""
    try:
        from PIL import Image as pillow
        from PIL import UnidentifiedImageError
    except ImportError:
        raise CerebroError(
            "decoding images needs Pillow in the server's Python",
            hint="Install what requirements.lock lists: make deploy, or pip install pillow.",
            sqlstate=WRONG_STATE,
        ) from None
    rows, columns, channels = way.decode
    try:
        with warnings.catch_warnings(action="ignore"):
            found = pillow.open(io.BytesIO(data), formats=FORMATS)
            if found.width * found.height > MOST_PIXELS:
                raise NoImageError(f"has {found.width} x {found.height} pixels, more than {MOST_PIXELS}")
            image = found.convert(MODES[channels])
    except UnidentifiedImageError:
        raise NoImageError("is neither JPEG nor PNG") from None
    except (pillow.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        raise NoImageError(f"cannot be decoded: {error}") from None
    if image.size != (columns, rows):
        image = image.resize((columns, rows), pillow.Resampling.BILINEAR)
    np.divide(np.asarray(image, np.float32).reshape(-1), np.float32(way.divide), out=out)
