"""Arrays are written as text for the server so that every 32-bit float is read back unchanged."""

from __future__ import annotations

import numpy as np
import pytest

from cerebro_plpy.store.arrays import write_arrays


def read(texts: list[str]) -> np.ndarray:
    return np.array([[np.float32(number) for number in text[1:-1].split(",")] for text in texts])


def test_numbers_of_single_precision_come_back() -> None:
    bits = np.random.default_rng(1).integers(0, 2**32, 20_000, dtype=np.uint32)
    numbers = bits.view(np.float32)
    rows = numbers[np.isfinite(numbers)][:19_000].reshape(190, 100)
    assert (read(write_arrays(rows)) == rows).all()


@pytest.mark.parametrize(
    "row",
    [
        [0.0, -0.0, 1.0, -1.0, 0.1, 1e-38, 1e-45, 3.4028235e38, 9.99999999e8],
        [999999.96, 9.9999999e-5, 1e9, 1e10],
    ],
)
def test_the_ends_come_back(row: list[float]) -> None:
    rows = np.array([row], np.float32)
    assert (read(write_arrays(rows)) == rows).all()


def test_what_is_no_number_is_written_by_its_name() -> None:
    assert write_arrays(np.array([[1.5, np.nan, np.inf]])) == ["{1.5,nan,inf}"]
    assert write_arrays(np.array([[1e300]])) == ["{1e+300}"]


def test_a_number_that_rounds_up_has_a_digit_more_before_its_point() -> None:
    assert read(write_arrays(np.array([[0.99999999996]]))) == np.float32(1)
