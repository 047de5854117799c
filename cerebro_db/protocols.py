"""Protocols that let the modules of the client use each other's objects without importing their classes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from cerebro_db.link import Connection, Row
    from cerebro_db.statements import Columns


class Server(Protocol):
    """A database that runs statements."""

    def rows(self, statement: str, *values: object) -> list[Row]:
        """Run one statement in a transaction of its own and return its rows."""
        ...

    def look(self, statement: str, *values: object) -> list[Row]:
        """Run one statement with its search_path set to pg_catalog and pg_temp, and return its rows."""
        ...

    def transaction(self, parts: Sequence[str], *values: object) -> list[Row]:
        """Run statements in one transaction, and return the rows of the last statement that returns any."""
        ...

    def session(self) -> AbstractContextManager[Connection]:
        """Return a context manager that lends one connection."""
        ...


class RunRows(Protocol):
    """A run whose data can be read, for example for plots and reports."""

    @property
    def run_id(self) -> int: ...

    @property
    def statements(self) -> Sequence[str]:
        """The SQL statements that began the run; empty if this client did not begin it."""
        ...

    @property
    def db(self) -> Server: ...

    def info(self) -> Row:
        """Return the run's row of the view `cerebro.runs`."""
        ...

    def models(self) -> str:
        """Return the name of the run's model table."""
        ...

    def specification(self) -> dict[str, Any] | None:
        """Return the feature specification of the run's packed table, or None if it has none."""
        ...

    def rows(self, query: str) -> list[Row]:
        """Return the rows of a query whose only parameter (`%s`) is the number of the run."""
        ...


class Predictor(Protocol):
    """A config of a run whose model predicts rows."""

    @property
    def run(self) -> RunRows: ...

    @property
    def mst_key(self) -> int: ...

    def features(self, x: Columns | None) -> Sequence[str]:
        """Return the names of the columns that hold the config's features: those of `x`, if it is given."""
        ...

    def written(self, x: Columns | None) -> str:
        """Return the feature columns as SQL text, in the form that the server's functions take."""
        ...
