"""How a command ends: codes that scripts can go by, and messages on the error stream."""

from __future__ import annotations

from typing import IO, Any

import click

from cerebro_db.terminal import harmless

REFUSED = 1  # the server or the client refused, or something is not as it should be
USAGE = 2  # the command line or the spec file is wrong: nothing was asked of the server
NO_SERVER = 3  # no server answers, or it lets nobody in
NOT_FINISHED = 4  # the run that was waited for did not end well
INTERRUPTED = 130  # Ctrl-C, as shells say it


class Refused(click.ClickException):
    """An error that tells what could not be done, with its detail and hint if there are any."""

    exit_code = REFUSED

    def __init__(self, message: str, detail: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.detail = detail
        self.hint = hint

    def show(self, file: IO[Any] | None = None) -> None:
        click.secho("ERROR:  ", fg="red", bold=True, err=True, nl=False)
        click.echo(harmless(self.message), err=True)
        for name, text in (("DETAIL", self.detail), ("HINT", self.hint)):
            if text:
                click.echo(f"{name}:  {harmless(text)}", err=True)


class Unexpected(click.ClickException):
    """A fault of the client's own, with its trace, which may hold names and messages of others."""

    exit_code = REFUSED

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(harmless(self.message), err=True)


class NoServer(Refused):
    """An error that says that no server answers."""

    exit_code = NO_SERVER


class BadSpec(Refused):
    """An error in a spec file; nothing was asked of the server."""

    exit_code = USAGE
