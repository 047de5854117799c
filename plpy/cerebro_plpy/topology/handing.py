"""Segment sessions for packed tables that only the caller's transaction sees.

The caller's session passes them the rows in a file. The sessions commit the run's states and measurements;
if the caller's transaction fails, the run is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cerebro_plpy.commands import CreateRun, Engine, HandRows, Sent
from cerebro_plpy.store.runs.handed import close_handed
from cerebro_plpy.topology.local import LocalTopology


class HandingTopology(LocalTopology):
    """A topology for tables that only the caller's transaction sees.

    `run_here` carries out a command in the caller's session, which can write the rows to a file.
    """

    ends_with_transaction = True
    run_here: Callable[[Sent], Mapping[str, Any]]
    # The largest number of segment sessions.
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
