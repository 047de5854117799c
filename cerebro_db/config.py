"""One config of a run, and the model that it has become."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .link import Row

if TYPE_CHECKING:
    from .run import Run


class Config:
    """One candidate: an architecture with compile and fit parameters."""

    def __init__(self, run: Run, mst_key: int) -> None:
        self.run = run
        self.mst_key = mst_key

    def __repr__(self) -> str:
        return f"<config {self.mst_key} of run {self.run.run_id}>"

    def info(self) -> Row:
        """Its row of the leaderboard."""
        return self.run.db.rows(
            "SELECT * FROM cerebro.leaderboard WHERE run_id = %s AND mst_key = %s",
            self.run.run_id,
            self.mst_key,
        )[0]
