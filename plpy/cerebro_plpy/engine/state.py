"""A config's state: everything that a config needs to go on, as raw buffers with a small header."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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


@dataclass(eq=False, frozen=True)
class Frozen:
    """Variables that no training changes, and their digest; states that have them share one object."""

    digest: str
    arrays: Sequence[np.ndarray]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)


_TAKEN = np.empty(0)
# Returns the frozen variables that have a digest.
FindFrozen = Callable[[str], Frozen]


@dataclass(eq=False)
class State:
    """The variables of a model and its optimizer, in Keras' order.

    `weight_order` has the places of the weights among the variables, in the order of model.get_weights().
    `fixed_batch` says whether the first visit's number of rows was a multiple of the batch size. It decides
    bits, as Keras' fit keeps the TensorFlow code compiled then. A state in memory has all variables. A stored
    state lacks the variables at `frozen_places`, and names all of them by one digest.
    """

    names: list[str]
    arrays: list[np.ndarray]
    kinds: list[str]
    weight_order: list[int]
    step: int = 0
    fixed_batch: bool | None = None
    frozen_places: Sequence[int] = ()
    frozen: Frozen | None = None

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    @property
    def known(self) -> Mapping[int, np.ndarray]:
        """The frozen variables, by their places among all variables."""
        arrays = () if self.frozen is None else self.frozen.arrays
        return dict(zip(self.frozen_places, arrays, strict=True))

    @property
    def rate(self) -> np.ndarray:
        """The learning rate, which must be a number and not a schedule."""
        return self.arrays[self._rate_place]

    def with_rate(self, rate: np.ndarray) -> State:
        """Return a copy of the state with the given learning rate."""
        arrays = list(self.arrays)
        arrays[self._rate_place] = rate.astype(self.rate.dtype)
        return replace(self, arrays=arrays)

    @property
    def _rate_place(self) -> int:
        named = enumerate(zip(self.names, self.kinds, strict=True))
        # A LossScaleOptimizer has a rate that nothing uses, before that of the optimizer inside.
        return max(place for place, (name, kind) in named if is_rate(name, kind))

    def take_arrays(self) -> Iterator[np.ndarray]:
        """Yield the arrays, and drop each from the state when the next is requested, to save memory."""
        for place in range(len(self.arrays)):
            yield self.arrays[place]
            self.arrays[place] = _TAKEN

    def freeze(self, places: Sequence[int]) -> None:
        """Mark the variables at the given places as variables that no training changes."""
        self.frozen_places = tuple(places)
        self.frozen = _frozen([self.arrays[place] for place in places]) if places else None

    def share(self, frozen: Frozen) -> None:
        """Replace the state's frozen variables by the equal arrays of `frozen`, which other states share."""
        self.frozen = frozen
        for place, array in zip(self.frozen_places, frozen.arrays, strict=True):
            self.arrays[place] = array


def is_rate(name: str, kind: str) -> bool:
    """Return whether a variable is the learning rate."""
    return kind == OPTIMIZER and name.endswith("learning_rate")


def _frozen(arrays: Sequence[np.ndarray]) -> Frozen:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.name}{array.shape}".encode())
        digest.update(_raw(array))
    return Frozen(digest.hexdigest(), arrays)


def frozen_to_parts(frozen: Frozen) -> Iterator[bytes]:
    """Return frozen variables as parts that have the same form as the parts of a state."""
    count = len(frozen.arrays)
    return to_parts(State([""] * count, list(frozen.arrays), [WEIGHT] * count, list(range(count))))


def frozen_from_parts(digest: str, parts: Iterable[StateBuffer]) -> Frozen:
    found = _frozen(from_parts(_there(parts)).arrays)
    if found.digest != digest:
        raise _damaged("The frozen weights are not those that their digest names.")
    return found


