"""Errors and warnings of the client. An error from the server keeps its message, detail and hint."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import psycopg2

E = TypeVar("E", bound=Exception)


class CerebroError(Exception):
    """An error with a message and, if they are known, a detail and a hint.

    `hint` is advice for a Python caller; the command `cerebro` shows `shell` in its place, if there is one.
    """

    def __init__(
        self, message: str, *, detail: str | None = None, hint: str | None = None, shell: str | None = None,
        sqlstate: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint
        self.shell = shell or hint
        self.sqlstate = sqlstate

    def __str__(self) -> str:
        more = (("DETAIL", self.detail), ("HINT", self.hint))
        return "\n".join([self.message, *(f"{name}: {text}" for name, text in more if text)])


class CerebroWarning(UserWarning):
    """A warning that the server sends while it carries out a statement."""


def from_server(error: psycopg2.Error) -> CerebroError:
    """Convert psycopg2's error to a CerebroError with the same fields; drop `cerebro: ` from its message."""
    said = error.diag.message_primary or str(error).strip() or type(error).__name__
    return CerebroError(
        said.removeprefix("cerebro: "),
        detail=error.diag.message_detail,
        hint=error.diag.message_hint or _HINTS.get(error.pgcode or "") or _where(said),
        sqlstate=error.pgcode,
    )


_HINTS = {
    "3F000": "Is the extension in this database? As a superuser: CREATE EXTENSION cerebro CASCADE.",
    "42501": "An administrator may call: SELECT cerebro.grant_usage('your role').",
}


def _where(said: str) -> str | None:
    """Return advice on how to name a server if the error message says that none answers, else None."""
    if "Is the server running" not in said:
        return None
    return (
        "Say where the server is, by PGHOST, PGPORT and PGDATABASE or in the call."
        ' In a clone of the repository, make up starts one, and eval "$(make -s env)" says where it is.'
    )


def other_file(path: Path, *suffixes: str) -> CerebroError:
    """Return the error which says that the file has a suffix other than those allowed, `suffixes`."""
    return CerebroError(f"{path.name} is neither {' nor '.join(suffixes)}")


def needs(extra: str, what: str) -> CerebroError:
    """Return the error which says that `what` is not installed, with a hint to install the extra `extra`."""
    return CerebroError(f"{what} is not installed", hint=install(extra))


def install(extra: str) -> str:
    """Return how to install the client with the optional dependencies `extra`; it is not on PyPI yet."""
    return f"In a clone of the repository: pip install './[{extra}]'"
