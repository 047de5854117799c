"""The command `cerebro`: its subcommands, and how it shows errors."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

import click

from cerebro_db.cli import admin, data, forecasts, models, related, runs
from cerebro_db.cli.exits import INTERRUPTED, Refused, Unexpected

EPILOG = """
\b
Examples:
  cerebro doctor                             what is missing, and what to do about it
  cerebro pack cars --x weight,power --y price
  cerebro fit --spec run.toml --watch
  cerebro leaderboard --format csv > best.csv
  cerebro dashboard                          the live page

\b
Exit codes: 0 done, 1 refused, 2 wrong command line or spec file,
3 no server answers, 4 the run did not end well, 130 Ctrl-C.

\b
Completion: eval "$(_CEREBRO_COMPLETE=bash_source cerebro)"   (or zsh_source, fish_source)
"""


# No such table, or no such schema.
_ABSENT = ("42P01", "3F000")
_INIT = "The extension cerebro is not in this database: `cerebro init` says what to do."


class Cerebro(click.Group):
    """A command group that lists its commands in the order of use, and shows errors of the client."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            click.echo("\ninterrupted", err=True)
            ctx.exit(INTERRUPTED)
        except Exception as error:
            raise _told(error) from error


def _told(error: Exception) -> click.ClickException:
    """Return the error to show: a CerebroError with its hint, any other error with its traceback."""
    from cerebro_db.errors import CerebroError

    if isinstance(error, CerebroError):
        absent = error.sqlstate in _ABSENT and "cerebro" in error.message
        return Refused(error.message, error.detail, error.shell or (_INIT if absent else None))
    return Unexpected("".join(traceback.format_exception(error)).rstrip())


@click.group(
    cls=Cerebro,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="cerebro-db", prog_name="cerebro")
def main() -> None:
    """Train many nets at once inside PostgreSQL, where the rows are.

    The database is the one that psql would open: PGHOST, PGPORT, PGUSER, PGDATABASE, ~/.pgpass and the like,
    or --dsn after the command. RUN is the number of a run; where it may be left out, it is the newest.
    """


def _add(commands: Sequence[click.Command]) -> None:
    for command in commands:
        main.add_command(command)


_add([admin.init, admin.doctor])
_add([data.train, data.pack, data.fit])
_add([runs.watch, runs.runs, runs.leaderboard, runs.groups, runs.metrics, runs.advise, runs.report])
_add([data.predict, runs.export, models.bring, models.models])
_add([forecasts.train_forecast, forecasts.forecast, forecasts.explain_forecast])
_add([related.labels, related.relate, related.propagate, related.refresh_propagation, related.smooth])
_add([models.check, models.explain, models.worst_rows])
_add([runs.stop, runs.resume, runs.forget, admin.dashboard])

if __name__ == "__main__":
    main()
