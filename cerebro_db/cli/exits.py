"""The errors with which a command ends, each with its exit code and its message on stderr."""

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
    """An error that is shown with its message and, if there are any, its detail and its hint."""

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
    """An error that is a bug of the client, shown with its traceback."""

    exit_code = REFUSED

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(harmless(self.message), err=True)


class NoServer(Refused):
    """The error that is shown if no server answers."""

    exit_code = NO_SERVER


class BadSpec(Refused):
    """An error in a spec file, found before the server was asked for anything."""

    exit_code = USAGE
