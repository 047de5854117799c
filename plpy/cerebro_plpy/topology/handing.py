"""Segment sessions that get their rows from the caller's session, since they do not see its tables.

What the run makes is theirs and committed, but its tables are those of the caller's transaction: if that
fails, nothing of the run is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cerebro_plpy.commands import CreateRun, Engine, HandRows, Sent
from cerebro_plpy.store.runs.handed import close_handed
from cerebro_plpy.topology.local import LocalTopology


class HandingTopology(LocalTopology):
    """The segments of a run on tables of the caller's transaction, which `run_here` reads."""

    ends_with_transaction = True
    run_here: Callable[[Sent], Mapping[str, Any]]
    # It takes no more sessions than this.
    most: int
    _handed: int | None = None

    def open(self, engines: Sequence[Engine], segments: int) -> None:
        super().open(engines, min(segments, self.most))

    def hold(self, run_id: int, new: CreateRun | None = None) -> None:
        if new is not None:
            self._handed = run_id
            told = self.run_here(Sent(HandRows(run=new.run)))
            new = replace(new, run=replace(new.run, **told))
        super().hold(run_id, new)

    def let_go(self) -> None:
        super().let_go()
        self._close_handed()

    def stop(self) -> None:
        super().stop()
        self._close_handed()

    def _close_handed(self) -> None:
        if self._handed is not None:
            close_handed(self._handed)
        self._handed = None
