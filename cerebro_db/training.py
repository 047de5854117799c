"""Implements `Database.train`: packs a table or a data frame, and begins a run that searches for a net."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cerebro_db import rows
from cerebro_db.errors import CerebroError
from cerebro_db.run import Run
from cerebro_db.statements import call, call_rows, identifier, table_name

if TYPE_CHECKING:
    from cerebro_db.architectures import Home
    from cerebro_db.link import Row

# Suffixes of the tables that the search reads, apart from the table of a data frame's rows.
_PREPARED = ("_packed", "_packed_summary", "_packed_validation", "_packed_validation_summary", "_nets")


@dataclass(frozen=True)
class TrainRequest:
    """The arguments of one `Database.train` call."""

    source: Any
    target: str
    name: str | None
    budget: str | float
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # False if the tables are made in the caller's transaction, which other sessions do not see.
    background: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.target, str):
            raise CerebroError(
                f"target is a {type(self.target).__name__}, not the name of a column",
                hint="Put the labels into a column of the frame, and name it.",
            )

    @property
    def rows_table(self) -> str | None:
        """The name of the table that a data frame is loaded into; None if `source` is a table already."""
        if isinstance(self.source, str):
            return None
        if self.name is None:
            raise CerebroError("a data frame needs a name", hint='For example name="churn".')
        return table_name(self.name, "_rows")

    @property
    def length(self) -> str:
        """The budget as text for a PostgreSQL interval; a budget that is a number is in seconds."""
        return self.budget if isinstance(self.budget, str) else f"{self.budget} seconds"

    def begin(self, db: Home) -> Run:
        """Load and pack the rows, make the nets, and begin the search; return its run.

        After an error, all tables made so far are dropped, so that the call can be repeated.
        """
        loaded = self.rows_table
        source = table_name(self.source) if loaded is None else loaded
        name = self.name or table_name(source, "_model")
        if loaded is not None:
            rows.load(db, loaded, self.source)
        made: list[str] = [] if loaded is None else [loaded]
        try:
            given = {"target": identifier(self.target), "name": name, "budget": self.length}
            prepare = call("prepare_train", source, **given, options=dict(self.options) or None)
            search: Row = db.rows(prepare + " AS search")[0]["search"]
            made += [table_name(name, suffix) for suffix in _PREPARED]
            search["options"] = {**search["options"], "background": self.background}
            begin = call("madlib_automl", **search)
            run_id = db.transaction([begin, call("last_run") + " AS run_id"])[0]["run_id"]
        except BaseException:
            for table in made:
                db.rows(f"DROP TABLE IF EXISTS {table}")
            raise
        return Run(db, run_id, statements=[prepare, begin])


def finish(run: Run) -> list[Row]:
    """Do what `cerebro.train` does after its search: join the best models to an ensemble, and report on it.

    Return the leaderboard: the configs, best first, and the best constant answer.
    """
    return run.db.rows(call_rows("finish_train", run.models()))
