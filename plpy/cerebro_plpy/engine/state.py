"""A config's state: everything it needs to go on, as raw buffers with a small header."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from cerebro_plpy import errors
from cerebro_plpy.errors import CerebroError

WEIGHT = "weight"
OTHER = "other"
OPTIMIZER = "optimizer"

_MAGIC = b"CEREBRO1"
# Magic, part number, CRC of number and payload, length of the payload.
_PART = struct.Struct("<8sIIQ")
_HEADER_LENGTH = struct.Struct("<Q")
_ALIGNMENT = 64
_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64".split()
)
_KINDS = (WEIGHT, OTHER, OPTIMIZER)

StateBuffer = bytes | bytearray | memoryview


@dataclass(eq=False)
class State:
    """Variables of a model and its optimizer, in Keras' order; `weight_order` indexes model.get_weights().

    `fixed_batch` says whether the first visit's rows were a multiple of the batch size: Keras' fit on
    TensorFlow keeps what it compiled then.
    """

    names: list[str]
    arrays: list[np.ndarray]
    kinds: list[str]
    weight_order: list[int]
    step: int = 0
    fixed_batch: bool | None = None

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)


def averaged(states: Sequence[State], rows: Sequence[int]) -> State:
    """One state of several that began as one: floats weighted by rows, in the order that is given; the
    largest of counters; the first of all else, such as seeds."""
    first, weighed = states[0], [(state, n) for state, n in zip(states, rows, strict=True) if n]
    if not weighed:
        return first
    arrays = [
        _average([(state.arrays[place], n) for state, n in weighed], kind, first.arrays[place])
        for place, kind in enumerate(first.kinds)
    ]
    made = State(first.names, arrays, first.kinds, first.weight_order, max(s.step for s, _ in weighed))
    made.fixed_batch = first.fixed_batch
    return made


def _average(parts: Sequence[tuple[np.ndarray, int]], kind: str, first: np.ndarray) -> np.ndarray:
    if first.dtype.kind in "iu" and kind == OPTIMIZER:
        return np.maximum.reduce([array for array, _ in parts])
    # bfloat16 is of a kind of its own.
    if first.dtype.kind in "iub":
        return first
    total = float(sum(n for _, n in parts))
    found = np.zeros(first.shape, np.float64)
    for array, n in parts:
        found += array.astype(np.float64) * (n / total)
    return found.astype(first.dtype)


def weights(state: State) -> bytes:
    """Give the weights in MADlib's form: float32, flattened, in the order of model.get_weights()."""
    flat = (state.arrays[i].astype("<f4", copy=False).ravel() for i in state.weight_order)
    return b"".join(np.ascontiguousarray(array).data for array in flat)


# Small enough for the allocator to use the same memory for one part after the other: fresh memory for each
# costs the kernel as much time as all the copying. From 128 kB on it takes fresh memory for what comes first,
# so that a small state is cut too; a large one would have too many rows.
PART_BYTES = 4 * 1024 * 1024
SMALL_PART_BYTES = 64 * 1024


def to_parts(state: State, part_bytes: int | None = None) -> Iterator[bytes]:
    """Cut a state in parts of bounded size; every byte is copied once."""
    pieces: list[memoryview] = []
    if part_bytes is None:
        part_bytes = _part_bytes(state.nbytes)
    room, number = part_bytes, 0
    for buffer in _buffers(state):
        start = 0
        while start < len(buffer):
            piece = buffer[start : start + room]
            pieces.append(piece)
            start += len(piece)
            room -= len(piece)
            if room == 0:
                yield _seal(number, pieces)
                pieces, room, number = [], part_bytes, number + 1
    if pieces:
        yield _seal(number, pieces)


def _part_bytes(nbytes: int) -> int:
    return SMALL_PART_BYTES if nbytes <= PART_BYTES else PART_BYTES


def from_parts(parts: Iterable[StateBuffer]) -> State:
    """Put a state together again; anything that is not exactly what was written is an error."""
    reader = _StateReader()
    for number, part in enumerate(parts):
        reader.add(_open(number, part))
    return reader.finish()


def of_config(parts: Iterable[StateBuffer], run_id: int, mst_key: int, step: int) -> State:
    """The same for the state of a config after a step; an error names them."""
    try:
        return from_parts(_there(parts))
    except CerebroError as error:
        if error.sqlstate != errors.DATA_CORRUPTED:
            raise
        raise CerebroError(
            f"the state of config {mst_key} after step {step} of run {run_id} is damaged",
            detail=error.detail,
            hint="If the state before it is intact, cerebro.resume continues from there.",
            sqlstate=errors.DATA_CORRUPTED,
        ) from None


def _there(parts: Iterable[StateBuffer]) -> Iterator[StateBuffer]:
    left = iter(parts)
    first = next(left, None)
    if first is None:
        raise _damaged("It is not there.")
    yield first
    yield from left


def _buffers(state: State) -> Iterator[memoryview]:
    header = _header(state)
    yield memoryview(_HEADER_LENGTH.pack(len(header)) + header)
    for array in state.arrays:
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        yield raw.data
        yield memoryview(bytes(-raw.nbytes % _ALIGNMENT))


