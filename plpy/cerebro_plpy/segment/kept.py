"""Frozen weights that a session keeps in memory, so that the states of several configs share them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cerebro_plpy.engine.state import Frozen, State, frozen_from_parts

# The frozen weights of one net take far less. If each config has its own, the most recently used stay.
MOST_BYTES = 1 << 30


class KeptFrozen:
    """Frozen weights by digest.

    If they exceed `MOST_BYTES`, the least recently used are dropped; those used last always stay.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Frozen] = {}

    def find(self, digest: str, read: Callable[[str], Iterable[bytes]]) -> Frozen:
        return self._use(self._kept.get(digest) or frozen_from_parts(digest, read(digest)))

    def share(self, state: State) -> None:
        """Replace a state's frozen arrays by equal arrays that are kept, so that states share them."""
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
