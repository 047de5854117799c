"""Errors and warnings of the client, in the server's own words."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import psycopg2

E = TypeVar("E", bound=Exception)


class CerebroError(Exception):
    """An error that says what is wrong and, where it is known, in what way and what to do.

    `hint` is for who calls from Python; the command `cerebro` says `shell` instead where it is given.
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
    """A warning that the server gives while it does what it was asked."""


def from_server(error: psycopg2.Error) -> CerebroError:
    """Convert the server's error with its fields; the package's name before the message says nothing here."""
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
    """Return what to do if no server answers."""
    if "Is the server running" not in said:
        return None
    return (
        "Say where the server is, by PGHOST, PGPORT and PGDATABASE or in the call."
        ' In a clone of the repository, make up starts one, and eval "$(make -s env)" says where it is.'
    )


def other_file(path: Path, *suffixes: str) -> CerebroError:
    """Return the error for a file of a kind that cannot be read or written here."""
    return CerebroError(f"{path.name} is neither {' nor '.join(suffixes)}")


def needs(extra: str, what: str) -> CerebroError:
    """Return the error for an optional package that is not installed, with the extra that brings it."""
    return CerebroError(f"{what} is not installed", hint=install(extra))


def install(extra: str) -> str:
    """Return how to install an extra: there is no release on the Python package index yet."""
    return f"In a clone of the repository: pip install './[{extra}]'"
