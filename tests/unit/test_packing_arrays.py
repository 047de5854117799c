"""Arrays in the server's binary form are decoded to NumPy batches."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest

from cerebro_plpy.errors import CerebroError
from cerebro_plpy.packing.faults import Faults
from cerebro_plpy.packing.rows.arrays import ArrayForm, ArrayReader, first_shape, shape_of
from cerebro_plpy.packing.rows.read import FEATURES, ONE_HOT, decode_buffer

OID = {"=i2": 21, "=i4": 23, "=i8": 20, "=f4": 700, "=f8": 701}


def datum(values: np.ndarray, lower: int = 1, missing: int | None = None) -> bytes:
    """Return an array in PostgreSQL's binary form, without the length; `missing` is the index of a NULL."""
    head = struct.pack(f"={2 * values.ndim}i", *values.shape, *[lower] * values.ndim)
    size = 16 + len(head) + ((values.size + 7) // 8 if missing is not None else 0)
    start = (size + 7) // 8 * 8
    bits = np.ones(values.size, np.uint8)
    body = values.reshape(-1)
    bitmap = b""
    if missing is not None:
        if missing >= 0:
            bits[missing] = 0
            body = np.delete(body, missing)
        bitmap = np.packbits(bits, bitorder="little").tobytes()
    kind = OID["=" + values.dtype.str[1:]]
    fixed = struct.pack("=iiI", values.ndim, start if missing is not None else 0, kind)
    return (fixed + head + bitmap).ljust(start - 4, b"\0") + body.tobytes()


def read(
    rows: Sequence[bytes | None],
    source: str,
    shape: tuple[int, ...],
    *,
    divisor: float = 1.0,
    to: str = "<f4",
    **form: object,
) -> tuple[np.ndarray, Faults]:
    seen = Faults()
    out = np.zeros((len(rows), int(np.prod(shape))), to)
    ArrayReader(ArrayForm("x", source=source, shape=shape, **{"parts": (), **form}), divisor, seen).read(
        [rows], out, 11
    )
    return out, seen


@pytest.mark.parametrize("source", sorted(OID))
@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 2)])
def test_every_element_type_and_dimension_is_read(source: str, shape: tuple[int, ...]) -> None:
    rows = [(np.arange(np.prod(shape)) * 3 + i).reshape(shape).astype(source) for i in range(4)]
    out, seen = read([datum(row, lower=i) for i, row in enumerate(rows)], source, shape, divisor=4)
    assert not seen
    assert np.array_equal(out, np.array(rows).reshape(4, -1).astype(np.float32) / np.float32(4))
    assert shape_of(datum(rows[0])) == shape


def test_bytea_is_unsigned() -> None:
    out, seen = read([b"\x00\xff\x80", b"\x01\x02\x03"], "=u1", (3,), is_bytea=True)
    assert not seen
    assert out.tolist() == [[0, 255, 128], [1, 2, 3]]


def test_a_bitmap_with_no_null_in_it_is_fine() -> None:
    row = np.arange(10, dtype=np.float32)
    out, seen = read([datum(row, missing=-1), datum(row)], "=f4", (10,))
    assert not seen
    assert out.tolist() == [row.tolist()] * 2


def test_all_that_is_wrong_is_counted_and_told_at_once() -> None:
    good = np.ones(3, np.float64)
    rows = [datum(good), None, datum(good, missing=1), datum(np.ones(2)), datum(good.reshape(3, 1)), None]
    _, seen = read(rows, "=f8", (3,))
    _, other = read([datum(np.array([1.0, 1e300, np.nan])), datum(np.array([-1e39, 0, 0]))], "=f8", (3,))
    error = seen.error(6)
    assert error.message == 'column "x" is NULL in 2 of 6 rows'
    assert "NULL elements in 1 of 6 rows; the first is row 13" in str(error.detail)
    assert "another shape than the first row in 2 of 6 rows; the first is row 14" in str(error.detail)
    assert ", with {2} instead of {3}" in str(error.detail)
    assert "NaN or infinity in 1 of 2 rows" in str(other.error(2).detail)
    assert (
        "beyond the range of a 32-bit float in 2 of 2 rows; the first is row 11 of the scan, with 1e+300"
        in str(other.error(2).detail)
    )


