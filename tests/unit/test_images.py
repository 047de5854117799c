"""Images are decoded as Pillow does, with limits on their size, and in pieces so that a cancel acts soon."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image as pillow

from cerebro_plpy import memory
from cerebro_plpy.features import images
from cerebro_plpy.features.specification import Image

SCAN = b"\xff\xda"


def decoded(data: bytes, rows: int, columns: int, channels: int = 1) -> np.ndarray:
    out = np.zeros(rows * columns * channels, np.float32)
    images.decode(Image([rows, columns, channels], 1.0), data, out)
    return out.reshape(rows, columns, channels).squeeze()


def saved(image: pillow.Image, kind: str = "PNG", **more: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **more)
    return file.getvalue()


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_a_jpeg_in_pieces_is_the_same_image(mode: str, progressive: bool) -> None:
    image = pillow.effect_noise((200, 300), 60).convert(mode)
    data = saved(image, "JPEG", progressive=progressive)
    assert (data.count(SCAN) > 1) == progressive
    expected = np.asarray(pillow.open(io.BytesIO(data)), np.float32)
    assert np.array_equal(decoded(data, 300, 200, len(image.getbands())), expected)


def test_grey_of_sixteen_bits_keeps_its_shades() -> None:
    shades = np.linspace(0, 65535, 256).round().astype(np.uint16).reshape(16, 16)
    data = saved(pillow.fromarray(shades))
    assert np.array_equal(decoded(data, 16, 16), shades >> 8)
    assert np.array_equal(decoded(data, 16, 16, 3)[..., 0], shades >> 8)


def with_scans(pixels: int, scans: int) -> bytes:
    """Return a progressive JPEG whose last scan is repeated `scans` times."""
    data = saved(pillow.new("L", (pixels, pixels)), "JPEG", progressive=True)
    last = data[data.rindex(SCAN) : -2]
    return data[:-2] + last * scans + data[-2:]


def test_a_small_file_of_many_scans_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(images.NoImageError, match="has 406 scans of 8000 x 8000 pixels"):
        decoded(with_scans(8000, 400), 4, 4)


@pytest.mark.parametrize("size", [(70_000, 2), (2, 70_000)])
def test_no_side_may_be_longer_than_that_of_a_jpeg(size: tuple[int, int]) -> None:
    with pytest.raises(images.NoImageError, match="no side may have more than 65535"):
        decoded(saved(pillow.new("1", size)), 4, 4)


class CanceledError(Exception):
    """Stands for the error that the server raises on a cancel."""


def test_a_cancel_acts_between_two_scans() -> None:
    data, taken = with_scans(500, 100), []

    def take() -> None:
        taken.append(1)
        if len(taken) > 50:
            raise CanceledError

    with memory.PROCESS.fresh():
        memory.get_instance(memory.Pause).take = take
        with pytest.raises(CanceledError):
            decoded(data, 4, 4)


def test_a_png_that_the_library_stumbles_over_is_no_image() -> None:
    """A PNG whose palette is missing and whose transparency follows the pixels raises NoImageError."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 2, 3, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"\0\0" * 4))
    data = b"\x89PNG\r\n\x1a\n" + head + pixels + chunk(b"tRNS", b"\xff\0") + chunk(b"IEND", b"")
    with pytest.raises(images.NoImageError, match="cannot be decoded: "):
        decoded(data, 8, 8, 3)