def size_of(layout: Sequence[tuple[str, Sequence[int], str, str]]) -> int:
    """The bytes of the parts of a state whose variables have these names, shapes, element types and kinds."""
    names, shapes, dtypes, kinds = (list(column) for column in zip(*layout, strict=True))
    fields = {
        "names": names, "shapes": [list(s) for s in shapes], "dtypes": dtypes, "kinds": kinds,
        "weight_order": [n for n, kind in enumerate(kinds) if kind == WEIGHT], "step": 0, "fixed_batch": None,
    }  # fmt: skip
    arrays = _sizes(fields)
    payload = _HEADER_LENGTH.size + len(_as_header(fields)) + sum(arrays)
    return payload + -(-payload // _part_bytes(sum(arrays))) * _PART.size


def _header(state: State) -> bytes:
    fields = {
        "names": state.names,
        "shapes": [list(array.shape) for array in state.arrays],
        "dtypes": [array.dtype.name for array in state.arrays],
        "kinds": state.kinds,
        "weight_order": state.weight_order,
        "step": state.step,
        "fixed_batch": state.fixed_batch,
    }
    return _as_header(fields)


def _as_header(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _seal(number: int, pieces: list[memoryview]) -> bytes:
    check = zlib.crc32(struct.pack("<I", number))
    length = 0
    for piece in pieces:
        check = zlib.crc32(piece, check)
        length += len(piece)
    return b"".join([_PART.pack(_MAGIC, number, check, length), *pieces])


def _open(number: int, part: StateBuffer) -> memoryview:
    view = memoryview(part).cast("B")
    if len(view) < _PART.size:
        raise _damaged(f"Part {number} is only {len(view)} bytes long.")
    magic, found, check, length = _PART.unpack_from(view)
    payload = view[_PART.size :]
    if magic != _MAGIC:
        raise _damaged(f"Part {number} does not start with the mark of a state.")
    if found != number:
        raise _damaged(f"Part {number} says that it is part {found}.")
    if length != len(payload):
        raise _damaged(f"Part {number} holds {len(payload)} bytes and should hold {length}.")
    if zlib.crc32(payload, zlib.crc32(struct.pack("<I", number))) != check:
        raise _damaged(f"The checksum of part {number} does not match.")
    return payload


class _StateReader:
    """Gathers payloads into one buffer that the arrays then share."""

    def __init__(self) -> None:
        self._start = bytearray()
        self._fields: dict[str, Any] | None = None
        self._data = np.empty(0, np.uint8)
        self._filled = 0

    def add(self, payload: memoryview) -> None:
        if self._fields is None:
            self._start += payload
            payload = self._take_header()
        self._append(payload)

    def finish(self) -> State:
        if self._fields is None:
            raise _damaged("The header is not complete.")
        if self._filled != len(self._data):
            raise _damaged(f"{self._filled} of {len(self._data)} bytes of the variables are there.")
        fields = self._fields
        return State(
            names=fields["names"],
            arrays=self._arrays(),
            kinds=fields["kinds"],
            weight_order=fields["weight_order"],
            step=fields["step"],
            fixed_batch=fields["fixed_batch"],
        )

    def _take_header(self) -> memoryview:
        view = memoryview(self._start)
        if len(view) < _HEADER_LENGTH.size:
            return view[:0]
        end = _HEADER_LENGTH.size + _HEADER_LENGTH.unpack_from(view)[0]
        if len(view) < end:
            return view[:0]
        self._fields = _parse_header(bytes(view[_HEADER_LENGTH.size : end]))
        self._data = np.empty(sum(_sizes(self._fields)), np.uint8)
        return view[end:]

    def _append(self, payload: memoryview) -> None:
        end = self._filled + len(payload)
        if end > len(self._data):
            raise _damaged(f"There are more than {len(self._data)} bytes of variables.")
        self._data[self._filled : end] = payload
        self._filled = end

    def _arrays(self) -> list[np.ndarray]:
        fields = cast("dict[str, Any]", self._fields)
        arrays, start = [], 0
        for shape, dtype, size in zip(fields["shapes"], fields["dtypes"], _sizes(fields), strict=True):
            raw = self._data[start : start + _nbytes(shape, dtype)]
            arrays.append(raw.view(_dtype(dtype)).reshape(shape))
            start += size
        return arrays


def _parse_header(text: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(text)
        _check_header(fields)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(f"The header cannot be read: {error}.") from error
    return fields


def _check_header(fields: dict[str, Any]) -> None:
    count = len(fields["names"])
    for name in ("shapes", "dtypes", "kinds"):
        if len(fields[name]) != count:
            raise ValueError(f"{count} names but {len(fields[name])} {name}")
    if not (set(fields["dtypes"]) <= _DTYPES and set(fields["kinds"]) <= set(_KINDS)):
        raise ValueError("unknown element type or kind")
    if not all(isinstance(d, int) and d >= 0 for shape in fields["shapes"] for d in shape):
        raise ValueError("impossible shape")
    if not all(isinstance(i, int) and 0 <= i < count for i in fields["weight_order"]):
        raise ValueError("impossible weight order")
    if not isinstance(fields["step"], int) or fields["fixed_batch"] not in (None, True, False):
        raise ValueError("impossible step or kind of batch")


def _dtype(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def _nbytes(shape: list[int], dtype: str) -> int:
    count = 1
    for dimension in shape:
        count *= dimension
    return count * _dtype(dtype).itemsize


def _sizes(fields: Mapping[str, Any]) -> list[int]:
    exact = [_nbytes(s, d) for s, d in zip(fields["shapes"], fields["dtypes"], strict=True)]
    return [size + -size % _ALIGNMENT for size in exact]


def _damaged(detail: str) -> CerebroError:
    return CerebroError("the stored state is damaged", detail=detail, sqlstate=errors.DATA_CORRUPTED)