def finder(read: Callable[[str], Iterable[StateBuffer]]) -> FindFrozen:
    """Return a function that finds frozen variables by digest, and reads the parts of each digest only once.

    The function keeps all that it has read in memory, until the function itself is dropped.
    """
    known: dict[str, Frozen] = {}

    def find(digest: str) -> Frozen:
        if digest not in known:
            known[digest] = frozen_from_parts(digest, read(digest))
        return known[digest]

    return find


def _none(digest: str) -> Frozen:
    raise _damaged(f"Nothing is known of the frozen weights {digest}.")


def averaged(states: Sequence[State], rows: Sequence[int]) -> State:
    """Return the mean of states that continue the same state, weighted by the numbers of rows.

    Floats are averaged in the given order of states. Of a counter, the largest value is taken; all other
    variables, such as seeds, come from the first state.
    """
    first, weighed = states[0], [(state, n) for state, n in zip(states, rows, strict=True) if n]
    if not weighed:
        return first
    arrays = [
        _average([(state.arrays[place], n) for state, n in weighed], kind, first.arrays[place])
        for place, kind in enumerate(first.kinds)
    ]
    made = replace(first, arrays=arrays, step=max(s.step for s, _ in weighed))
    if first.frozen is not None:
        made.share(first.frozen)
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
    """Return the weights in MADlib's form: float32, flattened, in the order of model.get_weights()."""
    flat = (state.arrays[i].astype("<f4", copy=False).ravel() for i in state.weight_order)
    return b"".join(np.ascontiguousarray(array).data for array in flat)


# Small enough for the allocator to use the same memory for one part after the other: fresh memory for each
# costs the kernel as much time as all the copying. A first block of 128 kB or more always gets fresh memory,
# so small states are cut into smaller parts; a large state would have too many rows.
PART_BYTES = 4 * 1024 * 1024
SMALL_PART_BYTES = 64 * 1024


def whole(state: State) -> State:
    """Return the state with no places marked as frozen, so that all its variables are stored with it."""
    return replace(state, frozen_places=(), frozen=None)


def to_parts(state: State, part_bytes: int | None = None) -> Iterator[bytes]:
    """Yield the state, without its frozen variables, as parts of bounded size; each byte is copied once."""
    pieces: list[memoryview] = []
    if part_bytes is None:
        part_bytes = _part_bytes(sum(array.nbytes for array in _changing(state)))
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


def _changing(state: State) -> list[np.ndarray]:
    frozen = set(state.frozen_places)
    return [array for place, array in enumerate(state.arrays) if place not in frozen]


def from_parts(parts: Iterable[StateBuffer], frozen: FindFrozen = _none) -> State:
    """Return the state that `to_parts` cut into these parts; raise an error if any byte is damaged."""
    reader = _StateReader()
    for number, part in enumerate(parts):
        reader.add(_open(number, part))
    return reader.finish(frozen)


def of_config(
    parts: Iterable[StateBuffer], run_id: int, mst_key: int, step: int, frozen: FindFrozen = _none
) -> State:
    """Return a config's state after a step; an error about damaged parts names config, step and run."""
    try:
        return from_parts(_there(parts), frozen)
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
    for array in _changing(state):
        raw = _raw(array)
        yield raw
        yield memoryview(bytes(-raw.nbytes % _ALIGNMENT))


