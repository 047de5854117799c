"""What the parts of the client ask of one another."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .link import Connection, Row
    from .statements import Columns


class Server(Protocol):
    """Runs statements: what most parts need of a database."""

    def rows(self, statement: str, *values: object) -> list[Row]:
        """Run one statement in a transaction of its own and give its rows."""
        ...

    def look(self, statement: str, *values: object) -> list[Row]:
        """The same for a statement that needs no name of the user's."""
        ...

    def transaction(self, parts: Sequence[str], *values: object) -> list[Row]:
        """Run statements in one transaction and give the rows of the last."""
        ...

    def session(self) -> AbstractContextManager[Connection]:
        """Lend one connection."""
        ...


class RunRows(Protocol):
    """What is to be known of a run: what shows one needs no more."""

    @property
    def run_id(self) -> int: ...

    @property
    def statements(self) -> Sequence[str]:
        """Those that began it, if they are known here."""
        ...

    @property
    def db(self) -> Server: ...

    def info(self) -> Row:
        """Its row of the view of runs."""
        ...

    def models(self) -> str:
        """The table of its models."""
        ...

    def specification(self) -> dict[str, Any] | None:
        """What the columns of the training rows became, where they were packed as they are."""
        ...

    def rows(self, query: str) -> list[Row]:
        """Rows of a query whose one value is the run's number."""
        ...


class Predictor(Protocol):
    """A config of a run whose model predicts rows."""

    @property
    def run(self) -> RunRows: ...

    @property
    def mst_key(self) -> int: ...

    def features(self, x: Columns | None) -> Sequence[str]:
        """The columns that its features are in."""
        ...

    def written(self, x: Columns | None) -> str:
        """The same as the server reads them."""
        ...
