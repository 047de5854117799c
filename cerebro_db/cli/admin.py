"""Commands about the server: install the extension, check the server, and open the dashboard."""

from __future__ import annotations

from pathlib import Path

import click

from cerebro_db.cli import server
from cerebro_db.cli.connection import connected, make_engine, open_database
from cerebro_db.cli.exits import REFUSED, Refused
from cerebro_db.cli.output import formatted, say, show
from cerebro_db.terminal import harmless

TOKEN_VARIABLE = "CEREBRO_DASHBOARD_TOKEN"
ADDRESS_VARIABLE = "CEREBRO_DASHBOARD_ADDRESS"


@click.command(short_help="Put the extension into the database, or say what an admin must run.")
@click.option("--grant", metavar="ROLE", multiple=True, help="Let this role use cerebro; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option(
    "--unpack", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER",
    help="Put the extension's source there, for `make install` on the server's machine; ask no server.",
)  # fmt: skip
@connected
def init(grant: tuple[str, ...], dry_run: bool, unpack: Path | None, dsn: str) -> None:
    """Put the extension into the database, or say exactly what an administrator must run.

    Ends with code 1 if somebody else must act first.

    \b
    Examples:
      cerebro init --dsn postgresql:///sales --grant alice
      cerebro init --unpack cerebro-source
    """
    if unpack is not None:
        server.unpack(unpack)
        click.echo(f"the extension's source is in {unpack}")
        return
    with open_database(dsn) as db:
        plan = server.plan(db, grant)
        for step in plan.steps:
            say(f"{'would run' if dry_run else 'run'}: {step}")
            if not dry_run:
                db.rows(step)
    if plan.others:
        raise Refused(plan.problem, hint="\n".join(["an administrator must run:", *plan.others]))
    if not plan.steps:
        say(plan.problem)


@click.command(short_help="Look whether the server is fit to train, and say what to do.")
@formatted
@connected
def doctor(form: str, dsn: str) -> None:
    """Look whether everything is there, right and allowed that training needs.

    Ends with code 1 if something is wrong; a note is no fault.

    \b
    Examples:
      cerebro doctor
      cerebro doctor --format json | jq '.[] | select(.status == "wrong")'
    """
    with open_database(dsn) as db:
        found = server.examine(db)
    show(found, form, ("item", "status", "found"))
    advised = [row for row in found if row["advice"]]
    if form == "table" and advised:
        click.echo()
        for row in advised:
            click.echo(f"{click.style(row['item'], bold=True)}: {harmless(row['advice'])}")
    if any(row["status"] == "wrong" for row in found):
        raise click.exceptions.Exit(REFUSED)


@click.command(short_help="Serve the live page: runs, curves, timeline, steering.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to answer at.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8787, show_default=True, help="0 takes a free one."
)
@click.option("--browser/--no-browser", default=True, help="Open the page in a browser.")
@connected
def dashboard(host: str, port: int, browser: bool, dsn: str) -> None:
    """Serve the live page: runs, leaderboards, curves, the segments' timeline, and buttons to steer them.

    It sees and does what the role may that it is connected as. It answers to this machine alone unless --host
    says otherwise, and to the holder of a token: drawn anew each time and printed with the address, or taken
    from CEREBRO_DASHBOARD_TOKEN. Where something stands in between, as in a container,
    CEREBRO_DASHBOARD_ADDRESS says how browsers reach it (http://localhost:9000).

    \b
    Examples:
      cerebro dashboard --dsn postgresql://alice@db/sales
      ssh -L 8787:127.0.0.1:8787 db cerebro dashboard --no-browser
    """
    import os

    try:
        from cerebro_db.dashboard.serve import listen, serve
    except ModuleNotFoundError as error:
        from cerebro_db.errors import install

        raise Refused(f"{error.name} is not installed", hint=install("dashboard")) from None
    open_database(dsn).close()
    try:
        sock = listen(host, port)
    except OSError as error:
        raise Refused(
            f"{host}:{port} cannot be had: {error.strerror}", hint="Choose another --port."
        ) from None
    reading = make_engine(dsn, "cerebro dashboard").execution_options(isolation_level="AUTOCOMMIT")
    acting = make_engine(dsn, "cerebro dashboard")
    token, address = os.environ.get(TOKEN_VARIABLE), os.environ.get(ADDRESS_VARIABLE)
    serve(reading, acting, sock, host, token, browser, click.echo, address and address.rstrip("/"))
