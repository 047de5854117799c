"""A standby shows the runs of its primary, although it cannot see the primary's locks."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import psycopg2
import pytest

import workload
from fixtures import Connection, execute
from scratch import PORT, Server, as_server, server, wait_until

pytestmark = pytest.mark.slow


def test_a_run_goes_on_for_a_standby_until_its_rows_say_otherwise() -> None:
    with server() as primary:
        workload.prepare(primary)
        folder = primary.folder / "standby"
        connect_by = f"host={primary.folder} port={PORT} user=postgres"
        as_server(primary.bin / "pg_basebackup", "-D", folder, "-R", "-X", "stream", "-d", connect_by)
        options = f"-c listen_addresses= -c port={PORT + 1} -c unix_socket_directories='{primary.folder}'"
        control = (primary.bin / "pg_ctl", "-D", folder, "-s", "-w")
        as_server(*control, "start", "-l", primary.folder / "standby.log", "-o", options)
        try:
            _follow(primary)
        finally:
            as_server(*control, "stop", "-m", "immediate")


def _follow(primary: Server) -> None:
    with closing(primary.connect()) as caller, closing(_standby(primary.folder)) as standby:
        execute(
            caller,
            "SELECT cerebro.madlib_fit_multiple_model('packed', 'out', 'mst', 50,"
            ' options => \'{"backend": "jax", "background": true}\')',
        )
        ((run_id,),) = execute(caller, "SELECT cerebro.last_run()")
        wait_until(lambda: _status(standby, run_id) == "running", "the standby to know the run")
        execute(caller, "SELECT cerebro.stop(%s)", run_id)
        execute(caller, "SELECT cerebro.wait(%s)", run_id)
        wait_until(lambda: _status(standby, run_id) == "finished", "the standby to know the run's end")


def _standby(folder: Path) -> Connection:
    connection = psycopg2.connect(host=str(folder), port=PORT + 1, dbname="postgres", user="postgres")
    connection.autocommit = True
    return connection


def _status(connection: Connection, run_id: int) -> str | None:
    rows = execute(connection, "SELECT status FROM cerebro.runs WHERE run_id = %s", run_id)
    return rows[0][0] if rows else None
