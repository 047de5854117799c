"""The interfaces by which the parts of the client use one another."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from cerebro_db.link import Connection, Row
    from cerebro_db.statements import Columns


class Server(Protocol):
    """A database that runs statements, which is all that most parts need of it."""

    def rows(self, statement: str, *values: object) -> list[Row]:
        """Run one statement in a transaction of its own and return its rows."""
        ...

    def look(self, statement: str, *values: object) -> list[Row]:
        """Run one statement that needs no name of the user's, and return its rows."""
        ...

    def transaction(self, parts: Sequence[str], *values: object) -> list[Row]:
        """Run statements in one transaction and return the rows of the last that has any."""
        ...

    def session(self) -> AbstractContextManager[Connection]:
        """Lend one connection."""
        ...


class RunRows(Protocol):
    """The facts of a run, which are all that is needed to show it."""

    @property
    def run_id(self) -> int: ...

    @property
    def statements(self) -> Sequence[str]:
        """The statements that began the run, if they are known here."""
        ...

    @property
    def db(self) -> Server: ...

    def info(self) -> Row:
        """Return the run's row of the view of runs."""
        ...

    def models(self) -> str:
        """Return the table of the run's models."""
        ...

    def specification(self) -> dict[str, Any] | None:
        """Return what the columns of the training rows became, if they were packed as they are."""
        ...

    def rows(self, query: str) -> list[Row]:
        """Return the rows of a query whose one value is the run's number."""
        ...


class Predictor(Protocol):
    """A config of a run whose model predicts rows."""

    @property
    def run(self) -> RunRows: ...

    @property
    def mst_key(self) -> int: ...

    def features(self, x: Columns | None) -> Sequence[str]:
        """Return the columns that hold the config's features."""
        ...

    def written(self, x: Columns | None) -> str:
        """Return these columns as the server reads them."""
        ...
