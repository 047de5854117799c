"""Pictures of what each pixel of an image adds to a score."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from cerebro_plpy.explaining.maps import AGAINST, FOR, draw_map, is_map


def read(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)))


def test_what_speaks_for_the_answer_is_red_and_what_speaks_against_it_blue() -> None:
    """The parts of a pixel's channels are summed, and the sum decides how strong the colour is."""
    parts = np.zeros((3, 5, 2))
    parts[0, 1], parts[2, 4], parts[1, 1] = (3.0, 1.0), (-4.0, 0.0), (2.0, -2.0)
    parts[1, 0] = 1.0, 1.0
    drawn = read(draw_map(parts))
    assert drawn.shape == (3, 5, 3)
    assert tuple(drawn[0, 1]) == FOR and tuple(drawn[2, 4]) == AGAINST
    assert tuple(drawn[1, 1]) == tuple(drawn[0, 0]) == (255, 255, 255)
    assert tuple(drawn[1, 0]) == pytest.approx(tuple((255 + one) / 2 for one in FOR), abs=0.51)


@pytest.mark.parametrize("parts", [np.zeros((2, 2)), np.full((2, 2), np.nan)], ids=["nothing", "no numbers"])
def test_without_parts_a_map_is_white(parts: np.ndarray) -> None:
    assert (read(draw_map(parts)) == 255).all()


def test_an_image_has_two_dimensions_and_few_channels() -> None:
    assert is_map((8, 8)) and is_map((8, 8, 1)) and is_map((8, 8, 4))
    assert not is_map((8,)) and not is_map((8, 8, 30)) and not is_map((2, 8, 8, 3))