def _raw(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def size_of(layout: Sequence[tuple[str, Sequence[int], str, str]], frozen: Collection[int] = ()) -> int:
    """Return how many bytes the parts of a state take; `frozen` are places of variables that do not count.

    `layout` has the name, shape, element type and kind of each variable.
    """
    names, shapes, dtypes, kinds = (list(column) for column in zip(*layout, strict=True))
    fields = {
        "names": names, "shapes": [list(s) for s in shapes], "dtypes": dtypes, "kinds": kinds,
        "weight_order": [n for n, kind in enumerate(kinds) if kind == WEIGHT], "step": 0, "fixed_batch": None,
        **({"frozen": sorted(frozen), "digest": "0" * 64} if frozen else {}),
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
    if state.frozen is not None:
        fields |= {"frozen": list(state.frozen_places), "digest": state.frozen.digest}
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
    """A reader that collects a state's bytes in one buffer per variable, so that each can be freed alone."""

    def __init__(self) -> None:
        self._start = bytearray()
        self._fields: dict[str, Any] | None = None
        self._buffers: list[np.ndarray] = []
        # The buffer that is being filled, and how many bytes of it and of all are there.
        self._place = self._filled = self._total = 0

    def add(self, payload: memoryview) -> None:
        if self._fields is None:
            self._start += payload
            payload = self._take_header()
        self._append(payload)

    def finish(self, frozen: FindFrozen) -> State:
        if self._fields is None:
            raise _damaged("The header is not complete.")
        if self._total != self._size:
            raise _damaged(f"{self._total} of {self._size} bytes of the variables are there.")
        fields = self._fields
        made = State(
            names=fields["names"],
            arrays=self._arrays(),
            kinds=fields["kinds"],
            weight_order=fields["weight_order"],
            step=fields["step"],
            fixed_batch=fields["fixed_batch"],
            frozen_places=fields.get("frozen", ()),
        )
        if made.frozen_places:
            _share(made, frozen(fields["digest"]))
        return made

    def _take_header(self) -> memoryview:
        view = memoryview(self._start)
        if len(view) < _HEADER_LENGTH.size:
            return view[:0]
        end = _HEADER_LENGTH.size + _HEADER_LENGTH.unpack_from(view)[0]
        if len(view) < end:
            return view[:0]
        self._fields = _parse_header(bytes(view[_HEADER_LENGTH.size : end]))
        self._buffers = [np.empty(size, np.uint8) for size in _sizes(self._fields)]
        return view[end:]

    @property
    def _size(self) -> int:
        return sum(map(len, self._buffers))

    def _append(self, payload: memoryview) -> None:
        self._total += len(payload)
        while len(payload):
            if self._place == len(self._buffers):
                raise _damaged(f"There are more than {self._size} bytes of variables.")
            own = self._buffers[self._place]
            piece = payload[: len(own) - self._filled]
            own[self._filled : self._filled + len(piece)] = piece
            payload, self._filled = payload[len(piece) :], self._filled + len(piece)
            if self._filled == len(own):
                self._place, self._filled = self._place + 1, 0

    def _arrays(self) -> list[np.ndarray]:
        """Return the variables; a frozen variable, which is not in the parts, is zeros of its shape."""
        fields = cast("dict[str, Any]", self._fields)
        frozen, arrays = set(fields.get("frozen", ())), []
        described = zip(fields["shapes"], fields["dtypes"], self._buffers, strict=True)
        for place, (shape, dtype, buffer) in enumerate(described):
            if place in frozen:
                arrays.append(np.broadcast_to(np.zeros((), _dtype(dtype)), shape))
                continue
            arrays.append(buffer[: _nbytes(shape, dtype)].view(_dtype(dtype)).reshape(shape))
        return arrays


def _share(state: State, frozen: Frozen) -> None:
    wanted = [(state.arrays[place].shape, state.arrays[place].dtype) for place in state.frozen_places]
    if wanted != [(array.shape, array.dtype) for array in frozen.arrays]:
        raise _damaged("The frozen weights that it names are of other shapes.")
    state.share(frozen)


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
    if not all(isinstance(i, int) and 0 <= i < count for i in fields.get("frozen", ())):
        raise ValueError("impossible places of what is frozen")
    if fields.get("frozen") and not isinstance(fields["digest"], str):
        raise ValueError("impossible digest")
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
    """Return how many bytes each variable takes in the parts of a state: none if it is frozen."""
    exact = [_nbytes(s, d) for s, d in zip(fields["shapes"], fields["dtypes"], strict=True)]
    frozen = set(fields.get("frozen", ()))
    return [0 if place in frozen else size + -size % _ALIGNMENT for place, size in enumerate(exact)]


def _damaged(detail: str) -> CerebroError:
    return CerebroError("the stored state is damaged", detail=detail, sqlstate=errors.DATA_CORRUPTED)
