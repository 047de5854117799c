"""Frozen weights that a session keeps: configs that share them take them from here."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cerebro_plpy.engine.state import Frozen, State, frozen_from_parts

# One trunk takes far less. If each config has a trunk of its own, the most recently used ones stay.
MOST_BYTES = 1 << 30


class KeptFrozen:
    """Frozen weights by digest, in the order of use; the last one stays whatever its size."""

    def __init__(self) -> None:
        self._kept: dict[str, Frozen] = {}

    def find(self, digest: str, read: Callable[[str], Iterable[bytes]]) -> Frozen:
        return self._use(self._kept.get(digest) or frozen_from_parts(digest, read(digest)))

    def share(self, state: State) -> None:
        """Let a new state share the frozen arrays of other states."""
        if state.frozen is not None:
            state.share(self._use(self._kept.get(state.frozen.digest) or state.frozen))

    def clear(self) -> None:
        self._kept.clear()

    def _use(self, frozen: Frozen) -> Frozen:
        self._kept.pop(frozen.digest, None)
        self._kept[frozen.digest] = frozen
        while len(self._kept) > 1 and sum(one.nbytes for one in self._kept.values()) > MOST_BYTES:
            self._kept.pop(next(iter(self._kept)))
        return frozen