def test_rows_are_numbered_as_they_were_scanned() -> None:
    """A row that is left out does not change the numbers of later rows in messages."""
    rows = [None, datum(np.ones(2)), datum(np.array([1, np.nan]))]
    _, seen = read(rows, "=f8", (2,))
    assert "the first is row 13 of the scan, with nan" in str(seen.error(3).detail)


def test_a_vector_of_columns_names_the_column_that_is_wrong() -> None:
    rows = [datum(np.array([1.0, 2.0]), missing=1), datum(np.array([np.inf, 1.0]))]
    _, seen = read(rows, "=f8", (2,), parts=("height", "width"))
    assert 'Column "width" is NULL in 1 of 2 rows' in str(seen.error(2).detail)
    _, seen = read(rows[1:], "=f8", (2,), parts=("height", "width"))
    assert seen.error(2).message == 'column "height" holds NaN or infinity in 1 of 2 rows'


def test_one_hot_values_are_0_and_1() -> None:
    out, seen = read([datum(np.array([0, 1], np.int64))], "=i8", (2,), to="<i2", classes=2)
    assert not seen and out.tolist() == [[0, 1]] and seen.remarks(1) == []
    for wrong in ([0, 70000], [2, -1], [65536, 1]):
        rows = [datum(np.array([1, 0], np.int64)), datum(np.array(wrong, np.int64))]
        _, seen = read(rows, "=i8", (2,), to="<i2", classes=2)
        error = seen.error(2)
        assert "holds values other than 0 and 1" in error.message and "in 1 of 2 rows" in error.message
        assert f"with {{{wrong[0]},{wrong[1]}}}" in str(error.detail)
        assert '{"task": "regression"}' in str(error.hint)


def test_rows_of_several_classes_and_of_none_are_told_of() -> None:
    rows = [[0, 1, 0], [1, 1, 0], [0, 0, 0]]
    out, seen = read([datum(np.array(row, np.int32)) for row in rows], "=i4", (3,), to="<i2", classes=3)
    assert not seen and out.tolist() == rows
    (line,) = seen.remarks(3)
    assert "has no 1 or several in 2 of 3 rows, the first is row 12 of the scan, with {1,1,0}" in line
    _, seen = read([datum(np.array([0], np.int32))], "=i4", (1,), to="<i2", classes=1)
    assert not seen and seen.remarks(1) == []
    # Each vector of a row is one-hot by itself.
    _, seen = read([datum(np.array([[0, 1], [1, 0]], np.int32))], "=i4", (2, 2), to="<i2", classes=2)
    assert not seen and seen.remarks(1) == []


def test_rows_of_other_lengths_that_add_up_are_not_taken_for_the_right_ones() -> None:
    longer, shorter = datum(np.ones(4, np.float32)), datum(np.ones(2, np.float32))
    _, seen = read([longer, shorter], "=f4", (3,))
    assert "in 2 of 2 rows" in seen.error(2).message
    _, seen = read([b"abcd", b"ab"], "=u1", (3,), is_bytea=True)
    assert "in 2 of 2 rows" in seen.error(2).message


@pytest.mark.parametrize("value", [datum(np.zeros((0,), np.float32)), struct.pack("=iiI", 0, 0, 700)])
def test_an_empty_first_row_is_refused(value: bytes) -> None:
    with pytest.raises(CerebroError, match="empty array"):
        first_shape("x", value, is_bytea=False)


def test_buffers_are_viewed_not_copied() -> None:
    rows = np.arange(12, dtype="<f4").reshape(3, 2, 2)
    data = rows.tobytes()
    seen = decode_buffer(data, [3, 2, 2], FEATURES)
    assert np.array_equal(seen, rows) and not seen.flags.owndata and not seen.flags.writeable
    with pytest.raises(CerebroError, match="48 bytes"):
        decode_buffer(data, [3, 2, 2], ONE_HOT)
