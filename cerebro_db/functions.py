"""Losses, metrics and layers that a superuser has registered in the database."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cerebro_db.errors import CerebroError
from cerebro_db.statements import call

if TYPE_CHECKING:
    import pandas

    from cerebro_db.protocols import Server


_COLUMNS = (
    "name", "version", "kind", "description", "higher_is_better", "registered_by", "at", "granted_to",
    "source",
)  # fmt: skip


class Functions:
    """The registered functions that the caller may use. Only superusers can register or grant functions."""

    def __init__(self, db: Server) -> None:
        self._db = db

    def register(
        self,
        function: str | Callable[..., Any],
        kind: str,
        *,
        name: str | None = None,
        description: str | None = None,
        higher_is_better: bool | None = None,
    ) -> int:
        """Register a Python function or class, or its source text with a `name`; return its version number.

        `kind` is "loss", "metric" or "layer". Only the source of the function or class itself is sent. It
        must import whatever it uses inside its own body; otherwise, pass all of the source as text.
        """
        source, own = (function, None) if isinstance(function, str) else _read(function)
        statement = call(
            "register_function", name or own, source, kind, description=description,
            higher_is_better=higher_is_better,
        )  # fmt: skip
        return self._db.rows(statement)[0]["register_function"]

    def grant(self, name: str, role: str = "public") -> None:
        """Allow a role to use a function; the role public, the default, means every role."""
        self._db.rows(call("grant_function", name, role))

    def revoke(self, name: str, role: str = "public") -> None:
        """Revoke what `grant` granted to a role; the role public, the default, means every role."""
        self._db.rows(call("revoke_function", name, role))

    def unregister(self, name: str) -> None:
        """Remove all versions of a registered function, and all grants on it."""
        self._db.rows(call("unregister_function", name))

    def source(self, name: str) -> str:
        """Return the Python source of the newest version of a registered function."""
        found = self._db.look(
            "SELECT source FROM cerebro.functions WHERE name = %s ORDER BY version DESC LIMIT 1", name
        )
        if not found:
            raise CerebroError(f"there is no registered function {name}, or it is not granted to you")
        return found[0]["source"]

    def list(self) -> pandas.DataFrame:
        """Return all versions of the functions that the caller may use, as a data frame."""
        from cerebro_db.frames import frame

        rows = self._db.look(f"SELECT {', '.join(_COLUMNS)} FROM cerebro.functions ORDER BY name, version")
        return frame(rows, _COLUMNS)


def _read(function: Callable[..., Any]) -> tuple[str, str]:
    try:
        return textwrap.dedent(inspect.getsource(function)), function.__name__
    except (OSError, TypeError, AttributeError):
        raise CerebroError(
            f"Python does not know the source of {function!r}", hint="Give the source as text, and a name."
        ) from None
